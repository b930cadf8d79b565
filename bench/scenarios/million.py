"""Controllers with 1,000,000 partitions. Both servers start with the same snapshot file, which is made here.

Its brokers do not exist: their leases are an hour long, so that controllers keep assigning replicas to them.
"""

from __future__ import annotations

import functools
import itertools
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.clients import asking
from bench.measurements.image import LEVEL, directories, opening, topic_records
from bench.runs.row import Life, Measured, Row, Scenario, Step
from bench.servers import members
from bench.servers.process import live_mib, rss_mib
from bench.servers.quorum import until_caught_up
from kraft_node.cli.client import NodeClient
from kraft_node.cli.common import ToolError
from kraft_node.log.checkpoints import quorum_state
from kraft_node.metadata.log_batches import data_batch, encode_values, snapshot_footer_batch, snapshot_header_batch
from kraft_node.raft.membership.quorum import QuorumState
from kraft_protocol.wire.api import ApiKey
from tests.compat.targets import Target, free_ports

MANY, FEW = 1_000_000, 10_000
END_OFFSET = 2 * MANY
"""The end of the snapshots: any offset above the brokers' registrations."""
PARTITIONS_EACH = 100
EPOCH = 1
BATCH_RECORDS = 200
LEASE_MS = 3_600_000
COMMITS_MIN = 100
"""The minimum number of commits for a p99."""
SETTLE_S = 3.0
HEAPS_MIB = (384, 512, 640, 768, 1024, 1280, 1536, 2048)
"""Heap sizes tried for Kafka, by bisection."""
HEAP_START_S = 60
SNAPSHOT_AFTER_S = 40
LONG_ROUNDS = 2
"""Rounds of rows that start a million partitions each time: too few for a verdict."""
ROOM = 2
"""The multiple of its smallest heap that Kafka gets where time is measured, so that no row measures a full heap."""

STARTED = "start with a snapshot of 1,000,000 partitions to CreateTopics acknowledged"
RSS = "memory of a controller of 1,000,000 partitions: RSS"
LIVE = "memory of a controller of 1,000,000 partitions: live set"
EACH = "memory a partition of a controller (live sets with 1,000,000 and 10,000)"
WRITTEN = "snapshot of 1,000,000 partitions written beside commits"
BESIDE = "commit p99 while it is written, against without"
FAILOVER = "failover of the active controller, 1,000,000 partitions"
AGAINST = "failover, 1,000,000 partitions against 10,000"


def snapshot(partitions: int, path: Path) -> Path:
    """Write a snapshot with this many partitions."""
    now = int(time.time() * 1000)
    offset = 1
    known = directories()
    with path.open("wb") as out:
        out.write(snapshot_header_batch(EPOCH, now, now))
        waiting = encode_values(opening(), LEVEL)
        for topic in range(partitions // PARTITIONS_EACH):
            waiting += encode_values(topic_records(topic, PARTITIONS_EACH, known), LEVEL)
            while len(waiting) >= BATCH_RECORDS:
                out.write(data_batch(waiting[:BATCH_RECORDS], offset, EPOCH, now))
                offset += BATCH_RECORDS
                del waiting[:BATCH_RECORDS]
        out.write(data_batch(waiting, offset, EPOCH, now))
        out.write(snapshot_footer_batch(offset + len(waiting), EPOCH, now))
    return path


def _shared_snapshot(step: Step, partitions: int) -> Path:
    """The snapshot with this many partitions, made once per run."""
    path = step.shared / f"{partitions}.checkpoint"
    if not path.exists():
        snapshot(partitions, path.with_suffix(".part")).rename(path)
    return path


@contextmanager
def _controllers(
    step: Step, count: int, partitions: int, heap: int = 0, snapshot_after_ms: int = LEASE_MS
) -> Iterator[list[Target]]:
    """Controllers that have a snapshot and are not started yet. `heap` in MiB applies to Kafka."""
    ports = free_ports(count)
    voters = ",".join(f"{i}@127.0.0.1:{port}" for i, port in enumerate(ports, 1))
    step.folder.mkdir(parents=True, exist_ok=True)
    source = _shared_snapshot(step, partitions)
    made = []
    for node_id, port in enumerate(ports, 1):
        values = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "broker.session.timeout.ms": str(LEASE_MS),
            "metadata.log.max.snapshot.interval.ms": str(snapshot_after_ms),
        }
        folder = step.folder / f"{partitions}-{node_id}-{time.monotonic_ns()}"
        target = step.server.node(folder, values, (port, port), lone=False, heap=heap)
        target.format()
        log = target.data / "__cluster_metadata-0"
        log.mkdir(exist_ok=True)
        (log / f"{END_OFFSET:020}-{EPOCH:010}.checkpoint").write_bytes(source.read_bytes())
        state = quorum_state.render(QuorumState(EPOCH), version=0, voter_ids=range(1, count + 1))
        (log / "quorum-state").write_bytes(state)
        made.append(target)
    try:
        yield made
    finally:
        for target in made:
            target.kill()


