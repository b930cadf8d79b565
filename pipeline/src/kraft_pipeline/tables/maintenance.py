"""Maintenance of a table: status, compaction of small files, vacuum of old files, and reset."""

from __future__ import annotations

import io
import math
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from kraft_pipeline.sources import offsets
from kraft_pipeline.tables import schemas
from kraft_pipeline.tables.bykey.tombstones import Tombstones
from kraft_pipeline.tables.engines.engine import Engine, InlineEngine
from kraft_pipeline.tables.engines.tasks import INT96_UNIT
from kraft_pipeline.tables.errors import ConflictError
from kraft_pipeline.tables.losses import Losses
from kraft_pipeline.tables.specs.table_spec import TableSpec
from kraft_pipeline.tables.stores import intents
from kraft_pipeline.tables.stores.committer import Added, Committer, retry_commit, stem
from kraft_pipeline.tables.stores.datafiles import encoded
from kraft_pipeline.tables.stores.intents import COMPACT, Work
from kraft_pipeline.tables.stores.opening import open_table, options_of
from kraft_pipeline.tables.stores.parquet import ParquetTable
from kraft_pipeline.tables.stores.storage import Storage, open_storage
from kraft_protocol.client.cluster import Cluster

Settle: TypeAlias = Callable[[Work, Collection[str]], None]
"""Removes files that a work has recorded and the table has not got; receives the files that it has got."""
SMALL: Final = 0.75
"""Files smaller than this fraction of `compactTo` are merged. Larger files stay, or each pass would rewrite them."""

STATUS_S: Final = 15.0
"""Seconds that `status` waits for brokers. This is short because a user waits for the output."""
DEAD_S: Final = 600.0
"""Seconds after which a running writer takes a compaction with an uncommitted file for dead: a commit takes seconds."""
ABANDONED_S: Final = 3600.0
"""Seconds without a new file after which a backfill or a replay counts as dead: its tasks begin files in minutes."""
TIER: Final = 2.0
"""A running table merges a file only with others that together have at least half of its size. So a row is rewritten
only about log(`compactTo` / size of a batch) times, for any number of runs of maintenance and any size of the
table."""


def status(spec: TableSpec) -> dict[str, Any]:
    """Status of the table and its topics: batch, rows, files, bytes, deadLetters, lag, losses and partitions.

    `lag` counts offsets. Raises ClientError if brokers do not answer for STATUS_S, and OSError.
    """
    table, dead = open_table(spec), open_table(spec, dead_letters=True)
    state, live, options = table.state(), table.live(), options_of(spec)
    patience_s = min(options.settings.retry_s, STATUS_S)
    with Cluster(replace(options.settings, retry_s=patience_s)) as cluster:
        ends = offsets.latest(cluster, options).offsets
        begins = offsets.earliest(cluster, sorted(ends))
    there = {} if state.position is None else state.position.offsets
    rows = []
    for (topic, partition), end in sorted(ends.items()):
        at = there.get((topic, partition), begins[topic, partition])
        rows.append({"topic": topic, "partition": partition, "offset": at, "end": end, "lag": max(0, end - at)})
    return {
        "name": spec.label,
        "batch": state.batch,
        "rows": sum(file.rows for file in live),
        "files": len(live),
        "bytes": sum(file.size for file in live),
        "deadLetters": sum(file.rows for file in dead.live()),
        "lag": sum(row["lag"] for row in rows),
        "losses": Losses(open_storage(spec.path, spec.storage), spec.app_id).open(),
        "partitions": rows,
    }


def acknowledge(spec: TableSpec) -> int:
    """Acknowledge all recorded losses, so that runs continue after them. Returns the number of losses."""
    return Losses(open_storage(spec.path, spec.storage), spec.app_id).acknowledge()


