"""The planner and real Raft cores: the small world of tests/unit/operator with the controllers of `quorum`.

Fault model, in addition to the small world: the Raft simulator's faults of network and processes between any two steps.
Processes die and machines lose power between look and action. Disks are lost where a story requires it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from kraft_node.raft.membership.quorum import ReplicaKey as Key
from kraft_node.raft.membership.quorum import Voter, VoterSet
from kraft_node.testing.raft.replica import Replica
from kraft_operator.plan.model import observed as seen
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.record import Record
from kraft_operator.plan.model.situation import BEHIND_MAX_MS
from kraft_operator.plan.model.wanted import Wanted
from kraft_operator.plan.planner import plan
from tests.sim.operator.quorum import DYNAMIC, SECOND_US, Quorum
from tests.unit.operator.world import CLUSTER, STOP_TICKS, World, wanted
from tests.unit.operator.world_objects import Pod

GRACE_TICKS = 20
LAG_TICKS = 5
"""A voter counts as complete if its disk has every record that was committed at least this long ago."""
PAUSE_TICKS = BEHIND_MAX_MS // 1000
"""A process that stands still for less is no further behind than the leader allows: no look can tell."""


class SimWorld(World):
    """One cluster under one seed."""

    def __init__(self, wanted: Wanted, seed: int, kind: str) -> None:
        super().__init__(wanted, random.Random(seed))
        self.sim = Quorum(seed, kind)
        self.alive: frozenset[int] = frozenset()
        """Controllers that could vote and commit when the operator looked last."""
        self.ends: list[int] = [0]
        self.seen_quorum: seen.Quorum | None = None
        self.committed: frozenset[int] = frozenset()
        """The committed voters when the operator looked last."""
        self.shape: object = None
        self.struck = False
        """The cluster changed between observation and action: ISRs may be smaller than observed."""
        self.stood_still: dict[int, int] = {}
        """Ticks for which a controller's process has been paused."""
        self.waited: dict[int, int] = {}
        """Passes since a process was asked to stop, by its pod."""

    # What is true

    def leader(self, without: int = -1) -> int | None:
        found = self.sim.leading()
        return found.id if found is not None and found.id != without else None

    def quorum(self, leader: int) -> seen.Quorum:
        found = self.sim.described()
        assert found is not None
        assert found.leader == leader
        return found

    def counts(self, node_id: int) -> bool:
        """Whether a voter runs, knows that it may vote, and has the records on disk that were committed a while ago."""
        found = self.sim.replicas.get(node_id)
        if found is None or found.node is None or found.node.is_amnesiac:
            return False
        if found.is_paused and self.stood_still.get(node_id, 0) >= PAUSE_TICKS:
            return False
        pod = self.pods.get(node_id)
        return pod is not None and pod.stopping is None and found.disk.durable.end >= self.ends[0]

    def observe(self, rng: random.Random | None = None) -> seen.Observed:
        self.alive = frozenset(i for i in self.sim.replicas if self.counts(i))
        self.committed = self.sim.committed()
        observed = super().observe(rng)
        kube = observed.kube.value
        assert kube is not None
        pods = {
            i: replace(pod, ready=pod.ready and (not self.pods[i].has("controller") or self.sim.knows_leader(i)))
            for i, pod in kube.pods.items()
        }
        shape = {i: (id(self.pods[i]), pod.ready) for i, pod in pods.items()}
        if shape != self.shape:
            self.shape, self.pods_changed = shape, 0
        self.seen_quorum = observed.quorum.value
        features = {**self.features, "kraft.version": self.sim.version}
        metadata = observed.metadata.value and replace(observed.metadata.value, features=features)
        return replace(
            observed,
            kube=replace(observed.kube, value=replace(kube, pods=pods)),
            metadata=replace(observed.metadata, value=metadata),
            since_pod_change_ms=self.pods_changed * 1000 + 1,
        )

    def step(self, crash_after: int | None = None, rng: random.Random | None = None, chaos: float = 0.0) -> do.Plan:
        """One pass; a fault may happen between look and action."""
        observed = self.observe(rng)
        self.last = plan(self.record, self.wanted, observed, CLUSTER)
        assert sum(isinstance(step, do.DISRUPTIVE) for step in self.last.steps) <= 1
        assert sum(isinstance(step, do.Remember) for step in self.last.steps) <= 1
        self.sim.run_for(self.rng.randrange(1, SECOND_US // 2))
        self.struck = self.rng.random() < chaos
        if self.struck:
            self.strike()
        for step in self.last.steps[:crash_after]:
            self.apply(step)
        self.tick()
        return self.last

    # What the operator does

    def apply(self, step: do.Step) -> None:
        if isinstance(step, do.AddVoter):
            self.done.append(step)
            self.sim.add_voter(step.node)
        elif isinstance(step, do.RemoveVoter):
            self.done.append(step)
            assert self.seen_quorum is not None
            voters = set(self.seen_quorum.voters) - {step.node}
            assert len(voters & self.alive) > len(voters) // 2, f"{voters} cannot commit without {step.node}"
            self.sim.remove_voter(step.node, self.seen_quorum.voters[step.node].directory)
        elif isinstance(step, do.Recreate | do.Restart | do.Stop):
            # What has died meanwhile no longer exists: the API server reports it, and nothing is done.
            nodes = (step.node,) if isinstance(step, do.Stop) else step.nodes
            if all(i in self.pods and self.pods[i].stopping is None for i in nodes):
                super().apply(step)
        else:
            super().apply(step)

    def remember(self, record: Record) -> None:
        """Remember a permanent stop: it is allowed only once the log cannot make the controller a voter again."""
        before = {node.id for node in self.record.nodes if node.stopped}
        for node in record.nodes:
            if record.dynamic and node.controller and node.stopped and node.id not in before:
                assert node.id not in self.committed, f"{node.id} is stopped for good, and {self.committed} may count"
        super().remember(record)

    def format_voter(self, step: do.Format) -> None:
        node = self.record.node(step.node)
        if node is None or not node.controller or step.volumes:
            return
        if self.sim.is_dynamic and step.joins:
            assert len(self.sim.voters), "there is nothing to join"
        elif step.disk == 0 and step.node in self.record.voters:
            self.sim.begin_with(self.record.voters)

    def set_feature(self, step: do.SetFeature) -> None:
        if step.name == "kraft.version":
            self.sim.raise_version()
        else:
            super().set_feature(step)

    def start(self, node_id: int, aspects: dict[str, str]) -> None:
        super().start(node_id, aspects)
        pod = self.pods[node_id]
        if not pod.has("controller"):
            return
        machine = self.sim.replica(node_id)
        while machine.wipes < pod.disk:
            machine.wipe()
        if not self.sim.is_dynamic and pod.voters:
            machine.configured = VoterSet(Voter(Key(i)) for i in pod.voters)
        if not pod.broken:
            self.sim.at(self.rng.randrange(1, SECOND_US), None, self._run, machine, pod)

    def _run(self, machine: Replica, pod: Pod) -> None:
        """Start the container, if its pod still exists."""
        if self.pods.get(machine.id) is pod and pod.stopping is None and machine.node is None:
            machine.start()

    def take_down(self, nodes: Iterable[int]) -> None:
        nodes = tuple(nodes)
        super().take_down(nodes)
        for node_id in nodes:
            if node_id in self.sim.replicas:
                self.sim.replicas[node_id].stop_cleanly()

    def check_quorum(self, node_id: int, pod: Pod) -> None:
        """Law 3, by the nodes alive when the operator looked: a majority of every voter set in use."""
        if not pod.has("controller") or node_id not in self.alive:
            return
        if self.record.dynamic and self.seen_quorum is not None and self.committed:
            voters = set(self.seen_quorum.voters)
            assert voters == self.committed, f"{node_id} goes down, and of {voters} only {self.committed} is committed"
        pause = any("MetadataPause" in one.accept for one in self.wanted.replacements)
        leader = self.seen_quorum.leader if self.seen_quorum is not None else -1
        sets = {tuple(self.sim.replicas[i].node.voters.ids) for i in self.alive - {node_id} if self._runs(i)}
        former = node_id == leader and not self.record.dynamic and node_id not in self.record.voters
        for voters in sets:
            if pause or len(voters) <= 2 or node_id not in voters or (former and voters != self.record.voters):
                continue
            left = self.alive & {*voters} - {node_id}
            assert len(left) > len(voters) // 2, f"{node_id} goes down: of {voters} only {sorted(left)} are left"

    def _runs(self, node_id: int) -> bool:
        return self.sim.replicas[node_id].node is not None

    # Events

    def kill(self, node_id: int) -> None:
        super().kill(node_id)
        machine = self.sim.replicas.get(node_id)
        if machine is not None:
            if self.rng.random() < 0.5:
                machine.die(loud=True)
            else:
                machine.lose_power()

    def lose_host(self, node_id: int) -> None:
        """Lose pod and volumes for good; an empty disk comes with the next number."""
        super().lose_host(node_id)
        if node_id in self.sim.replicas:
            self.sim.replicas[node_id].disk.bad = True

    def strike(self) -> None:
        """Cause a fault of a process or the network; no disk is lost."""
        dice = self.rng.random()
        if dice < 0.4 and self.pods:
            self.kill(self.rng.choice(sorted(self.pods)))
        elif dice < 0.6:
            self.sim.faults.bad_network()
        elif dice < 0.75 and self.sim.replicas:
            self.sim.network.split({self.rng.choice(sorted(self.sim.replicas))})
        elif dice < 0.9:
            self.sim.network.heal()
        else:
            self.sim.faults.pause()

    def heal(self) -> None:
        """End all faults."""
        self.sim.network.heal()
        for machine in self.sim.replicas.values():
            self.sim.thaw(machine, machine.life)

    def tick(self) -> None:
        for node_id, pod in self.pods.items():
            machine = self.sim.replicas.get(node_id)
            if pod.stopping is not None and machine is not None and machine.node is not None:
                since = self.waited[id(pod)] = self.waited.get(id(pod), 0) + 1
                if since < GRACE_TICKS:
                    pod.stopping = min(pod.stopping, STOP_TICKS - 1)
                else:
                    machine.die(loud=True)
            elif self._ended(pod, machine) and self.rng.random() < 0.5:
                self._run(self.sim.replicas[node_id], pod)  # the kubelet starts its container again
        super().tick()
        self.sim.run_for(SECOND_US)
        self.ends = [*self.ends, self.sim.laws.end][-LAG_TICKS:]
        still = (i for i, machine in self.sim.replicas.items() if machine.is_paused)
        self.stood_still = {i: self.stood_still.get(i, 0) + 1 for i in still}

    @staticmethod
    def _ended(pod: Pod, machine: Replica | None) -> bool:
        """Whether its process should run and does not."""
        if machine is None or machine.node is not None or machine.disk.bad:
            return False
        return pod.stopping is None and not pod.broken and pod.age > 2

    def excused(self, topic: str) -> bool:
        return self.struck or super().excused(topic)

    def agreed(self) -> set[int]:
        """The voters with which every running controller counts; they must be equal."""
        sets = {frozenset(one.node.voters.ids) for one in self.sim.replicas.values() if one.node is not None}
        assert len(sets) == 1, sets
        return set(next(iter(sets)))


def made(seed: int, kind: str, **changes: object) -> SimWorld:
    """A finished cluster with a topic."""
    world = SimWorld(wanted(static_quorum=kind != DYNAMIC, **changes), seed, kind)
    world.settle()
    world.make_topics()
    world.settle()
    world.done.clear()
    return world
