"""The same work by a client that is not ours: librdkafka with its default settings, as `rdkafka.c` uses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench import asking, frames, load, steady
from bench.process import MIB, cpu_s, settle, warm_memory
from bench.row import Measured, Row, Scenario, Step
from bench.scenarios.produce import LESS_READ, VALIDATED

SECTION = "One node, by librdkafka"
MEASURED_S = 30
RATE = 1000
KEPT_GIB = 1.0


@dataclass(frozen=True)
class Shape:
    """A way to produce: mode and record size, settings of the client, and the row's aim."""

    mode: str
    size: int
    settings: tuple[str, ...]
    aim: float | None
    validated: bool = False


NO_LINGER = "linger.ms=0"
SHAPES = {
    "librdkafka: 100 B records, acks=1": Shape("produce", 100, ("acks=1",), 1.0),
    "librdkafka: 100 B records, acks=1, every record read": Shape("produce", 100, ("acks=1",), None, True),
    "librdkafka: 100 B records, idempotent": Shape("produce", 100, ("enable.idempotence=true",), 1.3),
    "librdkafka: 1 KB records": Shape("produce", 1024, (), 1.0),
    "librdkafka: 1 KB records, every record read": Shape("produce", 1024, (), None, True),
}
PING_PONG = "librdkafka: ping-pong of one record (linger.ms=0)"
P99 = "librdkafka: p99 of delivery at 1,000 records a second (linger.ms=0)"
FETCH, FETCH_CPU = "librdkafka: catch-up fetch", "librdkafka: catch-up fetch, CPU of the server per GB"


def _configs(*, validated: bool) -> dict[str, str]:
    return {**asking.BOUNDED, **(VALIDATED if validated else {})}


def produce(step: Step, row: str) -> Measured:
    """MB of values a second, when warm; each run of the client begins with an empty queue."""
    shape = SHAPES[row]
    with step.started(**asking.TRIMMED_OFTEN) as target:
        asking.create(target, ["bulk"], configs=_configs(validated=shape.validated))
        asking.until_accepted(target, frames.produce("bulk", 0, frames.batch(1, 10)), row)
        before, sent = asking.end_offset(target, "bulk"), 0

        def run(seconds: float) -> dict[str, float]:
            nonlocal sent
            got = load.rdkafka(target, shape.mode, "bulk", str(shape.size), str(seconds), *shape.settings)
            sent += got["records"]
            return got

        detail = steady.warmed(step, lambda seconds: run(seconds)["series"])  # type: ignore[arg-type,return-value]
        got = run(step.size(MEASURED_S, 1))
        end = asking.end_offset(target, "bulk")
        assert end == before + sent, f"the log ends at {end}; delivered records end at {before + sent}"
    got.pop("series")
    return Measured({row: got["bytes"] / 1e6 / got["seconds"]}, {**detail, "measured": got})


def _one_by_one(step: Step, row: str, mode: str, figure: Callable[[dict[str, float]], float], *more: str) -> Measured:
    """Records of 100 bytes that the client does not collect."""
    with step.started(**asking.TRIMMED_OFTEN) as target:
        asking.create(target, ["one"], configs=asking.BOUNDED)
        asking.until_accepted(target, frames.produce("one", 0, frames.batch(1, 10)), row)

        def run(seconds: float) -> dict[str, float]:
            return load.rdkafka(target, mode, "one", "100", str(seconds), *more, NO_LINGER)

        def medians(seconds: float) -> list[float]:
            """Of each five seconds, once a second: the rate itself says nothing where it is given."""
            return [run(min(seconds, 5))["p50_us"]] * 5 + (medians(seconds - 5) if seconds > 5 else [])

        detail = steady.warmed(step, medians)
        got = run(step.size(2 * MEASURED_S, 1))
    got.pop("series")
    return Measured({row: figure(got)}, {**detail, "measured": got})


def fetch(step: Step) -> Measured:
    """A consumer that reads a log of 100-byte records from its beginning again and again, out of the page cache."""
    with step.started() as target:
        asking.create(target, ["kept"])
        batch = frames.batch(9_000, 95)
        request = frames.produce("kept", 0, batch)
        asking.until_accepted(target, request, FETCH)
        size = int(step.size(KEPT_GIB * 1024, 32) * MIB)
        warm_memory(size)
        load.send(target, [request], count=size // len(batch))
        end = str(asking.end_offset(target, "kept"))
        settle()
        detail = steady.warmed(step, lambda s: load.rdkafka(target, "fetch", "kept", end, str(s))["series"])
        spent = cpu_s(target)
        got = load.rdkafka(target, "fetch", "kept", end, str(step.size(MEASURED_S, 1)))
        cpu = cpu_s(target) - spent
    got.pop("series")
    figures = {FETCH: got["bytes"] / 1e6 / got["seconds"], FETCH_CPU: cpu / got["bytes"] * 1e9}
    return Measured(figures, {**detail, "measured": got})


def _rate(got: dict[str, float]) -> float:
    return got["records"] / got["seconds"]


def _p99_ms(got: dict[str, float]) -> float:
    return got["p99_us"] / 1000


def _name(row: str) -> str:
    short = row.removeprefix("librdkafka: ").replace(" records", "").replace(", ", "-").replace(" ", "").lower()
    return f"librdkafka-{short.replace('everyrecordread', 'all-read').replace('=', '')}"


SCENARIOS = [
    *(
        Scenario(
            _name(row),
            SECTION,
            (Row(row, "MB/s", True, shape.aim, differs="" if shape.validated else LESS_READ),),
            partial(produce, row=row),
            3.3,
        )
        for row, shape in SHAPES.items()
    ),
    Scenario(
        "librdkafka-ping-pong",
        SECTION,
        (Row(PING_PONG, "/s", True, 1.5),),
        partial(_one_by_one, row=PING_PONG, mode="pingpong", figure=_rate),
        4.3,
    ),
    Scenario(
        "librdkafka-rate",
        SECTION,
        (Row(P99, "ms", False, 0.5),),
        lambda step: _one_by_one(step, P99, "rate", _p99_ms, str(RATE)),
        4.3,
    ),
    Scenario(
        "librdkafka-fetch",
        SECTION,
        (Row(FETCH, "MB/s", True, 1.3), Row(FETCH_CPU, "s/GB", False, 0.8)),
        fetch,
        3.3,
    ),
]
