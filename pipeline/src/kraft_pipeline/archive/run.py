"""A run of an archive: append new changes to its tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from kraft_pipeline.archive import files
from kraft_pipeline.archive.errors import ArchiveError
from kraft_pipeline.archive.published import SETS, Published
from kraft_pipeline.archive.reconcile import Epochs, first_difference
from kraft_pipeline.archive.spec import ArchiveSpec
from kraft_pipeline.archive.spread import Spread
from kraft_pipeline.archive.state import ClusterState, Replay
from kraft_pipeline.archive.tables import KEY, TOPIC, ChangeWriter, open_changes, read_changes, state_tables
from kraft_pipeline.sources.positions import Position
from kraft_pipeline.sources.security import security_of_file
from kraft_pipeline.tables.engines.engine import Engine
from kraft_pipeline.tables.stores.committer import Added
from kraft_pipeline.tables.stores.storage import open_storage
from kraft_protocol.client.cluster import Settings

if TYPE_CHECKING:
    from kraft_pipeline.archive.live import Controllers

Gaps: TypeAlias = Sequence[tuple[int, int]]
SPREAD_BYTES: Final = 256 * 1024 * 1024
"""Bytes of files from which tasks pay off: less is done before Spark has started."""


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a run."""

    rows: int
    """New changes."""
    offset: int
    """The last offset of the archive."""
    partitions: int
    topics: int
    brokers: int
    files: int
    seconds: float
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """First and last offset of changes that were trimmed before they were archived."""
    cut: int | None = None
    """First offset of archived records that were never committed and were replaced; None if all were committed."""

    def to_json(self) -> dict[str, Any]:
        """The fields by name, for JSON."""
        return asdict(self)


def archive(
    spec: ArchiveSpec, on_rows: Callable[[int], None] = lambda _: None, engine: Callable[[], Engine] | None = None
) -> Done:
    """Bring the archive up to date. `on_rows` gets the number of rows that were added since its last call.

    `engine` opens the engine for tasks, if the files of the log and the archive are large together (`SPREAD_BYTES`), or
    for files of any size if the specification requests executors.
    Raises ArchiveError, ConflictError, ClientError, TaskError and OSError.
    """
    began = time.monotonic()
    changes, replay, opened = ChangeWriter(spec), Replay(), None
    published = Published(spec, changes.check)
    rows, offset, last = 0, -1, Last(-1, 0)
    try:
        start = 0 if changes.position is None else changes.position.offsets[KEY]
        log = MetadataSource(spec, start)
        log.check(changes.position)
        cut = log.first_difference(changes)
        changes.take_over()
        if cut is None:
            before = changes.live()
        else:
            before, start = changes.cut(cut), cut
        pieces = files.pieces(spec.paths, start) if spec.paths else []
        gap = max((piece.snapshot_offset + 1 for piece in pieces), default=0)
        if engine is not None and (_is_large(before, pieces) or (spec.engine.mode != "local" and (before or pieces))):
            opened = engine()
        spread = Spread(changes.storage, changes.begin)
        for batch in spread.archived(before, opened) if opened else changes.read(before):
            replay.add(batch)
            last = Last.of(batch)
        log.go_on(start, last.epoch)
        if opened and pieces:
            found = spread.decoded(pieces, opened, changes.take)
        else:
            found = changes.add(log.rows(changes.position))
        for batch in found:
            replay.add(batch)
            offset = batch.column("offset")[batch.num_rows - 1].as_py()
            gap = gap if spec.paths else max(gap, _snapshot_end(batch))
            on_rows(changes.rows - rows)
            rows = changes.rows
        state = replay.state()
        end = max(offset + 1, start)
        gaps = {key: known for key, known in changes.gaps.items() if key[1] < start}
        gaps |= {(TOPIC, start): gap} if gap > start > 0 else {}
        notes = {} if changes.position is None else changes.position.notes
        count = 0
        if rows or cut is not None or not published.has(notes.get(SETS, "")):
            notes = {SETS: published.write(state_tables(state), changes.batch)}
            count = changes.commit(Position({KEY: end}, log.cluster_id, begun=gaps, notes=notes))
        published.publish(notes[SETS], end - 1, changes.epoch)
    finally:
        changes.close()
        if opened is not None:
            opened.close()
    sizes = (state.partitions.num_rows, len(state.small.topics), len(state.small.brokers))
    sorted_gaps = [(first, known - 1) for (_, first), known in sorted(gaps.items())]
    return Done(rows, end - 1, *sizes, count, round(time.monotonic() - began, 3), sorted_gaps, cut)


