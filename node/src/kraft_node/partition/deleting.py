"""DeleteRecords, as far as the log of the leader is concerned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.log.trimming import DROP_STEP
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.log.log import Log

HIGH_WATERMARK: Final = -1


def delete_records(log: Log, before_offset: int) -> int:
    """Make `before_offset` the start of the log; returns the new start.

    Raises OFFSET_OUT_OF_RANGE for an offset beyond the high watermark, POLICY_VIOLATION where only compaction may
    delete.
    """
    if not log.config.delete:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Records of partition {log.name} can not be deleted due to the configured policy",
        )
    before = log.high_watermark if before_offset == HIGH_WATERMARK else before_offset
    if not 0 <= before <= log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.name}: cannot delete records before {before}, the high watermark is {log.high_watermark}",
        )
    log.delete_records(before, DROP_STEP)
    return int(log.start_offset)
