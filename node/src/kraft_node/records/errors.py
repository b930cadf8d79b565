"""What can be wrong with a batch. All are ValueErrors, so that a caller may catch one family."""

from __future__ import annotations


class BatchError(ValueError):
    """Bytes that should be record batches are not; `position` is where in the buffer the bad batch starts."""

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(f"{reason} (batch at byte {position})")
        self.reason = reason
        self.position = position


class CorruptBatch(BatchError):  # noqa: N818
    """The bytes contradict themselves: a length, the CRC, a varint or compressed data."""


class InvalidBatch(BatchError):  # noqa: N818
    """Sound bytes that break a rule of the format, such as a count that does not fit the offsets."""


class TruncatedBatch(CorruptBatch):
    """The buffer ends before the batch does."""


class UnsupportedMagic(BatchError):  # noqa: N818
    """A message format that is no longer supported (magic 0 or 1), or not yet known."""


class DecompressionLimit(CorruptBatch):
    """The records would decompress to more than the caller allows."""
