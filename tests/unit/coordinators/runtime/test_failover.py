"""Elections: loads, resignations in the midst of them, and two brokers that both believe to lead."""

from __future__ import annotations

import pytest

from kraft_node.broker.coordinators.runtime.machine import TransactionalProducer
from kraft_node.broker.coordinators.runtime.shard import Phase
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch
from tests.unit.coordinators.runtime.ledger import Broker, Ledger, alone, three


def fill(broker: Broker, count: int) -> None:
    """Write `count` records, each its own batch; every third one removes a name."""
    for i in range(count):
        broker.put((f"name {i % 97}", None if i % 3 == 2 else i))


def turns_to_load(broker: Broker, most: int = 10_000) -> int:
    turns = 0
    while broker.shard.phase is Phase.LOADING and turns < most:
        _, _, handle = broker.time._queue.pop(0)
        if not handle.cancelled:
            handle.function(*handle.args)
            turns += 1
    return turns


def test_new_leader_has_the_state_of_the_old_one() -> None:
    replicas, first, second, _ = three()
    fill(first, 500)
    first.put(("open", 1), producer=TransactionalProducer(9, 0))
    replicas.replicate()
    state = first.ledger.state
    second.lead()
    assert second.ledger.state == state
    assert second.ledger.events[-1] == "loaded"


def test_uncommitted_records_survive_if_the_next_leader_has_them() -> None:
    replicas, first, second, third = three()
    first.put(("a", 1))
    replicas.replicate()
    first.put(("a", 2))
    second.lead()
    first.runtime.on_resign(0)
    assert first.answers == ["ok", ErrorCode.NOT_COORDINATOR]
    assert second.ledger.numbers == {"a": 1}
    replicas.replicate()
    third.lead()
    assert third.ledger.numbers == {"a": 1}


def test_requests_during_a_load_are_asked_to_retry() -> None:
    broker = alone()
    fill(broker, 10)
    broker.runtime.on_resign(0)
    broker.answers.clear()
    broker.runtime.on_leader(0, broker.log.replicas.elect(1))
    broker.put(("a", 1))
    broker.get("a")
    assert broker.answers == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    broker.settle()
    broker.get("name 1")
    assert broker.answers[2:] == [1]


def test_load_of_many_offsets_takes_many_turns() -> None:
    broker = alone()
    batch = 100
    for base in range(0, 20_000, batch):
        records = [(b"name %d" % (i % 5_000), None if i % 7 == 0 else b"%d" % i) for i in range(base, base + batch)]
        broker.log.add(build_batch(records, base_offset=base))
    broker.runtime.on_resign(0)
    broker.runtime.on_leader(0, broker.log.replicas.elect(1))
    assert turns_to_load(broker) >= 20_000 / 400
    expected = {f"name {i % 5_000}": i for i in range(15_000, 20_000) if i % 7}
    assert broker.ledger.numbers == expected


@pytest.mark.parametrize("turns", [0, 1, 3])
def test_resignation_during_a_load_ends_it(turns: int) -> None:
    replicas, first, second, _ = three()
    fill(first, 2_000)
    replicas.replicate()
    second.runtime.on_leader(0, replicas.elect(2))
    assert turns_to_load(second, turns) == turns
    assert second.shard.phase is Phase.LOADING
    second.runtime.on_resign(0)
    second.settle()
    assert second.runtime.shards == {}
    assert "loaded" not in second.latest.events
    third = first
    third.runtime.on_resign(0)
    third.lead()
    assert third.shard.phase is Phase.ACTIVE


def test_election_during_a_load_starts_no_second_load() -> None:
    replicas, first, second, _ = three()
    fill(first, 2_000)
    replicas.replicate()
    state = first.ledger.state
    second.runtime.on_leader(0, replicas.elect(2))
    turns_to_load(second, 2)
    second.runtime.on_leader(0, replicas.elect(2))
    second.settle()
    assert len(second.machines) == 1
    assert second.shard.epoch == replicas.epoch
    assert second.ledger.state == state


def test_compaction_during_a_load_changes_nothing() -> None:
    replicas, first, second, _ = three()
    fill(first, 2_000)
    replicas.replicate()
    state = first.ledger.state
    second.runtime.on_leader(0, replicas.elect(2))
    turns_to_load(second, 2)
    replicas.compact()
    second.settle()
    assert second.ledger.state == state
    first.runtime.on_resign(0)
    first.lead()
    assert first.ledger.state == state, "a load after the compaction"


def test_old_leader_that_has_not_noticed_writes_nothing_that_stays() -> None:
    """Two coordinators of one partition for a while: the epoch of the append tells them apart."""
    replicas, first, second, _ = three()
    first.put(("a", 1))
    replicas.replicate()
    replicas.cut_off = {1}
    second.lead()
    first.put(("a", 100), answer="from the past")
    second.put(("a", 2), answer="from the present")
    replicas.replicate()
    assert (first.answers, second.answers) == (["ok"], ["from the present"])
    assert first.shard.phase is second.shard.phase is Phase.ACTIVE
    first.time.advance(5_000)
    assert first.answers == ["ok", ErrorCode.COORDINATOR_NOT_AVAILABLE], "nobody acknowledged it"
    replicas.cut_off = set()
    replicas.replicate()
    first.runtime.on_resign(0)
    first.lead()
    assert first.ledger.numbers == {"a": 2}


