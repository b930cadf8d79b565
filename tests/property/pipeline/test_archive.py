"""The metadata archive against the node's codec, its own slow decoder, and the simple model of metadata records."""

from __future__ import annotations

import base64
import json
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft_node.cli import record_text
from kraft_node.metadata.kinds import kind_of
from kraft_node.metadata.log_batches import data_batch
from kraft_node.metadata.records import encode_record
from kraft_pipeline.archive import changes, generic
from kraft_pipeline.archive.run import state_at
from kraft_pipeline.archive.schema import records
from kraft_pipeline.archive.spread import reduced
from kraft_pipeline.archive.state import Replay
from kraft_protocol.wire import stored
from tests.property.metadata.naive import Stories
from tests.tiers import examples
from tests.wire_values import all_messages, random_message

RECORDS = [
    (cls, version)
    for cls, version in all_messages()
    if cls.SCHEMA.kind == "metadata" and not cls.__name__.startswith("Remote")
]
LEVEL = 30
SEEDS = st.integers(0, 2**32)


@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(RECORDS), SEEDS)
def test_every_record_reads_like_with_the_nodes_codec(kind: tuple[Any, int], seed: int) -> None:
    cls, version = kind
    message = random_message(cls, version, Random(seed))
    found = generic.decode(encode_record(message, version))
    assert found.version == version
    expected = record_text.to_json(message, version)
    if cls.__name__ == "ClientQuotaRecord":
        assert repr(found.fields.pop("value")) == repr(expected.pop("value"))  # it may be NaN
    assert found.fields == expected


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=200), st.sampled_from(sorted(records())), st.integers(0, 4))
def test_any_bytes_are_a_record_or_refused(raw: bytes, kind: int, version: int) -> None:
    for value in (raw, bytes([1, kind, version]) + raw):
        try:
            generic.decode(value)
        except generic.DecodeError:
            continue


def encoded(record: Any) -> bytes:
    return encode_record(record, kind_of(record).version(LEVEL))


