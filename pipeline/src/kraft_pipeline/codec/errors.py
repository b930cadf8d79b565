"""Errors of decoding record batches."""

from __future__ import annotations


class CodecError(ValueError):
    """A batch cannot be decoded; `offset` is its base offset, -1 if it is unknown."""

    def __init__(self, reason: str, offset: int = -1) -> None:
        super().__init__(f"{reason} (batch at offset {offset})" if offset >= 0 else reason)
        self.reason = reason
        self.offset = offset


class CorruptBatch(CodecError):  # noqa: N818
    """The bytes contradict themselves: a length, the CRC, a varint or compressed data."""


class UnsupportedBatch(CodecError):  # noqa: N818
    """A message format (magic) or codec that this release does not know."""