def _until_created(targets: list[Target], topic: str, limit_s: float = asking.WAIT_S) -> Target:
    """The controller that acknowledged the topic. Raises AssertionError if a controller ends."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        for target in targets:
            try:
                if members.created(target.controller_port, topic, 5_000):
                    return target
            except (OSError, ToolError):
                pass
            if target.process is None or target.process.poll() is not None:
                raise AssertionError(f"{target.name} has ended:\n{target.tail()}")
        time.sleep(0.002)
    raise AssertionError(f"no topic within {limit_s} s:\n{targets[0].tail()}")


def _smallest_heap(step: Step) -> int:
    """The smallest of HEAPS_MIB with which Kafka starts with MANY partitions and creates a topic in time."""
    low, high = -1, len(HEAPS_MIB) - 1
    while high - low > 1:
        middle = (low + high) // 2
        with _controllers(step, 1, step.size(MANY, FEW), HEAPS_MIB[middle]) as (target,):
            asking.spawn(target)
            try:
                _until_created([target], "first", HEAP_START_S)
                high = middle
            except AssertionError:
                low = middle
    return HEAPS_MIB[high]


def _heap(step: Step) -> int:
    """Kafka's smallest heap: an earlier result of this run, or a new search. 0 for ours."""
    if step.server.kind != "kafka":
        return 0
    if step.quick:
        return 1024
    return int(step.prepared.get("smallest_heap_mib") or _smallest_heap(step))


def _found(heap: int) -> dict[str, Any]:
    """The result for later steps of the run, and for the samples."""
    return {"prepared": {"smallest_heap_mib": heap}} if heap else {}


