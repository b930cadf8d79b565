"""Our records of `__transaction_state` against Apache Kafka's own class: the same bytes."""

from __future__ import annotations

import random

import pytest

from kraft_node.broker.coordinators.transaction.records import (
    decode_values,
    encode_name,
    encode_values,
    name_in,
    state_in,
)
from kraft_node.broker.coordinators.transaction.states import TransactionState, Values
from kraft_protocol.wire import codec
from kraft_protocol.wire.coordinator import decode_value_versioned
from kraft_protocol.wire.stored import TransactionLogKey
from tests.peer import run_java

STORED = [
    state for state in TransactionState if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
]


def drawn(rng: random.Random, version: int) -> Values:
    state = rng.choice(STORED)
    partitions = (
        frozenset() if state is TransactionState.EMPTY else frozenset({("topic", rng.randrange(9))} - {("topic", 0)})
    )
    return Values(
        rng.getrandbits(60),
        rng.randrange(2**15),
        rng.randrange(1, 2**31),
        state,
        partitions,
        rng.choice([-1, rng.getrandbits(41)]),
        rng.getrandbits(41),
        previous_producer_id=rng.choice([-1, rng.getrandbits(60)]) if version else -1,
        next_producer_id=rng.choice([-1, -1, rng.getrandbits(60)]) if version else -1,
        client_version=rng.choice([0, 2]) if version else 0,
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_record_is_read_back_as_it_was_written(version: int) -> None:
    rng = random.Random(version)
    for _ in range(200):
        values = drawn(rng, version)
        encoded = encode_values(values, version)
        assert decode_values(encoded) == values
        assert state_in(encoded) == values.state.value
    assert name_in(encode_name("größe")) == "größe"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_values_packed_by_hand_are_those_of_the_general_encoder(version: int) -> None:
    rng = random.Random(version)
    for _ in range(300):
        values = drawn(rng, version)
        if values.state is not TransactionState.EMPTY:
            topics = [(rng.choice(["a", "größe", "x" * 200]), rng.randrange(300)) for _ in range(rng.randrange(200))]
            values = values._replace(partitions=frozenset(topics))
        encoded = encode_values(values, version)
        key = TransactionLogKey("t")
        message, stored = decode_value_versioned(key, encoded)
        assert stored.to_bytes(2, "big") + codec.encode(message, stored) == encoded
        assert decode_values(encoded) == values
    for name in ("", "größe", "x" * 32_000):
        assert name_in(encode_name(name)) == name


@pytest.mark.peer
def test_our_records_are_kafkas() -> None:
    rng = random.Random(7)
    lines, ours = [], []
    for number in range(300):
        version = number % 3
        values = drawn(rng, version)
        name = rng.choice(["t", "größe", "x" * 300, "app-0_1"])
        fields = (
            *(name, version, values.state.value, values.producer_id, values.previous_producer_id),
            *(values.next_producer_id, values.epoch, values.timeout_ms, values.update_ms, values.start_ms),
            values.client_version,
            *(f"{topic}:{index}" for topic, index in values.partitions),
        )
        lines.append(" ".join(map(str, fields)))
        ours.append(f"{encode_name(name).hex()} {encode_values(values, version).hex()}")
    answers = run_java("tests/java/TransactionRecordOracle.java", stdin="\n".join(lines).encode()).stdout.decode()
    assert answers.splitlines() == ours
