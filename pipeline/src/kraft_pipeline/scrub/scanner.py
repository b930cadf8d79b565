"""Checks a segment batch by batch: returns damages, and a digest of each batch.

Every bit of a file is checked. The CRC covers a batch from its attributes on. In the rest of the header, the base
offset must follow the batch before, and the length must lead to the next batch. The leader epoch must be as in the
checkpoint, and the magic must be 2. A flipped bit of the CRC makes the CRC wrong.
"""

from __future__ import annotations

import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple, Protocol

import numpy as np
from fastcrc.crc32 import iscsi as crc32c
from numpy.typing import NDArray

from kraft_pipeline.codec import CodecError, Decoder
from kraft_pipeline.codec.batches import CHECKED_FROM
from kraft_pipeline.scrub import findings as kinds
from kraft_protocol.buffers import Buffer
from kraft_protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC

FIELDS: Final = ("base", "last", "position", "length", "crc", "epoch", "damaged")
"""The columns of a digest: offsets, byte in the file, whole length, computed CRC, leader epoch, whether damaged."""
WINDOW_BYTES: Final = 8 * 1024 * 1024
SEARCH_BYTES: Final = 256 * 1024
"""Bytes of a read behind a damage. The next whole batch is usually near."""
_HEAD: Final = Struct(">qiibIhi")
"""Base offset, length, leader epoch, magic, CRC, attributes, last offset delta."""
_SAME_BYTES: Final = 5
"""High bytes of a base offset, which following batches share: the search for the next batch looks for them."""
_FOR_EVER: Final = 1 << 63
_GAP_MAX: Final = 1 << 24
"""Maximum distance of the next batch's base offset from the expected offset."""


class Source(Protocol):
    """Bytes with random access."""

    size: int

    def read(self, position: int, length: int) -> Buffer:
        """Read at most `length` bytes."""
        ...


class FileSource:
    """The file of a segment; a context manager."""

    def __init__(self, path: str, size: int) -> None:
        self.size = size
        self._fd = os.open(path, os.O_RDONLY)

    def __enter__(self) -> FileSource:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)

    def read(self, position: int, length: int) -> Buffer:
        """Read at most `length` bytes from `position`; fewer at the end. Raises OSError."""
        return os.pread(self._fd, min(length, self.size - position), position)


class BufferSource:
    """The records of a Fetch response."""

    def __init__(self, data: Buffer) -> None:
        self._data = memoryview(data)
        self.size = len(self._data)

    def read(self, position: int, length: int) -> Buffer:
        """Return at most `length` bytes from `position`, uncopied; fewer at the end."""
        return self._data[position : position + length]


class Damage(NamedTuple):
    """A damage of the batch at `position`."""

    kind: str
    position: int
    base: int
    last: int
    detail: str
    stored_crc: int = 0
    """For a wrong CRC: the stored and the computed CRC."""
    computed_crc: int = 0


class _Header(NamedTuple):
    base: int
    length: int
    epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int


