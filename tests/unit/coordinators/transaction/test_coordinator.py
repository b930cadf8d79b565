"""The transaction coordinator through its requests: one broker, logs in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraft_node.broker.coordinators.transaction.completions import LINGER_MS
from kraft_node.broker.coordinators.transaction.records import decode_values, name_in
from kraft_node.broker.coordinators.transaction.states import EPOCH_MAX, TransactionState
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import iter_headers, iter_records
from tests.unit.coordinators.transaction.world import FIRST_ID, OFFSETS, World

A, A1, B = ("a", 0), ("a", 1), ("b", 0)
NONE = ErrorCode.NONE


@pytest.fixture
def world() -> World:
    return World().elect()


def stored(world: World) -> list[tuple[str, str]]:
    """Transactional ids and states of all records, in order."""
    found = []
    for _, batch in world.logs.batches.get(0, []):
        for header in iter_headers(batch):
            for record in iter_records(batch, header):
                name = name_in(record.key or b"")
                values = None if record.value is None else decode_values(record.value)
                found.append((name, "tombstone" if values is None else values.state.label))
    return found


def open_transaction(world: World, *partitions: tuple[str, int], name: str = "t") -> tuple[int, int]:
    producer = world.producer(name)
    assert set(world.add(producer, *(partitions or (A,)), name=name).values()) == {NONE}
    return producer


# -- the way of a transaction


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_with_markers_and_a_complete_record(world: World, commit: bool) -> None:
    producer = open_transaction(world, A, A1, B)
    assert world.end(producer, commit=commit, version=4) == NONE
    first, second = world.links[1].answer(), world.links[2].answer()
    world.time.advance(LINGER_MS)
    assert world.transaction().values.state is (
        TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
    )
    end = "Commit" if commit else "Abort"
    assert [state for _, state in stored(world)] == ["Empty", "Ongoing", f"Prepare{end}", f"Complete{end}"]
    (marker,) = first.markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (*producer, commit)
    assert (marker.coordinator_epoch, marker.transaction_version) == (3, 0)
    assert {(topic.name, *topic.partition_indexes) for topic in marker.topics} == {A, B}
    assert [(topic.name, topic.partition_indexes) for topic in second.markers[0].topics] == [("a", [1])]


def test_with_version_2_each_end_bumps_the_epoch(world: World) -> None:
    producer_id, epoch = world.producer()
    for _ in range(2):
        codes = world.add_for(("t", (producer_id, epoch), A, False))
        assert codes == {"t": {A: NONE}}
        assert world.end((producer_id, epoch), commit=True) == (NONE, (producer_id, epoch + 1))
        marker = world.links[1].answer().markers[0]
        assert (marker.producer_epoch, marker.transaction_version) == (epoch + 1, 2)
        world.time.advance()
        epoch += 1
    assert world.end((producer_id, epoch - 1), commit=True) == (NONE, (producer_id, epoch))
    assert world.end((producer_id, epoch), commit=True)[0] == ErrorCode.INVALID_TXN_STATE
    assert world.end((producer_id, epoch), commit=False) == (NONE, (producer_id, epoch + 1))
    world.time.advance(LINGER_MS)
    assert world.transaction().values.state is TransactionState.COMPLETE_ABORT
    assert not world.links[1].asked


def test_nothing_is_answered_before_the_commit(world: World) -> None:
    producer = world.producer()
    world.logs.hold = True
    assert world.add(producer, A) is None
    waiting = world.unanswered
    assert world.transaction().values.state is TransactionState.EMPTY
    assert world.add(producer, B) == {B: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert world.end(producer, commit=True)[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    world.logs.commit()
    assert waiting.answers
    assert world.transaction().values.state is TransactionState.ONGOING


def test_a_refused_append_leaves_everything_as_it_was(world: World) -> None:
    producer = world.producer()
    world.logs.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.add(producer, A) == {A: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    world.logs.fail = ErrorCode.KAFKA_STORAGE_ERROR
    assert world.add(producer, A) == {A: ErrorCode.NOT_COORDINATOR}
    world.logs.fail = None
    assert world.add(producer, A) == {A: NONE}


def test_requests_at_another_broker_and_during_a_load() -> None:
    world = World()
    assert world.init().error_code == ErrorCode.NOT_COORDINATOR
    assert world.describe("t")[0].error_code == ErrorCode.NOT_COORDINATOR
    asks: list[Callable[[], Any]] = [world.init, world.list, lambda: world.describe("t")[0]]
    for ask in asks:
        world.coordinator.on_resign(0)
        world.coordinator.on_leader(0, 1)
        assert ask().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# -- InitProducerId


def test_an_idempotent_producer_gets_an_unused_id_and_nothing_is_stored(world: World) -> None:
    for expected in range(FIRST_ID, FIRST_ID + 3):
        found = world.init(None)
        assert (found.error_code, found.producer_id, found.producer_epoch) == (NONE, expected, 0)
    assert not stored(world)


@pytest.mark.parametrize(
    ("name", "timeout_ms", "producer", "code"),
    [
        ("", 60_000, (-1, -1), ErrorCode.INVALID_REQUEST),
        ("t", 60_000, (5, -1), ErrorCode.INVALID_REQUEST),
        (None, 60_000, (-1, 5), ErrorCode.INVALID_REQUEST),
        ("t", 0, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", -1, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", 900_001, (-1, -1), ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_a_refused_init_stores_nothing(
    world: World, name: str | None, timeout_ms: int, producer: object, code: ErrorCode
) -> None:
    found = world.init(name, timeout_ms=timeout_ms, producer=producer)
    assert (found.error_code, found.producer_id, found.producer_epoch) == (code, -1, -1)
    assert not stored(world)


def test_a_second_producer_fences_the_first(world: World) -> None:
    old = world.producer()
    new = world.producer()
    assert new == (old[0], old[1] + 1)
    assert world.add(old, A) == {A: ErrorCode.PRODUCER_FENCED}
    assert world.add(old, A, version=1) == {A: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert world.end(old, commit=True, version=4) == ErrorCode.PRODUCER_FENCED
    assert world.end(old, commit=True, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.add_offsets(old, version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.init(producer=(old[0] + 1, 0)).error_code == ErrorCode.PRODUCER_FENCED
    assert world.init(producer=(old[0] + 1, 0), version=3).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", [0, 2])
def test_init_during_a_transaction_aborts_it_first(world: World, version: int) -> None:
    world.version = version
    old = open_transaction(world)
    assert world.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert world.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    marker = world.links[1].answer().markers[0]
    assert (marker.producer_epoch, marker.transaction_result) == (old[1] + 1, False)
    world.time.advance()
    assert world.producer() == (old[0], old[1] + 2)


def test_a_repeated_init_of_a_producer_gets_the_same_epoch(world: World) -> None:
    producer = world.producer()
    for _ in range(2):
        found = world.init(producer=producer)
        assert (found.error_code, found.producer_epoch) == (NONE, 1)


def test_an_exhausted_id_is_replaced(world: World) -> None:
    producer_id, _ = world.producer()
    world.transaction().values = world.transaction().values._replace(epoch=EPOCH_MAX - 1)
    assert world.producer() == (producer_id + 1, 0)


def test_an_end_at_the_last_epoch_gives_the_client_a_new_id(world: World) -> None:
    producer_id, _ = world.producer()
    last = (producer_id, EPOCH_MAX - 1)
    world.transaction().values = world.transaction().values._replace(epoch=last[1])
    world.add_for(("t", last, A, False))
    assert world.end(last, commit=True) == (NONE, (producer_id + 1, 0))
    marker = world.links[1].answer().markers[0]
    assert (marker.producer_id, marker.producer_epoch) == (producer_id, EPOCH_MAX)
    world.time.advance()
    assert world.end(last, commit=True) == (NONE, (producer_id + 1, 0))
    assert world.add_for(("t", (producer_id + 1, 0), A, False)) == {"t": {A: NONE}}


# -- AddPartitionsToTxn


def test_refused_additions_leave_the_transaction_empty(world: World) -> None:
    producer = world.producer()
    assert world.add(producer, A, ("nope", 0)) == {
        A: ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("nope", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert world.add(producer, (OFFSETS, 0)) == {(OFFSETS, 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert world.add((producer[0] + 1, 0), A) == {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert world.add(producer, A, name="unknown") == {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert world.add(producer, A, name="") == {A: ErrorCode.INVALID_REQUEST}
    assert world.transaction().values.state is TransactionState.EMPTY


def test_a_broker_adds_and_verifies_for_several_transactions(world: World) -> None:
    t, u = world.producer("t"), world.producer("u")
    found = world.add_for(("t", t, (OFFSETS, 0), False), ("u", u, A, True), ("w", u, A, True), version=4)
    assert found == {
        "t": {(OFFSETS, 0): NONE},
        "u": {A: ErrorCode.TRANSACTION_ABORTABLE},
        "w": {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING},
    }
    assert world.add_for(("t", t, (OFFSETS, 0), True), ("u", (u[0], 9), A, True)) == {
        "t": {(OFFSETS, 0): NONE},
        "u": {A: ErrorCode.PRODUCER_FENCED},
    }
    assert world.transaction("t").values.client_version == 2


def test_offsets_are_added_as_a_partition_of_their_topic(world: World) -> None:
    producer = world.producer()
    assert world.add_offsets(producer) == NONE
    assert world.transaction().values.partitions == {(OFFSETS, 0)}


def test_offsets_wait_for_their_topic(world: World) -> None:
    producer = world.producer()
    del world.leaders[OFFSETS, 0]
    assert world.add_offsets(producer) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.created == [OFFSETS]
    assert world.transaction().values.state is TransactionState.EMPTY


# -- failover


def test_a_new_coordinator_completes_decided_transactions(world: World) -> None:
    producer = open_transaction(world, A, A1)
    world.end(producer, commit=True, version=4)
    world.time.advance()
    old = world.links[1].asked.pop()
    world.coordinator.on_resign(0)
    successor = World(world.logs, world.time).elect(epoch=5)
    successor.time.advance()
    assert successor.links[1].answer().markers[0].coordinator_epoch == 5
    old[1](ConnectionResetError())
    world.time.advance(10_000)
    assert not world.links[1].asked
    successor.links[2].answer()
    successor.time.advance(LINGER_MS)
    assert successor.transaction().values.state is TransactionState.COMPLETE_COMMIT
    assert [state for _, state in stored(successor)].count("CompleteCommit") == 1


def test_a_result_that_is_not_committed_is_not_sent_after_a_load(world: World) -> None:
    producer = open_transaction(world)
    world.logs.hold = True
    assert world.end(producer, commit=True) is None
    world.time.advance()
    world.coordinator.on_resign(0)
    successor = World(world.logs, world.time).elect(epoch=5)
    successor.time.advance(60_000)
    assert not successor.links[1].asked
    assert successor.init().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    successor.logs.commit()
    successor.time.advance()
    assert successor.links[1].asked
    assert successor.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_loaded_id_equals_the_stored_id(world: World) -> None:
    open_transaction(world, A, B)
    before = world.transaction().values
    world.coordinator.on_resign(0)
    world.elect(epoch=4)
    assert world.transaction().values == before._replace(last_epoch=-1)


@pytest.mark.parametrize("code", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE])
def test_a_complete_record_is_written_until_it_is_stored(world: World, code: ErrorCode) -> None:
    producer = open_transaction(world)
    world.end(producer, commit=True, version=4)
    world.time.advance()
    world.logs.fail = code
    world.links[1].answer()
    world.time.advance(5_000)
    assert world.coordinator.waiting_completions == 1
    assert world.end(producer, commit=True, version=4) == NONE, "the result is decided, and has its markers"
    world.logs.fail = None
    world.time.advance(2_000)
    assert world.coordinator.waiting_completions == 0
    assert world.end(producer, commit=True, version=4) == NONE


def test_an_ending_is_resumed_by_a_load_if_the_log_may_have_its_complete_record(world: World) -> None:
    producer = open_transaction(world)
    world.end(producer, commit=True, version=4)
    world.time.advance()
    world.logs.fail_append = ErrorCode.KAFKA_STORAGE_ERROR
    world.links[1].answer()
    world.time.advance(LINGER_MS)
    world.logs.fail_append = None
    world.time.advance()
    assert world.coordinator.waiting_completions == 0
    world.links[1].answer()
    assert world.end(producer, commit=True, version=4) == NONE


def test_completions_of_a_partition_that_moves_away_no_longer_wait(world: World) -> None:
    world.end(open_transaction(world), commit=True, version=4)
    world.time.advance()
    world.logs.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    world.links[1].answer()
    world.time.advance(LINGER_MS)
    assert world.coordinator.waiting_completions == 1
    world.coordinator.on_resign(0)
    assert world.coordinator.waiting_completions == 0


# -- time


@pytest.mark.parametrize("version", [0, 2])
def test_an_old_transaction_is_aborted(world: World, version: int) -> None:
    world.version = version
    producer = open_transaction(world)
    world.time.advance(60_000)
    assert world.transaction().values.state is TransactionState.ONGOING
    world.time.advance(10_001)
    marker = world.links[1].answer().markers[0]
    assert (marker.transaction_result, marker.producer_epoch) == (False, producer[1] + 1)
    world.time.advance(LINGER_MS)
    assert world.transaction().values.state is TransactionState.COMPLETE_ABORT
    assert world.end(producer, commit=True, version=4) == ErrorCode.PRODUCER_FENCED


def test_an_unused_id_is_forgotten() -> None:
    world = World(id_expiration_ms=5_000_000).elect()
    producer = world.producer("old")
    world.time.advance(3_000_000)
    world.producer("young")
    open_transaction(world, name="open")
    world.time.advance(5_000_000)
    assert [state.transactional_id for state in world.list().transaction_states] == ["young", "open"]
    assert stored(world)[-1] == ("old", "tombstone") or ("old", "tombstone") in stored(world)
    assert world.add(producer, A, name="old") == {A: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert world.describe("old")[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


# -- tools


def test_transactions_are_described_and_listed_by_filters(world: World) -> None:
    producer = open_transaction(world, B, A1, A)
    world.producer("u")
    world.time.advance(1_000)
    found, unknown, empty = world.describe("t", "nope", "")
    assert (found.error_code, found.transaction_state, found.transaction_timeout_ms) == (NONE, "Ongoing", 60_000)
    assert (found.producer_id, found.producer_epoch) == producer
    assert found.transaction_start_time_ms == world.time.wall_ms() - 1_000
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("a", [0, 1]), ("b", [0])]
    assert (unknown.error_code, empty.error_code) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST)

    def listed(**filters: Any) -> list[str]:
        return [state.transactional_id for state in world.list(**filters).transaction_states]

    assert listed() == ["t", "u"]
    assert listed(state_filters=["Ongoing", "Empty"]) == ["t", "u"]
    assert listed(state_filters=["Ongoing"]) == ["t"]
    assert listed(state_filters=["Odd"]) == []
    assert world.list(state_filters=["Odd", "Dead"]).unknown_state_filters == ["Odd"]
    assert listed(producer_id_filters=[producer[0]]) == ["t"]
    assert listed(duration_filter=999) == ["t", "u"]
    assert listed(duration_filter=1_000) == ["u"]


def test_loaded_state_affects_no_answer_before_it_is_committed(world: World) -> None:
    """A second failover may still lose the record: then nobody would end the transaction of a partition in it."""
    producer = world.producer()
    world.logs.hold = True
    assert world.add(producer, A) is None
    successor = World(world.logs, world.time).elect(4)
    assert successor.add(producer, A) == {A: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
    for verifies in (True, False):
        assert successor.add_for(("t", producer, A, verifies)) == {"t": {A: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}}
    assert successor.end(producer, commit=True)[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert successor.init().error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.logs.commit()
    world.time.advance()
    assert successor.add(producer, A) == {A: NONE}
    assert successor.add_for(("t", producer, A, True)) == {"t": {A: NONE}}


@pytest.mark.parametrize("commit", [True, False])
def test_result_that_is_committed_late_counts(world: World, commit: bool) -> None:
    producer = open_transaction(world, A)
    world.logs.hold = True
    assert world.end(producer, commit=commit, version=4) is None
    waiting = world.unanswered
    world.time.advance(60_000)
    assert waiting.answers[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.time.advance(60_000)
    for other in (True, False):
        assert world.end(producer, commit=other, version=4) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert not world.links[1].asked
    world.logs.hold = False
    world.logs.commit()
    world.time.advance()
    (marker,) = world.links[1].answer().markers
    assert marker.transaction_result is commit
    world.time.advance()
    assert world.end(producer, commit=commit, version=4) == NONE
    assert world.end(producer, commit=not commit, version=4) == ErrorCode.INVALID_TXN_STATE
    assert len(waiting.answers) == 1


def test_late_step_ends_with_the_leadership(world: World) -> None:
    producer = world.producer()
    world.logs.hold = True
    assert world.add(producer, A) is None
    world.time.advance(61_000)
    world.coordinator.on_resign(0)
    world.logs.commit()
    world.elect(epoch=4)
    assert world.transaction().values.state is TransactionState.ONGOING
    assert world.transaction().pending is None


def test_an_id_is_gone_even_if_its_removal_is_committed_late(world: World) -> None:
    producer = world.producer()
    world.logs.hold = True
    world.time.advance(world.config.id_expiration_ms + world.config.removal_interval_ms)
    world.time.advance(60_000)
    assert world.add(producer, A) == {A: ErrorCode.CONCURRENT_TRANSACTIONS}
    world.logs.hold = False
    world.logs.commit()
    world.time.advance()
    assert world.transaction() is None
    assert [state for _, state in stored(world)] == ["Empty", "tombstone"]
