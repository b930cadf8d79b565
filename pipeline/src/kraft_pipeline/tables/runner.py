"""Plans batches, has them written, commits them, and tells the consumer group: the loop of a KafkaTable."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kraft_pipeline.client import ClientError, Cluster, DataLossError
from kraft_pipeline.client.fetch import Range
from kraft_pipeline.client.groups import commit_offsets
from kraft_pipeline.sources import offsets, planning
from kraft_pipeline.sources.options import Options, parse
from kraft_pipeline.sources.positions import Offsets, Position, continued, position
from kraft_pipeline.tables import partitions, values
from kraft_pipeline.tables.committer import Added, Committer, ConflictError, State
from kraft_pipeline.tables.engine import Engine
from kraft_pipeline.tables.parquet import ParquetTable
from kraft_pipeline.tables.spec import TableSpec
from kraft_pipeline.tables.storage import open_storage
from kraft_pipeline.tables.tasks import Job, Result, prefix, run_task

__all__ = ["DeadLetterError", "Progress", "Runner", "open_table", "run_task"]

POLL_S: Final = 0.5
"""How often an idle table asks for new records."""
TASK_RECORDS: Final = 1_000_000
SCHEMA_TRIES: Final = 4
"""Times that a batch is written anew because its values taught new fields: each task may know others first."""
_LOG: Final = logging.getLogger(__name__)


class DeadLetterError(Exception):
    """A record that is no row, in a table whose spec wants no dead letters."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A batch to be: after which states of the table and of the dead letters, and from where to where."""

    state: State
    dead: State
    start: Offsets
    end: Position
    lag: int
    again: bool
    """Whether its dead letters have been committed already, by somebody who came no further."""

    @property
    def records(self) -> int:
        return sum(last - self.start[key] for key, last in self.end.offsets.items())


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


def open_table(spec: TableSpec, *, dead_letters: bool = False) -> Committer:
    """The table of a spec, or the one of its dead letters."""
    path = spec.dead_letter_path if dead_letters else spec.path
    if spec.format == "parquet":
        return ParquetTable(open_storage(path, spec.storage), spec.app_id)
    from kraft_pipeline.tables.delta import DeltaTableOf  # noqa: PLC0415 - an extra that the others do without

    return DeltaTableOf(path, spec.app_id, spec.storage)


def options_of(spec: TableSpec) -> Options:
    """As the data source would have them."""
    given = {"kafka.bootstrap.servers": spec.bootstrap, "kafka.client.id": spec.app_id, **spec.kafka}
    given |= {"subscribePattern": spec.pattern} if spec.pattern else {"subscribe": ",".join(spec.topics)}
    given["startingOffsets"] = spec.starting
    given["failOnDataLoss"] = str(spec.fail_on_data_loss).lower()
    given["kafka.isolation.level"] = "read_committed" if spec.committed else "read_uncommitted"
    return parse(given, streaming=True)


