"""Splits ranges of offsets into tasks, and limits micro-batches. Arithmetic only, no input or output."""

from __future__ import annotations

import itertools

from kraft_pipeline.sources.positions import Offsets
from kraft_protocol.client.fetch import Range


def split(ranges: list[Range], *, min_partitions: int, max_records: int = 0) -> list[Range]:
    """Split the ranges into about `min_partitions` pieces in proportion to their sizes, at most `max_records` each.

    `max_records` 0 means no limit. Empty ranges are left out.
    """
    ranges = [r for r in ranges if r.end > r.start]
    total = sum(r.end - r.start for r in ranges)
    pieces = []
    for whole in ranges:
        size = whole.end - whole.start
        count = 1
        if len(ranges) < min_partitions:
            count = max(1, round(size / total * min_partitions))
        if max_records:
            count = max(count, -(-size // max_records))
        count = min(count, size)
        bounds = [whole.start + size * i // count for i in range(count + 1)]
        pieces += [whole._replace(start=a, end=b) for a, b in itertools.pairwise(bounds)]
    return pieces


def limited(start: Offsets, end: Offsets, most: int) -> Offsets:
    """End offsets of a micro-batch with about `most` records; each partition gets a share in proportion to its size.

    A partition with records always gets at least one record, so a small partition does not wait for a large partition.
    """
    sizes = {key: max(0, last - start.get(key, last)) for key, last in end.items()}
    total = sum(sizes.values())
    if total <= most:
        return end
    return {
        key: start[key] + min(size, max(1, size * most // total)) if size else end[key] for key, size in sizes.items()
    }
