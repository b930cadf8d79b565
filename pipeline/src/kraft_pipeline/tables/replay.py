"""Replay of dead letters after a repair: letters that decode now become rows, and the others stay dead letters.

A replay is a separate writer beside the stream. Each of its batches changes two tables, rows and dead letters, and may
be killed between the two. So each batch first writes the list of its letters to `_kraft_replays/e<epoch>-<id>.arrow`
beside the dead letters. The transaction that adds the rows names this list. A second transaction with the same number
then removes the letters. If a replay finds the table one batch ahead of the dead letters, it finishes that batch first.
So no letter becomes a row twice, and no letter is removed without becoming a row.

By key, letters of a former topic with the same name are later batches of their own, because the offsets of two topics
do not compare. The generation of a topic decides between its letters and the rows of another (`generations`). If it is
unknown, a letter of a former topic replaces a row only if its offset is greater and its time is no earlier.

The replay skips letters of a batch that a dead writer left unfinished: the stream repeats that batch and compares it
with them (`repeats`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables import values
from kraft_pipeline.tables.bykey import changes
from kraft_pipeline.tables.bykey.generations import Generations, widened_by
from kraft_pipeline.tables.bykey.ordering import Within
from kraft_pipeline.tables.bykey.upserts import Gather
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.engines.tasks import Job, RowFiles
from kraft_pipeline.tables.errors import ConflictError
from kraft_pipeline.tables.formats.recordmeta import MetaReader
from kraft_pipeline.tables.schemas import aligned, promoted
from kraft_pipeline.tables.specs import partitions
from kraft_pipeline.tables.specs.table_spec import SpecError, TableSpec
from kraft_pipeline.tables.stores import intents
from kraft_pipeline.tables.stores.committer import TRIES, Added, Keyed, retry_commit, stem
from kraft_pipeline.tables.stores.datafiles import encoded
from kraft_pipeline.tables.stores.opening import open_table, options_of
from kraft_pipeline.tables.stores.storage import Storage, open_storage
from kraft_protocol.client.fetch import Range

FOLDER: Final = "_kraft_replays"
LIST: Final = "letters"
"""Key of the note in a position that names the batch's list."""
PLACE: Final = ("topic", "partition", "offset", "batch")
"""Columns that identify a dead letter."""
ORDER: Final = ("topic", "partition", "batch", "offset")
BATCH_BYTES: Final = 64 * 1024 * 1024
"""Bytes of dead-letter files that one batch reads."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay."""

    rows: int
    left: int
    """Dead letters that remain."""


def replay(spec: TableSpec) -> Replayed:
    """Replay all dead letters. Raises ClientError, ConflictError, FencedError, OSError and SpecError."""
    if spec.transform:
        raise SpecError("spec.transform: dead letters of a table with a transform cannot be replayed")
    return _Replay(spec).run()


