"""The partition of an internal topic to which a coordinator's key belongs.

Kafka takes Java's `String.hashCode` of the key, clears the sign and divides by the number of partitions. The result
here must be the same; otherwise two brokers would coordinate one group.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_INT_MIN_MAGNITUDE: Final = 1 << 31
REMEMBERED_MAX: Final = 20_000
"""Keys whose partition is remembered: a client repeats its key in each request."""


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, h = 31 h + unit, wrapping at 32 bits, signed."""
    h = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            h = (31 * h + unit) & 0xFFFFFFFF
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(raw), 2):
            h = (31 * h + (raw[i] << 8 | raw[i + 1])) & 0xFFFFFFFF
    return h - (1 << 32) if h & _INT_MIN_MAGNITUDE else h


@lru_cache(REMEMBERED_MAX)
def partition_for(key: str, partitions: int) -> int:
    """The partition of `key` among `partitions`; the hash -2^31, which has no positive counterpart, counts as 0."""
    h = abs(java_hash(key))
    return 0 if h == _INT_MIN_MAGNITUDE else h % partitions
