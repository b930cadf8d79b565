"""Rows of a cluster: three controllers and three brokers of one kind, each a process, default settings.

Every scenario starts its own cluster. Questions go through `kraft_node.cli.client` over one loopback connection each;
what they cost is the same for both.
"""

from __future__ import annotations

import signal
import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench import frames
from bench.many import answers_a_second
from bench.quorum import until_caught_up
from bench.rows import GIB, Figures, Load, Row, _settle
from bench.servers import TunedApache, cpu_s, rss_mib, warm_memory
from kraft_node.base.errors import ErrorCode
from kraft_node.cli.client import Client
from kraft_node.cli.common import ToolError
from kraft_node.wire.api import ApiKey
from kraft_node.wire.frames import encode_request
from kraft_node.wire.messages import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
)
from tests.compat import members
from tests.compat.members import Members

CAUGHT_UP = "a new replica of 1 GiB until it is in sync"
CAUGHT_UP_CPU = "a new replica of 1 GiB, CPU of leader and follower per GB"
COMMIT = "metadata commit, one client, p50"
COMMITS_OF_MANY = "metadata commits, 1,000 concurrent clients"

ROWS = {
    "cluster 3+3: formatted disks to first acks=all record": Row("s", False, 0.15),
    "cluster 3+3: memory of the six processes": Row("MiB", False, 0.15),
    "SIGKILL of the active controller to CreateTopics acknowledged": Row("s", False, 0.3),
    "active controller falls silent to CreateTopics acknowledged": Row("s", False, 1.0),
    "SIGKILL of the broker leading 1,000 partitions until all are led": Row("s", False, 1.0),
    "controlled drain of the broker leading 1,000 partitions": Row("s", False, 1.0),
    "CreateTopics 1000x10, replication factor 3, acknowledged": Row("s", False, 1 / 0.7),
    "reassignment of 1,000 empty partitions": Row("s", False, 1.0),
    "produce acks=all, replication factor 3, 100 B records": Row("MB/s", True, 0.8),
    CAUGHT_UP: Row("MB/s", True, 1.0),
    CAUGHT_UP_CPU: Row("s/GB", False, 1.0),
    COMMIT: Row("ms", False, 1.0),
    COMMITS_OF_MANY: Row("/s", True, 1.0),
}

WAIT_S = 300.0
SETTLE_S = 3.0
"""For what brokers do in the background after a change of leaders, before the next one."""
LED = 1000
CLIENTS = 1000
COMMITS = 10_000
WARM_COMMITS, COMMITS_OF_ONE = 50, 150
PRODUCED = 400_000_000
"""Bytes sent to the partition that three brokers have."""
LACKED = 3
"""GiB that new replicas fetch, each a partition: memory can be kept warm for so much at a time, see bench.rows."""


class ClusterApache(TunedApache):
    """Six JVMs share the machine: a quarter of the heap that one has by itself."""

    def _command(self, program: str, *args: str) -> list[str]:
        return [{"-Xmx1G": "-Xmx256m", "-Xms1G": "-Xms256m"}.get(a, a) for a in super()._command(program, *args)]


PROGRAMS = {"ours": "kraftcluster", "kafka": "apache"}


@contextmanager
def _cluster(name: str, folder: Path, controllers: int = 3, brokers: int = 3) -> Iterator[Members]:
    members.PROGRAMS["apache"] = ClusterApache
    kind = PROGRAMS[name]
    overrides = {"default.replication.factor": str(brokers), "min.insync.replicas": str(brokers - 1)}
    cluster = Members(folder, (kind,) * controllers, (kind,) * brokers, overrides=overrides)
    for node in cluster.nodes.values():
        node.format()
    try:
        yield cluster
    finally:
        cluster.stop()


def _until(what: str, question: Callable[[], Any], pause_s: float = 0.002) -> Any:
    """Ask until there is an answer; errors of connections count as none."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        try:
            answer = question()
        except (OSError, ToolError, AssertionError):
            answer = None
        if answer:
            return answer
        time.sleep(pause_s)
    raise AssertionError(f"not within {WAIT_S} s: {what}")


def _leader_port(cluster: Members, topic: str, *, create: bool) -> int:
    """The port of the leader of the topic's first partition; 0 while there is none."""
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create
    )
    answer = cluster.ask(cluster.broker_ids[-1], ApiKey.METADATA, request, timeout_s=5)
    partitions = answer.topics[0].partitions
    if (
        answer.topics[0].error_code
        or not partitions
        or partitions[0].error_code
        or len(partitions[0].isr_nodes) < len(cluster.broker_ids)
    ):
        return 0
    return cluster.nodes[partitions[0].leader_id].port


def _produced(cluster: Members, topic: str, record: bytes) -> bool:
    port = _leader_port(cluster, topic, create=True)
    if not port:
        return False
    return _accepted(port, frames.produce(topic, 0, record))


def _ready(cluster: Members) -> None:
    """Start all, and wait for a record that all brokers have: with more patience than tests have."""
    for node in cluster.nodes.values():
        node.launch()
    _until("a topic on all brokers", lambda: _produced(cluster, "ready", frames.batch(1, 10)), 0.05)
    cluster._wait_until_all_may_vote()


