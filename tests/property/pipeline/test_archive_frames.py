"""The replay of an archive in groups of topics, as Spark's tasks do it, against the replay by one process."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft_pipeline.archive import changes, frames
from kraft_pipeline.archive.frames import ChangesFile, Limit
from kraft_pipeline.archive.run import state_at
from kraft_pipeline.archive.tables import redacted
from kraft_protocol.wire import stored
from tests.property.metadata.naive import Stories
from tests.property.pipeline.test_archive import SEEDS, batches, encoded
from tests.tiers import examples


def story(seed: int, count: int) -> list[pa.RecordBatch]:
    """The rows of a log with transactions that end, are aborted, or are open; from offset 0."""
    rng, stories = Random(seed), Stories(seed)
    made = [*[stored.NoOpRecord()] * rng.randint(0, 1), *stories.records(count)]
    for _ in range(rng.randint(0, 3)):
        made += [stored.BeginTransactionRecord(name="n"), *stories.records(rng.randint(0, 30))]
        made += [stored.EndTransactionRecord(), stored.NoOpRecord(), *stories.records(rng.randint(0, 30))]
    # The model applies all records, so what follows must not depend on the aborted ones.
    made += [stored.BeginTransactionRecord(name="n"), *stories.records(10)]
    made += [stored.AbortTransactionRecord()] if rng.random() < 0.5 else []
    made += [stored.NoOpRecord()] * rng.randint(0, 2)
    rows = changes.ChangeDecoder().decode(batches([encoded(r) for r in made], rng))
    return [redacted(batch.slice(at, 7)) for batch in rows for at in range(0, batch.num_rows, 7)]


def snapshot(seed: int, offset: int, count: int) -> list[pa.RecordBatch]:
    """The rows of a snapshot that covers the records up to `offset`."""
    rng, stories = Random(seed), Stories(seed)
    data = batches([encoded(r) for r in stories.records(count)], rng)
    return list(changes.ChangeDecoder().decode(data, snapshot_offset=offset))


def shuffled(rows: pa.Table, rng: Random) -> pa.Table:
    order = list(range(rows.num_rows))
    rng.shuffle(order)
    return rows.take(order)


def by_partition(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: (row["topic_id"], row["partition"]))


@settings(max_examples=examples(120), deadline=None)
@given(SEEDS, st.integers(1, 150), st.integers(1, 5), st.booleans())
def test_groups_lead_to_the_same_state(seed: int, count: int, groups: int, trimmed: bool) -> None:
    """Also with a snapshot in the midst, which replaces the state, and at any offset or row."""
    rng, rows = Random(seed), story(seed, count)
    if trimmed:
        rows += snapshot(seed + 1, rows[-1].column("offset")[-1].as_py() + rng.randint(0, 9), rng.randint(1, 60))
    files = []
    while rows:
        some = rng.randint(1, 12)
        files.append(rows[:some])
        del rows[:some]
    whole = [batch for file in files for batch in file]
    ends = [batch.column("offset")[-1].as_py() for batch in whole]
    limit = rng.choice([Limit(), Limit(offset=rng.choice(ends) - rng.randint(0, 3))])
    if limit.offset is not None and limit.offset < 0:
        limit = Limit(offset=0)
    expected = state_at(iter(whole), offset=limit.offset)
    if rng.random() < 0.5 and limit.offset is not None and not trimmed:
        limit = _row_of(files, limit.offset)
    parts, small = [], []
    for place, batches_of_file in enumerate(files):
        file = ChangesFile(place, "", 0)
        if limit.row is not None and limit.row <= (place, 0):
            continue
        kept = list(frames.cut(iter(batches_of_file), file, limit))
        if kept:
            parts += list(frames.packed(frames.group_rows(kept, groups), place))
            few = [batch.select(frames.SMALL_COLUMNS) for batch in kept]
            small += list(frames.packed([frames.others(few)], place))
    mixed = shuffled(pa.Table.from_batches(parts), rng)
    found = [frames.replayed(mixed.filter(pc.equal(mixed.column("group"), one))).partitions for one in range(groups)]
    assert by_partition(pa.concat_tables(found)) == by_partition(expected.partitions)
    state = frames.replayed(shuffled(pa.Table.from_batches(small), rng))
    assert state.small == expected.small
    assert (state.offset, state.epoch, state.timestamp_ms) == (expected.offset, expected.epoch, expected.timestamp_ms)


def _row_of(files: list[list[pa.RecordBatch]], offset: int) -> Limit:
    """The row after `offset`, as a limit."""
    for place, file in enumerate(files):
        row = 0
        for batch in file:
            for one in batch.column("offset").to_pylist():
                if one > offset:
                    return Limit(row=(place, row))
                row += 1
    return Limit()