class _Replay:
    def __init__(self, spec: TableSpec) -> None:
        self._spec, self._app = spec, spec.replay_id
        self._table = open_table(spec, replay=True)
        self._dead = open_table(spec, dead_letters=True, replay=True)
        self._rows_at, self._dead_at = (open_storage(path, spec.storage) for path in (spec.path, spec.dead_letter_path))
        self._epoch, self._each = 0, InlineEngine().map

    def run(self) -> Replayed:
        if self._dead.schema() is None:
            return Replayed(0, 0)
        if (there := self._table.schema()) is None:
            self._create(values.first_fields(self._spec))
        else:
            values.log_kept_types(self._spec, there)
        self._begin()
        rows = 0
        for left in reversed(range(TRIES)):
            live = self._dead.live()  # read before the states, so the list has no letters of later batches
            pending = self._pending()
            try:
                for files in _groups(live):
                    rows += self._batch(files, pending)
            except _MergedError:
                if not left or self._table.state().batch > self._dead.state().batch:  # the next start finishes a batch
                    raise
            else:
                break
        return Replayed(rows, sum(file.rows for file in self._dead.live()))

    def _begin(self) -> None:
        """Fence earlier replays and finish their last batch."""
        last = max(self._table.state().epoch, self._dead.state().epoch)
        self._epoch = max(last + 1, int(time.time()))
        retry_commit(lambda: self._table.claim(self._epoch))
        retry_commit(lambda: self._dead.claim(self._epoch))
        retry_commit(lambda: self._dead.create(values.DEAD_SCHEMA, ()))  # an earlier release may have created it
        state = self._table.state()
        if state.batch > self._dead.state().batch and state.position is not None:
            self._remove(state.batch, state.position.notes[LIST])
        for storage, table in ((self._rows_at, self._table), (self._dead_at, self._dead)):
            for work in intents.unsettled(storage, self._app):
                work.settle(table.files)
        for file in list(self._dead_at.list(FOLDER)):  # lists of interrupted replays; a later replay may be at work
            if file.path.rpartition("/")[2] < f"e{self._epoch:010d}-":
                self._dead_at.delete(file.path)

    def _pending(self) -> set[int]:
        """Numbers of batches with committed letters but without committed rows."""
        found = set()
        for backfill in (False, True):
            dead = open_table(self._spec, dead_letters=True, backfill=backfill).state().batch
            if dead > open_table(self._spec, backfill=backfill).state().batch:
                found.add(dead)
        return found

    def _batch(self, files: Sequence[Added], pending: set[int]) -> int:
        """Replay the letters of some files. Returns the number of rows."""
        letters = _letters(self._dead_at, files)  # before anything is written
        letters = letters.filter(pa.array(~np.isin(letters.column("batch").to_numpy(), sorted(pending))))
        if not self._spec.keys:
            return self._make_rows(letters, Within.OFFSET, {})
        topics, known = self._topics(), Generations(self._rows_at).known()
        return sum(
            self._make_rows(group, within, generations)
            for life in _lives(letters, topics)
            for group, within, generations in _by_generation(life, topics, known)
        )

    def _topics(self) -> Mapping[str, str]:
        """The ids of the topics that the stream reads, by name."""
        position = open_table(self._spec).state().position
        return {} if position is None else position.topics

    def _make_rows(self, letters: pa.Table, within: Within, generations: Mapping[str, int]) -> int:
        """Make rows of some letters in one batch. Returns the number of rows.

        By key, `generations` are those above 0 of the letters' topics.
        """
        if not letters.num_rows:
            return 0
        number = self._table.state().batch + 1
        fields = self._fields(letters)
        job = self._job(number, fields)
        written, taken = list[Added](), list[pa.Table]()
        for group in _by_partition(letters):
            decoded, good = self._decoded(group, job)
            first = group.select(["topic", "partition"]).slice(0, 1).to_pylist()[0]
            wanted = Range(first["topic"], b"", first["partition"], 0, 0, -1)
            out = RowFiles(self._rows_at, job, wanted, self._spec.partition_by, self._spec.keys)
            out.add(decoded)
            out.close()
            written += out.files
            taken.append(group.select(PLACE).filter(pa.array(good)))
        gone = pa.concat_tables(taken)
        if not gone.num_rows:
            return 0
        name = f"{FOLDER}/e{self._epoch:010d}-{uuid.uuid4().hex}.arrow"
        self._put(name, gone)
        position = Position({}, notes={LIST: name})
        self._commit(number, position, written, within, generations)
        intents.batch(self._rows_at, self._app, self._epoch, number).settle(self._table.files)
        self._remove(number, name)
        return sum(file.rows for file in written)

    def _fields(self, letters: pa.Table) -> pa.Schema:
        """The fields of values, with new fields of the letters, which are added to the table."""
        there = self._table.schema()
        assert there is not None, "it has been created"
        fields = settled = values.fields_of(self._spec, there)
        if self._spec.format == "iceberg":  # the spec may have widened a type
            fields = pa.schema(promoted(fields, values.first_fields(self._spec)).field(name) for name in fields.names)
        additive = self._spec.value.evolve == "additive" or not len(fields)
        if additive:
            for group in _by_partition(letters):
                fields = self._rows(group, self._job(0, fields), additive=True).fields
        if not fields.equals(settled):
            self._create(fields)
        return fields

    def _decoded(self, letters: pa.Table, job: Job) -> tuple[pa.Table, np.ndarray]:
        """The rows of letters of one partition, and a mask of the letters that decode now."""
        found = self._rows(letters, job, additive=False)
        again = found.dead.column("offset").to_numpy()
        return found.rows, ~np.isin(letters.column("offset").to_numpy(), again)

    def _rows(self, letters: pa.Table, job: Job, *, additive: bool) -> values.Rows:
        records = letters.select(list(values.RAW)).combine_chunks().to_batches()[0]
        codes = letters.column("code").to_pylist()
        offsets = letters.column("offset").to_pylist()
        damaged = [offset for offset, code in zip(offsets, codes, strict=True) if code == "headers.key"]
        parse = values.parser(self._spec, job.fields, retry_s=job.settings.retry_s)
        meta = MetaReader(self._spec.key, self._spec.headers, retry_s=job.settings.retry_s)
        taken = values.reserved(self._spec, job.fields if len(job.fields) else None)
        return values.decode(
            records,
            self._spec,
            job.fields,
            job.batch,
            additive=additive,
            taken=taken,
            parse=parse,
            damaged=damaged,
            meta=meta,
        )

    def _job(self, number: int, fields: pa.Schema) -> Job:
        settings = options_of(self._spec).settings
        return Job(
            self._spec, self._app, self._epoch, settings, fields, number, uuid.uuid4().hex[:8], False, frozenset()
        )

    def _create(self, fields: pa.Schema) -> None:
        schema = values.schema_of(self._spec, fields)
        values.check_meta(self._spec, self._table.schema() or schema)
        changes.check(self._spec.keys, schema)
        changes.order_of(schema, self._spec.order_by)
        levels = partitions.parse(self._spec.partition_by, schema)
        retry_commit(lambda: self._table.create(schema, levels))

    def _commit(
        self,
        number: int,
        position: Position,
        files: Sequence[Added],
        within: Within,
        generations: Mapping[str, int],
    ) -> None:
        """Commit the rows of a batch; by key, only rows newer than the table's."""

        def is_open() -> bool:
            return self._table.state().batch < number

        if not self._spec.keys:
            retry_commit(lambda: self._table.commit(number, position, files, after=number - 1), is_open)
            return
        table, schema = self._table, self._table.schema()
        assert isinstance(table, Keyed) and schema is not None, "the spec requires it, and it has been created"
        plain = values.schema_of(self._spec, values.fields_of(self._spec, schema))
        levels = partitions.parse(self._spec.partition_by, plain)
        schema = widened_by(table, generations, plain, levels) or schema
        gather = Gather(
            intents.batch(self._rows_at, self._app, self._epoch, number),
            tuple(file.path for file in files),
            self._spec.keys,
            schema,
            tuple(levels),
            changes.order_of(schema, self._spec.order_by)._replace(within=within),
            self._spec.tombstones_s,
            generations,
        )
        found = gather.changes(sum(file.size for file in files), self._each)

        def upsert() -> None:
            table.upsert(number, position, found, after=number - 1, each=self._each)

        retry_commit(upsert, is_open)

    def _remove(self, number: int, name: str) -> None:
        """Remove the letters of a list, in a transaction with the number of the batch that made rows of them."""
        listed = pa.ipc.open_file(self._dead_at.read(name)).read_all()
        gone = {tuple(row.values()) for row in listed.to_pylist()}

        def commit() -> None:
            old, new = list[str](), list[Added]()
            work = intents.batch(self._dead_at, self._app, self._epoch, number)
            for file in self._dead.live():
                rows = _letters(self._dead_at, [file])
                keep = [tuple(row.values()) not in gone for row in rows.select(PLACE).to_pylist()]
                if all(keep):
                    continue
                old.append(file.path)
                if any(keep):
                    # As for a merged file, the name has no batch: the letters are of batches of other writers.
                    path = f"{stem(self._app, self._epoch)}left-{uuid.uuid4().hex}.parquet"
                    rest = rows.filter(pa.array(keep))
                    made = encoded(rest)
                    work.intend([path])
                    self._dead_at.write(path, made.data)
                    new.append(made.at(path, {}))
            after = self._dead.state().batch
            self._dead.commit(number, Position({}, notes={LIST: name}), new, after=after, removed=old)

        retry_commit(commit, lambda: self._dead.state().batch < number)
        intents.batch(self._dead_at, self._app, self._epoch, number).settle(self._dead.files)
        self._dead_at.delete(name)

    def _put(self, name: str, rows: pa.Table) -> None:
        out = pa.BufferOutputStream()
        with pa.ipc.new_file(out, rows.schema) as writer:
            writer.write_table(rows)
        self._dead_at.create(name, out.getvalue().to_pybytes())


