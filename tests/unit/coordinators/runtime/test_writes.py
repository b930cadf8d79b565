"""Operations: planned against everything written before, answered after the commit, without trace if refused."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.broker.coordinators.runtime.machine import PlannedWrite, TransactionalProducer
from kraft_node.broker.coordinators.runtime.shard import TIMED_OUT_PAUSE_MS, Phase, RuntimeShard
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import iter_records
from tests.unit.coordinators.runtime.ledger import Ledger, alone, three

LINGERS = pytest.mark.parametrize("linger_ms", [-1, 0, 20])


@LINGERS
def test_answer_waits_for_the_high_watermark(linger_ms: int) -> None:
    replicas, first, _, _ = three(linger_ms=linger_ms)
    first.put(("a", 1), answer="a")
    first.time.advance(20)
    assert first.answers == []
    assert first.ledger.numbers == {"a": 1}
    replicas.replicate()
    assert first.answers == ["a"]
    assert first.ledger.events[-1] == "committed to 1"


@LINGERS
def test_operation_sees_writes_that_are_not_committed(linger_ms: int) -> None:
    replicas, first, _, _ = three(linger_ms=linger_ms)
    for _ in range(3):
        first.add("a", 5)
    first.time.advance(20)
    replicas.replicate()
    assert first.answers == [5, 10, 15]


@LINGERS
def test_operation_without_records_waits_for_earlier_ones(linger_ms: int) -> None:
    replicas, first, _, _ = three(linger_ms=linger_ms)
    first.put(answer="nothing is under way")
    first.put(("a", 1), answer="a")
    first.put(answer="after a")
    assert first.answers == ["nothing is under way"]
    first.time.advance(20)
    replicas.replicate()
    assert first.answers == ["nothing is under way", "a", "after a"]


@LINGERS
def test_a_read_waits_until_all_earlier_writes_are_committed(linger_ms: int) -> None:
    replicas, first, _, _ = three(linger_ms=linger_ms)
    first.put(("a", 1))
    first.get("a")
    first.time.advance(20)
    assert first.answers == []
    replicas.replicate()
    assert first.answers == ["ok", 1]


def test_read_that_raises_gets_the_error() -> None:
    broker = alone()

    def refuse(_: Ledger) -> None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "no such thing")

    broker.runtime.read("any key", refuse, broker.answers)
    assert broker.answers == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_operation_that_raises_writes_nothing() -> None:
    broker = alone()

    def refuse(_: Ledger) -> PlannedWrite[tuple[str, int | None], str]:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE, "not now")

    broker.runtime.write("any key", refuse, broker.answers)
    assert broker.answers == [ErrorCode.INVALID_TXN_STATE]
    assert broker.log.end == 0


@LINGERS
@pytest.mark.parametrize(
    ("code", "shown"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_refused_append_leaves_the_state_untouched(linger_ms: int, code: ErrorCode, shown: ErrorCode) -> None:
    broker = alone(linger_ms=linger_ms)
    broker.put(("a", 1))
    broker.time.advance(20)
    machine = broker.ledger
    broker.log.fail = code
    broker.put(("a", 2), ("b", 2))
    assert broker.answers == ["ok", shown]
    assert broker.ledger is machine
    assert machine.numbers == {"a": 1}
    broker.log.fail = None
    broker.put(("b", 3))
    broker.time.advance(20)
    assert broker.answers[2:] == ["ok"]
    assert machine.numbers == {"a": 1, "b": 3}


@LINGERS
def test_operation_larger_than_a_batch_is_refused(linger_ms: int) -> None:
    broker = alone(linger_ms=linger_ms)
    broker.put(*[(f"name {i}", i) for i in range(100)])
    broker.time.advance(20)
    assert broker.answers == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert broker.ledger.numbers == {}
    assert broker.log.end == 0


def test_commit_that_takes_too_long_times_out_but_stays_written() -> None:
    replicas, first, _, _ = three(commit_timeout_ms=1_000)
    first.put(("a", 1), answer="a")
    first.time.advance(500)
    first.put(("b", 1), answer="b")
    first.time.advance(500)
    assert first.answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert first.ledger.numbers == {"a": 1, "b": 1}
    replicas.replicate()
    assert first.answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE, "b"]


def test_many_time_outs_take_few_looks_at_all_waiting_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing is committed, thousands of responses wait, and each has its own deadline."""
    _, first, _, _ = three(commit_timeout_ms=1_000)
    looks = 0
    look = RuntimeShard._commit_timed_out

    def counted(shard: RuntimeShard[Any]) -> None:
        nonlocal looks
        looks += 1
        look(shard)

    monkeypatch.setattr(RuntimeShard, "_commit_timed_out", counted)
    for number in range(500):
        first.put(("a", number), answer=number)
        first.time.advance(1)
    first.time.advance(1_000 + TIMED_OUT_PAUSE_MS)
    assert first.answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 500
    assert looks <= 500 // TIMED_OUT_PAUSE_MS + 2


