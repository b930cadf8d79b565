"""Opens a log: what is there, where it ends, and after an unclean stop what of it can be trusted.

After a clean stop nothing is scanned but the few batches behind the last index entry. After an unclean one everything
beyond the recovery point is walked and its CRCs proven: the first batch that is not sound ends the log, for it and what
follows had not been made durable. Damage below the recovery point is another matter: those records were durable, may
have been committed, and opening is refused (`LogDirDamaged`).
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Final

from kraft_node.base.env import read_file
from kraft_node.log import flushing, names, page_cache, txn_index
from kraft_node.log.appending import end_transaction
from kraft_node.log.checkpoints import CheckpointError, parse_epochs
from kraft_node.log.config import LONG_MAX, LogConfig, draw_jitter
from kraft_node.log.epochs import LeaderEpochs
from kraft_node.log.errors import LogDirDamaged
from kraft_node.log.files import LogDir
from kraft_node.log.index import floor_entry
from kraft_node.log.lookup import control_records_of
from kraft_node.log.producer_snapshot import SnapshotError, decode_snapshot
from kraft_node.log.scan import BadBatch, batches
from kraft_node.records.control import ControlType, parse_control_key, parse_marker
from kraft_node.records.errors import BatchError

if TYPE_CHECKING:
    from kraft_node.log.log import Log
    from kraft_node.records.batch import BatchHeader

logger = logging.getLogger("kraft_node.log")

NEVER_COMPACTED: Final = -1


def open_log(
    log_dir: LogDir,
    path: str,
    topic: str,
    partition: int,
    config: LogConfig,
    *,
    clean: bool = True,
    recovery_point: int = 0,
    start_offset: int = 0,
    high_watermark: int = 0,
    compacted_below: int = NEVER_COMPACTED,
    same_boot: bool = False,
) -> Log:
    """Open the log in directory `path` (which exists). `clean`: it was closed properly, all of it is durable.

    `same_boot`: it was not, but all that was written to it is in the page cache (`page_cache`). The checkpointed
    offsets are taken as lower bounds. Below `compacted_below` offsets may be missing whatever the policy is now.
    Raises OSError, LogDirDamaged, KafkaError (the same, with the directory told).
    """
    from kraft_node.log.log import Log  # noqa: PLC0415

    log = Log(log_dir, path, topic, partition, config)
    bases = _settle_files(log)
    if not bases:
        log.segments.load([start_offset], [0])
        log.end_offset = start_offset
    else:
        disk = log_dir.env.disk
        sizes = [disk.size(f"{path}/{base:020d}{names.LOG}") for base in bases]
        log.segments.load(bases, sizes)
    log.start_offset = max(start_offset, log.segment_bases[0])
    log.recovery_point = recovery_point
    log.leader_epochs, epochs_known = _read_epochs(log)
    replay_from: int | None = None
    if bases and clean:
        log.end_offset = _find_end(log)
        log.recovery_point = log.end_offset
        if not epochs_known:
            _rebuild_epochs(log)
    elif bases:
        if same_boot:
            replay_from = _recover_tail(log, compacted_below, epochs_known=epochs_known)
        if replay_from is None:
            replay_from = _recover(log, compacted_below, epochs_known=epochs_known)
        log.cuts_synced = -1  # what the process before had cut off may not be durable
    if log.start_offset > log.end_offset:
        logger.warning("%s goes on at %d, where it began: what was before it is lost", log.name, log.start_offset)
        log.reset_to(log.start_offset)
    log.recovery_point = min(log.recovery_point, log.end_offset)
    log.high_watermark = min(max(high_watermark, log.start_offset), log.end_offset)
    log.leader_epochs.truncate_from_end(log.end_offset)
    log.leader_epochs.truncate_from_start(log.start_offset)
    if log.producers.snapshots or (log.end_offset > log.segment_bases[0] and not clean):
        load_producers(log, replay_from=replay_from)
    log.active.load_first_timestamp()
    now_ms = log_dir.env.clock.wall_ms()
    log.created_ms = log.last_flush_ms = now_ms
    log.jitter_ms = draw_jitter(log.config, log_dir.env.rng)
    return log


def new_log(log_dir: LogDir, path: str, topic: str, partition: int, config: LogConfig) -> Log:
    """The log of a directory that has just been made."""
    from kraft_node.log.log import Log  # noqa: PLC0415

    log = Log(log_dir, path, topic, partition, config)
    log.created_ms = log.last_flush_ms = log_dir.env.clock.wall_ms()
    log.jitter_ms = draw_jitter(log.config, log_dir.env.rng)
    return log


def _settle_files(log: Log) -> list[int]:
    """Finish or undo what a crash left half done; the base offsets of the segments, ascending."""
    disk = log.dir.env.disk
    found = disk.listdir(log.path)
    swapped = [name for name in found if name.endswith(names.SWAP)]
    if swapped or any(name.endswith((names.CLEANED, names.DELETED, ".tmp")) for name in found):
        found = _finish_swaps(log, found)
    bases = [base for name in found if name.endswith(names.LOG) and (base := names.parse_offset(name)) is not None]
    known = set(bases)
    for name in found:
        base = names.parse_offset(name)
        if base is None:
            continue
        if name.endswith(names.PRODUCER_SNAPSHOT):
            log.producers.snapshots.append(base)
        elif name.endswith((names.INDEX, names.TIME_INDEX, names.TXN_INDEX)):
            if base not in known:
                disk.remove(f"{log.path}/{name}")
            elif name.endswith(names.TXN_INDEX):
                log.txn_bases.append(base)
    return bases


def _finish_swaps(log: Log, found: list[str]) -> list[str]:
    """Remove .deleted, .cleaned and .tmp files; put compacted .swap segments in the place of what they replace.

    A swap is trusted only when no .cleaned file is left at or below it: the renames to .swap happen in descending
    order, so a left-over means that not all were made. Apache Kafka's segments come with all their indexes, ours with
    the index of aborted transactions, which gets its name before the .log does.
    """
    disk = log.dir.env.disk
    path = log.path
    cleaned = [base for name in found if names.CLEANED in name and (base := names.parse_offset(name)) is not None]
    first_cleaned = min(cleaned, default=None)
    for name in found:
        if name.endswith((names.DELETED, names.CLEANED, ".tmp")):
            disk.remove(f"{path}/{name}")
    bases = sorted(
        base for name in found if name.endswith(names.LOG) and (base := names.parse_offset(name)) is not None
    )
    swaps = [name for name in found if name.endswith(names.SWAP)]
    for name in sorted(swaps, key=lambda name: not name.endswith(names.LOG + names.SWAP)):
        base = names.parse_offset(name)
        if base is not None and first_cleaned is not None and base >= first_cleaned:
            disk.remove(f"{path}/{name}")
            continue
        if base is not None and name.endswith(names.LOG + names.SWAP):
            indexes = (names.INDEX, names.TXN_INDEX)
            has_own = any(names.offset_name(base, suffix + names.SWAP) in swaps for suffix in indexes)
            keep = "" if has_own else names.TXN_INDEX
            _remove_replaced(log, name, base, bases, keep)
            logger.info("Finished the compaction of %s/%020d.log that a crash interrupted", path, base)
        disk.rename(f"{path}/{name}", f"{path}/{name.removesuffix(names.SWAP)}")
    return disk.listdir(path)


def _remove_replaced(log: Log, name: str, base: int, bases: list[int], keep: str) -> None:
    """Remove the segments that the compacted one at `base`, in the file `name`, replaces; of its own `keep` stays."""
    disk = log.dir.env.disk
    end = base
    file = disk.open(f"{log.path}/{name}", read_only=True)
    try:
        for header in batches(file, 0, file.size()):
            end = header.last_offset
    except BadBatch:
        pass
    finally:
        file.close()
    for other in bases:
        if base <= other <= end:
            for suffix in names.SEGMENT_SUFFIXES:
                if other != base or suffix != keep:
                    _remove_if_there(log, f"{log.path}/{other:020d}{suffix}")


def _remove_if_there(log: Log, path: str) -> None:
    if log.dir.env.disk.exists(path):
        log.dir.env.disk.remove(path)


def _find_end(log: Log) -> int:
    """The end of a log that was closed properly: behind the batches after the active segment's last index entry."""
    segment = log.active
    if segment.size == 0:
        segment.index_count = segment.time_count = 0
        return segment.base
    segment.load_index()
    end = segment.base
    position = segment.lookup(2**62)
    try:
        for header in batches(segment.file(), position, segment.size):
            end = header.next_offset
    except BadBatch as e:
        raise segment.damaged(e, segment.size) from None
    return end


