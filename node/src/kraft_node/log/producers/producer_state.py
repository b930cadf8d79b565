"""The producer state of a partition: idempotence (KIP-98, KIP-185, KIP-360) and open transactions.

The last five batches of each producer are stored, so that repeated batches are recognized. Open transactions hold back
the last stable offset; a finished transaction holds it back until its marker is below the high watermark.

All state follows from the log: it is rebuilt from a snapshot and the batch headers after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from kraft_node.log.producers.unstable import UnstableOffsets
from kraft_node.log.producers.verification import NO_GUARDS, VERIFIED, Asking, Guard, Guards, Unverified
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import TRANSACTIONAL_BIT, BatchHeader

BATCHES_KEPT: Final = 5
"""Kafka's clients have at most five batches in flight, so a repeated batch is among the last five."""
SEQUENCE_MAX: Final = 2**31 - 1
NONE: Final = -1
FIRST_VERSION_WITH_BUMPS: Final = 2
"""The first transaction.version where each transaction ends with a new epoch (KIP-890)."""


class BatchMetadata(NamedTuple):
    """A batch of a producer."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class CompletedTxn(NamedTuple):
    """A transaction that has ended and is not known to be replicated."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerEntry:
    """One producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "is_recalled",
        "last_timestamp_ms",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NONE,
        last_timestamp_ms: int = NONE,
        coordinator_epoch: int = NONE,
        current_txn_first_offset: int = NONE,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.last_timestamp_ms = last_timestamp_ms
        self.coordinator_epoch = coordinator_epoch
        self.current_txn_first_offset = current_txn_first_offset
        self.batches: list[BatchMetadata] = []
        self.is_recalled = False
        """Whether the log was searched for batches that the snapshot did not have (`recall`)."""

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record in the newest stored batch; -1 without a stored batch."""
        return self.batches[-1].last_sequence if self.batches else NONE

    @property
    def last_offset(self) -> int:
        """Offset of the last record in the newest stored batch; -1 without a stored batch."""
        return self.batches[-1].last_offset if self.batches else NONE

    @property
    def first_offset(self) -> int:
        """First offset of the oldest stored batch."""
        return self.batches[0].first_offset if self.batches else NONE


Awaited: TypeAlias = dict[int, tuple[int, int]]
"""By producer id: epoch and sequence of the first refused batch, which will be sent again."""

NOTHING_AWAITED: Final[Awaited] = {}
_NO_PRODUCERS: Final[dict[int, ProducerEntry]] = {}
"""Shared by all partitions without producers, and never written to: most partitions have no producers."""