class Scanner:
    """Scans sources of a replica in order; `damages` and `digests` are the results so far."""

    def __init__(
        self,
        *,
        expected: int = -1,
        compacted: bool = False,
        epochs: list[tuple[int, int]] | None = None,
        high_watermark: int = 0,
        flushed: int = 0,
    ) -> None:
        """`flushed`: the recovery point. Leader epochs newer than the checkpoint's may begin only behind it."""
        self.expected = expected
        """The base offset of the next batch, -1 for any."""
        self.damages: list[Damage] = []
        self.damages_total = 0
        self._compacted = compacted
        self._epochs = [e for e, _ in epochs or ()]
        self._epoch_starts = [s for _, s in epochs or ()]
        self._high = high_watermark
        self._flushed = flushed
        self._rows: list[tuple[int, int, int, int, int, int, int]] = []
        self._last_epoch = -1
        self._epoch_until = _FOR_EVER
        """Up to this offset, all batches of the last epoch must have the checkpoint's epoch."""

    @property
    def last(self) -> int:
        """The last offset of the last batch or damage; -1 before the first."""
        return self._rows[-1][1] if self._rows else -1

    def digests(self) -> NDArray[np.int64]:
        """A row of FIELDS for each batch; for each record if the log is compacted."""
        return np.array(self._rows, np.int64).reshape(-1, len(FIELDS))

    def scan(self, source: Source, *, next_base: int = -1, may_end_early: bool = False) -> int:
        """Check all of `source`. Returns the end of the last whole batch.

        `next_base`: base offset of the next segment, if it exists. `may_end_early`: an incomplete batch at the end is
        not damage, because it is read again, as after a Fetch.
        """
        at, window_bytes = 0, WINDOW_BYTES
        while at < source.size:
            window = memoryview(source.read(at, window_bytes))
            used, wanted = self._scan_window(window, at, source)
            if used:
                at, window_bytes = at + used, WINDOW_BYTES
            elif (
                wanted > len(window)
                and at + wanted <= source.size
                and len(window) == window_bytes
                and self._may_end(source, at, at + wanted)
            ):
                window_bytes = wanted
            elif next_base < 0 and self._is_open_end(source, at, may_end_early):
                break
            else:
                at = self._structure(source, at, next_base)
        if next_base >= 0 and self.expected >= 0:
            self._meets(next_base)
        return at

    def _may_end(self, source: Source, at: int, end: int) -> bool:
        """Whether a batch larger than a window ends at the length in its header, so that this length can be
        trusted."""
        if end == source.size or self._header_at(source, end) is not None:
            return True
        stored = _HEAD.unpack_from(source.read(at, HEADER_SIZE))[4]
        return bool(_crc(source, at + CHECKED_FROM, end) == stored)

    def _scan_window(self, view: memoryview, at: int, source: Source) -> tuple[int, int]:
        """Check whole batches at the start of the window. Returns their bytes, and the size of the next batch."""
        here, end = 0, len(view)
        unpack, rows = _HEAD.unpack_from, self._rows
        first = 0
        while end - here >= HEADER_SIZE:
            base, length, epoch, magic, stored, _, delta = unpack(view, here)
            whole = length + LOG_OVERHEAD
            if whole < HEADER_SIZE or here + whole > end:
                self._records(view[first:here], at + first)
                return here, whole
            computed = crc32c(view[here + CHECKED_FROM : here + whole])
            is_next = base == self.expected and epoch == self._last_epoch and base < self._epoch_until
            if is_next and computed == stored and magic == MAGIC:
                self.expected = base + delta + 1
                if not self._compacted:
                    rows.append((base, base + delta, at + here, whole, computed, epoch, 0))
            else:
                header = _Header(base, whole, epoch, magic, stored, 0, delta)
                sound = self._look(header, computed, at + here, source)
                if not sound:
                    self._records(view[first:here], at + first)
                    first = here + whole
                if sound is None:
                    return here, 0
            here += whole
        self._records(view[first:here], at + first)
        return here, HEADER_SIZE

    def _look(self, header: _Header, computed: int, position: int, source: Source) -> bool | None:
        """Record the fault of a batch that differs from the expected batch.

        Returns None if its length cannot be trusted.
        """
        follows = self._header_at(source, position + header.length)
        last = header.base + header.last_delta
        if computed != header.crc:
            if follows is None and position + header.length != source.size:
                return None
            base = self.expected if self.expected >= 0 and not self._compacted else header.base
            if follows is not None and follows.base > base:
                last = follows.base - 1
            damage = Damage(kinds.CRC, position, base, max(last, base), "", header.crc, computed)
            self._note(
                damage._replace(detail=f"CRC {computed:08x}, stored {header.crc:08x}"), header.length, header.epoch
            )
            self.expected = follows.base if follows is not None and follows.base > base else -1
            return False
        if header.magic != MAGIC:
            self._note(
                Damage(kinds.MAGIC, position, header.base, last, f"message format {header.magic}"),
                header.length,
                header.epoch,
            )
            self.expected = last + 1
            return False
        if not self._may_begin(header, position) and not self._offset(header, position, follows):
            return False
        sound = self._epoch(header, position, follows)
        self.expected = last + 1
        if sound and not self._compacted:
            self._rows.append((header.base, last, position, header.length, computed, header.epoch, 0))
        return sound

    def _may_begin(self, header: _Header, position: int) -> bool:
        """Whether the base offset fits the batches before.

        If records were deleted up to the middle of a batch, a new follower gets the whole batch.
        """
        if self.expected < 0 or header.base == self.expected or (self._compacted and header.base > self.expected):
            return True
        return position == 0 and header.base < self.expected <= header.base + header.last_delta

    def _offset(self, header: _Header, position: int, follows: _Header | None) -> bool:
        """Record a wrong base offset. Returns whether it can be right.

        It is right if batches are missing before; otherwise the offset itself is damaged.
        """
        flipped = self.expected + header.last_delta
        if follows is not None and follows.base == header.base + header.last_delta + 1 and header.base > self.expected:
            detail = f"offsets {self.expected} to {header.base - 1} are missing"
            self._note(Damage(kinds.GAP, position, self.expected, header.base - 1, detail))
            return True
        detail = f"base offset {header.base} where {self.expected} follows"
        self._note(Damage(kinds.OFFSET, position, self.expected, flipped, detail), header.length, header.epoch)
        self.expected = flipped + 1
        return False

    def _epoch(self, header: _Header, position: int, follows: _Header | None) -> bool:
        """Whether the leader epoch is as in the checkpoint, or at least not less than the epoch before."""
        index = bisect_right(self._epoch_starts, header.base) - 1
        wanted = self._epochs[index] if index >= 0 else -1
        is_last = index == len(self._epochs) - 1
        goes_back = follows is not None and follows.epoch < header.epoch
        if wanted >= 0:
            is_newer = is_last and header.epoch > wanted and header.base >= self._flushed and not goes_back
            is_wrong, there = header.epoch != wanted and not is_newer, f"the checkpoint has {wanted}"
        elif header.epoch < self._last_epoch:
            is_wrong, there = True, f"{self._last_epoch} came before"
        else:
            is_wrong, there = goes_back, "less comes after it"
        if is_wrong:
            damage = Damage(
                kinds.EPOCH,
                position,
                header.base,
                header.base + header.last_delta,
                f"leader epoch {header.epoch}, {there}",
            )
            self._note(damage, header.length, header.epoch)
            return False
        self._last_epoch = header.epoch
        self._epoch_until = _FOR_EVER if is_last else self._epoch_starts[index + 1]
        return True

    def _is_open_end(self, source: Source, at: int, may_end_early: bool) -> bool:
        """Whether an incomplete batch is not damage: the log was truncated or is being written."""
        if may_end_early:
            return True
        if self.expected < self._high:
            return False
        left = memoryview(source.read(at, HEADER_SIZE))
        return len(left) < 8 or int.from_bytes(left[:8], "big") == self.expected or not any(left)

    def _structure(self, source: Source, at: int, next_base: int) -> int:
        """Record that no batch begins at `at`, and find the next batch. Returns its position, or the end."""
        base = self.expected if self.expected >= 0 else self.last + 1
        found = self._next_whole(source, at)
        if found is None and next_base < 0 and self._is_cut(source, at):
            self._note(Damage(kinds.CUT, at, base, base, f"{source.size - at} bytes are not a batch"), source.size - at)
            self.expected = -1
            return source.size
        follows, position = found if found is not None else (None, source.size)
        until = follows.base if follows is not None else next_base
        damage = Damage(kinds.LENGTH, at, base, max(until - 1, base), f"the next whole batch is at byte {position}")
        self._note(damage, position - at)
        self.expected = until
        return position

    def _is_cut(self, source: Source, at: int) -> bool:
        """Whether a valid batch begins at `at`, but ends after the end of the file."""
        head = source.read(at, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return True
        base, length, *_ = _HEAD.unpack_from(head)
        return bool(base == self.expected and at + length + LOG_OVERHEAD > source.size)

    def _next_whole(self, source: Source, at: int) -> tuple[_Header, int] | None:
        """Header and position of the first whole batch after `at` with a possible offset."""
        known = max(self.expected, 0)
        starts = (known.to_bytes(8, "big"), (known + _GAP_MAX).to_bytes(8, "big"))
        patterns = list(dict.fromkeys(start[:_SAME_BYTES] for start in starts))
        begin = at + 1
        while begin < source.size:
            data = bytes(source.read(begin, SEARCH_BYTES + _SAME_BYTES - 1))
            for here in sorted(found for pattern in patterns for found in _places(data, pattern)):
                header = self._header_at(source, begin + here)
                if header is not None and known <= header.base <= known + _GAP_MAX:
                    start = begin + here
                    if _crc(source, start + CHECKED_FROM, start + header.length) == header.crc:
                        return header, start
            begin += SEARCH_BYTES
        return None

    @staticmethod
    def _header_at(source: Source, position: int) -> _Header | None:
        """The header at a position, if its values are possible and its batch is complete."""
        data = source.read(position, HEADER_SIZE) if position < source.size else b""
        if len(data) < HEADER_SIZE:
            return None
        base, length, epoch, magic, crc, attributes, delta = _HEAD.unpack_from(data)
        whole = length + LOG_OVERHEAD
        if magic != MAGIC or base < 0 or delta < 0 or not HEADER_SIZE <= whole <= source.size - position:
            return None
        return _Header(base, whole, epoch, magic, crc, attributes, delta)

    def _meets(self, next_base: int) -> None:
        """Check that the segment ends where the next segment begins."""
        if self.expected < next_base and not self._compacted:
            detail = f"offsets {self.expected} to {next_base - 1} are missing: the next segment begins behind them"
            self._note(Damage(kinds.GAP, -1, self.expected, next_base - 1, detail))

    def _note(self, damage: Damage, length: int = 0, epoch: int = -1) -> None:
        self.damages_total += 1
        if len(self.damages) < kinds.PER_SEGMENT_MAX:
            self.damages.append(damage)
        self._rows.append((damage.base, damage.last, damage.position, length, damage.computed_crc, epoch, 1))
        self._last_epoch = -1

    def _records(self, data: memoryview, position: int) -> None:
        """Digest each record of a compacted log, because its batches may differ from the batches of other replicas."""
        if not self._compacted or not len(data):
            return
        try:
            for offset, crc, length in record_digests(data):
                self._rows.append((offset, offset, position, length, crc, 0, 0))
        except CodecError as e:
            self._note(Damage(kinds.CRC, position, e.offset, e.offset, f"whole, but not to be decoded: {e.reason}"))


def _crc(source: Source, start: int, end: int) -> int:
    """CRC of the bytes in [start, end), read in pieces."""
    found = 0
    for at in range(start, end, WINDOW_BYTES):
        found = crc32c(memoryview(source.read(at, min(WINDOW_BYTES, end - at))), found)
    return found


def _places(data: bytes, pattern: bytes) -> Iterator[int]:
    here = data.find(pattern)
    while here >= 0:
        yield here
        here = data.find(pattern, here + 1)


def record_digests(data: memoryview) -> Iterator[tuple[int, int, int]]:
    """For each record: offset, CRC-32 of time, key and value, and their length. Whole batches only."""
    for table in Decoder("", 0, ("key", "value", "offset", "timestamp")).decode(data, check_crc=False):
        columns = table.to_pydict()
        times = table.column("timestamp").cast("int64").fill_null(-1).to_pylist()
        for offset, when, key, value in zip(columns["offset"], times, columns["key"], columns["value"], strict=True):
            crc = zlib.crc32(
                b"%d %d %d " % (when, -1 if key is None else len(key), -1 if value is None else len(value))
            )
            crc = zlib.crc32(value or b"", zlib.crc32(key or b"", crc))
            yield offset, crc, len(key or b"") + len(value or b"")
