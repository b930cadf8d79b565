"""Appends that arrived while a flush was running: they share one batch and the next flush.

A lone append is written at once. While the disk is busy, further appends wait here for at most `append.linger.ms`, so
that under load each fsync commits many of them. Offsets are assigned on arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kraft_node.base import rare

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""Kafka's limit for one batch of the metadata log. Records that are appended together must fit (KIP-631, KIP-868)."""

RECORD_OVERHEAD_BYTES: Final = 32
"""Upper bound of the overhead of each value in a batch."""

PENDING_BYTES_MAX: Final = 64 * 1024 * 1024
"""If this many bytes wait, the disk cannot keep up: further appends of any size are refused until it has caught up."""


class BatchTooLarge(ValueError):  # noqa: N818 - named after what it says
    """The records to append together do not fit into one batch, or too many bytes wait for the disk."""


def size_of(records: Sequence[bytes]) -> int:
    """Upper bound of the size of a batch with these record values, in bytes."""
    return sum(map(len, records)) + RECORD_OVERHEAD_BYTES * len(records)


class Accumulator:
    """Batches that are not written yet. Their offsets continue the log."""

    __slots__ = ("_batches", "_bytes", "_last_bytes", "first_ms", "next_offset")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        """The offset of the next appended record."""
        self.first_ms = 0
        """Arrival time of the oldest waiting append."""
        self._batches: list[list[bytes]] = []
        self._bytes = 0
        self._last_bytes = 0

    @property
    def is_empty(self) -> bool:
        """Whether no append waits. `first_ms` has no meaning then."""
        return not self._batches

    def check(self, batches: Sequence[Sequence[bytes]]) -> None:
        """Raise BatchTooLarge if a batch exceeds the limit for one batch, or if too many bytes wait for the disk
        already.
        """
        if self._bytes >= PENDING_BYTES_MAX:
            raise BatchTooLarge(f"{self._bytes} bytes wait for the disk already")
        for records in batches:
            size = size_of(records)
            if size > BATCH_BYTES_MAX:
                text = f"{len(records)} records of {size} bytes do not fit into a batch of {BATCH_BYTES_MAX}"
                raise BatchTooLarge(text)

    def add(self, records: Sequence[bytes], now_ms: int) -> int:
        """Take a batch that `check` has accepted. Returns the offset of its first record."""
        size = size_of(records)
        if not self._batches:
            self.first_ms = now_ms
        if self._batches and self._last_bytes + size <= BATCH_BYTES_MAX and not rare.takes("batch of one change"):
            self._batches[-1].extend(records)
            self._last_bytes += size
        else:
            self._batches.append(list(records))
            self._last_bytes = size
        self._bytes += size
        first = self.next_offset
        self.next_offset += len(records)
        return first

    def drain(self) -> list[list[bytes]]:
        """Remove and return all waiting batches, in order."""
        batches, self._batches = self._batches, []
        self._bytes = self._last_bytes = 0
        return batches
