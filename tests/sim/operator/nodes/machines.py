"""What runs the operator's objects: the machines of a cluster of pods, and the kubelets that start nodes on them.

A pod's process is a whole node (`kraft_node.testing.machine`), with the file that its ConfigMap holds and the options
of its container. A format job formats the disk of the claim that it mounts, with the options of its own command. So the
operator's real manifests are what is run. Pods keep their names, and so do the hosts of the network.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any, Final

from kraft_node.base.config import NodeConfig
from kraft_node.cli import storage
from kraft_node.cli.storage_format import find_metadata_version, parse_voters
from kraft_node.testing.client import Security
from kraft_node.testing.disk import SimDisk
from kraft_node.testing.machine import SimCluster, SimMachine
from kraft_node.testing.net import SimNetwork
from kraft_node.testing.world import World
from tests.sim.operator.cluster import KEY
from tests.unit.operator.fake_kubernetes import Object

CONTROLLER_PORT: Final = 9090
GRACE_MS: Final = 60_000.0
"""From a pod's deletion to SIGKILL."""
BACK_OFF_MS: Final = (100.0, 4_000.0, 20_000.0, 60_000.0)
"""Pauses before a kubelet starts a container again."""

REPORTED_MAX_MS: Final = 1_200.0
"""Until a kubelet has reported a change of a container."""

Key = tuple[str, str, str]


def host_of(node_id: int) -> str:
    """The name by which other nodes reach a node."""
    return f"sample-{node_id}.sample-nodes.{KEY.namespace}.svc"


def node_of(one: Object) -> int:
    """The node that an object belongs to."""
    return int(one["metadata"]["labels"]["kraftcluster.io/node"])


class PodMachines(SimCluster):
    """The machines of a cluster that the operator makes."""

    def __init__(self, world: World, cluster_id: str, *, dynamic: bool) -> None:  # machines come with their jobs
        self.world = world
        self.network = SimNetwork(world)
        self.cluster_id = cluster_id
        self.dynamic = dynamic
        self.security: Security | None = None
        self.voters_stay = False
        self.machines: list[SimMachine] = []
        self.on_new: Callable[[SimMachine], None] = lambda _machine: None

    @property
    def brokers(self) -> list[SimMachine]:
        """Machines that serve clients."""
        return [machine for machine in self.machines if machine.config.is_broker]

    @property
    def controllers(self) -> list[SimMachine]:
        """Machines that vote."""
        return [machine for machine in self.machines if machine.config.is_controller]

    def find(self, node_id: int) -> SimMachine | None:
        """The machine of a node."""
        return next((machine for machine in self.machines if machine.config.node_id == node_id), None)

    def machine(self, node_id: int, config: NodeConfig) -> SimMachine:
        """The machine of a node, with `config` for its next process."""
        machine = self.find(node_id)
        if machine is None:
            machine = SimMachine(self.world, self.network, host_of(node_id), config)
            machine.controller_port = CONTROLLER_PORT
            machine.speed_up_disk()
            self.machines = sorted([*self.machines, machine], key=lambda one: one.config.node_id)
            self.on_new(machine)
        machine.config = config
        return machine


