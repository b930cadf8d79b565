"""What a leader checks and changes in a batch before it is stored, beyond the header (Kafka's LogValidator).

Kafka decodes every record. Here a batch costs what it costs whatever it holds (`looks_sound`): few records are read, of
many the first lengths, of compressed ones what tells the codec. Only a batch that looks wrong, and one to a topic whose
configuration cannot be honoured otherwise (keys on compacted topics, `message.timestamp.before.max.ms`), has all its
records read, and is answered as Kafka answers it. So what is wrong deep inside a long batch with a right CRC is stored
as it came; docs/differences.md has the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.base.env import Buffer
from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.records.batch import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    TRANSACTIONAL_BIT,
    BatchHeader,
    records_section,
    seal,
)
from kraft_node.records.compression import CODEC_NAMES, Compression, compress, decompress
from kraft_node.records.errors import BatchError, CorruptBatch
from kraft_node.records.shapes import Shape, VarintTooLong, bounds_hold, read_shapes

if TYPE_CHECKING:
    from kraft_node.log.config import LogConfig

FEW_RECORDS: Final = 4
"""So many records are read before they are stored: a microsecond each, in a request that costs tens."""
LENGTHS_LOOKED_AT: Final = 8
"""Of more records so many lengths are looked at: what is no records at all shows in the first."""
SMALL_COMPRESSED: Final = 4096
"""Few records in so few compressed bytes are decompressed to be read."""
SIGNATURES: Final = {
    Compression.GZIP: (b"\x1f\x8b",),
    Compression.LZ4: (b"\x04\x22\x4d\x18",),
    Compression.ZSTD: (b"\x28\xb5\x2f\xfd",),
}
"""What a codec's data begins with; snappy's may have no frame (librdkafka's)."""
RECORD_ERRORS_MAX: Final = 1000
"""Bad records named in one answer; a producer drops the batch after the first."""
DECOMPRESSED_RATIO_MAX: Final = 1024
DECOMPRESSED_FLOOR: Final = 16 * 1024 * 1024


class InvalidRecords(KafkaError):  # noqa: N818
    """Some records of a batch are refused; `record_errors` are (index in the batch, why) pairs (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


def output_limit(size: int) -> int:
    """Bytes that a batch of `size` may decompress to on the event loop: no codec in honest use reaches 1:1024."""
    return max(DECOMPRESSED_FLOOR, size * DECOMPRESSED_RATIO_MAX)


def target_codec(config: LogConfig, codec: int) -> int:
    """The codec under which the topic stores a batch that came with `codec`."""
    wanted = config.compression_type
    return codec if wanted == "producer" else CODEC_NAMES[wanted]


def codec_level(config: LogConfig, codec: int) -> int | None:
    """The configured compression level."""
    if codec == Compression.GZIP:
        return config.compression_gzip_level
    if codec == Compression.LZ4:
        return config.compression_lz4_level
    if codec == Compression.ZSTD:
        return config.compression_zstd_level
    return None


def looks_sound(section: Buffer, codec: int, count: int, base_timestamp: int, max_timestamp: int) -> bool:
    """Whether a batch's records need no second look; costs the same for one record and for a million.

    `section`: the encoded records as they came.
    """
    if count <= FEW_RECORDS and (not codec or len(section) <= SMALL_COMPRESSED):
        try:
            plain = decompress(codec, section, output_limit(len(section))) if codec else section
            shapes = read_shapes(plain, count)
        except BatchError:
            return False
        if count == 1:
            offset_delta, timestamp_delta, _, _ = shapes[0]
            return not offset_delta and base_timestamp + timestamp_delta == max_timestamp
        return _are_in_order(shapes) and base_timestamp + _latest(shapes) == max_timestamp
    if max_timestamp < base_timestamp:
        return False
    if not codec:
        return bounds_hold(section, count, LENGTHS_LOOKED_AT)
    signatures = SIGNATURES.get(Compression(codec))
    return signatures is None or bytes(section[:4]).startswith(signatures)


def _latest(shapes: list[Shape]) -> int:
    return max([shape[1] for shape in shapes])


def _are_in_order(shapes: list[Shape]) -> bool:
    return [shape[0] for shape in shapes] == list(range(len(shapes)))


def check_records(data: Buffer, header: BatchHeader, config: LogConfig, now_ms: int, name: str) -> int:
    """Read every record of a client's batch, and check its key and timestamp; the largest timestamp, -1 for none.

    Raises InvalidRecords with INVALID_RECORD or INVALID_TIMESTAMP, KafkaError INVALID_RECORD for what cannot be read,
    UNKNOWN_SERVER_ERROR for what cannot be decompressed (as Kafka says it).
    """
    shapes = _shapes(data, header, name)
    if header.compression and not _are_in_order(shapes):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: the offsets of compressed records leave gaps")
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    appended = header.max_timestamp if header.timestamp_type else None
    largest = NO_TIMESTAMP
    errors: list[tuple[int, str]] = []
    bad_time = False
    for number, shape in enumerate(shapes):
        offset_delta, timestamp_delta, key_size, _ = shape
        timestamp = header.base_timestamp + timestamp_delta if appended is None else appended
        largest = max(largest, timestamp)
        if config.compact and key_size < 0:
            errors.append((number, f"Compacted topic cannot accept message without key in topic partition {name}"))
        elif config.log_append_time or timestamp == NO_TIMESTAMP:
            if appended is not None:
                bad_time = True
                errors.append((number, _wrong_type(header, shape, timestamp)))
        elif not earliest <= timestamp <= latest:
            bad_time = True
            errors.append((number, timestamp_out_of_range(timestamp, offset_delta, earliest, latest)))
        if len(errors) >= RECORD_ERRORS_MAX:
            break
    if errors:
        raise _invalid(errors, bad_time=bad_time)
    return largest


def _shapes(data: Buffer, header: BatchHeader, name: str) -> list[Shape]:
    if header.compression and header.length == HEADER_SIZE:
        code = ErrorCode.INVALID_RECORD if header.compression == Compression.ZSTD else ErrorCode.UNKNOWN_SERVER_ERROR
        raise KafkaError(code, f"{name}: no compressed data")
    try:
        section = records_section(data, header, output_limit(header.length))
    except BatchError as e:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{name}: {e}") from None
    try:
        return read_shapes(section, header.count)
    except VarintTooLong as e:
        code = ErrorCode.INVALID_RECORD if header.compression else ErrorCode.UNKNOWN_SERVER_ERROR
        raise KafkaError(code, f"{name}: {e}") from None
    except CorruptBatch as e:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{name}: {e}") from None


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
    """Why a timestamp is refused."""
    return (
        f"Timestamp {timestamp} of message with offset {offset} is out of range. "
        f"The timestamp should be within [{earliest}, {latest}]"
    )


def _wrong_type(header: BatchHeader, shape: Shape, timestamp: int) -> str:
    offset_delta, _, key_size, value_size = shape
    kind = "PartialDefaultRecord" if header.compression else "DefaultRecord"
    return (
        f"Invalid timestamp type in message {kind}(offset={offset_delta}, timestamp={timestamp}, "
        f"key={key_size} bytes, value={value_size} bytes). "
        "Producer should not set timestamp type to LogAppendTime."
    )


def rewrite(data: Buffer, header: BatchHeader, config: LogConfig, now_ms: int, base_offset: int, epoch: int) -> bytes:
    """The batch as the topic stores it: with its codec, and with the append time where the topic says so.

    Raises KafkaError UNKNOWN_SERVER_ERROR when it cannot be decompressed.
    """
    codec = target_codec(config, header.compression)
    attributes = header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT | DELETE_HORIZON_BIT) | codec
    max_timestamp = header.max_timestamp
    if config.log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = now_ms
    payload: Buffer = memoryview(data)[header.position + HEADER_SIZE : header.position + header.length]
    if codec != header.compression:
        try:
            payload = records_section(data, header, output_limit(header.length))
        except BatchError as e:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(e)) from None
        if codec:
            payload = compress(codec, payload, codec_level(config, codec))
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
