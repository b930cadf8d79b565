"""The record batches of a response to Fetch, in parts that are appended in one step of the loop each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from kraft_node.base import rare
from kraft_protocol.records.batch import LOG_OVERHEAD

Part: TypeAlias = tuple[memoryview, int]
"""Whole batches, and what it costs to append them."""

STEP: Final = 256
"""The cost of one step: about a millisecond. A batch costs 1, and 1 for each 4 KiB of it."""
ROW_COST: Final = 4
"""The cost of a partition without records."""
_PAGE_SHIFT: Final = 12


def parts(records: memoryview, first: int) -> Iterator[Part]:
    """The batches of `records` in order; the first part costs at most `first`, later ones `STEP`.

    A part has at least one batch. Bytes that are not whole batches are in the last part.
    """
    begin = position = cost = 0
    limit = 1 if rare.takes("follower step small") else first
    while position + LOG_OVERHEAD <= len(records):
        length = int.from_bytes(records[position + 8 : position + LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
        if length <= LOG_OVERHEAD or position + length > len(records):
            break
        own = 1 + (length >> _PAGE_SHIFT)
        if cost and cost + own > limit:
            yield records[begin:position], cost
            begin, cost, limit = position, 0, 1 if rare.takes("follower step small") else STEP
        cost += own
        position += length
    yield records[begin:], cost
