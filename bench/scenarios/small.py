"""Requests of one record, at several depths of the pipeline; catch-up fetch; memory of idle connections."""

from __future__ import annotations

import time
from functools import partial

from bench import asking, frames, load, steady
from bench.process import MIB, cpu_s, rss_mib, settle, warm_memory
from bench.row import Measured, Row, Scenario, Step

MEASURED_S = 20
DEPTHS: dict[int, tuple[str, str, float]] = {
    100: ("one-record-100-in-flight", "one-record requests, 100 in flight", 2.5),
    5: ("one-record-5-in-flight", "one-record requests, 5 in flight (default of clients)", 1.0),
    1: ("one-record-ping-pong", "one-record requests, ping-pong", 0.8),
}
"""Requests in flight -> scenario, row, aim."""
FETCH, FETCH_CPU = "catch-up fetch", "catch-up fetch, CPU per GB"
CONNECTION = "memory of an idle connection"
KEPT_GIB = 1.5


def one_record(step: Step, depth: int) -> Measured:
    """Requests a second, each with a batch of one record of 100 bytes, acks=all."""
    request = frames.produce("one", 0, frames.batch(1, 100))
    with step.started(**asking.TRIMMED_OFTEN) as target:
        asking.create(target, ["one"], configs=asking.BOUNDED)
        asking.until_accepted(target, request, "one record")
        before, sent = asking.end_offset(target, "one"), 0

        def run(seconds: float) -> dict[str, float]:
            nonlocal sent
            got = load.send(target, [request], seconds=seconds, inflight=depth)
            sent += got["requests"]
            return got

        detail = steady.warmed(step, lambda seconds: run(seconds)["series"])  # type: ignore[arg-type,return-value]
        got = run(step.size(MEASURED_S, 1))
        end = asking.end_offset(target, "one")
        assert end == before + sent, f"the log ends at {end}; acknowledged records end at {before + sent}"
    got.pop("series")
    return Measured({DEPTHS[depth][1]: got["requests"] / got["seconds"]}, {**detail, "measured": got})


def fetch(step: Step) -> Measured:
    """A consumer that reads a log from its beginning again and again, out of the page cache, 8 MiB a request."""
    with step.started() as target:
        asking.create(target, ["kept"])
        batch = frames.batch(970, 1024)
        request = frames.produce("kept", 0, batch)
        asking.until_accepted(target, request, "fetch")
        size = int(step.size(KEPT_GIB * 1024, 64) * MIB)
        warm_memory(size)
        load.send(target, [request], count=size // len(batch))
        settle()
        ask, at = frames.fetch("kept", 0, 0, 8 * MIB)
        run = partial(load.send, target, [ask], fetch_at=at, rewind=True)
        detail = steady.warmed(step, lambda seconds: run(seconds=seconds)["series"])
        spent = cpu_s(target)
        got = run(seconds=step.size(MEASURED_S, 1))
        figures = {
            FETCH: got["received"] / 1e6 / got["seconds"],
            FETCH_CPU: (cpu_s(target) - spent) / got["received"] * 1e9,
        }
    got.pop("series")
    return Measured(figures, {**detail, "measured": got})


def connections(step: Step) -> Measured:
    """Memory that connections cost which have each asked once."""
    count = step.size(1000, 100)
    request = frames.metadata([])
    with step.started() as target:
        warm = [frames.Wire(target.port) for _ in range(count // 5)]
        for wire in warm:
            wire.ask(request)
        before = rss_mib(target)
        wires = [frames.Wire(target.port) for _ in range(count)]
        for wire in wires:
            wire.ask(request)
        time.sleep(2)
        grown = (rss_mib(target) - before) * 1024 / count
        for wire in warm + wires:
            wire.close()
    return Measured({CONNECTION: grown})


SCENARIOS = [
    *(
        Scenario(name, "One node", (Row(row, "/s", True, aim),), partial(one_record, depth=depth), 3)
        for depth, (name, row, aim) in DEPTHS.items()
    ),
    Scenario(
        "fetch",
        "One node",
        (Row(FETCH, "MB/s", True, 1.0), Row(FETCH_CPU, "s/GB", False, 1.0)),
        fetch,
        3,
    ),
    Scenario(
        "connections",
        "One node",
        (
            Row(
                *(CONNECTION, "KiB", False, 20.0, True),
                differs="a JVM whose heap has room shows no growth: there is no ratio then",
            ),
        ),
        connections,
        1,
    ),
]
