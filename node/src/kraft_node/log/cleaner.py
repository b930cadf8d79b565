"""Log compaction (`cleanup.policy=compact`): of each key only the latest record stays (KIP-58, KIP-354, KIP-534).

The dirty part of a log (closed segments, below the last stable offset, older than `min.compaction.lag.ms`) is read into
a map of keys and their latest offsets; then the segments are written anew without the records that the map makes
superfluous, and put in the place of the old ones. Offsets, sequence numbers and leader epochs stay. Tombstones go
`delete.retention.ms` after the pass that first met them.

Reading and writing is work for a lane, in pieces of a millisecond or two: `Cleaning.steps` yields one after the other,
and between them looks on the event loop whether the segments are still the same. Records are found, not decoded. A
dirty batch of which nothing or everything is the latest is not looked into again.

Transactional batches and control batches are copied as they are, and count for no key: what they hold is never lost,
only not compacted. So a tombstone of a key that a transaction has written stays as well, or that record would be the
latest again.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias

from kraft_node.base.env import File
from kraft_node.log import names
from kraft_node.log.errors import LogDirDamaged
from kraft_node.log.flushing import fsync_path
from kraft_node.log.scan import BadBatch, batches
from kraft_node.log.segment import RELATIVE_OFFSET_MAX, Segment
from kraft_node.log.segments import remove_files
from kraft_node.log.validate import codec_level
from kraft_node.records.batch import (
    BatchHeader,
    Record,
    iter_records,
    read_header,
    rebuild_batch,
    records_section,
    thin_batch,
)
from kraft_node.records.errors import BatchError
from kraft_node.records.keys import LONG_KEY, Place, note_keys, places

if TYPE_CHECKING:
    from kraft_node.log.files import Put
    from kraft_node.log.log import Log

logger = logging.getLogger("kraft_node.log")

KEYS_MAX: Final = 200_000
"""Keys in the map of one pass unless `log.cleaner.dedupe.buffer.size` says more; the rest is for later passes."""
KEY_BYTES: Final = 160
"""Memory that a key in the map takes, with its offset."""
SLICE_BYTES: Final = 64 * 1024
"""Bytes of log in one piece of work for the lane: a millisecond or two, for which the event loop may have to wait."""
WHOLE_RATIO: Final = 1.0
STOPPED: Final = -1
"""What a pass has to say that retention, truncation or deletion has ended, or a copy that is being made."""

Work: TypeAlias = Callable[[], None]
Steps: TypeAlias = Generator[Work, None, int]
Slices: TypeAlias = Generator[Work, None, bool]


def first_uncleanable(log: Log, now_ms: int) -> int:
    """The offset from which on nothing may be compacted yet. Raises OSError."""
    end = min(log.active.base, log.last_stable_offset)
    lag = log.config.min_compaction_lag_ms
    if lag > 0:
        bases = log.segment_bases
        for number in range(len(bases) - 1):
            if bases[number] >= end:
                break
            if log.segment(number).largest_timestamp() > now_ms - lag:
                return min(end, bases[number])
    return end


def dirty_ratio(log: Log, first_dirty: int, now_ms: int) -> float:
    """Which share of what can be compacted is dirty; 0 when there is nothing, 1 when `max.compaction.lag.ms` is over.

    Raises OSError.
    """
    end = first_uncleanable(log, now_ms)
    clean = dirty = 0
    overdue = False
    bases, sizes = log.segment_bases, log.segment_sizes()
    for number in range(len(bases) - 1):
        if bases[number] >= end:
            break
        if log.segment_end(number) <= first_dirty:
            clean += sizes[number]
        elif sizes[number]:
            dirty += sizes[number]
            segment = log.segment(number)
            segment.load_first_timestamp()
            overdue |= 0 <= segment.first_timestamp < now_ms - log.config.max_compaction_lag_ms
    if not dirty:
        return 0.0
    return WHOLE_RATIO if overdue else dirty / (clean + dirty)


def _map_key(key: bytes) -> bytes:
    return key if len(key) <= LONG_KEY else blake2b(key, digest_size=16).digest()


class Cleaning:
    """One pass over one log."""

    __slots__ = (
        "_changed",
        "_first_dirty",
        "_keys_max",
        "_last_offsets",
        "_live",
        "_log",
        "_now_ms",
        "_offsets",
        "_transactional",
        "_truncations",
        "_up_to",
        "_whole",
        "_with_tombstones",
        "bytes_after",
        "bytes_before",
    )

    def __init__(self, log: Log, first_dirty: int, now_ms: int, keys_max: int = KEYS_MAX) -> None:
        self._log = log
        self._keys_max = keys_max
        self._first_dirty = max(first_dirty, log.start_offset)
        self._now_ms = now_ms
        self._offsets: dict[bytes, int] = {}
        self._live: list[int] = []
        """The offsets in it, ascending."""
        self._with_tombstones: set[int] = set()
        """Base offsets of dirty batches with tombstones."""
        self._last_offsets: dict[int, int] = {}
        """By producer, as a lane may not look into the log's state."""
        self._whole = False
        """Whether all keys of the last segment were read."""
        self._changed = False
        """Whether the present group differs from what it was."""
        self._transactional: set[bytes] = set()
        """Keys that transactions have written, as far as the segments have been copied; when full, it may be any."""
        self._truncations = log.truncations
        self._up_to = 0
        """Up to where the keys have been read; what lies beyond stays as it is."""
        self.bytes_before = 0
        self.bytes_after = 0

    def steps(self) -> Steps:
        """Do the pass; its result is the offset up to which the log is clean then, STOPPED if it was changed meanwhile.

        Raises OSError, LogDirDamaged, BatchError.
        """
        self._up_to = up_to = yield from self._read_keys(first_uncleanable(self._log, self._now_ms))
        if up_to <= self._first_dirty:
            return up_to
        for group in self._groups(up_to):
            if not self._is_as_it_was(group) or not (yield from self._rewrite(group)):
                return STOPPED
        return up_to if self._is_as_it_was([]) else STOPPED

    def _is_as_it_was(self, group: list[int]) -> bool:
        """Whether retention, truncation, deletion and copying have left those segments alone."""
        log = self._log
        bases = log.segment_bases[:-1]
        is_left = not log.closed and log.twin is None and log.truncations == self._truncations
        return is_left and all(base in bases for base in group)

    def _segment(self, base: int) -> Segment:
        return self._log.segment(self._log.segment_number(base))

    # --- work for a lane ---

    def _in_slices(self, segment: Segment, walk: Generator[None, None, None], group: list[int]) -> Slices:
        """Have a lane go through a segment, a slice at a time; False when the log was changed meanwhile.

        Raises LogDirDamaged.
        """
        ended: list[BadBatch | None] = []

        def work() -> None:
            try:
                next(walk)
            except StopIteration:
                ended.append(None)
            except BadBatch as e:
                ended.append(e)

        while not ended:
            yield work
            if not self._is_as_it_was(group):
                return False
        if ended[0] is not None:
            raise segment.damaged(ended[0], segment.size) from None
        return True

    # --- keys ---

    def _read_keys(self, end: int) -> Steps:
        """Read the keys of the dirty part; up to where that was possible with the memory there is."""
        log = self._log
        self._up_to = self._first_dirty
        waiting = log.segment_bases[log.segment_number(self._first_dirty) : -1]
        for base in waiting:
            if base >= end or len(self._offsets) >= self._keys_max:
                break
            segment, next_base = self._segment(base), log.segment_end(log.segment_number(base))
            file = log.dir.env.disk.open(segment.path(names.LOG), read_only=True)
            try:
                if not (yield from self._in_slices(segment, self._note_keys(file, segment.size, end), waiting)):
                    return STOPPED
            finally:
                file.close()
            if self._whole:  # also where the last offsets of the segment are gone
                self._up_to = max(self._up_to, next_base)
        self._live = sorted(self._offsets.values())
        return min(self._up_to, end)

    def _note_keys(self, file: File, size: int, end: int) -> Generator[None, None, None]:
        handled = 0
        self._whole = False
        for header in batches(file, 0, size):
            if header.base_offset >= end or len(self._offsets) >= self._keys_max:
                return
            handled += header.length
            if header.last_offset >= self._first_dirty:
                if not header.is_control and not header.is_transactional:
                    self._note_batch(file, header)
                self._up_to = header.next_offset
            if handled >= SLICE_BYTES:
                handled = 0
                yield
        self._whole = True

    def _note_batch(self, file: File, header: BatchHeader) -> None:
        raw = file.pread(header.position, header.length)
        header.position = 0  # in what has been read
        data = bytes(records_section(raw, header))
        has_tombstone, long_keys = note_keys(data, header, self._offsets)
        if has_tombstone:
            self._with_tombstones.add(header.base_offset)
        for key in long_keys:
            if key in self._offsets:
                self._offsets[_map_key(key)] = self._offsets.pop(key)

    # --- segments ---

    def _groups(self, up_to: int) -> list[list[int]]:
        """Base offsets of neighbouring segments that fit into one."""
        log = self._log
        groups: list[list[int]] = []
        size = 0
        sizes = log.segment_sizes()
        for number, base in enumerate(log.segment_bases[:-1]):
            if base >= up_to:
                break
            span = log.segment_end(number) - groups[-1][0] if groups else 0
            fits = size + sizes[number] <= log.config.segment_size and span <= RELATIVE_OFFSET_MAX
            # Segments with aborted transactions stay alone, so that their .txnindex stays right.
            alone = bool(groups) and (base in log.txn_bases or groups[-1][-1] in log.txn_bases)
            if groups and fits and not alone:
                groups[-1].append(base)
                size += sizes[number]
            else:
                groups.append([base])
                size = sizes[number]
        return groups

    def _rewrite(self, group: list[int]) -> Slices:
        """Write those segments as one without what is superfluous; False when they were changed meanwhile."""
        log = self._log
        disk = log.dir.env.disk
        path = f"{log.path}/{group[0]:020d}{names.LOG}"
        self._last_offsets = {each.producer_id: each.last_offset for each in log.producers.active()}
        cleaned = disk.open(path + names.CLEANED, create=True)
        new = _NewSegment(log, group[0])
        is_left = True
        before = 0
        self._changed = len(group) > 1
        try:
            cleaned.truncate(0)
            for base in group:
                segment = self._segment(base)
                before += segment.size
                file = disk.open(segment.path(names.LOG), read_only=True)
                try:
                    walk = self._copy(file, segment.size, cleaned, new)
                    is_left = yield from self._in_slices(segment, walk, group)
                finally:
                    file.close()
                if not is_left:
                    break
            if is_left and self._changed:
                yield cleaned.fsync
                is_left = self._is_as_it_was(group)
        finally:
            cleaned.close()
        if not is_left or not self._changed:
            remove_files(disk, [path + names.CLEANED])
            return is_left
        self.bytes_before += before
        self.bytes_after += new.size
        self._swap(group, path, new)
        directory = log.path
        paths = [new.path(suffix) for suffix in (names.LOG, names.INDEX, names.TIME_INDEX)]

        def sync() -> None:
            for path in paths:
                fsync_path(disk, path)
            disk.fsync_dir(directory)

        yield sync
        return True

    def _copy(self, file: File, size: int, cleaned: File, new: _NewSegment) -> Generator[None, None, None]:
        """Copy what stays of a segment behind what is in `cleaned`."""
        handled = 0
        for header in batches(file, 0, size):
            data = file.pread(header.position, header.length)
            kept = self._keep(header, data)
            self._changed |= kept is not data
            if kept:
                position = new.size
                cleaned.pwrite(position, [kept])
                at = read_header(kept)
                at.position = position
                new.note(at)
            handled += header.length
            if handled >= SLICE_BYTES:
                handled = 0
                yield

    def _keep(self, header: BatchHeader, data: bytes) -> bytes:
        """What stays of a batch: itself, a smaller one, or nothing."""
        if header.is_control or header.base_offset >= self._up_to:
            return data
        if header.is_transactional:
            if len(self._transactional) < self._keys_max:
                self._transactional.update(_map_key(each.key) for each in iter_records(data) if each.key is not None)
            return data
        if header.base_offset >= self._first_dirty:
            count = bisect_right(self._live, header.last_offset) - bisect_left(self._live, header.base_offset)
            if not count:
                return self._without_records(header)
            is_plain = header.base_offset not in self._with_tombstones and header.delete_horizon_ms is None
            if count == header.count and is_plain:
                return data
        header.position = 0  # in `data`
        section = bytes(records_section(data, header))
        found = places(section, header)
        kept = [place for place in found if self._is_latest(place, header)]
        if not kept:
            return self._without_records(header)
        if any(place.is_tombstone for place in kept):
            return self._keep_tombstones(header, data)
        if len(kept) == len(found):
            return data
        level = codec_level(self._log.config, header.compression)
        latest = header.base_timestamp + max(place.timestamp_delta for place in kept)
        records = b"".join([section[place.start : place.end] for place in kept])
        return thin_batch(header, records, len(kept), latest, level)

    def _is_latest(self, place: Place, header: BatchHeader) -> bool:
        return place.key is not None and (
            self._offsets.get(_map_key(place.key), -1) <= header.base_offset + place.offset_delta
        )

    def _without_records(self, header: BatchHeader) -> bytes:
        return rebuild_batch(header, []) if self._is_last_of_producer(header) else b""

    def _keep_tombstones(self, header: BatchHeader, data: bytes) -> bytes:
        """What stays of a batch in which tombstones may stay."""
        now = self._now_ms
        horizon = header.delete_horizon_ms
        kept: list[Record] = []
        tombstones = False
        count = 0
        for record in iter_records(data):
            count += 1
            if record.key is None:
                continue
            key = _map_key(record.key)
            if self._offsets.get(key, -1) > record.offset:
                continue
            if record.value is None:
                hides = key in self._transactional or len(self._transactional) >= self._keys_max
                if horizon is not None and now >= horizon and not hides:
                    continue
                tombstones = True
            kept.append(record)
        needs_horizon = tombstones and horizon is None
        if len(kept) == count and not needs_horizon:
            return data
        if not kept:
            return self._without_records(header)
        config = self._log.config
        return rebuild_batch(
            header,
            kept,
            delete_horizon_ms=now + config.delete_retention_ms if needs_horizon else None,
            compression_level=codec_level(config, header.compression),
        )

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the producer's sequence numbers could not be found again without this batch."""
        if header.producer_id < 0:
            return False
        return self._last_offsets.get(header.producer_id) == header.last_offset

    def _swap(self, group: list[int], path: str, new: _NewSegment) -> None:
        """Put the new segment in the place of the group's. Recovery finishes what a crash leaves half done."""
        log = self._log
        log.segments.replace(group, new.size, path + names.CLEANED)
        log.max_timestamp_cache = None
        new.in_place = True
        new.finish()


