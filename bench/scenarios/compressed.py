"""Bulk produce of compressed batches, with the default validation and with every record read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.clients import asking, frames
from bench.runs import steady
from bench.runs.row import Figures, Life, Measured, Row, Scenario, Step
from bench.scenarios.produce import LESS_READ, READ, TOPIC, VALIDATED, Bulk
from tests.compat.targets import Target

RECORDS, SIZE = 970, 1024
"""A batch of 1 MB before it is compressed."""
WORDS = 500
"""Different words in the values: lz4 makes them about a third, zstd about a quarter."""


def _values() -> list[bytes]:
    """Text of random words; the same in each run."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 10))) for _ in range(WORDS)]
    return [" ".join(rng.choices(words, k=SIZE // 4)).encode()[:SIZE] for _ in range(RECORDS)]


def _names(codec: str, *, validated: bool) -> tuple[str, str]:
    what = f"produce 1 KB records, 1 MB batches, {codec}{', every record read' if validated else ''}"
    return f"{what}: sustained", f"{what}: CPU per GB"


@contextmanager
def compressed(step: Step) -> Iterator[Life]:
    """Both codecs on one server. Kafka reads every record of either topic, so both rows have its figure."""
    is_ours = step.server.kind == "ours"
    values = _values()
    with step.started(**asking.TRIMMED_OFTEN) as target:
        asking.create(target, [TOPIC], configs=asking.BOUNDED)
        asking.create(target, [READ], configs={**asking.BOUNDED, **VALIDATED})
        for topic in (TOPIC, READ):
            asking.until_accepted(target, frames.produce(topic, 0, frames.batch(1, 10)), topic)
        bulks = {
            (codec, topic): Bulk(target, topic, frames.compressed_batch(values, codec), RECORDS)
            for codec in frames.CODECS
            for topic in ((TOPIC, READ) if is_ours else (TOPIC,))
        }
        loads: dict[str, Any] = {f"{codec}, {topic}": bulk.series for (codec, topic), bulk in bulks.items()}
        yield Life(partial(_round, step, target, bulks), steady.warmed(step, loads))


def _round(step: Step, _target: Target, bulks: dict[tuple[str, str], Bulk]) -> Measured:
    figures: Figures = {}
    detail: dict[str, Any] = {}
    for (codec, topic), bulk in bulks.items():
        sustained, cpu = _names(codec, validated=topic == READ)
        _, spent, got = bulk.sustained(step)
        plain = got["requests"] * RECORDS * SIZE
        figures[sustained] = plain / 1e6 / got["seconds"]
        figures[cpu] = spent * got["sent"] / plain
        detail[sustained] = got
    for codec in frames.CODECS:  # of Kafka
        for of_read, row in zip(_names(codec, validated=True), _names(codec, validated=False), strict=True):
            figures.setdefault(of_read, figures[row])
    return Measured(figures, detail)


def _rows() -> Iterator[Row]:
    for codec in frames.CODECS:
        sustained, cpu = _names(codec, validated=False)
        of_read, cpu_of_read = _names(codec, validated=True)
        yield Row(sustained, "MB/s", True, 1.0, differs=LESS_READ)
        yield Row(of_read, "MB/s", True)
        yield Row(cpu, "s/GB", False, 1.0, differs=LESS_READ)
        yield Row(cpu_of_read, "s/GB", False)


SCENARIOS = [Scenario("compressed", "One node", tuple(_rows()), None, 4, live=compressed)]
