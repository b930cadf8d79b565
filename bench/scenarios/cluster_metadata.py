"""Commits of metadata in a quorum of three, and the loss of its active controller."""

from __future__ import annotations

import signal
import socket
import statistics
import struct
import time
from functools import partial
from typing import Any

from bench import asking, etcd, members, steady
from bench.many import answers_a_second
from bench.quorum import until_caught_up
from bench.row import Measured, Row, Scenario, Step
from kraft_node.cli.client import Client
from kraft_node.wire.api import ApiKey
from kraft_node.wire.frames import encode_request

CLIENTS = 1000
MEASURED_S = 20
SETTLE_S = 3.0
"""For what nodes do in the background after a change of leaders, before the next one."""
COMMIT = "metadata commit, one client, p50"
COMMITS_OF_MANY = "metadata commits, 1,000 concurrent clients"
KILLED = "SIGKILL of the active controller to CreateTopics acknowledged"
SILENT = "active controller falls silent (SIGSTOP) to CreateTopics acknowledged"


def commits(step: Step) -> Measured:
    """Changes of a topic's configuration at the active controller: one client, then many at once."""
    seconds = step.size(MEASURED_S, 1)
    clients = step.size(CLIENTS, 50)
    if step.server.kind == "etcd":
        waited = step.size(2 * steady.WARM_S, 2)
        taken, rate = etcd.commits(step.folder, waited, clients, waited)
        return Measured({COMMIT: statistics.median(taken), COMMITS_OF_MANY: rate})
    with step.server.cluster(step.folder) as cluster:
        members.start(cluster)
        port = cluster.nodes[cluster.leader()].controller_port
        with Client("127.0.0.1", port) as client:
            one = steady.warmed(step, partial(_rates_of_one, client))
            taken = _commits_of_one(client, seconds)

        def of_many(seconds: float) -> tuple[float, list[int]]:
            connections = [_Changing(port, number) for number in range(clients)]
            try:
                return answers_a_second(connections, seconds=seconds)
            finally:
                for connection in connections:
                    connection.close()

        many = steady.warmed(step, lambda seconds: of_many(seconds)[1])
        rate, _series = of_many(seconds)
    return Measured({COMMIT: statistics.median(taken), COMMITS_OF_MANY: rate}, {"one": one, "many": many})


def _commits_of_one(client: Client, seconds: float) -> list[float]:
    """Milliseconds of each commit, one after another."""
    taken: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.monotonic()
        client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, members.config_change("ready", len(taken)))
        taken.append((time.monotonic() - begun) * 1000)
    return taken


def _rates_of_one(client: Client, seconds: float) -> list[float]:
    """Median microseconds of each second."""
    return [statistics.median(_commits_of_one(client, 1)) * 1000 for _ in range(int(seconds))]


class _Changing:
    """One connection that changes the configuration of a topic again and again."""

    def __init__(self, port: int, number: int) -> None:
        change = members.config_change("ready", number)
        self._request = b"".join(
            encode_request(1, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, "bench", change)  # type: ignore[arg-type]
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


def lost(step: Step) -> Measured:
    """The active controller is killed, then another is stopped. A broker is asked, which has to find the new one."""
    figures: dict[str, Any] = {}
    with step.server.cluster(step.folder) as cluster:
        members.start(cluster)
        with Client("127.0.0.1", cluster.nodes[cluster.leader()].controller_port) as client:
            warm = steady.warmed(step, partial(_rates_of_one, client))
        asked = cluster.nodes[cluster.broker_ids[0]].port
        for row, number, topic in ((KILLED, signal.SIGKILL, "killed"), (SILENT, signal.SIGSTOP, "silent")):
            leader = cluster.nodes[asking.until("a leader", cluster.leader)]
            until_caught_up(leader)
            time.sleep(SETTLE_S)
            assert leader.process is not None
            leader.process.send_signal(number)
            begun = time.monotonic()
            # No topic of that name was there before: that it exists says that an earlier try made it.
            asking.until("CreateTopics", partial(members.created, asked, topic))
            figures[row] = time.monotonic() - begun
            if number == signal.SIGKILL:
                leader.process.wait()
                leader.launch()
            else:
                leader.process.send_signal(signal.SIGCONT)
    return Measured(figures, warm)


LINGERS = (
    "ours writes a lone append at once; Kafka waits `controller.quorum.append.linger.ms` (25 ms) for others. The line "
    "below has Kafka without that wait"
)

SCENARIOS = [
    Scenario(
        "cluster-commits",
        "A cluster",
        (
            Row(COMMIT, "ms", False, 1.0, differs=LINGERS),
            Row(COMMITS_OF_MANY, "/s", True, 1.0, differs=LINGERS),
        ),
        commits,
        9,
        (("ours", "kafka"), ("ours", "kafka-linger0"), ("ours", "etcd")),
    ),
    Scenario(
        "cluster-controllers",
        "A cluster",
        (Row(KILLED, "s", False, 0.3), Row(SILENT, "s", False, 1.0)),
        lost,
        4.5,
    ),
]
