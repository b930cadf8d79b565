"""Many clients at once, each with one request under way; and single records that must be on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.clients import asking, frames, load
from bench.runs import steady
from bench.runs.row import Figures, Life, Measured, Row, Scenario, Step
from bench.servers.process import cpu_s
from tests.compat.targets import Target

MEASURED_S = 3
"""Seconds per row and round."""
CROWDS = (1, 10, 100, 10_000)
"""Connections."""
TOPIC, FLUSHED = "many", "flushed"
FLUSHED_DEPTHS = (1, 100)
"""Requests in flight on one connection."""


def _names(connections: int) -> tuple[str, str, str]:
    """Rate, p99 and processor time."""
    what = f"one-record requests from {connections:,} connection{'s' if connections > 1 else ''}"
    return f"{what} at once", f"{what} at once: p99", f"{what} at once: CPU per 1,000 requests"


def _flushed(depth: int) -> str:
    return f"one-record requests, flush.messages=1, {depth} in flight"


@contextmanager
def crowds(step: Step) -> Iterator[Life]:
    """Connections of all crowds are opened anew in each round, before it is measured."""
    request = frames.produce(TOPIC, 0, frames.batch(1, 100))
    sizes = {connections: step.size(connections, min(connections, 50)) for connections in CROWDS}
    with step.started(**asking.TRIMMED_OFTEN) as target:
        asking.create(target, [TOPIC], configs=asking.BOUNDED)
        asking.until_accepted(target, request, TOPIC)

        def run(connections: int, seconds: float) -> dict[str, Any]:
            return load.from_many(target, sizes[connections], request, seconds)

        def series(connections: int, seconds: float) -> Any:
            return run(connections, seconds)["series"]

        loads = {_names(connections)[0]: partial(series, connections) for connections in CROWDS}
        yield Life(partial(_round_of_crowds, step, target, run), steady.warmed(step, loads))


def _round_of_crowds(step: Step, target: Target, run: Any) -> Measured:
    figures: Figures = {}
    detail = {}
    for connections in CROWDS:
        rate, p99, cpu = _names(connections)
        steady.again(step, partial(run, connections))
        before, spent = asking.end_offset(target, TOPIC), cpu_s(target)
        got = run(connections, step.size(MEASURED_S, 1))
        used = cpu_s(target) - spent
        end, expected = asking.end_offset(target, TOPIC), before + got["requests"]
        assert end == expected, f"the log ends at {end}; acknowledged records end at {expected}"
        got.pop("series")
        figures[rate] = got["requests"] / got["seconds"]
        figures[p99] = got["p99_us"] / 1000
        figures[cpu] = used / got["requests"] * 1e6
        detail[rate] = got
    return Measured(figures, detail)


@contextmanager
def flushed(step: Step) -> Iterator[Life]:
    """A topic with `flush.messages=1`: each record is on disk before it is acknowledged."""
    request = frames.produce(FLUSHED, 0, frames.batch(1, 100))
    with step.started(**asking.TRIMMED_OFTEN) as target:
        asking.create(target, [FLUSHED], configs={**asking.BOUNDED, "flush.messages": "1"})
        asking.until_accepted(target, request, FLUSHED)

        def run(depth: int, seconds: float) -> dict[str, Any]:
            return load.send(target, [request], seconds=seconds, inflight=depth)

        def series(depth: int, seconds: float) -> Any:
            return run(depth, seconds)["series"]

        def taken() -> Measured:
            figures: Figures = {}
            detail = {}
            for depth in FLUSHED_DEPTHS:
                steady.again(step, partial(run, depth))
                got = run(depth, step.size(MEASURED_S, 1))
                got.pop("series")
                figures[_flushed(depth)], detail[_flushed(depth)] = got["requests"] / got["seconds"], got
            return Measured(figures, detail)

        loads = {_flushed(depth): partial(series, depth) for depth in FLUSHED_DEPTHS}
        yield Life(taken, steady.warmed(step, loads))


def _rows() -> Iterator[Row]:
    for connections in CROWDS:
        rate, p99, cpu = _names(connections)
        yield Row(rate, "/s", True, 1.0)
        yield Row(p99, "ms", False, 1.0)
        yield Row(cpu, "ms", False, 1.0)


SCENARIOS = [
    Scenario("connections", "One node", tuple(_rows()), None, 6, live=crowds),
    Scenario(
        "flushed",
        "One node",
        tuple(Row(_flushed(depth), "/s", True, 1.0) for depth in FLUSHED_DEPTHS),
        None,
        3,
        live=flushed,
    ),
]