def test_operation_may_have_its_own_time() -> None:
    replicas, first, _, _ = three(commit_timeout_ms=1_000)
    first.put(("a", 1), answer="a", timeout_ms=3_000)
    first.put(("b", 1), answer="b")
    first.put(("c", 1), answer="c", timeout_ms=100)
    first.time.advance(100)
    assert len(first.answers) == 1
    first.time.advance(900)
    assert len(first.answers) == 2
    first.time.advance(1_999)
    assert len(first.answers) == 2
    replicas.replicate()
    assert first.answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2 + ["a"]


@LINGERS
def test_answer_may_write_again(linger_ms: int) -> None:
    """An answer is given when the state and the log agree: what it writes comes after what is written."""
    broker = alone(linger_ms=linger_ms)
    seen: list[int] = []

    def again(total: int | KafkaError) -> None:
        assert isinstance(total, int)
        seen.append(total)
        if total < 5:
            broker.runtime.write(0, add_one, again)

    def add_one(ledger: Ledger) -> PlannedWrite[tuple[str, int | None], int]:
        total = ledger.numbers.get("a", 0) + 1
        return PlannedWrite([("a", total)], total)

    broker.runtime.write(0, add_one, again)
    broker.runtime.write(0, add_one, again)
    for _ in range(10):
        broker.time.advance(20)
    assert seen == [1, 2, 3, 4, 5, 6]
    assert [int(r.value or b"") for batch in broker.log.batches for r in iter_records(batch)] == [1, 2, 3, 4, 5, 6]


def test_commit_during_an_append_is_answered_after_the_replay() -> None:
    """An append may commit earlier records at once; their answers must not see a state that lags behind the log."""
    replicas, first, _, _ = three()
    order: list[str] = []
    first.put(("a", 1))
    first.answers.clear()

    def note(total: object) -> None:
        order.append(f"{total}, replayed {sorted(first.ledger.numbers)}")

    first.runtime.write(0, lambda _: PlannedWrite([("b", 1)], "b"), note)
    add, first.log.add = first.log.add, None  # type: ignore[method-assign, assignment]

    def add_and_commit(batch: bytes) -> int:
        base = add(batch)
        replicas.replicate()
        return base

    first.log.add = add_and_commit  # type: ignore[method-assign]
    first.runtime.write(0, lambda _: PlannedWrite([("c", 1)], "c"), note)
    assert order == ["b, replayed ['a', 'b', 'c']", "c, replayed ['a', 'b', 'c']"]


@LINGERS
def test_operation_that_cannot_be_replayed_fails_alone(linger_ms: int) -> None:
    """A defect of one operation: its partition is loaded again, so that requests never see half of its changes."""
    broker = alone(linger_ms=linger_ms)
    broker.put(("a", 1), answer="a")
    broker.ledger.spoiled = "bad"
    broker.put(("a", 2), ("bad", 2))
    broker.settle()
    broker.time.advance(20)
    broker.settle()
    assert ErrorCode.UNKNOWN_SERVER_ERROR in broker.answers
    assert len(broker.machines) == 2
    assert broker.machines[0].events[-1] == "unloaded"
    in_the_log = linger_ms == 0
    assert broker.ledger.numbers == ({"a": 2, "bad": 2} if in_the_log else {"a": 1})


