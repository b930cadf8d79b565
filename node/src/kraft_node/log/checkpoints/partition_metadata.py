"""partition.metadata: the topic id of a partition's directory (KIP-516)."""

from __future__ import annotations

from typing import Final

from kraft_node.base.env import Disk, read_file
from kraft_node.log.names import PARTITION_METADATA
from kraft_node.log.segments.files import Originals, write_file
from kraft_protocol.ids import ZERO_UUID, Uuid, parse_uuid, uuid_text

_VERSION: Final = "version: 0"
_ID: Final = "topic_id: "


def read(disk: Disk, directory: str) -> Uuid | None:
    """The topic id in a partition's directory; None without a complete file (a crash may have torn it).

    Raises OSError.
    """
    try:
        lines = read_file(disk, f"{directory}/{PARTITION_METADATA}").decode("latin-1").splitlines()
    except FileNotFoundError:
        return None
    if len(lines) < 2 or lines[0] != _VERSION or not lines[1].startswith(_ID):
        return None
    try:
        topic_id = parse_uuid(lines[1][len(_ID) :].strip())
    except ValueError:
        return None
    return None if topic_id == ZERO_UUID else topic_id


def content(topic_id: Uuid) -> bytes:
    """The content of the file."""
    return f"{_VERSION}\n{_ID}{uuid_text(topic_id)}".encode()


def write(disk: Disk, directory: str, topic_id: Uuid) -> None:
    """Write or replace the file; durable with the log's first flush. Raises OSError."""
    path = f"{directory}/{PARTITION_METADATA}"
    write_file(disk, path + ".tmp", 0, content(topic_id))
    disk.rename(path + ".tmp", path)


def make(originals: Originals, directory: str, topic_id: Uuid) -> None:
    """The same in a new directory."""
    originals.put(f"{directory}/{PARTITION_METADATA}", content(topic_id))
