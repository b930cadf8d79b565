"""Transactions on one node: 50 producers of librdkafka, and the cost of a produce request inside a transaction."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.clients import asking, frames, load
from bench.runs import steady
from bench.runs.row import Figures, Life, Measured, Row, Scenario, Step
from bench.servers.process import settle
from tests.compat.targets import Target

SECTION = "Transactions and consumer groups"
PRODUCERS, PARTITIONS = 50, 10
RATE = 1000
MEASURED_S = 5
"""Seconds per round at full speed."""
LATENCY_S = 12
"""Seconds per round at the rate; one minute in total."""
CONNECT_S = 1.0
NO_LINGER = "linger.ms=0"
THROUGHPUT = "librdkafka: transactions of 50 producers"
P99, P50 = (
    f"librdkafka: {which} of commit at 1,000 transactions a second from 50 producers" for which in ("p99", "p50")
)
OVER_IDEMPOTENT = "produce in a transaction: time against idempotent produce (one-record requests)"
OVER_PLAIN = "produce in a transaction: time against produce without a producer id (one-record requests)"
COMMITTED, COST = "committed", "cost"
COST_REQUESTS = 15_000
"""Per window; a round has two windows of each kind."""
WARM_REQUESTS = 1_000
KINDS = ("plain", "idempotent", "transaction")


def commits(step: Step, target: Target) -> steady.Part:
    """Transactions of one record of 100 bytes, as many as possible, and at a fixed rate."""
    asking.create(target, [COMMITTED], PARTITIONS, configs=asking.BOUNDED)
    for partition in range(PARTITIONS):
        asking.until_accepted(target, frames.produce(COMMITTED, partition, frames.batch(1, 10)), COMMITTED)

    def run(rate: int, seconds: str) -> dict[str, Any]:
        producers = step.size(PRODUCERS, 5)
        return load.transactions(target, COMMITTED, PARTITIONS, producers, seconds, rate, NO_LINGER)

    def at_full_speed(seconds: float) -> Any:
        return run(0, str(seconds))["series"]

    def taken() -> Measured:
        figures: Figures = {}
        warm = f"{step.size(CONNECT_S + steady.AGAIN_S, 0.2)}+"
        full = run(0, f"{warm}{step.size(MEASURED_S, 1)}")
        figures[THROUGHPUT] = full["transactions"] / full["seconds"]
        rated = run(step.size(RATE, 50), f"{warm}{step.size(LATENCY_S, 1)}")
        figures |= {P99: rated["p99_us"] / 1000, P50: rated["p50_us"] / 1000}
        return Measured(figures, {THROUGHPUT: full, P99: rated})

    return steady.Part({THROUGHPUT: at_full_speed}, taken)


def cost(step: Step, target: Target) -> steady.Part:
    """One-record produce requests, five in flight: without a producer id, idempotent, and in one open transaction."""
    asking.create(target, [COST], configs=asking.BOUNDED)
    asking.until_accepted(target, frames.produce(COST, 0, frames.batch(1, 100)), COST)
    asking.until_coordinated(target, COST, frames.TRANSACTION)

    def run(kind: str, count: int) -> float:
        """The seconds of a window."""
        wire = frames.Wire(target.port)
        try:
            transactional_id = COST if kind == "transaction" else None
            producer = None if kind == "plain" else asking.producer_id(wire, transactional_id)
            if transactional_id:
                assert producer is not None
                asking.begin(wire, transactional_id, producer, COST, 0)
            requests = [
                frames.produce(
                    COST,
                    0,
                    frames.batch(
                        1, 100, producer=producer and (*producer, number), transactional=bool(transactional_id)
                    ),
                    transactional_id=transactional_id,
                )
                for number in range(count)
            ]
            got = load.send(target, requests, count=count)
            if transactional_id:
                assert producer is not None
                asking.commit(wire, transactional_id, producer)
        finally:
            wire.close()
        return float(got["seconds"])

    def warm(seconds: float) -> list[float]:
        """Requests per second over all kinds, several times."""
        found: list[float] = []
        end = time.monotonic() + seconds
        while not found or time.monotonic() < end:
            found.append(len(KINDS) * WARM_REQUESTS / sum(run(kind, WARM_REQUESTS) for kind in KINDS))
        return found

    def taken() -> Measured:
        count = step.size(COST_REQUESTS, 500)
        spent = dict.fromkeys(KINDS, 0.0)
        settle()
        for kind in (*KINDS, *reversed(KINDS)):
            spent[kind] += run(kind, count)
        whole = spent["transaction"]
        return Measured(
            {OVER_IDEMPOTENT: whole / spent["idempotent"], OVER_PLAIN: whole / spent["plain"]}, {COST: spent}
        )

    return steady.Part({OVER_PLAIN: warm}, taken)


@contextmanager
def transactions(step: Step) -> Iterator[Life]:
    """Commits, and the cost of produce requests."""
    with step.started(**asking.TRIMMED_OFTEN) as target:
        yield steady.life(step, [commits(step, target), cost(step, target)])


SCENARIOS = [
    Scenario(
        "transactions",
        SECTION,
        (
            Row(THROUGHPUT, "/s", True, 1.0),
            Row(P99, "ms", False, 1.0),
            Row(P50, "ms", False),
            Row(OVER_IDEMPOTENT, "x", False, 1.2, absolute=True),
            Row(OVER_PLAIN, "x", False, 1.2, absolute=True),
        ),
        None,
        8,
        live=transactions,
    ),
]
