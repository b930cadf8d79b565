"""How a leader checks and changes a batch before it is stored, beyond the header (Kafka's LogValidator).

Kafka decodes every record. Here the cost of a check does not depend on the content (`looks_sound`). A few records are
read in full, of many records only the first lengths, of compressed records only the codec's signature. All records are
read in two cases: the batch looks wrong, or the topic's configuration requires it (keys on compacted topics,
`message.timestamp.before.max.ms`). Errors are then the same as in Kafka. A long batch with a correct CRC that is
malformed deep inside is therefore stored unchanged; see docs/differences.md.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from kraft_protocol.buffers import Buffer
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.alike import Alike, read_alike
from kraft_protocol.records.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
    records_section,
    seal,
)
from kraft_protocol.records.compression import CODEC_NAMES, Compression, compress, decompress, decompress_pieces
from kraft_protocol.records.errors import BatchError, CorruptBatch, DecompressionLimit, VarintTooLong
from kraft_protocol.records.shapes import Columns, bounds_hold, check_filled, read_columns, read_shapes

if TYPE_CHECKING:
    from kraft_node.log.config import LogConfig

FEW_RECORDS: Final = 4
"""Batches of up to this many records are read before they are stored: a microsecond per record."""
LENGTHS_LOOKED_AT: Final = 8
"""The number of record lengths checked in larger batches: data that is not records shows in the first lengths."""
SMALL_COMPRESSED: Final = 4096
"""A small batch of up to this many compressed bytes is decompressed and read."""
SIGNATURES: Final = {
    Compression.GZIP: (b"\x1f\x8b",),
    Compression.LZ4: (b"\x04\x22\x4d\x18",),
    Compression.ZSTD: (b"\x28\xb5\x2f\xfd",),
}
"""The first bytes of each codec's data; snappy data may have no frame (librdkafka)."""
_LZ4_FLAGS: Final = 4
_LZ4_UNLINKED: Final = 0x20
"""The byte of a frame's flags, and the bit of independent blocks: Java's consumers cannot read linked blocks."""
RECORD_ERRORS_MAX: Final = 1000
"""Bad records named in one response; a producer drops the batch after the first."""
DECOMPRESSED_PER_MESSAGE_BYTE: Final = 32
"""The limit for decompressing a batch is this multiple of `max.message.bytes`: honest batches reach a tenth of it."""
SMALL_PLAIN: Final = 256 * 1024
"""Decompressed bytes of a small batch that are read at once; a larger batch is checked step by step."""
INLINE_RECORDS: Final = 4000
INLINE_BYTES: Final = 128 * 1024
"""A batch with at most this many records and decompressed bytes is read at once: two milliseconds. Others are read in
turns (`LongCheck`)."""
EMPTY_COST: Final = 1024
"""The cost, in bytes, of a step that decompressed nothing: an empty member of gzip or frame of zstd."""
PIECE_BYTES: Final = 64 * 1024
"""Decompressed bytes read in one step if their records are alike: half a millisecond."""
PIECE_RECORD: Final = 64
PIECE_MAX: Final = 1 << 20
"""Bytes of uncompressed records read in one step if their records are alike. The cost is by record, not by byte, so a
step takes as many records of any size as it takes records of `PIECE_RECORD` bytes in a piece."""
STEP_RECORDS: Final = 8192
"""Alike records read in one step: a piece may hold many small ones if a batch ends with a large one."""
STEP_BYTES: Final = 8 * 1024
"""Decompressed bytes read in one step, one record at a time: at most 1,200 records, one or two milliseconds."""
LOOP_MIN: Final = 8
LOOP_MAX: Final = 256
"""The maximum number of records read one at a time before the next attempt to read alike records; it doubles up to
this."""


INLINE_RECODED: Final = 16 * 1024
"""A batch of up to this many bytes, which decompresses to at most `SMALL_PLAIN`, is recompressed at once. Larger
batches are recompressed in a lane (`LongRecode`)."""


