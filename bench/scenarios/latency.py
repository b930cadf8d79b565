"""End to end: from sending a record until a waiting fetch returns it, 200 times per second."""

from __future__ import annotations

import statistics
import time
from typing import Any

from bench.clients import asking, frames
from bench.runs import steady
from bench.runs.row import Measured, Row, Scenario, Step
from bench.servers.process import MIB
from tests.compat.targets import Target

RATE = 200
MEASURED_S = 12
"""Seconds per round."""
STEADY, STEADY_P50 = "end to end p99, steady", "end to end p50, steady"


def latency(step: Step, target: Target) -> steady.Part:
    """Rounds of 12 s, one minute in total."""
    asking.create(target, ["e2e"])
    asking.until_accepted(target, frames.produce("e2e", 0, frames.batch(1, 100)), "e2e")

    def run(seconds: float) -> list[float]:
        """The median of each second, in microseconds."""
        taken = end_to_end(target, seconds)
        return [statistics.median(taken[at : at + RATE]) * 1000 for at in range(0, len(taken) - RATE + 1, RATE)]

    def taken() -> Measured:
        steady.again(step, run)
        waits = end_to_end(target, step.size(MEASURED_S, 1))
        figures = {STEADY: _quantile(waits, 0.99), STEADY_P50: statistics.median(waits)}
        return Measured(figures, {STEADY: _spread(waits)})

    return steady.Part({STEADY: run}, taken)


def end_to_end(target: Target, seconds: float) -> list[float]:
    """Milliseconds from sending a record until a waiting fetch returns it."""
    producer, consumer = frames.Wire(target.port), frames.Wire(target.port)
    request = frames.produce("e2e", 0, frames.batch(1, 100))
    offset = asking.end_offset(target, "e2e")
    taken: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.monotonic()
        consumer.send(frames.fetch("e2e", 0, offset + len(taken), MIB)[0])
        time.sleep(0.001)  # the fetch reaches the server before the record
        sent = time.monotonic()
        error = frames.produce_error(producer.ask(request))
        assert error == 0, f"produce: error {error}"
        consumer.receive()
        taken.append((time.monotonic() - sent) * 1000)
        time.sleep(max(0.0, 1 / RATE - (time.monotonic() - begun)))
    producer.close()
    consumer.close()
    return taken


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]


def _spread(values: list[float]) -> dict[str, Any]:
    found = {f"p{share:g}": round(_quantile(values, share / 100), 4) for share in (10, 50, 90, 99, 99.9)}
    return {"count": len(values), **found, "max": round(max(values), 4)}


ROWS = (Row(STEADY, "ms", False, 1.5), Row(STEADY_P50, "ms", False))
SCENARIOS: list[Scenario] = []
"""None here: see `small`."""
