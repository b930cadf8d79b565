"""When records count as stored for their producer.

One rule: acks=1 follows the settled end of the leader's log, acks=all the high watermark. The high watermark never
passes the settled end (`Partition.settled_end`), so consumers see only records that acks=all acknowledges.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kraft_node.partition.acks import ACKS_ALL, Done
from kraft_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kraft_node.log.log import Log
    from kraft_node.partition.partition import Partition


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
