"""A small world that carries out plans slowly, and checks every step against the laws.

Fault model: pods die at any time. The operator crashes between any two writes and forgets everything but the record.
Views of quorum and metadata may be missing or stale. Not modelled: two operators at once (the Lease prevents them), and
messages of the Raft core (its own simulator has them). A controller counts once its pod has been ready for some ticks.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from kraft_operator.plan.model import observed as seen
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.record import Record
from kraft_operator.plan.model.wanted import Pool, Wanted
from kraft_operator.plan.planner import plan
from tests.unit.operator.world_objects import START_TICKS, Partition, Pod

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
TICK_MS = 1_000
CATCH_UP_TICKS = 2
STOP_TICKS = 1
FORMAT_TICKS = 1
MOVE_TICKS = 2


def _replica(node_id: int, disk: int, *, current: bool) -> seen.Replica:
    return seen.Replica(0, 0 if current else 60_000, f"{node_id}/{disk}".encode())


def wanted(controllers: int = 3, brokers: int = 3, image: str = "a", **changes: object) -> Wanted:
    """The resource of the sample cluster."""
    aspects = {"image": image, "config": "c"}
    pools = (
        Pool("controllers", True, False, controllers, 1, aspects),
        Pool("brokers", False, True, brokers, 101, aspects),
    )
    return replace(Wanted(pools=pools), **changes)  # type: ignore[arg-type]


@dataclass
class World:
    wanted: Wanted
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    record: Record = field(default_factory=Record)
    pods: dict[int, Pod] = field(default_factory=dict)
    volumes: dict[tuple[int, int], str] = field(default_factory=dict)
    jobs: dict[tuple[int, int], int] = field(default_factory=dict)
    """Ticks that they have run; less than 0 where none of them can."""
    job_aspects: dict[tuple[int, int], dict[str, str]] = field(default_factory=dict)
    disks: dict[tuple[int, int], dict[str, bool]] = field(default_factory=dict)
    """Where pools name volumes: each with whether it is formatted."""
    sizes: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)
    replaced: dict[tuple[int, int], frozenset[str]] = field(default_factory=dict)
    """Which replacements volumes tell to be done."""
    formats: dict[tuple[int, int], int] = field(default_factory=dict)
    racks: dict[int, str] = field(default_factory=dict)
    """Of the machines that pods land on, by node id."""
    volume_racks: dict[int, str] = field(default_factory=dict)
    addresses: dict[int, str] = field(default_factory=dict)
    """Outside, by node id."""
    owned: set[int] = field(default_factory=set)
    """Nodes that lose their volumes when they leave, by the last settings of their pools."""
    started: bool = False
    registered: dict[int, str] = field(default_factory=dict)
    """Brokers with their racks."""
    partitions: dict[tuple[str, int], Partition] = field(default_factory=dict)
    dynamic: dict[str, str] = field(default_factory=dict)
    bad_images: set[str] = field(default_factory=set)
    given: dict[int, str] = field(default_factory=dict)
    """Every id ever given, with its pool."""
    done: list[do.Step] = field(default_factory=list)
    last: do.Plan = field(default_factory=do.Plan)
    features: dict[str, int] = field(default_factory=lambda: {"metadata.version": 29, "kraft.version": 0})
    throttled: set[str] = field(default_factory=set)
    log_voters: dict[int, int] | None = None
    """Of a dynamic quorum: voter -> the disk by which it is known."""
    pods_changed: int = 1000
    led: int | None = None
    uncommitted: bool = False
    """Whether the voters in the log may be lost again."""
    registered_at: dict[int, str] = field(default_factory=dict)
    """Where the log has a voter, if it has moved since."""

    # The true state

    def counts(self, node_id: int) -> bool:
        """Whether a controller is up and has everything."""
        pod = self.pods.get(node_id)
        return pod is not None and pod.ready and pod.has("controller") and pod.age >= START_TICKS + CATCH_UP_TICKS

    def leader(self, without: int = -1) -> int | None:
        """The leader: the former one if it still can lead, else the first node that can."""
        able = [i for i in sorted(self.pods) if i != without and self._can_lead(i, without)]
        leads = self.led if self.led in able else next(iter(able), None)
        if without == -1:
            self.led = leads
        return leads

    def _can_lead(self, node_id: int, without: int) -> bool:
        """Whether a majority of its own voters would follow it: they have all records and know it as a voter."""
        if not self.counts(node_id):
            return False
        if self.log_voters is not None:
            able = sum(i != without and self.votes_in_log(i) for i in self.log_voters)
            return self.votes_in_log(node_id) and able > len(self.log_voters) // 2
        voters = self.pods[node_id].voters
        return (
            sum(v != without and self.counts(v) and node_id in self.pods[v].voters for v in voters) > len(voters) // 2
        )

    def votes_in_log(self, node_id: int) -> bool:
        """Whether it is the voter that the log knows; a voter belongs to one disk."""
        assert self.log_voters is not None
        return self.counts(node_id) and self.log_voters.get(node_id) == self.pods[node_id].disk

    def quorum(self, leader: int) -> seen.Quorum:
        """The quorum as the leader reports it."""
        if self.log_voters is not None:
            known = self.log_voters.items()
            voters = {
                i: replace(
                    _replica(i, disk, current=self.votes_in_log(i)), address=self.registered_at.get(i, f"{i}.svc:9090")
                )
                for i, disk in known
            }
            others = {
                i: _replica(i, pod.disk, current=True)
                for i, pod in self.pods.items()
                if self.counts(i) and self.log_voters.get(i) != pod.disk
            }
            return seen.Quorum(leader, 1, voters, others, changing=self.uncommitted)
        # A node started with voters that lack the leader does not follow it, as with real nodes.
        follows = {i: self.counts(i) and leader in pod.voters for i, pod in self.pods.items()}
        replicas = {i: _replica(i, 0, current=follows[i]) for i in self.pods}
        voters = {i: replicas.get(i, seen.Replica(99, 60_000)) for i in self.pods[leader].voters}
        others = {i: r for i, r in replicas.items() if i not in voters and self.counts(i)}
        return seen.Quorum(leader, 1, voters, others)

    def observe(self, rng: random.Random | None = None) -> seen.Observed:
        """The views; with `rng` some are missing or stale."""
        pods = {
            i: seen.Pod(
                running=not pod.broken,
                ready=pod.ready,
                aspects=pod.aspects,
                terminating=pod.stopping is not None,
                rack=self.racks.get(i, ""),
                message="ErrImagePull" if pod.broken else "",
                missing=pod.missing,
                addresses=frozenset({f"{i}.svc:9090"}),
            )
            for i, pod in self.pods.items()
        }
        for node in self.record.nodes:
            pool = self.wanted.pool(node.pool)
            if pool is not None:
                self.owned = self.owned | {node.id} if pool.delete_volumes else self.owned - {node.id}
        jobs = {
            key: seen.Job(
                "done" if ticks >= FORMAT_TICKS else "running",
                "ErrImagePull" if ticks < 0 else "",
                self.formats.get(key, 0),
                self.job_aspects[key],
                0 <= ticks < FORMAT_TICKS,
            )
            for key, ticks in self.jobs.items()
        }
        leader = self.leader()
        quorum = None if leader is None else self.quorum(leader)
        ages = [0, 0, 0]
        if rng is not None:
            ages = [rng.choice((0, 0, 0, 60_000)) for _ in range(3)]
        return seen.Observed(
            seen.Aged(seen.Kube(pods, self.seen_volumes(), jobs, dict(self.addresses)), ages[0]),
            seen.Aged(quorum, ages[1]),
            seen.Aged(self.metadata(), ages[2]),
            since_pod_change_ms=self.pods_changed * TICK_MS + 1,
        )

    def seen_volumes(self) -> dict[tuple[int, int], seen.Volume]:
        """The volumes of each disk."""
        return {
            key: seen.Volume(
                owner,
                dict(self.sizes.get(key, {})),
                frozenset(name for name, mine in self.disks.get(key, {}).items() if owner and not mine),
                self.volume_racks.get(key[0], ""),
                key[0] in self.owned,
                self.replaced.get(key, frozenset()),
            )
            for key, owner in self.volumes.items()
        }

    def metadata(self) -> seen.Metadata | None:
        """What a broker answers; None if all are down."""
        brokers = {
            i: seen.Broker(not (i in self.pods and self.pods[i].ready), rack) for i, rack in self.registered.items()
        }
        if all(broker.fenced for broker in brokers.values()):
            return None
        partitions = tuple(
            seen.Partition(t, n, p.replicas, frozenset(p.isr), p.min_isr, bool(p.target))
            for (t, n), p in self.partitions.items()
        )
        supported = {"metadata.version": 30, "kraft.version": 1}
        return seen.Metadata(
            brokers, partitions, dict(self.dynamic), dict(self.features), supported, frozenset(self.throttled)
        )

    # Steps

    def step(self, crash_after: int | None = None, rng: random.Random | None = None) -> do.Plan:
        """Run a pass of the operator, which may die after that many writes; then a tick."""
        observed = self.observe(rng)
        self.last = plan(self.record, self.wanted, observed, CLUSTER)
        disruptive = [step for step in self.last.steps if isinstance(step, do.DISRUPTIVE)]
        assert len(disruptive) <= 1, disruptive
        assert sum(isinstance(step, do.Remember) for step in self.last.steps) <= 1, self.last.steps
        for step in self.last.steps[:crash_after]:
            self.apply(step)
        self.tick()
        return self.last

    def apply(self, step: do.Step) -> None:
        self.done.append(step)
        if isinstance(step, do.Remember):
            self.remember(step.record)
        elif isinstance(step, do.CreateVolume):
            key = (step.node, step.disk)
            self.volumes.setdefault(key, "")
            for name, size in self.pool_of(step.node).size_bytes.items():
                self.disks.setdefault(key, {}).setdefault(name, False)
                self.sizes.setdefault(key, {}).setdefault(name, size)
        elif isinstance(step, do.GrowVolume):
            self.sizes[step.node, step.disk].update(step.size_bytes)
        elif isinstance(step, do.Format):
            key = (step.node, step.disk)
            assert self.volumes[key] == "" or (step.volumes and step.node not in self.pods), "formatted twice"
            assert key not in self.jobs or step.volumes, "two jobs format one volume"
            self.jobs[key], self.formats[key] = 0, len(self.disks.get(key, ()))
            self.job_aspects[key] = dict(step.aspects)
            if step.aspects["image"] in self.bad_images:
                self.jobs[key] = -1
            self.format_voter(step)
        elif isinstance(step, do.DropJob):
            node = self.record.node(step.node)
            assert node is not None
            assert self.jobs.pop((step.node, step.disk)) < 0 or node.stopped, "something runs in it"
        elif isinstance(step, do.MarkFormatted):
            key = (step.node, step.disk)
            self.volumes[key] = f"{self.record.cluster_id}/{step.node}"
            del self.jobs[key]
            self.disks[key] = dict.fromkeys(self.disks.get(key, ()), True)
        elif isinstance(step, do.MarkReplaced):
            assert (step.node, step.disk) in self.volumes
            self.replaced[step.node, step.disk] = frozenset(step.names)
        elif isinstance(step, do.DeleteVolume):
            del self.volumes[step.node, step.disk]
        elif isinstance(step, do.CreatePod):
            self.start(step.node, dict(step.aspects))
        elif isinstance(step, do.Recreate):
            for node_id in step.nodes:
                assert self.pods[node_id].broken
                del self.pods[node_id]
        elif isinstance(step, do.Restart):
            self.take_down(step.nodes)
        elif isinstance(step, do.Stop):
            self.take_down((step.node,))
        else:
            self.apply_to_kafka(step)

    def apply_to_kafka(self, step: do.Step) -> None:
        """Apply a step that is a request to Kafka."""
        if isinstance(step, do.Reassign):
            for key, replicas in step.moves.items():
                self.partitions[key].target, self.partitions[key].ticks = replicas, 0
        elif isinstance(step, do.Unregister):
            assert not any(step.node in p.replicas for p in self.partitions.values())
            self.registered.pop(step.node, None)
        elif isinstance(step, do.SetConfig):
            self.dynamic.update(step.put)
            for key in step.remove:
                del self.dynamic[key]
        elif isinstance(step, do.SetFeature):
            self.set_feature(step)
        elif isinstance(step, do.Throttle):
            self.throttled = self.throttled | {*step.topics} if step.on else self.throttled - {*step.topics}
        elif isinstance(step, do.AddVoter):
            assert self.log_voters is not None
            assert step.node not in self.log_voters, "Kafka knows a voter of this id"
            assert self.counts(step.node), "a voter that has not caught up"
            self.log_voters[step.node] = self.pods[step.node].disk
        elif isinstance(step, do.RemoveVoter):
            assert self.log_voters is not None
            del self.log_voters[step.node]
            assert self.leader() is not None, f"nobody can lead {self.log_voters}"
        else:
            raise AssertionError(step)

    def format_voter(self, step: do.Format) -> None:
        """Format a voter; its first disk puts the node into the first voter set of a dynamic quorum's log."""
        node = self.record.node(step.node)
        if node is None or not node.controller or not self.record.dynamic or step.volumes:
            return
        if step.joins:
            assert self.log_voters, "there is nothing to join"
        else:
            assert step.disk == 0 and not self.started, "a second beginning of the log"
            self.log_voters = {**(self.log_voters or {}), step.node: step.disk}

    def set_feature(self, step: do.SetFeature) -> None:
        if step.name == "kraft.version":
            assert self.log_voters is None
            leader = self.leader()
            assert leader is not None
            self.log_voters = {i: self.pods[i].disk for i in self.pods[leader].voters}
        else:
            images = {pod.aspects["image"] for pod in self.pods.values()}
            assert len(images) == 1 and len(self.pods) == len(self.record.nodes), "not everybody could read it"
        assert step.level > self.features[step.name]
        self.features[step.name] = step.level

    def pool_of(self, node_id: int) -> Pool:
        node = self.record.node(node_id)
        pool = None if node is None else self.wanted.pool(node.pool)
        return pool or Pool("", False, False, 0, 0, {})

    def remember(self, record: Record) -> None:
        for node in record.nodes:
            assert self.given.setdefault(node.id, node.pool) == node.pool
            assert node.id not in self.record.retired, f"id {node.id} was given before"
        assert set(self.record.retired) <= set(record.retired)
        assert self.record.cluster_id in (None, record.cluster_id)
        self.record = record

    def start(self, node_id: int, aspects: dict[str, str]) -> None:
        node = self.record.node(node_id)
        assert node is not None
        assert node_id not in self.pods
        assert not node.stopped, f"{node_id} was stopped for good"
        assert self.volumes[node_id, node.disk] == f"{self.record.cluster_id}/{node_id}"
        pod = Pod(aspects, node.disk, broken=aspects["image"] in self.bad_images)
        wanted_volumes = self.pool_of(node_id).size_bytes
        if wanted_volumes and aspects.get("volumes") == ",".join(wanted_volumes):
            assert all(self.disks[node_id, node.disk].get(name) for name in wanted_volumes), "not formatted"
        self.started = True
        if pod.has("controller") and self.record.dynamic:
            assert not pod.voters, "Kafka refuses both"
            assert aspects["bootstrap"], "it could find nobody"
        elif pod.has("controller"):
            assert node_id in pod.voters, "Kafka refuses to start"
        self.pods[node_id] = pod
        self.pods_changed = 0
        self.check_voter_sets()

    def take_down(self, nodes: Iterable[int]) -> None:
        """A clean stop: asserts laws 3 and 5, the slow way."""
        nodes = tuple(nodes)
        for node_id in nodes:
            pod = self.pods[node_id]
            assert pod.stopping is None
            if pod.ready and not self.wanted.hibernated:
                self.check_quorum(node_id, pod)
        before = {key: len(p.isr) for key, p in self.partitions.items()}
        for node_id in nodes:
            self.pods[node_id].stopping = 0
            self.leave_isrs(node_id)
        self.pods_changed = 0
        for key, partition in self.partitions.items():
            need = min(partition.min_isr, len(partition.replicas))
            assert len(partition.isr) >= need or len(partition.isr) == before[key] or self.excused(key[0]), (
                f"{key} fell to {partition.isr} by our hand"
            )

    def excused(self, topic: str) -> bool:
        return self.wanted.hibernated or topic in self.wanted.unavailable_topics

    def check_quorum(self, node_id: int, pod: Pod) -> None:
        if not self.counts(node_id) or self.leader() is None:
            return
        alive = {i for i in self.pods if i != node_id and self.counts(i)}
        stays_small = len(self.record.voters) <= 2 or len(pod.voters) <= 2 or len(self.log_voters or "three") <= 2
        pause = any("MetadataPause" in r.accept for r in self.wanted.replacements)
        assert self.leader(without=node_id) is not None or stays_small or pause, (
            f"{node_id} breaks the quorum: {[(i, self.pods[i].voters) for i in alive]}"
        )

    def check_voter_sets(self) -> None:
        """Law 4, by listing all majorities of all voter sets with which some node runs."""
        gone = {node.id for node in self.record.nodes if node.stopped and node.id not in self.pods}
        if self.log_voters is not None:
            return  # the log itself guarantees one change at a time
        sets = {p.voters for p in self.pods.values() if p.has("controller")}
        for a, b in itertools.combinations(sets, 2):
            for left in itertools.combinations(sorted(a), len(a) // 2 + 1):
                for right in itertools.combinations(sorted(b), len(b) // 2 + 1):
                    assert set(left) & set(right) or (set(left) | set(right)) & gone, f"{a} and {b}: two leaders"

    # Events

    def leave_isrs(self, node_id: int) -> None:
        for partition in self.partitions.values():
            if len(partition.isr) > 1:
                partition.isr.discard(node_id)

    def kill(self, node_id: int) -> None:
        """Delete a pod at once."""
        self.pods.pop(node_id, None)
        self.leave_isrs(node_id)
        self.pods_changed = 0

    def lose_host(self, node_id: int) -> None:
        """Lose pod and volumes for good."""
        self.kill(node_id)
        for key in [key for key in self.volumes if key[0] == node_id]:
            del self.volumes[key]

    def tick(self) -> None:
        self.pods_changed += 1
        for key, ticks in list(self.jobs.items()):
            self.jobs[key] = ticks + (ticks >= 0)
        for node_id, pod in list(self.pods.items()):
            pod.age += 1
            if pod.age == START_TICKS:
                self.pods_changed = 0
            if pod.stopping is not None:
                pod.stopping += 1
                if pod.stopping > STOP_TICKS:
                    del self.pods[node_id]
                    self.pods_changed = 0
            elif pod.ready and pod.has("broker"):
                self.registered[node_id] = pod.aspects.get("rack", "")
        for partition in self.partitions.values():
            self._replicate(partition)

    def _replicate(self, partition: Partition) -> None:
        up = {i for i, pod in self.pods.items() if pod.ready and pod.has("broker")}
        if partition.target:
            partition.ticks += 1
            if partition.ticks >= MOVE_TICKS and set(partition.target) <= up:
                partition.isr = set(partition.target)
                partition.replicas, partition.target = partition.target, ()
        for node_id in partition.replicas:
            if node_id in up and self.pods[node_id].age >= START_TICKS + CATCH_UP_TICKS and partition.isr & up:
                partition.isr.add(node_id)
        alive = partition.isr & up
        if alive:
            partition.isr = alive

    def make_topics(self, rf: int = 3, count: int = 6) -> None:
        brokers = sorted(self.registered)
        for number in range(count):
            replicas = tuple(brokers[(number + i) % len(brokers)] for i in range(min(rf, len(brokers))))
            self.partitions["t", number] = Partition(replicas, set(replicas), min_isr=min(2, rf))

    def settle(self, passes: int = 400) -> None:
        """Run until no work is left, which must happen."""
        for _ in range(passes):
            if not (self.step().steps or self.last.waits or self.last.blocked or self.pods_changed < 20):
                return
        raise AssertionError(f"does not settle: {self.last}\n{self.record}\n{self.pods}")

    def actions(self, kind: type) -> list[do.Step]:
        return [step for step in self.done if isinstance(step, kind)]


def made(**changes: object) -> World:
    """A finished cluster with a topic."""
    world = World(wanted(**changes))  # type: ignore[arg-type]
    world.settle()
    world.make_topics()
    world.settle()
    world.done.clear()
    return world
