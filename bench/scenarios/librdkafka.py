"""The same work by an independent client: librdkafka with its default settings, as `rdkafka.c` uses it.

Fetch and single records share their server with rows of frames: see `small`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.clients import asking, frames, load
from bench.runs import steady
from bench.runs.row import Figures, Life, Measured, Row, Scenario, Step
from bench.scenarios.produce import LESS_READ, VALIDATED
from bench.servers.process import MIB, cpu_s, settle, warm_memory
from tests.compat.targets import Target

SECTION = "One node, by librdkafka"
MEASURED_S = 3
"""Seconds per row and round."""
LATENCY_S = 12
"""Seconds per round; one minute in total."""
CONNECT_S = 0.5
RATE = 1000
KEPT_GIB = 1.0


@dataclass(frozen=True)
class Shape:
    """A way to produce: record size, client settings, the row's aim, and whether every record is read."""

    size: int
    settings: tuple[str, ...]
    aim: float | None
    validated: bool = False


ALL_READ = ", every record read"
NO_LINGER = "linger.ms=0"
SHAPES = {
    "librdkafka: 100 B records, acks=1": Shape(100, ("acks=1",), 1.0),
    "librdkafka: 100 B records, acks=1, every record read": Shape(100, ("acks=1",), None, True),
    "librdkafka: 100 B records, idempotent": Shape(100, ("enable.idempotence=true",), 1.3),
    "librdkafka: 1 KB records": Shape(1024, (), 1.0),
    "librdkafka: 1 KB records, every record read": Shape(1024, (), None, True),
}
PING_PONG = "librdkafka: ping-pong of one record (linger.ms=0)"
P99 = "librdkafka: p99 of delivery at 1,000 records a second (linger.ms=0)"
FETCH, FETCH_CPU = "librdkafka: catch-up fetch", "librdkafka: catch-up fetch, CPU of the server per GB"


TOPIC, READ = "bulk", "read"


@contextmanager
def produce(step: Step) -> Iterator[Life]:
    """MB of values per second. Kafka reads every record of either topic, so both rows have its figure."""
    with step.started(**asking.TRIMMED_OFTEN) as target:
        asking.create(target, [TOPIC], configs=asking.BOUNDED)
        asking.create(target, [READ], configs={**asking.BOUNDED, **VALIDATED})
        for topic in (TOPIC, READ):
            asking.until_accepted(target, frames.produce(topic, 0, frames.batch(1, 10)), topic)
        shapes = {row: shape for row, shape in SHAPES.items() if step.server.kind == "ours" or not shape.validated}

        def run(row: str, seconds: str) -> dict[str, Any]:
            shape = SHAPES[row]
            topic = READ if shape.validated else TOPIC
            return load.rdkafka(target, "produce", topic, str(shape.size), seconds, *shape.settings)

        def taken() -> Measured:
            figures: Figures = {}
            detail = {}
            for row, shape in shapes.items():
                topic = READ if shape.validated else TOPIC
                settle()
                before = asking.end_offset(target, topic)
                got = run(row, _counted(step, MEASURED_S))
                end, expected = asking.end_offset(target, topic), before + got["records_all"]
                assert end == expected, f"the log ends at {end}; delivered records end at {expected}"
                got.pop("series")
                figures[row], detail[row] = got["bytes"] / 1e6 / got["seconds"], got
            missing = {row: figures[row.removesuffix(ALL_READ)] for row in SHAPES if row not in figures}
            return Measured({**figures, **missing}, detail)

        loads = {row: partial(_series, partial(run, row)) for row in shapes}
        yield Life(taken, steady.warmed(step, loads))


def _counted(step: Step, seconds: float) -> str:
    """The client's time argument, warm-up+measured seconds: its connection and producer id are not measured."""
    return f"{step.size(CONNECT_S + steady.AGAIN_S, 0.2)}+{step.size(seconds, 1)}"


def _series(run: Callable[[str], dict[str, Any]], seconds: float) -> Any:
    return run(str(seconds))["series"]


def one_by_one(step: Step, target: Target) -> steady.Part:
    """Records of 100 bytes without batching: each waits for the previous one, or they come at a fixed rate."""
    asking.create(target, ["client"], configs=asking.BOUNDED)
    asking.until_accepted(target, frames.produce("client", 0, frames.batch(1, 10)), "client")

    def ping_pong(seconds: str) -> dict[str, Any]:
        return load.rdkafka(target, "pingpong", "client", "100", seconds, NO_LINGER)

    def at_rate(seconds: str) -> dict[str, Any]:
        return load.rdkafka(target, "rate", "client", "100", seconds, str(RATE), NO_LINGER)

    def medians(seconds: float) -> list[float]:
        """The median latency of each five-second run, once per second; the rate is fixed, so it is not a figure."""
        found: list[float] = []
        while len(found) < seconds:
            found += [at_rate("1+4")["p50_us"]] * 5
        return found

    def taken() -> Measured:
        pings, rated = ping_pong(_counted(step, MEASURED_S)), at_rate(_counted(step, LATENCY_S))
        for got in (pings, rated):
            got.pop("series")
        figures = {PING_PONG: pings["records"] / pings["seconds"], P99: rated["p99_us"] / 1000}
        return Measured(figures, {PING_PONG: pings, P99: rated})

    return steady.Part({PING_PONG: partial(_series, ping_pong), P99: medians}, taken)


def fetch(step: Step, target: Target) -> steady.Part:
    """A consumer that repeatedly reads a log of 100-byte records from its start, out of the page cache."""
    asking.create(target, ["read"])
    batch = frames.batch(9_000, 95)
    request = frames.produce("read", 0, batch)
    asking.until_accepted(target, request, FETCH)
    size = int(step.size(KEPT_GIB * 1024, 32) * MIB)
    warm_memory(size)
    load.send(target, [request], count=size // len(batch))
    end = str(asking.end_offset(target, "read"))
    settle()

    def run(seconds: str) -> dict[str, Any]:
        return load.rdkafka(target, "fetch", "read", end, seconds)

    def taken() -> Measured:
        spent = cpu_s(target)
        got = run(_counted(step, MEASURED_S))
        cpu = cpu_s(target) - spent
        got.pop("series")
        figures = {FETCH: got["bytes"] / 1e6 / got["seconds"], FETCH_CPU: cpu / got["bytes_all"] * 1e9}
        return Measured(figures, {FETCH: got})

    return steady.Part({FETCH: partial(_series, run)}, taken)


SCENARIOS = [
    Scenario(
        "librdkafka-produce",
        SECTION,
        tuple(
            Row(row, "MB/s", True, shape.aim, differs="" if shape.validated else LESS_READ)
            for row, shape in SHAPES.items()
        ),
        None,
        5.5,
        live=produce,
    ),
]
