"""How long the event loop makes others wait: a histogram of its turns, and a log line for each slow callback.

A turn begins when the loop learns which descriptors are ready, and ends when it polls again. Everything that becomes
ready in a turn waits for its end, so the length of turns limits the lag. `runtime.loop` measures. The cost is one
reading of the clock per callback, which is not a system call on Linux.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

log = logging.getLogger("kraft_node.loop")

SLOW_S: Final = 0.1
"""A longer callback gets a log line: heartbeats and clients wait for this long."""

BUCKETS: Final = 33
"""Bucket n counts turns shorter than 2^n microseconds; the last bucket counts all longer turns."""

FIRST_SHOWN: Final = 6
LAST_SHOWN: Final = 24
"""The range of buckets in the metrics: from 64 microseconds to 16 seconds."""


class LoopLag:
    """The turns of one loop since the start."""

    __slots__ = ("counts", "slow_callbacks", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.total_s = 0.0
        self.slow_callbacks = 0

    def turn(self, seconds: float) -> None:
        """Count a turn of this duration."""
        bucket = int(seconds * 1_000_000).bit_length()
        self.counts[bucket if bucket < BUCKETS else BUCKETS - 1] += 1
        self.total_s += seconds

    def slow(self, seconds: float, kind: str, function: Callable[..., Any], args: tuple[Any, ...] = ()) -> None:
        """Log a callback that took longer than SLOW_S."""
        self.slow_callbacks += 1
        log.warning("event loop stalled ms=%d kind=%s %s", seconds * 1000, kind, name_of(function, args))

    @property
    def count(self) -> int:
        """The number of turns."""
        return sum(self.counts)

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """(bound in seconds, turns up to it) for each bucket, as in Prometheus."""
        seen = sum(self.counts[:FIRST_SHOWN])
        for bucket in range(FIRST_SHOWN, LAST_SHOWN + 1):
            seen += self.counts[bucket]
            yield f"{(1 << bucket) / 1_000_000:g}", seen
        yield "+Inf", self.count


def name_of(function: Callable[..., Any], args: tuple[Any, ...] = ()) -> str:
    """A callback for the log, as key=value pairs. Its owner may add pairs with `callback_name()`."""
    inner: Any = function
    while isinstance(inner, partial):
        inner, args = inner.func, (*inner.args, *args)
    owner = getattr(inner, "__self__", inner)
    more = getattr(owner, "callback_name", None)
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    pairs = [f"callback={name}"]
    pairs += [f"of={arg!r}" for arg in args[:2] if isinstance(arg, str) and arg]
    if more is not None:
        pairs.append(more())
    return " ".join(pair for pair in pairs if pair)
