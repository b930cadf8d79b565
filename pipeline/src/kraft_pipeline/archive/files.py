"""The files of a metadata log: segments and snapshots, in reading order."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from kraft_pipeline.archive.changes import ChangeDecoder
from kraft_pipeline.archive.errors import ArchiveError
from kraft_pipeline.archive.reconcile import Span
from kraft_pipeline.codec.batches import scan
from kraft_pipeline.codec.errors import CodecError
from kraft_protocol.records.batch import HEADER_SIZE

FOLDER: Final = "__cluster_metadata-0"
_SEGMENT: Final = re.compile(r"(\d{20})\.log")
_SNAPSHOT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_BOOTSTRAP: Final = "bootstrap.checkpoint"
END: Final = 1 << 62


class Piece(NamedTuple):
    """The part of a file to read: records with offsets in [start, end), or a whole snapshot."""

    path: str
    start: int
    end: int
    snapshot_offset: int = -1
    """The last offset that a snapshot covers; -1 for a segment."""


def pieces(paths: Sequence[str | Path], start: int = 0) -> list[Piece]:
    """The parts to read of a directory (`__cluster_metadata-0`, or its parent) or of single files.

    `start`: an archive has everything before this offset, so no snapshot is read. If the beginning of a log was
    deleted, the oldest snapshot that the log continues is read first. Raises ArchiveError if records are missing.
    """
    if len(paths) == 1 and Path(paths[0]).is_dir():
        folder = Path(paths[0])
        if (folder / FOLDER).is_dir():
            folder = folder / FOLDER
        files = sorted(p for p in folder.iterdir() if _SEGMENT.fullmatch(p.name) or _SNAPSHOT.fullmatch(p.name))
        if not files:
            raise ArchiveError(f"{folder} holds no segment and no snapshot of {FOLDER}")
        return _of_log(folder, files, start)
    found = []
    for path in map(Path, paths):
        if not path.is_file():
            raise ArchiveError(f"{path} is not a file")
        if path.suffix == ".checkpoint":
            found.append(_snapshot(path))
        elif path.suffix == ".log":
            found.append(Piece(str(path), start, END))
        else:
            raise ArchiveError(f"{path} is neither a .log nor a .checkpoint")
    return sorted(found, key=lambda piece: (piece.snapshot_offset < 0, Path(piece.path).name))


def spans(paths: Sequence[str | Path], start: int = 0) -> list[Span]:
    """The epochs of records in a directory's log, from the segment that holds `start`.

    A snapshot's name has the epoch of the last record that it covers. Empty for a log given as files. Raises OSError.
    """
    folder = Path(paths[0]) if len(paths) == 1 else Path()
    folder = folder / FOLDER if (folder / FOLDER).is_dir() else folder
    if len(paths) != 1 or not folder.is_dir():
        return []
    segments = sorted(p for p in folder.iterdir() if _SEGMENT.fullmatch(p.name))
    older = [p for p in segments if int(p.name[:20]) <= start]
    found = [span for path in [*older[-1:], *segments[len(older) :]] for span in _spans(path)]
    begin = found[0].first if found else END
    named = [match for p in folder.iterdir() if (match := _SNAPSHOT.fullmatch(p.name))]
    before = {int(match[1]) - 1: int(match[2]) for match in named if 0 < int(match[1]) <= begin}
    return [*(Span(last, last, epoch) for last, epoch in before.items()), *found]


def _spans(path: Path) -> list[Span]:
    """The epochs of a segment; consecutive batches of the same epoch are a span."""
    found: list[Span] = []
    with open(path, "rb") as file:
        if not file.seek(0, 2):
            return found
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    try:
        for batch in scan(data, check_crc=False):
            epoch = int.from_bytes(data[batch.start - HEADER_SIZE + 12 : batch.start - HEADER_SIZE + 16], "big")
            if found and found[-1].epoch == epoch and found[-1].last + 1 == batch.base_offset:
                found[-1] = found[-1]._replace(last=batch.last_offset)
            else:
                found.append(Span(batch.base_offset, batch.last_offset, epoch))
    except CodecError as e:
        raise ArchiveError(f"{path}: {e}") from e
    return found


def _of_log(folder: Path, files: list[Path], start: int) -> list[Piece]:
    segments = [p for p in files if p.suffix == ".log"]
    bases = [int(p.name[:20]) for p in segments]
    snapshots = [p for p in files if p.suffix == ".checkpoint" and int(p.name[:20]) > 0]
    first = bases[0] if bases else END
    if first == 0 or (start > 0 and first <= start):
        return _of_segments(segments, bases, start, END)
    base = next((p for p in snapshots if int(p.name[:20]) >= max(first if bases else 0, start)), None)
    if base is None:
        raise ArchiveError(f"{folder}: the log begins at offset {first} and has no snapshot to start from")
    at = int(base.name[:20])
    history = _of_segments(segments, bases, start, at)
    return [*history, _snapshot(base), *_of_segments(segments, bases, at, END)]


def _of_segments(segments: list[Path], bases: list[int], start: int, end: int) -> list[Piece]:
    """The parts of the segments with offsets in [start, end)."""
    afters = [*bases[1:], END]
    return [
        Piece(str(path), start, end)
        for path, base, after in zip(segments, bases, afters, strict=True)
        if base < end and after > start
    ]


def _snapshot(path: Path) -> Piece:
    name = _SNAPSHOT.fullmatch(path.name)
    if name is None and path.name != _BOOTSTRAP:
        raise ArchiveError(f"{path} has no snapshot's name (offset-epoch.checkpoint)")
    return Piece(str(path), 0, END, max(int(name[1]) - 1, 0) if name else 0)


def read(piece: Piece, decoder: ChangeDecoder | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a piece, in `changes.SCHEMA`. Raises ArchiveError naming the file, and OSError."""
    with open(piece.path, "rb") as file:
        if not file.seek(0, 2):
            return
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    decoder = decoder or ChangeDecoder()
    try:
        yield from decoder.decode(memoryview(data), piece.start, piece.end, piece.snapshot_offset)
    except CodecError as e:
        raise ArchiveError(f"{piece.path}: {e}") from e