class Kubelets:
    """Start and stop nodes as the objects of an API server say, and report on pods."""

    def __init__(self, world: World, machines: PodMachines, objects: dict[Key, Object], report: Any) -> None:
        """`report(pod, runs=…, ready=…, restarts=…)` writes a pod's status."""
        self.world = world
        self.rng = Random(f"kubelets of {world.seed}")
        self.machines = machines
        self.objects = objects
        self.report = report
        self.disks: dict[str, SimDisk] = {}
        """By the uid of their claim."""
        self._noted: dict[str, dict[str, Any]] = {}
        """What a kubelet remembers of a pod or a job, by its uid."""

    def work(self) -> None:
        """One look at all objects."""
        for key, one in sorted(self.objects.items()):
            if key[0] == "Job" and "status" not in one:
                self._job(one)
            elif key[0] == "PersistentVolumeClaim":
                one.setdefault("status", {"phase": "Bound"})
            elif key[0] == "Pod":
                self._pod(key, one)

    def _notes(self, one: Object) -> dict[str, Any]:
        return self._noted.setdefault(one["metadata"]["uid"], {})

    def _due(self, one: Object, name: str, *bounds: float) -> bool:
        """Whether a random time since the first question for it is over."""
        due = self._notes(one).setdefault(name, self.world.now_ms + self.rng.uniform(*bounds))
        return bool(self.world.now_ms >= due)

    # Jobs

    def _job(self, one: Object) -> None:
        if not self._due(one, "due", 300.0, 2_000.0):
            return
        spec = one["spec"]["template"]["spec"]
        config = self._config(spec)
        if config is None:
            return
        (container,) = spec["containers"]
        args = storage._parser().parse_args(storage._joined(container["command"][1:]))
        machine = self.machines.machine(node_of(one), config)
        assert not machine.running, f"{machine.name} is formatted while it runs"
        self._mount(machine, spec)
        machine.dynamic = not config.voters
        if args.release_version is not None:
            machine.release = find_metadata_version(args.release_version)
        voters = None if args.initial_controllers is None else parse_voters(args.initial_controllers)
        machine.format(args.cluster_id, voters)
        one["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}

    def _config(self, spec: Object) -> NodeConfig | None:
        """The configuration of a pod: its file, with the options of its container. None while its ConfigMap is
        missing."""
        for volume in spec["volumes"]:
            if "configMap" in volume:
                found = self.objects.get(("ConfigMap", KEY.namespace, volume["configMap"]["name"]))
                if found is None:
                    return None
                text = found["data"]["server.properties"]
                command = spec["containers"][0]["command"]
                options = [word for before, word in pairwise(command) if before == "--override"]
                keys = {option.partition("=")[0] for option in options}
                kept = [line for line in text.splitlines() if line.partition("=")[0] not in keys]
                return NodeConfig.parse("\n".join([*kept, *options]) + "\n")
        raise AssertionError("a pod without its node's file")

    def _mount(self, machine: SimMachine, spec: Object) -> None:
        """Give the machine the disk of the claim that a pod mounts."""
        (claim,) = [
            one["persistentVolumeClaim"]["claimName"] for one in spec["volumes"] if "persistentVolumeClaim" in one
        ]
        uid = self.objects["PersistentVolumeClaim", KEY.namespace, claim]["metadata"]["uid"]
        disk = self.disks.get(uid)
        if disk is None:
            disk = self.disks[uid] = machine.disk if machine.disk not in self.disks.values() else machine._new_disk()
        if machine.disk is not disk:
            self.world.note(machine.name, f"has the disk of {claim}")
        machine.disk = machine.host.disk = disk

    # Pods

    def _pod(self, key: Key, one: Object) -> None:
        node_id = node_of(one)
        if "deletionTimestamp" in one["metadata"]:
            self._end(key, one)
            return
        machine = self.machines.find(node_id)
        if not self._due(one, "starts", 200.0, 2_000.0):
            return
        if machine is None or not machine.running:
            self._start(one, node_id)
        machine = self.machines.find(node_id)
        ready = machine is not None and machine.serving and machine.host.paused_until_ms <= self.world.now_ms
        notes = self._notes(one)
        seen = (machine is not None and machine.running, ready)
        if notes.get("reported") != seen and self._due(one, "probe", 0.0, REPORTED_MAX_MS):
            notes["reported"] = seen
            del notes["probe"]
            self.report(one, runs=seen[0], ready=ready, restarts=max(0, notes.get("begun", 1) - 1))

    def _start(self, one: Object, node_id: int) -> None:
        """Start the container: for the first time, or again after a pause."""
        config = self._config(one["spec"])
        if config is None:
            return  # stuck in ContainerCreating
        notes = self._notes(one)
        if "begun" in notes:
            again = notes.setdefault("again", self.world.now_ms + self.rng.choice(BACK_OFF_MS))
            if self.world.now_ms < again:
                return
            del notes["again"]
        notes["begun"] = notes.get("begun", 0) + 1
        machine = self.machines.machine(node_id, config)
        self._mount(machine, one["spec"])
        machine.start()

    def _end(self, key: Key, one: Object) -> None:
        """Stop the process of a pod that is deleted; the pod goes when the process has ended."""
        machine = self.machines.find(node_of(one))
        since = self._notes(one).setdefault("stops", self.world.now_ms)
        if machine is not None and machine.running:
            if machine.node is None:
                machine.kill()  # it was about to start
            elif self.world.now_ms - since > GRACE_MS:
                self.world.note(machine.name, "does not stop within its grace period")
                machine.kill()
            else:
                machine.stop()
            return
        if self._due(one, "goes", 100.0, 1_500.0):
            del self.objects[key]

    def forget_left(self) -> None:
        """Drop the machines without a pod: their nodes have left for good."""
        kept = {node_of(one) for (kind, *_), one in self.objects.items() if kind == "Pod"}
        self.machines.machines = [machine for machine in self.machines.machines if machine.config.node_id in kept]
