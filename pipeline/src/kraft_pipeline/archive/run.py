"""One run of an archive: what is new since the last one, to its tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa

from kraft_pipeline.archive import files
from kraft_pipeline.archive.errors import ArchiveError
from kraft_pipeline.archive.spec import ArchiveSpec
from kraft_pipeline.archive.spread import Spread
from kraft_pipeline.archive.state import Replay, State
from kraft_pipeline.archive.tables import KEY, TOPIC, Changes, open_changes, read_changes
from kraft_pipeline.client import Settings
from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables.committer import Added
from kraft_pipeline.tables.engine import Engine
from kraft_pipeline.tables.storage import open_storage

Gaps: TypeAlias = Sequence[tuple[int, int]]
SPREAD_BYTES: Final = 256 * 1024 * 1024
"""Of files from which on tasks are worth it: less is done before Spark has begun."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a run has done."""

    rows: int
    """New changes."""
    offset: int
    """The last one of the archive."""
    partitions: int
    topics: int
    brokers: int
    files: int
    seconds: float
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Offsets, first and last, of changes that were trimmed before they were archived."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def archive(
    spec: ArchiveSpec, tell: Callable[[int], None] = lambda _: None, engine: Callable[[], Engine] | None = None
) -> Done:
    """Bring the archive up to date; `tell` is given the number of rows that have been added since it was called last.

    `engine` opens what runs tasks, for logs and archives of many files that are large together (`SPREAD_BYTES`).
    Raises ArchiveError, ConflictError, ClientError, TaskError and OSError.
    """
    began = time.monotonic()
    changes, replay, opened = Changes(spec), Replay(), None
    rows, offset, last = 0, -1, -1
    try:
        start = 0 if changes.position is None else changes.position.offsets[KEY]
        before, pieces = changes.live(), files.pieces(spec.paths, start) if spec.paths else []
        gap = max((piece.snapshot_offset + 1 for piece in pieces), default=0)
        log = Source(spec, start)
        log.check(changes.position)
        changes.take_over()
        if engine is not None and _is_large(before, pieces):
            opened = engine()
        spread = Spread(changes.storage, changes.begin)
        for batch in spread.archived(before, opened) if opened else changes.read(before):
            replay.add(batch)
            end = batch.slice(batch.num_rows - 1)
            log.epoch, last = (end.column(name)[0].as_py() for name in ("epoch", "offset"))
            last = -1 if end.column("snapshot")[0].as_py() else last
        log.check_end(last)
        if opened and pieces:
            found = spread.decoded(pieces, opened, changes.take)
        else:
            found = changes.add(log.rows(changes.position))
        for batch in found:
            replay.add(batch)
            offset = batch.column("offset")[batch.num_rows - 1].as_py()
            gap = gap if spec.paths else max(gap, _snapshot_end(batch))
            tell(changes.rows - rows)
            rows = changes.rows
        state = replay.state()
        end = max(offset + 1, start)
        gaps = {**changes.gaps, **({(TOPIC, start): gap} if gap > start > 0 else {})}
        count = changes.commit(Position({KEY: end}, log.cluster_id, begun=gaps)) if rows else 0
        changes.write_state(spec, state, end - 1)
    finally:
        changes.close()
        if opened is not None:
            opened.close()
    sizes = (state.partitions.num_rows, len(state.small.topics), len(state.small.brokers))
    gaps_told = [(first, known - 1) for (_, first), known in sorted(gaps.items())]
    return Done(rows, end - 1, *sizes, count, round(time.monotonic() - began, 3), gaps_told)


def _is_large(before: Sequence[Added], pieces: Sequence[files.Piece]) -> bool:
    sizes = [*(file.size for file in before), *(Path(piece.path).stat().st_size for piece in pieces)]
    return len(sizes) > 1 and sum(sizes) >= SPREAD_BYTES


