"""The batches in a partition's records: headers, CRC, transactions. Python loops over batches, not over records.

Layout (big endian): base offset i64, length i32 of what follows, partition leader epoch i32, magic i8, CRC-32C u32 of
what follows, attributes i16, last offset delta i32, base timestamp i64, max timestamp i64, producer id i64, producer
epoch i16, base sequence i32, record count i32, then the records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from kraft_pipeline.codec.compression import Buffer
from kraft_pipeline.codec.errors import CorruptBatch, UnsupportedBatch

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12
"""Bytes that the length does not count: base offset and the length itself."""
MAGIC: Final = 2
MAGIC_POSITION: Final = 16
CHECKED_FROM: Final = 21
"""Position of the first byte that the CRC covers."""

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

_PREFIX: Final = Struct(">qi")
_CONTROL_KEY: Final = Struct(">hh")
_ABORT: Final = 0


class Aborted(NamedTuple):
    """An aborted transaction of a Fetch response: its producer's records from `first_offset` to its marker."""

    producer_id: int
    first_offset: int


class Batch(NamedTuple):
    """A batch of records: the place of its records in the response, and the bases of their offsets and timestamps."""

    start: int
    end: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    attributes: int
    records: int
    """Number of records."""

    producer_id: int
    producer_epoch: int
    base_sequence: int

    @property
    def compression(self) -> int:
        """The compression type in the attributes: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether `max_timestamp` is the broker's append time and applies to all records."""
        return bool(self.attributes & LOG_APPEND_TIME)


def scan(data: Buffer, *, check_crc: bool = True) -> Iterator[Batch]:
    """Yield all batches in `data`, including control batches. Skips an incomplete last batch, as Fetch may send it.

    Raises CorruptBatch (CRC, lengths, count) and UnsupportedBatch (magic).
    """
    view = memoryview(data)
    at, end = 0, len(view)
    while end - at > MAGIC_POSITION:
        base_offset, length = _PREFIX.unpack_from(view, at)
        after = at + LOG_OVERHEAD + length
        if view[at + MAGIC_POSITION] != MAGIC:
            raise UnsupportedBatch(f"message format {view[at + MAGIC_POSITION]}, only {MAGIC} is known", base_offset)
        if length < HEADER_SIZE - LOG_OVERHEAD:
            raise CorruptBatch(f"length {length} is less than a header's", base_offset)
        if after > end:
            return
        (_, _, _, _, crc, attributes, last_delta, base_ts, max_ts, producer, epoch, sequence, count) = (
            HEADER.unpack_from(view, at)
        )
        if check_crc and crc32c(view[at + CHECKED_FROM : after]) != crc:
            raise CorruptBatch("CRC is wrong", base_offset)
        if count < 0 or last_delta < 0 or base_offset < 0:
            raise CorruptBatch(f"{count} records in {last_delta + 1} offsets", base_offset)
        last = base_offset + last_delta
        start = at + HEADER_SIZE
        yield Batch(start, after, base_offset, last, base_ts, max_ts, attributes, count, producer, epoch, sequence)
        at = after


def is_abort_marker(data: Buffer, batch: Batch) -> bool:
    """Whether a control batch aborts its transaction. The type in the key of its only record says so."""
    view = memoryview(data)[batch.start : batch.end]
    # length, attributes, timestamp delta, offset delta, key length: varints; the first and the third have any size
    at = _skip_varint(view, 0) + 1
    for _ in range(3):
        at = _skip_varint(view, at)
    if at + _CONTROL_KEY.size > len(view):
        raise CorruptBatch("control record is cut off", batch.base_offset)
    return bool(_CONTROL_KEY.unpack_from(view, at)[1] == _ABORT)


def _skip_varint(view: memoryview, at: int) -> int:
    while at < len(view) and view[at] > 0x7F:
        at += 1
    return at + 1


def visible(data: Buffer, batches: Iterable[Batch], aborted: Iterable[Aborted] | None) -> Iterator[Batch]:
    """The batches that a consumer receives: no control batches, no batches of `aborted` transactions.

    `aborted` are the aborted transactions in the Fetch response of these bytes; None reads uncommitted.
    """
    pending = sorted(aborted or (), key=lambda a: a.first_offset, reverse=True)
    lost: set[int] = set()
    for batch in batches:
        if pending or lost:
            while pending and pending[-1].first_offset <= batch.last_offset:
                lost.add(pending.pop().producer_id)
            if batch.attributes & CONTROL:
                if batch.producer_id in lost and is_abort_marker(data, batch):
                    lost.discard(batch.producer_id)
            elif batch.attributes & TRANSACTIONAL and batch.producer_id in lost:
                continue
        if not batch.attributes & CONTROL:
            yield batch


def next_offset(data: Buffer) -> int:
    """The offset after the last complete batch in `data`, -1 if there is none. Does not check the batches."""
    view = memoryview(data)
    at, end, last = 0, len(view), -1
    while end - at >= HEADER_SIZE:
        length = _PREFIX.unpack_from(view, at)[1] + LOG_OVERHEAD
        if length < HEADER_SIZE or at + length > end:
            break
        last, at = at, at + length
    if last < 0:
        return -1
    fields = HEADER.unpack_from(view, last)
    return int(fields[0] + fields[6] + 1)