class _Gaps:
    """Which offsets may be missing: those that compaction has removed, here or where the log was copied from.

    A replica whose topic is no longer compacted has nothing that says so, but its files prove it: a lost write leaves
    no gap within a file, and an offset that has been damaged upwards is above that of the next batch. So a gap in front
    of a batch that another one follows is none of these, and the log one that has been compacted.
    """

    __slots__ = ("_below", "_log")

    def __init__(self, log: Log, compacted_below: int) -> None:
        self._log = log
        self._below = LONG_MAX if log.config.compact else compacted_below

    def may_begin(self, number: int, end: int) -> bool:
        """Whether segment `number` may come after `end`: also what follows in it and later segments may prove it.

        Raises OSError.
        """
        log = self._log
        if log.segment_bases[number] <= end:
            return log.segment_bases[number] == end
        for later in range(number, len(log.segment_bases)):
            if end <= self._below:
                return True
            segment = log.segment(later)
            expected = segment.base
            with contextlib.suppress(BadBatch):
                for header in batches(segment.file(), 0, segment.size):
                    if header.base_offset != expected and self.may_precede(header, expected, later):
                        break
                    expected = header.next_offset
        return end <= self._below

    def may_precede(self, header: BatchHeader, end: int, number: int) -> bool:
        """Whether the batch in segment `number` may be what comes after `end`."""
        if header.base_offset <= end:
            return header.base_offset == end
        if end > self._below:
            log, segment = self._log, self._log.segment(number)
            file = segment.file()
            after = log.recovery_point if segment is log.active else log.segment_end(number)
            with contextlib.suppress(BadBatch):
                for following in batches(file, header.position + header.length, file.size()):
                    after = following.base_offset
                    break
                if after >= header.next_offset:
                    self._below = LONG_MAX
        return end <= self._below


