"""Errors of batches. All are ValueErrors, so that callers can catch them together."""

from __future__ import annotations


class BatchError(ValueError):
    """The bytes are not a valid batch; `position` is the start of the bad batch in the buffer."""

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(f"{reason} (batch at byte {position})")
        self.reason = reason
        self.position = position


class CorruptBatch(BatchError):  # noqa: N818
    """The bytes contradict each other: a length, the CRC, a varint or compressed data."""


class VarintTooLong(CorruptBatch):
    """A varint is longer than any number needs (Kafka treats it as an internal error)."""


class InvalidBatch(BatchError):  # noqa: N818
    """Undamaged bytes that violate the format, such as a count that does not match the offsets."""


class TruncatedBatch(CorruptBatch):
    """The buffer ends before the batch does."""


class UnsupportedMagic(BatchError):  # noqa: N818
    """A message format that is no longer supported (magic 0 or 1), or unknown."""


class DecompressionLimit(CorruptBatch):
    """The records would decompress to more bytes than the caller allows."""