class Runner:
    """One table's writer. `run` returns when it is told to stop, or with `once` when all there was has been written."""

    def __init__(self, spec: TableSpec, engine: Engine, *, tell: Callable[[Progress], None] = lambda _: None) -> None:
        self.spec, self._engine, self._tell = spec, engine, tell
        self._options = options_of(spec)
        self._table, self._dead = open_table(spec), open_table(spec, dead_letters=True)
        self._run = uuid.uuid4().hex[:8]
        self._stopping = False
        self.behind: int | None = None
        """Records that are not in the table, as of the last look at the topics; None before it."""
        self._first_fields = values.first_fields(spec)

    def stop(self) -> None:
        """Return after the batch that is under way."""
        self._stopping = True

    def run(self, *, once: bool = False) -> int:
        """How many rows were written. Raises ClientError, DeadLetterError, ConflictError, OSError."""
        with Cluster(self._options.settings) as cluster:
            self.sweep()
            until = self._latest(cluster) if once else None
            rows, waiting_since = 0, 0.0
            while not self._stopping:
                planned = self._plan(cluster, until)
                if planned is None:
                    if once:
                        break
                    waiting_since = 0.0
                    time.sleep(POLL_S)
                    continue
                waiting_since = waiting_since or time.monotonic()
                due = planned.records >= self.spec.max_rows or planned.again
                if not (once or due or time.monotonic() - waiting_since >= self.spec.max_delay_s):
                    time.sleep(min(POLL_S, self.spec.max_delay_s))
                    continue
                rows += self._batch(cluster, planned)
                waiting_since = 0.0
        return rows

    def sweep(self) -> int:
        """Remove the files that a writer of this table left without committing them."""
        count = 0
        for path, table in ((self.spec.path, self._table), (self.spec.dead_letter_path, self._dead)):
            storage, known = open_storage(path, self.spec.storage), None
            for file in storage.list():
                if file.path.rpartition("/")[2].startswith(prefix(self.spec.app_id)):
                    known = table.files() if known is None else known
                    if file.path not in known:
                        storage.delete(file.path)
                        count += 1
        return count

    def _latest(self, cluster: Cluster) -> Position:
        return position(cluster, offsets.latest(cluster, self._options))

    def _plan(self, cluster: Cluster, until: Position | None) -> Plan | None:
        """The next batch, None when there is nothing for one; where the dead letters are ahead, that one again."""
        state, dead = self._table.state(), self._dead.state()
        if dead.batch > state.batch and dead.position is not None:
            return Plan(state, dead, self._start(cluster, state, dead.position), dead.position, 0, again=True)
        end = until or self._latest(cluster)
        start = self._start(cluster, state, end)
        todo = sum(max(0, last - start[key]) for key, last in end.offsets.items())
        self.behind = todo
        if not todo and (state.position is not None or self.spec.starting == "earliest"):
            return None
        some = planning.limited(start, end.offsets, self.spec.max_rows)
        some = {key: max(last, start[key]) for key, last in some.items()}
        taken = sum(last - start[key] for key, last in some.items())
        return Plan(state, dead, start, Position(some, end.cluster, end.topics), todo - taken, again=False)

    def _start(self, cluster: Cluster, state: State, end: Position) -> Offsets:
        if state.position is None:
            found = offsets.starting(cluster, self._options)
            return {key: min(found.get(key, 0), last) for key, last in end.offsets.items()}
        good, new = continued(state.position, end, fail_on_data_loss=self.spec.fail_on_data_loss)
        for (topic, partition), offset in good.items():
            if offset > end.offsets[topic, partition] and self.spec.fail_on_data_loss:
                raise DataLossError(
                    f"{topic}-{partition} ends at offset {end.offsets[topic, partition]} now, {offset} was to be read "
                    "next: records were lost"
                )
        return {**good, **offsets.earliest(cluster, new)}

    def _batch(self, cluster: Cluster, plan: Plan) -> int:
        begun, number = time.monotonic(), plan.state.batch + 1
        ranges = [
            Range(topic, bytes.fromhex(plan.end.topics[topic]), partition, plan.start[topic, partition], last)
            for (topic, partition), last in sorted(plan.end.offsets.items())
        ]
        pieces = planning.split(ranges, min_partitions=self._engine.parallelism, max_records=TASK_RECORDS)
        results = self._written(number, pieces, write_dead=not plan.again)
        dead = sum(result.dead for result in results)
        if dead and not self.spec.dead_letters:
            raise DeadLetterError(next(result.first_reason for result in results if result.first_reason))
        self._commit_dead(number, plan, results)
        files = [file for result in results for file in result.files]
        self._check_there(number, self.spec.path, files)
        self._table.commit(number, plan.end, files, after=number - 1)
        self._tell_group(cluster, plan.end)
        rows = sum(result.rows for result in results)
        self.behind = plan.lag
        self._tell(Progress(number, rows, dead, len(files), time.monotonic() - begun, plan.lag))
        return rows

    def _written(self, number: int, pieces: Sequence[Range], *, write_dead: bool) -> list[Result]:
        """The results of all tasks, the table having the columns that they need."""
        there = self._table.schema()
        fields = self._first_fields if there is None else values.fields_of(self.spec, there)
        infer = not len(fields)  # nothing has been given, and no record has come yet
        for _ in range(SCHEMA_TRIES):
            additive = infer or self.spec.value.evolve == "additive"
            job = Job(
                self.spec,
                self._options.settings,
                fields,
                number,
                self._run,
                additive=additive,
                write_dead=write_dead,
            )
            results = self._engine.run(job, pieces)
            taught = [result.fields for result in results if result.fields is not None]
            if not taught:
                self._create(fields)
                return results
            self._discard(results)
            fields = _merged(fields, taught)
            _LOG.info("batch %d: the table gets the fields %s", number, ", ".join(fields.names))
        raise ValueError(f"batch {number}: its values teach new fields again and again")

    def _create(self, fields: pa.Schema) -> None:
        schema = values.schema_of(self.spec, fields)
        levels = partitions.parse(self.spec.partition_by, schema)
        self._table.create(partitions.with_columns(schema, levels), [by.name for by in levels])

    def _discard(self, results: Sequence[Result]) -> None:
        rows = open_storage(self.spec.path, self.spec.storage)
        dead = open_storage(self.spec.dead_letter_path, self.spec.storage)
        for result in results:
            for file in result.files:
                rows.delete(file.path)
            for file in result.dead_files:
                dead.delete(file.path)

    def _commit_dead(self, number: int, plan: Plan, results: Sequence[Result]) -> None:
        """Before the rows: who starts in between finds where this batch ended, and repeats it."""
        files = [file for result in results for file in result.dead_files]
        if files and not plan.again:
            self._check_there(number, self.spec.dead_letter_path, files)
            self._dead.create(values.DEAD_SCHEMA, [])
            self._dead.commit(number, plan.end, files, after=plan.dead.batch)
        elif self._dead.state().batch != plan.dead.batch:
            raise ConflictError(f"batch {number}: another writer of {self.spec.path} has committed dead letters of it")

    def _check_there(self, number: int, path: str, files: Sequence[Added]) -> None:
        """Another writer that starts sweeps what has not been committed: then nothing may refer to it."""
        storage = open_storage(path, self.spec.storage)
        for file in files:
            if not storage.exists(file.path):
                raise ConflictError(f"batch {number}: {file.path} is gone: another writer of {path} has started")

    def _tell_group(self, cluster: Cluster, end: Position) -> None:
        if self.spec.group is None:
            return
        try:
            commit_offsets(cluster, self.spec.group, end.offsets)
        except ClientError as e:  # the table itself knows where it is; the group only shows it
            _LOG.warning("offsets are not committed: %s", e)


def _merged(fields: pa.Schema, learnt: Sequence[pa.Schema]) -> pa.Schema:
    """All fields; where two tasks saw two types, the wider one, or the first where neither is."""
    for more in learnt:
        for field in more:
            at = fields.get_field_index(field.name)
            if at < 0:
                fields = fields.append(field)
            elif not fields.field(at).type.equals(field.type):
                try:
                    both = [pa.schema([fields.field(at)]), pa.schema([field])]
                    fields = fields.set(at, pa.unify_schemas(both, promote_options="permissive").field(0))
                except (pa.ArrowInvalid, pa.ArrowTypeError):
                    continue
    return fields