class Checked(NamedTuple):
    """The result of a `LongCheck` or `LongRecode` for a batch."""

    latest: int | None = None
    """The largest timestamp; None if the records were not read."""
    codec: int = -1
    payload: bytes | None = None
    """The records, compressed with `codec`."""


class InvalidRecords(KafkaError):  # noqa: N818
    """Some records of a batch are refused; `record_errors` are (index in the batch, message) pairs (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class LongCheck(KafkaError):  # noqa: N818
    """A batch has too many records to be read at once: `steps` reads them and returns the result.

    Each step takes about a millisecond and yields the number of bytes it will read. It raises the same errors as
    `check_records`. Callers that cannot wait respond with this error.
    """

    def __init__(self, header: BatchHeader, config: LogConfig, now_ms: int, name: str) -> None:
        super().__init__(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{name}: {header.count} records in {header.length} bytes are too many",
        )
        self._config = config
        self._now_ms = now_ms
        self._name = name

    def steps(self, records: bytes) -> Generator[int, None, Checked]:
        """`records`: a copy of the batch; all of it except the records has been checked."""
        latest = yield from _steps(records, read_header(records), self._config, self._now_ms, self._name)
        return Checked(latest)


class LongRecode(KafkaError):  # noqa: N818
    """A batch must be compressed with its topic's codec, which takes too long to be done at once.

    `work` does it in a lane: it touches only its argument. Callers that cannot wait respond with this error.
    """

    def __init__(self, header: BatchHeader, config: LogConfig, checked: Checked | None) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, f"{header.length} bytes are too many to compress anew at once")
        self._config = config
        self._latest = None if checked is None else checked.latest

    def work(self, records: bytes) -> Checked:
        """`records`: a copy of the batch. Raises the same errors as `recode`."""
        header = read_header(records)
        codec = target_codec(self._config, header.compression)
        return Checked(self._latest, codec, recode(records, header, self._config, output_limit(self._config)))


def output_limit(config: LogConfig) -> int:
    """The bytes that a batch may decompress to: `DECOMPRESSED_PER_MESSAGE_BYTE` times `max.message.bytes`."""
    return config.max_message_bytes * DECOMPRESSED_PER_MESSAGE_BYTE


def target_codec(config: LogConfig, codec: int) -> int:
    """The codec under which the topic stores a batch that was sent with `codec`."""
    wanted = config.compression_type
    return codec if wanted == "producer" else CODEC_NAMES[wanted]


def codec_level(config: LogConfig, codec: int) -> int | None:
    """The configured compression level of `codec`; None if it has no levels."""
    if codec == Compression.GZIP:
        return config.compression_gzip_level
    if codec == Compression.LZ4:
        return config.compression_lz4_level
    if codec == Compression.ZSTD:
        return config.compression_zstd_level
    return None


def looks_sound(section: Buffer, codec: int, count: int, base_timestamp: int, max_timestamp: int) -> bool:
    """Whether a batch can be stored without reading all records; the cost does not grow with the number of records.

    `section`: the encoded records as they were sent.
    """
    if codec == Compression.LZ4 and not _has_unlinked_blocks(section):
        return False
    if count <= FEW_RECORDS and (not codec or len(section) <= SMALL_COMPRESSED):
        try:
            plain = decompress(codec, section, SMALL_PLAIN) if codec else section
            shapes = read_shapes(plain, count)
        except BatchError:
            return False
        if count == 1:
            _, offset_delta, timestamp_delta, _, _ = shapes[0]
            return not offset_delta and base_timestamp + timestamp_delta == max_timestamp
        latest = base_timestamp + max([shape[2] for shape in shapes])
        return latest == max_timestamp and [shape[1] for shape in shapes] == list(range(count))
    if max_timestamp < base_timestamp:
        return False
    if not codec:
        return bounds_hold(section, count, LENGTHS_LOOKED_AT)
    signatures = SIGNATURES.get(Compression(codec))
    return signatures is None or bytes(section[:4]).startswith(signatures)


def check_records(data: Buffer, header: BatchHeader, config: LogConfig, now_ms: int, name: str) -> int:
    """Read every record of a client's batch and check its key and timestamp. Returns the largest timestamp, -1 without
    a timestamp.

    Raises InvalidRecords (INVALID_RECORD or INVALID_TIMESTAMP). Raises KafkaError: INVALID_RECORD if the records
    cannot be decoded, UNKNOWN_SERVER_ERROR if they cannot be decompressed (as in Kafka), MESSAGE_TOO_LARGE if they
    decompress to more than `output_limit`. Raises LongCheck if the batch is too large to be read at once.
    """
    if header.count > INLINE_RECORDS:
        raise LongCheck(header, config, now_ms, name)
    steps = _steps(data, header, config, now_ms, name)
    left = INLINE_BYTES
    while left > 0:
        try:
            left -= next(steps) or EMPTY_COST
        except StopIteration as done:
            return int(done.value)
    raise LongCheck(header, config, now_ms, name)


def _steps(data: Buffer, header: BatchHeader, config: LogConfig, now_ms: int, name: str) -> Generator[int, None, int]:
    judge = _Judge(header, config, now_ms, name)
    columns = Columns()
    cut = bytearray()  # the beginning of a record that continues in the next piece
    try:
        for piece in _pieces(data, header, config, name):
            yield len(piece)
            if cut:
                cut += piece
            plain = bytes(cut or piece)
            position = yield from _walk(plain, header.count - judge.seen, judge, columns)
            if judge.seen == header.count:
                check_filled(len(plain) - position, header.count, 0)
            if position or not cut:
                cut = bytearray(plain[position:])
        if judge.seen < header.count:
            missing = header.count - judge.seen
            read_columns(cut, 0, missing, columns, is_last=True)  # raises the error for the truncated record
            check_filled(0, header.count, missing)
    except VarintTooLong as e:
        code = ErrorCode.INVALID_RECORD if header.compression else ErrorCode.UNKNOWN_SERVER_ERROR
        raise KafkaError(code, f"{name}: {e}") from None
    except CorruptBatch as e:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{name}: {e}") from None
    return judge.largest_timestamp()


def _walk(plain: bytes, missing: int, judge: _Judge, columns: Columns) -> Generator[int, None, int]:
    """Read and judge up to `missing` records. Returns the position of the first record that `plain` does not hold
    whole.

    Yields 1 after each step's worth of work, so that the records of a piece are read in several steps.
    """
    position = begun = 0
    seen, end, patience = judge.seen, judge.seen + missing, LOOP_MIN
    while judge.seen < end:
        alike = read_alike(plain, position, min(end - judge.seen, STEP_RECORDS), judge.seen)
        if alike is not None and judge.accepts(alike):
            position = begun = alike.end
            patience = LOOP_MIN
            if judge.seen - seen >= STEP_RECORDS:
                seen = judge.seen
                yield 1
            continue
        some = min(patience, end - judge.seen)
        after = read_columns(plain, position, some, columns, is_last=False, until=position + STEP_BYTES)
        judge.look(columns)
        columns.clear()
        if after == position:
            break
        position = after
        patience = min(2 * patience, LOOP_MAX)
        if position - begun >= STEP_BYTES:
            begun = position
            yield 1
    return position


def _pieces(data: Buffer, header: BatchHeader, config: LogConfig, name: str) -> Iterator[Buffer]:
    """The encoded records: in pieces of at most `PIECE_MAX`, if compressed of at most `PIECE_BYTES` of the result."""
    section = memoryview(data)[header.position + HEADER_SIZE : header.position + header.length]
    if not header.compression:
        record = len(section) // max(header.count, 1)
        yield from _sliced(section, min(PIECE_BYTES * max(record // PIECE_RECORD, 1), PIECE_MAX))
        return
    if not section:
        code = ErrorCode.INVALID_RECORD if header.compression == Compression.ZSTD else ErrorCode.UNKNOWN_SERVER_ERROR
        raise KafkaError(code, f"{name}: no compressed data")
    if header.compression == Compression.LZ4 and not _has_unlinked_blocks(section):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: no lz4 frame with independent blocks")
    try:
        for piece in decompress_pieces(header.compression, section, output_limit(config), PIECE_BYTES):
            yield from _sliced(memoryview(piece), PIECE_BYTES)
    except DecompressionLimit as e:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{name}: {e} (32 times max.message.bytes)") from None
    except BatchError as e:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: {e}") from None


def _has_unlinked_blocks(section: Buffer) -> bool:
    return len(section) > _LZ4_FLAGS and bool(section[_LZ4_FLAGS] & _LZ4_UNLINKED)


def _sliced(view: memoryview, size: int) -> Iterator[memoryview]:
    yield view[:size]  # yield empty pieces too: they were a step of work
    for position in range(size, len(view), size):
        yield view[position : position + size]


class _Judge:
    """Checks records, one set of columns at a time, against the topic's configuration."""

    __slots__ = (
        "_appended",
        "_bad_time",
        "_config",
        "_earliest",
        "_errors",
        "_header",
        "_largest",
        "_latest",
        "_name",
        "seen",
    )

    def __init__(self, header: BatchHeader, config: LogConfig, now_ms: int, name: str) -> None:
        self._header = header
        self._config = config
        self._name = name
        self._earliest = now_ms - config.message_timestamp_before_max_ms
        self._latest = now_ms + config.message_timestamp_after_max_ms
        self._appended = header.max_timestamp if header.timestamp_type else None
        self.seen = 0
        """The number of records judged so far."""
        self._largest = NO_TIMESTAMP
        self._errors: list[tuple[int, str]] = []
        self._bad_time = False

    def accepts(self, alike: Alike) -> bool:
        """Whether the next records are valid; they count as judged only if True."""
        header, config = self._header, self._config
        if header.compression and not alike.in_order:
            return False
        if config.compact and not alike.has_keys:
            return False
        if self._appended is not None:
            return False  # clients do not write batches with append times
        smallest, largest = header.base_timestamp + alike.smallest, header.base_timestamp + alike.largest
        if not config.log_append_time and not self._earliest <= smallest <= largest <= self._latest:
            return False
        self._largest = max(self._largest, largest)
        self.seen += alike.records
        return True

    def look(self, columns: Columns) -> None:
        """Judge the records in `columns`."""
        header, config = self._header, self._config
        if not columns:
            return
        if header.compression and not columns.are_in_order(self.seen):
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"{self._name}: the offsets of compressed records leave gaps"
            )
        if self._appended is None:
            smallest = header.base_timestamp + min(columns.timestamps)
            largest = header.base_timestamp + max(columns.timestamps)
        else:
            smallest = largest = self._appended
        has_bad_key = config.compact and min(columns.keys) < 0
        is_in_time = self._appended is None and (
            config.log_append_time or (self._earliest <= smallest and largest <= self._latest)
        )
        if len(self._errors) < RECORD_ERRORS_MAX and (has_bad_key or not is_in_time):
            self._look_at_each(columns)
        self._largest = max(self._largest, largest)
        self.seen += len(columns)

    def _look_at_each(self, columns: Columns) -> None:
        config, errors, appended = self._config, self._errors, self._appended
        for index, timestamp_delta in enumerate(columns.timestamps):
            number = self.seen + index
            timestamp = self._header.base_timestamp + timestamp_delta if appended is None else appended
            if config.compact and columns.keys[index] < 0:
                errors.append(
                    (number, f"Compacted topic cannot accept message without key in topic partition {self._name}")
                )
            elif config.log_append_time or timestamp == NO_TIMESTAMP:
                if appended is not None:
                    self._bad_time = True
                    errors.append((number, _wrong_type(self._header, columns, index, timestamp)))
            elif not self._earliest <= timestamp <= self._latest:
                self._bad_time = True
                offset = columns.offsets[index]
                errors.append((number, timestamp_out_of_range(timestamp, offset, self._earliest, self._latest)))
            if len(errors) >= RECORD_ERRORS_MAX:
                break

    def largest_timestamp(self) -> int:
        """The largest timestamp. Raises InvalidRecords if any record is bad."""
        if self._errors:
            raise _invalid(self._errors, bad_time=self._bad_time)
        return self._largest


