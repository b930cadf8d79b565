"""Rows that share a warm server: few records at a time, and catch-up fetch, by frames and by librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.clients import asking, frames, load
from bench.runs import steady
from bench.runs.row import Figures, Life, Measured, Row, Scenario, Step
from bench.scenarios import latency, librdkafka
from bench.servers.process import MIB, cpu_s, settle, warm_memory
from tests.compat.targets import Target

MEASURED_S = 3
"""Seconds per row and round."""
DEPTHS: dict[int, tuple[str, float]] = {
    100: ("one-record requests, 100 in flight", 2.5),
    5: ("one-record requests, 5 in flight (default of clients)", 1.0),
    1: ("one-record requests, ping-pong", 0.8),
}
"""Requests in flight -> row, aim."""
FETCH, FETCH_CPU = "catch-up fetch", "catch-up fetch, CPU per GB"
KEPT_GIB = 1.5


def one_record(step: Step, target: Target) -> steady.Part:
    """Requests per second, each with a batch of one record of 100 bytes, acks=all, at each pipeline depth."""
    request = frames.produce("one", 0, frames.batch(1, 100))
    asking.create(target, ["one"], configs=asking.BOUNDED)
    asking.until_accepted(target, request, "one record")

    def run(depth: int, seconds: float) -> dict[str, Any]:
        return load.send(target, [request], seconds=seconds, inflight=depth)

    def taken() -> Measured:
        figures: Figures = {}
        detail = {}
        for depth, (row, _aim) in DEPTHS.items():
            steady.again(step, partial(run, depth))
            before = asking.end_offset(target, "one")
            got = run(depth, step.size(MEASURED_S, 1))
            end = asking.end_offset(target, "one")
            expected = before + got["requests"]
            assert end == expected, f"the log ends at {end}; acknowledged records end at {expected}"
            got.pop("series")
            figures[row], detail[row] = got["requests"] / got["seconds"], got
        return Measured(figures, detail)

    loads = {row: partial(_series, partial(run, depth)) for depth, (row, _aim) in DEPTHS.items()}
    return steady.Part(loads, taken)


def _series(run: Callable[[float], dict[str, Any]], seconds: float) -> Any:
    return run(seconds)["series"]


def fetch(step: Step, target: Target) -> steady.Part:
    """A consumer that repeatedly reads a log from its start, out of the page cache, 8 MiB per request."""
    asking.create(target, ["kept"])
    batch = frames.batch(970, 1024)
    request = frames.produce("kept", 0, batch)
    asking.until_accepted(target, request, "fetch")
    size = int(step.size(KEPT_GIB * 1024, 64) * MIB)
    warm_memory(size)
    load.send(target, [request], count=size // len(batch))
    settle()
    ask, at = frames.fetch("kept", 0, 0, 8 * MIB)

    def run(seconds: float) -> dict[str, Any]:
        return load.send(target, [ask], fetch_at=at, rewind=True, seconds=seconds)

    def taken() -> Measured:
        steady.again(step, run)
        spent = cpu_s(target)
        got = run(step.size(MEASURED_S, 1))
        cpu = cpu_s(target) - spent
        got.pop("series")
        figures = {FETCH: got["received"] / 1e6 / got["seconds"], FETCH_CPU: cpu / got["received"] * 1e9}
        return Measured(figures, {FETCH: got})

    return steady.Part({FETCH: partial(_series, run)}, taken)


@contextmanager
def small(step: Step) -> Iterator[Life]:
    """Few records at a time, by frames and by librdkafka; and end-to-end latency to a waiting consumer."""
    with step.started(**asking.TRIMMED_OFTEN) as target:
        parts = [one_record(step, target), librdkafka.one_by_one(step, target), latency.latency(step, target)]
        yield steady.life(step, parts)


@contextmanager
def fetches(step: Step) -> Iterator[Life]:
    """Catch-up fetch of two logs, by frames and by librdkafka."""
    with step.started() as target:
        yield steady.life(step, [fetch(step, target), librdkafka.fetch(step, target)])


SCENARIOS = [
    Scenario(
        "small",
        "One node",
        (
            *(Row(row, "/s", True, aim) for row, aim in DEPTHS.values()),
            *latency.ROWS,
            Row(librdkafka.PING_PONG, "/s", True, 1.5, section=librdkafka.SECTION),
            Row(librdkafka.P99, "ms", False, 0.5, section=librdkafka.SECTION),
        ),
        None,
        9.5,
        live=small,
    ),
    Scenario(
        "fetch",
        "One node",
        (
            Row(FETCH, "MB/s", True, 1.0),
            Row(FETCH_CPU, "s/GB", False, 1.0),
            Row(librdkafka.FETCH, "MB/s", True, 1.3, section=librdkafka.SECTION),
            Row(librdkafka.FETCH_CPU, "s/GB", False, 0.8, section=librdkafka.SECTION),
        ),
        None,
        3.5,
        live=fetches,
    ),
]
