"""Guards of transactions that are about to begin in a partition (KIP-890).

The leader appends the first batch of a transaction only if the transaction coordinator knows that the partition is
part of it. The broker sends its request to the coordinator between two turns of the loop. Meanwhile the transaction
may end, and its marker be written. So the leader creates a guard before the request, the marker removes the guard, and
the append needs the guard.

While a transaction is open in the partition, no guard is needed: its marker will come.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_protocol.records.batch import BatchHeader


class Guard:
    """One verification of a producer in a partition, from its first request to its first batch or a marker."""

    __slots__ = ("epoch", "lowest_sequence", "since_ms", "with_bumps")

    def __init__(self, epoch: int, sequence: int, since_ms: int, *, with_bumps: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        """The smallest sequence number among the batches that wait: one of the others must not come first."""
        self.since_ms = since_ms
        """Wall clock."""
        self.with_bumps = with_bumps
        """Whether the producer uses transaction.version 2: each transaction has its own epoch."""

    def joined_by(self, epoch: int, sequence: int) -> None:
        """Another batch waits for the same verification."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class Asking(Guard):
    """The guard of a request whose coordinator may be in this process: asked when a batch begins a transaction.

    The batch is appended in the same call, so no marker can come between.
    """

    __slots__ = ()

    def __init__(self, now_ms: int) -> None:
        super().__init__(-1, -1, now_ms, with_bumps=False)

    @abstractmethod
    def prove(self, partition: str, header: BatchHeader) -> None:
        """Return if the batch may begin its transaction in `partition` ("topic-0").

        Raises KafkaError if the coordinator refuses it, Unverified if another process coordinates it.
        """

    @abstractmethod
    def refused(self, code: ErrorCode) -> KafkaError:
        """The producer's error for a batch about which the coordinator need not be asked."""


VERIFIED: Final = Guard(-1, -1, 0, with_bumps=False)
"""Stands for a proof that is not checked: replays, tests, and brokers that do not verify transactions."""

Guards = dict[int, Guard]
"""By producer id."""

NO_GUARDS: Final[Guards] = {}
"""Shared by all partitions where no transaction is about to begin, and never written to."""


class Unverified(KafkaError):  # noqa: N818 - a state, not a fault
    """The batch begins a transaction in the partition, and is not yet verified with the coordinator."""

    def __init__(self, producer_id: int, partition: str) -> None:
        super().__init__(
            ErrorCode.INVALID_TXN_STATE,
            f"producer {producer_id} has no open transaction in {partition}, and the transaction is not verified",
        )
