"""Complete records: when they are written, and what happens before."""

from __future__ import annotations

import pytest

from kraft_node.broker.coordinators.transaction.completions import LINGER_MS, NAME_BYTES_MAX, RETRY_MS
from kraft_node.broker.coordinators.transaction.records import decode_values, name_in
from kraft_node.broker.coordinators.transaction.states import TransactionState
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import iter_headers, iter_records
from tests.unit.coordinators.transaction.world import World

A = ("a", 0)
NONE = ErrorCode.NONE
ENDED = ["Empty", "Ongoing", "PrepareCommit"]


@pytest.fixture
def world() -> World:
    return World().elect()


def batches(world: World) -> list[list[tuple[str, str]]]:
    """Transactional ids and states in each batch of the log."""
    return [
        [
            (name_in(record.key or b""), decode_values(record.value or b"").state.label)
            for record in iter_records(batch, header)
        ]
        for _, batch in world.logs.batches[0]
        for header in iter_headers(batch)
    ]


def states(world: World) -> list[str]:
    """The states of all records of the only transactional id."""
    return [state for batch in batches(world) for _, state in batch]


def committed(world: World, name: str = "t") -> tuple[int, int]:
    """A committed transaction with all of its markers."""
    producer = world.producer(name)
    assert world.add(producer, A, name=name) == {A: NONE}
    assert world.end(producer, commit=True, name=name, version=4) == NONE
    world.time.advance()
    world.links[1].answer()
    return producer


def test_a_complete_record_is_in_the_batch_of_the_next_transaction(world: World) -> None:
    producer = committed(world)
    assert states(world) == ENDED
    assert world.add(producer, A) == {A: NONE}
    assert batches(world)[-1] == [("t", "CompleteCommit"), ("t", "Ongoing")]
    assert world.end(producer, commit=False, version=4) == NONE
    world.time.advance(LINGER_MS)
    assert states(world)[-1] == "PrepareAbort", "the record of the first transaction is written once"


def test_a_complete_record_is_in_the_batch_of_the_next_producer(world: World) -> None:
    old = committed(world)
    assert world.producer() == (old[0], old[1] + 1)
    assert batches(world)[-1] == [("t", "CompleteCommit"), ("t", "Empty")]


def test_complete_records_of_unused_ids_are_one_batch_after_the_linger(world: World) -> None:
    committed(world, "t")
    committed(world, "u")
    world.time.advance(LINGER_MS - 5)
    assert states(world)[-1] == "PrepareCommit"
    world.time.advance(5)
    assert batches(world)[-1] == [("t", "CompleteCommit"), ("u", "CompleteCommit")]