def compact(spec: TableSpec, engine: Engine | None = None, *, dead_letters: bool = False) -> tuple[int, int]:
    """Merge small files of each folder into files of `compactTo` bytes. Returns the numbers of old and new files.

    Each merged file is a transaction of its own, so a concurrent commit affects only one of them. Raises ConflictError
    if a file to merge was replaced meanwhile, and FencedError if a writer started.
    """
    table, path = open_table(spec, dead_letters=dead_letters), spec.dead_letter_path if dead_letters else spec.path
    engine, storage, epoch = engine or InlineEngine(), open_storage(path, spec.storage), table.join()
    keys = () if dead_letters else spec.keys
    revoke(table, storage, spec.app_id, epoch, 0.0)
    if not dead_letters:
        revoke_abandoned(spec)
    groups = list(_groups(table.live(), spec.compact_to))
    # Engines see merged files of a Parquet table beside their parts, so there each file is committed soon.
    at_once = max(1, engine.parallelism if spec.format == "parquet" else len(groups))
    for first in range(0, len(groups), at_once):
        work, kept = Work(storage, spec.app_id, epoch, f"{COMPACT}{uuid.uuid4().hex}"), list[str]()
        try:
            for group, file in _merge_groups(keys, engine, table.schema(), work, groups[first : first + at_once]):
                _replace(table, [old.path for old in group], file)
                kept.append(file.path)
        except ConflictError:
            settled(work, kept)
            raise
        settled(work, kept)
    return sum(len(group) for group in groups), len(groups)


def revoke(table: Committer, storage: Storage, app: str, epoch: int, older_s: float = DEAD_S) -> None:
    """Remove merged files that another compaction left in a Parquet table `older_s` seconds ago or earlier.

    If that compaction still runs, it commits none of these files. Does nothing for other formats, because their readers
    do not see uncommitted files.
    """
    if not isinstance(table, ParquetTable):
        return
    for work in intents.unsettled(storage, app):
        if work.epoch == epoch and work.is_beside:
            work.revoke(table.drop, older_s)


def revoke_abandoned(spec: TableSpec) -> None:
    """Remove files that a backfill or a replay of a Parquet table left, if it has begun no file for ABANDONED_S.

    Readers of the folder see these files. If the writer still runs, its batch fails, and its next start repeats it.
    """
    if spec.format != "parquet":
        return
    for dead_letters in (False, True):
        storage = open_storage(spec.dead_letter_path if dead_letters else spec.path, spec.storage)
        for app in (spec.backfill_id, spec.replay_id):
            for work in list(intents.unsettled(storage, app)):
                is_backfill = app == spec.backfill_id
                table = open_table(spec, dead_letters=dead_letters, backfill=is_backfill, replay=not is_backfill)
                assert isinstance(table, ParquetTable)
                if table.schema() is not None and work.epoch == table.state().epoch:
                    work.revoke(table.drop, ABANDONED_S)


def settled(work: Work, kept: Collection[str]) -> None:
    """As `Settle`, for work whose tasks have ended."""
    work.settle(lambda: kept)


def _merge_groups(
    keys: Sequence[str],
    engine: Engine,
    columns: pa.Schema,
    work: Work,
    groups: Sequence[list[Added]],
    settle: Settle = settled,
) -> list[tuple[list[Added], Added]]:
    """Merge each group into a new file, which is not committed yet. If one fails, all new files are removed."""
    try:
        return list(zip(groups, engine.map(partial(_merge, keys, columns, work), groups), strict=True))
    except BaseException:  # a panic in Rust, too
        settle(work, ())
        raise


def _merge(keys: Sequence[str], columns: pa.Schema, work: Work, group: Sequence[Added]) -> Added:
    """Write the rows of all files to one new file, with the types of the table and statistics of `keys`.

    Runs on an executor.
    """
    storage = work.storage
    read = (io.BytesIO(storage.read(file.path)) for file in group)
    parts = [pq.ParquetFile(source, coerce_int96_timestamp_unit=INT96_UNIT).read() for source in read]
    schema = schemas.as_in(columns, schemas.merged(parts[0].schema, [part.schema for part in parts[1:]]))
    rows = pa.concat_tables([schemas.aligned(part, schema) for part in parts])
    made = encoded(rows, keys)
    folder, slash, _ = group[0].path.rpartition("/")
    where = f"{folder}{slash}{stem(work.app, work.epoch)}{COMPACT}{uuid.uuid4().hex}.parquet"
    work.intend([where])
    storage.write(where, made.data)
    return made.at(where, group[0].values)


def _replace(table: Committer, old: Sequence[str], new: Added) -> None:
    """Commit a merged file. Raises ConflictError only if the table does not have it.

    After another exception, such as a timeout, it is unknown whether the table has it or will have it. The caller then
    keeps the file and its record: the next writer removes it once it has claimed the table.
    """
    try:
        retry_commit(lambda: table.replace(old, [new]), lambda: {file.path for file in table.live()}.issuperset(old))
    except ConflictError:
        if new.path not in table.files():  # a repeated request meets its own transaction
            raise


