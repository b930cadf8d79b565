"""A cluster of separate processes on this machine: controllers and brokers, each of them ours or Apache Kafka's."""

from __future__ import annotations

import base64
import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kraft_node.cli.client import NodeClient
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import CreateTopicsRequest, DescribeQuorumRequest, MetadataRequest
from tests.compat.targets import Apache, Ours, Target, free_ports

PROGRAMS: dict[str, type[Target]] = {"kraftcluster": Ours, "apache": Apache}
WAIT_S = 120.0
"""For a machine that is busy with ten other things: nothing is proven by it but that something comes about."""


def wait_for(what: str, question: Callable[[], Any], timeout_s: float = WAIT_S) -> Any:
    """Repeat until the answer is true. Returns the answer."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = question()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.05)


def directory_id(node_id: int) -> str:
    """The id of a first voter's metadata directory, as text."""
    return base64.urlsafe_b64encode(bytes([node_id]) * 16).decode().rstrip("=")


@dataclass
class Members:
    """Nodes as processes; `controllers` and `brokers` give the program of each: "kraftcluster" or "apache".

    Controllers have the ids from 1, brokers from 101. `combined`: the controllers are brokers as well.
    """

    folder: Path
    controllers: Iterable[str] = ("kraftcluster",) * 3
    brokers: Iterable[str] = ("kraftcluster",) * 3
    combined: bool = False
    dynamic: bool = False
    """Voters in the log (KIP-853), found by controller.quorum.bootstrap.servers, rather than in the configuration."""
    joining: int = 0
    """How many of the controllers, from the end, are no voters at first; only in a dynamic quorum."""
    overrides: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kinds = dict(enumerate(self.controllers, 1)) | dict(enumerate(self.brokers, 101))
        ports = iter(free_ports(2 * len(kinds)))
        self.nodes: dict[int, Target] = {}
        places = {node_id: (next(ports), next(ports)) for node_id in kinds}
        voters = ",".join(f"{i}@127.0.0.1:{places[i][1]}" for i in kinds if i < 100)
        quorum = {"controller.quorum.voters": voters}
        if self.dynamic:
            servers = ",".join(f"127.0.0.1:{places[i][1]}" for i in kinds if i < 100)
            quorum = {"controller.quorum.bootstrap.servers": servers}
        for node_id, kind in kinds.items():
            port, controller_port = places[node_id]
            is_controller = node_id < 100
            roles = ("broker,controller" if self.combined else "controller") if is_controller else "broker"
            listeners = []
            if "broker" in roles:
                listeners.append(f"PLAINTEXT://127.0.0.1:{port}")
            if is_controller:
                listeners.append(f"CONTROLLER://127.0.0.1:{controller_port}")
            values = {
                "process.roles": roles,
                "node.id": str(node_id),
                **quorum,
                "listeners": ",".join(listeners),
                "offsets.topic.replication.factor": "1",
                **self.overrides,
            }
            if "broker" in roles:
                values["advertised.listeners"] = listeners[0]
                values["inter.broker.listener.name"] = "PLAINTEXT"
            self.nodes[node_id] = PROGRAMS[kind](
                f"{kind}-{node_id}", self.folder / str(node_id), values, port, controller_port, is_lone=False
            )
            if self.dynamic and is_controller:
                initial = [i for i in kinds if i < 100][: len(tuple(self.controllers)) - self.joining]
                voters = ",".join(f"{i}@127.0.0.1:{places[i][1]}:{directory_id(i)}" for i in initial)
                options = ("--initial-controllers", voters) if node_id in initial else ("--no-initial-controllers",)
                self.nodes[node_id].format_options = options

    @property
    def controller_ids(self) -> list[int]:
        return [node_id for node_id in self.nodes if node_id < 100]

    @property
    def broker_ids(self) -> list[int]:
        return [n for n, t in self.nodes.items() if "broker" in t.overrides["process.roles"]]

    @property
    def bootstrap(self) -> str:
        return ",".join(self.nodes[node_id].bootstrap for node_id in self.broker_ids)

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(f"127.0.0.1:{self.nodes[i].controller_port}" for i in self.controller_ids)

    def start(self, *node_ids: int) -> Members:
        """Start the given nodes, by default all, and wait until the brokers among them answer."""
        chosen = node_ids or tuple(self.nodes)
        for node_id in chosen:
            self.nodes[node_id].launch()
        for node_id in chosen:
            if node_id in self.broker_ids:
                self.nodes[node_id].wait_ready()
        if not node_ids:
            self._wait_until_all_may_vote()
        return self

    def _wait_until_all_may_vote(self) -> None:
        """Wait until every voter may vote; before that no voter may be lost.

        A voter that does not know that its quorum is new votes four seconds later.
        """
        files = [self.nodes[i].data / "__cluster_metadata-0" / "quorum-state" for i in self.controller_ids]
        if not self.dynamic:
            wait_for("all voters remember", lambda: all(file.exists() for file in files))

    def stop(self) -> None:
        """Stop all nodes, brokers first, as administrators do. Paused nodes are resumed first."""
        for node in self.nodes.values():
            if node.process is not None:
                node.process.send_signal(signal.SIGCONT)
        for node_id in sorted(self.nodes, reverse=True):
            self.nodes[node_id].kill()

    def require_all_run(self) -> None:
        """Raise AssertionError with the name of a node that ended by itself: waiting for it would never succeed."""
        for node in self.nodes.values():
            code = None if node.process is None else node.process.poll()
            assert code is None, f"{node.name} ended with {code}:\n{node.tail()}"

    def tails(self) -> str:
        """The end of all logs, for a failed test."""
        return "\n".join(f"--- {n}\n{node.tail()}" for n, node in self.nodes.items())

    # Questions

    def ask(self, node_id: int, key: ApiKey, request: Any, *, timeout_s: float = 30.0) -> Any:
        """The response of one node, over its client port; over the controller port if it has no other."""
        node = self.nodes[node_id]
        port = node.port if node_id in self.broker_ids else node.controller_port
        with NodeClient("127.0.0.1", port, timeout_s) as client:
            return client.request(key, request)

    def quorum(self, node_id: int | None = None) -> Any:
        """The quorum as the first running broker describes it; None while the quorum has no leader."""
        self.require_all_run()
        topics = [DescribeQuorumRequest.TopicData("__cluster_metadata", [DescribeQuorumRequest.PartitionData(0)])]
        asked = next(n for n in self.broker_ids if self.runs(n)) if node_id is None else node_id
        response = self.ask(asked, ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest(topics))
        if response.error_code or response.topics[0].partitions[0].error_code:
            return None
        return response.topics[0].partitions[0]

    def leader(self) -> int:
        """The id of the active controller, once there is one."""
        return int(wait_for("an active controller", self.quorum).leader_id)

    def runs(self, node_id: int) -> bool:
        return self.nodes[node_id].process is not None

    def create(self, name: str, partitions: int = 1, replicas: int = 1, *, via: int | None = None) -> None:
        """Create a topic through the first running broker."""
        topic = CreateTopicsRequest.CreatableTopic(name, partitions, replicas)
        asked = next(n for n in self.broker_ids if self.runs(n)) if via is None else via
        response = self.ask(asked, ApiKey.CREATE_TOPICS, CreateTopicsRequest([topic], timeout_ms=30_000))
        assert response.topics[0].error_code == 0, (response.topics[0], self.tails())

    def topics(self, node_id: int) -> set[str]:
        """The topics that a broker knows."""
        return {topic.name for topic in self.ask(node_id, ApiKey.METADATA, MetadataRequest(topics=None)).topics}

    def unfenced(self, node_id: int) -> set[int]:
        """The brokers that a broker shows to clients."""
        request = MetadataRequest(topics=[])
        return {broker.node_id for broker in self.ask(node_id, ApiKey.METADATA, request).brokers}

    def metadata_log(self, node_id: int) -> bytes:
        """The bytes of a member's metadata log (its first segment)."""
        return (self.nodes[node_id].data / "__cluster_metadata-0" / "00000000000000000000.log").read_bytes()

    def all_have(self, offset: int) -> bool:
        """Whether every voter and observer has fetched everything below `offset`."""
        quorum = self.quorum()
        replicas = [*quorum.current_voters, *quorum.observers] if quorum else []
        running = {n for n in self.nodes if self.runs(n)}
        seen = {replica.replica_id for replica in replicas if replica.log_end_offset >= offset}
        return bool(replicas) and running <= seen


MakeMembers = Callable[..., Members]
"""Members from the kinds of the controllers and of the brokers."""