class _MergedError(ConflictError):
    """Maintenance has merged a file of dead letters since it was listed. A Parquet table removes such files at once."""


def _letters(storage: Storage, files: Sequence[Added]) -> pa.Table:
    """The letters of files. Raises _MergedError."""
    parts = [values.DEAD_SCHEMA.empty_table()]
    for file in files:
        try:
            with storage.open(file.path) as source:
                parts.append(aligned(pq.read_table(source), values.DEAD_SCHEMA))
        except FileNotFoundError as e:
            raise _MergedError(f"{storage.uri}/{file.path} has been merged meanwhile: run the replay again") from e
    return pa.concat_tables(parts).sort_by([(name, "ascending") for name in ORDER])


def _lives(letters: pa.Table, topics: Mapping[str, str]) -> list[pa.Table]:
    """Split letters by the life of their topic, newest first; the first part is of the present `topics`.

    Letters without an id may be of a former topic. A part has at most one id of each topic.
    """
    columns = (letters.column(name).to_pylist() for name in ("batch", "topic", "topic_id"))
    places = list(zip(*columns, strict=True))
    lives: dict[str, list[str | None]] = {}
    for _, topic, life in sorted(places, key=lambda place: -place[0]):
        former = lives.setdefault(topic, [])
        if life not in former and (life is None or life != topics.get(topic)):
            former.append(life)
    parts = [lives[topic].index(life) + 1 if life in lives[topic] else 0 for _, topic, life in places]
    count = 1 + max(parts, default=0)
    return [letters.filter(pa.array(np.array(parts, np.int64) == number)) for number in range(count)]


