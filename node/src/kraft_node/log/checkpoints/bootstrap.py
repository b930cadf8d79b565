"""bootstrap.checkpoint: the records of a cluster's first controller (KIP-778), in snapshot format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kraft_node.base.env import Disk, read_file
from kraft_protocol.buffers import Buffer
from kraft_protocol.records.batch import check_batch, iter_records
from kraft_protocol.records.errors import BatchError

FILE: Final = "bootstrap.checkpoint"


class SnapshotDamaged(ValueError):  # noqa: N818
    """A durable file of batches is damaged; the message names file and position."""


def checked_batches(data: Buffer, path: str) -> Iterator[memoryview]:
    """The batches that fill `data`, each checked by its CRC. Raises SnapshotDamaged."""
    view = memoryview(data)
    position = 0
    while position < len(view):
        try:
            header = check_batch(view, position)
        except BatchError as e:
            raise SnapshotDamaged(f"{path} is damaged: {e}") from None
        yield view[position : position + header.length]
        position += header.length


def read_records(disk: Disk, directory: str) -> list[bytes]:
    """The record values of the file in a metadata directory; empty if it is missing. Raises OSError, ValueError."""
    path = f"{directory}/{FILE}"
    try:
        data = read_file(disk, path)
    except FileNotFoundError:
        return []
    values: list[bytes] = []
    for batch in checked_batches(data, path):
        if not check_batch(batch).is_control:
            values += [record.value for record in iter_records(batch) if record.value is not None]
    return values
