"""Waiting times of an honest client with and without hostile input by others (`bench.clients.hostile`)."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.clients import asking, hostile
from bench.runs import steady
from bench.runs.row import Figures, Life, Measured, Row, Scenario, Step
from bench.scenarios.storage import p99, spread
from tests.compat.targets import Target

ALONE_S = 4
BESIDE_S, OTHERS_S = 3.0, 2.5
"""Seconds per input and round."""
PATIENCE_S = 15.0
"""Without a response: the wait counts as this long, and the server is restarted after the input."""
ANEW_S = 10
"""Seconds of the honest producer on a restarted server."""
BEGIN_S, REST_S = 1.0, 0.5
"""Seconds for an attacker to begin, and for the server to recover after it."""
COMPARED = {
    "bombs": "batches of 472 bytes with 600,000 records",
    "api-versions": "50 connections with 10,000 ApiVersions each at once",
    "describe-configs": "one topic described 20,000 times in a request",
    "metadata-unread": "60 connections ask for 100,000 topics and never read",
    "long-polls": "1,000 connections that wait for the same partition",
}
"""Inputs that are sent to both servers. The others are sent only to ours: they target only our code, and some change
the server's contents."""
OTHERS = tuple(name for name in hostile.INPUTS if name not in COMPARED)
OTHERS_ROUNDS = 1


def _row(name: str) -> str:
    return f"honest producer's p99 beside {COMPARED.get(name, name)}, against alone"


@contextmanager
def beside(step: Step, names: tuple[str, ...]) -> Iterator[Life]:
    """p99 of a record every 5 ms: alone, then beside one input after another, on one server."""
    with step.started() as target:
        asking.create(target, ["honest", "victim"])
        time.sleep(1)

        def medians(seconds: float) -> list[float]:
            return [statistics.median(hostile.honest(target.port, 1)) * 1000 for _ in range(int(seconds))]

        yield Life(partial(_round, step, target, names), steady.warmed(step, {"alone": medians}))


def _round(step: Step, target: Target, names: tuple[str, ...]) -> Measured:
    alone = hostile.honest(target.port, step.size(ALONE_S, 1))
    figures: Figures = {}
    detail: dict[str, Any] = {"alone": spread(alone), "started_anew_after": []}
    for name in names:
        attacked = _attacked(target, name, step.size(BESIDE_S if name in COMPARED else OTHERS_S, 1))
        figures[_row(name)] = p99(attacked) / p99(alone)
        detail[name] = spread(attacked)
        time.sleep(REST_S)
        if not _serves(target.port):
            detail["started_anew_after"].append(name)
            target.kill()
            target.start()
            hostile.honest(target.port, step.size(ANEW_S, 1))
    return Measured(figures, detail)


def _attacked(target: Target, name: str, seconds: float) -> list[float]:
    """Milliseconds of the honest producer's records under attack; PATIENCE_S for a missing response."""
    where = (hostile.attacked_port(target, name), name)
    attacker = multiprocessing.get_context("spawn").Process(target=hostile.attack, args=where, daemon=True)
    attacker.start()
    waits: list[float] = []
    try:
        time.sleep(BEGIN_S)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            try:
                waits += hostile.honest(target.port, min(left, 1), PATIENCE_S)
            except OSError:  # no response in time, or the connection is closed
                waits.append(PATIENCE_S * 1000)
                time.sleep(REST_S)
        return waits
    finally:
        attacker.kill()
        attacker.join()


def _serves(port: int) -> bool:
    """Whether the honest producer is served again, at most PATIENCE_S late."""
    try:
        return bool(hostile.honest(port, 0.2, PATIENCE_S))
    except OSError:
        return False


SECTION = "Hostile input"
SAME_CORES = "the attackers run on the same two cores as the server"

SCENARIOS = [
    Scenario(
        "hostile",
        SECTION,
        tuple(Row(_row(name), "x", False, 3.0, True, SAME_CORES) for name in COMPARED),
        None,
        6.5,
        live=partial(beside, names=tuple(COMPARED)),
    ),
    Scenario(
        "hostile-others",
        SECTION,
        tuple(Row(_row(name), "x", False, 3.0, True, SAME_CORES) for name in OTHERS),
        None,
        2.2,
        (("ours", ""),),
        live=partial(beside, names=OTHERS),
        rounds=OTHERS_ROUNDS,
    ),
]
