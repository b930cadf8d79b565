"""The loop of a KafkaTable: runs the tasks of batches, commits them, and commits offsets of the consumer group."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import pyarrow as pa

from kraft_pipeline.sources.positions import Offsets, Position
from kraft_pipeline.tables import maintenance, values
from kraft_pipeline.tables.bykey import changes
from kraft_pipeline.tables.bykey.generations import Generations, widened_by
from kraft_pipeline.tables.bykey.upserts import Gather
from kraft_pipeline.tables.caretaker import Caretaker
from kraft_pipeline.tables.engines.engine import Engine
from kraft_pipeline.tables.engines.feeds import POLL_S, Feed, pieces
from kraft_pipeline.tables.engines.plans import Plan, Sizes
from kraft_pipeline.tables.engines.tasks import Job, Result, run_task
from kraft_pipeline.tables.errors import SPARK, ConflictError, TaskError, failure_of, panics_explained
from kraft_pipeline.tables.losses import Losses, judged
from kraft_pipeline.tables.repeats import Counts, FirstAttempt
from kraft_pipeline.tables.schemas import merged, promoted
from kraft_pipeline.tables.specs import partitions
from kraft_pipeline.tables.specs.table_spec import TableSpec
from kraft_pipeline.tables.stores import intents
from kraft_pipeline.tables.stores.committer import Added, Changes, Committer, Keyed, is_left, retry_commit
from kraft_pipeline.tables.stores.intents import Work
from kraft_pipeline.tables.stores.opening import open_table, options_of
from kraft_pipeline.tables.stores.storage import Storage, open_storage
from kraft_protocol.client.cluster import Cluster
from kraft_protocol.client.errors import ClientError
from kraft_protocol.client.fetch import Range
from kraft_protocol.client.groups import commit_offsets

__all__ = ["DeadLetterError", "Progress", "Runner", "open_table", "run_task"]

SCHEMA_TRIES: Final = 10
"""Attempts to write a batch with new fields in its values: each attempt of a task may find others."""
WAIT_S_MAX: Final = 30.0
"""Maximum seconds between retries of a run while brokers, disk or registry are unavailable."""
SPARK_TRIES: Final = 4
"""Attempts of a batch that Spark itself fails, as many as Spark gives a task (`spark.task.maxFailures`). A batch that
is too large for the memory would fail in the same way forever."""
LATE_S: Final = 30.0
"""Interval of checks for files that a task attempt has written after the end of its batch, and the least time for which
their records stay. Spark ends these attempts within seconds, but does not wait for them."""
_LOG: Final = logging.getLogger(__name__)


class DeadLetterError(Exception):
    """A record cannot be a row, and the spec turns dead letters off."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One committed batch."""

    batch: int
    rows: int
    dead: int
    files: int
    seconds: float
    lag: int
    """Records that existed when the batch was planned but are not in it."""
    settled: int = 0
    """Dead letters in `dead` that an earlier attempt of the batch had committed."""
    size: int = 0
    """Uncompressed bytes of the batch's records."""
    written: int = 0
    """Bytes of the files that tasks wrote, without dead letters. Merges by key write more."""
    commit_s: float = 0.0
    """Seconds of the table's transaction, with all attempts, and with the merge of rows by key."""


class _Ended(NamedTuple):
    """The tasks of a batch have ended, but attempts of them may still run."""

    at: float
    """By the monotonic clock."""
    kept: frozenset[str]
    """The files that the table has got."""


def may_pass(error: Exception) -> bool:
    """Whether the run may continue after a repair of its environment: a broker, a disk, a registry, a topic."""
    return failure_of(error).retriable


