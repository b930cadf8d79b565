"""The record batches of a response to Fetch, or of a log that is copied, in parts that are appended in one step of the
loop each."""

from __future__ import annotations

from typing import Final, TypeAlias

from kraft_node.base import rare
from kraft_protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD

Part: TypeAlias = tuple[memoryview, int]
"""Whole batches, and what it costs to append them."""

STEP: Final = 256
"""The cost of one step: about a millisecond. A batch costs 1, and 1 for each 4 KiB of it."""
ROLLS_MAX: Final = 8
"""Segments that one step begins."""
ROW_COST: Final = 4
"""The cost of a partition without records."""
_PAGE_SHIFT: Final = 12


def next_part(records: memoryview, limit: int) -> Part:
    """The batches at the start of `records` that cost at most `limit`, at least one; empty without a whole batch.

    Bytes that are no batch are in the part with all that follows, so that the append refuses them.
    """
    end = cost = 0
    if rare.takes("follower step small"):
        limit = 1
    while end + LOG_OVERHEAD <= len(records):
        length = int.from_bytes(records[end + 8 : end + LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
        if length < HEADER_SIZE:
            return records, cost
        own = 1 + (length >> _PAGE_SHIFT)
        if end + length > len(records) or (cost and cost + own > limit):
            break
        cost += own
        end += length
    return records[:end], cost
