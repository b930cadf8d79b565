"""A cluster of separate processes on this machine: controllers and brokers, each of them ours or Apache Kafka's."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.compat.targets import Apache, Ours, Target, free_ports

PROGRAMS: dict[str, type[Target]] = {"kraftcluster": Ours, "apache": Apache}
WAIT_S = 40.0


def wait_for(what: str, question: Callable[[], Any], timeout_s: float = WAIT_S) -> Any:
    """Ask until there is a (true) answer; it."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = question()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.05)


@dataclass
class Members:
    """`controllers` and `brokers` name the program of each: "kraftcluster" or "apache". Ids: controllers from 1 on,
    brokers from 101 on. `combined`: the controllers are brokers as well."""

    folder: Path
    controllers: Iterable[str] = ("kraftcluster",) * 3
    brokers: Iterable[str] = ("kraftcluster",) * 3
    combined: bool = False
    overrides: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kinds = dict(enumerate(self.controllers, 1)) | dict(enumerate(self.brokers, 101))
        ports = iter(free_ports(2 * len(kinds)))
        self.nodes: dict[int, Target] = {}
        places = {node_id: (next(ports), next(ports)) for node_id in kinds}
        voters = ",".join(f"{i}@127.0.0.1:{places[i][1]}" for i in kinds if i < 100)
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
                "controller.quorum.voters": voters,
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
        """Start those nodes (all of them), and wait until brokers among them answer."""
        chosen = node_ids or tuple(self.nodes)
        for node_id in chosen:
            self.nodes[node_id].launch()
        for node_id in chosen:
            if node_id in self.broker_ids:
                self.nodes[node_id].wait_ready()
        return self

    def stop(self) -> None:
        """Stop everything that runs, brokers first, as people do; whoever was paused goes on first."""
        for node in self.nodes.values():
            if node.process is not None:
                node.process.send_signal(signal.SIGCONT)
        for node_id in sorted(self.nodes, reverse=True):
            self.nodes[node_id].kill()

    def tails(self) -> str:
        """The end of all logs, for a failed test."""
        return "\n".join(f"--- {n}\n{node.tail()}" for n, node in self.nodes.items())
