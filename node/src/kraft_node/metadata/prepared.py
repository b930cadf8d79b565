"""Metadata records before their append: encoded, split into batches, with their future offsets.

`server.quorum.driver` prepares, the controller replays the records on its overlay, the driver schedules. Nothing gets
into the log before, so a record that cannot be replayed never gets there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from kraft_node.metadata.log_batches import encode_values
from kraft_node.raft.accumulator import BATCH_BYTES_MAX, RECORD_OVERHEAD_BYTES


class Prepared(NamedTuple):
    """Records of one plan, for the leader of `epoch`."""

    epoch: int
    first_offset: int
    batches: Sequence[Sequence[Any]]
    """The records by batch; each batch is committed or lost as a whole."""
    values: Sequence[Sequence[bytes]]
    """The encoded records by batch."""

    @property
    def last_offset(self) -> int:
        """The offset of the last record: an answer waits for its commit."""
        return self.first_offset + sum(map(len, self.batches)) - 1


def encoded_batches(
    records: Sequence[Any], metadata_level: int, *, atomic: bool
) -> tuple[list[Sequence[Any]], list[Sequence[bytes]]]:
    """The records by batch, and the same encoded. `atomic`: all in one batch, of any size."""
    values = encode_values(records, metadata_level)
    if atomic:
        return [records], [values]
    ends = _ends(values)
    cuts = list(zip([0, *ends], ends, strict=False))
    return [records[first:end] for first, end in cuts], [values[first:end] for first, end in cuts]


def _ends(values: Sequence[bytes]) -> list[int]:
    """The end of each batch, if batches are filled to the limit."""
    ends = []
    size = 0
    for index, value in enumerate(values):
        length = len(value) + RECORD_OVERHEAD_BYTES
        if size and size + length > BATCH_BYTES_MAX:
            ends.append(index)
            size = 0
        size += length
    return [*ends, len(values)]