class Producers:
    """The producers of one partition."""

    __slots__ = ("_by_id", "_guards", "_unstable", "awaited", "name", "since_ms", "snapshots")

    def __init__(self, name: str = "", since_ms: int = 0) -> None:
        self.name = name
        self.since_ms = since_ms
        """When the state was made, by the monotonic clock."""
        self.awaited = NOTHING_AWAITED
        """Producers with batches refused before the log was open. Each must begin with its refused batch."""
        self._by_id = _NO_PRODUCERS
        self._guards: Guards = NO_GUARDS
        self._unstable: UnstableOffsets | None = None
        """None before the first transaction."""
        self.snapshots: tuple[int, ...] = ()
        """Offsets of the snapshot files, ascending."""

    def __len__(self) -> int:
        return len(self._by_id)

    def active(self) -> Iterator[ProducerEntry]:
        """All stored producers."""
        return iter(self._by_id.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        """The state of a producer; None if it has not written here or is forgotten."""
        return self._by_id.get(producer_id)

    def load(self, producer: ProducerEntry) -> None:
        """Take over a producer from a snapshot."""
        self._add(producer)
        if producer.current_txn_first_offset != NONE:
            self._begin(producer.current_txn_first_offset)

    def _add(self, producer: ProducerEntry) -> ProducerEntry:
        if self._by_id is _NO_PRODUCERS:
            self._by_id = {}
        self._by_id[producer.producer_id] = producer
        return producer

    def _begin(self, first_offset: int) -> None:
        """A transaction is open that begins there."""
        if self._unstable is None:
            self._unstable = UnstableOffsets()
        self._unstable.begin(first_offset)

    def take_over(self, other: Producers) -> None:
        """Take over the state of another log with the same end, also about records that no longer exist."""
        self._by_id = other._by_id
        self._guards = other._guards
        self._unstable = other._unstable
        self.awaited = other.awaited

    def know_more_than_snapshots(self) -> bool:
        """Whether a producer has several batches here that it may send again: a snapshot stores only the last
        batch."""
        return any(len(producer.batches) > 1 for producer in self._by_id.values())

    # --- appending ---

    def check(
        self, header: BatchHeader, guard: Guard | None = VERIFIED, *, internal: bool = False
    ) -> BatchMetadata | None:
        """Check whether a batch may be appended. Returns its stored metadata if a client has sent it before.

        `guard`: the proof that a transaction may begin here. `internal`: a coordinator's batch, without sequences.
        Raises KafkaError INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE (`Unverified`: no
        guard is given). A producer id that is not known may begin anywhere: its records may have been deleted. The
        exceptions are a producer whose batch was refused during recovery (a later batch must not come first, or the
        refused batch stays out of order), and producers with transaction.version 2, which begin with 0.

        Batches that are refused before they reach the log are not noted: NOT_ENOUGH_REPLICAS, or
        NOT_LEADER_OR_FOLLOWER before this broker leads or has made the log. If such a batch is the first of its
        producer here, the next batch in flight can be appended before it. Apache Kafka accepts the same. Its check of
        the ISR also comes before the producers' state, and a producer without state may begin with any sequence.
        """
        producer = self._by_id.get(header.producer_id)
        if producer is not None and header.producer_epoch == producer.producer_epoch and producer.batches:
            latest = producer.batches[-1].last_sequence
            if header.base_sequence == (latest + 1 if latest < SEQUENCE_MAX else 0):
                is_open = producer.current_txn_first_offset != NONE
                is_alone = not self._guards or header.producer_id not in self._guards
                if is_alone and is_open == (header.attributes & TRANSACTIONAL_BIT != 0):
                    return None
        return self._check_closely(header, producer, guard, internal=internal)

    def _check_closely(
        self, header: BatchHeader, producer: ProducerEntry | None, guard: Guard | None, *, internal: bool
    ) -> BatchMetadata | None:
        epoch = header.producer_epoch
        if producer is not None and epoch == producer.producer_epoch and not internal:
            first, last = header.base_sequence, header.last_sequence
            for known in producer.batches:
                if known.first_sequence == first and known.last_sequence == last:
                    return known
        is_open = producer is not None and producer.current_txn_first_offset != NONE
        if header.is_transactional and not self.has_open(header.producer_id, epoch):
            if isinstance(guard, Asking):
                self._ask(header, producer, guard)
            else:
                self._check_guard(header, guard)
        if producer is not None and epoch < producer.producer_epoch:
            raise self._too_old(header.producer_id, epoch, producer)
        if not internal:
            self._check_sequence(header, producer)
        if is_open and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction in {self.name}: its batch must be part of it",
            )
        return None

    def _ask(self, header: BatchHeader, producer: ProducerEntry | None, asking: Asking) -> None:
        """Ask the coordinator now. A refused batch leaves a guard: a later batch must not be appended first."""
        producer_id, epoch = header.producer_id, header.producer_epoch
        if producer is not None and epoch < producer.producer_epoch:
            raise asking.refused(ErrorCode.INVALID_PRODUCER_EPOCH)
        waiting = self._guards.get(producer_id)
        if waiting is not None:
            waiting.joined_by(epoch, header.base_sequence)
        try:
            asking.prove(self.name, header)
        except Unverified:
            raise
        except KafkaError:
            self.begin_verification(producer_id, epoch, header.base_sequence, asking.since_ms, with_bumps=False)
            raise

    def _check_guard(self, header: BatchHeader, guard: Guard | None) -> None:
        if guard is None:
            raise Unverified(header.producer_id, self.name)
        if guard is not VERIFIED and self._guards.get(header.producer_id) is not guard:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction of producer {header.producer_id} in {self.name} has ended while it was verified",
            )

    def _check_sequence(self, header: BatchHeader, producer: ProducerEntry | None) -> None:
        first = header.base_sequence
        guard = self._guards.get(header.producer_id)
        if guard is not None:
            if guard.with_bumps and first and (producer is None or not producer.batches):
                raise self._out_of_order(header, NONE, " as the first of a transaction")
            if first > guard.lowest_sequence:
                raise self._out_of_order(header, guard.lowest_sequence - 1)
        if producer is None:
            awaited = self.awaited.get(header.producer_id)
            if awaited is not None and awaited[0] == header.producer_epoch and awaited[1] < first:
                raise self._out_of_order(header, awaited[1] - 1)
        elif header.producer_epoch != producer.producer_epoch:
            if first and producer.producer_epoch != NONE:
                raise self._out_of_order(header, producer.last_sequence, f" of the new epoch {header.producer_epoch}")
        else:
            latest = producer.last_sequence
            if first != (latest + 1 if latest < SEQUENCE_MAX else 0):
                raise self._out_of_order(header, latest)

    def _too_old(self, producer_id: int, epoch: int, producer: ProducerEntry) -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"Epoch of producer {producer_id} in {self.name} is {epoch}, which is smaller than the last "
            f"seen epoch {producer.producer_epoch}",
        )

    def _out_of_order(self, header: BatchHeader, last: int, of_what: str = "") -> KafkaError:
        return KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {header.producer_id} in {self.name}: "
            f"{header.base_sequence}{of_what} (incoming seq. number), {last} (current end sequence number)",
        )

    def appended(self, header: BatchHeader, base_offset: int) -> None:
        """Note that a data batch of a producer is in the log at `base_offset`."""
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            producer = self._add(ProducerEntry(header.producer_id))
            self.awaited.pop(header.producer_id, None)
        if producer.producer_epoch != header.producer_epoch:
            producer.producer_epoch = header.producer_epoch
            producer.batches.clear()
        producer.last_timestamp_ms = header.max_timestamp
        batches = producer.batches
        if len(batches) >= BATCHES_KEPT:
            del batches[0]
        batches.append(
            BatchMetadata(
                header.base_sequence,
                header.last_sequence,
                base_offset,
                base_offset + header.last_offset_delta,
                header.max_timestamp,
            )
        )
        if header.is_transactional:
            if self._guards:
                self._guards.pop(header.producer_id, None)
            if producer.current_txn_first_offset == NONE:
                producer.current_txn_first_offset = base_offset
                self._begin(base_offset)

    # --- transactions ---

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has an open transaction here, in this epoch: no further verification is needed."""
        producer = self._by_id.get(producer_id)
        return producer is not None and producer.current_txn_first_offset != NONE and producer.producer_epoch == epoch

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, with_bumps: bool
    ) -> Guard:
        """The guard for a batch that waits for the coordinator's answer; `now_ms` is wall time.

        Raises KafkaError INVALID_PRODUCER_EPOCH: the coordinator need not be asked (KAFKA-19690).
        """
        producer = self._by_id.get(producer_id)
        if producer is not None and epoch < producer.producer_epoch:
            raise self._too_old(producer_id, epoch, producer)
        guard = self._guards.get(producer_id)
        if guard is None:
            if self._guards is NO_GUARDS:
                self._guards = {}
            guard = self._guards[producer_id] = Guard(epoch, sequence, now_ms, with_bumps=with_bumps)
        guard.joined_by(epoch, sequence)
        return guard

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int = 0) -> None:
        """Check whether a transaction marker may be appended.

        With transaction.version 2, the marker of an open transaction has a newer epoch than its records (KIP-1228). An
        equal epoch is a repetition: it is allowed only if no transaction is open. Raises KafkaError
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        producer = self._by_id.get(producer_id)
        if producer is None:
            return
        is_open = producer.current_txn_first_offset != NONE
        must_exceed = transaction_version >= FIRST_VERSION_WITH_BUMPS and is_open
        if epoch < producer.producer_epoch or (must_exceed and epoch == producer.producer_epoch):
            raise self._too_old(producer_id, epoch, producer)
        if coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} of producer {producer_id} in {self.name} is older than "
                f"{producer.coordinator_epoch}",
            )

    def end_transaction(
        self, header: BatchHeader, offset: int, coordinator_epoch: int, high_watermark: int, *, aborted: bool
    ) -> CompletedTxn | None:
        """Note a marker at `offset`. Returns the transaction that it ended; None if none was open.

        `high_watermark` is the present one: transactions whose marker is below it are forgotten.
        """
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            producer = self._add(ProducerEntry(header.producer_id))
        if producer.producer_epoch != header.producer_epoch:
            producer.producer_epoch = header.producer_epoch
            producer.batches.clear()
        producer.last_timestamp_ms = header.max_timestamp
        producer.coordinator_epoch = coordinator_epoch
        guard = self._guards.get(header.producer_id)
        if guard is not None and not (guard.with_bumps and guard.epoch == header.producer_epoch):
            del self._guards[header.producer_id]  # otherwise it belongs to the next transaction
        first = producer.current_txn_first_offset
        if first == NONE:
            return None
        producer.current_txn_first_offset = NONE
        assert self._unstable is not None, "law: an open transaction has begun"
        self._unstable.end(first, offset, high_watermark)
        return CompletedTxn(producer.producer_id, first, offset, aborted)

    # --- the last stable offset ---

    @property
    def unstable(self) -> int:
        """Transactions that are kept because they may hold back the last stable offset."""
        return 0 if self._unstable is None else len(self._unstable)

    def first_unstable(self, high_watermark: int) -> int | None:
        """The first offset that a read_committed reader must not see yet; None if it may see all."""
        return None if self._unstable is None else self._unstable.first(high_watermark)

    def stable_after(self, txn: CompletedTxn) -> int:
        """The last stable offset once `txn`, which has just ended, is replicated; its aborted entry contains it."""
        first_open = None if self._unstable is None else self._unstable.first_open
        return txn.last_offset + 1 if first_open is None else first_open

    # --- forgetting ---

    def expire(self, now_ms: int, after_ms: int) -> None:
        """Forget producers that have not written for `after_ms` and have no open transaction, and guards that old."""
        for producer_id in [pid for pid, guard in self._guards.items() if now_ms - guard.since_ms >= after_ms]:
            del self._guards[producer_id]
        gone = [
            producer.producer_id
            for producer in self._by_id.values()
            if producer.current_txn_first_offset == NONE and now_ms - producer.last_timestamp_ms >= after_ms
        ]
        for producer_id in gone:
            del self._by_id[producer_id]

    def clear(self) -> None:
        """Forget everything but the snapshot files."""
        self._by_id = _NO_PRODUCERS
        self._guards = NO_GUARDS
        self._unstable = None
