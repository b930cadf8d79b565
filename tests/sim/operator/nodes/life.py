"""One seed of the whole: the operator, from its reconciler to its connections, over whole nodes with clients.

world, API server -> the operator makes the cluster -> topics, clients at work -> requests to the operator, and faults
-> all well again -> at rest within a bound -> audit -> verdict

The nodes are those of `kraft_node.testing.cluster_scenario`, with its clients and its laws; the operator is
`kraft_operator.reconcile`, with nothing replaced. Only the API server with its kubelets is a model (`machines`).

Fault model: nodes are killed, hang, and are cut off from each other or from the operator; links are slow or break. The
API server is slow, and answers are lost. The operator dies between any two of its events, or stands still. The resource
is deleted and applied anew. No disk is lost but by the operator.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from random import Random
from typing import Any, Final

from kraft_node.metadata.features import METADATA_VERSIONS
from kraft_node.testing.checker import NO_POLICY, Checker
from kraft_node.testing.cluster_scenario import TOPICS, ClusterScenario
from kraft_node.testing.history import judge_history
from kraft_node.testing.machine import SimMachine, StoryLog
from kraft_node.testing.replica_laws import ReplicaLaws
from kraft_node.testing.scenario import SeedResult
from kraft_node.testing.script import Script
from kraft_node.testing.workloads.admin import Admin
from kraft_node.testing.workloads.consumer import Consumer
from kraft_node.testing.workloads.producer import WorkloadProducer
from kraft_node.testing.world import World
from kraft_operator.events import Events
from kraft_operator.evictions import MARK
from kraft_operator.metrics import Metrics
from kraft_operator.pass_queue import Queue
from kraft_operator.reconcile import Reconciler
from kraft_operator.specs.planner_input import REPLACE
from kraft_protocol.ids import Uuid, uuid_text
from tests.sim.operator.cluster import KEY, resource
from tests.sim.operator.nodes.api import NodesApi
from tests.sim.operator.nodes.loop import ProcessLoop
from tests.sim.operator.nodes.machines import PodMachines, node_of
from tests.sim.operator.nodes.troubles import Troubles
from tests.unit.operator.fake_kubernetes import watched

TICK_MS: Final = 200.0
TOLD_MS: Final = (20.0, 300.0, 4_000.0)
"""The longest delays of a watch."""
BEGINS_MAX_MS: Final = 90_000.0
SETTLES_MAX_MS: Final = 900_000.0
DYNAMIC_SHARE: Final = 0.3
OLD_SHARE, OLDEST = 0.4, 10
"""The share of clusters that begin at an older metadata.version, and how many versions that may be: from 3.9 on, which
knows dynamic quorums."""
CONFIG: Final = {
    "auto.create.topics.enable": "false",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "2500",
    "default.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "replica.fetch.max.bytes": "65536",
    "replica.lag.time.max.ms": "2500",
}
SLOW_COPY_SHARE: Final = 0.5
SLOW_COPY: Final = {"replica.fetch.max.bytes": "1500", "replica.fetch.response.max.bytes": "1500"}
"""In a share of the seeds a follower fetches about a batch at a time: a node is ready long before it is in sync."""
PRODUCERS_PAUSE_MS: Final = 3_000.0
"""The longest pause of a producer: a life is long, and what counts is what happens in it."""


class OperatedScenario(ClusterScenario):
    """A cluster that the operator makes and keeps."""

    kind = "operated"

    def __init__(  # machines come with the operator's jobs
        self, world: World, story: StoryLog, requests: Collection[str] = (), *, dynamic: bool | None = None
    ) -> None:
        """`requests`: names of the only requests to draw from; empty for all. `dynamic`: the kind of the quorum."""
        self.world = world
        self.story = story
        rng = Random(f"shape of {world.seed}")
        cluster_id = uuid_text(Uuid(rng.randbytes(16)))
        drawn = rng.random() < DYNAMIC_SHARE
        dynamic = drawn if dynamic is None else dynamic
        self.cluster = PodMachines(world, cluster_id, dynamic=dynamic)
        self.cluster.on_new = self._on_new
        self.checker = Checker(world, offsets_are_durable=True, sole=False)
        world.on_spent = self.checker.spent
        self.topics = dict(TOPICS)
        self.checker.policies.update(dict.fromkeys(self.topics, NO_POLICY))
        self.laws = ReplicaLaws(self.cluster, self.checker, self.compacted)
        world.watcher = self.laws.look
        self.is_flooded = False
        self.scripts: list[Script] = []
        self.producers: list[WorkloadProducer] = []
        self.consumers: list[Consumer] = []
        self.admins: list[Admin] = []
        self.keyed = []
        self.operators = []
        self.api = NodesApi(world, self.cluster, self.checker)
        release = rng.choice(METADATA_VERSIONS[-OLDEST:]) if rng.random() < OLD_SHARE else METADATA_VERSIONS[-1]
        config = {**CONFIG, **(SLOW_COPY if rng.random() < SLOW_COPY_SHARE else {})}
        made = resource(
            "u0", config=config, clusterId=cluster_id, metadataVersion=release.name, security={"tls": "Disabled"},
            **({} if not dynamic else {"quorum": {"mode": "Dynamic"}}),
        )  # fmt: skip
        self.api.objects["KRaftCluster", *KEY] = made
        self.troubles: Any = Troubles(self, requests)
        self._rng = Random(f"watches of {world.seed}")
        self._shown = b""
        self.operator = self._new_operator()

    @property
    def resource(self) -> dict[str, Any]:
        """The resource as the API server has it."""
        return self.api.objects["KRaftCluster", *KEY]

    # The operator

    def _new_operator(self) -> ProcessLoop:
        host = self.cluster.client_host("operator")
        loop = ProcessLoop(self.world, self.cluster.network, host)
        api: Any = self.api
        reconciler = Reconciler(api, Events(api, "sim", loop.time), Metrics(), clock=loop.time)
        queue = Queue(reconciler.reconcile, loop.time)

        def told() -> None:
            reconciler.touched(KEY)
            queue.put(KEY)

        self._told = told
        loop.create_task(queue.run())
        self.world.at(0.0, told, host=host)
        return loop

    def restart_operator(self) -> None:
        """Kill the operator's process, and start another."""
        self.operator.die()
        self.operator = self._new_operator()

    def _tick(self) -> None:
        """Kubernetes works; watches tell the operator of changes, sometimes late."""
        self.api.work_on()
        shown = watched(self.api.objects)
        if shown != self._shown:
            self._shown = shown
            delay_ms = self._rng.random() * self._rng.choice(TOLD_MS)
            self.world.at(delay_ms, lambda told=self._told: told(), host=self.operator.host)
        self.world.at(TICK_MS, self._tick)

    # The run

    def run(self) -> SeedResult:
        """Play and judge; then the operator's process ends."""
        try:
            return super().run()
        finally:
            if not self.operator.dead:
                self.operator.die()

    def _start_clients(self) -> None:
        """Fewer clients than in the cluster's scenario, and none that does the operator's work."""
        cluster, checker = self.cluster, self.checker
        for number, acks in enumerate((-1, -1, 1)):
            how: dict[str, Any] = {"acks": acks, "idempotent": not number, "by_id": self._rng.random() < 0.5}
            producer = WorkloadProducer(cluster, checker, f"p{number}", self.partitions, **how)
            producer.pause_ms = PRODUCERS_PAUSE_MS
            self.producers.append(producer)
        counts = {topic: count for topic, (count, _) in self.topics.items()}
        self.consumers.append(Consumer(cluster, checker, "c0", "g0", counts, sessions=self._rng.random() < 0.5))
        for worker in self.workers:
            self.scripts.append(Script(self.world, worker.session.name, worker.run(), worker.session.host))

    def _on_new(self, machine: SimMachine) -> None:
        machine.on_end = self._process_ended(machine)

    def _process_ended(self, machine: SimMachine) -> Any:
        def ended(_how: str) -> None:
            self.checker.ends += 1
            if machine.broken is not None:
                self.checker.broken("alive", machine.name, machine.broken)

        return ended

    def _play(self) -> None:
        self.api.faults = False
        self._tick()
        self._until(self.settled, BEGINS_MAX_MS, "the cluster does not begin")
        maker = Admin(self.cluster, self.checker, "maker", ())
        for name, (count, configs) in self.topics.items():
            maker.replicas = 3
            self._finish(self._script("maker", maker.create_surely(name, count, configs)))
        self._start_clients()
        self.api.faults = True
        self.troubles.play()
        self._stop_if_broken()
        self.troubles.heal()
        self._until(self.settled, SETTLES_MAX_MS, "the operator does not settle")
        for worker in self.workers:
            worker.stopping = True
        for script in self.scripts:
            self._finish(script)
        self.operator.die()
        self.api.kubelets.forget_left()
        self._until_settled()
        self._audit()
        self._judge_leftovers()
        self.laws.judge()
        judge_history(self.checker)

    def _until(self, check: Callable[[], bool], limit_ms: float, what: str) -> None:
        due = [0.0]

        def reached() -> bool:
            if self.checker.findings:
                return True
            if self.world.now_ms < due[0]:
                return False
            due[0] = self.world.now_ms + TICK_MS
            return check()

        done = self.world.run(reached, limit_ms)
        self._stop_if_broken()
        if not done:
            conditions = self.resource.get("status", {}).get("conditions")
            self.checker.broken("alive", "operator", f"{what} within {limit_ms / 1000:.0f} s: {conditions}")
            self._stop_if_broken()

    def settled(self) -> bool:
        """Whether the operator reports that everything is as requested, and it is."""
        reported = self.resource.get("status", {})
        conditions = {one["type"]: one["status"] for one in reported.get("conditions", ())}
        self._withdraw_refused(reported)
        return (
            self._is_as_requested()
            and conditions.get("Ready") == "True"
            and conditions.get("Progressing") == conditions.get("Degraded") == "False"
            and not any(MARK in one["metadata"].get("annotations", {}) for one in self.api.objects.values())
            and not any(key.startswith(REPLACE) for key in self.resource["metadata"].get("annotations", {}))
            and reported.get("observedGeneration") == self.resource["metadata"]["generation"]
            and not any(node.get("needsRestart") for node in reported.get("nodes", ()))
        )

    def _is_as_requested(self) -> bool:
        """Whether as many nodes serve as requested, by the requested image, and the voters are the controllers."""
        spec = self.resource["spec"]
        pods = {node_of(one): one for (kind, *_), one in self.api.objects.items() if kind == "Pod"}
        nodes = [machine for machine in self.cluster.machines if machine.serving and machine.config.node_id in pods]
        controllers = {machine.config.node_id for machine in nodes if machine.config.is_controller}
        (wanted,) = [pool["replicas"] for pool in spec["nodePools"] if pool["name"] == "controllers"]
        rafts = [machine.node.raft for machine in nodes if machine.node is not None and machine.node.raft is not None]
        return (
            len(nodes) == len(pods) == wanted + spec["replicas"]
            and len(controllers) == wanted
            and all(one["spec"]["containers"][0]["image"] == spec["image"] for one in pods.values())
            and all({voter.key.id for voter in raft.voters} == controllers for raft in rafts)
        )

    def _withdraw_refused(self, reported: dict[str, Any]) -> None:
        """Like administrators, take back a request whose node has left meanwhile, once the operator says so."""
        for condition in reported.get("conditions", ()):
            if condition["reason"] == "ReplacementRefused" and "does not exist" in condition["message"]:
                annotations = self.resource["metadata"]["annotations"]
                for key in [
                    key
                    for key in annotations
                    if key.startswith(REPLACE) and key[len(REPLACE) :] in condition["message"]
                ]:
                    del annotations[key]

    def _until_serving(self) -> None:
        """Nodes serve once the operator is done; nothing to wait for beside it."""


def run(seed: int, requests: Collection[str] = (), *, dynamic: bool | None = None) -> SeedResult:
    """Run one seed; the arguments are those of `OperatedScenario`."""
    world = World(seed)
    story = StoryLog(world)
    chance = random.getstate()  # the operator spreads its passes by chance
    random.seed(seed)
    with story.hearing("kraft_node"), story.hearing("kraft_operator"):
        try:
            return OperatedScenario(world, story, requests, dynamic=dynamic).run()
        finally:
            random.setstate(chance)