def _recover_tail(log: Log, compacted_below: int, *, epochs_known: bool) -> int | None:
    """The same after a kill on a machine that has not booted since; None if the log must be walked as a whole."""
    promised, known_epochs = log.recovery_point, LeaderEpochs(log.leader_epochs.entries())
    start = page_cache.walk_start(log, epochs_known=epochs_known)
    if start is not None:
        log.recovery_point = start
        with contextlib.suppress(LogDirDamaged):
            walked_from = _recover(log, compacted_below, epochs_known=True)
            log.active.times_unproven = False
            log.recovery_point = promised
            return walked_from
    log.recovery_point, log.leader_epochs = promised, known_epochs
    return None


def _recover(log: Log, compacted_below: int, *, epochs_known: bool) -> int:
    """Walk what lies beyond the recovery point, cut off what is not sound; the offset from which was walked."""
    epochs = log.leader_epochs
    gaps = _Gaps(log, compacted_below)
    if not epochs_known:
        log.recovery_point = min(log.recovery_point, log.segment_bases[0])
    number = log.segment_number(log.recovery_point)
    walked_from = log.segment_bases[number]
    log.end_offset = walked_from
    while number < len(log.segment_bases):
        segment = log.segment(number)
        durable = segment.base < log.recovery_point
        start = 0
        if not durable and not gaps.may_begin(number, log.end_offset):
            # The segment before ends early, just between two batches: what would have followed was lost. Or it ends
            # late: a cut has been lost.
            _cut_whole(log, number)
            break
        log.end_offset = max(log.end_offset, segment.base)
        if durable:
            start, log.end_offset = _durable_part(log, number, gaps)
            walked_from = log.end_offset
        else:
            segment.reset_index()
        # What the walk will meet again must not stand in the way of itself.
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


def _durable_part(log: Log, number: int, gaps: _Gaps) -> tuple[int, int]:
    """Position and offset at which the segment's part beyond the recovery point begins.

    Only batch headers between the last index entry below the recovery point and that point are read; all of them when
    the index is missing or misleads.
    """
    segment = log.segment(number)
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
    if rebuild:
        segment.reset_index()
        for header in batches(segment.file(), 0, at):
            segment.note(header)
    else:
        segment.truncate_index(at, end)
        segment.times_unproven = True
    segment.size = size
    return at, end


