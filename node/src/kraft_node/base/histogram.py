"""Counts of values in log-linear buckets, for the quantiles of durations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

QUANTILES: Final = (("0.50", 0.5), ("0.75", 0.75), ("0.95", 0.95), ("0.98", 0.98), ("0.99", 0.99), ("0.999", 0.999))
"""The quantiles of Kafka's histograms."""

BUCKETS: Final = 256
"""Log-linear buckets, 4 per power of two: values up to 2^64 with an error of at most a quarter."""

GENERATION_MS: Final = 60_000
"""A histogram covers the present and the previous generation: the last one to two minutes."""


def bucket_of(value: int) -> int:
    """The bucket of `value` (not negative)."""
    if value < 4:
        return value
    shift = value.bit_length() - 3
    return min(4 * shift + (value >> shift), BUCKETS - 1)


def bucket_top(bucket: int) -> int:
    """The largest value of a bucket."""
    if bucket < 4:
        return bucket
    shift = bucket // 4 - 1
    return ((bucket % 4 + 5) << shift) - 1


class Histogram:
    """Counts of non-negative integers; buckets exist once used."""

    __slots__ = ("_now", "_past", "_since_ms", "count", "max", "total")

    def __init__(self) -> None:
        self._now: dict[int, int] = {}
        self._past: dict[int, int] = {}
        self._since_ms = 0
        self.count = 0
        self.total = 0
        self.max = 0

    def observe(self, value: int, times: int = 1) -> None:
        """Count `value`, `times` times."""
        bucket = bucket_of(value) if value > 0 else 0
        self._now[bucket] = self._now.get(bucket, 0) + times
        self.count += times
        self.total += value * times
        self.max = max(self.max, value)

    def turn(self, now_ms: int) -> None:
        """Start a new generation if the present generation is old; called by readers."""
        if now_ms - self._since_ms >= GENERATION_MS:
            is_recent = now_ms - self._since_ms < 2 * GENERATION_MS
            self._past = self._now if is_recent else {}
            self._now = {}
            self._since_ms = now_ms

    def quantiles(self, shares: Sequence[tuple[str, float]] = QUANTILES) -> list[tuple[str, int]]:
        """Upper bounds of the recent values' quantiles, by the names in `shares`."""
        counts = dict(self._past)
        for bucket, count in self._now.items():
            counts[bucket] = counts.get(bucket, 0) + count
        total = sum(counts.values())
        ordered = sorted(counts.items())
        found = []
        for name, share in shares:
            rank, seen, value = share * total, 0, 0
            for bucket, count in ordered:
                seen += count
                value = bucket_top(bucket)
                if seen >= rank:
                    break
            found.append((name, min(value, self.max)))
        return found
