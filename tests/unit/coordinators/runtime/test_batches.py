"""Batches of several operations, by append.linger.ms."""

from __future__ import annotations

import pytest

from kraft_node.broker.coordinators.runtime.batch import size_of
from kraft_node.broker.coordinators.runtime.machine import StoredRecord, TransactionalProducer
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch
from tests.unit.coordinators.runtime.ledger import Broker, alone, three


def sizes(broker: Broker) -> list[int]:
    """The number of records of each batch in the log."""
    return [header.count for header, _ in broker.log.decoded()]


def test_operations_of_one_turn_share_a_batch() -> None:
    broker = alone(linger_ms=-1)
    for i in range(5):
        broker.put((f"a{i}", i), (f"b{i}", i))
    assert sizes(broker) == []
    broker.time.advance()
    assert sizes(broker) == [10]
    assert broker.answers == ["ok"] * 5
    broker.put(("c", 1))
    broker.time.advance()
    assert sizes(broker) == [10, 1]


def test_without_linger_each_operation_has_its_batch() -> None:
    broker = alone(linger_ms=0)
    broker.put(("a", 1), ("b", 1))
    broker.put(("c", 1))
    assert sizes(broker) == [2, 1]


def test_with_linger_a_batch_stays_open_for_that_long() -> None:
    broker = alone(linger_ms=20)
    broker.put(("a", 1))
    broker.time.advance(19)
    broker.put(("b", 1))
    assert sizes(broker) == []
    broker.time.advance(1)
    assert sizes(broker) == [2]
    assert broker.answers == ["ok", "ok"]
    broker.put(("c", 1))
    broker.time.advance(19)
    assert sizes(broker) == [2], "the time begins with the first operation of a batch"
    broker.time.advance(1)
    assert sizes(broker) == [2, 1]


def test_records_of_an_operation_are_never_split() -> None:
    broker = alone(linger_ms=-1)
    for i in range(40):
        broker.put(*[(f"{i} {j}", j) for j in range(6)])
    broker.time.advance()
    assert broker.answers == ["ok"] * 40
    assert sum(sizes(broker)) == 240
    assert len(sizes(broker)) > 5
    assert all(size % 6 == 0 for size in sizes(broker))
    assert all(len(batch) <= broker.log.replicas.max_bytes for batch in broker.log.batches)


def test_full_batch_is_appended_before_the_linger_is_over() -> None:
    broker = alone(linger_ms=1_000)
    for i in range(50):
        broker.put((f"name {i}", i))
    assert len(sizes(broker)) == 2
    assert sum(sizes(broker)) < 50
    assert broker.ledger.numbers["name 49"] == 49
    assert len(broker.answers) == sum(sizes(broker)), "its operations are answered at once"


def test_transactional_write_flushes_the_open_batch() -> None:
    broker = alone(linger_ms=1_000)
    broker.put(("a", 1))
    broker.put(("b", 1), producer=TransactionalProducer(7, 0))
    broker.put(("c", 1))
    assert sizes(broker) == [1, 1]
    broker.time.advance(1_000)
    assert [(h.producer_id, h.count) for h, _ in broker.log.decoded()] == [(-1, 1), (7, 1), (-1, 1)]
    assert broker.ledger.numbers == {"a": 1, "c": 1}


@pytest.mark.parametrize("linger_ms", [-1, 20])
def test_batch_that_cannot_be_appended_fails_all_its_operations(linger_ms: int) -> None:
    """Its records were replayed: the state is loaded again, so that no later operation builds on them."""
    replicas, first, _, _ = three(linger_ms=linger_ms)
    first.put(("a", 1), answer="a")
    first.time.advance(20)
    first.add("a", 1)
    first.add("b", 1)
    first.log.fail_append = ErrorCode.KAFKA_STORAGE_ERROR
    first.time.advance(20)
    first.log.fail_append = None
    assert first.answers.count(ErrorCode.NOT_COORDINATOR) == 3, "also the one whose commit was awaited"
    first.settle()
    assert len(first.machines) == 2
    assert first.machines[0].events[-1] == "unloaded"
    assert first.ledger.numbers == {"a": 1}
    first.answers.clear()
    first.add("a", 1)
    first.time.advance(20)
    replicas.replicate()
    assert first.answers == [2]


def test_operation_that_finds_the_batch_full_and_lost_fails_with_it() -> None:
    broker = alone(linger_ms=1_000)
    broker.put(("a", 1))
    broker.log.fail_append = ErrorCode.KAFKA_STORAGE_ERROR
    for i in range(40):
        broker.put((f"name {i}", i))
    assert "ok" not in broker.answers
    assert broker.answers.count(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) > 0
    broker.log.fail_append = None
    broker.settle()
    assert broker.ledger.numbers == {}
    assert broker.log.end == 0


def test_foreign_records_in_the_log_make_the_shard_load_again() -> None:
    broker = alone(linger_ms=20)
    broker.put(("a", 1))
    broker.log.add(build_batch([(b"b", b"5")], base_offset=0))
    broker.time.advance(20)
    broker.settle()
    assert broker.answers == [ErrorCode.NOT_COORDINATOR]
    assert broker.ledger.numbers == {"a": 1, "b": 5}
    broker.put(("c", 1))
    broker.time.advance(20)
    assert broker.answers[1:] == ["ok"]


def test_resignation_drops_the_open_batch() -> None:
    broker = alone(linger_ms=1_000)
    broker.put(("a", 1))
    broker.runtime.on_resign(0)
    broker.time.advance(1_000)
    assert broker.answers == [ErrorCode.NOT_COORDINATOR]
    assert broker.log.end == 0


def test_size_is_never_estimated_too_small() -> None:
    for count in (1, 2, 127, 128, 5_000):
        for length in (0, 1, 63, 64, 8_191, 8_192):
            records: list[StoredRecord] = [(b"k" * length, b"v" * length), (b"k", None)] * count
            if count * length < 1_000_000:
                assert len(build_batch(records, timestamp=1_700_000_000_000)) <= size_of(records)
