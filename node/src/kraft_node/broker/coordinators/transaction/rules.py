"""What a request does to a transactional id: pure functions from its state to a step, an answer, or a refusal.

Each function returns one of:

- `Values`: write these, then answer;
- `Settled`: nothing to write, answer with this producer id and epoch;
- `NEEDS_ID`: call again with a new producer id;
- raises `KafkaError` with the code for the client (before its translation for old versions).

`version` is the cluster's transaction.version, `client_version` the transaction.version that the client uses.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from kraft_node.broker.coordinators.transaction.states import (
    ENDING,
    EPOCH_MAX,
    NEVER,
    NO_EPOCH,
    NO_PRODUCER_ID,
    RESTING,
    TopicPartition,
    Transaction,
    TransactionState,
    Values,
)
from kraft_protocol.errors import ErrorCode, KafkaError

EPOCH_BUMPS: Final = 2
"""The transaction.version from which each end of a transaction bumps the epoch (KIP-890)."""


class ProducerEpoch(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


class Settled(NamedTuple):
    """The request is done already: the producer's id and epoch from now on."""

    producer_id: int
    epoch: int


class _Need(Enum):
    ID = "a new producer id"


NEEDS_ID: Final = _Need.ID
Step: TypeAlias = "Values | Settled | _Need"


def created(producer_id: int, timeout_ms: int, now_ms: int) -> Values:
    """A new transactional id, before its first epoch is stored."""
    return Values(producer_id, NO_EPOCH, timeout_ms, update_ms=now_ms)


def initialize(
    transaction: Transaction,
    timeout_ms: int,
    expected: ProducerEpoch | None,
    *,
    now_ms: int,
    version: int,
    fresh_id: int | None = None,
) -> Step:
    """InitProducerId. `expected`: the producer that continues after an error (KIP-360).

    A step to PREPARE_ABORT fences the present producer; the client gets CONCURRENT_TRANSACTIONS and retries.
    """
    values = transaction.values
    if transaction.pending is not None:
        raise _concurrent(transaction)
    if not _may_initialize(values, expected):
        raise _fenced(transaction, expected)
    if values.state in ENDING:
        raise _concurrent(transaction)
    if values.state is TransactionState.ONGOING:
        return fence(transaction, now_ms=now_ms, version=version, fresh_id=fresh_id)
    settings = {
        "timeout_ms": timeout_ms,
        "partitions": frozenset[TopicPartition](),
        "start_ms": -1,
    }
    if values.exhausted and (expected is None or expected.epoch == values.epoch):
        if fresh_id is None:
            return NEEDS_ID
        last = NO_EPOCH if expected is None else values.epoch
        return values.moved(TransactionState.EMPTY, now_ms, producer_id=fresh_id, epoch=0, last_epoch=last, **settings)
    if expected is None:
        return values.moved(TransactionState.EMPTY, now_ms, epoch=values.epoch + 1, last_epoch=NO_EPOCH, **settings)
    if values.epoch in {expected.epoch, NO_EPOCH}:
        return values.moved(TransactionState.EMPTY, now_ms, epoch=values.epoch + 1, last_epoch=values.epoch, **settings)
    if expected.epoch == values.last_epoch:
        return values.moved(TransactionState.EMPTY, now_ms, **settings)  # a repeated request: the epoch has been bumped
    raise _fenced(transaction, expected)


def _may_initialize(values: Values, expected: ProducerEpoch | None) -> bool:
    """Whether the producer of the request can be the present producer, or the last producer before its id was
    replaced."""
    if expected is None or values.epoch == NO_EPOCH or expected.producer_id == values.producer_id:
        return True
    return expected.producer_id == values.previous_producer_id and expected.epoch >= EPOCH_MAX - 1


def fence(transaction: Transaction, *, now_ms: int, version: int, fresh_id: int | None = None) -> Values | _Need:
    """Abort an open transaction from here, and bump the epoch so that its producer cannot go on.

    With epoch bumps, the abort itself makes the only bump. Without, the epoch counts from now on, before it is stored.
    """
    values = transaction.values
    assert transaction.pending is None, f"law: {transaction.name} has one write at a time"
    assert values.state is TransactionState.ONGOING, (
        f"law: only an open transaction is fenced, not one in {values.state}"
    )
    if version >= EPOCH_BUMPS:
        return _ended(values, TransactionState.PREPARE_ABORT, now_ms, client_version=version, fresh_id=fresh_id)
    bumped = values.epoch if transaction.fence_failed else values.epoch + 1
    assert bumped <= EPOCH_MAX, f"law: {transaction.name} has epochs left for a fence"
    transaction.fencing = True
    transaction.values = values._replace(epoch=bumped, last_epoch=NO_EPOCH)
    return _ended(transaction.values, TransactionState.PREPARE_ABORT, now_ms, client_version=0, fresh_id=None)


