"""100,000 partitions on one broker: creation, memory of each while idle, restart, a record to all."""

from __future__ import annotations

import resource
import time
from pathlib import Path

from bench.clients import asking, frames
from bench.runs.row import ImpossibleError, Measured, Row, Scenario, Step
from bench.scenarios.topics import until_all_answered
from bench.servers.process import live_mib

PARTITIONS = 100
"""Partitions per topic."""
TOGETHER = 90
"""Topics per CreateTopics: a request may write at most 10,000 records."""
LIMIT_S = 1500
MAPS_EACH, FILES_EACH = 2, 1
"""Kafka maps two indexes per partition and keeps its log open."""
MAPS_MORE, FILES_MORE = 5_000, 2_000
"""For libraries, threads, jars and connections."""
MAPS = Path("/proc/sys/vm/max_map_count")
CREATED = "100,000 partitions on one broker: CreateTopics acknowledged"
USABLE = "100,000 partitions on one broker: until all have taken a produce"
RESTARTED = "100,000 partitions on one broker: restart until every partition has answered"
EACH = "100,000 partitions on one broker: live set of each, idle after the restart"


def partitions(step: Step) -> Measured:
    """Like the rows with 10,000 partitions; memory is relative to the same server without partitions."""
    names = [f"t{i}" for i in range(step.size(1000, 4))]
    count = len(names) * PARTITIONS
    _check_limits(step, count)
    record = frames.batch(1, 10)
    with step.started() as target:
        time.sleep(step.size(3.0, 0.5))
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
        time.sleep(step.size(10.0, 0.5))
        each = max(0.0, live_mib(target) - empty) * 1024 / count
    return Measured({CREATED: created, USABLE: usable, RESTARTED: restarted, EACH: each})


def _check_limits(step: Step, count: int) -> None:
    """Raise the limits that Kafka needs for this many partitions. Raises ImpossibleError if that is refused."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if step.server.kind == "kafka":
        wanted = FILES_EACH * count + FILES_MORE
        if hard < wanted:
            hard = _raised(hard, wanted, f"Kafka needs {wanted} open files for {count} partitions")
        maps = int(MAPS.read_text())
        if maps < MAPS_EACH * count + MAPS_MORE:
            _more_maps(maps, MAPS_EACH * count + MAPS_MORE, count)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _raised(hard: int, wanted: int, why: str) -> int:
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
    except (ValueError, OSError):
        raise ImpossibleError(f"{why}; the hard limit is {hard} and cannot be raised (ulimit -Hn)") from None
    return wanted


def _more_maps(maps: int, wanted: int, count: int) -> None:
    try:
        MAPS.write_text(str(wanted))
    except OSError:
        raise ImpossibleError(
            f"Kafka maps {wanted} files for {count} partitions; vm.max_map_count is {maps}: "
            f"sysctl -w vm.max_map_count={wanted}"
        ) from None


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
        rounds=2,
    )
]
