"""Every state of a transactional id, and what each request does in it: Apache Kafka 4.3.1's tables."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kraft_node.broker.coordinators.transaction import rules
from kraft_node.broker.coordinators.transaction.rules import NEEDS_ID, ProducerEpoch, Settled
from kraft_node.broker.coordinators.transaction.states import (
    EPOCH_MAX,
    LABELS,
    NEVER,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREDECESSORS,
    Transaction,
    TransactionState,
    Values,
)
from kraft_protocol.errors import ErrorCode, KafkaError

NOW = 1_000_000
ID, OLD_ID, FRESH_ID = 40, 39, 41
EPOCH = 7
EXHAUSTED = EPOCH_MAX - 1
A, B = ("a", 0), ("b", 1)
CURRENT_PRODUCER = ProducerEpoch(ID, EPOCH)

EMPTY, ONGOING, DEAD = TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.DEAD
PC, PA, CC, CA = (
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
STORED = (EMPTY, ONGOING, PC, PA, CC, CA)

CONC = ErrorCode.CONCURRENT_TRANSACTIONS
PF = ErrorCode.PRODUCER_FENCED
IPM = ErrorCode.INVALID_PRODUCER_ID_MAPPING
ITS = ErrorCode.INVALID_TXN_STATE


def transaction(state: TransactionState, *, pending: TransactionState | None = None, **changes: Any) -> Transaction:
    partitions = frozenset((A,)) if state in (ONGOING, PC, PA) else frozenset()
    values = Values(ID, EPOCH, 60_000, state, partitions, start_ms=-1 if state is EMPTY else 5, update_ms=6)
    made = Transaction("t", values._replace(previous_producer_id=ID)._replace(**changes))
    made.pending = pending
    return made


def code(function: Any, *args: Any, **named: Any) -> Any:
    """The refusal as a code, else the step."""
    try:
        return function(*args, **named)
    except KafkaError as error:
        return error.code


# -- states


def test_the_numbers_and_names_of_states_are_kafkas() -> None:
    assert [LABELS[TransactionState(number)] for number in range(8)] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


@pytest.mark.parametrize(("before", "after"), list(itertools.product(STORED, TransactionState)))
def test_a_step_is_begun_only_from_a_predecessor(before: TransactionState, after: TransactionState) -> None:
    one = transaction(before)
    target = one.values._replace(state=after)
    if before in PREDECESSORS[after]:
        one.begin(target)
        assert one.pending is after
        assert one.values.state is before
    else:
        with pytest.raises(AssertionError, match="law: t cannot go"):
            one.begin(target)


def test_a_second_write_cannot_begin_before_the_first_has_ended() -> None:
    one = transaction(EMPTY, pending=ONGOING)
    with pytest.raises(AssertionError, match="law: t has one write at a time"):
        one.begin(one.values)
    one.cancel()
    one.begin(one.values)
    one.commit(one.values)
    assert one.pending is None


# -- InitProducerId


def initialize(one: Transaction, expected: ProducerEpoch | None = None, *, version: int = 2, **named: Any) -> Any:
    return code(rules.initialize, one, 9_000, expected, now_ms=NOW, version=version, **named)


def test_a_new_transactional_id_begins_with_epoch_0() -> None:
    one = Transaction("t", rules.created(ID, 9_000, NOW - 1))
    step = initialize(one)
    assert step == Values(ID, 0, 9_000, EMPTY, update_ms=NOW, previous_producer_id=ID)
    assert initialize(one, ProducerEpoch(3, 4)) == step  # of a producer whose id was forgotten


@pytest.mark.parametrize("state", [EMPTY, CC, CA])
def test_init_bumps_the_epoch_of_a_resting_id(state: TransactionState) -> None:
    step = initialize(transaction(state, last_epoch=3))
    assert step == Values(ID, EPOCH + 1, 9_000, EMPTY, update_ms=NOW, previous_producer_id=ID)


@pytest.mark.parametrize("state", [EMPTY, CC, CA])
@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (ProducerEpoch(ID, EPOCH), (EPOCH + 1, EPOCH)),
        (ProducerEpoch(ID, EPOCH - 1), (EPOCH, EPOCH - 1)),
        (ProducerEpoch(ID, EPOCH - 2), PF),
        (ProducerEpoch(ID, EPOCH + 1), PF),
        (ProducerEpoch(OLD_ID, EPOCH), PF),
        (ProducerEpoch(OLD_ID, EXHAUSTED), PF),
    ],
)
def test_init_of_a_producer_that_goes_on(state: TransactionState, expected: ProducerEpoch, found: Any) -> None:
    step = initialize(transaction(state, last_epoch=EPOCH - 1), expected)
    assert (step if step is PF else (step.epoch, step.last_epoch)) == found


def test_a_repeated_init_after_a_change_of_ids_gets_the_same_answer() -> None:
    one = transaction(EMPTY, previous_producer_id=OLD_ID, epoch=0, last_epoch=EXHAUSTED)
    step = initialize(one, ProducerEpoch(OLD_ID, EXHAUSTED))
    assert (step.producer_id, step.epoch, step.last_epoch) == (ID, 0, EXHAUSTED)


@pytest.mark.parametrize("state", [EMPTY, CC, CA])
@pytest.mark.parametrize("epoch", [EXHAUSTED, EPOCH_MAX])
def test_init_replaces_an_exhausted_producer_id(state: TransactionState, epoch: int) -> None:
    one = transaction(state, epoch=epoch)
    assert initialize(one) is NEEDS_ID
    step = initialize(one, fresh_id=FRESH_ID)
    assert (step.producer_id, step.epoch, step.last_epoch, step.previous_producer_id) == (FRESH_ID, 0, NO_EPOCH, ID)
    step = initialize(one, ProducerEpoch(ID, epoch), fresh_id=FRESH_ID)
    assert (step.producer_id, step.epoch, step.last_epoch) == (FRESH_ID, 0, epoch)


@pytest.mark.parametrize("state", STORED)
@pytest.mark.parametrize("pending", [EMPTY, ONGOING, PC, PA, CC, CA, DEAD])
def test_init_during_a_write_gets_concurrent_transactions(state: TransactionState, pending: TransactionState) -> None:
    assert initialize(transaction(state, pending=pending), ProducerEpoch(OLD_ID, 1)) is CONC


@pytest.mark.parametrize("state", [PC, PA])
def test_init_during_the_end_of_a_transaction(state: TransactionState) -> None:
    assert initialize(transaction(state)) is CONC
    assert initialize(transaction(state), ProducerEpoch(ID, 1)) is CONC
    assert initialize(transaction(state), ProducerEpoch(OLD_ID, EPOCH)) is PF


@pytest.mark.parametrize("version", [0, 1, 2])
def test_init_fences_the_producer_of_an_open_transaction(version: int) -> None:
    one = transaction(ONGOING)
    step = initialize(one, version=version)
    assert (step.state, step.epoch, step.partitions, step.timeout_ms) == (PA, EPOCH + 1, {A}, 60_000)
    assert step.client_version == (2 if version == 2 else 0)
    assert step.last_epoch == (EPOCH if version == 2 else NO_EPOCH)
    assert one.values.epoch == (EPOCH if version == 2 else EPOCH + 1)


def test_a_fence_that_failed_does_not_bump_twice() -> None:
    one = transaction(ONGOING)
    for _ in range(2):
        step = initialize(one, version=1)
        assert step.epoch == EPOCH + 1
        one.begin(step)
        one.cancel()
        assert one.fence_failed
    one.begin(initialize(one, version=1))
    one.commit(step)
    assert (one.values.epoch, one.fence_failed) == (EPOCH + 1, False)


def test_a_fence_after_a_downgrade_bumps_although_a_fence_with_bumps_has_failed() -> None:
    """With epoch bumps nothing is bumped in memory, so nothing is left to reuse: the producer would not be fenced."""
    one = transaction(ONGOING)
    step = rules.initialize(one, 60_000, None, now_ms=NOW, version=2)
    assert isinstance(step, Values)
    one.begin(step)
    one.cancel()
    step = rules.initialize(one, 60_000, None, now_ms=NOW, version=1)
    assert isinstance(step, Values)
    assert step.epoch == EPOCH + 1


def test_a_fence_of_the_last_epoch_takes_a_new_producer_id() -> None:
    one = transaction(ONGOING, epoch=EXHAUSTED)
    assert initialize(one) is NEEDS_ID
    step = initialize(one, fresh_id=FRESH_ID)
    assert (step.producer_id, step.epoch, step.next_producer_id) == (ID, EPOCH_MAX, FRESH_ID)
    done = rules.completed(step, NOW + 1)
    assert (done.producer_id, done.epoch, done.previous_producer_id) == (FRESH_ID, 0, ID)
    one = transaction(ONGOING, epoch=EXHAUSTED)
    step = initialize(one, version=1)
    assert (step.epoch, rules.completed(step, NOW).epoch) == (EPOCH_MAX, EPOCH_MAX)


# -- AddPartitionsToTxn


def add(
    one: Transaction, producer: ProducerEpoch = CURRENT_PRODUCER, *, partitions: Any = (B,), version: int = 2
) -> Any:
    return code(rules.add_partitions, one, producer, frozenset(partitions), client_version=version, now_ms=NOW)


@pytest.mark.parametrize("state", [EMPTY, CC, CA])
@pytest.mark.parametrize("version", [0, 2])
def test_adding_begins_a_transaction(state: TransactionState, version: int) -> None:
    step = add(transaction(state), version=version)
    assert (step.state, step.partitions, step.start_ms, step.client_version) == (ONGOING, {B}, NOW, version)
    assert (step.producer_id, step.epoch, step.timeout_ms) == (ID, EPOCH, 60_000)


def test_adding_to_an_open_transaction_keeps_its_start() -> None:
    step = add(transaction(ONGOING))
    assert (step.state, step.partitions, step.start_ms, step.update_ms) == (ONGOING, {A, B}, 5, NOW)


def test_adding_present_partitions_writes_nothing() -> None:
    assert add(transaction(ONGOING), partitions=(A,)) == Settled(ID, EPOCH)
    assert isinstance(add(transaction(EMPTY), partitions=()), Values)


@pytest.mark.parametrize("state", STORED)
def test_additions_by_another_producer_or_during_an_end_are_refused(state: TransactionState) -> None:
    assert add(transaction(state, pending=CC), ProducerEpoch(OLD_ID, 1)) is CONC
    assert add(transaction(state), ProducerEpoch(OLD_ID, EPOCH)) is IPM
    assert add(transaction(state), ProducerEpoch(ID, EPOCH - 1)) is PF
    assert add(transaction(state), ProducerEpoch(ID, EPOCH + 1)) is PF
    if state in (PC, PA):
        assert add(transaction(state)) is CONC


def test_verification_names_the_missing_partitions() -> None:
    def missing(one: Transaction, producer: ProducerEpoch = CURRENT_PRODUCER) -> Any:
        return code(rules.missing_partitions, one, producer, frozenset((A, B)))

    assert missing(transaction(ONGOING, pending=ONGOING)) == {B}
    assert missing(transaction(EMPTY)) == {A, B}
    assert missing(transaction(PC, pending=CC)) is CONC
    assert missing(transaction(ONGOING), ProducerEpoch(OLD_ID, EPOCH)) is IPM
    assert missing(transaction(ONGOING), ProducerEpoch(ID, EPOCH + 1)) is PF


# -- EndTxn


def end(one: Transaction, *, commit: bool, producer: ProducerEpoch = CURRENT_PRODUCER) -> Any:
    return code(rules.end, one, producer, commit=commit, now_ms=NOW)


@pytest.mark.parametrize(
    ("state", "commit", "found"),
    [
        (EMPTY, True, ITS),
        (EMPTY, False, ITS),
        (ONGOING, True, PC),
        (ONGOING, False, PA),
        (PC, True, CONC),
        (PC, False, ITS),
        (PA, True, ITS),
        (PA, False, CONC),
        (CC, True, Settled(NO_PRODUCER_ID, NO_EPOCH)),
        (CC, False, ITS),
        (CA, True, ITS),
        (CA, False, Settled(NO_PRODUCER_ID, NO_EPOCH)),
    ],
)
def test_end_of_a_client_that_keeps_its_epoch(state: TransactionState, commit: bool, found: Any) -> None:
    step = end(transaction(state), commit=commit)
    assert (step.state if isinstance(step, Values) else step) == found
    if isinstance(step, Values):
        assert (step.epoch, step.start_ms, step.partitions, step.client_version) == (EPOCH, 5, frozenset((A,)), 0)
        assert (
            rules.completed(step, NOW + 1)._replace(update_ms=NOW, state=step.state, partitions=step.partitions) == step
        )
    assert end(transaction(state), commit=commit, producer=ProducerEpoch(OLD_ID, EPOCH)) is IPM
    assert end(transaction(state), commit=commit, producer=ProducerEpoch(ID, EPOCH - 1)) is PF
    assert end(transaction(state), commit=commit, producer=ProducerEpoch(ID, EPOCH + 1)) is PF
    assert end(transaction(state, pending=CC), commit=commit) is CONC


def end_with_bump(one: Transaction, *, commit: bool, epoch: int, producer_id: int = ID, **named: Any) -> Any:
    return code(rules.end_with_bump, one, ProducerEpoch(producer_id, epoch), commit=commit, now_ms=NOW, **named)


RETRY, CURRENT, NEWER = EPOCH - 1, EPOCH, EPOCH + 1
SAME = Settled(ID, EPOCH)


@pytest.mark.parametrize(
    ("state", "commit", "epoch", "found"),
    [
        (EMPTY, False, RETRY, PF),
        (EMPTY, False, CURRENT, PA),
        (EMPTY, True, RETRY, PF),
        (EMPTY, True, CURRENT, ITS),
        (ONGOING, False, RETRY, PF),
        (ONGOING, False, CURRENT, PA),
        (ONGOING, True, RETRY, PF),
        (ONGOING, True, CURRENT, PC),
        (PC, True, RETRY, CONC),
        (PC, True, CURRENT, CONC),
        (PC, False, RETRY, ITS),
        (PC, False, CURRENT, CONC),
        (PA, True, RETRY, ITS),
        (PA, True, CURRENT, CONC),
        (PA, False, RETRY, CONC),
        (PA, False, CURRENT, CONC),
        (CC, True, RETRY, SAME),
        (CC, True, CURRENT, ITS),
        (CC, False, RETRY, ITS),
        (CC, False, CURRENT, PA),
        (CA, True, RETRY, ITS),
        (CA, True, CURRENT, ITS),
        (CA, False, RETRY, SAME),
        (CA, False, CURRENT, PA),
    ],
)
def test_ending_a_transaction_bumps_the_epoch_of_newer_clients(
    state: TransactionState, commit: bool, epoch: int, found: Any
) -> None:
    step = end_with_bump(transaction(state, client_version=2), commit=commit, epoch=epoch)
    assert (step.state if isinstance(step, Values) else step) == found
    assert end_with_bump(transaction(state, client_version=2), commit=commit, epoch=NEWER) is PF
    assert end_with_bump(transaction(state, client_version=2), commit=commit, epoch=epoch, producer_id=OLD_ID) is IPM
    if isinstance(step, Values):
        assert (step.epoch, step.last_epoch, step.client_version) == (EPOCH + 1, EPOCH, 2)
        assert step.start_ms == (5 if state is ONGOING else NOW)
        assert rules.answered(step) == ProducerEpoch(ID, EPOCH + 1)
        busy = transaction(state, pending=CC, client_version=2)
        assert end_with_bump(busy, commit=commit, epoch=epoch) is CONC


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("state", [CC, CA])
@pytest.mark.parametrize("client_version", [0, 1])
def test_a_zombie_does_not_get_the_epoch_of_a_successor_that_keeps_its_epoch(
    state: TransactionState, commit: bool, client_version: int
) -> None:
    """The successor's InitProducerId bumped the epoch, and the end of its transaction did not."""
    one = transaction(state, client_version=client_version)
    assert end_with_bump(one, commit=commit, epoch=RETRY) is PF
    replaced = transaction(state, client_version=client_version, producer_id=FRESH_ID, epoch=0)
    assert end_with_bump(replaced, commit=commit, epoch=EXHAUSTED) is IPM


