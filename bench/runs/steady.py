"""When a server counts as warm, and the short warm-up before each round of a long-lived server."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from bench.runs.row import Life, Measured, Step

WARM_S = 60
"""For all loads at once, on a server with code that is compiled while it runs."""
READY_S = 10
"""For all loads at once, on a server without a run-time compiler: only memory and files need a warm-up."""
BLOCK_S = 5
LIMIT_S = 20
"""The maximum for each load alone."""
WITHIN = 0.05
"""The medians of the last two blocks of seconds may differ by this share."""
AGAIN_S = 1.0
"""The same load before each round: compiled code stays, caches may not."""

Load = Callable[[float], Sequence[float]]
"""Runs for the given seconds and returns one figure per second."""


@dataclass(frozen=True)
class Part:
    """Rows of one kind on a shared server: the loads of its warm-up, and how to take a round."""

    loads: Mapping[str, Load]
    measure: Callable[[], Measured]


def life(step: Step, parts: Sequence[Part]) -> Life:
    """Warm a server with the loads of all parts; a round is one round of each part."""

    def measured() -> Measured:
        found = [part.measure() for part in parts]
        return Measured(
            {row: figure for one in found for row, figure in one.figures.items()},
            {name: value for one in found for name, value in one.detail.items()},
        )

    return Life(measured, warmed(step, {name: load for part in parts for name, load in part.loads.items()}))


def is_steady(series: Sequence[float], block: int = BLOCK_S) -> bool:
    """Whether the medians of the last two blocks of figures per second differ by at most WITHIN."""
    if len(series) < 2 * block:
        return False
    last, before = (statistics.median(series[-at * block :][:block]) for at in (1, 2))
    return before > 0 and abs(last / before - 1) <= WITHIN


def warmed(step: Step, loads: Mapping[str, Load]) -> dict[str, Any]:
    """Run all loads at once for WARM_S, then each alone until it is steady or LIMIT_S more seconds are over.

    A server without a run-time compiler gets READY_S of all loads at once. Returns, for the samples, `together_s`, and
    for each load `alone_s`, `steady` and the `series` alone.
    """
    if step.quick:
        return {name: {"series": list(load(1))} for name, load in loads.items()}
    is_compiled = step.server.kind == "kafka"
    seconds = WARM_S if is_compiled else READY_S
    with ThreadPoolExecutor(len(loads)) as pool:
        found = [running.result() for running in [pool.submit(load, seconds) for load in loads.values()]]
    if not is_compiled:
        return {"together_s": seconds, "series": [list(map(round, series)) for series in found]}
    # A single load had the server to itself all the time.
    before = found[0] if len(loads) == 1 else ()
    return {"together_s": seconds, **{name: _alone(load, before) for name, load in loads.items()}}


def _alone(load: Load, before: Sequence[float]) -> dict[str, Any]:
    series = list(before)
    seconds = 0
    while not is_steady(series) and seconds < LIMIT_S:
        series += load(BLOCK_S)
        seconds += BLOCK_S
    return {"alone_s": seconds, "steady": is_steady(series), "series": [round(value) for value in series]}


def again(step: Step, load: Callable[[float], object]) -> None:
    """Run the short warm-up before a round."""
    load(step.size(AGAIN_S, 0.2))