def _create(client: Client, topics: list[Any]) -> None:
    answer = client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics, timeout_ms=60_000))
    codes = {ErrorCode(t.error_code) for t in answer.topics}
    assert codes == {ErrorCode.NONE}, codes


def _assigned(name: str, replicas: list[int], count: int) -> Any:
    kind = CreateTopicsRequest.CreatableTopic
    assignments = [CreateTopicsRequest.CreatableReplicaAssignment(p, replicas) for p in range(count)]
    return kind(name, -1, -1, assignments)


def starts(name: str, folder: Path, load: Load) -> Figures:
    """From formatted disks to the first record that all three brokers have; memory then; produce with replication."""
    with _cluster(name, folder) as cluster:
        record = frames.batch(1, 100)
        begun = time.monotonic()
        for node in cluster.nodes.values():
            node.launch()
        _until("the first record", lambda: _produced(cluster, "first", record))
        first = time.monotonic() - begun
        time.sleep(5)
        memory = sum(rss_mib(node.process) for node in cluster.nodes.values() if node.process is not None)
        batch = frames.batch(1_000_000 // 106, 95)
        port = _until("a leader", lambda: _leader_port(cluster, "bulk", create=True))
        target = next(node for node in cluster.nodes.values() if node.port == port)
        request = [frames.produce("bulk", 0, batch)]
        load.run(target, request, 100, 5)
        _settle()
        warm_memory(3 * PRODUCED + GIB)
        got = load.run(target, request, PRODUCED // len(batch), 5)
        return {
            "cluster 3+3: formatted disks to first acks=all record": first,
            "cluster 3+3: memory of the six processes": memory,
            "produce acks=all, replication factor 3, 100 B records": got["sent"] / 1e6 / got["seconds"],
        }


def controllers(name: str, folder: Path, _load: Load) -> Figures:
    """Loss of the active controller, and what a commit takes."""
    figures: Figures = {}
    with _cluster(name, folder) as cluster:
        _ready(cluster)
        figures |= _commits(cluster)
        for row, number, topic in (
            ("SIGKILL of the active controller to CreateTopics acknowledged", signal.SIGKILL, "killed"),
            ("active controller falls silent to CreateTopics acknowledged", signal.SIGSTOP, "silent"),
        ):
            leader = cluster.nodes[_until("a leader", cluster.leader)]
            until_caught_up(leader)
            time.sleep(SETTLE_S)
            assert leader.process is not None
            leader.process.send_signal(number)
            begun = time.monotonic()
            # No topic of that name was there before: that it exists says that an earlier try made it.
            _until("CreateTopics", partial(_created, cluster, topic))
            figures[row] = time.monotonic() - begun
            if number == signal.SIGKILL:
                leader.process.wait()
                leader.launch()
            else:
                leader.process.send_signal(signal.SIGCONT)
    return figures


def _created(cluster: Members, topic: str) -> bool:
    with Client("127.0.0.1", cluster.nodes[cluster.broker_ids[0]].port, 10) as client:
        wanted = CreateTopicsRequest.CreatableTopic(topic, 1, 3)
        answer = client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([wanted], timeout_ms=2_000))
        return answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


def brokers(name: str, folder: Path, _load: Load) -> Figures:
    """Loss and drain of the broker that leads 1,000 partitions; creation and reassignment in bulk."""
    figures: Figures = {}
    with _cluster(name, folder) as cluster:
        _ready(cluster)
        first, second, third = cluster.broker_ids
        with Client("127.0.0.1", cluster.nodes[second].port, 120) as client:
            _create(client, [_assigned("led", [first, second, third], LED)])
            _until("all in sync", lambda: _all(cluster, second, "led", lambda p: len(p.isr_nodes) == 3), 0.1)
            begun = time.monotonic()
            cluster.nodes[first].kill()
            _until("all led again", lambda: _all(cluster, second, "led", lambda p: p.leader_id in (second, third)))
            figures["SIGKILL of the broker leading 1,000 partitions until all are led"] = time.monotonic() - begun
            cluster.nodes[first].launch()
            _until("all in sync", lambda: _all(cluster, second, "led", lambda p: len(p.isr_nodes) == 3), 0.1)
            client.ask(ApiKey.ELECT_LEADERS, ElectLeadersRequest(0, None, 60_000))
            _until("preferred leaders", lambda: _all(cluster, second, "led", lambda p: p.leader_id == first), 0.1)
            process = cluster.nodes[first].process
            assert process is not None
            begun = time.monotonic()
            process.send_signal(signal.SIGTERM)
            _until("all led again", lambda: _all(cluster, second, "led", lambda p: p.leader_id in (second, third)))
            figures["controlled drain of the broker leading 1,000 partitions"] = time.monotonic() - begun
            process.wait(WAIT_S)
            cluster.nodes[first].launch()
            _until("all in sync", lambda: _all(cluster, second, "led", lambda p: len(p.isr_nodes) == 3), 0.1)
            figures |= _in_bulk(cluster, client)
    return figures


def catch_up(name: str, folder: Path, load: Load) -> Figures:
    """Partitions of a GiB are given a second replica, one after the other, which fetches all of it."""
    with _cluster(name, folder, 1, 2) as cluster:
        _ready(cluster)
        first, second = (cluster.nodes[broker_id] for broker_id in cluster.broker_ids)
        processes = [node.process for node in (first, second) if node.process is not None]
        batch = frames.batch(8, 131_000)
        seconds = cpu = 0.0
        with Client("127.0.0.1", first.port, 120) as client:
            for number in range(LACKED):
                topic = f"big{number}"
                _create(client, [_assigned(topic, [cluster.broker_ids[0]], 1)])
                request = frames.produce(topic, 0, batch)
                _until("a produce", partial(_accepted, first.port, request), 0.05)
                warm_memory(2 * GIB)
                load.run(first, [request], GIB // len(batch), 5)
                _settle()
                warm_memory(2 * GIB)
                cpu -= sum(map(cpu_s, processes))
                seconds += _reassigned(client, topic, cluster.broker_ids, 1)
                cpu += sum(map(cpu_s, processes))
        size = LACKED * (GIB // len(batch)) * len(batch)
        return {CAUGHT_UP: size / 1e6 / seconds, CAUGHT_UP_CPU: cpu / size * 1e9}


def _accepted(port: int, request: bytes) -> bool:
    wire = frames.Wire(port, 10)
    try:
        return frames.produce_error(wire.ask(request)) == 0
    finally:
        wire.close()


def _reassigned(client: Client, topic: str, replicas: list[int], count: int) -> float:
    """Seconds until the topic's partitions have those replicas, and none else."""
    kind = AlterPartitionReassignmentsRequest
    partitions = [kind.ReassignablePartition(p, replicas) for p in range(count)]
    begun = time.monotonic()
    answer = client.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, kind(topics=[kind.ReassignableTopic(topic, partitions)]))
    assert answer.error_code == 0, answer
    listing = ListPartitionReassignmentsRequest(topics=None)
    _until("no reassignment", lambda: not client.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, listing).topics, 0.01)
    return time.monotonic() - begun


def _in_bulk(cluster: Members, client: Client) -> Figures:
    first, second, third = cluster.broker_ids
    _create(client, [_assigned("moved", [first, second], LED)])
    _until("all in sync", lambda: _all(cluster, second, "moved", lambda p: len(p.isr_nodes) == 2), 0.1)
    moved = _reassigned(client, "moved", [second, third], LED)
    _until("moved", lambda: _all(cluster, second, "moved", lambda p: sorted(p.replica_nodes) == [second, third]))
    topics = [CreateTopicsRequest.CreatableTopic(f"t{i}", 10, 3) for i in range(1000)]
    begun = time.monotonic()
    _create(client, topics[:500])  # one request may not write more than 10,000 records
    _create(client, topics[500:])
    return {
        "reassignment of 1,000 empty partitions": moved,
        "CreateTopics 1000x10, replication factor 3, acknowledged": time.monotonic() - begun,
    }


def _all(cluster: Members, node_id: int, topic: str, law: Callable[[Any], bool]) -> bool:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    partitions = cluster.ask(node_id, ApiKey.METADATA, request).topics[0].partitions
    return len(partitions) == LED and all(law(p) for p in partitions)


def _commits(cluster: Members) -> Figures:
    """Config changes of a topic, each a record committed: one after another, and by many clients at once."""
    port = cluster.nodes[cluster.leader()].controller_port
    with Client("127.0.0.1", port) as client:
        taken = []
        for number in range(WARM_COMMITS + COMMITS_OF_ONE):
            begun = time.monotonic()
            client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, _change(number))
            taken.append((time.monotonic() - begun) * 1000)
    return {
        COMMIT: statistics.median(taken[WARM_COMMITS:]),
        COMMITS_OF_MANY: _concurrent(port),
    }


