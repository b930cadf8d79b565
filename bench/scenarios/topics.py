"""10,000 partitions on one node: creation, first use, and a clean restart until every partition has answered."""

from __future__ import annotations

import time

from bench.clients import asking, frames
from bench.runs.row import Measured, Row, Scenario, Step
from tests.compat.targets import Target

PARTITIONS = 10
TOGETHER = 10
"""Topics per produce request."""
CREATED = "CreateTopics 1000x10 acknowledged"
USABLE = "CreateTopics 1000x10 until all partitions take a produce"
RESTARTED = "restart with 10,000 partitions until every partition has answered"


def topics(step: Step) -> Measured:
    """Create topics, produce to all, restart, produce to all."""
    names = [f"t{i}" for i in range(step.size(1000, 20))]
    record = frames.batch(1, 10)
    with step.started() as target:
        wire = frames.Wire(target.port)
        begun = time.monotonic()
        middle = len(names) // 2
        for half in (names[:middle], names[middle:]):  # a request may write at most 10,000 records
            errors = set(frames.create_errors(wire.ask(frames.create_topics(half, PARTITIONS))))
            assert errors == {0}, errors
        acknowledged = time.monotonic() - begun
        wire.close()
        until_all_answered(target, names, PARTITIONS, record)
        usable = time.monotonic() - begun
        asking.stop(target)
        begun = time.monotonic()
        asking.spawn(target)
        until_all_answered(target, names, PARTITIONS, record)
        restarted = time.monotonic() - begun
    return Measured({CREATED: acknowledged, USABLE: usable, RESTARTED: restarted})


def until_all_answered(
    target: Target, names: list[str], partitions: int, records: bytes, limit_s: float = asking.WAIT_S
) -> None:
    """Produce to every partition until each has acknowledged. A request is sent again if a partition refuses."""
    waiting = [names[at : at + TOGETHER] for at in range(0, len(names), TOGETHER)]
    deadline = time.monotonic() + limit_s
    while waiting:
        try:
            wire = frames.Wire(target.port)
        except OSError:
            time.sleep(0.002)
            continue
        try:
            while waiting:
                codes = set(frames.produce_errors(wire.ask(frames.produce_all(waiting[0], partitions, records))))
                assert codes <= {0, *asking.NOT_YET}, f"produce: {codes}"
                if codes == {0}:
                    waiting.pop(0)
                else:
                    time.sleep(0.001)
                assert time.monotonic() < deadline, f"{len(waiting)} requests were refused for {limit_s} s"
        except OSError:
            assert time.monotonic() < deadline, target.tail()
            time.sleep(0.002)
        finally:
            wire.close()


SCENARIOS = [
    Scenario(
        "topics",
        "One node",
        (
            Row(CREATED, "s", False, 1 / 0.7),
            Row(
                *(USABLE, "s", False, 0.2),
                differs="Kafka makes a log, two indexes and two files of each partition at once. Ours makes a log at "
                "its first use and an index at its first entry",
            ),
            Row(RESTARTED, "s", False, 0.1),
        ),
        topics,
        6,
        keeps_files=True,
    )
]
