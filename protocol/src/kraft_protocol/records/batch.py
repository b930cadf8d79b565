"""Record batch v2: the header, its checks, and reading and building whole batches.

Layout (big endian): base offset i64, length i32 (of the rest), partition leader epoch i32, magic i8, CRC u32 (of the
rest). Then attributes i16, last offset delta i32, base timestamp i64, max timestamp i64, producer id i64, producer
epoch i16, base sequence i32, record count i32, records. A broker sets base offset and epoch, which the CRC excludes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from fastcrc.crc32 import iscsi as crc32c

from kraft_protocol.buffers import Buffer
from kraft_protocol.records.compression import DEFAULT_LIMIT, compress, decompress
from kraft_protocol.records.errors import CorruptBatch, InvalidBatch, TruncatedBatch, UnsupportedMagic
from kraft_protocol.records.varint import read_varint, write_varint

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
LOG_OVERHEAD: Final = 12
"""Bytes that the length field does not count: base offset and the length itself."""
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
BASE_TIMESTAMP_POSITION: Final = 27
MAX_TIMESTAMP_POSITION: Final = 35
MAGIC: Final = 2
NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = -1

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

_MAGIC_POSITION: Final = 16
_LENGTH_POSITION: Final = 8
_PRODUCER_POSITION: Final = 43
_COUNT_POSITION: Final = 57
_MIN_READABLE: Final = _MAGIC_POSITION + 1
_PREFIX: Final = Struct(">qi")
_AFTER_CRC: Final = Struct(">hiqqqhii")
_BEFORE_CRC: Final = Struct(">qiibI")
_TIMES: Final = Struct(">qq")
_LONG: Final = Struct(">q")
_INT: Final = Struct(">i")
_CRC: Final = Struct(">I")
_MAX_HEADERS: Final = 1 << 20
"""Maximum of headers of one record. Each takes at least two bytes, so a batch of 2 MiB could hold no more."""

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class AbortedTransaction(NamedTuple):
    """An aborted transaction of a Fetch response: its producer's records from `first_offset` to its marker."""

    producer_id: int
    first_offset: int


class BatchHeader:
    """The header of one batch; `position` is its start in its buffer, `length` the size of the batch in bytes."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "count",
        "crc",
        "last_offset_delta",
        "length",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "position",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, fields: tuple[int, ...], position: int = 0) -> None:
        (
            self.base_offset,
            length,
            self.partition_leader_epoch,
            self.magic,
            self.crc,
            self.attributes,
            self.last_offset_delta,
            self.base_timestamp,
            self.max_timestamp,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.count,
        ) = fields
        self.length = length + LOG_OVERHEAD
        self.position = position

    def __repr__(self) -> str:
        return (
            f"BatchHeader(offsets {self.base_offset}..{self.last_offset}, {self.length} bytes at {self.position}, "
            f"epoch {self.partition_leader_epoch}, producer {self.producer_id}/{self.producer_epoch})"
        )

    @property
    def last_offset(self) -> int:
        """The last offset of the batch's range. Compaction may have removed the record there."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch's range: the fetch offset that continues after it."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The codec in the attributes: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> int:
        """CREATE_TIME (0): the producer's timestamps; LOG_APPEND_TIME (1): `max_timestamp` is each record's time."""
        return (self.attributes & LOG_APPEND_TIME_BIT) >> 3

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction of its producer, as a record batch or as the final marker."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the records are control records, which brokers write and consumers never see."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; sequences wrap to 0 after 2^31-1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of this batch may be removed (KIP-534), in milliseconds; None if not set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


class Record(NamedTuple):
    """One stored record; `timestamp` in milliseconds, already the append time if the batch uses LogAppendTime."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`.

    Raises TruncatedBatch if the buffer ends before the batch, UnsupportedMagic, and CorruptBatch for an impossible
    length. The CRC is not checked."""
    left = len(buffer) - position
    if left < _MIN_READABLE:
        raise TruncatedBatch(f"{left} bytes are too few for a batch header", position)
    length = _PREFIX.unpack_from(buffer, position)[1]
    magic = buffer[position + _MAGIC_POSITION]
    if magic != MAGIC:
        raise UnsupportedMagic(f"message format {magic} is not supported, only {MAGIC}", position)
    if length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptBatch(f"length {length} is less than the header size", position)
    if length + LOG_OVERHEAD > left:
        raise TruncatedBatch(f"batch of {length + LOG_OVERHEAD} bytes, {left} are left", position)
    return BatchHeader(HEADER.unpack_from(buffer, position), position)


def iter_headers(buffer: Buffer, position: int = 0) -> Iterator[BatchHeader]:
    """The headers of the batches that fill `buffer` from `position`; errors as in `read_header`."""
    while position < len(buffer):
        header = read_header(buffer, position)
        yield header
        position += header.length


