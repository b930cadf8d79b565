"""Rows of controllers beside 1,000,000 partitions: one controller, or three, started with a snapshot that is made here.

The very same snapshot file is given to both servers. Its brokers are made of nothing: their leases are an hour long, so
that controllers go on giving them replicas. What both can do is compared; how one million compares with ten thousand,
and a commit beside a snapshot with one without, are figures of each server by itself.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.image import LEVEL, directories, opening, topic_records
from bench.quorum import until_caught_up
from bench.rows import Figures, Load, Row
from bench.servers import SERVERS, TunedApache, rss_mib, spawn
from kraft_node.base.errors import ErrorCode
from kraft_node.cli.client import Client
from kraft_node.cli.common import ToolError
from kraft_node.log import quorum_state
from kraft_node.metadata.log_batches import data_batch, encode_values, snapshot_footer_batch, snapshot_header_batch
from kraft_node.raft.quorum import QuorumState
from kraft_node.wire.api import ApiKey
from kraft_node.wire.messages import CreateTopicsRequest, IncrementalAlterConfigsRequest
from tests.compat.targets import Target, free_ports

MANY, FEW = 1_000_000, 10_000
END_OFFSET = 2 * MANY
"""Where the snapshots end: any offset above that of the brokers' registrations."""
PARTITIONS_EACH = 100
EPOCH = 1
BATCH_RECORDS = 200
WAIT_S = 300.0
LEASE_MS = 3_600_000
SNAPSHOT_AFTER_MS = 60_000
"""A snapshot is taken so long after the start: the node has to be up and commits without one measured by then."""
WARM_COMMITS = 200
COMMITS_MIN = 500
"""Commits that a p99 is made of at least."""
SETTLE_S = 4.0
"""For what nodes do in the background after they have been started, before one is killed."""
FAILOVERS = {"ours": 9, "kafka": 2}
"""Some 40 ms of ours are measured by asking every few: the median of many."""

ROWS = {
    "start with a snapshot of 1,000,000 partitions to CreateTopics acknowledged": Row("s", False, 5.0, absolute=True),
    "memory of a controller of 1,000,000 partitions": Row("MiB", False, 0.15),
    "memory a partition of a controller, everything included": Row("bytes", False, 64.0, absolute=True),
    "snapshot of 1,000,000 partitions written beside commits": Row("s", False, 10.0, absolute=True),
    "commit p99 while it is written, against without": Row("x", False, 2.0, absolute=True),
    "failover of the active controller, 1,000,000 partitions": Row("s", False, 0.3),
    "failover, 1,000,000 partitions against 10,000": Row("x", False, 1.2, absolute=True),
}


class RoomyApache(TunedApache):
    """Apache Kafka with a heap that a million partitions fit into."""

    def _command(self, program: str, *args: str) -> list[str]:
        return [{"-Xmx1G": "-Xmx2G"}.get(a, a) for a in super()._command(program, *args)]


KINDS: dict[str, type[Target]] = {**SERVERS, "kafka": RoomyApache}


