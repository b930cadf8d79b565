"""Lists the replicas in log directories with their checkpoints (Kafka's files; docs/storage.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

_PARTITION: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")
_SEGMENT: Final = re.compile(r"(\d{20})\.log")
_ON_ITS_WAY: Final = re.compile(r".*\.[0-9a-f]{32}-(delete|future|stray)")
LOST: Final = ""
"""The name in place of a segment if a replica has no file although it must have records. Retention leaves a file."""
_ID_LINE: Final = re.compile(r"topic_id:\s*(\S+)")


class LayoutError(Exception):
    """A directory is not a log directory, or cannot be read."""


class Segment(NamedTuple):
    """One file of records."""

    name: str
    base_offset: int
    size: int
    next_base: int
    """Base offset of the next segment; -1 for the last segment."""


class Replica(NamedTuple):
    """One replica of one partition, by the files in its directory."""

    topic: str
    partition: int
    topic_id: str
    broker: int
    directory: str
    start: int
    """First offset that the replica must have."""
    high_watermark: int
    """Checkpointed high watermark: all in-sync replicas have the records below it. -1 if unknown."""
    compacted: bool
    """Whether the cleaner has compacted the log; only then offsets may be missing."""
    flushed: int
    """The recovery point: everything below it was on stable storage."""
    epochs: list[tuple[int, int]]
    """Leader epochs with their first offsets; empty if the checkpoint is missing."""
    segments: list[Segment]
    """Empty if the replica never had a record: the first record makes the file."""


def replicas(directories: Iterable[str | Path]) -> list[Replica]:
    """All replicas in the log directories. Raises LayoutError if one is not a log directory."""
    found = []
    for directory in directories:
        found += _of_directory(Path(directory))
    return found


def _of_directory(directory: Path) -> list[Replica]:
    try:
        meta = _properties(directory / "meta.properties")
        broker = int(meta.get("node.id") or meta["broker.id"])
    except FileNotFoundError:
        raise LayoutError(f"{directory} is not a log directory: it has no meta.properties") from None
    except (OSError, KeyError, ValueError) as e:
        raise LayoutError(f"{directory}/meta.properties cannot be read: {e!r}") from None
    # Read high watermarks first: records appended while sizes are read are above them.
    marks = _offsets(directory / "replication-offset-checkpoint")
    flushed = _offsets(directory / "recovery-point-offset-checkpoint")
    starts = _offsets(directory / "log-start-offset-checkpoint")
    cleaned = _offsets(directory / "cleaner-offset-checkpoint")
    found = []
    for entry in sorted(os.listdir(directory)):
        match = _PARTITION.fullmatch(entry)
        if match is None or _ON_ITS_WAY.fullmatch(entry) or not (directory / entry).is_dir():
            continue
        topic, partition = match["topic"], int(match["partition"])
        key = (topic, partition)
        segments = _segments(directory / entry)
        first, high = segments[0].base_offset if segments else 0, marks.get(key, -1)
        start = max(first, starts.get(key, 0))
        if not segments and high > start:
            segments = [Segment(LOST, start, 0, -1)]
        found.append(
            Replica(
                topic,
                partition,
                _topic_id(directory / entry),
                broker,
                str(directory),
                start,
                high,
                key in cleaned,
                flushed.get(key, 0),
                _epochs(directory / entry / "leader-epoch-checkpoint"),
                segments,
            )
        )
    return found


def deleted_before(directory: Path, partition: str, base: int) -> bool:
    """Whether retention may explain why the segment at `base` is missing.

    Retention deletes from the first segment on. A segment that is missing above an existing one is lost, or compaction
    has merged it. Raises OSError, also if the log directory itself is missing.
    """
    if partition not in os.listdir(directory):
        return True  # the topic is deleted, or the replica has moved
    return all(int(name[:20]) > base for name in _names(directory / partition))


def _names(folder: Path) -> list[str]:
    """The names of the segments, in any order. Raises OSError."""
    return [name for name in os.listdir(folder) if _SEGMENT.fullmatch(name)]


def _segments(folder: Path) -> list[Segment]:
    sizes = {}
    for name in _names(folder):
        try:
            sizes[name] = (folder / name).stat().st_size
        except FileNotFoundError:  # retention deleted it first
            continue
    names = sorted(sizes)
    bases = [int(name[:20]) for name in names]
    return [Segment(n, b, sizes[n], after) for n, b, after in zip(names, bases, [*bases, -1][1:], strict=True)]


def _properties(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines()
    return dict(line.strip().split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def _entries(path: Path) -> list[list[str]]:
    """The lines of a checkpoint; empty if it is missing or malformed."""
    try:
        lines = path.read_text().splitlines()
        count = int(lines[1])
    except (OSError, UnicodeDecodeError, ValueError, IndexError):
        return []
    return [line.split() for line in lines[2 : 2 + count]]


def _offsets(path: Path) -> dict[tuple[str, int], int]:
    found = {}
    for entry in _entries(path):
        if len(entry) == 3 and entry[1].isdecimal() and entry[2].isdecimal():
            found[entry[0], int(entry[1])] = int(entry[2])
    return found


def _epochs(path: Path) -> list[tuple[int, int]]:
    return [(int(e[0]), int(e[1])) for e in _entries(path) if len(e) == 2 and e[0].isdecimal() and e[1].isdecimal()]


def _topic_id(folder: Path) -> str:
    try:
        match = _ID_LINE.search((folder / "partition.metadata").read_text())
    except (OSError, UnicodeDecodeError):
        return ""
    return match[1] if match else ""
