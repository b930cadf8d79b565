"""Loss, silence and drain of the broker that leads 1,000 partitions; creation and reassignment in bulk."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from bench import asking, members
from bench.row import Figures, Measured, Row, Scenario, Step
from kraft_node.cli.client import Client
from kraft_node.wire.api import ApiKey
from kraft_node.wire.messages import CreateTopicsRequest, ElectLeadersRequest
from tests.compat.members import Members

KILLED = "SIGKILL of the broker leading 1,000 partitions until all are led"
SILENT = "the broker leading 1,000 partitions falls silent (SIGSTOP) until all are led"
DRAINED = "controlled drain of the broker leading 1,000 partitions"
MOVED = "reassignment of 1,000 empty partitions"
CREATED = "CreateTopics 1000x10, replication factor 3, acknowledged"


def brokers(step: Step) -> Measured:
    """Each change begins with all replicas in sync and the first broker leading."""
    count = step.size(1000, 20)
    figures: Figures = {}
    with step.server.cluster(step.folder) as cluster:
        members.start(cluster)
        first, second, third = cluster.broker_ids

        def wait(what: str, law: Callable[[Any], bool], pause_s: float = 0.1) -> None:
            asking.until(what, lambda: members.all_are(cluster, second, "led", count, law), pause_s)

        def led_by_others(begun: float) -> float:
            wait("all are led", lambda p: p.leader_id in (second, third), 0.002)
            return time.monotonic() - begun

        def back(client: Client) -> None:
            wait("all in sync", lambda p: len(p.isr_nodes) == 3)
            client.ask(ApiKey.ELECT_LEADERS, ElectLeadersRequest(0, None, 60_000))
            wait("preferred leaders", lambda p: p.leader_id == first)

        node = cluster.nodes[first]
        with Client("127.0.0.1", cluster.nodes[second].port, 120) as client:
            members.create(client, [members.assigned("led", [first, second, third], count)])
            back(client)
            for row, number in ((KILLED, signal.SIGKILL), (SILENT, signal.SIGSTOP), (DRAINED, signal.SIGTERM)):
                process = node.process
                assert process is not None
                begun = time.monotonic()
                process.send_signal(number)
                figures[row] = led_by_others(begun)
                if number == signal.SIGSTOP:
                    process.send_signal(signal.SIGCONT)
                else:
                    process.wait(asking.STOP_TIMEOUT_S)
                    node.launch()
                back(client)
            figures |= _in_bulk(step, cluster, client)
    return Measured(figures)


def _in_bulk(step: Step, cluster: Members, client: Client) -> Figures:
    first, second, third = cluster.broker_ids
    count = step.size(1000, 20)
    members.create(client, [members.assigned("moved", [first, second], count)])
    are = members.all_are
    asking.until("all in sync", lambda: are(cluster, second, "moved", count, lambda p: len(p.isr_nodes) == 2), 0.1)
    moved = members.reassigned(client, "moved", [second, third], count)
    law: Callable[[Any], bool] = lambda p: sorted(p.replica_nodes) == [second, third]  # noqa: E731
    asking.until("moved", lambda: are(cluster, second, "moved", count, law))
    topics = [CreateTopicsRequest.CreatableTopic(f"t{i}", 10, 3) for i in range(count)]
    begun = time.monotonic()
    members.create(client, topics[: count // 2])  # one request may not write more than 10,000 records
    members.create(client, topics[count // 2 :])
    return {MOVED: moved, CREATED: time.monotonic() - begun}


CLOSED = (
    "ours fences a broker whose connection to the controller is closed after `broker.session.closed.timeout.ms`; Kafka "
    "waits for the whole `broker.session.timeout.ms`. The line below has ours with Kafka's rule. With SIGSTOP no "
    "connection is closed"
)

SCENARIOS = [
    Scenario(
        "cluster-brokers",
        "A cluster",
        (
            Row(KILLED, "s", False, 1.0, differs=CLOSED),
            Row(SILENT, "s", False),
            Row(DRAINED, "s", False, 1.0),
            Row(MOVED, "s", False, 1.0),
            Row(CREATED, "s", False, 1 / 0.7),
        ),
        brokers,
        4.5,
        (("ours", "kafka"), ("ours-lease", "kafka")),
    )
]
