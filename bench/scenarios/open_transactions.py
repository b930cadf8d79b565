"""Fail-over of a transaction coordinator with 10,000 open transactions, in a cluster of three brokers."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.clients import asking, frames
from bench.clients.open_transactions import Coordinated
from bench.runs.row import Figures, Life, Measured, Row, Scenario, Step
from bench.scenarios.cluster_faults import CLOSED
from bench.servers import members
from kraft_node.cli.client import NodeClient
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import ElectLeadersRequest
from tests.compat.members import Members

COUNT, PARTITIONS, TOPIC, STATE = 10_000, 10, "opened", "__transaction_state"
STATE_PARTITIONS = 50
SETTINGS = {"transaction.state.log.replication.factor": "3", "transaction.state.log.min.isr": "2"}
SETTLE_S = 3.0
"""Pause after a change of leaders, for the nodes' background work."""
KILLED = "SIGKILL of the coordinator of 10,000 open transactions until all are committed"
STOPPED = "orderly stop of the coordinator of 10,000 open transactions until all are committed"
UNDISTURBED = "10,000 open transactions until all are committed, without a fault"


@contextmanager
def failover(step: Step) -> Iterator[Life]:
    """The first broker coordinates, the second leads the data."""
    with step.server.cluster(step.folder, controllers=1) as cluster:
        for node in cluster.nodes.values():
            node.overrides.update(SETTINGS)
        members.start(cluster)
        _, second, third = cluster.broker_ids
        with NodeClient("127.0.0.1", cluster.nodes[second].port, 120) as client:
            members.create(client, [members.assigned(TOPIC, [second, third], PARTITIONS)])
        for node in cluster.nodes.values():
            if node.port and "broker" in node.overrides["process.roles"]:
                asking.until_coordinated(node, "any", frames.TRANSACTION)
        numbers = itertools.count()
        count = step.size(COUNT, 200)
        _commit(cluster, count, "warm", None)
        yield Life(lambda: _round(step, cluster, count, next(numbers)))


def _round(step: Step, cluster: Members, count: int, number: int) -> Measured:
    figures: Figures = {}
    if not step.server.settings:  # a variant differs only in the row of SIGKILL
        figures[UNDISTURBED] = _commit(cluster, count, f"quiet{number}", None)
        figures[STOPPED] = _commit(cluster, count, f"stopped{number}", signal.SIGTERM)
    figures[KILLED] = _commit(cluster, count, f"killed{number}", signal.SIGKILL)
    return Measured(figures)


def _commit(cluster: Members, count: int, prefix: str, fault: signal.Signals | None) -> float:
    """Seconds from the fault until the last commit."""
    first, second, _third = cluster.broker_ids
    _settle(cluster)
    node = cluster.nodes[first]
    transactions = Coordinated({broker_id: cluster.nodes[broker_id].port for broker_id in cluster.broker_ids}, second)
    try:
        names = transactions.names_at(first, count, prefix)
        opened = transactions.open(names, first, second, TOPIC, PARTITIONS)
        time.sleep(SETTLE_S)
        begun = time.monotonic()
        if fault is not None:
            assert node.process is not None
            node.process.send_signal(fault)
        transactions.commit(opened)
        took = time.monotonic() - begun
    finally:
        transactions.close()
    if fault is not None:
        assert node.process is not None
        node.process.wait(asking.STOP_TIMEOUT_S)
        node.launch()
    return took


def _settle(cluster: Members) -> None:
    """Wait until all replicas are in sync and led by their preferred leader."""
    second = cluster.broker_ids[1]

    def all_in_sync(topic: str, count: int, replicas: int) -> bool:
        return members.all_are(cluster, second, topic, count, lambda p: len(p.isr_nodes) == replicas)

    for topic, count, replicas in ((STATE, STATE_PARTITIONS, 3), (TOPIC, PARTITIONS, 2)):
        asking.until(f"{topic} in sync", lambda: all_in_sync(topic, count, replicas), 0.1)  # noqa: B023
    with NodeClient("127.0.0.1", cluster.nodes[second].port, 120) as client:
        client.request(ApiKey.ELECT_LEADERS, ElectLeadersRequest(0, None, 60_000))
    for topic, count in ((STATE, STATE_PARTITIONS), (TOPIC, PARTITIONS)):
        asking.until(
            f"preferred leaders of {topic}",
            lambda: members.all_are(cluster, second, topic, count, lambda p: p.leader_id == p.replica_nodes[0]),  # noqa: B023
            0.1,
        )
    time.sleep(SETTLE_S)


SCENARIOS = [
    Scenario(
        "open-transactions",
        "Transactions and consumer groups",
        (
            Row(KILLED, "s", False, 0.5, differs=CLOSED),
            Row(STOPPED, "s", False, 0.5),
            Row(UNDISTURBED, "s", False),
        ),
        None,
        12,
        (("ours", "kafka"), ("ours-lease", "kafka")),
        live=failover,
        apart=True,
    ),
]
