"""The rule by which a server counts as warm: at least a minute of the same load, then until its figures stand still."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from bench.row import Step

WARM_S = 60
BLOCK_S = 15
LIMIT_S = 180
WITHIN = 0.05
"""The medians of the last two blocks of seconds differ by no more than this share."""


def is_steady(series: Sequence[float], block: int = BLOCK_S) -> bool:
    """Whether the last block of figures a second has the median of the block before it, but for WITHIN."""
    if len(series) < 2 * block:
        return False
    last, before = (statistics.median(series[-at * block :][:block]) for at in (1, 2))
    return before > 0 and abs(last / before - 1) <= WITHIN


def warmed(step: Step, load: Callable[[float], Sequence[float]]) -> dict[str, Any]:
    """Run `load` (for so many seconds; it returns a figure a second) until it is steady or LIMIT_S are over.

    Returns `warm_s`, `steady` and the `series` for the samples.
    """
    if step.quick:
        return {"warm_s": 1, "series": list(load(1))}
    series = list(load(WARM_S))
    seconds = WARM_S
    while not is_steady(series) and seconds < LIMIT_S:
        series += load(BLOCK_S)
        seconds += BLOCK_S
    return {"warm_s": seconds, "steady": is_steady(series), "series": [round(value) for value in series]}