def _walk_to(log: Log, number: int, entry: tuple[int, int] | None, gaps: _Gaps) -> tuple[int, int]:
    """Position and offset of the first batch that ends beyond the recovery point.

    Begins at an index entry, which holds the last offset of the batch that it points to. Raises BadBatch for a batch
    that is not sound before, or does not go on from the one in front of it.
    """
    point = log.recovery_point
    segment = log.segment(number)
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
    """The log ends with the segment before `number`: remove that and all later ones."""
    before = log.segment(number - 1)
    _cut(log, number - 1, BadBatch(before.size, f"the next segment begins at {log.segment_bases[number]}"), before.size)


def _cut(log: Log, number: int, error: BadBatch, size: int) -> None:
    """The log ends before the batch that `error` is about: remove it and all that follows."""
    segment = log.segment(number)
    lost = size - error.position + sum(log.segment_sizes()[number + 1 :])
    logger.warning(
        "Truncating %s at offset %d (byte %d), which is beyond the recovery point %d: %s; %d bytes go",
        segment.path(names.LOG),
        log.end_offset,
        error.position,
        log.recovery_point,
        error.reason,
        lost,
    )
    log.truncations += 1
    for offset in [at for at in log.producers.snapshots if at > log.end_offset]:
        _drop_snapshot(log, offset)
    segment = log.segments.keep_first(number + 1)
    segment.file().truncate(error.position)
    segment.size = error.position
    segment.write_indexes()


def _read_epochs(log: Log) -> tuple[LeaderEpochs, bool]:
    """The leader epochs on file, and whether the file was whole (an empty log needs none)."""
    path = f"{log.path}/{names.LEADER_EPOCH_CHECKPOINT}"
    try:
        data = read_file(log.dir.env.disk, path)
    except FileNotFoundError:
        data = b""
    if not data:  # as Apache Kafka makes it with the log, and this node not before the first flush
        return LeaderEpochs(), log.active.size == 0 and len(log.segment_bases) == 1
    try:
        return LeaderEpochs(parse_epochs(data)), True
    except CheckpointError as e:
        logger.warning("Finding the leader epochs of %s in its batches: %s: %s", log.name, path, e)
        return LeaderEpochs(), False


def _rebuild_epochs(log: Log) -> None:
    """Find the leader epochs in the batch headers: the file was lost."""
    for number in range(len(log.segment_bases)):
        segment = log.segment(number)
        try:
            for header in batches(segment.file(), 0, segment.size):
                if header.partition_leader_epoch >= 0:
                    log.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
        except BadBatch as e:
            raise segment.damaged(e, segment.size) from None
    if log.leader_epochs.dirty:
        flushing.write_epochs(log)


# --- producers ---


def load_producers(log: Log, *, replay_from: int | None) -> None:
    """Build the producer state from the newest usable snapshot and the batch headers behind it.

    `replay_from`: from there on the log has been walked anew and the aborted transactions are put into the index
    again. Raises OSError, LogDirDamaged.
    """
    producers = log.producers
    producers.clear()
    bound = log.end_offset if replay_from is None else replay_from
    # Deleted records count as long as they are there: a producer goes on behind its last one.
    start = log.segment_bases[0]
    for offset in [at for at in producers.snapshots if at > bound]:
        _drop_snapshot(log, offset)
    for offset in reversed(list(producers.snapshots)):
        path = f"{log.path}/{offset:020d}{names.PRODUCER_SNAPSHOT}"
        try:
            for producer in decode_snapshot(read_file(log.dir.env.disk, path)):
                producers.load(producer)
        except SnapshotError as e:
            logger.warning("Rebuilding the producers of %s from older data: %s: %s", log.name, path, e)
            _drop_snapshot(log, offset)
            continue
        start = max(offset, start)
        break
    _replay(log, start, log.end_offset if replay_from is None else replay_from)


def _drop_snapshot(log: Log, offset: int) -> None:
    log.producers.snapshots.remove(offset)
    _remove_if_there(log, f"{log.path}/{offset:020d}{names.PRODUCER_SNAPSHOT}")


def _replay(log: Log, start: int, indexed_below: int) -> None:
    if start >= log.end_offset:
        return
    for number in range(log.segment_number(start), len(log.segment_bases)):
        segment = log.segment(number)
        if segment.base > start and segment.base not in log.producers.snapshots:
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


def _replay_marker(log: Log, number: int, header: BatchHeader, *, indexed: bool) -> None:
    for record in control_records_of(log.segment(number), header):
        kind = parse_control_key(record.key)
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            epoch = parse_marker(record.value)
            end_transaction(log, header, record.offset, epoch, aborted=kind == ControlType.ABORT, indexed=indexed)