def batches(values: list[bytes], rng: Random) -> bytes:
    """The values in batches of any size."""
    out, at = b"", 0
    while at < len(values):
        size = rng.randint(1, 60)
        out += data_batch(values[at : at + size], at, 1 + at // 50, 1_700_000_000_000 + at)
        at += size
    return out


def rows_of(data: bytes, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.Table.from_batches(
        list(changes.ChangeDecoder().decode(data, **options)), schema=changes.SCHEMA
    ).to_pylist()
    return rows


def expected_row(value: bytes) -> dict[str, Any]:
    """A row by the slow decoder alone."""
    found = generic.decode(value)
    row: dict[str, Any] = {"type": found.name, "version": found.version, "fields": None}
    if found.number not in (3, 5):
        return row | {"fields": found.fields, "topic_id": found.fields.get("topicId")}
    if found.number == 3:
        row["leader_recovery"] = 0
    names = {**changes.NUMBERS, **changes.LISTS, "topicId": "topic_id"}
    return row | {names[name]: field for name, field in found.fields.items()}


@pytest.mark.parametrize("rare", [1, changes.RARE])
@settings(max_examples=examples(60), deadline=None)
@given(seed=SEEDS)
def test_columns_equal_those_of_the_slow_decoder(rare: int, seed: int) -> None:
    """Records of random shapes; each shape occurs several times with other numbers."""
    rng = Random(seed)
    values = []
    for _ in range(rng.randint(1, 8)):
        cls = rng.choice([stored.PartitionRecord, stored.PartitionChangeRecord])
        version = rng.randint(0, 2)
        shape = rng.getrandbits(32)
        for _ in range(rng.choice([1, 5, 30])):
            message = random_message(cls, version, Random(shape))
            _renumbered(message, rng)
            values.append(encode_record(message, version))
    values += [encoded(r) for r in Stories(seed).records(rng.randint(0, 30))]
    rng.shuffle(values)
    before, changes.RARE = changes.RARE, rare  # type: ignore[misc]
    try:
        rows = rows_of(batches(values, rng))
    finally:
        changes.RARE = before  # type: ignore[misc]
    assert [row["offset"] for row in rows] == list(range(len(values)))
    for row, value in zip(rows, values, strict=True):
        expected = expected_row(value)
        row["fields"] = None if row["fields"] is None else json.loads(row["fields"])
        reported = {
            name: cell for name, cell in row.items() if name not in ("offset", "epoch", "timestamp", "snapshot")
        }
        assert reported == dict.fromkeys(reported) | expected


def _renumbered(message: Any, rng: Random) -> None:
    """The same shape with other numbers, sometimes with the numbers that mean a missing value."""
    message.partition_id = rng.randint(0, 2**31 - 1)
    message.topic_id = rng.choice([bytes([7]) * 16, rng.randbytes(16)])
    for name in ("replicas", "isr", "eligible_leader_replicas"):
        if getattr(message, name):
            setattr(message, name, [rng.randint(0, 99) for _ in getattr(message, name)])
    message.leader = rng.choice([-2, -1, 5, message.leader])


def text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(bytes(raw)).decode().rstrip("=")


@settings(max_examples=examples(80), deadline=None)
@given(SEEDS, st.integers(1, 200), st.integers(0, 60))
def test_the_state_at_an_offset_is_the_sum_of_earlier_records(seed: int, count: int, more: int) -> None:
    stories = Stories(seed)
    made = stories.records(count)
    model = stories.model.copy()
    made += stories.records(more)
    data = batches([encoded(r) for r in made], Random(seed))
    state = state_at(changes.ChangeDecoder().decode(data), offset=count - 1)
    assert state.offset == count - 1
    small = state.small
    assert small.features == model.features
    assert {b: (r["brokerEpoch"], r["fenced"], r["rack"]) for b, r in small.brokers.items()} == {
        b: (r["epoch"], r["fenced"], r["rack"]) for b, r in model.brokers.items()
    }
    assert small.configs == model.configs
    assert {frozenset(key): values for key, values in small.quotas.items()} == model.quotas
    assert {i: acl["principal"] for i, acl in small.acls.items()} == {text(i): who for i, who in model.acls.items()}
    assert small.topics == {text(i): name for i, (name, _) in model.topics.items()}
    expected = {
        (text(topic), number): partition
        for topic, (_, partitions) in model.topics.items()
        for number, partition in partitions.items()
    }
    rows = state.partitions.to_pylist()
    assert len(rows) == len(expected)
    for row in rows:
        model_row = expected[row["topic_id"], row["partition"]]
        assert row["topic"] == small.topics[row["topic_id"]]
        assert {
            "replicas": row["replicas"],
            "isr": row["isr"],
            "removing": row["removing_replicas"],
            "adding": row["adding_replicas"],
            "leader": row["leader"],
            "leader_epoch": row["leader_epoch"],
            "epoch": row["partition_epoch"],
            "dirs": row["directories"] or ["A" * 22] * len(row["replicas"]),
            "elr": row["eligible_leader_replicas"],
            "last_elr": row["last_known_elr"],
            "recovering": row["leader_recovery"],
        } == {**model_row, "dirs": [text(d) for d in model_row["dirs"]]}


@settings(max_examples=examples(40), deadline=None)
@given(SEEDS, st.booleans())
def test_a_transaction_applies_at_its_end(seed: int, ends: bool) -> None:
    stories = Stories(seed)
    before = stories.records(20)
    then = stories.model.copy()
    within = stories.records(20)
    end = stored.EndTransactionRecord() if ends else stored.AbortTransactionRecord(reason="r")
    made = [*before, stored.BeginTransactionRecord(name="n"), *within, end]
    data = batches([encoded(r) for r in made], Random(seed))
    for offset, model in ((40, then), (41, stories.model if ends else then)):
        small = state_at(changes.ChangeDecoder().decode(data), offset=offset).small
        assert set(small.topics) == {text(i) for i in model.topics}
        assert small.configs == model.configs
        partitions = state_at(changes.ChangeDecoder().decode(data), offset=offset).partitions
        epochs = {(r["topic_id"], r["partition"]): r["partition_epoch"] for r in partitions.to_pylist()}
        assert epochs == {
            (text(topic), number): partition["epoch"]
            for topic, (_, found) in model.topics.items()
            for number, partition in found.items()
        }


@settings(max_examples=examples(40), deadline=None)
@given(SEEDS, st.integers(1, 200))
def test_a_log_in_parts_leads_to_the_same_state(seed: int, count: int) -> None:
    """The log may be split into files anywhere, also within transactions, and be reduced twice."""
    rng, stories = Random(seed), Stories(seed)
    made = stories.records(count)
    for _ in range(rng.randint(0, 3)):
        made += [stored.BeginTransactionRecord(name="n"), *stories.records(rng.randint(0, 30))]
        made += [stored.EndTransactionRecord(), stored.NoOpRecord(), *stories.records(rng.randint(0, 30))]
    made += [stored.BeginTransactionRecord(name="n"), *stories.records(10), stored.AbortTransactionRecord()]
    made += [stored.NoOpRecord()] * rng.randint(0, 2)
    rows = list(changes.ChangeDecoder().decode(batches([encoded(r) for r in made], rng)))
    rows = [batch.slice(at, 7) for batch in rows for at in range(0, batch.num_rows, 7)]
    expected, replay = state_at(iter(rows)), Replay()
    while rows:
        cut = rng.randint(1, 12)
        some = reduced(rows[:cut])
        assert some.num_rows <= sum(batch.num_rows for batch in rows[:cut])
        for batch in reduced(some.to_batches()).to_batches() if rng.random() < 0.5 else some.to_batches():
            replay.add(batch)
        del rows[:cut]
    found = replay.state()
    assert found.small == expected.small
    assert (found.offset, found.epoch, found.timestamp_ms) == (expected.offset, expected.epoch, expected.timestamp_ms)
    assert found.partitions.to_pylist() == expected.partitions.to_pylist()
