"""The states of a transactional id, and the values that are stored of it (KIP-98, KIP-360, KIP-890).

`Transaction` is one transactional id in memory: the committed values, and the state to which a write that is not yet
committed leads. While a write is pending, other requests get CONCURRENT_TRANSACTIONS, so a transactional id has at
most one write in flight.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
EPOCH_MAX: Final = 2**15 - 1
"""Only fences use this epoch; clients get at most `EPOCH_MAX - 1`."""
NEVER: Final = 2**31 - 1
"""The timeout of a transaction that is never aborted for its age (two-phase commit)."""

TopicPartition: TypeAlias = tuple[str, int]


class TransactionState(IntEnum):
    """A state; the value is its number in `__transaction_state`. `DEAD` and `PREPARE_EPOCH_FENCE` are never stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name in DescribeTransactions and ListTransactions: `PrepareCommit`."""
        return LABELS[self]


LABELS: Final[Mapping[TransactionState, str]] = {
    state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState
}
BY_LABEL: Final[Mapping[str, TransactionState]] = {label: state for state, label in LABELS.items()}

RESTING: Final = frozenset((TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))
"""No transaction is open, and no marker is missing: the id may begin a transaction, get a new epoch, or expire."""
ENDING: Final = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
"""The result is decided, and markers are being written."""

PREDECESSORS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    TransactionState.EMPTY: RESTING,
    TransactionState.ONGOING: RESTING | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset((TransactionState.ONGOING,)),
    TransactionState.PREPARE_ABORT: RESTING | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
    TransactionState.COMPLETE_COMMIT: frozenset((TransactionState.PREPARE_COMMIT,)),
    TransactionState.COMPLETE_ABORT: frozenset((TransactionState.PREPARE_ABORT,)),
    TransactionState.DEAD: RESTING,
    TransactionState.PREPARE_EPOCH_FENCE: frozenset((TransactionState.ONGOING,)),
}
"""The states from which each state may be entered."""


class Values(NamedTuple):
    """The stored state of a transactional id, except `last_epoch`, which a failover loses (as in Kafka)."""

    producer_id: int
    epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    update_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id that replaces the exhausted id when the transaction is complete."""
    client_version: int = 0
    """The transaction.version that the client uses: 2 if its transactions end with a new epoch."""
    last_epoch: int = NO_EPOCH
    """The epoch before the last bump that the producer itself requested."""

    @property
    def exhausted(self) -> bool:
        """Whether the producer id has no further epoch for clients."""
        return self.epoch >= EPOCH_MAX - 1

    def moved(self, state: TransactionState, now_ms: int, **changes: object) -> Values:
        """The values after a step to `state`; unnamed values stay."""
        changes.setdefault("previous_producer_id", self.producer_id)
        return self._replace(state=state, update_ms=now_ms, **changes)  # type: ignore[arg-type]  # as in the fields


class Change(NamedTuple):
    """The new values of a transactional id; None: it is removed."""

    name: str
    values: Values | None


class Transaction:
    """One transactional id: committed values, and the pending write."""

    __slots__ = ("completion", "fence_failed", "fencing", "name", "pending", "values")

    def __init__(self, name: str, values: Values) -> None:
        self.name = name
        self.values = values
        self.pending: TransactionState | None = None
        """The state that an uncommitted write leads to."""
        self.completion: Values | None = None
        """The last step of the transaction, if it waits for the next write (`completions`); it is pending."""
        self.fencing = False
        """The pending write, or the next write, is a fence whose epoch counts already (transaction.version 0 or 1)."""
        self.fence_failed = False
        """A fence could not be stored. Its epoch was given to no client, so the next fence does not bump it again."""

    def begin(self, values: Values, after: Values | None = None) -> None:
        """A write of `values` begins, of two steps if it is `after` another. Raises AssertionError for a step that
        `PREDECESSORS` does not have."""
        assert self.pending is None, f"law: {self.name} has one write at a time; {self.pending} is pending"
        state = self.values.state if after is None else after.state
        assert state in PREDECESSORS[values.state], f"law: {self.name} cannot go from {state} to {values.state}"
        self.pending = values.state

    def complete(self, values: Values) -> None:
        """All markers are written; the last step, which has begun, waits for a write."""
        assert self.pending is values.state, f"law: {self.name} has begun {self.pending}, not {values.state}"
        self.completion = values

    def as_seen(self) -> Transaction:
        """For requests: the transaction after its last step, if only the write of this step is missing.

        The last step follows from the result and the markers, which are committed. So a failover does not change it.
        """
        return self if self.completion is None else Transaction(self.name, self.completion)

    def take_completion(self) -> Values:
        """The last step, for a write that begins now."""
        values, self.completion, self.pending = self.completion, None, None
        assert values is not None, f"law: {self.name} has a last step that waits"
        return values

    def commit(self, values: Values) -> None:
        """The write of `values` is committed."""
        assert self.pending is values.state, f"law: {self.name} has begun {self.pending}, not {values.state}"
        self.pending = None
        self.values = values
        self.fencing = False
        if values.state in ENDING:
            self.fence_failed = False

    def cancel(self) -> None:
        """The pending write has failed."""
        self.pending = None
        self.fence_failed |= self.fencing
        self.fencing = False

    def without(self, partitions: frozenset[TopicPartition]) -> None:
        """The markers of `partitions` are written, or no longer needed."""
        assert self.values.state in ENDING, f"law: {self.name} writes markers in {self.values.state}"
        self.values = self.values._replace(partitions=self.values.partitions - partitions)
