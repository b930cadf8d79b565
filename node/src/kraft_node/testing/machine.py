"""A simulated machine and its node: formatted, started, stopped, killed, without power, started again.

`SimCluster` makes machines that address one another by name (`n1`, `n2`, …). A node's process is the product's
`server.node.Node`, unchanged. The durable offsets at a power loss are noted at that moment: see `Durable`.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from kraft_node.base.config import NodeConfig
from kraft_node.base.config.zookeeper import ZooKeeperSettings
from kraft_node.cli import storage_dirs, storage_format
from kraft_node.cli.storage_format import InitialVoter
from kraft_node.log import names
from kraft_node.metadata.features import MetadataVersion
from kraft_node.migration.zookeeper import Connect
from kraft_node.server.node import Node, StartRefused
from kraft_node.testing.client import Security
from kraft_node.testing.disk import SimDisk
from kraft_node.testing.net import SimNetwork
from kraft_node.testing.slow_plans import slow_down_plans
from kraft_node.testing.world import START_WALL_MS, ProcessDied, SimHost, SimTimer, World
from kraft_protocol.ids import Uuid, parse_uuid, uuid_text

CLIENT_PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
MOVED_PORT: Final = 9193
"""Moved controllers listen on ports above this; each move takes a new port."""
CONTROLLER: Final = "CONTROLLER"
LARGE_SHARE: Final = 3
"""In one of this many seeds, small logs count as large: lanes open and recover them. Each index entry is written."""
FIRST_VOTERS: Final = 3
"""The number of first voters of a dynamic quorum; further controllers observe until they become voters."""
FIRST_CONTROLLER_ID: Final = 3000
DIR: Final = "/data"
SLOW_DISK: Final = 100
"""Bytes per millisecond that a disk takes when a small memory is flooded."""
EVICTING_SHARE: Final = 0.25
"""The share of machines with a kernel that evicts files from the page cache."""
SMALL_MEMORY_SHARE: Final = 0.3
"""The share of machines with a kernel that allows few dirty bytes."""

Durable = dict[tuple[str, int], int]
"""By partition: every record below that offset was durable when the power failed."""


class SimMachine:
    """One machine; its disk outlives its processes. At most one node runs on it."""

    def __init__(self, world: World, network: SimNetwork, name: str, config: NodeConfig) -> None:
        self.world = world
        self.network = network
        self.name = name
        self.config = config
        self.disk_speed: int | None = SLOW_DISK
        self.disk = self._new_disk()
        self.host: SimHost = SimHost(world, name, self.disk)
        self.node: Node | None = None
        self.starts = 0
        self.broken: str | None = None
        """Why the node refused to start or ended by itself although its disk is sound."""
        self.dynamic = False
        """Whether the log defines the voters (dynamic quorum)."""
        self.release: MetadataVersion | None = None
        """The metadata.version of the formatted disk; None: the latest."""
        self.features: dict[str, int] = {}
        """Levels of features on the formatted disk; other features get the default of the metadata.version."""
        self.zookeeper: Callable[[ZooKeeperSettings], Connect] | None = None
        """Begins sessions of ZooKeeper, for a controller that migrates."""
        self.controller_port = CONTROLLER_PORT
        self.ailing: str | None = None
        """The fault of its disk; with a fault, the node may refuse to start, or end by itself."""
        self.rotten = False
        """Whether its disk has bit rot: its contents are not trusted."""
        self.metadata_rotten = False
        """Whether the rot is in the metadata: then the node may refuse to start, or end by itself."""
        self.gave_up = False
        """Whether the last process ended by itself."""
        self.cut_step: int | None = None
        """Segments that its logs drop in one step of a truncation; None: as many as real logs."""
        self.plan_turn_ms: int | None = None
        """The time between two turns of its controller's long plans, which then change one partition a turn; None: as
        on real nodes."""
        self.on_end: Callable[[str], None] = lambda _how: None
        """Called when a process ends, with the way: "killed", "power", "stopped", or "refused" if the start failed."""
        self._stopping = False
        self._starting: SimTimer | None = None

    @property
    def running(self) -> bool:
        """Whether a process runs or is about to start."""
        return self.node is not None or self._starting is not None

    @property
    def serving(self) -> bool:
        """Whether the node serves clients."""
        return self.node is not None and self.node.not_ready() is None

    def format(self, cluster_id: str, voters: Sequence[InitialVoter] | None = None) -> None:
        """Do what `kafka-storage format --ignore-formatted` does, and make it durable. `voters`: the first voters of a
        dynamic quorum."""
        levels = storage_format.plan_features(self.features, self.release, dynamic_quorum=self.dynamic)
        storage_dirs.write_directories(
            self.config,
            cluster_id=cluster_id,
            records=storage_format.bootstrap_records(levels, []),
            levels=levels,
            voters=voters,
            ignore_formatted=True,
            new_uuid=lambda: Uuid(self.world.rng.randbytes(16)),
            say=lambda _text: None,
            disk=self.disk,
            now_ms=lambda: START_WALL_MS + int(self.world.now_ms),
        )
        self.disk.sync_all()

    @property
    def directory_id(self) -> bytes:
        """The id of the metadata directory on its disk."""
        found = storage_dirs.read_meta_properties(self.config.metadata_log_dir, self.disk)
        return b"" if found is None else bytes(parse_uuid(found["directory.id"]))

    def move(self, port: int) -> None:
        """Let its controller listen on another port from the next start on."""
        texts = {**self.config.texts}
        for key in ("listeners", "advertised.listeners"):
            if key in texts:
                texts[key] = texts[key].replace(f"{self.name}:{self.controller_port}", f"{self.name}:{port}")
        self.config = NodeConfig.parse("".join(f"{key}={value}\n" for key, value in texts.items()))
        self.controller_port = port

    def start(self) -> None:
        """Start a process, in a separate event."""
        assert not self.running, f"{self.name} runs already"
        self._starting = self.world.at(0.0, self._start, host=self.host)

    def start_once(self) -> None:
        """Start a process unless one runs already."""
        if not self.running:
            self.start()

    def _start(self) -> None:
        self._starting = None
        self.starts += 1
        self._stopping = self.gave_up = False
        self.world.note(self.name, f"starts, process {self.starts}")
        self.node = node = Node(
            self.host.env(self.network.host(self.host)),
            self.config,
            host_name=self.name,
            on_fatal=self._gave_up,
            zookeeper=self.zookeeper,
        )
        try:
            node.start()
        except StartRefused as e:
            self._fails(f"start refused: {e}")
            self._end("refused")
            return
        if self.world.seed % LARGE_SHARE == 0 and node.storage is not None:
            node.storage.logs.recovery.inline_bytes_max = node.storage.logs.recovery.inline_names_bytes = 0
            for directory in node.storage.logs.directories:
                directory.pending_index_bytes = 0
        if self.cut_step is not None and node.storage is not None:
            for directory in node.storage.logs.directories:
                directory.cut_step = self.cut_step
        if self.plan_turn_ms is not None and node.controller is not None:
            slow_down_plans(node.controller, node.env.scheduler, self.plan_turn_ms)

    def _gave_up(self, reason: str) -> None:
        self._fails(f"the node has failed: {reason}")
        raise ProcessDied(self.kill)

    def _fails(self, why: str) -> None:
        self.world.note(self.name, why)
        self.gave_up = True
        if self.ailing is None and not self.metadata_rotten:
            self.broken = why

    # -- the ends of a process

    def stop(self) -> None:
        """Send SIGTERM."""
        if self.node is not None and not self._stopping:
            self._stopping = True
            self.world.note(self.name, "begins a clean stop")
            self.world.at(0.0, self.node.shutdown, lambda: self._end("stopped"), host=self.host)

    def kill(self) -> None:
        """Send SIGKILL: the page cache stays."""
        if self.running:
            self._end("killed")

    def die_within(self, operations: int, end: Callable[[], object]) -> None:
        """Call `end` (kill or lose_power) inside an event, after `operations` more disk operations."""
        self.disk.on_death = lambda: ProcessDied(end)
        self.disk.die_after(operations)

    def cancel_death(self) -> None:
        """Cancel `die_within`, and wake a process that hangs."""
        self.disk.on_death = None
        self.host.wake()

    def lose_power(self) -> Durable:
        """Cut the power: unsynced writes are kept, lost or torn. Returns the durable state."""
        durable = self.durable()
        self.disk.lose_power()
        if self.running:
            self._end("power")
        return durable

    def speed_up_disk(self) -> None:
        """Let its disk, and each later disk, take all dirty bytes at once."""
        self.disk_speed = self.disk.memory.speed = None

    def _new_disk(self) -> SimDisk:
        """A new disk; some machines have little memory, or a disk that is slower than the producers."""
        disk = SimDisk(self.world.rng, lambda: START_WALL_MS + int(self.world.now_ms))
        disk.memory.speed = self.disk_speed
        rng = random.Random(f"dirty {self.world.seed} {self.name}")
        if rng.random() < SMALL_MEMORY_SHARE:
            disk.memory.ceiling = rng.choice((24_000, 40_000, 60_000))
            disk.memory.rate = rng.choice((1, 2, 20))
        rng = disk.eviction.rng = random.Random(f"evicted {self.world.seed} {self.name}")
        if rng.random() < EVICTING_SHARE:
            disk.eviction.chance = rng.choice((0.02, 0.1, 0.3))
        return disk

    def replace_disk(self, cluster_id: str) -> None:
        """End the process and replace its disk by another, formatted for the same node id."""
        if self.running:
            self._end("killed")
        self.disk = self.host.disk = self._new_disk()
        self.world.note(self.name, "has an empty disk")
        self.ailing, self.rotten, self.metadata_rotten = None, False, False
        self.format(cluster_id)

    def replace_directory(self, path: str, cluster_id: str) -> None:
        """Replace one of its log directories; no process may run."""
        assert not self.running, f"{self.name} runs"
        self.world.note(self.name, f"has an empty directory {path}")
        self.disk.rmtree(path)
        self.format(cluster_id)

    def _end(self, how: str) -> None:
        self.world.note(self.name, f"process {self.starts} ends: {how}")
        self.host.end_life()
        self.host.paused_until_ms = 0.0
        self.network.crash(self.host)
        self.disk.kill_process()
        if self._starting is not None:
            self._starting.cancel()
        self.node = self._starting = None
        self.on_end(how)

    def has_lost_directories(self) -> bool:
        """Whether the node runs without some of its log directories."""
        storage = None if self.node is None else self.node.storage
        return storage is not None and len(storage.online_directories()) < len(self.config.log_dirs)

    def durable(self) -> Durable:
        """The recovery points in memory, from completed fsyncs. While a log is being closed, more of it may be
        durable."""
        durable = dict.fromkeys(self.partitions(), 0)
        node = self.node
        if node is not None and node.storage is not None:
            logs = node.storage.logs.open_logs()
            durable |= {(log.topic, log.partition): log.recovery_point for log in logs if not log.closed}
        return durable

    def partitions(self) -> list[tuple[str, int]]:
        """The partitions with a log on the disk."""
        return self._partitions_in([path for path in self._log_dirs() if self.disk.is_dir(path)])

    def closed_cleanly(self) -> list[tuple[str, int]]:
        """The partitions with a log in a directory that was marked as closed cleanly.

        A process that is stopped while it starts has opened no log, and leaves the files of a killed process before
        it.
        """
        marks = {path: f"{path}/{names.CLEAN_SHUTDOWN}" for path in self._log_dirs()}
        return self._partitions_in([path for path, mark in marks.items() if self.disk.exists(mark)])

    def _log_dirs(self) -> list[str]:
        return [path for path in self.config.log_dirs if path != self.disk.dead]

    def _partitions_in(self, paths: list[str]) -> list[tuple[str, int]]:
        found = (names.parse_partition_dir(name) for path in paths for name in self.disk.names(path))
        return [partition for partition in found if partition is not None]

    def log_bytes(self, topic: str, partition: int) -> int:
        """Bytes of all segments of a partition on its disk, including segments that wait for deletion."""
        folders = [f"{path}/{names.partition_dir(topic, partition)}" for path in self.config.log_dirs]
        disk = self.disk
        paths = [f"{at}/{name}" for at in folders if disk.is_dir(at) for name in disk.names(at) if names.LOG in name]
        return sum(disk.size(path) for path in paths)

    def blocked(self, duration_ms: float) -> None:
        """Block the process for a while (SIGSTOP, or a disk that hangs under the loop)."""
        self.host.pause(duration_ms)
        # Derived from the time: another draw would change the runs of all seeds.
        self.host.wakes_to_io = bool(int(self.host.paused_until_ms * 1000) & 1)
        self.world.note(self.name, f"is blocked for {duration_ms:.0f} ms")


class SimCluster:
    """Machines formatted for one cluster: n1… combined broker and controller, c1… controllers, b1… brokers.

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
        directories: int = 1,
        dynamic: bool = False,
        release: MetadataVersion | None = None,
        features: Mapping[str, int] | None = None,
    ) -> None:
        """`count` combined machines, plus `controllers` and `brokers`; brokers have `directories` log directories.
        `dynamic`: the log defines the voters, at first the first three controllers (KIP-853). `release`: the initial
        metadata.version, None for the latest. `features`: initial levels of other features."""
        self.world = world
        self.network = SimNetwork(world)
        if world.seed % LARGE_SHARE == 0:
            overrides = {"log.index.interval.bytes": "300", **(overrides or {})}
        ids = {f"n{number}": number for number in range(1, count + 1)}
        ids |= {f"c{number}": FIRST_CONTROLLER_ID + number for number in range(1, controllers + 1)}
        voters = ",".join(f"{number}@{name}:{CONTROLLER_PORT}" for name, number in ids.items())
        ids |= {f"b{number}": number for number in range(1, brokers + 1)}
        self.dynamic = dynamic
        self.security: Security | None = None
        """How clients log in; None: listeners have no SASL."""
        self.voters_stay = False
        """No voter may be removed: another voter is about to leave."""
        auto_join = dynamic and world.rng.random() < 0.5
        self.machines = [
            SimMachine(
                world,
                self.network,
                name,
                _config(name, number, voters, overrides or {}, directories, dynamic, auto_join),
            )
            for name, number in ids.items()
        ]
        self.cluster_id = uuid_text(Uuid(world.rng.randbytes(16)))
        first = [
            InitialVoter(machine.config.node_id, machine.name, CONTROLLER_PORT, Uuid(world.rng.randbytes(16)))
            for machine in (self.controllers[:FIRST_VOTERS] if dynamic else ())
        ]
        for machine in self.machines:
            machine.dynamic = dynamic
            machine.release = release
            machine.features = dict(features or {})
            is_first = any(voter.node_id == machine.config.node_id for voter in first)
            machine.format(self.cluster_id, first if is_first else None)

    @property
    def brokers(self) -> list[SimMachine]:
        """Machines that serve clients."""
        return [machine for machine in self.machines if not machine.name.startswith("c")]

    @property
    def controllers(self) -> list[SimMachine]:
        """Machines that vote."""
        return [machine for machine in self.machines if not machine.name.startswith("b")]

    def client_host(self, name: str) -> SimHost:
        """A host for a client."""
        return SimHost(self.world, name, SimDisk(self.world.rng))

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """Host and port of every broker."""
        return [(machine.name, CLIENT_PORT) for machine in self.brokers]