def _by_generation(
    letters: pa.Table, topics: Mapping[str, str], known: Mapping[str, Mapping[str, int]]
) -> Iterator[tuple[pa.Table, Within, Mapping[str, int]]]:
    """Split letters, of one topic id for each topic, into letters of a known and of an unknown generation.

    `topics` has the ids of the present topics, `known` the recorded generations. Yields letters, what decides within a
    partition, and the generations above 0 of their topics.
    """
    found: dict[str, int] = {}
    places = zip(*(letters.column(name).to_pylist() for name in ("topic", "topic_id")), strict=True)
    for topic, life in dict.fromkeys(places):
        recorded = known.get(topic, {})
        if life in recorded or (life is not None and life == topics.get(topic)):
            found[topic] = recorded.get(life, 0)
    is_known = pc.is_in(letters.column("topic"), value_set=pa.array(list(found), pa.string()))
    yield letters.filter(is_known), Within.OFFSET, {topic: number for topic, number in found.items() if number}
    yield letters.filter(pc.invert(is_known)), Within.BOTH, {}


def _by_partition(letters: pa.Table) -> list[pa.Table]:
    """Split letters in ORDER by partition, and so that offsets identify the letters of a part.

    A topic that was made anew, or truncated by an unclean election, had several records with one offset.
    """
    found, begin = [], 0
    columns = (letters.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    places = list(zip(*columns, strict=True))
    for end in range(1, len(places) + 1):
        if end == len(places) or places[end][:2] != places[begin][:2] or places[end][2] <= places[end - 1][2]:
            found.append(letters.slice(begin, end - begin))
            begin = end
    return found


def _groups(files: Sequence[Added]) -> list[list[Added]]:
    groups: list[list[Added]] = []
    size = 0
    for file in files:
        if not groups or size + file.size > BATCH_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(file)
        size += file.size
    return groups
