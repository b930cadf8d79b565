"""Medians with exact confidence intervals, and the verdict on a row.

The interval of a median lies between two order statistics. Its coverage follows from the binomial distribution alone
and assumes nothing about the distribution of samples. The minimum and maximum of five samples cover 93.75 %, of six
samples 96.9 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
JUDGED_MIN = 5
"""Fewer pairs get no verdict: their interval covers the median in less than nine of ten cases."""

BETTER, NOISE, WORSE, UNJUDGED = "better", "within noise", "worse", "too few samples"


@dataclass(frozen=True)
class Interval:
    """A median, and bounds that cover the true median with probability `coverage`."""

    median: float
    low: float
    high: float
    coverage: float
    count: int


def median_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """The narrowest pair of order statistics that covers `confidence`; otherwise minimum and maximum."""
    if not values:
        raise ValueError("an interval needs at least one value")
    ordered = sorted(values)
    count = len(ordered)
    outside = 0.0
    rank, coverage = 1, 1 - 2 / 2**count
    for k in range(1, count // 2 + 1):
        outside += math.comb(count, k - 1) / 2**count
        if 1 - 2 * outside < confidence:
            break
        rank, coverage = k, 1 - 2 * outside
    return Interval(statistics.median(ordered), ordered[rank - 1], ordered[count - rank], max(0.0, coverage), count)


def ratios(first: dict[int, float], second: dict[int, float]) -> list[float]:
    """Ratios of the rounds with figures of both servers; a round with a zero has no ratio."""
    return [first[at] / second[at] for at in sorted(first.keys() & second.keys()) if second[at] > 0 and first[at] > 0]


def verdict(ratio: Interval, *, more_is_better: bool) -> str:
    """Better or worse only if the ratio's whole interval lies on that side of 1."""
    if ratio.count < JUDGED_MIN:
        return UNJUDGED
    if ratio.low > 1:
        return BETTER if more_is_better else WORSE
    if ratio.high < 1:
        return WORSE if more_is_better else BETTER
    return NOISE


def reaches(value: Interval, aim: float, *, more_is_better: bool) -> str:
    """Whether the median reaches the aim; "unsure" is added if the interval holds values on both sides of the aim."""
    good = value.median >= aim if more_is_better else value.median <= aim
    sure = not value.low < aim < value.high
    return ("yes" if good else "no") + ("" if sure else ", unsure")
