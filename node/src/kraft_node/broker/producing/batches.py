"""Takes the single batch out of a producer's records, and refuses batches before the log is involved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT

ZSTD_VERSION: Final = 7
LOG_OVERHEAD: Final = 12
LEGACY_OVERHEAD: Final = 14
"""The minimum length of a message in any format."""
LENGTH_MAX: Final = 2**31 - 1 - LOG_OVERHEAD
"""The largest batch length that Java can represent."""
MAGIC_OFFSET: Final = 16
ATTRIBUTES_OFFSET: Final = 21
CODEC_MASK: Final = 7
ZSTD: Final = 4


class BatchRefused(KafkaError):  # noqa: N818 - an answer, not a fault
    """Refused before the log is involved; `words` go into the response."""

    def __init__(self, code: ErrorCode, message: str, words: str | None = None) -> None:
        super().__init__(code, message)
        self.words = words


def check_whole(topic_data: Any, version: int, is_known: Callable[[Any, int], bool], *, is_transactional: bool) -> None:
    """Raise BatchRefused if the first batch of any partition makes Kafka refuse the whole request of this version.

    `is_known`: whether a topic of the request has a partition. `is_transactional`: the request has a transactional id.
    """
    unknown_codec = 0
    for topic in topic_data:
        for data in topic.partition_data:
            records = data.records
            size = 0 if records is None else len(records)
            if size < LOG_OVERHEAD:
                continue
            if size <= MAGIC_OFFSET or records[MAGIC_OFFSET] != 2 or int.from_bytes(records[8:12], "big") + 12 != size:
                end = _batch_end(records, 0, size)
                if end <= ATTRIBUTES_OFFSET + 1 or records[MAGIC_OFFSET] != 2:
                    continue
            elif size <= ATTRIBUTES_OFFSET + 1:
                continue
            attributes = records[ATTRIBUTES_OFFSET + 1]
            if attributes & TRANSACTIONAL_BIT and not is_transactional:
                raise BatchRefused(
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records without a transactional id"
                )
            if version < ZSTD_VERSION and attributes & CODEC_MASK > ZSTD and is_known(topic, data.index):
                unknown_codec = attributes & CODEC_MASK
    if unknown_codec:
        raise BatchRefused(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {unknown_codec}")


def single_batch(records: Any, version: int) -> Any:
    """The batch in the `records` of a Produce request of this version, after `check_whole`. Raises KafkaError."""
    size = 0 if records is None else len(records)
    if size <= MAGIC_OFFSET or records[MAGIC_OFFSET] != 2 or int.from_bytes(records[8:12], "big") + 12 != size:
        records = _only_batch(records, size, version)
        size = len(records)
    if size <= ATTRIBUTES_OFFSET + 1:
        raise BatchRefused(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes are less than a record batch")
    attributes = records[ATTRIBUTES_OFFSET] << 8 | records[ATTRIBUTES_OFFSET + 1]
    if attributes & CODEC_MASK == ZSTD and version < ZSTD_VERSION:
        raise BatchRefused(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    if attributes & CODEC_MASK > ZSTD:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {attributes & CODEC_MASK}")
    if attributes & CONTROL_BIT:
        raise KafkaError(ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records")
    return records


def _only_batch(records: Any, size: int, version: int) -> Any:
    """The single batch in `records`; up to a few bytes after it are ignored.

    Raises KafkaError unless the records are exactly one batch in the current format.
    """
    end = _batch_end(records, 0, size)
    said = f"Produce requests with version {version}"
    if end < 0:
        raise BatchRefused(ErrorCode.INVALID_RECORD, f"{said} must have at least one record batch per partition")
    if _batch_end(records, end, size) >= 0:
        raise BatchRefused(
            ErrorCode.INVALID_RECORD, f"{said} are only allowed to contain exactly one record batch per partition"
        )
    if records[MAGIC_OFFSET] != 2:
        raise BatchRefused(
            ErrorCode.INVALID_RECORD, f"{said} are only allowed to contain record batches with magic version 2"
        )
    return records[:end]


def _batch_end(records: Any, start: int, size: int) -> int:
    """The end of the batch at `start`; -1 if no whole batch is there (Kafka's ByteBufferLogInputStream)."""
    if size - start < LOG_OVERHEAD:
        return -1
    length = int.from_bytes(records[start + 8 : start + 12], "big", signed=True)
    if length < LEGACY_OVERHEAD:
        why = f"Record size {length} is less than the minimum record overhead ({LEGACY_OVERHEAD})"
        raise BatchRefused(ErrorCode.CORRUPT_MESSAGE, why, None if start else why)
    if size - start <= MAGIC_OFFSET:
        return -1
    magic = records[start + MAGIC_OFFSET]
    if magic > 2:
        why = f"Invalid magic found in record: {magic - 256 if magic > 127 else magic}"
        raise BatchRefused(ErrorCode.CORRUPT_MESSAGE, why, None if start else why)
    if length > LENGTH_MAX:
        raise BatchRefused(ErrorCode.UNKNOWN_SERVER_ERROR, f"a batch of {length} bytes")
    end = start + LOG_OVERHEAD + length
    return end if end <= size else -1
