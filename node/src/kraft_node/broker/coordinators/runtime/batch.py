"""Records of several operations that will be appended as one batch, after they were replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kraft_node.broker.coordinators.runtime.machine import StoredRecord

BATCH_OVERHEAD: Final = 61
RECORD_OVERHEAD: Final = 32
"""The most that a record's lengths, deltas and attributes take besides key and value, in bytes."""


def size_of(records: list[StoredRecord]) -> int:
    """An upper bound of the size of a batch of `records`."""
    size = BATCH_OVERHEAD
    for key, value in records:
        size += RECORD_OVERHEAD + len(key) + (0 if value is None else len(value))
    return size


class OpenBatch:
    """Encoded records for the offsets from `base` on; `begun_ms` is when the first was added."""

    __slots__ = ("base", "begun_ms", "records", "size")

    def __init__(self, base: int, begun_ms: int) -> None:
        self.base = base
        self.begun_ms = begun_ms
        self.records: list[StoredRecord] = []
        self.size = BATCH_OVERHEAD

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.base + len(self.records)

    def add(self, records: list[StoredRecord], size: int) -> None:
        """Add the records of one operation; `size` as in `size_of`."""
        self.records += records
        self.size += size - BATCH_OVERHEAD
