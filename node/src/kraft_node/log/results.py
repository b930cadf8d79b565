"""The results of appends and reads."""

from __future__ import annotations

from typing import NamedTuple

from kraft_node.log.segments.segment import Segment
from kraft_protocol.buffers import FileSlice


class AppendInfo(NamedTuple):
    """The place of appended records.

    `log_append_time_ms` is -1 unless the topic sets it (or the records are duplicates).
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    log_start_offset: int
    is_duplicate: bool = False


class FetchSlice:
    """Read records: `records` begins with the batch that holds `offset` and may end inside a batch, as in Kafka.

    `first_batch_incomplete`: the first batch alone is larger than requested; then the result has no records.
    """

    __slots__ = ("_end", "_limit", "_segment", "first_batch_incomplete", "offset", "records")

    def __init__(
        self,
        offset: int,
        records: FileSlice | bytes,
        segment: Segment | None,
        limit: int,
        *,
        first_batch_incomplete: bool = False,
    ) -> None:
        self.offset = offset
        self.records = records
        self._segment = segment
        self._limit = limit
        self._end = records.position + records.length if isinstance(records, FileSlice) else 0
        self.first_batch_incomplete = first_batch_incomplete

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.records.length if isinstance(self.records, FileSlice) else len(self.records)

    @property
    def next_offset(self) -> int:
        """An offset that the records do not exceed; close to, but not always exactly after the last record.

        Read from the index, so call it only when needed (the upper bound for aborted transactions). Raises OSError.
        """
        if self._segment is None:
            return self.offset
        return min(self._limit, self._segment.upper_bound(self._end, self._limit))
