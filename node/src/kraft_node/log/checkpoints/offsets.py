"""Kafka's checkpoint files: a version line, a count, one entry per line; replaced atomically."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from kraft_node.base.env import Disk, read_file
from kraft_node.log.resting.offset_column import OffsetColumn

OffsetMap: TypeAlias = dict[str, OffsetColumn]
"""Offsets by topic and partition."""

VERSION = 0


def offset_in(offsets: OffsetMap, topic: str, partition: int, default: int = 0) -> int:
    """The offset of a partition; `default` if the checkpoint does not name it."""
    of_topic = offsets.get(topic)
    found = None if of_topic is None else of_topic.get(partition)
    return default if found is None else found


def column_of(offsets: OffsetMap, topic: str) -> OffsetColumn:
    """The offsets of a topic, made if missing."""
    of_topic = offsets.get(topic)
    if of_topic is None:
        of_topic = offsets[topic] = OffsetColumn()
    return of_topic


class CheckpointError(ValueError):
    """The file is not a complete checkpoint of a known version."""


def _lines(data: bytes, fields: int) -> list[list[str]]:
    try:
        lines = data.decode().split("\n")
        version, count = int(lines[0]), int(lines[1])
        entries = [line.rsplit(" ", fields - 1) for line in lines[2:] if line]
    except (UnicodeDecodeError, ValueError, IndexError) as e:
        raise CheckpointError(f"not a checkpoint: {e}") from None
    if version != VERSION:
        raise CheckpointError(f"unknown version {version}")
    if len(entries) != count or any(len(entry) != fields for entry in entries):
        raise CheckpointError(f"{len(entries)} entries, but the count in the file is {count}")
    return entries


def parse_epochs(data: bytes) -> list[tuple[int, int]]:
    """The (epoch, first offset) pairs of a leader-epoch-checkpoint. Raises CheckpointError."""
    try:
        return [(int(epoch), int(start)) for epoch, start in _lines(data, 2)]
    except ValueError as e:
        raise CheckpointError(str(e)) from None


def parse_offsets(data: bytes) -> OffsetMap:
    """The offsets of an offset checkpoint. Raises CheckpointError."""
    offsets: OffsetMap = {}
    try:
        for topic, partition, offset in _lines(data, 3):
            column_of(offsets, topic)[int(partition)] = int(offset)
    except (ValueError, OverflowError) as e:
        raise CheckpointError(str(e)) from None
    return offsets


class CheckpointText:
    """The lines of some offset checkpoints, by topic: a write formats only the changed topics.

    Belongs to the thread that writes the files.
    """

    __slots__ = ("_counts", "_lines")

    def __init__(self, files: int) -> None:
        """`files`: the number of checkpoints."""
        self._lines: list[dict[str, bytes]] = [{} for _ in range(files)]
        self._counts = [0] * files

    def update(self, changes: Mapping[str, Sequence[Mapping[int, int]]]) -> None:
        """Take the offsets of all partitions of the changed topics, one mapping per file."""
        for topic, of_files in changes.items():
            for number, offsets in enumerate(of_files):
                lines = self._lines[number]
                before = lines.pop(topic, None)
                if before is not None:
                    self._counts[number] -= before.count(b"\n")
                if offsets:
                    lines[topic] = "".join([f"{topic} {at} {offset}\n" for at, offset in offsets.items()]).encode()
                    self._counts[number] += len(offsets)

    def data(self, number: int) -> bytes:
        """The bytes of a file."""
        return b"".join((f"{VERSION}\n{self._counts[number]}\n".encode(), *self._lines[number].values()))


def read_offsets(disk: Disk, path: str) -> OffsetMap:
    """The offsets in the file at `path`; empty if it is missing, or empty as Apache Kafka creates it.

    Raises OSError, CheckpointError.
    """
    try:
        data = read_file(disk, path)
        return parse_offsets(data) if data else {}
    except FileNotFoundError:
        return {}
    except CheckpointError as e:
        raise CheckpointError(f"{path}: {e}") from None
