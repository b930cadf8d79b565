"""Writing at a fixed rate while another client reads the past: what a consumer that catches up costs the others."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.clients import asking, frames, load
from bench.runs import steady
from bench.runs.row import Life, Measured, Row, Scenario, Step
from bench.servers.process import MIB, warm_memory

SECTION = "One node, by librdkafka"
RATE = 1000
MEASURED_S = 12
"""Seconds per round; one minute in total."""
KEPT_GIB = 1.0
NO_LINGER = "linger.ms=0"
P99 = "p99 of delivery at 1,000 records a second beside a catch-up fetch (linger.ms=0)"
FETCHED = "catch-up fetch beside 1,000 records a second"


@contextmanager
def mixed(step: Step) -> Iterator[Life]:
    """A producer of librdkafka at a rate, and a consumer of librdkafka on another topic, out of the page cache."""
    with step.started(**asking.TRIMMED_OFTEN) as target:
        asking.create(target, ["past"])
        asking.create(target, ["now"], configs=asking.BOUNDED)
        batch = frames.batch(9_000, 95)
        request = frames.produce("past", 0, batch)
        asking.until_accepted(target, request, "past")
        asking.until_accepted(target, frames.produce("now", 0, frames.batch(1, 10)), "now")
        size = int(step.size(KEPT_GIB * 1024, 32) * MIB)
        warm_memory(size)
        load.send(target, [request], count=size // len(batch))
        end = str(asking.end_offset(target, "past"))

        def write(seconds: str) -> dict[str, Any]:
            return load.rdkafka(target, "rate", "now", "100", seconds, str(RATE), NO_LINGER)

        def read(seconds: str) -> dict[str, Any]:
            return load.rdkafka(target, "fetch", "past", end, seconds)

        def both(seconds: str) -> tuple[dict[str, Any], dict[str, Any]]:
            with ThreadPoolExecutor(2) as pool:
                reading, writing = pool.submit(read, seconds), pool.submit(write, seconds)
                return writing.result(), reading.result()

        def taken() -> Measured:
            written, fetched = both(f"{step.size(1.5, 0.2)}+{step.size(MEASURED_S, 1)}")
            for got in (written, fetched):
                got.pop("series")
            figures = {P99: written["p99_us"] / 1000, FETCHED: fetched["bytes"] / 1e6 / fetched["seconds"]}
            return Measured(figures, {P99: written, FETCHED: fetched})

        loads = {FETCHED: partial(_series, read), P99: partial(_series, write)}
        yield Life(taken, steady.warmed(step, loads))


def _series(run: Any, seconds: float) -> Any:
    return run(str(seconds))["series"]


SCENARIOS = [
    Scenario("mixed", SECTION, (Row(P99, "ms", False, 1.0), Row(FETCHED, "MB/s", True, 1.0)), None, 5, live=mixed)
]