def _invalid(errors: list[tuple[int, str]], *, bad_time: bool) -> InvalidRecords:
    if bad_time:
        return InvalidRecords(
            ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp", errors
        )
    first = ", ".join(f"RecordError(batchIndex={index}, message='{why}')" for index, why in errors[:3])
    return InvalidRecords(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing the "
        f"first three errors at most: [{first}]",
        errors,
    )


def timestamp_out_of_range(timestamp: int, offset: int, earliest: int, latest: int) -> str:
    """The message for a refused timestamp, in Kafka's words."""
    return (
        f"Timestamp {timestamp} of message with offset {offset} is out of range. "
        f"The timestamp should be within [{earliest}, {latest}]"
    )


def _wrong_type(header: BatchHeader, columns: Columns, index: int, timestamp: int) -> str:
    kind = "PartialDefaultRecord" if header.compression else "DefaultRecord"
    return (
        f"Invalid timestamp type in message {kind}(offset={columns.offsets[index]}, timestamp={timestamp}, "
        f"key={columns.keys[index]} bytes, value={columns.values[index]} bytes). "
        "Producer should not set timestamp type to LogAppendTime."
    )


def recode(data: Buffer, header: BatchHeader, config: LogConfig, limit: int) -> bytes:
    """The batch's records, compressed with the topic's codec.

    Raises KafkaError UNKNOWN_SERVER_ERROR if they cannot be decompressed, MESSAGE_TOO_LARGE if they exceed `limit`
    bytes.
    """
    codec = target_codec(config, header.compression)
    try:
        plain = records_section(data, header, limit)
    except DecompressionLimit as e:
        raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"{e} (32 times max.message.bytes)") from None
    except BatchError as e:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(e)) from None
    return compress(codec, plain, codec_level(config, codec))


