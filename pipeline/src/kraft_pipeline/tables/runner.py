"""Has batches written, commits them, and tells the consumer group: the loop of a KafkaTable."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from kraft_pipeline.client import ClientError, Cluster
from kraft_pipeline.client.fetch import Range
from kraft_pipeline.client.groups import commit_offsets
from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables import intents, partitions, values
from kraft_pipeline.tables.bykey import changes
from kraft_pipeline.tables.bykey.upserts import Gather
from kraft_pipeline.tables.caretaker import Caretaker
from kraft_pipeline.tables.committer import Added, Changes, Committer, ConflictError, FencedError, Keyed, is_left
from kraft_pipeline.tables.engine import Engine
from kraft_pipeline.tables.errors import TaskError, failure_of
from kraft_pipeline.tables.feeds import POLL_S, Feed, pieces
from kraft_pipeline.tables.intents import Work
from kraft_pipeline.tables.losses import Losses, judged
from kraft_pipeline.tables.opening import open_table, options_of
from kraft_pipeline.tables.plans import Plan, Sizes
from kraft_pipeline.tables.repeats import Counts, Record
from kraft_pipeline.tables.schemas import merged, promoted
from kraft_pipeline.tables.spec import TableSpec
from kraft_pipeline.tables.storage import Storage, open_storage
from kraft_pipeline.tables.tasks import Job, Result, run_task

__all__ = ["DeadLetterError", "Progress", "Runner", "open_table", "run_task"]

SCHEMA_TRIES: Final = 10
"""Times that a batch is written because its values taught new fields: each task may know others first."""
COMMIT_TRIES: Final = 20
"""Of one commit, as long as all that is in its way are commits of others to the same table."""
WAIT_S_MAX: Final = 30.0
"""Between tries of a run whose brokers, disk or registry do not let it go on."""
LATE_S: Final = 30.0
"""How often a run looks for files that an attempt of a task has written after its batch was committed. Spark ends such
attempts within seconds, but it does not wait for them."""
_LOG: Final = logging.getLogger(__name__)


class DeadLetterError(Exception):
    """A record that is no row, in a table whose spec wants no dead letters."""


@dataclass(frozen=True, slots=True)
class Progress:
    """One committed batch."""

    batch: int
    rows: int
    dead: int
    files: int
    seconds: float
    lag: int
    """Records that were there when the batch was planned and are not in it."""
    settled: int = 0
    """Of the dead letters, those that an earlier attempt of the batch had committed."""


def may_pass(error: Exception) -> bool:
    """Whether a run goes on once somebody has mended what is around it: a broker, a disk, a registry, a topic."""
    return failure_of(error).retriable


class Runner:
    """One table's writer. `run` returns when it is told to stop, or with `once` when all there was has been written."""

    def __init__(
        self,
        spec: TableSpec,
        engine: Engine,
        *,
        tell: Callable[[Progress], None] = lambda _: None,
        wait: Callable[[str], None] = lambda _: None,
        backfill: bool = False,
    ) -> None:
        """`wait` is told what a run waits for; `backfill`: write what came before the live stream, and return."""
        self.spec, self._engine, self._tell, self._wait = spec, engine, tell, wait
        self._backfill, self._app = backfill, spec.backfill_id if backfill else spec.app_id
        self._options = options_of(spec)
        self._table = open_table(spec, backfill=backfill)
        self._dead = open_table(spec, dead_letters=True, backfill=backfill)
        self.sizes = Sizes(spec, self._options)
        self.feed = Feed(spec, once=True, backfill=backfill)
        self._rows, self._pause_s = 0, POLL_S
        self._settled = time.monotonic()
        self._losses = Losses(open_storage(spec.path, spec.storage), spec.app_id)
        self._run = uuid.uuid4().hex[:8]
        self._epoch = 0
        self._stopping = False
        self.behind: int | None = None
        """Records that are not in the table, as of the last look at the topics; None before it."""
        self._caretaker = Caretaker(spec, engine, wait)
        self._first_fields = values.first_fields(spec)
        self._transform = engine.transform(spec)

    def stop(self) -> None:
        """Return after the batch that is under way."""
        self._stopping = True

    @property
    def care_failures(self) -> int:
        """Passes of maintenance that failed."""
        return self._caretaker.failures

    @property
    def care_error(self) -> str | None:
        """Why the last pass of maintenance failed; None if it did not."""
        return self._caretaker.error

    @property
    def stopping(self) -> bool:
        """Whether no further batch is to begin."""
        return self._stopping

    def run(self, *, once: bool = False, since_ms: int | None = None) -> int:
        """How many rows were written.

        Raises ClientError, TaskError, DeadLetterError, SpecError, ConflictError, FencedError, OSError.
        Without `once` it waits out what may pass. `since_ms`: of a backfill, from which time on.
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
                self._wait(" ".join(re.sub(r"\x1b\[\d+m", "", str(e)).split()))  # delta-rs' are coloured, in lines
                self._sleep(self._pause_s)
                self._pause_s = min(2 * self._pause_s, WAIT_S_MAX)
        return self._rows

    def between(self) -> None:
        """Time for maintenance. Raises FencedError if another writer has taken the table over."""
        if not self.feed.once:
            self._caretaker.look()
        if time.monotonic() - self._settled >= LATE_S:
            self._settle_late()
        self._table.state().check(self.spec.path, self._epoch)

    def _settle_late(self) -> None:
        """Remove what was written for batches of this run after they were committed."""
        self._settled = time.monotonic()
        for path, table in ((self.spec.path, self._table), (self.spec.dead_letter_path, self._dead)):
            for work in intents.unsettled(open_storage(path, self.spec.storage), self._app):
                if work.epoch == self._epoch and work.batch is not None:
                    work.settle(table.files)

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(min(POLL_S, seconds))

    def begin(self) -> int:
        """Take the table over from whoever wrote it before, and sweep what that one has left; how many files."""
        if self._table.schema() is not None:
            if self._epoch == 0:
                _tried(self._claim)
            if self._dead.schema() is not None:
                self._claim_dead()
        return self._sweep()

    def _claim(self) -> None:
        last = max(self._table.state().epoch, self._dead.state().epoch)
        epoch = max(last + 1, int(time.time()))  # by the clock, so that it is new in a table made anew as well
        self._table.claim(epoch)
        self._epoch = epoch

    def _claim_dead(self) -> None:
        def claim() -> None:
            state = self._dead.state()
            if state.epoch < self._epoch:
                self._dead.claim(self._epoch)
            else:
                state.check(self.spec.dead_letter_path, self._epoch)

        _tried(claim)

    def _sweep(self) -> int:
        """Remove the files that writers of this table left without committing them, and cannot commit any more."""
        count = 0
        for path, table in ((self.spec.path, self._table), (self.spec.dead_letter_path, self._dead)):
            storage = open_storage(path, self.spec.storage)
            count += table.sweep()
            for work in intents.unsettled(storage, self._app):
                if (work.epoch, work.is_beside) < (self._epoch, True):
                    batch, last = work.batch, table.state().batch
                    count += work.settle(set if batch is not None and batch > last else table.files)
            if table.schema() is not None and intents.is_new(storage, self._app):
                count += self._sweep_unrecorded(storage, table)
                intents.begin(storage, self._app)
        return count

    def _sweep_unrecorded(self, storage: Storage, table: Committer) -> int:
        """Of a table that an earlier version wrote, whose writers recorded nothing: once, by the names of files."""
        left = [f.path for f in storage.list() if is_left(f.path.rpartition("/")[2], self._app, self._epoch)]
        gone = set(left) - table.files() if left else set()
        for path in gone:
            storage.delete(path)
        return len(gone)

    def batch(self, cluster: Cluster, plan: Plan) -> None:
        """Write and commit a batch."""
        plan.state.check(self.spec.path, self._epoch)
        begun, number = time.monotonic(), plan.state.batch + 1
        tasks = pieces(plan, self._engine.parallelism)
        first = self._first_attempt(number, plan)
        results = self._written(number, tasks, first)
        dead = sum(result.dead for result in results)
        if dead and not self.spec.dead_letters:
            raise DeadLetterError(next(result.first_reason for result in results if result.first_reason))
        counts = Counts.of(tasks, results)
        judged(first.differences(plan, number, counts), self._losses, strict=self.spec.fail_on_data_loss)
        self._commit_dead(number, plan, counts, [file for result in results for file in result.dead_files])
        made = self._transformed(number, results)
        files = [file for result in made for file in result.files]
        found = self._changes(number, files, sum(result.size for result in results))
        kept: list[str] = []

        def commit() -> None:
            with self._caretaker.gate:
                kept[:] = self._commit(number, plan.end, files, found)

        _tried(commit, lambda: self._table.state().batch == plan.state.batch)
        self._work(self.spec.path, number).settle(lambda: kept)
        self.sizes.learn(plan.records, sum(result.size for result in results))
        self._tell_group(cluster, plan.end)
        rows, settled = sum(result.rows for result in made), sum(map(len, first.dead.values()))
        self.behind = plan.lag
        self._rows, self._pause_s = self._rows + rows, POLL_S
        self._tell(Progress(number, rows, dead + settled, len(files), time.monotonic() - begun, plan.lag, settled))

    def _first_attempt(self, number: int, plan: Plan) -> Record:
        """What is on record of a batch that is repeated; nothing of another."""
        if not plan.again:
            return Record()
        storage = open_storage(self.spec.dead_letter_path, self.spec.storage)
        return Record.of(plan, number, self._dead, storage, self._app)

    def _written(self, number: int, tasks: Sequence[Range], first: Record) -> list[Result]:
        """The results of all tasks, the table having the columns that they need."""
        there = self._table.schema()
        given = there is None or self._transform is not None
        fields = self._first_fields if given else values.fields_of(self.spec, there)
        if there is not None and self.spec.format == "iceberg":  # a type that the spec has widened since
            fields = pa.schema(promoted(fields, self._first_fields).field(name) for name in fields.names)
        infer = not len(fields)  # nothing has been given, and no record has come yet
        known = there is not None or not infer or self._transform is not None
        for tries_left in reversed(range(SCHEMA_TRIES)):
            # Tasks that have learnt enough from one another write what else is new as dead letters.
            additive = tries_left > 0 and (infer or self.spec.value.evolve == "additive")
            if known:  # also the table is: what is written before anybody can claim it would be swept
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
                self._work(path, number).settle(set)
            fields, known = merged(fields, taught), True
            _LOG.info("batch %d: the table gets the fields %s", number, ", ".join(fields.names))
        raise ValueError(f"batch {number}: its values teach new fields again and again")

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

    def _transformed(self, number: int, results: list[Result]) -> list[Result]:
        """The rows of the table that records become."""
        if self._transform is None:
            return results
        return self._transform.run(self._job(number, self._first_fields), [f for r in results for f in r.files])

    def _changes(self, number: int, files: Sequence[Added], size: int) -> Changes | None:
        """What the files of a batch change by key, put together by the engine; None for rows that are appended."""
        schema = self._table.schema()
        if not self.spec.keys:
            return None
        assert schema is not None, "it has been created"
        levels = partitions.parse(
            self.spec.partition_by, values.schema_of(self.spec, values.fields_of(self.spec, schema))
        )
        gather = Gather(
            self._work(self.spec.path, number),
            tuple(file.path for file in files),
            self.spec.keys,
            schema,
            tuple(levels),
            changes.order_of(schema, self.spec.order_by),
            self.spec.tombstones_s,
        )
        return gather.changes(size, self._engine.map)

    def _commit(self, number: int, end: Position, files: Sequence[Added], found: Changes | None) -> list[str]:
        """The paths of the files that the table has of it now."""
        table = self._table
        if found is None:
            table.commit(number, end, files, after=number - 1)
            return [file.path for file in files]
        assert isinstance(table, Keyed), "the spec says so"
        return table.upsert(number, end, found, after=number - 1, each=self._engine.map)

    def _work(self, path: str, number: int) -> Work:
        return intents.batch(open_storage(path, self.spec.storage), self._app, self._epoch, number)

    def _create(self, fields: pa.Schema) -> None:
        schema = values.schema_of(self.spec, fields)
        if self._transform is not None:
            schema = self._transform.columns(self._table.schema())
        changes.check(self.spec.keys, schema)
        changes.order_of(schema, self.spec.order_by)
        levels = partitions.parse(self.spec.partition_by, schema)
        _tried(lambda: self._table.create(schema, levels))
        if self._epoch == 0:
            self.begin()

    def _commit_dead(self, number: int, plan: Plan, counts: Counts, files: Sequence[Added]) -> None:
        """Before the rows: who starts in between finds where this batch ended, and repeats it."""
        if files:
            self._dead.create(values.DEAD_SCHEMA, ())
            self._claim_dead()
            # Who took the table over before there was one of dead letters has swept the files, and claimed nothing.
            self._table.state().check(self.spec.path, self._epoch)
            end = replace(plan.end, rows=counts.rows)
            _tried(
                lambda: self._dead.commit(number, end, files, after=plan.dead.batch),
                lambda: files[0].path not in {file.path for file in self._dead.live()},
            )
            self._work(self.spec.dead_letter_path, number).settle(lambda: [file.path for file in files])
        elif self._dead.state().batch != plan.dead.batch:
            raise ConflictError(f"batch {number}: another writer of {self.spec.path} has committed dead letters of it")

    def _tell_group(self, cluster: Cluster, end: Position) -> None:
        if self.spec.group is None or self._backfill:
            return
        try:
            commit_offsets(cluster, self.spec.group, end.offsets)
        except ClientError as e:  # the table itself knows where it is; the group only shows it
            _LOG.warning("offsets are not committed: %s", e)


def _tried(commit: Callable[[], None], is_open: Callable[[], bool] = lambda: True) -> None:
    """Again as long as others (a backfill, a compaction) commit in between, and it is not ours that is done."""
    for tries_left in reversed(range(COMMIT_TRIES)):
        try:
            return commit()
        except ConflictError as e:
            if isinstance(e, FencedError) or not tries_left or not is_open():
                raise
    return None