def _change(number: int) -> Any:
    kind = IncrementalAlterConfigsRequest
    config = kind.AlterableConfig("retention.ms", 0, str(1_000_000 + number))
    return kind(resources=[kind.AlterConfigsResource(2, "ready", [config])])


class _Changing:
    """One connection that changes the configuration of a topic again and again."""

    def __init__(self, port: int, number: int) -> None:
        self._request = b"".join(
            encode_request(1, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, "bench", _change(number))  # type: ignore[arg-type]
        )
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self) -> None:
        self._socket.sendall(self._request)

    def receive(self) -> bool:
        answer = self._socket.recv(65536)
        assert len(answer) == 4 + struct.unpack_from(">i", answer)[0], "an answer in pieces, or none"
        return True

    def close(self) -> None:
        self._socket.close()


def _concurrent(port: int) -> float:
    """Commits a second over CLIENTS connections, each with one request under way."""
    connections = [_Changing(port, number) for number in range(CLIENTS)]
    try:
        return answers_a_second(connections, COMMITS)
    finally:
        for connection in connections:
            connection.close()


SCENARIOS: dict[str, Callable[[str, Path, Load], Figures]] = {
    "cluster-starts": starts,
    "cluster-controllers": controllers,
    "cluster-brokers": brokers,
    "cluster-catch-up": catch_up,
}
