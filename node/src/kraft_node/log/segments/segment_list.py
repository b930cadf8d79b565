"""The segments of one log: their files, their open files, and their order.

Only `SegmentList` adds, replaces and drops segments. A dropped segment drops its open files in the same step, and its
files are set aside. Their disk space is free `file.delete.delay.ms` later in any case. Readers that are still sending
hold the file itself (`FileSlice`): the descriptor is closed when the last of them is done.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol

from kraft_node.base.env import Disk
from kraft_node.log import names
from kraft_node.log.resting.segment_files import Owner
from kraft_node.log.segments.segment import Segment

if TYPE_CHECKING:
    from kraft_node.log.config import LogConfig

CLOSED_KEPT: Final = 8
"""Closed segments kept as objects after a read; a reader uses one at a time."""

_NO_CLOSED: Final[list[int]] = []
_NONE_KEPT: Final[dict[int, Segment]] = {}
"""Shared by all logs without closed segments, and never added to: most logs have no closed segments."""

UNKNOWN: Final = -2
"""The largest timestamp of a segment with an unread index; -1: a segment without timestamps."""


class ListOwner(Owner, Protocol):
    """What a list of segments needs of its log."""

    config: LogConfig
    txn_bases: tuple[int, ...]


class SegmentList:
    """Closed segments ordered by offset, and the active segment after them."""

    __slots__ = ("_bases", "_kept", "_largest", "_largest_from", "_owner", "_sizes", "_times", "active")

    def __init__(self, owner: ListOwner) -> None:
        self._owner = owner
        self._bases = _NO_CLOSED
        self._sizes = _NO_CLOSED
        self._times = _NO_CLOSED
        """Largest timestamps of the closed segments."""
        self._largest: list[int] | None = None
        """The largest timestamp from segment `_largest_from` up to each closed one; None if it must be computed
        again."""
        self._largest_from = 0
        self._kept = _NONE_KEPT
        """Objects of closed segments; the others are made anew on demand."""
        self.active = Segment(owner, 0)

    def __len__(self) -> int:
        return len(self._bases) + 1

    # --- access ---

    @property
    def bases(self) -> list[int]:
        """Base offsets of all segments, ascending."""
        return [*self._bases, self.active.base]

    @property
    def sizes(self) -> list[int]:
        """Bytes of the .log files, in the same order."""
        return [*self._sizes, self.active.size]

    @property
    def size_bytes(self) -> int:
        """Bytes of all .log files."""
        return sum(self._sizes) + self.active.size

    @property
    def first_base(self) -> int:
        """The base offset of the first segment."""
        return self._bases[0] if self._bases else self.active.base

    def base_at(self, number: int) -> int:
        """The base offset of the segment with that number."""
        return self._bases[number] if number < len(self._bases) else self.active.base

    def size_at(self, number: int) -> int:
        """The size of its .log file."""
        return self._sizes[number] if number < len(self._sizes) else self.active.size

    def age_timestamp(self, number: int) -> int:
        """The time from which a segment's age counts: its largest timestamp, else its modification time.

        Raises OSError.
        """
        known = self.max_timestamp(number)
        return known if known >= 0 else self.at(number).largest_timestamp()

    def at(self, number: int) -> Segment:
        """The segment with that number in `bases`."""
        if number >= len(self._bases):
            return self.active
        base = self._bases[number]
        segment = self._kept.get(base)
        if segment is None:
            segment = self._keep(Segment(self._owner, base, self._sizes[number]))
        return segment

    def max_timestamp(self, number: int) -> int:
        """The largest timestamp of the segment; read once from the files of a closed segment. Raises OSError."""
        known = self._times[number] if number < len(self._times) else UNKNOWN
        if known == UNKNOWN:
            segment = self.at(number)
            segment.load_index()
            known = segment.max_timestamp
            if number < len(self._times):
                self._times[number] = known
                self._largest = None
        return known

    @property
    def files_mark(self) -> object:
        """An object that a replacement of files exchanges: a lane's findings about older files are stale."""
        return self._bases

    def unread(self, first: int) -> list[tuple[int, int]]:
        """(base, size) of the closed segments from number `first` on with unknown largest timestamps."""
        times = self._times
        if UNKNOWN not in times:
            return []
        return [(self._bases[at], self._sizes[at]) for at in range(first, len(times)) if times[at] == UNKNOWN]

    def learn_times(self, found: Mapping[int, int]) -> None:
        """Take the largest timestamps, by base, that a lane has read from the files of closed segments."""
        for at, base in enumerate(self._bases):
            if self._times[at] == UNKNOWN and base in found:
                self._times[at] = found[base]
        self._largest = None

    def first_reaching(self, first: int, timestamp: int) -> int:
        """The number of the first closed segment from `first` on with a record not older than `timestamp`.

        `len(self) - 1`, the active segment, if no closed segment fits. Unknown times are read. Raises OSError.
        """
        largest = self._largest
        if largest is None or self._largest_from != first:
            for number in range(first, len(self._times)):
                self.max_timestamp(number)
            largest = self._largest = list(accumulate(self._times[first:], max))
            self._largest_from = first
        return first + bisect_left(largest, timestamp)

    def number_of(self, offset: int) -> int:
        """The number of the segment that holds `offset`; 0 for offsets before all segments."""
        if offset >= self.active.base:
            return len(self._bases)
        return max(bisect_right(self._bases, offset) - 1, 0)

    def end_of(self, number: int) -> int | None:
        """The base of the segment after that segment; None for the active segment."""
        if number >= len(self._bases):
            return None
        return self._bases[number + 1] if number + 1 < len(self._bases) else self.active.base

    # --- adding, replacing, dropping ---

    def load(self, bases: Sequence[int], sizes: Sequence[int]) -> None:
        """Take the segments found on disk; the last segment becomes active."""
        self._retire(self._kept)
        self.active.retire()
        self._bases = self._sizes = self._times = _NO_CLOSED
        if len(bases) > 1:
            self._bases, self._sizes = list(bases[:-1]), list(sizes[:-1])
            self._times = [UNKNOWN] * len(self._bases)
        self._largest = None
        self.active = Segment(self._owner, bases[-1], sizes[-1])

    def begin(self, base: int) -> Segment:
        """Append to a new segment at `base` from now on; it replaces an active segment without records. Raises OSError.

        Its file is created first: after a failure, nothing has changed.
        """
        old, new = self.active, Segment(self._owner, base)
        new.file()
        self.active = new
        if old.size:
            old.forget_ends()
            if self._bases is _NO_CLOSED:
                self._bases, self._sizes, self._times = [], [], []
            self._bases.append(old.base)
            self._sizes.append(old.size)
            # A rolled segment was finished, so its index was read.
            self._times.append(old.max_timestamp if old.index_count >= 0 else UNKNOWN)
            self._largest = None
            self._keep(old)
        else:
            self._remove_soon(self._drop(old.base, old))
        return new

    def drop_first(self, count: int, snapshots: Sequence[int] = ()) -> int:
        """Drop the first `count` segments, which are closed, and the snapshots of producers at the offsets `snapshots`.

        Returns the freed bytes of the segments. Raises OSError.
        """
        assert count <= len(self._bases), "law: the active segment stays"
        doomed, freed = self._bases[:count], sum(self._sizes[:count])
        del self._bases[:count], self._sizes[:count], self._times[:count]
        self._largest = None
        aside: list[str] = []
        for base in doomed:  # from the first on: a crash between leaves no hole
            aside += self._drop(base, self._kept.get(base))
        self._remove_soon(aside + _snapshots_aside(self._owner, snapshots))
        return freed

    def drop_snapshots(self, offsets: Sequence[int]) -> None:
        """Remove the snapshots of producers at these offsets. Raises OSError."""
        self._remove_soon(_snapshots_aside(self._owner, offsets))

    def keep_first(self, count: int) -> Segment:
        """Drop all segments after the first `count`; the last of these becomes active. Raises OSError."""
        last, old, doomed = self.at(count - 1), self.active, self._bases[count:]
        if last is old:
            return last
        aside = self._drop(old.base, old)
        for base in reversed(doomed):  # from the last on: a crash between leaves no hole
            aside += self._drop(base, self._kept.get(base))
        self._remove_soon(aside)
        del self._bases[count - 1 :], self._sizes[count - 1 :], self._times[count - 1 :]
        self._largest = None
        self._kept.pop(last.base, None)
        self.active = last
        return last

    def restart(self, base: int) -> Segment:
        """Drop all segments; the log continues with an empty segment at `base`. Raises OSError."""
        self.drop_first(len(self._bases))
        old = self.active
        old.retire()
        self._remove_soon(set_aside(self._owner, old.base))  # before the new file: it may have the same name
        self.active = Segment(self._owner, base)
        self.active.file()  # this file marks where the log continues
        return self.active

    def replace(self, group: Sequence[int], size: int, cleaned: str, cleaned_index: str | None = None) -> Segment:
        """Put the compacted file `cleaned` in the place of neighbouring closed segments. Raises OSError.

        It has the base of the first of them. `cleaned_index` is its index of aborted transactions; None if no segment
        has one. After a crash recovery completes the swap: the files get their .swap names before the old files are
        removed.
        """
        owner = self._owner
        disk = owner.dir.env.disk
        base = group[0]
        path, index = f"{owner.path}/{base:020d}{names.LOG}", f"{owner.path}/{base:020d}{names.TXN_INDEX}"
        at = self._bases.index(base)
        assert self._bases[at : at + len(group)] == list(group), "law: compacted segments are neighbours"
        if cleaned_index is not None:
            disk.rename(cleaned_index, index + names.SWAP)
        disk.rename(cleaned, path + names.SWAP)
        aside: list[str] = []
        for each in group:
            aside += self._drop(each, self._kept.get(each))
        self._remove_soon(aside)
        if cleaned_index is not None:
            disk.rename(index + names.SWAP, index)
            owner.txn_bases = tuple(sorted((*owner.txn_bases, base)))
        disk.rename(path + names.SWAP, path)
        self._bases = [*self._bases[: at + 1], *self._bases[at + len(group) :]]  # a new object: see `files_mark`
        self._sizes[at : at + len(group)] = [size]
        self._times[at : at + len(group)] = [UNKNOWN]
        self._largest = None
        return self.at(at)

    def release(self) -> None:
        """Drop the references to all open files; they are opened again on use."""
        self.active.release()
        for segment in self._kept.values():
            segment.release()

    def retire(self) -> None:
        """Drop the references to all open files for good: the log is closed."""
        self.active.retire()
        self._retire(self._kept)

    # ---

    def _keep(self, segment: Segment) -> Segment:
        if len(self._kept) >= CLOSED_KEPT:
            self._kept.pop(next(iter(self._kept))).retire()
        if self._kept is _NONE_KEPT:
            self._kept = {}
        self._kept[segment.base] = segment
        return segment

    def _retire(self, kept: dict[int, Segment]) -> None:
        for segment in kept.values():
            segment.retire()
        kept.clear()

    def _drop(self, base: int, segment: Segment | None) -> list[str]:
        """Drop a segment's open files and set its files aside. Returns their new paths."""
        self._kept.pop(base, None)
        if segment is not None:
            segment.retire()
        return set_aside(self._owner, base)

    def _remove_soon(self, aside: Sequence[str]) -> None:
        """Let a lane remove files after `file.delete.delay.ms`."""
        if not aside:
            return
        owner, env, lane = self._owner, self._owner.dir.env, self._owner.dir.lane
        files = [path.rpartition("/")[2] for path in aside]

        def remove() -> None:
            folder = owner.path

            def removed(_: object) -> None:
                if owner.path != folder:  # a copy has replaced its log, and its directory was renamed
                    remove()

            env.background.submit(lane, lambda: remove_files(env.disk, [f"{folder}/{name}" for name in files]), removed)

        env.scheduler.call_later(owner.config.file_delete_delay_ms, remove)


