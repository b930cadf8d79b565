"""The API server beside simulated nodes, and the laws that it checks when the operator writes.

The laws judge by the true state of nodes and metadata, not by the operator's view. What happened within the last
GRACE_S is excused, because the operator cannot look and act at the same moment.

- `isr`      a broker is stopped only if every partition that it is in sync with keeps min.insync.replicas up
- `copy`     a disk is given up only if another copy of each of its partitions is in sync and up
- `quorum`   a controller is stopped only if a majority of the voters is up without it
- `once`     a node gets at most as many disks as replacements were requested
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import NamedTuple

from kraft_node.testing.checker import Checker
from kraft_node.testing.world import World
from tests.sim.operator.cluster import GRACE_S, NEED, SimApi
from tests.sim.operator.nodes.loop import ProcessLoop
from tests.sim.operator.nodes.machines import REPORTED_MAX_MS, Kubelets, PodMachines, host_of, node_of
from tests.unit.operator.fake_kubernetes import Object


class _Moment(NamedTuple):
    at_ms: float
    up: frozenset[int]
    isrs: dict[str, frozenset[int]]
    voters: frozenset[int]


class Truth:
    """The state of the nodes at this moment, and as far back as the laws excuse."""

    def __init__(self, machines: PodMachines, checker: Checker) -> None:
        self.machines = machines
        self.checker = checker
        self.world = machines.world
        self._moments: list[_Moment] = []

    def note(self) -> None:
        """Remember this moment."""
        now = self.world.now_ms
        self._moments = [one for one in self._moments if one.at_ms >= now - GRACE_S * 1000]
        self._moments.append(self._moment())

    def _moment(self) -> _Moment:
        now = self.world.now_ms
        running = [one for one in self.machines.machines if one.node is not None]
        up = frozenset(one.config.node_id for one in running if one.serving and one.host.paused_until_ms <= now)
        rafts = [one.node.raft for one in running if one.node is not None and one.node.raft is not None]
        newest = max((raft.image for raft in rafts), key=lambda image: image.offset, default=None)
        topics = () if newest is None else newest.topics
        isrs = {f"{one.name}-{number}": frozenset(state.isr) for one in topics for number, state in one.partitions()}
        started = [raft for raft in rafts if raft.started]
        last = max(started, key=lambda raft: raft.node.epoch, default=None)
        voters = frozenset(voter.key.id for voter in last.voters) if last is not None else frozenset()
        return _Moment(now, up, isrs, voters)

    def _recent(self) -> list[_Moment]:
        return [*self._moments, self._moment()]

    def check_stop(self, node_id: int) -> None:
        """Laws `isr` and `quorum`, at the moment when the API server accepts a deletion from the operator."""
        recent = self._recent()
        told_ms = self.world.now_ms - REPORTED_MAX_MS
        if not all(node_id in one.up for one in recent if one.at_ms >= told_ms):
            return  # it is down, or no kubelet has reported yet that its container has started again
        up = frozenset().union(*(one.up for one in recent))
        voters = recent[-1].voters
        left = up & voters - {node_id}
        if node_id in voters and len(voters) > 2 and len(left) <= len(voters) // 2:
            self._broken("quorum", f"{node_id} is stopped, of {sorted(voters)} only {sorted(left)} are up")
        # One moment's ISRs must allow the stop for all partitions: a view of the metadata is of one moment.
        risks = [self._at_risk(node_id, one.isrs, up) for one in reversed(recent)]
        if None not in risks:
            self._broken("isr", f"{node_id} is stopped, {risks[0]}")

    @staticmethod
    def _at_risk(node_id: int, isrs: dict[str, frozenset[int]], up: frozenset[int]) -> str | None:
        for name, isr in isrs.items():
            left = isr & up - {node_id}
            if node_id in isr and len(left) < NEED:
                return f"{name} has {sorted(left)} of the ISR {sorted(isr)}"
        return None

    def check_swap(self, node_id: int) -> None:
        """Law `copy`, when a record gives up a disk."""
        recent = self._recent()
        up = frozenset().union(*(one.up for one in recent))
        for name, isr in recent[-1].isrs.items():
            counting = isr.union(*(one.isrs.get(name, frozenset()) for one in recent)) & up
            if node_id in isr and not counting - {node_id}:
                self._broken("copy", f"the last copy of {name} is on {node_id}")

    def _broken(self, law: str, what: str) -> None:
        self.checker.broken(law, "operator", what)


class NodesApi(SimApi):
    """The API server of a cluster whose pods are whole nodes."""

    def __init__(self, world: World, machines: PodMachines, checker: Checker) -> None:
        self.world = world
        self.truth = Truth(machines, checker)
        super().__init__(self, Random(f"api of {world.seed}"), self.truth)
        self.kubelets = Kubelets(world, machines, self.objects, self.told)

    def time(self) -> float:
        """Seconds of the world."""
        return self.world.now_ms / 1000

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(loop, ProcessLoop) and loop.dead:
            raise asyncio.CancelledError
        await super()._wait()
        if isinstance(loop, ProcessLoop) and loop.dead:
            raise asyncio.CancelledError

    def work_on(self) -> None:
        """The garbage collector, and the kubelets."""
        owners = {one["metadata"]["uid"] for (kind, *_), one in self.objects.items() if kind == "KRaftCluster"}
        for key, one in list(self.objects.items()):
            owned = {owner["uid"] for owner in one["metadata"].get("ownerReferences", ())}
            if owned and not owned & owners:
                if key[0] == "Pod":
                    one["metadata"].setdefault("deletionTimestamp", "now")
                else:
                    del self.objects[key]
        self.kubelets.work()
        self.truth.note()

    def told(self, pod: Object, *, runs: bool, ready: bool, restarts: int) -> None:
        """A kubelet's report: the node's name is its address, which outlives the pod in this world."""
        self.reported(pod, ready=ready, restarts=restarts)
        pod["status"]["podIP"] = host_of(node_of(pod))
        if runs:
            pod["status"]["containerStatuses"][0]["state"] = {"running": {}}

    def crash(self, node_id: int) -> None:
        """Kill a node's process."""
        machine = self.truth.machines.find(node_id)
        if machine is not None:
            machine.kill()
