"""Faults of a cluster: a broker that leads 1,000 partitions, the active controller; and reassignment in bulk."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.clients import asking
from bench.runs.row import Figures, Life, Measured, Row, Scenario, Step
from bench.servers import members
from bench.servers.quorum import until_caught_up
from kraft_node.cli.client import NodeClient
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import ElectLeadersRequest
from tests.compat.members import Members

SETTLE_S = 3.0
"""Pause after a change of leaders, for the nodes' background work."""
KILLED = "SIGKILL of the broker leading 1,000 partitions until all are led"
SILENT = "the broker leading 1,000 partitions falls silent (SIGSTOP) until all are led"
DRAINED = "controlled drain of the broker leading 1,000 partitions"
MOVED = "reassignment of 1,000 empty partitions"
CONTROLLER_KILLED = "SIGKILL of the active controller to CreateTopics acknowledged"
CONTROLLER_SILENT = "active controller falls silent (SIGSTOP) to CreateTopics acknowledged"


@contextmanager
def faults(step: Step) -> Iterator[Life]:
    """Each fault begins with all replicas in sync and the first broker as leader."""
    count = step.size(1000, 20)
    with step.server.cluster(step.folder) as cluster:
        members.start(cluster)
        with NodeClient("127.0.0.1", cluster.nodes[cluster.broker_ids[1]].port, 120) as client:
            members.create(client, [members.assigned("led", cluster.broker_ids, count)])
        numbers = itertools.count()
        yield Life(lambda: _round(step, cluster, count, next(numbers)))


def _round(step: Step, cluster: Members, count: int, number: int) -> Measured:
    if step.server.settings:  # a variant differs only in the first row
        return Measured(_brokers(cluster, count, {KILLED: signal.SIGKILL}))
    figures = _brokers(cluster, count, {KILLED: signal.SIGKILL, SILENT: signal.SIGSTOP, DRAINED: signal.SIGTERM})
    figures[MOVED] = _moved(cluster, count, f"moved{number}")
    return Measured(figures | _controllers(cluster, number))


def _brokers(cluster: Members, count: int, signals: dict[str, signal.Signals]) -> Figures:
    first, second, third = cluster.broker_ids
    node = cluster.nodes[first]
    figures: Figures = {}

    def wait(what: str, law: Callable[[Any], bool], pause_s: float = 0.1) -> None:
        asking.until(what, lambda: members.all_are(cluster, second, "led", count, law), pause_s)

    def back(client: NodeClient) -> None:
        wait("all in sync", lambda p: len(p.isr_nodes) == 3)
        client.request(ApiKey.ELECT_LEADERS, ElectLeadersRequest(0, None, 60_000))
        wait("preferred leaders", lambda p: p.leader_id == first)

    with NodeClient("127.0.0.1", cluster.nodes[second].port, 120) as client:
        back(client)
        for row, number in signals.items():
            process = node.process
            assert process is not None
            begun = time.monotonic()
            process.send_signal(number)
            wait("all are led", lambda p: p.leader_id in (second, third), 0.002)
            figures[row] = time.monotonic() - begun
            if number == signal.SIGSTOP:
                process.send_signal(signal.SIGCONT)
            else:
                process.wait(asking.STOP_TIMEOUT_S)
                node.launch()
            back(client)
    return figures


def _moved(cluster: Members, count: int, topic: str) -> float:
    """Seconds until a new topic's partitions have all moved from the first broker to the third."""
    first, second, third = cluster.broker_ids
    are = members.all_are
    with NodeClient("127.0.0.1", cluster.nodes[second].port, 120) as client:
        members.create(client, [members.assigned(topic, [first, second], count)])
        asking.until("all in sync", lambda: are(cluster, second, topic, count, lambda p: len(p.isr_nodes) == 2), 0.1)
        moved = members.reassigned(client, topic, [second, third], count)
    law: Callable[[Any], bool] = lambda p: sorted(p.replica_nodes) == [second, third]  # noqa: E731
    asking.until("moved", lambda: are(cluster, second, topic, count, law))
    return moved


def _controllers(cluster: Members, number: int) -> Figures:
    """Kill the active controller, then stop another. Requests go to a broker, which must find the new active
    controller."""
    figures: Figures = {}
    asked = cluster.nodes[cluster.broker_ids[0]].port
    for row, signal_number, topic in (
        (CONTROLLER_KILLED, signal.SIGKILL, f"killed{number}"),
        (CONTROLLER_SILENT, signal.SIGSTOP, f"silent{number}"),
    ):
        leader = cluster.nodes[asking.until("a leader", cluster.leader)]
        until_caught_up(leader)
        time.sleep(SETTLE_S)
        assert leader.process is not None
        leader.process.send_signal(signal_number)
        begun = time.monotonic()
        # The topic did not exist before: if it exists, an earlier try created it.
        asking.until("CreateTopics", partial(members.created, asked, topic))
        figures[row] = time.monotonic() - begun
        if signal_number == signal.SIGKILL:
            leader.process.wait()
            leader.launch()
        else:
            leader.process.send_signal(signal.SIGCONT)
    return figures


CLOSED = (
    "ours fences a broker whose connection to the controller is closed after `broker.session.closed.timeout.ms`; Kafka "
    "waits for the whole `broker.session.timeout.ms`. The line below has ours with Kafka's rule. With SIGSTOP no "
    "connection is closed"
)
SCENARIOS = [
    Scenario(
        "cluster-faults",
        "A cluster",
        (
            Row(KILLED, "s", False, 1.0, differs=CLOSED),
            Row(SILENT, "s", False),
            Row(DRAINED, "s", False, 1.0),
            Row(MOVED, "s", False, 1.0),
            Row(CONTROLLER_KILLED, "s", False, 0.3),
            Row(CONTROLLER_SILENT, "s", False, 1.0),
        ),
        None,
        9,
        (("ours", "kafka"), ("ours-lease", "kafka")),
        live=faults,
        apart=True,
    )
]