@functools.cache
def snapshot(partitions: int) -> Path:
    """A snapshot of so many partitions, made once a run."""
    folder = Path(tempfile.mkdtemp(prefix="kraft-bench-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / f"{partitions}.checkpoint"
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


@contextmanager
def _controllers(name: str, folder: Path, count: int, partitions: int) -> Iterator[list[Target]]:
    """Controllers that have that snapshot and have not been started."""
    ports = free_ports(count)
    voters = ",".join(f"{i}@127.0.0.1:{port}" for i, port in enumerate(ports, 1))
    made = []
    for node_id, port in enumerate(ports, 1):
        values = {
            "process.roles": "controller",
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "broker.session.timeout.ms": str(LEASE_MS),
            "metadata.log.max.snapshot.interval.ms": str(SNAPSHOT_AFTER_MS if count == 1 else LEASE_MS),
        }
        target = KINDS[name](f"{name}-{node_id}", folder / f"{partitions}-{node_id}", values, port, port, is_lone=False)
        target.format()
        log = target.data / "__cluster_metadata-0"
        log.mkdir(exist_ok=True)
        (log / f"{END_OFFSET:020}-{EPOCH:010}.checkpoint").write_bytes(snapshot(partitions).read_bytes())
        state = quorum_state.render(QuorumState(EPOCH), version=0, voter_ids=range(1, count + 1))
        (log / "quorum-state").write_bytes(state)
        made.append(target)
    try:
        yield made
    finally:
        for target in made:
            target.kill()


def _created(target: Target, topic: str) -> bool:
    """Whether that controller is the active one and has made the topic, perhaps when it was asked before."""
    try:
        with Client("127.0.0.1", target.controller_port, 10) as client:
            wanted = CreateTopicsRequest.CreatableTopic(topic, 1, 3)
            answer = client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([wanted], timeout_ms=5_000))
    except (OSError, ToolError):
        return False
    return answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


def _until_created(targets: list[Target], topic: str) -> Target:
    """The controller that has acknowledged it; one that has ended ends the measurement."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for target in targets:
            if _created(target, topic):
                return target
            if target.process is None or target.process.poll() is not None:
                raise AssertionError(f"{target.name} has ended:\n{target.tail()}")
        time.sleep(0.002)
    raise AssertionError(f"no topic within {WAIT_S} s:\n{targets[0].tail()}")


def beside_snapshots(name: str, folder: Path, _load: Load) -> Figures:
    """One controller: start, memory, and commits while it writes its next snapshot."""
    with _controllers(name, folder, 1, FEW) as (small,):
        spawn(small)
        _until_created([small], "first")
        time.sleep(5)
        assert small.process is not None
        least = rss_mib(small.process)
    with _controllers(name, folder, 1, MANY) as (target,):
        begun = time.monotonic()
        process = spawn(target)
        _until_created([target], "first")
        started = time.monotonic() - begun
        time.sleep(5)
        memory = rss_mib(process)
        seconds, without, beside = _commits(target)
    return {
        "start with a snapshot of 1,000,000 partitions to CreateTopics acknowledged": started,
        "memory of a controller of 1,000,000 partitions": memory,
        "memory a partition of a controller, everything included": (memory - least) * 2**20 / (MANY - FEW),
        "snapshot of 1,000,000 partitions written beside commits": seconds,
        "commit p99 while it is written, against without": _p99(beside) / _p99(without),
    }


def _p99(taken: list[float]) -> float:
    return sorted(taken)[int(len(taken) * 0.99)]


def _commits(target: Target) -> tuple[float, list[float], list[float]]:
    """Seconds that the next snapshot takes, and seconds of commits without and beside it."""
    log = target.data / "__cluster_metadata-0"
    without: list[float] = []
    beside: list[float] = []
    first = last = 0.0
    deadline = time.monotonic() + WAIT_S
    with Client("127.0.0.1", target.controller_port) as client:
        for number in range(1 << 60):
            writing = any(file.name.endswith(".part") for file in log.iterdir())
            begun = time.monotonic()
            if writing:
                first = first or begun
            elif first:
                last = begun
                break
            assert begun < deadline, f"no snapshot within {WAIT_S} s: {target.tail()}"
            client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, _change(number))
            if number >= WARM_COMMITS:
                (beside if writing else without).append(time.monotonic() - begun)
    assert len(without) >= COMMITS_MIN, f"only {len(without)} commits before the snapshot"
    return last - first, without, beside


def _change(number: int) -> Any:
    kind = IncrementalAlterConfigsRequest
    config = kind.AlterableConfig("retention.ms", 0, str(1_000_000 + number))
    return kind(resources=[kind.AlterConfigsResource(2, "first", [config])])


def failover(name: str, folder: Path, _load: Load) -> Figures:
    """Three controllers of which the active one is killed, beside few partitions and beside many."""
    taken = {partitions: _failovers(name, folder, partitions) for partitions in (FEW, MANY)}
    return {
        "failover of the active controller, 1,000,000 partitions": taken[MANY],
        "failover, 1,000,000 partitions against 10,000": taken[MANY] / taken[FEW],
    }


def _failovers(name: str, folder: Path, partitions: int) -> float:
    with _controllers(name, folder, 3, partitions) as targets:
        for target in targets:
            spawn(target)
        active = _until_created(targets, "first")
        seconds = []
        for number in range(FAILOVERS[name]):
            until_caught_up(active)
            time.sleep(SETTLE_S)
            assert active.process is not None
            active.process.send_signal(signal.SIGKILL)
            begun = time.monotonic()
            others = [target for target in targets if target is not active]
            after = _until_created(others, f"after-{number}")
            seconds.append(time.monotonic() - begun)
            active.process.wait()
            spawn(active)
            active = after
        return statistics.median(seconds)


SCENARIOS: dict[str, Callable[[str, Path, Load], Figures]] = {
    "metadata-snapshots": beside_snapshots,
    "metadata-failover": failover,
}