def test_an_end_at_the_last_epoch_changes_the_producer_id() -> None:
    one = transaction(ONGOING, epoch=EXHAUSTED)
    assert end_with_bump(one, commit=True, epoch=EXHAUSTED) is NEEDS_ID
    step = end_with_bump(one, commit=True, epoch=EXHAUSTED, fresh_id=FRESH_ID)
    assert (step.producer_id, step.epoch, step.next_producer_id) == (ID, EPOCH_MAX, FRESH_ID)
    assert rules.answered(step) == ProducerEpoch(FRESH_ID, 0)
    one.begin(step)
    one.commit(step)
    assert end_with_bump(one, commit=True, epoch=EXHAUSTED) is CONC
    assert end_with_bump(one, commit=False, epoch=0, producer_id=FRESH_ID) is CONC, "the next end, too early"
    assert end_with_bump(one, commit=False, epoch=1, producer_id=FRESH_ID) is IPM
    done = rules.completed(step, NOW + 1)
    assert (done.producer_id, done.epoch, done.previous_producer_id, done.next_producer_id) == (FRESH_ID, 0, ID, -1)
    one.begin(done)
    one.commit(done)
    assert end_with_bump(one, commit=True, epoch=EXHAUSTED) == Settled(FRESH_ID, 0)
    assert end_with_bump(one, commit=False, epoch=EXHAUSTED) is ITS


