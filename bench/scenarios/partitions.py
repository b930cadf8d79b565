"""100,000 partitions on one broker: creation, memory of each while idle, restart, a record to all."""

from __future__ import annotations

import resource
import time
from pathlib import Path

from bench import asking, frames
from bench.process import live_mib
from bench.row import Measured, Row, Scenario, Step
from bench.scenarios.topics import until_all_answered

PARTITIONS = 100
"""Of each topic."""
TOGETHER = 90
"""Topics in one CreateTopics: a request may not write more than 10,000 records."""
LIMIT_S = 1500
MAPS_EACH, FILES_EACH = 2, 1
"""Kafka maps two indexes of each partition and keeps its log open."""
CREATED = "100,000 partitions on one broker: CreateTopics acknowledged"
USABLE = "100,000 partitions on one broker: until all have taken a produce"
RESTARTED = "100,000 partitions on one broker: restart until every partition has answered"
EACH = "100,000 partitions on one broker: live set of each, idle after the restart"


def partitions(step: Step) -> Measured:
    """As with 10,000 partitions, and memory beside that of the same server with none."""
    names = [f"t{i}" for i in range(step.size(1000, 4))]
    count = len(names) * PARTITIONS
    _check_limits(step, count)
    record = frames.batch(1, 10)
    with step.started() as target:
        time.sleep(step.size(5.0, 0.5))
        empty = live_mib(target)
        wire = frames.Wire(target.port, LIMIT_S)
        begun = time.monotonic()
        for at in range(0, len(names), TOGETHER):
            request = frames.create_topics(names[at : at + TOGETHER], PARTITIONS)
            errors = set(frames.create_errors(wire.ask(request)))
            assert errors == {0}, errors
        created = time.monotonic() - begun
        wire.close()
        until_all_answered(target, names, PARTITIONS, record, LIMIT_S)
        usable = time.monotonic() - begun
        asking.stop(target)
        begun = time.monotonic()
        asking.spawn(target)
        until_all_answered(target, names, PARTITIONS, record, LIMIT_S)
        restarted = time.monotonic() - begun
        time.sleep(step.size(30.0, 0.5))
        each = max(0.0, live_mib(target) - empty) * 1024 / count
    return Measured({CREATED: created, USABLE: usable, RESTARTED: restarted, EACH: each})


def _check_limits(step: Step, count: int) -> None:
    """Fail at once, by name, where the machine's limits keep Kafka from opening so many partitions."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if step.server.kind != "kafka":
        return
    maps = int(Path("/proc/sys/vm/max_map_count").read_text())
    assert maps >= MAPS_EACH * count, f"Kafka needs vm.max_map_count >= {MAPS_EACH * count}; this machine has {maps}"
    assert hard >= FILES_EACH * count, f"Kafka needs {FILES_EACH * count} open files; the hard limit is {hard}"


SCENARIOS = [
    Scenario(
        "partitions-100k",
        "One node",
        (
            Row(CREATED, "s", False),
            Row(USABLE, "s", False),
            Row(RESTARTED, "s", False),
            Row(EACH, "KiB", False, 1.0, absolute=True),
        ),
        partitions,
        3,
        keeps_files=True,
    )
]