def care(
    spec: TableSpec,
    engine: Engine,
    gate: AbstractContextManager[Any] = nullcontext(),  # noqa: B008 - has no state
    is_over: Callable[[], bool] = lambda: False,
    settle: Settle = settled,
) -> str:
    """Compact, vacuum and trim tombstones of a running table. Returns a summary, or "" if nothing was done.

    Commits hold `gate`, so no batch is committed at the same time. Ends early, between steps, once `is_over` is true.
    `settle` is called after each merge.
    """
    done = []
    for dead_letters in (False, True):
        merged, into = _compact_beside(spec, engine, gate, is_over, settle, dead_letters=dead_letters)
        removed = 0 if is_over() else vacuum(spec, dead_letters=dead_letters)
        if merged or removed:
            what = "dead letters: " if dead_letters else ""
            done.append(f"{what}{merged} files merged into {into}, {removed} old files removed")
    if spec.keys and not is_over():
        with gate:
            Tombstones(open_storage(spec.path, spec.storage), spec.tombstones_s).care()
    return "; ".join(done)


def _compact_beside(
    spec: TableSpec,
    engine: Engine,
    gate: AbstractContextManager[Any],
    is_over: Callable[[], bool],
    settle: Settle,
    *,
    dead_letters: bool,
) -> tuple[int, int]:
    """As `compact`, but in small steps beside a run. Skips files that a batch has replaced meanwhile."""
    table = open_table(spec, dead_letters=dead_letters)
    path = spec.dead_letter_path if dead_letters else spec.path
    keys = () if dead_letters else spec.keys
    groups = [] if table.schema() is None else list(_groups(table.live(), spec.compact_to, tier=TIER))
    merged = into = 0
    at_once = max(1, engine.parallelism // 2)
    for first in range(0, len(groups), at_once):
        if is_over():
            break
        work = Work(open_storage(path, spec.storage), spec.app_id, table.join(), f"{COMPACT}{uuid.uuid4().hex}")
        kept: list[str] = []
        for group, file in _merge_groups(keys, engine, table.schema(), work, groups[first : first + at_once], settle):
            with gate, suppress(ConflictError):
                _replace(table, [old.path for old in group], file)
                kept.append(file.path)
                merged, into = merged + len(group), into + 1
        settle(work, kept)
    return merged, into


def _groups(live: list[Added], wanted: int, *, tier: float = math.inf) -> Iterator[list[Added]]:
    """Groups of small files with the same partition values; each group fits into one file of `wanted` bytes.

    `tier`: leave out the largest file while it is more than `tier` times as large as the rest of its group.
    """
    for group in _whole_groups(live, wanted):
        found = sorted(group, key=lambda file: file.size)
        while len(found) > 1 and found[-1].size > tier * sum(file.size for file in found[:-1]):
            found.pop()
        if len(found) > 1:
            yield found


def _whole_groups(live: list[Added], wanted: int) -> Iterator[list[Added]]:
    small = [file for file in live if file.whole and file.size < SMALL * wanted]
    group: list[Added] = []
    for file in sorted(small, key=lambda file: (repr(sorted(file.values.items())), file.path)):
        full = sum(other.size for other in group) + file.size > wanted
        if group and (full or file.values != group[0].values):
            yield group
            group = []
        group.append(file)
    yield group


def vacuum(spec: TableSpec, *, dead_letters: bool = False) -> int:
    """Remove files that no version of the last `vacuumAfter` references. Returns their number."""
    table = open_table(spec, dead_letters=dead_letters)
    found: int = table.vacuum(spec.vacuum_after_s)
    return found


def reset(spec: TableSpec) -> int:
    """Remove the table and its dead letters, so the next run starts from scratch. Returns the number of files.

    Raises ValueError if a path has files but no table of the spec's format.
    """
    count = 0
    for path, dead in ((spec.path, False), (spec.dead_letter_path, True)):
        storage = open_storage(path, spec.storage)
        files = [file.path for file in storage.list()]
        table = open_table(spec, dead_letters=dead)
        if files and table.schema() is None:
            raise ValueError(f"{path} has files but is not a {spec.format} table: nothing is removed")
        table.forget()
        logs = ("_kraft/", "_delta_log/", "metadata/")
        # Remove the log first: without it, the folder is not a table.
        for file in sorted(files, key=lambda f: not f.startswith(logs)):
            storage.delete(file)
            count += 1
    return count
