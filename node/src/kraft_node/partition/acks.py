"""When records count as stored for their producer, and the waiting for that.

One rule: acks=1 follows the settled end of the leader's log, acks=all the high watermark. The high watermark never
passes the settled end (`Partition.settled_end`), so consumers see only records that acks=all acknowledges.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kraft_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kraft_node.log.log import Log
    from kraft_node.partition.partition import Partition

ACKS_ALL: Final = -1

Done: TypeAlias = "Callable[[ErrorCode], None]"
Waiter: TypeAlias = "tuple[int, Done]"


def offset_of(waiter: Waiter) -> int:
    """The offset for which a callback waits: the sort key of the waiting list."""
    return waiter[0]


class Acks:
    """The waiting callbacks. Thousands may wait and time out one by one, so `forget` costs O(1) on average."""

    __slots__ = ("_forgotten", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[Waiter] = []
        self._forgotten: set[Done] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int, done: Done) -> None:
        """Let `take` return `done` once the high watermark has reached `offset`, the end of the records."""
        insort(self._waiting, (offset, done), key=offset_of)  # nearly always behind all others

    def forget(self, done: Done) -> None:
        """Never call `done`. Allowed if it was called already."""
        forgotten = self._forgotten
        forgotten.add(done)
        if 2 * len(forgotten) > len(self._waiting):
            self._waiting = [waiter for waiter in self._waiting if waiter[1] not in forgotten]
            forgotten.clear()

    def take(self, high_watermark: int) -> list[Done]:
        """Remove and return the callbacks that wait for at most `high_watermark`."""
        count = bisect_right(self._waiting, high_watermark, key=offset_of)
        due = self._waiting[:count]
        del self._waiting[:count]
        return [done for _, done in due if done not in self._forgotten]

    def take_all(self) -> list[Done]:
        """Remove and return all callbacks."""
        due, self._waiting = self._waiting, []
        return [done for _, done in due if done not in self._forgotten]


def is_acknowledged(partition: Partition, offset: int, acks: int) -> bool:
    """Whether the records below `offset` count as stored for a producer with these `acks`."""
    return (partition.log.high_watermark if acks == ACKS_ALL else partition.log.settled_end) >= offset


class Appended(NamedTuple):
    """Records of a leader, which may wait for other parts of their request before they wait for being acknowledged."""

    partition: Partition
    offset: int
    """The offset after the last of the records."""
    log: Log
    truncations: int
    """How often the log had been truncated when they were appended."""

    @property
    def is_lost(self) -> bool:
        """Whether other records may be at their offsets by now."""
        log = self.partition.log
        return log is not self.log or log.truncations != self.truncations


def appended(partition: Partition, offset: int) -> Appended:
    """Records that were appended to the partition just now and end at `offset`."""
    return Appended(partition, offset, partition.log, partition.log.truncations)


def when_acknowledged(records: Appended, acks: int, done: Done) -> None:
    """Call `done` once `is_acknowledged`, or with an error code."""
    partition, offset = records.partition, records.offset
    if records.is_lost:
        done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif acks != ACKS_ALL:
        partition.log.when_settled(offset, done)
    elif partition.is_replicated(offset):
        done(ErrorCode.NONE if partition.acks_enough() else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    elif partition.is_leader or partition.decides_alone:
        partition.when_replicated(offset, done)
    else:
        done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