class Last(NamedTuple):
    """The last row of an archive."""

    offset: int
    epoch: int

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Last:
        """The offset and epoch of the last row of a batch, which must not be empty."""
        end = batch.slice(batch.num_rows - 1)
        return cls(end.column("offset")[0].as_py(), end.column("epoch")[0].as_py())


def _is_large(before: Sequence[Added], pieces: Sequence[files.Piece]) -> bool:
    sizes = [*(file.size for file in before), *(Path(piece.path).stat().st_size for piece in pieces)]
    return len(sizes) > 1 and sum(sizes) >= SPREAD_BYTES


class MetadataSource:
    """The metadata log, from an offset on; `epoch` must be the epoch of the record before it."""

    def __init__(self, spec: ArchiveSpec, start: int = 0) -> None:
        self._spec, self._start, self.epoch = spec, start, 0
        self.cluster_id = _cluster_of(spec.paths)
        """The cluster id; "" if unknown. Controllers send it with the first rows."""

    def rows(self, since: Position | None = None) -> Iterator[pa.RecordBatch]:
        """Yield rows in `changes.SCHEMA`.

        Raises ArchiveError if the cluster differs from the cluster of `since`; errors of readers.
        """
        if self._spec.paths:
            self.check(since)
            for piece in files.pieces(self._spec.paths, self._start):
                yield from files.read(piece)
            return
        with self._controllers() as controllers:
            for batch in controllers.read(self._start, self.epoch):
                if not self.cluster_id:
                    self.cluster_id = controllers.cluster_id
                    self.check(since)
                yield batch

    def _controllers(self) -> Controllers:
        from kraft_pipeline.archive.live import Controllers  # noqa: PLC0415 - files need no client

        spec = self._spec
        security = security_of_file(spec.properties)
        own = security_of_file(spec.controller_properties) if spec.controller_properties else security
        settings = Settings(spec.controllers or spec.brokers, client_id=spec.app_id, security=security)
        return Controllers(settings, of_brokers=not spec.controllers, controllers_security=own)

    def go_on(self, start: int, epoch: int) -> None:
        """Read from `start` on, after a record of `epoch`."""
        self._start, self.epoch = start, epoch

    def first_difference(self, changes: ChangeWriter) -> int | None:
        """The first offset at which the archive has records that were never committed and the log has others.

        Raises ArchiveError if the log is behind the archive or another log; and errors of readers.
        """
        since = changes.position
        if since is None:
            return None
        newest = next((rows for rows in changes.ends() if len(rows.offsets)), None)
        if newest is None or newest.settled[-1]:
            return None
        last, epoch = int(newest.offsets[-1]), int(newest.epochs[-1])
        if not self._spec.paths:
            cut = self._first_difference_live(changes, last, epoch)
        elif int(Epochs(files.spans(self._spec.paths, last)).of(newest.offsets[-1:])[0]) == epoch:
            return None
        else:
            known = files.spans(self._spec.paths)
            cut = first_difference(Epochs(known), changes.ends()) if known else None
        if cut is not None and not (since.cluster and self.cluster_id):
            raise ArchiveError(
                f"the archive has other records than the log from offset {cut} on. Without meta.properties beside the"
                " log, it may be of another cluster: archive the log to another path"
            )
        return cut

    def _first_difference_live(self, changes: ChangeWriter, last: int, epoch: int) -> int | None:
        """The first offset where the archive differs from the controllers' log; None if the log continues the archive.

        For an unknown epoch the controllers return an earlier epoch and its end. Raises ArchiveError.
        """
        at = Last(last, epoch)
        with self._controllers() as controllers:
            while (found := controllers.first_difference(at.offset + 1, at.epoch)) is not None:
                self.cluster_id = controllers.cluster_id
                self.check(changes.position)
                before = _before(changes, *found)
                if before is None or before.offset >= at.offset:
                    raise ArchiveError("the controllers lack all of the archive's records: it is of another log")
                at = before
        return None if at.offset == last else at.offset + 1

    def check(self, since: Position | None) -> None:
        """Raise ArchiveError if the cluster differs from the cluster of `since`."""
        if since is not None and since.cluster and self.cluster_id and since.cluster != self.cluster_id:
            raise ArchiveError(f"the archive is of cluster {since.cluster}, this is cluster {self.cluster_id}")