def _config(
    name: str, number: int, voters: str, overrides: Mapping[str, str], directories: int, dynamic: bool, auto_join: bool
) -> NodeConfig:
    roles = {"n": "broker,controller", "c": "controller", "b": "broker"}[name[0]]
    client, controller = f"PLAINTEXT://{name}:{CLIENT_PORT}", f"CONTROLLER://{name}:{CONTROLLER_PORT}"
    texts = {
        "process.roles": roles,
        "node.id": str(number),
        "controller.quorum.voters": voters,
        "listeners": ",".join([client] * ("broker" in roles) + [controller] * ("controller" in roles)),
        "controller.listener.names": CONTROLLER,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": ",".join([DIR, *(f"{DIR}{n}" for n in range(2, directories + 1) if name[0] != "c")]),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
    }
    if dynamic:
        del texts["controller.quorum.voters"]
        servers = [where.partition("@")[2] for where in voters.split(",")]
        texts["controller.quorum.bootstrap.servers"] = ",".join(servers[:FIRST_VOTERS])
        texts["controller.quorum.auto.join.enable"] = str(auto_join and "controller" in roles).lower()
    if "broker" in roles:
        texts |= {"advertised.listeners": client, "inter.broker.listener.name": "PLAINTEXT"}
    texts |= overrides
    return NodeConfig.parse("".join(f"{key}={value}\n" for key, value in texts.items()))


class StoryLog(logging.Handler):
    """Writes the nodes' log messages into the story, under the name of the machine of the running event."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self.world = world
        self.failures: list[str] = []
        """Messages logged with a traceback."""

    @contextmanager
    def hearing(self, name: str) -> Iterator[None]:
        """Take the lines of the logger `name` into the story, and let nothing else print them."""
        logger = logging.getLogger(name)
        before = (logger.level, logger.propagate)
        logger.addHandler(self)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(self)
            logger.setLevel(before[0])
            logger.propagate = before[1]

    def emit(self, record: logging.LogRecord) -> None:
        """Add the message to the story, and to `failures` if it has a traceback."""
        host = self.world.running
        text = record.getMessage()
        self.world.note(host.name if host is not None else "-", f"{record.levelname.lower()}: {text}")
        if record.exc_info:
            self.failures.append(f"{text}: {record.exc_info[1]!r}")


__all__ = ["CLIENT_PORT", "CONTROLLER", "CONTROLLER_PORT", "DIR", "Durable", "SimCluster", "SimMachine", "StoryLog"]
