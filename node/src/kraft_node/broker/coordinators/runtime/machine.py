"""The interface that a coordinator implements for the runtime, and the result of its operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from kraft_node.log.producers.verification import Guard
    from kraft_protocol.buffers import Buffer

StoredRecord: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of a record; value None is a tombstone."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1

RecordT = TypeVar("RecordT")
ResponseT = TypeVar("ResponseT")


class NewerRecordError(ValueError):
    """A record type that Kafka 4.3.1 lacks: written by a newer release, and ignored with a warning."""


class TransactionalProducer(NamedTuple):
    """The producer of the transaction in which records are written; `guard` verified the transaction, if needed."""

    producer_id: int
    epoch: int
    guard: Guard | None = None


@dataclass(slots=True)
class PlannedWrite(Generic[RecordT, ResponseT]):
    """The result of an operation: the records to append, and the response once they are committed.

    Without records the response waits for all earlier records of the shard.
    """

    records: Sequence[RecordT]
    response: ResponseT
    producer: TransactionalProducer | None = None
    """Writes the records in this producer's transaction, as a batch of their own."""
    replay: bool = True
    """False: the state machine has these changes in memory already. It must tolerate the loss of such a change."""
    timeout_ms: int | None = None
    """How long the response may wait for the commit; None: as configured."""


class StateMachine(Protocol[RecordT]):
    """The state of one partition, made anew for every load. The runtime is its only caller.

    It must be deterministic: after the same records it is in the same state, on every broker. Log compaction may have
    removed every record that a later record of the same key replaces, at any time.
    """

    def encode(self, record: RecordT, /) -> StoredRecord:
        """The stored form of a record."""

    def decode(self, key: Buffer, value: Buffer | None, /) -> RecordT:
        """Inverse of `encode`; a machine may have its own class of records, so that it need not decode its own.

        Raises UnknownRecordTypeError (the record is skipped with a warning), ValueError (the load fails).
        """

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: RecordT, /) -> None:
        """Apply the record at `offset` of the log; -1 and -1 outside of transactions.

        A transactional record takes effect with `end_transaction`. An exception during a load fails the partition.
        """

    def end_transaction(self, offset: int, producer_id: int, producer_epoch: int, /, *, commit: bool) -> None:
        """Apply a transaction marker at `offset` of the log."""

    def complete_load(self) -> Iterator[None]:
        """The log was read to its end: do what `replay` has put off, some microseconds a step.

        An exception fails the partition.
        """

    def committed_to(self, high_watermark: int, /) -> None:
        """All records below `high_watermark` are committed. Called before the responses that waited for this."""

    def loaded(self) -> None:
        """The log was read to its end, and the shard is active: start timers, continue unfinished work."""

    def unloaded(self) -> None:
        """Drop everything, and answer waiting requests with NOT_COORDINATOR; also after a failed load.

        The shard's timers are cancelled already.
        """
