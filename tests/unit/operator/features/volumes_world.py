"""A world whose brokers have log directories, with their content, moves and cordons.

Laws, asserted at every step: a pod starts only with every volume that has replicas. A claim is deleted only if it is
empty and no pod mounts it. A copy goes only to a directory with room and without a cordon.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kraft_operator.plan.model import observed as seen
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.situation import KEEPS
from kraft_operator.plan.model.wanted import Pool, Wanted
from kraft_operator.plan.nodes.volumes import brokers_to_query
from tests.unit.operator.world import World

COPY_TICKS = 2
Key = tuple[str, int]


def pools(*volumes: str, delete: bool = False, image: str = "a") -> Wanted:
    """Three controllers with one volume; three brokers with these volumes."""
    sizes = dict.fromkeys(volumes, 100)
    brokers = {"image": image, "config": ",".join(sorted(volumes))}
    return Wanted(
        pools=(
            Pool("controllers", True, False, 3, 1, {"image": image, "config": "c"}),
            Pool("brokers", False, True, 3, 101, brokers, sizes, delete),
        )
    )


@dataclass
class VolumesWorld(World):
    logs: dict[int, dict[str, dict[Key, int]]] = field(default_factory=dict)
    """Bytes by broker, volume and replica."""
    copies: dict[int, dict[Key, tuple[str, int]]] = field(default_factory=dict)
    """Volume and ticks of copies under way, by broker."""
    cordoned: dict[int, set[str]] = field(default_factory=dict)
    marks: dict[tuple[int, int], dict[str, str]] = field(default_factory=dict)
    mounted: dict[int, set[str]] = field(default_factory=dict)
    """What pods mount."""
    room: int = 1000
    """Bytes of each volume."""
    silent: set[int] = field(default_factory=set)
    """Brokers that do not tell what is in their directories."""
    broken: set[tuple[int, str]] = field(default_factory=set)
    """Directories that have failed."""
    refuses: bool = False
    """Pods are not deleted after the marks of their restart were written."""

    def observe(self, rng: random.Random | None = None) -> seen.Observed:
        found = super().observe(rng)
        kube = found.kube.value
        assert kube is not None
        pods = {i: replace(pod, volumes=frozenset(self.mounted.get(i, ()))) for i, pod in kube.pods.items()}
        volumes = {key: replace(one, marks=dict(self.marks.get(key, {}))) for key, one in kube.volumes.items()}
        kube = replace(kube, pods=pods, volumes=volumes)
        asked = brokers_to_query(self.record, self.wanted, kube)
        disks = {}
        for node_id in asked:
            pod = pods.get(node_id)
            if pod is not None and pod.ready and node_id not in self.silent:
                age = rng.choice((0, 0, 60_000)) if rng is not None else 0
                disks[node_id] = seen.Aged(self._disks(node_id), age)
        return replace(found, kube=replace(found.kube, value=kube), disks=disks)

    def _disks(self, node_id: int) -> seen.Disks:
        directories = {}
        for name in self.mounted[node_id]:
            logs = self.logs.get(node_id, {}).get(name, {})
            coming = {key for key, (target, _) in self.copies.get(node_id, {}).items() if target == name}
            failed = (node_id, name) in self.broken
            directories[name] = seen.Directory(
                f"/{name}",
                {} if failed else dict(logs),
                frozenset(coming),
                56 if failed else 0,
                self.room - sum(logs.values()),
            )
        return seen.Disks(directories, frozenset(self.cordoned.get(node_id, ())))

    def apply(self, step: do.Step) -> None:
        if isinstance(step, do.MarkVolume):
            self.done.append(step)
            for name in step.volumes:
                mine = self.marks.setdefault((step.node, step.disk), {})
                if step.mark:
                    mine[name] = step.mark
                else:
                    mine.pop(name, None)
        elif isinstance(step, do.Cordon):
            self.done.append(step)
            there = {f"/{name}" for name in self.mounted[step.node]}
            assert set(step.paths) <= there, "the broker refuses a path that it has not got"
            self.cordoned[step.node] = set(step.paths)
        elif isinstance(step, do.MoveLogs):
            self.done.append(step)
            for key, path in step.moves.items():
                assert path not in self.cordoned.get(step.node, ()), "the broker refuses a cordoned directory"
                self.copies.setdefault(step.node, {})[key] = (path.removeprefix("/"), 0)
        elif isinstance(step, do.Restart):
            for one in step.marks:
                self.apply(one)
            if not self.refuses:
                super().apply(step)
        elif isinstance(step, do.DeleteVolume) and step.volumes:
            self.done.append(step)
            for name in step.volumes:
                assert not self.logs.get(step.node, {}).get(name), f"{name} of {step.node} has replicas"
                assert name not in self.mounted.get(step.node, ()), "a pod mounts it"
                for one in (self.disks, self.sizes, self.marks):
                    one[step.node, step.disk].pop(name, None)  # type: ignore[attr-defined]
        else:
            super().apply(step)

    def start(self, node_id: int, aspects: dict[str, str]) -> None:
        keeps = {name for name in aspects.get(KEEPS, "").split(",") if name}
        self.mounted[node_id] = {*self.pool_of(node_id).size_bytes, *keeps}
        full = {name for name, logs in self.logs.get(node_id, {}).items() if logs}
        assert full <= self.mounted[node_id], f"{node_id} starts without {full - self.mounted[node_id]}"
        super().start(node_id, aspects)

    def take_down(self, nodes: Iterable[int]) -> None:
        nodes = tuple(nodes)
        super().take_down(nodes)
        for node_id in nodes:
            self.copies.pop(node_id, None)

    def kill(self, node_id: int) -> None:
        super().kill(node_id)
        self.copies.pop(node_id, None)

    def tick(self) -> None:
        super().tick()
        for node_id, copies in self.copies.items():
            for key, (target, ticks) in list(copies.items()):
                home = next((name for name, logs in self.logs[node_id].items() if key in logs), None)
                if home is None or home == target:
                    del copies[key]
                elif ticks < COPY_TICKS:
                    copies[key] = (target, ticks + 1)
                else:
                    self.logs[node_id].setdefault(target, {})[key] = self.logs[node_id][home].pop(key)
                    del copies[key]

    def place(self, node_id: int, key: Key, size: int, rng: random.Random) -> None:
        """Place a new replica in a directory that accepts new ones."""
        pod = self.pods.get(node_id)
        if pod is None or not pod.ready or pod.stopping is not None:
            return
        mounted = sorted(self.mounted[node_id])
        able = [name for name in mounted if f"/{name}" not in self.cordoned.get(node_id, ())] or mounted
        self.logs.setdefault(node_id, {}).setdefault(rng.choice(able), {})[key] = size

    def fill(self, *volumes: str, size: int = 10) -> None:
        """Put two replicas in each of these volumes of each broker."""
        for node_id in (101, 102, 103):
            for number, name in enumerate(volumes * 2):
                self.logs.setdefault(node_id, {}).setdefault(name, {})["t", number] = size


def made(*volumes: str, delete: bool = False) -> VolumesWorld:
    """A finished cluster with replicas in all volumes."""
    world = VolumesWorld(pools(*volumes, delete=delete))
    world.settle()
    world.make_topics()
    world.fill(*volumes)
    world.settle()
    world.done.clear()
    return world
