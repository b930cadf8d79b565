"""A simulated machine and the node on it: formatted, started, stopped, killed, without power, started again.

`SimCluster` makes machines that know one another by name (`n1`, `n2`, …); a node's process is the product's own
`server.node.Node`, unchanged. What a crash promised to keep is noted at its moment: see `Durable`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from kraft_node.base.config import NodeConfig
from kraft_node.base.ids import Uuid, uuid_text
from kraft_node.cli import storage_dirs, storage_format
from kraft_node.log import names
from kraft_node.server.node import Node, StartRefused
from kraft_node.testing.disk import SimDisk
from kraft_node.testing.net import SimNetwork
from kraft_node.testing.world import START_WALL_MS, ProcessDied, SimHost, SimTimer, World

CLIENT_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
FIRST_CONTROLLER_ID: Final = 3000
DIR: Final = "/data"

Durable = dict[tuple[str, int], int]
"""By partition: every record below that offset was on stable storage when the power went."""


class SimMachine:
    """One machine: its disk outlives its processes. At most one node runs on it."""

    def __init__(self, world: World, network: SimNetwork, name: str, config: NodeConfig) -> None:
        self.world = world
        self.network = network
        self.name = name
        self.config = config
        self.disk = SimDisk(world.rng, lambda: START_WALL_MS + int(world.now_ms))
        self.host: SimHost = SimHost(world, name, self.disk)
        self.node: Node | None = None
        self.starts = 0
        self.broken: str | None = None
        """Why the node refused to start or gave up by itself."""
        self.on_end: Callable[[str], None] = lambda _how: None
        """Told at the end of a process: killed, power or stopped."""
        self._stopping = False
        self._starting: SimTimer | None = None

    @property
    def running(self) -> bool:
        """Whether there is a process, or about to be one."""
        return self.node is not None or self._starting is not None

    @property
    def serving(self) -> bool:
        """Whether the node serves clients."""
        return self.node is not None and self.node.not_ready() is None

    def format(self, cluster_id: str) -> None:
        """What `kafka-storage format` does, on a machine that has been up for long."""
        levels = storage_format.plan_features({}, None, dynamic_quorum=False)
        storage_dirs.write_directories(
            self.config,
            cluster_id=cluster_id,
            records=storage_format.bootstrap_records(levels, []),
            levels=levels,
            voters=None,
            ignore_formatted=False,
            new_uuid=lambda: Uuid(self.world.rng.randbytes(16)),
            say=lambda _text: None,
            disk=self.disk,
            now_ms=lambda: START_WALL_MS + int(self.world.now_ms),
        )
        self.disk.sync_all()

    def start(self) -> None:
        """Start a process, in an event of its own."""
        assert not self.running, f"{self.name} runs already"
        self._starting = self.world.at(0.0, self._start, host=self.host)

    def _start(self) -> None:
        self._starting = None
        self.starts += 1
        self._stopping = False
        self.world.note(self.name, f"starts, process {self.starts}")
        self.node = node = Node(
            self.host.env(self.network.host(self.host)), self.config, host_name=self.name, on_fatal=self._gave_up
        )
        try:
            node.start()
        except StartRefused as e:
            self.broken = f"start refused: {e}"
            self._end("refused")

    def _gave_up(self, reason: str) -> None:
        self.broken = f"the node has failed: {reason}"
        self.world.note(self.name, self.broken)
        raise ProcessDied(self.kill)

    # -- the ends of a process

    def stop(self) -> None:
        """SIGTERM."""
        if self.node is not None and not self._stopping:
            self._stopping = True
            self.world.note(self.name, "is told to stop")
            self.world.at(0.0, self.node.shutdown, lambda: self._end("stopped"), host=self.host)

    def kill(self) -> None:
        """SIGKILL: the page cache stays."""
        if self.running:
            self._end("killed")

    def die_within(self, operations: int, end: Callable[[], object]) -> None:
        """`end` (kill, lose_power) in the middle of its work: at the next disk operation but `operations`."""
        self.disk.on_death = lambda: ProcessDied(end)
        self.disk.die_after(operations)

    def never_mind(self) -> None:
        """Do not die after all."""
        self.disk.on_death = None
        self.host.paused_until_ms = 0.0

    def lose_power(self) -> Durable:
        """Unsynced writes are kept, lost or torn; what was durable."""
        durable = self.durable()
        self.disk.lose_power()
        if self.running:
            self._end("power")
        return durable

    def replace_disk(self, cluster_id: str) -> None:
        """The process ends, and its disk is another one, formatted for the same node id."""
        if self.running:
            self._end("killed")
        self.disk = self.host.disk = SimDisk(self.world.rng, lambda: START_WALL_MS + int(self.world.now_ms))
        self.world.note(self.name, "has an empty disk")
        self.format(cluster_id)

    def _end(self, how: str) -> None:
        self.world.note(self.name, f"process {self.starts} ends: {how}")
        self.host.end_life()
        self.host.paused_until_ms = 0.0
        self.network.crash(self.host)
        self.disk.kill_process()
        self.node = self._starting = None
        self.on_end(how)

    def durable(self) -> Durable:
        """The recovery points in memory: fsyncs that have come back. A log that is being closed is ahead of its own."""
        durable = dict.fromkeys(self.partitions(), 0)
        node = self.node
        if node is not None and node.storage is not None:
            logs = node.storage.logs.open_logs()
            durable |= {(log.topic, log.partition): log.recovery_point for log in logs if not log.closed}
        return durable

    def partitions(self) -> list[tuple[str, int]]:
        """Those with a log on the disk."""
        found = (names.parse_partition_dir(name) for name in self.disk.listdir(DIR))
        return [partition for partition in found if partition is not None]

    def blocked(self, duration_ms: float) -> None:
        """The process does nothing for a while (SIGSTOP, a disk that hangs under the loop)."""
        self.host.paused_until_ms = self.world.now_ms + duration_ms
        self.world.note(self.name, f"is blocked for {duration_ms:.0f} ms")


class SimCluster:
    """Machines formatted for one cluster: n1… broker and controller at once, c1… controllers, b1… brokers.

    Node ids: n1 and b1 have 1, c1 has 3001.
    """

    def __init__(
        self,
        world: World,
        count: int = 1,
        overrides: Mapping[str, str] | None = None,
        *,
        controllers: int = 0,
        brokers: int = 0,
    ) -> None:
        """`count` machines of both roles, beside them as many of each role as is said."""
        self.world = world
        self.network = SimNetwork(world)
        ids = {f"n{number}": number for number in range(1, count + 1)}
        ids |= {f"c{number}": FIRST_CONTROLLER_ID + number for number in range(1, controllers + 1)}
        voters = ",".join(f"{number}@{name}:{CONTROLLER_PORT}" for name, number in ids.items())
        ids |= {f"b{number}": number for number in range(1, brokers + 1)}
        self.machines = [
            SimMachine(world, self.network, name, _config(name, number, voters, overrides or {}))
            for name, number in ids.items()
        ]
        self.cluster_id = uuid_text(Uuid(world.rng.randbytes(16)))
        for machine in self.machines:
            machine.format(self.cluster_id)

    @property
    def brokers(self) -> list[SimMachine]:
        """Machines that serve clients."""
        return [machine for machine in self.machines if not machine.name.startswith("c")]

    @property
    def controllers(self) -> list[SimMachine]:
        """Machines that vote."""
        return [machine for machine in self.machines if not machine.name.startswith("b")]

    def client_host(self, name: str) -> SimHost:
        """A machine for a client."""
        return SimHost(self.world, name, SimDisk(self.world.rng))

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """Host and port of every broker."""
        return [(machine.name, CLIENT_PORT) for machine in self.brokers]


def _config(name: str, number: int, voters: str, overrides: Mapping[str, str]) -> NodeConfig:
    roles = {"n": "broker,controller", "c": "controller", "b": "broker"}[name[0]]
    client, controller = f"PLAINTEXT://{name}:{CLIENT_PORT}", f"CONTROLLER://{name}:{CONTROLLER_PORT}"
    texts = {
        "process.roles": roles,
        "node.id": str(number),
        "controller.quorum.voters": voters,
        "listeners": ",".join([client] * ("broker" in roles) + [controller] * ("controller" in roles)),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": DIR,
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
    }
    if "broker" in roles:
        texts |= {"advertised.listeners": client, "inter.broker.listener.name": "PLAINTEXT"}
    texts |= overrides
    return NodeConfig.parse("".join(f"{key}={value}\n" for key, value in texts.items()))


class StoryLog(logging.Handler):
    """Puts what the nodes log into the story, under the name of the machine whose event is being done."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self.world = world
        self.failures: list[str] = []
        """Logged with a traceback, or as critical."""

    def emit(self, record: logging.LogRecord) -> None:
        host = self.world.running
        text = record.getMessage()
        self.world.note(host.name if host is not None else "-", f"{record.levelname.lower()}: {text}")
        if record.exc_info:
            self.failures.append(f"{text}: {record.exc_info[1]!r}")


__all__ = ["CLIENT_PORT", "CONTROLLER_PORT", "DIR", "Durable", "SimCluster", "SimMachine", "StoryLog"]