class Source:
    """The metadata log itself, from an offset on; `epoch` is to be that of the record before it."""

    def __init__(self, spec: ArchiveSpec, start: int = 0) -> None:
        self._spec, self._start, self.epoch = spec, start, 0
        self.cluster_id = _cluster_of(spec.paths)
        """Known for controllers once rows have been read, "" where nothing tells it."""

    def rows(self, since: Position | None = None) -> Iterator[pa.RecordBatch]:
        """In `changes.SCHEMA`. Raises ArchiveError for another cluster than that of `since`, and what readers raise."""
        if self._spec.paths:
            self.check(since)
            for piece in files.pieces(self._spec.paths, self._start):
                yield from files.read(piece)
            return
        from kraft_pipeline.archive.live import Controllers  # noqa: PLC0415 - files need no client

        settings = Settings(self._spec.controllers or self._spec.brokers, client_id=self._spec.app_id)
        with Controllers(settings, of_brokers=not self._spec.controllers) as controllers:
            for batch in controllers.read(self._start, self.epoch):
                if not self.cluster_id:
                    self.cluster_id = controllers.cluster_id
                    self.check(since)
                yield batch

    def check_end(self, last: int) -> None:
        """Raises ArchiveError if a directory does not have record `last` of `epoch`, with which the archive ends.

        The end of a directory may be uncommitted: another leader has cut it off since, and written other records.
        """
        piece = files.holding(self._spec.paths, last)
        if piece is None:
            return
        found = next(files.read(piece), None)
        there = None if found is None else (found.column("offset")[0].as_py(), found.column("epoch")[0].as_py())
        if there != (last, self.epoch):
            text = "no such record" if there is None else f"record {there[0]} of epoch {there[1]} there"
            raise ArchiveError(
                f"the archive ends with record {last} of epoch {self.epoch}, the log has {text}: the archive's end was "
                "not committed and has been cut off since; archive the log to another path"
            )

    def check(self, since: Position | None) -> None:
        """Raises ArchiveError for another cluster than that of `since`."""
        if since is not None and since.cluster and self.cluster_id and since.cluster != self.cluster_id:
            raise ArchiveError(f"the archive is of cluster {since.cluster}, this is cluster {self.cluster_id}")


def archived(spec: ArchiveSpec) -> Iterator[pa.RecordBatch]:
    """The rows of an archive's table of changes. Raises ArchiveError where there is none."""
    table = open_changes(spec)
    if table.state().position is None:
        raise ArchiveError(f"{spec.path} is no archive yet")
    storage = open_storage(f"{spec.path.rstrip('/')}/changes", spec.storage)
    for file in sorted(table.live(), key=lambda file: file.path):
        yield from read_changes(storage, file.path)


def _cluster_of(paths: tuple[str, ...]) -> str:
    """The cluster's id, where there is a meta.properties beside."""
    for path in paths:
        for folder in (Path(path), Path(path).parent, Path(path).parent.parent):
            meta = folder / "meta.properties"
            if meta.is_file():
                lines = (line.partition("=") for line in meta.read_text().splitlines())
                return next((value.strip() for key, _, value in lines if key.strip() == "cluster.id"), "")
    return ""


def gaps_of(spec: ArchiveSpec) -> Gaps:
    """What an archive lacks, as `state_at` takes it."""
    position = open_changes(spec).state().position
    return [] if position is None else [(first, known - 1) for (_, first), known in sorted(position.begun.items())]


def _snapshot_end(batch: pa.RecordBatch) -> int:
    """The offset from which on a snapshot in these rows tells the state; 0 without one."""
    offsets = batch.filter(batch.column("snapshot")).column("offset")
    return 0 if not len(offsets) else int(offsets[0].as_py()) + 1


def _known(gaps: Gaps, before: int, after: int | None) -> None:
    """Raises ArchiveError if the state after `before`, with nothing up to `after`, lies in a gap."""
    for first, last in gaps:
        if before < last and (before >= first or (after is not None and after >= first)):
            raise ArchiveError(
                f"the changes from offset {first} to {last} were trimmed before they were archived: "
                f"the state is known up to offset {first - 1} and again from {last} on"
            )


def state_at(
    batches: Iterator[pa.RecordBatch], *, offset: int | None = None, time_ms: int | None = None, gaps: Gaps = ()
) -> State:
    """The state after the record at `offset`, or after the last one that is not younger than `time_ms`; the last state
    there is without either. Raises ArchiveError where that lies before the beginning, or in one of the `gaps`."""
    if offset is not None:
        _known(gaps, offset, None)
    before = -1
    replay = Replay()
    limit = None if time_ms is None else time_ms * 1000
    for batch in batches:
        rows = batch
        if offset is not None:
            rows = batch.slice(0, int(batch.column("offset").to_numpy().searchsorted(offset, "right")))
        if limit is not None:
            late = batch.column("timestamp").cast(pa.int64()).to_numpy() > limit
            rows = batch.slice(0, int(late.argmax())) if late.any() else batch
        replay.add(rows)
        before = rows.column("offset")[rows.num_rows - 1].as_py() if rows.num_rows else before
        if rows.num_rows < batch.num_rows:
            if limit is not None:
                _known(gaps, before, batch.column("offset")[rows.num_rows].as_py())
            break
    return replay.state()
