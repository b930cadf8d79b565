"""Ranges of offsets cut into tasks, and what a micro-batch may take. No input or output: arithmetic only."""

from __future__ import annotations

import itertools

from kraft_pipeline.client.fetch import Range
from kraft_pipeline.sources.positions import Offsets


def split(ranges: list[Range], *, min_partitions: int, max_records: int = 0) -> list[Range]:
    """The ranges cut so that there are about `min_partitions`, large ones into more pieces, none above `max_records`.

    Empty ranges are left out.
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
    """How far a micro-batch goes that takes about `most` records: from each partition its share of what there is.

    A partition with records always gets one, or a small one would wait for as long as a large one has some.
    """
    sizes = {key: max(0, last - start.get(key, last)) for key, last in end.items()}
    total = sum(sizes.values())
    if total <= most:
        return end
    return {
        key: start[key] + min(size, max(1, size * most // total)) if size else end[key] for key, size in sizes.items()
    }