def test_later_complete_records_have_their_own_linger(world: World) -> None:
    committed(world, "t")
    world.time.advance(LINGER_MS // 2)
    committed(world, "u")
    world.time.advance(LINGER_MS // 2)
    assert batches(world)[-1] == [("t", "CompleteCommit")]
    world.time.advance(LINGER_MS // 2)
    assert batches(world)[-1] == [("u", "CompleteCommit")]


def test_the_size_of_a_batch_of_complete_records_is_bounded(world: World) -> None:
    names = [letter * (NAME_BYTES_MAX // 2) for letter in "abc"]
    world.logs.max_bytes = NAME_BYTES_MAX + NAME_BYTES_MAX // 4
    for name in names:
        committed(world, name)
    world.time.advance(LINGER_MS + 1)
    assert [[name[0] for name, _ in batch] for batch in batches(world)[-2:]] == [["a", "b"], ["c"]]


def test_the_next_step_is_busy_until_both_records_are_committed(world: World) -> None:
    producer = committed(world)
    world.logs.hold = True
    assert world.add(producer, A) is None
    waiting = world.unanswered
    assert world.transaction().values.state is TransactionState.PREPARE_COMMIT
    assert world.add(producer, A) == {A: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert world.end(producer, commit=True, version=4) == ErrorCode.CONCURRENT_TRANSACTIONS
    world.time.advance(LINGER_MS)
    assert len(batches(world)) == len(ENDED) + 1
    world.logs.hold = False
    world.logs.commit()
    assert waiting.answers
    assert world.transaction().values.state is TransactionState.ONGOING


@pytest.mark.parametrize("at", ["markers", "completion"])
def test_the_next_end_waits_for_the_last_one(world: World, at: str) -> None:
    """An empty transaction was aborted while the Complete record of the last one was written (franz-go's
    GroupTransactSession): its producer was fenced for good."""
    producer_id, epoch = world.producer()
    assert world.add_for(("t", (producer_id, epoch), A, False)) == {"t": {A: NONE}}
    assert world.end((producer_id, epoch), commit=True) == (NONE, (producer_id, epoch + 1))
    if at == "completion":
        world.links[1].answer()
        world.logs.hold = True
        world.time.advance(LINGER_MS)
    assert world.end((producer_id, epoch + 1), commit=False)[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    if at == "completion":
        world.logs.hold = False
        world.logs.commit()
    else:
        world.links[1].answer()
    assert world.end((producer_id, epoch + 1), commit=False) == (NONE, (producer_id, epoch + 2))


def test_a_refused_step_leaves_the_complete_record_to_the_next(world: World) -> None:
    producer = committed(world)
    world.logs.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.add(producer, A) == {A: ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert world.coordinator.waiting_completions == 1
    world.time.advance(RETRY_MS)
    world.logs.fail = None
    assert world.add(producer, A) == {A: NONE}
    assert world.coordinator.waiting_completions == 0
    assert states(world) == [*ENDED, "CompleteCommit", "Ongoing"]
    world.time.advance(10 * RETRY_MS)
    assert states(world) == [*ENDED, "CompleteCommit", "Ongoing"]


def test_a_refused_step_without_another_request_is_followed_by_the_complete_record(world: World) -> None:
    producer = committed(world)
    world.logs.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    world.add(producer, A)
    world.logs.fail = None
    world.time.advance(RETRY_MS)
    assert states(world) == [*ENDED, "CompleteCommit"]


def test_a_step_that_is_committed_late_keeps_its_complete_record(world: World) -> None:
    producer = committed(world)
    world.logs.hold = True
    assert world.add(producer, A) is None
    waiting = world.unanswered
    world.time.advance(60_000)
    assert waiting.answers
    world.logs.hold = False
    world.logs.commit()
    assert world.transaction().values.state is TransactionState.ONGOING
    assert states(world) == [*ENDED, "CompleteCommit", "Ongoing"]


def test_requests_see_a_complete_transaction_before_the_record(world: World) -> None:
    producer = committed(world)
    assert world.describe("t")[0].transaction_state == "CompleteCommit"
    assert [one.transaction_state for one in world.list().transaction_states] == ["CompleteCommit"]
    assert world.add_for(("t", producer, A, True)) == {"t": {A: ErrorCode.TRANSACTION_ABORTABLE}}
    assert states(world) == ENDED


def test_a_request_that_writes_nothing_does_not_write_the_complete_record(world: World) -> None:
    producer = committed(world)
    assert world.end(producer, commit=True, version=4) == NONE
    assert world.end(producer, commit=False, version=4) == ErrorCode.INVALID_TXN_STATE
    assert states(world) == ENDED


def test_a_new_coordinator_writes_the_markers_again_before_the_next_transaction(world: World) -> None:
    producer = committed(world)
    world.coordinator.on_resign(0)
    successor = World(world.logs, world.time).elect(epoch=5)
    world.time.advance(10 * LINGER_MS)
    assert states(world) == ENDED, "the old coordinator writes nothing"
    assert successor.add(producer, A) == {A: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert successor.links[1].answer().markers[0].coordinator_epoch == 5
    assert successor.add(producer, A) == {A: NONE}
    assert states(successor) == [*ENDED, "CompleteCommit", "Ongoing"]