def set_aside(owner: ListOwner, base: int) -> list[str]:
    """Rename the files of a segment to .deleted. Returns the new names. Raises OSError."""
    aside = _rename_aside(owner, base, names.SEGMENT_SUFFIXES)
    if base in owner.txn_bases:
        owner.txn_bases = tuple(at for at in owner.txn_bases if at != base)
    return aside


def _snapshots_aside(owner: ListOwner, offsets: Sequence[int]) -> list[str]:
    """Rename snapshots of producers: removing a file can wait for the journal of the file system."""
    return [name for at in offsets for name in _rename_aside(owner, at, (names.PRODUCER_SNAPSHOT,))]


def _rename_aside(owner: ListOwner, offset: int, suffixes: Sequence[str]) -> list[str]:
    disk = owner.dir.env.disk
    prefix = f"{owner.path}/{offset:020d}"
    aside = []
    for suffix in suffixes:
        path = prefix + suffix
        try:
            disk.rename(path, path + names.DELETED)
        except FileNotFoundError:
            continue  # not every segment has every file
        aside.append(path + names.DELETED)
    return aside


def remove_files(disk: Disk, paths: Sequence[str]) -> None:
    """Remove the existing files of `paths`. Raises OSError."""
    for path in paths:
        try:
            disk.remove(path)
        except FileNotFoundError:
            continue