def memory(step: Step) -> Measured:
    """Memory of one controller, Kafka's with the smallest heap that starts."""
    heap = _heap(step)
    live = {}
    for partitions in (step.size(FEW, FEW // 10), step.size(MANY, FEW)):
        with _controllers(step, 1, partitions, heap) as (target,):
            asking.spawn(target)
            _until_created([target], "first")
            time.sleep(step.size(5.0, 0.5))
            rss = rss_mib(target)
            live[partitions] = live_mib(target)
    few, many = live
    figures = {RSS: rss, LIVE: live[many], EACH: max(0.0, live[many] - live[few]) * 2**20 / (many - few)}
    return Measured(figures, _found(heap))


def snapshots(step: Step) -> Measured:
    """One controller: start, and commits while it writes its next snapshot."""
    heap = _heap(step)
    after_s = step.size(SNAPSHOT_AFTER_S, 8)
    with _controllers(step, 1, step.size(MANY, FEW), ROOM * heap, after_s * 1000) as (target,):
        begun = time.monotonic()
        asking.spawn(target)
        _until_created([target], "first")
        started = time.monotonic() - begun
        seconds, without, beside = _commits(target, step)
    detail = {**_found(heap), "commits_without": len(without), "commits_beside": len(beside)}
    return Measured({STARTED: started, WRITTEN: seconds, BESIDE: _p99(beside) / _p99(without)}, detail)


def _p99(taken: list[float]) -> float:
    return sorted(taken)[int(len(taken) * 0.99)]


def _commits(target: Target, step: Step) -> tuple[float, list[float], list[float]]:
    """Seconds of the next snapshot, and seconds of commits without and beside it; the first half is a warm-up."""
    log = target.data / "__cluster_metadata-0"
    before = {file.name for file in log.iterdir()}
    without: list[float] = []
    beside: list[float] = []
    first = last = 0.0
    deadline = time.monotonic() + asking.WAIT_S
    with NodeClient("127.0.0.1", target.controller_port) as client:
        for number in range(1 << 60):
            names = {file.name for file in log.iterdir()}
            writing = any(name.endswith(".part") for name in names)
            begun = time.monotonic()
            if writing:
                first = first or begun
            elif first or any(name.endswith(".checkpoint") for name in names - before):
                last = begun
                break
            assert begun < deadline, f"no snapshot within {asking.WAIT_S} s: {target.tail()}"
            client.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, members.config_change("first", number))
            (beside if writing else without).append(time.monotonic() - begun)
    without = without[len(without) // 2 :]
    assert len(without) >= step.size(COMMITS_MIN, 1), f"only {len(without)} commits before the snapshot"
    assert beside or step.quick, "the snapshot was written between two commits"
    return last - (first or last), without, beside or without


@contextmanager
def failover(step: Step) -> Iterator[Life]:
    """Two quorums of three controllers, with few and with many partitions; each round kills both active controllers."""
    heap = _heap(step)
    with (
        _controllers(step, 3, step.size(FEW, FEW // 10)) as few,  # the default heap is large enough
        _controllers(step, 3, step.size(MANY, FEW), ROOM * heap) as many,
    ):
        active = []
        for targets in (few, many):
            for target in targets:
                asking.spawn(target)
            active.append(_until_created(targets, "first"))
        numbers = itertools.count()

        def taken() -> Measured:
            number = next(numbers)
            seconds = []
            for at, targets in enumerate((few, many)):
                took, active[at] = _failed_over(targets, active[at], f"after-{number}")
                seconds.append(took)
            return Measured({FAILOVER: seconds[1], AGAINST: seconds[1] / seconds[0]}, {"few_s": seconds[0]})

        yield Life(taken, _found(heap))


def _failed_over(targets: list[Target], active: Target, topic: str) -> tuple[float, Target]:
    """Seconds from the kill of the active controller to an acknowledged CreateTopics, and the new active one."""
    until_caught_up(active)
    time.sleep(SETTLE_S)
    assert active.process is not None
    active.process.send_signal(signal.SIGKILL)
    begun = time.monotonic()
    after = _until_created([target for target in targets if target is not active], topic)
    seconds = time.monotonic() - begun
    active.process.wait()
    asking.spawn(active)
    return seconds, after


HEAP = "Kafka has the smallest heap with which it starts, of eight that are tried (docs/benchmarks/protocol.md)"
ROOMY = "Kafka has twice the smallest heap with which it starts"
_ROW: Any = functools.partial(Row, more_is_better=False)

SCENARIOS = [
    Scenario(
        "million-memory",
        "A million partitions",
        (
            _ROW(RSS, "MiB", aim=0.15, differs=HEAP),
            _ROW(LIVE, "MiB", differs=HEAP),
            _ROW(EACH, "bytes", aim=64.0, absolute=True),
        ),
        memory,
        3.5,
        rounds=LONG_ROUNDS,
    ),
    Scenario(
        "million-snapshot",
        "A million partitions",
        (
            _ROW(STARTED, "s", aim=5.0, absolute=True, differs=ROOMY),
            _ROW(WRITTEN, "s", aim=10.0, absolute=True, differs="ours writes slowly on purpose, between other work"),
            _ROW(BESIDE, "x", aim=2.0, absolute=True),
        ),
        snapshots,
        3.5,
        rounds=LONG_ROUNDS,
    ),
    Scenario(
        "million-failover",
        "A million partitions",
        (_ROW(FAILOVER, "s", aim=0.3, differs=ROOMY), _ROW(AGAINST, "x", aim=1.2, absolute=True)),
        None,
        5.5,
        live=failover,
        apart=True,
    ),
]
