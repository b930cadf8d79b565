"""Recovery after an unclean stop: scans the log beyond the recovery point and truncates it at the first invalid batch.

The first invalid batch ends the log, because neither it nor later batches were durable. Damage below the recovery point
raises LogDirDamaged. `opening.open_log` decides which scan a log needs.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from kraft_node.log import flushing, names
from kraft_node.log.checkpoints.leader_epochs import LeaderEpochs
from kraft_node.log.config import LONG_MAX
from kraft_node.log.errors import LogDirDamaged
from kraft_node.log.producers.replay import drop_snapshot
from kraft_node.log.recovery import page_cache
from kraft_node.log.segments import txn_index
from kraft_node.log.segments.index import floor_entry
from kraft_node.log.segments.scan import BadBatch, batches

if TYPE_CHECKING:
    from kraft_node.log.log import Log
    from kraft_protocol.records.batch import BatchHeader

logger = logging.getLogger("kraft_node.log")


class _Gaps:
    """Which offsets may be missing: offsets that compaction removed, here or in the log from which this log was
    copied.

    If a topic is no longer compacted, no setting shows that its log has gaps, but the files prove it. A lost write
    leaves no gap within a file. An offset that damage has raised is above the offset of the next batch. So if another
    batch follows the batch behind a gap, compaction made the gap.
    """

    __slots__ = ("_below", "_log")

    def __init__(self, log: Log, compacted_below: int) -> None:
        self._log = log
        self._below = LONG_MAX if log.config.compact else compacted_below

    def may_begin(self, number: int, end: int) -> bool:
        """Whether segment `number` may follow `end`; the rest of it and later segments may prove it.

        Raises OSError.
        """
        log = self._log
        if log.segment_bases[number] <= end:
            return log.segment_bases[number] == end
        for later in range(number, len(log.segment_bases)):
            if end <= self._below:
                return True
            segment = log.segments.at(later)
            expected = segment.base
            with contextlib.suppress(BadBatch):
                for header in batches(segment.file(), 0, segment.size):
                    if header.base_offset != expected and self.may_precede(header, expected, later):
                        break
                    expected = header.next_offset
        return end <= self._below

    def may_precede(self, header: BatchHeader, end: int, number: int) -> bool:
        """Whether the batch in segment `number` may follow `end`."""
        if header.base_offset <= end:
            return header.base_offset == end
        if end > self._below:
            log, segment = self._log, self._log.segments.at(number)
            file = segment.file()
            after = log.recovery_point if segment is log.active else log.segment_end(number)
            with contextlib.suppress(BadBatch):
                for following in batches(file, header.position + header.length, file.size()):
                    after = following.base_offset
                    break
                if after >= header.next_offset:
                    self._below = LONG_MAX
        return end <= self._below


def check_whole(log: Log, end: int) -> None:
    """Read all batches of a log that was damaged. Raises LogDirDamaged unless they are sound and reach offset `end`."""
    reached = log.segment_bases[0]
    for number in range(len(log.segment_bases)):
        segment = log.segments.at(number)
        reached = max(reached, segment.base)
        try:
            for header in batches(segment.file(), 0, segment.size, check=True, tick=log.dir.tick):
                if header.base_offset < reached:
                    raise BadBatch(header.position, f"offset {header.base_offset} comes after {reached - 1}")
                reached = header.next_offset
        except BadBatch as e:
            raise segment.damaged(e, segment.size) from None
    reached = max(reached, log.start_offset)
    if reached < end:
        path = log.segments.at(len(log.segment_bases) - 1).path(names.LOG)
        raise LogDirDamaged(log.dir.path, path, reached, f"the file ends there, {end - reached} offsets are missing")


def recover_tail(log: Log, compacted_below: int, *, epochs_known: bool) -> int | None:
    """Same as `recover`, after a kill on a machine that has not rebooted; None if the whole log must be scanned."""
    promised, known_epochs = log.recovery_point, LeaderEpochs(log.leader_epochs.entries())
    start = page_cache.walk_start(log, epochs_known=epochs_known)
    if start is not None:
        log.recovery_point = start
        with contextlib.suppress(LogDirDamaged):
            walked_from = recover(log, compacted_below, epochs_known=True, same_boot=True)
            log.recovery_point = promised
            return walked_from
    log.recovery_point, log.leader_epochs = promised, known_epochs
    return None


def recover(log: Log, compacted_below: int, *, epochs_known: bool, same_boot: bool = False) -> int:
    """Walk the batches beyond the recovery point, and truncate the log at the first unsound batch. Returns the offset
    where the walk began.

    `same_boot`: the page cache still has the indexes as they were written.
    """
    epochs = log.leader_epochs
    gaps = _Gaps(log, compacted_below)
    if not epochs_known:
        log.recovery_point = min(log.recovery_point, log.segment_bases[0])
    number = log.segment_number(log.recovery_point)
    walked_from = log.segment_bases[number]
    log.end_offset = walked_from
    while number < len(log.segment_bases):
        segment = log.segments.at(number)
        durable = segment.base < log.recovery_point
        start = 0
        if not durable and not gaps.may_begin(number, log.end_offset):
            # The previous segment ends early, exactly between two batches: the next batches were lost. Or it ends
            # late: a truncation was lost.
            _cut_whole(log, number)
            break
        log.end_offset = max(log.end_offset, segment.base)
        if durable:
            start, log.end_offset = _durable_part(log, number, gaps, same_boot=same_boot)
            walked_from = log.end_offset
        else:
            segment.reset_index()
        # Forget state that the scan will add again, so that it does not conflict with itself.
        epochs.truncate_from_end(log.end_offset)
        txn_index.truncate(log.dir.env.disk, segment.path(names.TXN_INDEX), log.end_offset)
        size = segment.size
        try:
            for header in batches(segment.file(), start, size, check=True, tick=log.dir.tick):
                if not gaps.may_precede(header, log.end_offset, number):
                    raise BadBatch(header.position, f"offset {header.base_offset} does not follow {log.end_offset - 1}")
                segment.note(header)
                if header.partition_leader_epoch >= 0:
                    epochs.assign(header.partition_leader_epoch, header.base_offset)
                log.end_offset = header.next_offset
        except BadBatch as e:
            _cut(log, number, e, size)
            break
        segment.size = size
        segment.write_indexes() if segment is log.active else segment.finish()
        number += 1
    if epochs.dirty:
        flushing.write_epochs(log)
    return walked_from


def _durable_part(log: Log, number: int, gaps: _Gaps, *, same_boot: bool) -> tuple[int, int]:
    """Position and offset at which the segment's part beyond the recovery point begins.

    Only batch headers between the last index entry below the recovery point and this point are read. All headers are
    read if the index is missing or wrong. A loss of power can shorten the time index. Batches after its last entry are
    read, too, so the proof never depends on later work with the log.
    """
    segment = log.segments.at(number)
    point, size = log.recovery_point, segment.size
    entry = floor_entry(segment.index_bytes(), point - 1 - segment.base)
    found = None
    if entry is not None and entry[1] < size:
        with contextlib.suppress(BadBatch):
            found = _walk_to(log, number, entry, gaps)
    rebuild = found is None
    if found is None:
        try:
            found = _walk_to(log, number, None, gaps)
        except BadBatch as e:
            raise segment.damaged(e, size) from None
    at, end = found
    if end < log.recovery_point and (segment is log.active or not gaps.may_begin(number + 1, end)):
        raise LogDirDamaged(
            log.dir.path, segment.path(names.LOG), end, f"the file ends there, {point - end} offsets are missing"
        )
    if not rebuild:
        segment.truncate_index(at, end)
        rebuild = not same_boot and segment.lacks_times()
    if rebuild:
        segment.reset_index()
        for header in batches(segment.file(), 0, at):
            segment.note(header)
    segment.size = size
    return at, end


def _walk_to(log: Log, number: int, entry: tuple[int, int] | None, gaps: _Gaps) -> tuple[int, int]:
    """Position and offset of the first batch that ends beyond the recovery point.

    Begins at an index entry, which holds the last offset of its batch. Raises BadBatch for an earlier batch that is
    invalid or does not continue the previous batch.
    """
    point = log.recovery_point
    segment = log.segments.at(number)
    size = segment.size
    end, at = segment.base, 0
    file = segment.file()
    try:
        for header in batches(file, 0 if entry is None else entry[1], size, check=True):
            if entry is not None and header.position == entry[1]:
                if header.last_offset > segment.base + entry[0]:
                    raise BadBatch(header.position, "not the batch that the index means")
            elif not gaps.may_precede(header, end, number):
                raise BadBatch(header.position, f"offset {header.base_offset} does not follow {end - 1}")
            if header.base_offset >= point:
                return header.position, max(end, point)
            if header.next_offset > point:
                log.recovery_point = header.base_offset  # high watermarks can lie within a batch
                return header.position, header.base_offset
            end, at = header.next_offset, header.position + header.length
    except BadBatch:
        if end < point:
            raise
        return at, end
    return size, end


def _cut_whole(log: Log, number: int) -> None:
    """The log ends with the segment before `number`: remove segment `number` and all later segments."""
    before = log.segments.at(number - 1)
    _cut(log, number - 1, BadBatch(before.size, f"the next segment begins at {log.segment_bases[number]}"), before.size)


def _cut(log: Log, number: int, error: BadBatch, size: int) -> None:
    """The log ends before the batch that `error` names: remove it and all later batches."""
    segment = log.segments.at(number)
    lost = size - error.position + sum(log.segments.sizes[number + 1 :])
    logger.warning(
        "log is truncated beyond its recovery point file=%s offset=%d position=%d recovery_point=%d bytes=%d reason=%s",
        segment.path(names.LOG),
        log.end_offset,
        error.position,
        log.recovery_point,
        lost,
        error.reason,
    )
    log.truncations += 1
    for offset in [at for at in log.producer_snapshots if at > log.end_offset]:
        drop_snapshot(log, offset)
    segment = log.segments.keep_first(number + 1)
    segment.file().truncate(error.position)
    segment.size = error.position
    segment.write_indexes()
