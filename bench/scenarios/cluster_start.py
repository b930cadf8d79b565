"""A cluster of three controllers and three brokers: start, memory, replicated produce, and a new replica's catch-up."""

from __future__ import annotations

import time
from functools import partial

from bench import asking, frames, load, members, steady
from bench.process import MIB, cpu_s, live_mib, rss_mib, settle, warm_memory
from bench.row import Measured, Row, Scenario, Step
from kraft_node.cli.client import Client
from kraft_node.wire.messages import CreateTopicsRequest

FIRST = "cluster 3+3: formatted disks to first acks=all record"
RSS, LIVE = "cluster 3+3: memory of the six processes: RSS", "cluster 3+3: memory of the six processes: live sets"
PRODUCE = "produce acks=all, replication factor 3, 100 B records"
CAUGHT_UP, CAUGHT_UP_CPU = (
    "a new replica of 1 GiB until it is in sync",
    "a new replica of 1 GiB, CPU of leader and follower per GB",
)
MEASURED_S = 30
REPLICAS = 3
"""New replicas, made one after the other, of a partition each: memory can be kept warm for so much at a time."""


def starts(step: Step) -> Measured:
    """From formatted disks to the first record that all three brokers have; memory then."""
    with step.server.cluster(step.folder) as cluster:
        record = frames.batch(1, 100)
        begun = time.monotonic()
        for node in cluster.nodes.values():
            node.launch()
        asking.until("the first record", lambda: members.produced(cluster, "first", record))
        first = time.monotonic() - begun
        time.sleep(step.size(5.0, 0.5))
        nodes = list(cluster.nodes.values())
        rss = rss_mib(*nodes)
        return Measured({FIRST: first, RSS: rss, LIVE: live_mib(*nodes)})


def produce(step: Step) -> Measured:
    """Replicated produce over one connection, five requests in flight, when warm."""
    with step.server.cluster(step.folder) as cluster:
        for node in cluster.nodes.values():
            node.overrides.update({key.replace("_", "."): value for key, value in asking.TRIMMED_OFTEN.items()})
        members.start(cluster)
        first = cluster.nodes[cluster.broker_ids[0]]
        with Client("127.0.0.1", first.port, 120) as client:
            topic = members.assigned("bulk", cluster.broker_ids, 1)
            topic.configs = [
                CreateTopicsRequest.CreatableTopicConfig(name, value) for name, value in asking.BOUNDED.items()
            ]
            members.create(client, [topic])
        port = asking.until("a leader", lambda: members.leader_port(cluster, "bulk", create=False))
        leader = next(node for node in cluster.nodes.values() if node.port == port)
        batch = frames.batch(1_000_000 // 106, 95)
        request = [frames.produce("bulk", 0, batch)]
        detail = steady.warmed(step, lambda seconds: load.send(leader, request, seconds=seconds)["series"])
        got = load.send(leader, request, seconds=step.size(MEASURED_S, 1))
    got.pop("series")
    return Measured({PRODUCE: got["sent"] / 1e6 / got["seconds"]}, {**detail, "measured": got})


def catch_up(step: Step) -> Measured:
    """Partitions are given a second replica, one after the other, which fetches all of it."""
    with step.server.cluster(step.folder, 1, 2) as cluster:
        members.start(cluster)
        first, second = (cluster.nodes[broker_id] for broker_id in cluster.broker_ids)
        batch = frames.batch(8, 131_000)
        bytes_each = step.size(1024, 32) * MIB
        seconds = cpu = 0.0
        count = step.size(REPLICAS, 1)
        with Client("127.0.0.1", first.port, 120) as client:
            for number in range(count):
                topic = f"big{number}"
                members.create(client, [members.assigned(topic, [cluster.broker_ids[0]], 1)])
                request = frames.produce(topic, 0, batch)
                asking.until("a produce", partial(members.accepted, first.port, request), 0.05)
                warm_memory(2 * bytes_each)
                load.send(first, [request], count=bytes_each // len(batch))
                settle()
                warm_memory(2 * bytes_each)
                spent = cpu_s(first, second)
                seconds += members.reassigned(client, topic, cluster.broker_ids, 1)
                cpu += cpu_s(first, second) - spent
        size = count * (bytes_each // len(batch)) * len(batch)
        return Measured({CAUGHT_UP: size / 1e6 / seconds, CAUGHT_UP_CPU: cpu / size * 1e9})


SCENARIOS = [
    Scenario(
        "cluster-starts",
        "A cluster",
        (Row(FIRST, "s", False, 0.15), Row(RSS, "MiB", False, 0.15), Row(LIVE, "MiB", False)),
        starts,
        1.5,
    ),
    Scenario(
        "cluster-produce",
        "A cluster",
        (
            Row(
                *(PRODUCE, "MB/s", True, 0.8),
                differs="followers of both check batches and do not read records; the leader of ours reads fewer "
                "records (docs/differences.md, log.validate)",
            ),
        ),
        produce,
        4,
    ),
    Scenario(
        "cluster-catch-up",
        "A cluster",
        (Row(CAUGHT_UP, "MB/s", True, 1.0), Row(CAUGHT_UP_CPU, "s/GB", False, 1.0)),
        catch_up,
        2,
    ),
]