class _NewSegment(Segment):
    """Gathers index entries while the old segment, whose index files have the same names, is still in place."""

    __slots__ = ("in_place",)

    def __init__(self, log: Log, base: int) -> None:
        super().__init__(log, base)
        self.in_place = False

    def write_indexes(self, put: Put | None = None) -> None:
        if self.in_place:
            super().write_indexes(put)


class Cleaner:
    """Cleans one log at a time, the dirtiest first. Driven by the manager's timer."""

    __slots__ = ("_busy", "_done", "bad", "keys_max")

    def __init__(self, done: Callable[[Log, int], None], keys_max: int = KEYS_MAX) -> None:
        """`done(log, offset)` hears what is clean; `keys_max`: how many keys the map of a pass may hold."""
        self._done = done
        self.keys_max = keys_max
        self._busy = False
        self.bad: dict[str, str] = {}
        """Logs that could not be cleaned, with the path of their directory; the next start tries them again."""

    def start(self, candidates: list[tuple[Log, int]], now_ms: int) -> bool:
        """Begin with the dirtiest of (log, first dirty offset); whether there was one that is dirty enough."""
        if self._busy:
            return False
        best: tuple[float, Log, int] | None = None
        for log, first_dirty in candidates:
            if log.name in self.bad or log.dir.failed is not None:
                continue
            try:
                ratio = dirty_ratio(log, first_dirty, now_ms)
            except (OSError, LogDirDamaged) as e:
                self._gave_up(log, e)
                continue
            enough = ratio >= WHOLE_RATIO or ratio > log.config.min_cleanable_dirty_ratio
            if enough and (best is None or ratio > best[0]):
                best = (ratio, log, first_dirty)
        if best is None:
            return False
        self._busy = True
        _, log, first_dirty = best
        cleaning = Cleaning(log, first_dirty, now_ms, self.keys_max)
        self._go_on(log, cleaning, cleaning.steps())
        return True

    def _go_on(self, log: Log, cleaning: Cleaning, steps: Steps) -> None:
        try:
            work = next(steps)
        except StopIteration as end:
            self._busy = False
            if end.value == STOPPED:
                return
            logger.info(
                "Compacted %s up to offset %d: %d bytes became %d",
                log.name,
                end.value,
                cleaning.bytes_before,
                cleaning.bytes_after,
            )
            self._done(log, end.value)
            return
        except Exception as e:
            self._busy = False
            self._gave_up(log, e)
            return

        def worked(result: BaseException | None) -> None:
            if isinstance(result, BaseException):
                self._busy = False
                steps.close()
                self._gave_up(log, result)
            else:
                self._go_on(log, cleaning, steps)

        log.dir.env.background.submit(f"cleaner:{log.dir.path}", work, worked)

    def _gave_up(self, log: Log, error: BaseException) -> None:
        """A pass has ended early. Raises what nobody expected: the next log has its turn all the same."""
        if log.closed:
            return
        if isinstance(error, LogDirDamaged):
            log.dir.damaged(log, error)
        elif isinstance(error, OSError):
            log.dir.fail(error)  # without a descriptor it is tried again the next time
        else:
            self.bad[log.name] = log.dir.path
            logger.error("log cannot be compacted log=%s reason=%r", log.name, error)
            if not isinstance(error, BatchError):
                raise error
