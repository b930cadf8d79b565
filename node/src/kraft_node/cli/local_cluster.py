"""`make cluster`: three controllers and three brokers on this machine, a process each, until Ctrl-C.

    python -m kraft_node.cli.local_cluster [--data DIRECTORY] [--config FOLDER] [--first-port PORT]

Formats what is new, starts all six, and starts again any that ends: kill one and watch the others. Every node writes
its log to a file beside its data. Ctrl-C stops the brokers, then the controllers; a second Ctrl-C stops at once.
Who calls it: the Makefile.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Final

from kraft_node.cli.client import Client
from kraft_node.cli.common import Parser, ToolError, read_config, run
from kraft_node.cli.local import format_once
from kraft_node.wire.api import ApiKey
from kraft_node.wire.messages import MetadataRequest

CONFIG: Final = "deploy/local"
CONTROLLERS: Final = (1, 2, 3)
BROKERS: Final = (101, 102, 103)
FIRST_PORT: Final = 9092
PORTS_APART: Final = 100
"""Broker and controller number n listen on the first port and the one after it, plus n times this."""

LOOK_S: Final = 0.1
LOOK_MAX_S: Final = 2.0
RESTART_S: Final = 2.0
"""A node that has ended is started again so much later: long enough to see that it is missing."""
READY_MAX_S: Final = 60.0
STOP_MAX_S: Final = 30.0


class Member:
    """One node: its configuration file, what is its own, and its process."""

    def __init__(self, node_id: int, folder: str, data: str, first_port: int) -> None:
        self.node_id = node_id
        self.is_controller = node_id in CONTROLLERS
        index = (CONTROLLERS if self.is_controller else BROKERS).index(node_id)
        self.port = first_port + PORTS_APART * index + (1 if self.is_controller else 0)
        voters = ",".join(f"{i}@localhost:{first_port + PORTS_APART * n + 1}" for n, i in enumerate(CONTROLLERS))
        self.config = os.path.join(folder, "controller.properties" if self.is_controller else "broker.properties")
        self.data = os.path.join(os.path.abspath(data), str(node_id))
        self.log = self.data + ".log"
        self.overrides = [
            f"node.id={node_id}",
            f"controller.quorum.voters={voters}",
            f"listeners={'CONTROLLER' if self.is_controller else 'PLAINTEXT'}://localhost:{self.port}",
            f"log.dirs={self.data}",
        ]
        self.process: subprocess.Popen[bytes] | None = None
        self.restart_at: float | None = None

    def format(self, cluster_id: str | None) -> str:
        """Format the directory unless it has been; the cluster's id."""
        return format_once(read_config(self.config, self.overrides), cluster_id, say=_say_nothing)

    def start(self) -> None:
        self.restart_at = None
        command = [sys.executable, "-m", "kraft_node.cli.server_start", self.config]
        command += [word for override in self.overrides for word in ("--override", override)]
        with open(self.log, "ab") as log:
            # In a session of its own: a Ctrl-C is for this program, which stops its nodes in their order.
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)  # noqa: S603  (ours)

    def look(self, now: float) -> None:
        """Notice that it has ended; start it again a little later."""
        if self.process is not None and self.process.poll() is not None:
            code = self.process.returncode
            self.process = None
            self.restart_at = now + RESTART_S
            how = f"signal {-code}" if code < 0 else f"exit code {code}, see {self.log}"
            print(f"  {self.kind} {self.node_id} has ended ({how}); it starts again in {RESTART_S:.0f} s", flush=True)
        elif self.restart_at is not None and now >= self.restart_at:
            self.start()
            assert self.process is not None
            print(f"  {self.kind} {self.node_id} runs as process {self.process.pid}", flush=True)

    @property
    def kind(self) -> str:
        return "controller" if self.is_controller else "broker"

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


class Cluster:
    """All members; `stop` is asked for by a signal."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self.asked_to_stop = 0

    def signalled(self, *_: object) -> None:
        self.asked_to_stop += 1

    def run(self) -> int:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self.signalled)
        for member in self.members:
            member.start()
        ready = self.wait_ready()
        if ready:
            print(greeting(self.members), flush=True)
        while not self.asked_to_stop and ready:
            now = time.monotonic()
            for member in self.members:
                member.look(now)
            time.sleep(LOOK_S)
        stopped = self.stop()
        return 0 if ready and stopped else 1

    def wait_ready(self) -> bool:
        """Wait until every node listens and every broker shows all of them to clients; whether they do."""
        deadline = time.monotonic() + READY_MAX_S
        for member in self.members:
            while not (_listens(member.port) if member.is_controller else _shows_all(member.port)):
                if member.process is not None and member.process.poll() is not None:
                    print(f"{member.kind} {member.node_id} has ended: see {member.log}", file=sys.stderr)
                    return False
                if self.asked_to_stop or time.monotonic() > deadline:
                    return False
                time.sleep(LOOK_S)
        return True

    def stop(self) -> bool:
        """Brokers first, so that they can take their leave of the controllers; whether all went by themselves."""
        print("\nstopping; once more Ctrl-C stops at once", flush=True)
        asked = self.asked_to_stop
        for is_controller in (False, True):
            half = [member for member in self.members if member.is_controller == is_controller]
            for member in half:
                member.signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_MAX_S
            while any(member.process is not None and member.process.poll() is None for member in half):
                if time.monotonic() > deadline or self.asked_to_stop > max(asked, 1):
                    for member in self.members:
                        member.signal(signal.SIGKILL)
                    return False
                time.sleep(LOOK_S)
        return True


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1.0):
        return True
    return False


def _shows_all(port: int) -> bool:
    try:
        with Client("localhost", port, LOOK_MAX_S) as client:
            return len(client.ask(ApiKey.METADATA, MetadataRequest(topics=[])).brokers) == len(BROKERS)
    except ToolError:
        return False


def _say_nothing(text: str) -> None:
    del text


def greeting(members: Sequence[Member]) -> str:
    """What a new user needs to know."""
    servers = ",".join(f"localhost:{member.port}" for member in members if not member.is_controller)
    lines = [f"\n  bootstrap servers: {servers}"]
    for member in members:
        assert member.process is not None
        lines.append(f"  {member.kind:<10} {member.node_id:>3}  port {member.port}  process {member.process.pid}")
    lines.append(f"  logs and data: {os.path.dirname(members[0].data)}")
    lines.append("  kill any one of them (it comes back); Ctrl-C stops all, the data stays\n")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    parser = Parser(
        prog="python -m kraft_node.cli.local_cluster",
        description="Run three controllers and three brokers on this machine until Ctrl-C.",
    )
    parser.add_argument("--data", default=".kraft/cluster", help="where topics and metadata are kept")
    parser.add_argument("--config", default=CONFIG, help="folder of controller.properties and broker.properties")
    parser.add_argument("--first-port", type=int, default=FIRST_PORT, help="of the first broker")
    args = parser.parse_args(arguments)
    members = [Member(i, args.config, args.data, args.first_port) for i in (*CONTROLLERS, *BROKERS)]
    os.makedirs(args.data, exist_ok=True)
    cluster_id: str | None = None
    for member in members:
        cluster_id = member.format(cluster_id)
    return Cluster(members).run()


def entry() -> None:
    run(main)


if __name__ == "__main__":
    entry()
