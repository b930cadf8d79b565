"""Which epochs a replica accepts from others: a damaged or hostile peer must not use them up.

The protocol has 31 bits for an epoch, and each election needs the next number. Apache Kafka accepts any epoch from any
peer. After one message with epoch 2147483647, the quorum can never elect a leader again.

The rule for each epoch in a message that is above the replica's own epoch:

- Up to `FREE_MAX` (2^30) the replica accepts it, as Kafka does. A quorum that elects a leader every second reaches this
  epoch after 34 years, so a new or long absent replica always finds its quorum.
- Above `FREE_MAX`, the replica accepts an epoch at most `LEAP_MAX` ahead of its own, and only one leap (by more than
  one epoch) in `LEAP_PAUSE_MS`. A hostile peer then needs twelve days without a pause to use up the rest.
- The replica never accepts an epoch above `EPOCH_MAX`. The next epoch could still be written, but no epoch could follow
  it.

Refused requests are answered with INVALID_REQUEST, refused answers count as failed. Records and snapshots with an epoch
above the leader's are always refused: no leader can have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kraft_node.raft.log_view import LogView
    from kraft_node.raft.messages import FetchedBatch

EPOCH_MAX: Final = 2**31 - 2
"""The highest epoch that a replica accepts or begins."""

FREE_MAX: Final = 2**30
LEAP_MAX: Final = 1_000
LEAP_PAUSE_MS: Final = 1_000

REMEDY: Final = (
    "Stop all nodes. In the quorum-state of each controller set leaderEpoch to one more than the highest leader epoch"
    " in its metadata log (kafka-dump-log shows it), leaderId and votedId to -1; delete quorum-state on brokers."
    " Then start the controllers."
)


class EpochsExhausted(AssertionError):  # noqa: N818 - a fact
    """No epoch is left for another election."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"epoch {epoch} is out of range: no election can follow, epochs end at {EPOCH_MAX}. {REMEDY}")


class EpochGuard:
    """Judges the epochs that others name, for one replica."""

    __slots__ = ("_leaped_ms",)

    def __init__(self) -> None:
        self._leaped_ms: int | None = None

    def admits(self, named: int, own: int, now_ms: int) -> bool:
        """Whether a replica in epoch `own` may accept the epoch of a message. Older epochs are always admitted."""
        if named <= own or named <= FREE_MAX:
            return True
        if named > EPOCH_MAX or named - own > LEAP_MAX:
            return False
        if named - own > 1:
            if self._leaped_ms is not None and now_ms < self._leaped_ms + LEAP_PAUSE_MS:
                return False
            self._leaped_ms = now_ms
        return True


def follows(log: LogView, batches: Sequence[FetchedBatch], epoch: int) -> bool:
    """Whether fetched batches continue the log, with epochs that the leader of `epoch` can have.

    The CRC of a batch does not cover its leader epoch, so a damaged epoch would stay in the log.
    """
    offset, last = log.end_offset, log.last_epoch
    for batch in batches:
        if batch.base_offset != offset or batch.next_offset <= offset or not last <= batch.epoch <= epoch:
            return False
        offset, last = batch.next_offset, batch.epoch
    return True
