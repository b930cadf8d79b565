"""Rows of a cluster: three controllers and three brokers of one kind, each a process, default settings.

Every scenario starts its own cluster. Questions go through `kraft_node.cli.client` over one loopback connection each;
what they cost is the same for both.
"""

from __future__ import annotations

import selectors
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
from bench.rows import Figures, Load, Row, _settle
from bench.servers import TunedApache, rss_mib, warm_memory
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
    "metadata commit, one client, p50": Row("ms", False, 1.0),
    "metadata commits, 1,000 concurrent clients": Row("/s", True, 1.0),
}

WAIT_S = 120.0
LED = 1000
CLIENTS = 1000


class ClusterApache(TunedApache):
    """Six JVMs share the machine: a quarter of the heap that one has by itself."""

    def _command(self, program: str, *args: str) -> list[str]:
        return [{"-Xmx1G": "-Xmx256m", "-Xms1G": "-Xms256m"}.get(a, a) for a in super()._command(program, *args)]


PROGRAMS = {"ours": "kraftcluster", "kafka": "apache"}


@contextmanager
def _cluster(name: str, folder: Path) -> Iterator[Members]:
    members.PROGRAMS["apache"] = ClusterApache
    kind = PROGRAMS[name]
    overrides = {"default.replication.factor": "3", "min.insync.replicas": "2"}
    cluster = Members(folder, (kind,) * 3, (kind,) * 3, overrides=overrides)
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
    if answer.topics[0].error_code or not partitions or partitions[0].error_code or len(partitions[0].isr_nodes) < 3:
        return 0
    return cluster.nodes[partitions[0].leader_id].port


def _produced(cluster: Members, topic: str, record: bytes) -> bool:
    port = _leader_port(cluster, topic, create=True)
    if not port:
        return False
    wire = frames.Wire(port, 10)
    try:
        return frames.produce_error(wire.ask(frames.produce(topic, 0, record))) == 0
    finally:
        wire.close()


def _ready(cluster: Members) -> None:
    cluster.start()
    _until("a topic on three brokers", lambda: _produced(cluster, "ready", frames.batch(1, 10)), 0.05)


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
        warm_memory(4 << 30)
        got = load.run(target, request, 1_000_000_000 // len(batch), 5)
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
            time.sleep(3)
            leader = cluster.nodes[cluster.leader()]
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
            cluster.start(first)
            _until("all in sync", lambda: _all(cluster, second, "led", lambda p: len(p.isr_nodes) == 3), 0.1)
            client.ask(ApiKey.ELECT_LEADERS, ElectLeadersRequest(0, None, 60_000))
            _until("preferred leaders", lambda: _all(cluster, second, "led", lambda p: p.leader_id == first), 0.1)
            process = cluster.nodes[first].process
            assert process is not None
            begun = time.monotonic()
            process.send_signal(signal.SIGTERM)
            _until("all led again", lambda: _all(cluster, second, "led", lambda p: p.leader_id in (second, third)))
            figures["controlled drain of the broker leading 1,000 partitions"] = time.monotonic() - begun
            process.wait(60)
            cluster.start(first)
            _until("all in sync", lambda: _all(cluster, second, "led", lambda p: len(p.isr_nodes) == 3), 0.1)
            figures |= _in_bulk(cluster, client)
    return figures


def _in_bulk(cluster: Members, client: Client) -> Figures:
    first, second, third = cluster.broker_ids
    _create(client, [_assigned("moved", [first, second], LED)])
    _until("all in sync", lambda: _all(cluster, second, "moved", lambda p: len(p.isr_nodes) == 2), 0.1)
    kind = AlterPartitionReassignmentsRequest
    partitions = [kind.ReassignablePartition(p, [second, third]) for p in range(LED)]
    begun = time.monotonic()
    answer = client.ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, kind(topics=[kind.ReassignableTopic("moved", partitions)])
    )
    assert answer.error_code == 0, answer
    listing = ListPartitionReassignmentsRequest(topics=None)
    _until("no reassignment", lambda: not client.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, listing).topics, 0.01)
    moved = time.monotonic() - begun
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
        for number in range(300):
            begun = time.monotonic()
            client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, _change(number))
            taken.append((time.monotonic() - begun) * 1000)
    return {
        "metadata commit, one client, p50": statistics.median(taken[100:]),
        "metadata commits, 1,000 concurrent clients": _concurrent(port, 10_000),
    }


def _change(number: int) -> Any:
    kind = IncrementalAlterConfigsRequest
    config = kind.AlterableConfig("retention.ms", 0, str(1_000_000 + number))
    return kind(resources=[kind.AlterConfigsResource(2, "ready", [config])])


def _concurrent(port: int, count: int) -> float:
    """Commits a second over CLIENTS connections, each with one request under way."""
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    requests = [b"".join(encode_request(1, api, 1, "bench", _change(n))) for n in range(CLIENTS)]  # type: ignore[arg-type]
    selector = selectors.DefaultSelector()
    for request in requests:
        connection = socket.create_connection(("127.0.0.1", port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ, request)
    begun = time.monotonic()
    for key in selector.get_map().values():
        key.fileobj.sendall(key.data)  # type: ignore[union-attr]
    done = 0
    while done < count:
        for key, _ in selector.select(30):
            answer = key.fileobj.recv(65536)  # type: ignore[union-attr]
            assert len(answer) == 4 + struct.unpack_from(">i", answer)[0], "an answer in pieces, or none"
            done += 1
            key.fileobj.sendall(key.data)  # type: ignore[union-attr]
    seconds = time.monotonic() - begun
    for key in list(selector.get_map().values()):
        selector.unregister(key.fileobj)
        key.fileobj.close()  # type: ignore[union-attr]
    return done / seconds


SCENARIOS: dict[str, Callable[[str, Path, Load], Figures]] = {
    "cluster-starts": starts,
    "cluster-controllers": controllers,
    "cluster-brokers": brokers,
}