def recode_at_once(data: Buffer, header: BatchHeader, config: LogConfig, checked: Checked | None) -> Checked:
    """Like `recode`, for a batch without a `payload`. Raises LongRecode if the work belongs in a lane."""
    if header.length <= INLINE_RECODED:
        try:
            payload = recode(data, header, config, SMALL_PLAIN)
        except KafkaError as e:
            if e.code != ErrorCode.MESSAGE_TOO_LARGE:
                raise
        else:
            return Checked(None, target_codec(config, header.compression), payload)
    raise LongRecode(header, config, checked)


def rewrite(
    data: Buffer,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    base_offset: int,
    epoch: int,
    recoded: bytes | None = None,
) -> bytes:
    """The batch as the topic stores it: with the topic's codec, and with the append time if the topic uses it.

    `recoded`: the records under the topic's codec, if it differs from the batch's codec.
    """
    codec = target_codec(config, header.compression)
    attributes = header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT) | codec
    max_timestamp = header.max_timestamp
    if config.log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = now_ms
    payload: Buffer = memoryview(data)[header.position + HEADER_SIZE : header.position + header.length]
    if codec != header.compression:
        assert recoded is not None, "law: records are compressed before they are stored"
        payload = recoded
        attributes &= ~DELETE_HORIZON_BIT  # a batch that is built anew has none
    fields = (
        attributes,
        header.last_offset_delta,
        header.base_timestamp,
        max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.count,
    )
    return seal(base_offset, epoch, fields, payload)
