"""Bulk produce with ready-made frames (`load.c`), each shape with the default validation and with the full one."""

from __future__ import annotations

from functools import partial
from typing import Any

from bench import asking, frames, load, steady
from bench.process import MIB, cpu_s, live_mib, rss_mib, settle, warm_memory
from bench.row import Measured, Row, Scenario, Step
from tests.compat.targets import Target

LIBRDKAFKA_BATCH_RECORDS = 10_000
LIBRDKAFKA_BATCH_BYTES = 1_000_000
"""The C client's default batching: batch.num.messages and batch.size, whichever comes first."""
MEASURED_S = 30
BURSTS = 3
VALIDATED = {"message.timestamp.before.max.ms": str(10**15)}
"""A topic with this bound has every record read by both servers; its value lets every record pass."""
LESS_READ = (
    "ours checks CRC, counts and lengths of a batch and reads few of its records (docs/differences.md, log.validate); "
    "Kafka reads every record. The rows named *every record read* have no such difference"
)
SHAPES: dict[str, tuple[int, int, int, float]] = {
    "100 B records, 1 MB batches": (LIBRDKAFKA_BATCH_BYTES // 106, 95, 512, 1.0),
    "1 KB records, 1 MB batches": (LIBRDKAFKA_BATCH_BYTES // 1030, 1024, 512, 1.3),
    "128 KB records, 1 MB batches": (8, 131_000, 512, 1.3),
    "100 B records, 16 KB batches": (150, 100, 128, 1.0),
}
"""Shape -> records a batch, bytes a record's value, MiB of a burst, aim of throughput."""
RSS, LIVE = "memory after bulk produce: RSS", "memory after bulk produce: live set"
WITH_MEMORY = "100 B records, 1 MB batches"


def _names(shape: str, *, validated: bool) -> tuple[str, str, str]:
    what = f"produce {shape}{', every record read' if validated else ''}"
    return f"{what}: sustained", f"{what}: burst into page cache", f"{what}: CPU per GB"


def produce(step: Step, shape: str, *, validated: bool) -> Measured:
    """Throughput and CPU over half a minute when warm, then the middle one of three bursts that fit the page cache."""
    records, size, burst_mib, _aim = SHAPES[shape]
    sustained, burst, cpu = _names(shape, validated=validated)
    with step.started(**asking.TRIMMED_OFTEN) as target:
        asking.create(target, ["bulk"], configs={**asking.BOUNDED, **(VALIDATED if validated else {})})
        batch = frames.batch(records, size)
        request = frames.produce("bulk", 0, batch)
        asking.until_accepted(target, request, shape)
        before = asking.end_offset(target, "bulk")
        sent = 0

        def run(**bounds: float) -> dict[str, Any]:
            nonlocal sent
            got = load.send(target, [request], **bounds)  # type: ignore[arg-type]
            sent += int(got["requests"])
            return got

        detail = steady.warmed(step, lambda seconds: run(seconds=seconds)["series"])
        spent = cpu_s(target)
        got = run(seconds=step.size(MEASURED_S, 1))
        figures = {
            sustained: got["sent"] / 1e6 / got["seconds"],
            cpu: (cpu_s(target) - spent) / got["sent"] * 1e9,
        }
        total = step.size(burst_mib, 16) * MIB
        bursts = sorted(_burst(partial(run, count=total // len(batch)), total) for _ in range(step.size(BURSTS, 1)))
        figures[burst] = bursts[len(bursts) // 2]
        if shape == WITH_MEMORY and not validated:
            figures |= {RSS: rss_mib(target), LIVE: live_mib(target)}
        _check_end(target, before + sent * records)
    got.pop("series")
    return Measured(figures, {**detail, "measured": got, "bursts": bursts})


def _burst(run: partial[dict[str, Any]], size: int) -> float:
    settle()
    warm_memory(2 * size)
    got = run()
    return float(got["sent"] / 1e6 / got["seconds"])


def _check_end(target: Target, expected: int) -> None:
    """The log ends where the acknowledged records end."""
    end = asking.end_offset(target, "bulk")
    assert end == expected, f"the log ends at {end}; acknowledged records end at {expected}"


def _scenario(shape: str, *, validated: bool) -> Scenario:
    sustained, burst, cpu = _names(shape, validated=validated)
    differs = "" if validated else LESS_READ
    aim = SHAPES[shape][3] if not validated else None
    rows = [
        Row(sustained, "MB/s", True, aim, differs=differs),
        Row(burst, "MB/s", True, aim, differs=differs),
        Row(cpu, "s/GB", False, 1.0 if not validated else None, differs=differs),
    ]
    if shape == WITH_MEMORY and not validated:
        rows += [Row(RSS, "MiB", False, 0.1), Row(LIVE, "MiB", False)]
    short = shape.split(" batches", maxsplit=1)[0].lower().replace(" records, ", "-in-").replace(" ", "")
    name = f"produce-{short}{'-all-read' if validated else ''}"
    return Scenario(name, "One node", tuple(rows), partial(produce, shape=shape, validated=validated), 3.6)


SCENARIOS = [_scenario(shape, validated=validated) for shape in SHAPES for validated in (False, True)]