def add_partitions(
    transaction: Transaction,
    producer: ProducerEpoch,
    partitions: frozenset[TopicPartition],
    *,
    client_version: int,
    now_ms: int,
) -> Values | Settled:
    """AddPartitionsToTxn and AddOffsetsToTxn: begin a transaction, or add to the open transaction."""
    values = transaction.values
    if transaction.pending is not None:
        raise _concurrent(transaction)  # before the producer id, which the pending write may change
    _check_producer(transaction, producer)
    if values.state in ENDING:
        raise _concurrent(transaction)
    if values.state is TransactionState.ONGOING and partitions <= values.partitions:
        return Settled(values.producer_id, values.epoch)
    return values.moved(
        TransactionState.ONGOING,
        now_ms,
        partitions=values.partitions | partitions,
        start_ms=now_ms if values.state in RESTING else values.start_ms,
        client_version=client_version,
    )


def missing_partitions(
    transaction: Transaction, producer: ProducerEpoch, partitions: frozenset[TopicPartition]
) -> frozenset[TopicPartition]:
    """Verification by a broker: the partitions among `partitions` that the transaction does not contain.

    A pending write does not matter: the broker's own check of the append follows.
    """
    _check_producer(transaction, producer)
    if transaction.values.state in ENDING:
        raise _concurrent(transaction)
    return partitions - transaction.values.partitions


def _check_producer(transaction: Transaction, producer: ProducerEpoch) -> None:
    if producer.producer_id != transaction.values.producer_id:
        raise _unmapped(transaction, producer)
    if producer.epoch != transaction.values.epoch:
        raise _fenced(transaction, producer)


def end(transaction: Transaction, producer: ProducerEpoch, *, commit: bool, now_ms: int) -> Step:
    """EndTxn of a client that keeps its epoch (versions up to 4), also in a cluster with transaction.version 2."""
    values = transaction.values
    _check_producer(transaction, producer)
    if transaction.pending is not None:
        raise _concurrent(transaction)
    wanted, done = _targets(commit=commit)
    if values.state is TransactionState.ONGOING:
        return _ended(values, wanted, now_ms, client_version=0, fresh_id=None)
    if values.state is done:
        return Settled(NO_PRODUCER_ID, NO_EPOCH)
    if values.state is wanted:
        raise _concurrent(transaction)
    raise _wrong_state(transaction, commit=commit)


def end_with_bump(
    transaction: Transaction, producer: ProducerEpoch, *, commit: bool, now_ms: int, fresh_id: int | None = None
) -> Step:
    """EndTxn of a client that gets a new epoch with each end (version 5, KIP-890).

    The epoch distinguishes a repeated request from the end of the next transaction. A client that does not know
    whether it has written anything aborts, so an abort without an open transaction succeeds and bumps the epoch.

    A request repeats an earlier one only if the last end bumped the epoch. If a client that keeps its epoch ended the
    last transaction, its own InitProducerId made the bump, and the sender of this request is a zombie.

    The epoch is answered before the last end is complete, so the next end may arrive too early: it is retried. Apache
    Kafka answers PRODUCER_FENCED, which ends the producer.
    """
    values = transaction.values
    bumped = values.client_version >= EPOCH_BUMPS
    if values.state in ENDING and bumped and producer == answered(values):
        raise _concurrent(transaction)
    overflowed = (
        bumped
        and values.previous_producer_id == producer.producer_id
        and producer.epoch == EPOCH_MAX - 1
        and values.epoch == 0
    )
    repeated = (bumped and values.epoch == producer.epoch + 1) or overflowed
    if producer.producer_id != values.producer_id and not overflowed:
        raise _unmapped(transaction, producer)
    if values.state in ENDING:
        valid = values.epoch == producer.epoch + 1
    elif values.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
        valid = repeated or producer.epoch == values.epoch
    else:
        valid = producer.epoch == values.epoch
    if not valid:
        raise _fenced(transaction, producer)
    if transaction.pending is not None:
        raise _concurrent(transaction)
    wanted, done = _targets(commit=commit)
    if values.state is TransactionState.ONGOING:
        return _ended(values, wanted, now_ms, client_version=EPOCH_BUMPS, fresh_id=fresh_id)
    if values.state in ENDING:
        raise _concurrent(transaction) if values.state is wanted else _wrong_state(transaction, commit=commit)
    if values.state is done and repeated:
        return Settled(values.producer_id, values.epoch)
    if commit or repeated:
        raise _wrong_state(transaction, commit=commit)
    return _ended(values._replace(start_ms=now_ms), wanted, now_ms, client_version=EPOCH_BUMPS, fresh_id=fresh_id)


