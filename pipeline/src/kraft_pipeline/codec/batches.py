"""The batches in a partition's records: headers, CRC, transactions. Python loops over batches, not over records.

`kraft_protocol.records.batch` has the layout of a header.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from kraft_pipeline.codec.errors import CorruptBatch, UnsupportedBatch
from kraft_protocol.buffers import Buffer
from kraft_protocol.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
    AbortedTransaction,
)

CHECKED_FROM: Final = ATTRIBUTES_POSITION
"""Position of the first byte that the CRC covers."""
MAGIC_POSITION: Final = 16

_PREFIX: Final = Struct(">qi")
_CONTROL_KEY: Final = Struct(">hh")
_ABORT: Final = 0


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
        return bool(self.attributes & LOG_APPEND_TIME_BIT)


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
    """Whether a control batch aborts its transaction. The type is in the key of its only record."""
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


def visible(data: Buffer, batches: Iterable[Batch], aborted: Iterable[AbortedTransaction] | None) -> Iterator[Batch]:
    """The batches that a consumer receives: no control batches, no batches of `aborted` transactions.

    `aborted` are the aborted transactions in the Fetch response of these bytes; None reads uncommitted.
    """
    pending = sorted(aborted or (), key=lambda a: a.first_offset, reverse=True)
    lost: set[int] = set()
    for batch in batches:
        if pending or lost:
            while pending and pending[-1].first_offset <= batch.last_offset:
                lost.add(pending.pop().producer_id)
            if batch.attributes & CONTROL_BIT:
                if batch.producer_id in lost and is_abort_marker(data, batch):
                    lost.discard(batch.producer_id)
            elif batch.attributes & TRANSACTIONAL_BIT and batch.producer_id in lost:
                continue
        if not batch.attributes & CONTROL_BIT:
            yield batch