def test_changes_that_memory_has_already_are_not_replayed() -> None:
    broker = alone()
    broker.put(("a", 1), replay=False)
    assert broker.answers == ["ok"]
    assert broker.ledger.numbers == {}
    broker.runtime.on_resign(0)
    broker.lead()
    assert broker.ledger.numbers == {"a": 1}


@LINGERS
def test_transactional_records_take_effect_with_the_marker(linger_ms: int) -> None:
    broker = alone(linger_ms=linger_ms)
    producer = TransactionalProducer(7, 3)
    broker.put(("a", 1), answer="a")
    broker.put(("a", 2), producer=producer, answer="in the transaction")
    assert broker.log.end == 2, "a transactional write does not linger, and earlier records go first"
    assert broker.ledger.state == ({"a": 1}, {7: {"a": 2}})
    done: list[KafkaError | None] = []
    broker.shard.end_transaction(producer, done.append, commit=True, coordinator_epoch=4)
    assert done == [None]
    assert broker.ledger.state == ({"a": 2}, {})
    headers = [header for header, _ in broker.log.decoded()]
    assert [(h.producer_id, h.producer_epoch, h.is_transactional, h.is_control) for h in headers] == [
        (-1, -1, False, False),
        (7, 3, True, False),
        (7, 3, True, True),
    ]


def test_marker_waits_for_its_commit_and_fails_like_a_write() -> None:
    replicas, first, second, _ = three()
    producer = TransactionalProducer(7, 3)
    first.put(("a", 2), producer=producer)
    first.log.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    done: list[KafkaError | None] = []
    first.shard.end_transaction(producer, done.append, commit=False, coordinator_epoch=0)
    assert [error and error.code for error in done] == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert first.ledger.pending == {7: {"a": 2}}
    first.log.fail = None
    first.shard.end_transaction(producer, done.append, commit=False, coordinator_epoch=0)
    assert first.ledger.pending == {}
    assert len(done) == 1
    replicas.replicate()
    assert done[1] is None
    second.lead()
    assert second.ledger.state == ({}, {})


def test_keys_find_their_partition_or_an_error() -> None:
    broker = alone()
    broker.runtime.write("any key", lambda _: PlannedWrite([("a", 1)], "ok"), broker.answers)
    broker.runtime.write(1, lambda _: PlannedWrite([("a", 1)], "ok"), broker.answers)
    broker.runtime.read(1, lambda _: "ok", broker.answers)
    assert broker.answers == ["ok", ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR]
    broker.runtime.on_resign(0)
    broker.put(("a", 1))
    assert broker.answers[3:] == [ErrorCode.NOT_COORDINATOR]


def test_timers_end_with_their_shard() -> None:
    broker = alone()
    timers = broker.shard.timers
    fired: list[str] = []
    timers.call_later(10, fired.append, "first")
    timers.schedule("key", 10, fired.append, "replaced")
    timers.schedule("key", 20, fired.append, "second")
    timers.schedule("gone", 20, fired.append, "cancelled")
    timers.cancel("gone")
    timers.cancel("never was")
    broker.time.advance(20)
    assert fired == ["first", "second"]
    timers.schedule("key", 10, fired.append, "never")
    timers.call_later(10, fired.append, "never")
    timers.call_soon(fired.append, "never")
    broker.runtime.on_resign(0)
    broker.time.advance(100)
    assert fired == ["first", "second"]


def test_writing_to_a_shard_that_is_closed_is_refused() -> None:
    broker = alone()
    shard = broker.shard
    broker.runtime.on_resign(0)
    assert shard.phase is Phase.CLOSED
    errors: list[KafkaError | None] = []
    assert not shard.write(PlannedWrite([("a", 1)], None), errors.append)
    shard.after_writes(errors.append)
    shard.end_transaction(TransactionalProducer(1, 0), errors.append, commit=True, coordinator_epoch=0)
    assert [error and error.code for error in errors] == [ErrorCode.NOT_COORDINATOR] * 3
    assert broker.log.end == 0
