"""Bytes of partitions on their brokers (DescribeLogDirs), for plans that balance by size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from kraft_pipeline.archive.errors import ArchiveError
from kraft_protocol.client.cluster import Cluster, Settings
from kraft_protocol.client.errors import BrokerError
from kraft_protocol.client.session import Versions
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

VERSIONS: Final[Versions] = {ApiKey.DESCRIBE_LOG_DIRS: (2, 4)}
Sizes = dict[tuple[str, int], int]


def of_brokers(settings: Settings) -> Sizes:
    """The largest replica of each partition. Raises ClientError, OSError."""
    found: Sizes = {}
    with Cluster(settings) as cluster:
        cluster.topics()
        addresses = cluster.addresses()
    for host, port in addresses:
        connection = settings.connect(host, port, VERSIONS)
        try:
            _add(found, connection.request(m.DescribeLogDirsRequest(topics=None)))
        finally:
            connection.close()
    return found


def _add(found: Sizes, answer: m.DescribeLogDirsResponse) -> None:
    if answer.error_code:
        raise BrokerError(answer.error_code, "log directories")
    for directory in answer.results:
        if directory.error_code:
            raise BrokerError(directory.error_code, f"log directory {directory.log_dir}")
        for topic in directory.topics:
            for one in topic.partitions:
                if not one.is_future_key:
                    key = (topic.name, one.partition_index)
                    found[key] = max(one.partition_size, found.get(key, 0))


def of_file(path: Path) -> Sizes:
    """Parse the output of `kafka-log-dirs --describe`.

    Raises ArchiveError if the file has another format, and OSError.
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