class Runner:
    """The writer of one table. `run` returns after `stop`, or with `once` when all records at its start are written."""

    def __init__(
        self,
        spec: TableSpec,
        engine: Engine,
        *,
        report: Callable[[Progress], None] = lambda _: None,
        wait: Callable[[str], None] = lambda _: None,
        look: Callable[[], None] = lambda: None,
        backfill: bool = False,
    ) -> None:
        """`report` receives each committed batch, `wait` the reason of each pause; `look` is called between batches.

        `backfill`: write older records.

        Raises OSError, SpecError and ValueError.
        """
        self.spec, self._engine, self._report, self._wait, self._look = spec, engine, report, wait, look
        self._backfill, self._app = backfill, spec.backfill_id if backfill else spec.app_id
        self._options = options_of(spec)
        self._table = open_table(spec, backfill=backfill)
        self._dead = open_table(spec, dead_letters=True, backfill=backfill)
        self.sizes = Sizes(spec, self._options)
        self.feed = Feed(spec, once=True, backfill=backfill)
        self._rows, self._pause_s, self._spark_failures = 0, POLL_S, 0
        self._settled = time.monotonic()
        self._ended: dict[tuple[str, str], _Ended] = {}
        """By the table's path and the folder of the batch's work."""
        self._losses = Losses(open_storage(spec.path, spec.storage), spec.app_id)
        self._generations = Generations(open_storage(spec.path, spec.storage))
        self._run = uuid.uuid4().hex[:8]
        self._epoch = 0
        self._is_unsure, self._claiming = False, 0
        """Whether the outcome of the last commit is unknown; the epoch of a claim that was not answered yet."""
        self._stopping = False
        self.behind: int | None = None
        """Records not in the table when the topics were last checked; None before the first check."""
        self.lags: Offsets = {}
        """The same for each partition that has been checked."""
        self._caretaker = Caretaker(spec, engine, wait)
        self._first_fields = values.first_fields(spec)
        self._transform = engine.transform(spec)

    def stop(self) -> None:
        """Make `run` return after the current batch."""
        self._stopping = True

    @property
    def care_failures(self) -> int:
        """Number of failed maintenance passes."""
        return self._caretaker.failures

    @property
    def care_error(self) -> str | None:
        """Error of the last maintenance pass; None if it succeeded."""
        return self._caretaker.error

    @property
    def stopping(self) -> bool:
        """Whether no further batch may begin."""
        return self._stopping

    @panics_explained()
    def run(self, *, once: bool = False, since_ms: int | None = None) -> int:
        """Write batches and return the number of rows. Without `once`, retriable errors are retried.

        `since_ms`: start of a backfill, Unix time in milliseconds. Raises ClientError, TaskError, DeadLetterError,
        SpecError, ConflictError, FencedError, OSError.
        """
        once = once or self._backfill
        self.feed = Feed(self.spec, once, self._backfill, since_ms)
        self._rows, self._pause_s = 0, POLL_S
        while not self._stopping:
            try:
                with Cluster(self._options.settings) as cluster:
                    self.begin()
                    try:
                        self._engine.drive(self, cluster)
                    finally:
                        self._caretaker.end()
                self._settle_late()
                return self._rows
            except (ClientError, TaskError, OSError) as e:
                if once or not may_pass(e):
                    raise
                self._count(e)
                self._wait(" ".join(re.sub(r"\x1b\[\d+m", "", str(e)).split()))  # delta-rs' texts are coloured
                self._sleep(self._pause_s)
                self._pause_s = min(2 * self._pause_s, WAIT_S_MAX)
        return self._rows

    def _count(self, error: Exception) -> None:
        """Count a failure of Spark since the last batch. Raises TaskError for the last of SPARK_TRIES."""
        failure = failure_of(error)
        self._spark_failures += failure.code == SPARK
        if failure.code == SPARK and self._spark_failures >= SPARK_TRIES:
            text = f"Spark has failed a batch {self._spark_failures} times (is spec.engine.memory enough?)"
            raise TaskError(failure._replace(retriable=False, message=f"{text}: {failure.message}")) from error

    def between(self) -> None:
        """Start due maintenance and remove late files. Raises FencedError if another writer has taken over."""
        if not self.feed.once:
            self._caretaker.look()
        self._look()
        if time.monotonic() - self._settled >= LATE_S:
            self._settle_late()
        self._table.state().check(self.spec.path, self._epoch)

    def _settle_late(self) -> None:
        """Remove files that were written late: for batches and merges of this run, or by writers that are fenced."""
        now = self._settled = time.monotonic()
        self._caretaker.settle_late(LATE_S)
        if not self._backfill:
            maintenance.revoke_abandoned(self.spec)
        for path, table in ((self.spec.path, self._table), (self.spec.dead_letter_path, self._dead)):
            storage = open_storage(path, self.spec.storage)
            maintenance.revoke(table, storage, self._app, self._epoch)
            for work in intents.unsettled(storage, self._app):
                ended = self._ended.get((path, work.folder))
                if work.epoch == self._epoch and work.batch is not None:
                    is_over = ended is None or now - ended.at >= LATE_S
                    work.settle(table.files if ended is None else ended.kept.copy, forget=is_over)
                elif not work.is_formats and work.epoch < self._epoch == table.state().epoch:
                    ended = self._ended.setdefault((path, work.folder), _Ended(now, frozenset()))
                    self._discard(work, table, forget=now - ended.at >= LATE_S)
        self._ended = {key: ended for key, ended in self._ended.items() if now - ended.at < LATE_S}

    def _settle(self, path: str, number: int, kept: Sequence[str] = ()) -> None:
        """Remove the files of a batch's tasks that its table at `path` has not got."""
        work = self._work(path, number)
        before = self._ended.get((path, work.folder))
        there = frozenset(kept) if before is None else before.kept.union(kept)
        if self._engine.outlives:
            self._ended[path, work.folder] = _Ended(time.monotonic(), there)
        work.settle(there.copy, forget=not self._engine.outlives)

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(min(POLL_S, seconds))

    def begin(self) -> int:
        """Take over the table from earlier writers and remove their leftovers. Returns the number of files.

        A commit that was not answered may still be under way. A new claim takes its place in the table's log, so its
        files can be removed.
        """
        if (there := self._table.schema()) is not None:
            if self._epoch == 0:
                values.log_kept_types(self.spec, there)
            if self._epoch == 0 or self._is_unsure:
                retry_commit(self._claim)
            if self._dead.schema() is not None:
                self._claim_dead()
        return self._sweep()

    def _claim(self) -> None:
        state = self._table.state()
        if self._epoch and state.epoch != self._claiming:
            state.check(self.spec.path, self._epoch)  # do not take the table back from a newer writer
        last = max(state.epoch, self._dead.state().epoch)
        # By the clock, so it is also new in a table that was created again.
        self._claiming = max(last + 1, int(time.time()))
        self._table.claim(self._claiming)
        self._epoch, self._is_unsure = self._claiming, False

    def _claim_dead(self) -> None:
        def claim() -> None:
            state = self._dead.state()
            if state.epoch < self._epoch:
                self._dead.claim(self._epoch)
            else:
                state.check(self.spec.dead_letter_path, self._epoch)

        retry_commit(claim)

    def _sweep(self) -> int:
        """Remove uncommitted files of earlier writers, which can no longer commit them. Returns their number."""
        count = 0
        for path, table in ((self.spec.path, self._table), (self.spec.dead_letter_path, self._dead)):
            storage = open_storage(path, self.spec.storage)
            count += table.sweep()
            for work in intents.unsettled(storage, self._app):
                if (work.epoch, work.is_beside) < (self._epoch, True):
                    is_own = work.epoch == self._epoch and self._engine.outlives  # a batch of this run has failed
                    if is_own:
                        self._ended.setdefault((path, work.folder), _Ended(time.monotonic(), frozenset()))
                    count += self._discard(work, table, forget=not is_own)
            if table.schema() is not None and intents.is_new(storage, self._app):
                count += self._sweep_unrecorded(storage, table)
                intents.begin(storage, self._app)
        return count

    def _discard(self, work: Work, table: Committer, *, forget: bool) -> int:
        """Remove the files of a work that is not committed any more. Returns their number."""
        if work.batch is None or work.batch <= table.state().batch:
            return work.settle(table.files)
        return work.settle(set, forget=forget)

    def _sweep_unrecorded(self, storage: Storage, table: Committer) -> int:
        """Remove leftovers of earlier releases, which recorded no files, by file name. Runs once per table."""
        left = [f.path for f in storage.list() if is_left(f.path.rpartition("/")[2], self._app, self._epoch)]
        gone = set(left) - table.files() if left else set()
        for path in gone:
            storage.delete(path)
        return len(gone)

    def batch(self, cluster: Cluster, plan: Plan) -> None:
        """Write and commit a batch, dead letters first. Raises what `run` raises."""
        plan.state.check(self.spec.path, self._epoch)
        begun, number = time.monotonic(), plan.state.batch + 1
        tasks = pieces(plan, self._engine.parallelism)
        first = self._first_attempt(number, plan)
        results = self._write_rows(number, tasks, first)
        dead = sum(result.dead for result in results)
        if dead and not self.spec.dead_letters:
            raise DeadLetterError(next(result.first_reason for result in results if result.first_reason))
        judged([loss for result in results for loss in result.lost], self._losses, strict=False)
        counts = Counts.of(tasks, results)
        judged(first.differences(plan, number, counts), self._losses, strict=self.spec.fail_on_data_loss)
        self._commit_dead(number, plan, counts, [file for result in results for file in result.dead_files])
        made = self._apply_transform(number, results)
        files = [file for result in made for file in result.files]
        size = sum(result.size for result in results)
        found = self._changes(number, files, size, self._generations_of(plan))
        kept: list[str] = []

        def commit() -> None:
            with self._caretaker.gate:
                judged(self._table.state().lost, self._losses, strict=self.spec.fail_on_data_loss)
                kept[:] = self._commit(number, plan.end, files, found)

        committing = time.monotonic()
        self._committed(commit, lambda: self._table.state().batch == plan.state.batch)
        commit_s = time.monotonic() - committing
        self._settle(self.spec.path, number, kept)
        self.sizes.learn(plan.records, size)
        self._tell_group(cluster, plan.end)
        rows, settled = sum(result.rows for result in made), sum(map(len, first.dead.values()))
        self.behind = plan.lag
        self.lags = {key: max(0, lag - plan.taken(key)) for key, lag in self.lags.items()}
        self._rows, self._pause_s, self._spark_failures = self._rows + rows, POLL_S, 0
        done = Progress(number, rows, dead + settled, len(files), time.monotonic() - begun, plan.lag, settled, size)
        self._report(replace(done, written=sum(file.size for file in files), commit_s=commit_s))

    def _committed(self, commit: Callable[[], None], is_open: Callable[[], bool]) -> None:
        """As `retry_commit`; after an exception the outcome counts as unknown until the table is claimed anew."""
        self._is_unsure = True
        retry_commit(commit, is_open)
        self._is_unsure = False

    def _first_attempt(self, number: int, plan: Plan) -> FirstAttempt:
        """The record of a repeated batch's first attempt; empty for other batches."""
        if not plan.again:
            return FirstAttempt()
        storage = open_storage(self.spec.dead_letter_path, self.spec.storage)
        return FirstAttempt.of(plan, number, self._dead, storage, self._app)

    def _write_rows(self, number: int, tasks: Sequence[Range], first: FirstAttempt) -> list[Result]:
        """Run the tasks, and repeat them with more columns as long as values have new fields."""
        there = self._table.schema()
        if there is not None and self._transform is None and values.lacking(self.spec, there):
            there = None  # no batch had a row yet, so the columns are as open as in a new table
        given = there is None or self._transform is not None
        fields = self._first_fields if given else values.fields_of(self.spec, there)
        if there is not None and self.spec.format == "iceberg":  # the spec may have widened a type
            fields = pa.schema(promoted(fields, self._first_fields).field(name) for name in fields.names)
        infer = not len(fields)  # neither the spec nor a record has given fields yet
        known = there is not None or not infer or self._transform is not None
        for tries_left in reversed(range(SCHEMA_TRIES)):
            # In the last attempt, records with new fields become dead letters.
            additive = tries_left > 0 and (infer or self.spec.value.evolve == "additive")
            if known:  # create the table first: files written before the claim would be removed
                self._create(fields)
            job = replace(
                self._job(number, fields),
                additive=additive,
                taken=values.reserved(self.spec, fields if known else None),
                settled=first.dead,
            )
            results = self._engine.run(job, tasks)
            taught = [result.fields for result in results if result.fields is not None]
            if known and not taught:
                return results
            for path in (self.spec.path, self.spec.dead_letter_path):
                self._settle(path, number)
            fields, known = merged(fields, taught), True
            _LOG.info("batch %d: the table gets the fields %s", number, ", ".join(fields.names))
        raise ValueError(f"batch {number}: each attempt finds new fields in its values")

    def _job(self, number: int, fields: pa.Schema) -> Job:
        return Job(
            self.spec,
            self._app,
            self._epoch,
            self._options.settings,
            fields,
            number,
            self._run,
            additive=False,
            taken=frozenset(),
            staged=self._transform is not None,
        )

    def _apply_transform(self, number: int, results: list[Result]) -> list[Result]:
        """Apply the transform to the staged rows, if the spec has one."""
        if self._transform is None:
            return results
        return self._transform.run(self._job(number, self._first_fields), [f for r in results for f in r.files])

    def _generations_of(self, plan: Plan) -> Mapping[str, int]:
        """The generations above 0 of the topics of a batch; empty unless rows are merged by key."""
        if not self.spec.keys:
            return {}

        def before() -> Mapping[str, str]:
            position = self._table.state().position
            return {} if position is None else position.topics

        return self._generations.of(plan.end.topics, before)

    def _changes(
        self, number: int, files: Sequence[Added], size: int, generations: Mapping[str, int]
    ) -> Changes | None:
        """Gather the changes of a batch by key on the engine; None if rows are appended, or without rows."""
        schema = self._table.schema()
        if not (self.spec.keys and files):
            return None
        assert schema is not None, "it has been created"
        columns = values.schema_of(self.spec, values.fields_of(self.spec, schema))
        if self._transform is not None:
            columns = self._transform.schema
        levels = partitions.parse(self.spec.partition_by, columns)
        schema = widened_by(self._table, generations, columns, levels) or schema
        gather = Gather(
            self._work(self.spec.path, number),
            tuple(file.path for file in files),
            self.spec.keys,
            schema,
            tuple(levels),
            changes.order_of(schema, self.spec.order_by),
            self.spec.tombstones_s,
            generations,
        )
        return gather.changes(size, self._engine.map)

    def _commit(self, number: int, end: Position, files: Sequence[Added], found: Changes | None) -> list[str]:
        """Commit the rows. Returns the paths of the batch's files in the table."""
        table = self._table
        if found is None:
            table.commit(number, end, files, after=number - 1)
            return [file.path for file in files]
        assert isinstance(table, Keyed), "the spec has a key"
        return table.upsert(number, end, found, after=number - 1, each=self._engine.map)

    def _work(self, path: str, number: int) -> Work:
        return intents.batch(open_storage(path, self.spec.storage), self._app, self._epoch, number)

    def _create(self, fields: pa.Schema) -> None:
        """Create the table or add columns. Without `fields`, keys and partitions wait for the batch that has some."""
        schema, levels = values.schema_of(self.spec, fields), list[partitions.By]()
        if self._transform is None:
            values.check_meta(self.spec, self._table.schema() or schema)
        else:
            schema = self._transform.columns(self._table.schema())
        if len(fields) or self._transform is not None or not values.lacking(self.spec, schema):
            changes.check(self.spec.keys, schema)
            changes.order_of(schema, self.spec.order_by)
            levels = partitions.parse(self.spec.partition_by, schema)
        retry_commit(lambda: self._table.create(schema, levels))
        if self._epoch == 0:
            self.begin()

    def _commit_dead(self, number: int, plan: Plan, counts: Counts, files: Sequence[Added]) -> None:
        """Commit dead letters before the rows: a writer that starts in between repeats the same batch."""
        if files:
            self._dead.create(values.DEAD_SCHEMA, ())
            self._claim_dead()
            # A writer that took over before this table existed removed the files but could not claim this table.
            self._table.state().check(self.spec.path, self._epoch)
            end = replace(plan.end, rows=counts.rows)
            self._committed(
                lambda: self._dead.commit(number, end, files, after=plan.dead.batch),
                lambda: files[0].path not in {file.path for file in self._dead.live()},
            )
            self._settle(self.spec.dead_letter_path, number, [file.path for file in files])
        elif self._dead.state().batch != plan.dead.batch:
            raise ConflictError(f"batch {number}: another writer of {self.spec.path} has committed dead letters of it")

    def _tell_group(self, cluster: Cluster, end: Position) -> None:
        if self.spec.group is None or self._backfill:
            return
        try:
            commit_offsets(cluster, self.spec.group, end.offsets)
        except ClientError as e:  # the group is only for monitoring: the table has its own position
            _LOG.warning("offsets are not committed: %s", e)