def _before(changes: ChangeWriter, epoch: int, end: int) -> Last | None:
    """The last record of the archive below the end, and with no later epoch."""
    for rows in changes.ends():
        good = np.flatnonzero((rows.offsets < end) & (rows.epochs <= epoch))
        if rows.settled[good[-1] + 1 if len(good) else 0 :].any():
            return None  # records of a snapshot are committed, so the log must have them
        if len(good):
            return Last(int(rows.offsets[good[-1]]), int(rows.epochs[good[-1]]))
    return None


def archived(spec: ArchiveSpec) -> Iterator[pa.RecordBatch]:
    """The rows of an archive's table of changes. Raises ArchiveError if the table does not exist."""
    table = open_changes(spec)
    if table.state().position is None:
        raise ArchiveError(f"{spec.path} is not an archive yet")
    storage = open_storage(f"{spec.path.rstrip('/')}/changes", spec.storage)
    for file in sorted(table.live(), key=lambda file: file.path):
        yield from read_changes(storage, file.path)


def _cluster_of(paths: tuple[str, ...]) -> str:
    """The cluster id, if a meta.properties lies beside the log."""
    for path in paths:
        for folder in (Path(path), Path(path).parent, Path(path).parent.parent):
            meta = folder / "meta.properties"
            if meta.is_file():
                lines = (line.partition("=") for line in meta.read_text().splitlines())
                return next((value.strip() for key, _, value in lines if key.strip() == "cluster.id"), "")
    return ""


def gaps_of(spec: ArchiveSpec) -> Gaps:
    """The gaps of an archive, for `state_at`."""
    position = open_changes(spec).state().position
    return [] if position is None else [(first, known - 1) for (_, first), known in sorted(position.begun.items())]


def _snapshot_end(batch: pa.RecordBatch) -> int:
    """The offset from which a snapshot in these rows gives the state; 0 without a snapshot."""
    offsets = batch.filter(batch.column("snapshot")).column("offset")
    return 0 if not len(offsets) else int(offsets[0].as_py()) + 1


def check_known(gaps: Gaps, before: int, after: int | None) -> None:
    """Raise ArchiveError if the state between the records `before` and `after` is in a gap."""
    for first, last in gaps:
        if before < last and (before >= first or (after is not None and after >= first)):
            raise ArchiveError(
                f"the changes from offset {first} to {last} were trimmed before they were archived. The state is known"
                f" up to offset {first - 1} and again from {last} on"
            )


def state_at(
    batches: Iterator[pa.RecordBatch], *, offset: int | None = None, time_ms: int | None = None, gaps: Gaps = ()
) -> ClusterState:
    """The state after the record at `offset`, or after the last record not later than `time_ms`; without both, the last
    state. Raises ArchiveError if the state is before the beginning, or in one of the `gaps`."""
    if offset is not None:
        check_known(gaps, offset, None)
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
                check_known(gaps, before, batch.column("offset")[rows.num_rows].as_py())
            break
    return replay.state()