@pytest.mark.parametrize(("before", "after"), [(PC, CC), (PA, CA)])
def test_a_complete_transaction_has_no_partitions(before: TransactionState, after: TransactionState) -> None:
    done = rules.completed(transaction(before, client_version=2).values, NOW)
    assert (done.state, done.partitions, done.update_ms, done.start_ms, done.epoch) == (
        after,
        frozenset(),
        NOW,
        5,
        EPOCH,
    )


# -- time


def test_a_transaction_from_the_future_times_out_at_once() -> None:
    """A clock that had jumped ahead stamped the start. The transaction stayed open until that time, and readers of
    committed records waited (simulated transactions, seed 73010)."""
    one = transaction(ONGOING)  # begins at 5, may take 60,000 ms
    assert not rules.is_timed_out(one, 5 - 60_000)
    assert rules.is_timed_out(one, 5 - 60_001)


def test_an_open_transaction_times_out_after_its_own_time_out() -> None:
    one = transaction(ONGOING)
    assert not rules.is_timed_out(one, 60_005)
    assert rules.is_timed_out(one, 60_006)
    assert not rules.is_timed_out(transaction(ONGOING, pending=ONGOING), NOW)
    assert not any(rules.is_timed_out(transaction(state), NOW) for state in STORED if state is not ONGOING)


def test_a_transaction_that_never_times_out_is_older_than_its_number_of_milliseconds() -> None:
    """The number stands for no time-out (KIP-939): a prepared transaction was aborted after 25 days."""
    month_ms = 30 * 86_400_000
    assert not rules.is_timed_out(transaction(ONGOING, timeout_ms=NEVER), month_ms)
    assert rules.is_timed_out(transaction(ONGOING, timeout_ms=NEVER - 1), month_ms)


def test_only_a_resting_id_expires() -> None:
    assert [state for state in STORED if rules.is_expired(transaction(state), 106, 100)] == [EMPTY, CC, CA]
    assert not rules.is_expired(transaction(EMPTY), 105, 100)
    assert not rules.is_expired(transaction(EMPTY, pending=ONGOING), NOW, 100)
