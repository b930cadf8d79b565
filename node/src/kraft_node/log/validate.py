"""What a leader checks and changes in a batch before it is stored, beyond the header (Kafka's LogValidator).

Records are decoded only when the topic's configuration cannot be honoured otherwise: keys on compacted topics and
`message.timestamp.before.max.ms`. `message.timestamp.after.max.ms` is proven by the header's largest timestamp alone,
and a change of codec moves the records' bytes as they are. A batch whose CRC is right but whose records are not, or
whose header states another largest timestamp than its records have, is therefore stored as it came; Kafka, which
decodes every record, would refuse the former and correct the latter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.base.env import Buffer
from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    iter_records,
    records_section,
    seal,
)
from kraft_node.records.compression import CODEC_NAMES, Compression, compress
from kraft_node.records.errors import BatchError

if TYPE_CHECKING:
    from kraft_node.log.config import LogConfig

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


def check_records(data: Buffer, header: BatchHeader, config: LogConfig, now_ms: int, name: str) -> None:
    """Check each record's key and timestamp where the topic asks for it.

    Raises InvalidRecords with INVALID_RECORD or INVALID_TIMESTAMP, KafkaError CORRUPT_MESSAGE.
    """
    need_key = config.compact
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    check_time = not config.log_append_time
    errors: list[tuple[int, str]] = []
    bad_time = False
    try:
        for number, record in enumerate(iter_records(data, header, limit=output_limit(header.length))):
            if need_key and record.key is None:
                errors.append((number, f"Compacted topic cannot accept message without key in topic partition {name}."))
            elif check_time and record.timestamp != NO_TIMESTAMP and not earliest <= record.timestamp <= latest:
                bad_time = True
                errors.append((number, timestamp_out_of_range(record.timestamp, earliest, latest)))
            if len(errors) >= RECORD_ERRORS_MAX:
                break
    except BatchError as e:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{name}: {e}") from None
    if errors:
        code = ErrorCode.INVALID_TIMESTAMP if bad_time else ErrorCode.INVALID_RECORD
        raise InvalidRecords(code, "One or more records have been rejected", errors)


def timestamp_out_of_range(timestamp: int, earliest: int, latest: int) -> str:
    """Why a timestamp is refused."""
    return f"Timestamp {timestamp} of message is out of range. The timestamp should be within [{earliest}, {latest}]"


def rewrite(data: Buffer, header: BatchHeader, config: LogConfig, now_ms: int, base_offset: int, epoch: int) -> bytes:
    """The batch as the topic stores it: with its codec, and with the append time where the topic says so.

    Raises KafkaError CORRUPT_MESSAGE when it cannot be decompressed.
    """
    codec = target_codec(config, header.compression)
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    max_timestamp = header.max_timestamp
    if config.log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = now_ms
    payload: Buffer = memoryview(data)[header.position + HEADER_SIZE : header.position + header.length]
    if codec != header.compression:
        try:
            payload = records_section(data, header, output_limit(header.length))
        except BatchError as e:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(e)) from None
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