def whole_batches(records: Buffer, *, with_junk: bool = False) -> memoryview:
    """The whole batches at the start of `records`, without a batch that is cut off at the end.

    They end at bytes that are not a batch; `with_junk` leaves these and all after them in, for a check that follows."""
    view = memoryview(records)
    position = 0
    while position + LOG_OVERHEAD <= len(view):
        length = int.from_bytes(view[position + 8 : position + LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
        if length < HEADER_SIZE:
            return view if with_junk else view[:position]
        if position + length > len(view):
            break
        position += length
    return view[:position]


def check_batch(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, after checks of lengths, CRC, offsets and codec. Records are not decoded.

    Raises CorruptBatch, TruncatedBatch, UnsupportedMagic, or InvalidBatch for a header with contradictory numbers."""
    header = read_header(buffer, position)
    check_crc(buffer, header)
    if header.last_offset_delta < 0 or header.base_offset < 0:
        raise InvalidBatch(f"offsets {header.base_offset}..{header.last_offset} are not a range", position)
    if not 0 <= header.count <= header.last_offset_delta + 1:
        raise InvalidBatch(f"{header.count} records cannot span {header.last_offset_delta + 1} offsets", position)
    if header.attributes & COMPRESSION_MASK > 4:
        raise InvalidBatch(f"unknown compression codec {header.compression}", position)
    return header


def check_crc(buffer: Buffer, header: BatchHeader) -> None:
    """Raise CorruptBatch unless the bytes of `header`'s batch in `buffer` have the CRC that it states."""
    start = header.position + ATTRIBUTES_POSITION
    found = crc32c(memoryview(buffer)[start : header.position + header.length])
    if found != header.crc:
        raise CorruptBatch(f"CRC is {found:#010x}, the header has {header.crc:#010x}", header.position)


def has_right_crc(batch: bytes) -> bool:
    """Whether the bytes of a whole batch have the CRC that its header states."""
    stated: int = _CRC.unpack_from(batch, CRC_POSITION)[0]
    found: int = crc32c(batch[ATTRIBUTES_POSITION:])
    return found == stated


def records_section(buffer: Buffer, header: BatchHeader, limit: int = DEFAULT_LIMIT) -> Buffer:
    """The encoded records of a batch, decompressed if necessary."""
    view = memoryview(buffer)[header.position + HEADER_SIZE : header.position + header.length]
    codec = header.attributes & COMPRESSION_MASK
    return decompress(codec, view, limit) if codec else view


def iter_records(buffer: Buffer, header: BatchHeader | None = None, *, limit: int = DEFAULT_LIMIT) -> Iterator[Record]:
    """The records of the batch at `header` (default: the batch at the start of `buffer`).

    Raises CorruptBatch if the records do not fill the batch exactly, DecompressionLimit beyond `limit` bytes."""
    if header is None:
        header = read_header(buffer)
    data = bytes(records_section(buffer, header, limit))
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    position, end = 0, len(data)
    for _ in range(header.count):
        try:
            record, position = _read_record(data, position, header, append_time)
        except IndexError:
            raise CorruptBatch("record is cut off", header.position) from None
        except UnicodeDecodeError as e:
            raise CorruptBatch(f"header key is not UTF-8: {e}", header.position) from None
        yield record
    if position != end:
        raise CorruptBatch(f"{end - position} bytes follow the last of {header.count} records", header.position)


def _bytes(data: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    if position + length > end:
        raise CorruptBatch(f"field of {length} bytes leaves its record")
    return data[position : position + length], position + length


def _read_record(data: bytes, position: int, batch: BatchHeader, append_time: int | None) -> tuple[Record, int]:
    size, position = read_varint(data, position)
    end = position + size
    if size < 0 or end > len(data):
        raise CorruptBatch(f"record of {size} bytes, {len(data) - position} are left", batch.position)
    timestamp_delta, position = read_varint(data, position + 1)
    offset_delta, position = read_varint(data, position)
    key, position = _bytes(data, position, end)
    value, position = _bytes(data, position, end)
    header_count, position = read_varint(data, position)
    headers: Headers = ()
    if header_count:
        if not 0 < header_count <= _MAX_HEADERS:
            raise CorruptBatch(f"record with {header_count} headers", batch.position)
        headers, position = _read_headers(data, position, end, header_count)
    if position != end:
        raise CorruptBatch(f"record of {size} bytes ends {end - position} bytes early", batch.position)
    timestamp = append_time if append_time is not None else batch.base_timestamp + timestamp_delta
    return Record(batch.base_offset + offset_delta, timestamp, key, value, headers), position


def _read_headers(data: bytes, position: int, end: int, count: int) -> tuple[Headers, int]:
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, position = _bytes(data, position, end)
        if key is None:
            raise CorruptBatch("record header without a key")
        value, position = _bytes(data, position, end)
        headers.append((key.decode(), value))
    return headers, position


class NewRecord(NamedTuple):
    """A record for `build_batch`; `offset` None means the offset after its predecessor's."""

    key: bytes | None = None
    value: bytes | None = None
    timestamp: int = NO_TIMESTAMP
    headers: Headers = ()
    offset: int | None = None


def build_batch(
    records: Iterable[NewRecord | Record | tuple[bytes | None, bytes | None]],
    *,
    base_offset: int = 0,
    compression: int = 0,
    compression_level: int | None = None,
    timestamp: int = NO_TIMESTAMP,
    append_time: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = NO_LEADER_EPOCH,
    last_offset: int | None = None,
) -> bytes:
    """One batch holding `records` (NewRecord, Record or plain (key, value) pairs).

    `timestamp` (ms) applies to pairs and to records without a timestamp. `append_time` sets LogAppendTime for the
    batch. Records with an offset keep it. `last_offset` extends the range beyond the last record, as compaction needs
    it."""
    body = bytearray()
    first_timestamp = max_timestamp = NO_TIMESTAMP
    count, delta = 0, -1
    for item in records:
        record = item if len(item) > 2 else NewRecord(item[0], item[1], timestamp)
        assert isinstance(record, (NewRecord, Record)), "pairs have become NewRecords"
        when = record.timestamp if record.timestamp != NO_TIMESTAMP else timestamp
        if count == 0:
            first_timestamp = when
        max_timestamp = max(max_timestamp, when)
        delta = delta + 1 if record.offset is None else record.offset - base_offset
        _write_record(body, when - first_timestamp, delta, record)
        count += 1
    attributes = compression
    if append_time is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = append_time
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    if control:
        attributes |= CONTROL_BIT
    last_delta = max(delta, 0) if last_offset is None else last_offset - base_offset
    payload = compress(compression, body, compression_level) if compression else bytes(body)
    return seal(
        base_offset,
        leader_epoch,
        (attributes, last_delta, first_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count),
        payload,
    )


def empty_batch(header: BatchHeader) -> bytes:
    """The batch of `header` without its records: only offsets, producer and sequence remain (KIP-98)."""
    fields = (
        header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT),
        header.last_offset_delta,
        NO_TIMESTAMP,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        0,
    )
    return seal(header.base_offset, header.partition_leader_epoch, fields, b"")


def thin_batch(
    header: BatchHeader,
    records: Buffer,
    count: int,
    max_timestamp: int,
    *,
    compression_level: int | None = None,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """The batch of `header` with `count` of its records: offsets, sequences and codec are unchanged.

    `records` are encoded, with timestamps relative to the header's base timestamp, or to `delete_horizon_ms` if given:
    the new batch states that horizon (KIP-534)."""
    payload = compress(header.compression, records, compression_level) if header.compression else records
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if delete_horizon_ms is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON_BIT, delete_horizon_ms
    if attributes & LOG_APPEND_TIME_BIT:
        max_timestamp = header.max_timestamp
    fields = (
        attributes,
        header.last_offset_delta,
        base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        count,
    )
    return seal(header.base_offset, header.partition_leader_epoch, fields, payload)


def thin_plain(batch: bytes, records: bytes, count: int, latest: int) -> tuple[bytes, int]:
    """As `thin_batch`, for an uncompressed batch, and faster: the result and its max timestamp.

    `latest` is the largest timestamp of the `count` records, relative to the batch's base timestamp."""
    base_timestamp, max_timestamp = _TIMES.unpack_from(batch, BASE_TIMESTAMP_POSITION)
    if not batch[ATTRIBUTES_POSITION + 1] & LOG_APPEND_TIME_BIT:
        max_timestamp = base_timestamp + latest
    checked = b"".join(
        (
            batch[ATTRIBUTES_POSITION:MAX_TIMESTAMP_POSITION],
            _LONG.pack(max_timestamp),
            batch[_PRODUCER_POSITION:_COUNT_POSITION],
            _INT.pack(count),
            records,
        )
    )
    length = len(checked) + ATTRIBUTES_POSITION - LOG_OVERHEAD
    head = (batch[:_LENGTH_POSITION], _INT.pack(length), batch[LOG_OVERHEAD:CRC_POSITION], _CRC.pack(crc32c(checked)))
    return b"".join((*head, checked)), max_timestamp


def next_offset(data: Buffer) -> int:
    """The offset after the last complete batch in `data`, -1 without a complete batch. Does not check the batches."""
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


def seal(base_offset: int, leader_epoch: int, fields: tuple[int, ...], payload: Buffer) -> bytes:
    """A batch from the eight header fields after the CRC and the encoded (and compressed) records."""
    checked = _AFTER_CRC.pack(*fields) + payload
    length = len(checked) + ATTRIBUTES_POSITION - LOG_OVERHEAD
    return _BEFORE_CRC.pack(base_offset, length, leader_epoch, MAGIC, crc32c(checked)) + checked


def _write_record(body: bytearray, timestamp_delta: int, offset_delta: int, record: NewRecord | Record) -> None:
    out = bytearray(1)  # the record's own attributes, unused
    write_varint(out, timestamp_delta)
    write_varint(out, offset_delta)
    _write_bytes(out, record.key)
    _write_bytes(out, record.value)
    write_varint(out, len(record.headers))
    for name, value in record.headers:
        _write_bytes(out, name.encode())
        _write_bytes(out, value)
    write_varint(body, len(out))
    body += out


def _write_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)  # -1, zig-zag encoded
    else:
        write_varint(out, len(value))
        out += value
