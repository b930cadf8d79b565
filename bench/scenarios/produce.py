"""Bulk produce with ready-made frames (`load.c`), each shape with the default validation and with the full one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.clients import asking, frames, load
from bench.runs import steady
from bench.runs.row import Figures, Life, Measured, Row, Scenario, Step
from bench.servers.process import cpu_s, live_mib, rss_mib, settle
from tests.compat.targets import Target

LIBRDKAFKA_BATCH_RECORDS = 10_000
LIBRDKAFKA_BATCH_BYTES = 1_000_000
"""The C client's default batching: batch.num.messages and batch.size, whichever comes first."""
MEASURED_S = 3
"""Seconds per row and round."""
VALIDATED = {"message.timestamp.before.max.ms": str(10**15)}
"""With this bound, both servers read every record of a topic; its value lets every record pass."""
LESS_READ = (
    "ours checks CRC, counts and lengths of a batch and reads few of its records (docs/differences.md, log.validate); "
    "Kafka reads every record. The rows named *every record read* have no such difference"
)
SHAPES: dict[str, tuple[int, int, float]] = {
    "100 B records, 1 MB batches": (LIBRDKAFKA_BATCH_BYTES // 106, 95, 1.0),
    "1 KB records, 1 MB batches": (LIBRDKAFKA_BATCH_BYTES // 1030, 1024, 1.3),
    "128 KB records, 1 MB batches": (8, 131_000, 1.3),
    "100 B records, 16 KB batches": (150, 100, 1.0),
}
"""Shape -> records per batch, bytes per value, throughput aim."""
RSS, LIVE = "memory after bulk produce: RSS", "memory after bulk produce: live set"
TOPIC, READ = "bulk", "read"
"""Two topics: with the server's default validation, and with every record read."""


def _names(shape: str, *, validated: bool) -> tuple[str, str]:
    what = f"produce {shape}{', every record read' if validated else ''}"
    return f"{what}: sustained", f"{what}: CPU per GB"


class Bulk:
    """One batch of `records` records, sent again and again to one topic of a server."""

    def __init__(self, target: Target, topic: str, batch: bytes, records: int) -> None:
        self.records = records
        self._target, self._topic = target, topic
        self._request = frames.produce(topic, 0, batch)

    def send(self, **bounds: float) -> dict[str, Any]:
        """Send batches; see `load.send`."""
        return load.send(self._target, [self._request], **bounds)  # type: ignore[arg-type]

    def series(self, seconds: float) -> Any:
        """Bytes acknowledged in each second."""
        return self.send(seconds=seconds)["series"]

    def sustained(self, step: Step) -> tuple[float, float, dict[str, Any]]:
        """MB per second and CPU seconds per GB; the log must end where the acknowledged records end."""
        settle()
        steady.again(step, lambda seconds: self.send(seconds=seconds))
        before, spent = asking.end_offset(self._target, self._topic), cpu_s(self._target)
        got = self.send(seconds=step.size(MEASURED_S, 1))
        cpu = cpu_s(self._target) - spent
        end = asking.end_offset(self._target, self._topic)
        expected = before + int(got["requests"]) * self.records
        assert end == expected, f"the log ends at {end}; acknowledged records end at {expected}"
        got.pop("series")
        return got["sent"] / 1e6 / got["seconds"], cpu / got["sent"] * 1e9, got


@contextmanager
def produce(step: Step) -> Iterator[Life]:
    """All shapes on one server. Kafka reads every record of either topic, so both rows have its figure."""
    is_ours = step.server.kind == "ours"
    with step.started(**asking.TRIMMED_OFTEN) as target:
        asking.create(target, [TOPIC], configs=asking.BOUNDED)
        asking.create(target, [READ], configs={**asking.BOUNDED, **VALIDATED})
        for topic in (TOPIC, READ):
            asking.until_accepted(target, frames.produce(topic, 0, frames.batch(1, 10)), topic)
        batches = {shape: (frames.batch(records, size), records) for shape, (records, size, _aim) in SHAPES.items()}
        bulks = {shape: Bulk(target, TOPIC, *batch) for shape, batch in batches.items()}
        read = {shape: Bulk(target, READ, *batch) for shape, batch in batches.items()} if is_ours else {}
        loads: dict[str, Any] = {shape: bulk.series for shape, bulk in bulks.items()}
        loads |= {f"{shape}, read": bulk.series for shape, bulk in read.items()}
        yield Life(partial(_round, step, target, bulks, read), steady.warmed(step, loads))


def _round(step: Step, target: Target, bulks: dict[str, Bulk], read: dict[str, Bulk]) -> Measured:
    figures: Figures = {}
    detail: dict[str, Any] = {}
    for shape, bulk in bulks.items():
        sustained, cpu = _names(shape, validated=False)
        figures[sustained], figures[cpu], detail[shape] = bulk.sustained(step)
        of_read, cpu_of_read = _names(shape, validated=True)
        if shape in read:
            found = read[shape].sustained(step)
            figures[of_read], figures[cpu_of_read], detail[f"{shape}, read"] = found
        else:
            figures[of_read], figures[cpu_of_read] = figures[sustained], figures[cpu]
    figures |= {RSS: rss_mib(target), LIVE: live_mib(target)}
    return Measured(figures, detail)


def _rows() -> tuple[Row, ...]:
    rows = []
    for shape, (_, _, aim) in SHAPES.items():
        sustained, cpu = _names(shape, validated=False)
        of_read, cpu_of_read = _names(shape, validated=True)
        rows += [
            Row(sustained, "MB/s", True, aim, differs=LESS_READ),
            Row(of_read, "MB/s", True),
            Row(cpu, "s/GB", False, 1.0, differs=LESS_READ),
            Row(cpu_of_read, "s/GB", False),
        ]
    return (*rows, Row(RSS, "MiB", False, 0.1), Row(LIVE, "MiB", False))


SCENARIOS = [Scenario("produce", "One node", _rows(), None, 7, live=produce)]
