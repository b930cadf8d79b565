"""Bytes of partitions on their brokers (DescribeLogDirs), for plans that balance by size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from kraft_pipeline.archive.errors import ArchiveError
from kraft_pipeline.client import BrokerError, Cluster, Settings
from kraft_pipeline.client import messages as m
from kraft_pipeline.client.buffers import Reader, Writer
from kraft_pipeline.client.connection import Connection

DESCRIBE_LOG_DIRS: Final = 35
VERSIONS: Final = {m.API_VERSIONS: 3, DESCRIBE_LOG_DIRS: 2}
Sizes = dict[tuple[str, int], int]


def of_brokers(settings: Settings) -> Sizes:
    """The largest replica of each partition. Raises ClientError, OSError."""
    found: Sizes = {}
    with Cluster(settings) as cluster:
        cluster.topics()
        addresses = cluster.addresses()
    for host, port in addresses:
        times = {"connect_s": settings.connect_s, "request_s": settings.request_s}
        connection = Connection(host, port, client_id=settings.client_id, versions=VERSIONS, **times)
        try:
            _add(found, connection.ask(DESCRIBE_LOG_DIRS, Writer().length(-1).no_tags()))
        finally:
            connection.close()
    return found


def _add(found: Sizes, reader: Reader) -> None:
    reader.i32()
    for _ in range(reader.length()):
        error = reader.i16()
        directory = reader.string()
        if error:
            raise BrokerError(error, f"log directory {directory}")
        for _ in range(reader.length()):
            topic = reader.string()
            for _ in range(reader.length()):
                partition, size = reader.i32(), reader.i64()
                reader.i64()
                is_future = reader.i8()
                reader.tags()
                if not is_future:
                    found[topic, partition] = max(size, found.get((topic, partition), 0))
            reader.tags()
        reader.tags()


def of_file(path: Path) -> Sizes:
    """Parse the output of `kafka-log-dirs --describe`.

    Raises ArchiveError if the file is something else, and OSError.
    """
    text = path.read_text()
    found: Sizes = {}
    try:
        document: dict[str, Any] = json.loads(text[text.index('{"') :].splitlines()[0])
        for broker in document["brokers"]:
            for directory in broker["logDirs"]:
                for one in directory["partitions"]:
                    topic, _, number = one["partition"].rpartition("-")
                    key = (topic, int(number))
                    found[key] = max(int(one["size"]), found.get(key, 0))
    except (ValueError, KeyError, TypeError, IndexError) as e:
        raise ArchiveError(f"{path} is not what kafka-log-dirs --describe prints: {e!r}") from None
    return found
