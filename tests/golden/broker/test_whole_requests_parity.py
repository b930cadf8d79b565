"""Produce requests with a bad batch in one of several partitions: which partitions the error is for."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from kraft_protocol.records.batch import iter_headers
from kraft_protocol.wire.messages import InitProducerIdRequest, ProduceRequest
from tests.golden.broker.batches import WHEN, altered, batch, produce, record, stored
from tests.golden.broker.pair import Pair, Side

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("broker-parity")]

Build = Callable[[Side], ProduceRequest]
GOOD = batch()
TRANSACTIONAL = altered(GOOD, attributes=0x10, producer_id=1, producer_epoch=0, sequence=0)


@pytest.fixture(scope="module", autouse=True)
def _topics(servers: tuple[Side, Side]) -> None:
    made = Pair(*servers)
    made.create("w", 3)
    made.create("w.recent", message_timestamp_after_max_ms="1000")
    made.create("w.zstd", compression_type="zstd")
    for side in made.sides:  # Kafka's first answers may give -1 as the log's start
        for _ in range(6):
            for topic in ("w.recent", "w.zstd"):
                side.ask(produce(topic, (0, GOOD))(side), 9)
            side.ask(produce("w", (0, GOOD), (1, GOOD), (2, GOOD))(side), 9)


def with_length(size: int) -> bytes:
    return GOOD[:8] + struct.pack(">i", size) + GOOD[12:]


BAD = {
    "transactional": TRANSACTIONAL,
    "transactional, damaged": TRANSACTIONAL[:-1] + b"\xff",
    "transactional and control": altered(GOOD, attributes=0x30),
    "transactional, unknown codec": altered(TRANSACTIONAL, attributes=0x15),
    "transactional, and another": TRANSACTIONAL + GOOD,
    "transactional behind another": GOOD + TRANSACTIONAL,
    "transactional, cut off": TRANSACTIONAL[:-2],
    "magic 0 with the bit": TRANSACTIONAL[:16] + b"\0" + TRANSACTIONAL[17:],
    "control": altered(GOOD, attributes=0x20),
    "length 0": with_length(0),
    "length 20": with_length(20),
    "length beyond Java": with_length(2**31 - 1),
    "magic 3": GOOD[:16] + b"\3" + GOOD[17:],
    "unknown codec": altered(GOOD, attributes=5),
    "zstd": batch(compression=4),
    "wrong CRC": GOOD[:-1] + b"\xff",
    "nothing": b"",
    "half a header": GOOD[:30],
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_batch_refuses_its_partition_or_all(pair: Pair, name: str) -> None:
    """A first batch that is transactional without an id, or that cannot be framed, refuses all partitions."""
    bad = BAD[name]
    for rows in ([(0, bad), (1, GOOD)], [(1, GOOD), (2, bad)], [(0, bad), (1, TRANSACTIONAL)], [(99, bad), (0, GOOD)]):
        pair.same(produce("w", *rows), (3, 7, 9, 13), label=f"{name} of {len(rows)}")


@pytest.mark.parametrize("name", BAD)
def test_a_bad_batch_precedes_invalid_acks(pair: Pair, name: str) -> None:
    pair.same(produce("w", (0, BAD[name]), (1, GOOD), (99, GOOD), acks=2), (6, 9, 13), label=name)
    pair.unanswered(produce("w", (0, BAD[name]), (1, GOOD), acks=0), 9)


def test_only_good_partitions_were_appended(pair: Pair) -> None:
    for index in range(3):
        pair.check(f"w-{index}", lambda side, index=index: len(stored(side, "w", index)))  # type: ignore[misc]


@pytest.mark.parametrize("codec", [0, 1])
def test_a_missing_sequence_precedes_bad_records(pair: Pair, codec: int) -> None:
    late = batch(record(at=2**42), compression=codec)
    pair.same(produce("w.recent", (0, late)), 9)
    pair.same(produce("w.recent", (0, altered(late, producer_id=5, attributes=codec))), 9)


def test_batches_that_are_built_anew_get_the_same_answers(pair: Pair) -> None:
    """The topic's codec is not the batch's, so Kafka builds the batch anew: what it cannot build, it refuses."""
    for side in pair.sides:
        side.memory["anew"] = side.ask(InitProducerIdRequest(transaction_timeout_ms=1000), 4).producer_id

    def sent(**fields: Any) -> Build:
        def made(side: Side) -> ProduceRequest:
            given = {name: value(side) if callable(value) else value for name, value in fields.items()}
            return produce("w.zstd", (0, altered(batch(record(), record()), **given)))(side)

        return made

    for fields in (
        {"base_timestamp": -5, "max_timestamp": -5},
        {"base_timestamp": -1, "max_timestamp": -1},
        {"base_timestamp": WHEN, "max_timestamp": WHEN, "attributes": 0x40},
        {"producer_id": -2},
        {"producer_epoch": 5},
        {"producer_id": lambda side: side.memory["anew"], "sequence": 0},
    ):
        pair.same(sent(**fields), 9, label=str(fields))

    def headers(side: Side) -> list[Any]:
        return [(h.base_offset, h.attributes, h.base_timestamp) for h in iter_headers(stored(side, "w.zstd"))]

    pair.check("w.zstd", headers)