def _targets(*, commit: bool) -> tuple[TransactionState, TransactionState]:
    """The states in which the markers are written, and after them."""
    if commit:
        return TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT
    return TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT


def _ended(
    values: Values, state: TransactionState, now_ms: int, *, client_version: int, fresh_id: int | None
) -> Values | _Need:
    """The step to PREPARE_COMMIT or PREPARE_ABORT.

    With epoch bumps, it holds the next epoch, which the markers carry. If the producer id has no further epoch for
    clients, it holds the next producer id, too.
    """
    if client_version < EPOCH_BUMPS:
        return values.moved(state, now_ms, next_producer_id=NO_PRODUCER_ID, client_version=client_version)
    if values.exhausted and fresh_id is None:
        return NEEDS_ID
    return values.moved(
        state,
        now_ms,
        epoch=values.epoch + 1,
        last_epoch=values.epoch,
        next_producer_id=fresh_id if values.exhausted else NO_PRODUCER_ID,
        client_version=client_version,
    )


def completed(values: Values, now_ms: int) -> Values:
    """The step after the last marker."""
    commit = values.state is TransactionState.PREPARE_COMMIT
    made = values.moved(
        TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT,
        now_ms,
        partitions=frozenset[TopicPartition](),
        next_producer_id=NO_PRODUCER_ID,
    )
    if values.client_version >= EPOCH_BUMPS and values.next_producer_id != NO_PRODUCER_ID:
        return made._replace(producer_id=values.next_producer_id, epoch=0)
    return made


def answered(values: Values) -> ProducerEpoch:
    """The producer id and epoch that a client uses after EndTxn 5 has stored `values`."""
    if values.next_producer_id != NO_PRODUCER_ID:
        return ProducerEpoch(values.next_producer_id, 0)
    return ProducerEpoch(values.producer_id, values.epoch)


def is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    """Whether the coordinator aborts the transaction because of its age.

    If the start is further ahead than the time-out, a clock has jumped, and the age is unknown. Waiting for that time
    could block readers of committed records for hours, as in Kafka; an abort loses nothing that was committed.
    """
    values = transaction.values
    if values.state is not TransactionState.ONGOING or transaction.pending is not None or values.timeout_ms == NEVER:
        return False
    return abs(now_ms - values.start_ms) > values.timeout_ms


def is_expired(transaction: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """Whether the transactional id has been unused for so long that it is forgotten."""
    values = transaction.values
    return values.state in RESTING and transaction.pending is None and values.update_ms <= now_ms - expiration_ms


def _concurrent(transaction: Transaction) -> KafkaError:
    doing = transaction.values.state if transaction.pending is None else transaction.pending
    return KafkaError(
        ErrorCode.CONCURRENT_TRANSACTIONS, f"{transaction.name}: the change to {doing.label} is not complete"
    )


def _fenced(transaction: Transaction, producer: ProducerEpoch | None) -> KafkaError:
    values = transaction.values
    return KafkaError(
        ErrorCode.PRODUCER_FENCED,
        f"{transaction.name} has producer id {values.producer_id} with epoch {values.epoch}, not {producer}",
    )


def _unmapped(transaction: Transaction, producer: ProducerEpoch) -> KafkaError:
    text = f"{transaction.name} has producer id {transaction.values.producer_id}, not {producer.producer_id}"
    return KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, text)


def _wrong_state(transaction: Transaction, *, commit: bool) -> KafkaError:
    what = "committed" if commit else "aborted"
    text = f"{transaction.name} is in state {transaction.values.state.label} and cannot be {what}"
    return KafkaError(ErrorCode.INVALID_TXN_STATE, text)
