"""The producers of a log that is opened or truncated: the newest usable snapshot, and the batch headers after it."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from kraft_node.base.env import read_file
from kraft_node.log import names
from kraft_node.log.appending import end_transaction
from kraft_node.log.producers.snapshot import SnapshotError, decode_snapshot, encode_snapshot
from kraft_node.log.segments.content import control_records_of
from kraft_node.log.segments.files import Put, remove_if_there, write_file
from kraft_node.log.segments.scan import BadBatch, batches
from kraft_protocol.records.control import ControlType, parse_control_key, parse_marker
from kraft_protocol.records.errors import BatchError

if TYPE_CHECKING:
    from kraft_node.log.seams import ReplayedLog
    from kraft_protocol.records.batch import BatchHeader

logger = logging.getLogger("kraft_node.log")


def load_producers(log: ReplayedLog, *, replay_from: int | None) -> None:
    """Build the producer state from the newest usable snapshot and the batch headers after it.

    `replay_from`: from there on the log was scanned again, and aborted transactions are added to the index again.
    Raises OSError, LogDirDamaged.
    """
    producers = log.producers
    producers.clear()
    bound = log.end_offset if replay_from is None else replay_from
    # Deleted records count as long as they exist: a producer continues after its last record.
    start = log.segments.first_base
    for offset in [at for at in producers.snapshots if at > bound]:
        drop_snapshot(log, offset)
    for offset in reversed(list(producers.snapshots)):
        path = f"{log.path}/{offset:020d}{names.PRODUCER_SNAPSHOT}"
        try:
            for producer in decode_snapshot(read_file(log.dir.env.disk, path)):
                producers.load(producer)
        except SnapshotError as e:
            logger.warning("producers are rebuilt from older data log=%s file=%s error=%s", log.name, path, e)
            drop_snapshot(log, offset)
            continue
        start = max(offset, start)
        break
    _replay(log, start, log.end_offset if replay_from is None else replay_from)


def take_snapshot(log: ReplayedLog, offset: int, put: Put | None = None) -> None:
    """Write the producers as of `offset` (or have `put` do so), unless this snapshot exists. Raises OSError."""
    known = log.producers.snapshots
    if offset not in known:
        put = put or partial(write_file, log.dir.env.disk)
        put(f"{log.path}/{offset:020d}{names.PRODUCER_SNAPSHOT}", 0, encode_snapshot(log.producers))
        log.producers.snapshots = tuple(sorted((*known, offset)))
        log.names_changed += 1


def keep_producers(log: ReplayedLog, put: Put | None = None) -> bool:
    """Before a log is closed, write a snapshot of its producers, because clean logs are opened from snapshots only.

    Returns whether the snapshot is new. Raises OSError.
    """
    producers = log.known_producers
    if producers is None or log.end_offset in producers.snapshots or not (producers.snapshots or len(producers)):
        return False
    log.take_snapshot(log.end_offset, put)
    return True


def drop_snapshot(log: ReplayedLog, offset: int) -> None:
    """Remove the snapshot of the producers at `offset`; its file may be missing. Raises OSError."""
    log.producers.snapshots = tuple(at for at in log.producers.snapshots if at != offset)
    remove_if_there(log.dir.env.disk, f"{log.path}/{offset:020d}{names.PRODUCER_SNAPSHOT}")


def _replay(log: ReplayedLog, start: int, indexed_below: int) -> None:
    if start >= log.end_offset:
        return
    for number in range(log.segment_number(start), len(log.segments)):
        segment = log.segments.at(number)
        if segment.base > start and segment.base not in log.producer_snapshots:
            log.take_snapshot(segment.base)
        position = segment.lookup(start) if start > segment.base and segment.size else 0
        try:
            for header in batches(segment.file(), position, segment.size, tick=log.dir.tick):
                if header.producer_id >= 0 and header.base_offset >= start:
                    if header.is_control:
                        _replay_marker(log, number, header, indexed=header.base_offset < indexed_below)
                    else:
                        log.producers.appended(header, header.base_offset)
        except (BadBatch, BatchError) as e:
            bad = e if isinstance(e, BadBatch) else BadBatch(e.position, e.reason)
            raise segment.damaged(bad, segment.size) from None


def _replay_marker(log: ReplayedLog, number: int, header: BatchHeader, *, indexed: bool) -> None:
    for record in control_records_of(log.segments.at(number), header):
        kind = parse_control_key(record.key)
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            epoch = parse_marker(record.value)
            end_transaction(log, header, record.offset, epoch, aborted=kind == ControlType.ABORT, indexed=indexed)
