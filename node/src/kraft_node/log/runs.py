"""Appends of a follower: the leader's batches unchanged, with one write for many of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from kraft_node.log.errors import LogDirDamaged
from kraft_protocol.records.control import ControlType, iter_control_records, parse_marker
from kraft_protocol.records.errors import BatchError

if TYPE_CHECKING:
    from kraft_node.log.seams import AppendedLog
    from kraft_protocol.buffers import Buffer
    from kraft_protocol.records.batch import BatchHeader


def fitting(
    log: AppendedLog, records: Buffer, headers: Sequence[BatchHeader], start: int, now_ms: int
) -> list[BatchHeader]:
    """The successive batches from `headers[start]` on that the active segment can take in one write.

    They continue the log in its latest epoch, and none of them begins a segment. Empty if not even the first does.
    A marker that aborts is the last of them: after a kill, the index of aborted transactions is trusted up to the batch
    of the last index entry on disk. So no entry may be written for a later batch before the marker is noted.
    """
    segment = log.segments.active
    found: list[BatchHeader] = []
    if not segment.size:
        return found
    room = log.segment_bytes - segment.size
    end, epoch = log.end_offset, log.leader_epochs.latest_epoch
    entries = max(segment.index_room(log.config.segment_index_bytes), 0)
    for header in islice(headers, start, start + entries):
        room -= header.length
        if room < 0 or header.base_offset < end or header.partition_leader_epoch != epoch:
            break
        if log.roll_due(segment, header.last_offset, header.max_timestamp, now_ms):
            break
        found.append(header)
        if header.is_control and not _commits(records, header):
            break
        end = header.next_offset
    return found


def _commits(records: Buffer, header: BatchHeader) -> bool:
    """Whether a control batch is the marker of a committed transaction."""
    try:
        (record,) = iter_control_records(records, header)
        parse_marker(record.value)
    except (BatchError, ValueError):
        return False
    return record.type == ControlType.COMMIT


def write_run(log: AppendedLog, records: Buffer, headers: Sequence[BatchHeader]) -> None:
    """As `Log.write_batch`, for the batches in `records`, whose headers `fitting` has returned.

    Raises KafkaError KAFKA_STORAGE_ERROR.
    """
    log_dir = log.dir
    if log_dir.failed is not None:
        raise log_dir.storage_error()
    try:
        log.segments.active.append_run(records, headers)
    except (OSError, LogDirDamaged) as e:
        raise log.fail_half_done(e) from e
    log.end_offset = headers[-1].next_offset
    budget = log_dir.budget
    budget.left -= len(records)
    if budget.is_watched:
        budget.written[log] = None
