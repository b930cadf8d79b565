"""Opens a log: finds its files and its end, and after an unclean stop decides which data to trust.

After a clean stop only the few batches after the last index entry are scanned. After an unclean stop everything above
the recovery point is scanned, and all CRCs are checked. The first invalid batch ends the log, because it and
everything after it was not durable. Damage below the recovery point is different: these records were durable and may
have been committed, so opening is refused (`LogDirDamaged`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kraft_node.base.env import read_file
from kraft_node.log import flushing, names
from kraft_node.log.checkpoints.leader_epochs import LeaderEpochs
from kraft_node.log.checkpoints.offsets import CheckpointError, parse_epochs
from kraft_node.log.config import LogConfig, draw_jitter
from kraft_node.log.log_dir import LogDir
from kraft_node.log.producers.replay import load_producers
from kraft_node.log.recovery.walking import check_whole, recover, recover_tail
from kraft_node.log.segments.files import remove_if_there
from kraft_node.log.segments.scan import BadBatch, batches

if TYPE_CHECKING:
    from kraft_node.log.log import Log

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
    must_reach: int | None = None,
) -> Log:
    """Open the log in the existing directory `path`. `clean`: it was closed properly, and all of it is durable.

    `same_boot`: it was not closed properly, but all its data is in the page cache (`page_cache`). The checkpointed
    offsets count as lower bounds. Below `compacted_below` offsets may be missing, whatever the present cleanup policy
    is. `must_reach`: the log was damaged, and whole it ends at this offset; all of it is read, and nothing is cut.
    Raises OSError, LogDirDamaged, KafkaError (the same errors, after they were reported to the directory)."""
    from kraft_node.log.log import Log  # noqa: PLC0415

    log = Log(log_dir, path, topic, partition, config)
    bases = _settle_files(log)
    _load_segments(log, bases, start_offset)
    if must_reach is not None:
        check_whole(log, must_reach)
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
            replay_from = recover_tail(log, compacted_below, epochs_known=epochs_known)
        if replay_from is None:
            replay_from = recover(log, compacted_below, epochs_known=epochs_known)
        log.cuts_synced = -1  # truncations of the previous process may not be durable
        _restore_trimmed_epochs(log)
    if log.start_offset > log.end_offset:
        logger.warning("earlier records of a log are lost log=%s start=%d", log.name, log.start_offset)
        log.reset_to(log.start_offset, in_steps=False)
    log.recovery_point = min(log.recovery_point, log.end_offset)
    log.high_watermark = min(max(high_watermark, log.start_offset), log.end_offset)
    log.leader_epochs.truncate_from_end(log.end_offset)
    log.leader_epochs.truncate_from_start(log.start_offset)
    if log.producer_snapshots or (log.end_offset > log.segment_bases[0] and not clean):
        load_producers(log, replay_from=replay_from)
    log.active.load_first_timestamp()
    now_ms = log_dir.env.clock.wall_ms()
    log.created_ms = log.last_flush_ms = now_ms
    log.jitter_ms = draw_jitter(log.config, log_dir.env.rng)
    return log


def _load_segments(log: Log, bases: list[int], start_offset: int) -> None:
    if not bases:
        log.segments.load([start_offset], [0])
        log.end_offset = start_offset
    else:
        disk = log.dir.env.disk
        sizes = [disk.size(f"{log.path}/{base:020d}{names.LOG}") for base in bases]
        log.segments.load(bases, sizes)
    log.start_offset = max(start_offset, log.segment_bases[0])


def new_log(log_dir: LogDir, path: str, topic: str, partition: int, config: LogConfig) -> Log:
    """The log of a new directory."""
    from kraft_node.log.log import Log  # noqa: PLC0415

    log = Log(log_dir, path, topic, partition, config)
    log.created_ms = log.last_flush_ms = log_dir.env.clock.wall_ms()
    log.jitter_ms = draw_jitter(log.config, log_dir.env.rng)
    return log


def _settle_files(log: Log) -> list[int]:
    """Finish or undo changes that a crash interrupted. Returns the base offsets of the segments, ascending."""
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
            log.producers.snapshots += (base,)
        elif name.endswith((names.INDEX, names.TIME_INDEX, names.TXN_INDEX)):
            if base not in known:
                disk.remove(f"{log.path}/{name}")
            elif name.endswith(names.TXN_INDEX):
                log.txn_bases += (base,)
    return bases


def _finish_swaps(log: Log, found: list[str]) -> list[str]:
    """Remove .deleted, .cleaned and .tmp files; put compacted .swap segments in the place of the replaced segments.

    A swap is trusted only if no .cleaned file exists at or below it. The renames to .swap happen in descending order,
    so a leftover means that some renames are missing. Apache Kafka's segments have all their indexes, ours have the
    index of aborted transactions, which is renamed before the .log.
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
            logger.info("finished an interrupted compaction file=%s/%020d.log", path, base)
        disk.rename(f"{path}/{name}", f"{path}/{name.removesuffix(names.SWAP)}")
    return disk.listdir(path)


def _remove_replaced(log: Log, name: str, base: int, bases: list[int], keep: str) -> None:
    """Remove the segments that the compacted segment at `base`, in file `name`, replaces; `keep` files of its own
    stay."""
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
                    remove_if_there(log.dir.env.disk, f"{log.path}/{other:020d}{suffix}")


def _find_end(log: Log) -> int:
    """The end of a log that was closed properly: after the batches after the active segment's last index entry."""
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


def _read_epochs(log: Log) -> tuple[LeaderEpochs, bool]:
    """The leader epochs in the file, and whether the file was complete (an empty log does not need the file)."""
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
        logger.warning("leader epochs are read from batches log=%s file=%s error=%s", log.name, path, e)
        return LeaderEpochs(), False


def _rebuild_epochs(log: Log) -> None:
    """Find the leader epochs in the batch headers: the file was lost."""
    _add_epochs(log, log.leader_epochs, 0, log.end_offset)
    if log.leader_epochs.dirty:
        flushing.write_epochs(log)


def _restore_trimmed_epochs(log: Log) -> None:
    """Find the epochs of deleted records that a kill or a loss of power brought back.

    DeleteRecords and retention trim the epochs. The trimmed file can be durable before the log's new start is. If all
    records were deleted, a truncation to the end removes the last epoch, too.
    """
    trimmed = log.leader_epochs.entries()
    begin = trimmed[0][1] if trimmed else log.end_offset
    if begin <= log.start_offset:
        return
    epochs = LeaderEpochs()
    _add_epochs(log, epochs, log.segment_number(log.start_offset), begin)
    for epoch, start in trimmed:
        epochs.assign(epoch, start)
    if epochs.entries() != trimmed:
        log.leader_epochs = epochs
        flushing.write_epochs(log)


def _add_epochs(log: Log, epochs: LeaderEpochs, number: int, end: int) -> None:
    """Add the epochs of the batches from segment `number` up to offset `end`. Raises LogDirDamaged."""
    while number < len(log.segment_bases) and log.segment_bases[number] < end:
        segment = log.segments.at(number)
        try:
            for header in batches(segment.file(), 0, segment.size):
                if header.base_offset >= end:
                    break
                if header.partition_leader_epoch >= 0:
                    epochs.assign(header.partition_leader_epoch, header.base_offset)
        except BadBatch as e:
            raise segment.damaged(e, segment.size) from None
        number += 1
