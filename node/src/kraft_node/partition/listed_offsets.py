"""ListOffsets on one replica: the offset for a timestamp, or the first, last or newest one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kraft_node.log.timestamps import UNREAD_MAX
from kraft_node.partition.isolation import READ_LOG_END
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.partition.partition import Partition

# ListOffsets' special timestamps.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6


class TimestampOffset(NamedTuple):
    """The offset for a timestamp, with the timestamp of its record and its leader epoch; -1 if unknown."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


NO_OFFSET: Final = TimestampOffset(-1, -1, -1)


def offset_for(partition: Partition, timestamp: int, isolation: int) -> TimestampOffset:
    """ListOffsets: the offset for a timestamp (milliseconds), or for a special timestamp.

    Raises TimesUnread if a lane must read timestamps first; OFFSET_NOT_AVAILABLE while a new leader does not know
    yet how far its log is committed.
    """
    log = partition.log
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start = log.start_offset
        return TimestampOffset(-1, start, log.leader_epochs.epoch_at(start))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return NO_OFFSET  # remote tiers are not supported
    behind = isolation != READ_LOG_END and log.high_watermark < partition.leader_start_offset
    if timestamp == LATEST:
        if behind:
            _not_available(partition)
        return TimestampOffset(-1, partition.readable_end(isolation), partition.leader_epoch)
    found = log.offset_for_timestamp(timestamp, UNREAD_MAX)
    if found is None:
        return NO_OFFSET
    found_timestamp, offset = found[0], found[1]
    if offset >= partition.readable_end(isolation):
        if behind:
            _not_available(partition)
        return NO_OFFSET
    return TimestampOffset(found_timestamp, offset, log.leader_epochs.epoch_at(offset))


def _not_available(partition: Partition) -> None:
    raise KafkaError(
        ErrorCode.OFFSET_NOT_AVAILABLE,
        f"{partition.topic}-{partition.index}: the high watermark {partition.log.high_watermark} has not yet reached "
        f"{partition.leader_start_offset}, where epoch {partition.leader_epoch} began",
    )
