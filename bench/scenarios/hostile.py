"""What an honest client waits for while others send hostile input (`bench.hostile`), beside what it waits for alone."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from functools import partial
from typing import Any

from bench import asking, hostile, steady
from bench.row import Measured, Row, Scenario, Step
from bench.scenarios.storage import p99, spread

MEASURED_S = 30
INPUTS = {
    "bombs": "batches of 472 bytes with 600,000 records",
    "api-versions": "50 connections with 10,000 ApiVersions each at once",
    "describe-configs": "one topic described 20,000 times in a request",
    "metadata-unread": "60 connections ask for 100,000 topics and never read",
}


def _row(name: str) -> str:
    return f"honest producer's p99 beside {INPUTS.get(name, name)}, against alone"


def beside(step: Step, name: str) -> Measured:
    """p99 of a record each 5 ms, alone when warm, then while attackers send."""
    seconds = step.size(MEASURED_S, 2)
    with step.started() as target:
        asking.create(target, ["honest", "victim"])
        time.sleep(1)

        def medians(seconds: float) -> list[float]:
            return [statistics.median(hostile.honest(target.port, 1)) * 1000 for _ in range(int(seconds))]

        detail = steady.warmed(step, medians)
        alone = hostile.honest(target.port, seconds)
        attacker = multiprocessing.get_context("spawn").Process(
            target=hostile.attack, args=(target.port, name), daemon=True
        )
        attacker.start()
        try:
            time.sleep(1.0)
            attacked = hostile.honest(target.port, seconds)
        finally:
            attacker.kill()
            attacker.join()
    figures: dict[str, Any] = {"alone": spread(alone), "attacked": spread(attacked)}
    return Measured({_row(name): p99(attacked) / p99(alone)}, {**detail, **figures})


SCENARIOS = [
    Scenario(
        f"hostile-{name}",
        "Hostile input",
        (Row(_row(name), "x", False, 3.0, True, "the attackers run on the same two cores as the server"),),
        partial(beside, name=name),
        4,
    )
    for name in hostile.INPUTS
]