def test_epoch_of_the_past_cannot_append() -> None:
    broker = alone()
    broker.put(("a", 1))
    broker.log.replicas.elect(1)  # the broker has heard of it, its coordinator has not
    broker.put(("a", 2))
    assert broker.answers == ["ok", ErrorCode.NOT_COORDINATOR]
    assert broker.ledger.numbers == {"a": 1}
    broker.runtime.on_leader(0, broker.log.replicas.epoch)
    broker.put(("a", 3))
    assert broker.answers[2:] == ["ok"]
    assert len(broker.machines) == 1, "the same leader in a later epoch keeps its state"


def test_lost_batch_of_an_old_epoch_loads_the_shard_again() -> None:
    broker = alone(linger_ms=20)
    broker.put(("a", 1))
    broker.log.replicas.elect(1)
    broker.time.advance(20)
    broker.settle()
    assert broker.answers == [ErrorCode.NOT_COORDINATOR]
    assert broker.ledger.numbers == {}


def test_records_that_cannot_be_decoded_fail_the_partition_until_the_next_election() -> None:
    broker = alone()
    broker.put(("a", 1))
    good = list(broker.log.batches)
    broker.log.add(build_batch([(b"b", b"not a number")], base_offset=1))
    broker.runtime.on_resign(0)
    broker.lead()
    assert broker.shard.phase is Phase.FAILED
    assert broker.ledger.events[-1] == "unloaded"
    broker.put(("b", 1))
    assert broker.answers == ["ok", ErrorCode.NOT_COORDINATOR]
    broker.log.batches, broker.log.end, broker.log.high_watermark_ = good, 1, 1
    broker.lead()
    assert broker.ledger.numbers == {"a": 1}


def test_records_of_a_later_release_are_skipped() -> None:
    broker = alone()
    broker.log.add(build_batch([(b"?new", b"1"), (b"a", b"1")], base_offset=0))
    broker.runtime.on_resign(0)
    broker.lead()
    assert broker.ledger.numbers == {"a": 1}


def test_waiting_requests_are_refused_on_resignation() -> None:
    _, first, _, _ = three()
    first.put(("a", 1))
    first.get("a")
    first.put(answer="nothing")
    first.runtime.shutdown()
    assert first.answers == [ErrorCode.NOT_COORDINATOR] * 3
    assert first.latest.events[-1] == "unloaded"


def test_a_log_that_is_opened_again_is_loaded_again_and_waited_for() -> None:
    replicas, first, _, _ = three()
    first.put(("a", 1))
    first.log.open_again()
    assert first.answers == [ErrorCode.NOT_COORDINATOR]
    first.settle()
    assert first.ledger.numbers == {"a": 1}
    first.put(("b", 2))
    replicas.replicate()
    assert first.answers[1:] == ["ok"]


def test_records_that_a_failed_append_has_left_in_the_log_are_loaded() -> None:
    replicas, first, _, _ = three()
    producer = TransactionalProducer(9, 0)
    first.put(("a", 1), producer=producer)
    first.log.fail_late = ErrorCode.KAFKA_STORAGE_ERROR
    first.put(("b", 2))
    assert first.answers == [ErrorCode.NOT_COORDINATOR] * 2
    first.settle()
    assert first.ledger.state == ({"b": 2}, {9: {"a": 1}})
    first.shard.end_transaction(producer, first.answers, commit=True, coordinator_epoch=0)
    first.settle()
    assert first.ledger.state == ({"a": 1, "b": 2}, {})
    first.log.fail_late = None
    replicas.replicate()
    first.put(("c", 3))
    replicas.replicate()
    assert first.answers[3:] == ["ok"]


@pytest.mark.parametrize("turns", [1, 2, 4, 5])
def test_a_load_goes_on_if_the_log_is_opened_again_meanwhile(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    monkeypatch.setattr(Ledger, "complete_load", lambda _: iter([None] * 1_000))
    broker = alone()
    fill(broker, 1_000)
    state, epoch = broker.ledger.state, broker.log.led_epoch
    broker.runtime.on_resign(0)
    broker.runtime.on_leader(0, epoch)
    for _ in range(turns):
        assert turns_to_load(broker, 1) == 1
    broker.log.led_epoch = -1
    turns_to_load(broker, 10)
    assert broker.shard.phase is Phase.LOADING
    broker.log.led_epoch = epoch
    broker.time.advance(50)
    broker.settle()
    assert broker.ledger.events[-1] == "loaded"
    assert broker.ledger.state == state
