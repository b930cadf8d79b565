"""One seeded run of a cluster: several controllers and brokers, replicated partitions, clients, and node faults.

world, cluster -> topics -> clients at work, faults -> all well again -> at rest within a bound -> audit -> verdict

The seed also draws the shape: three combined nodes, three or four controllers with three or four brokers, or one
controller with three brokers; static or dynamic voters; a metadata.version that is raised during the run. `checker`
judges the clients' observations, `replica_laws` the nodes' state; `cluster_faults` defines the permitted faults.
"""

from __future__ import annotations

import random
from typing import Any, Final

from kraft_node.metadata.features import METADATA_VERSIONS
from kraft_node.testing.checker import NO_POLICY, Checker
from kraft_node.testing.cluster_faults import ClusterFaults
from kraft_node.testing.history import judge_history
from kraft_node.testing.machine import FIRST_VOTERS, SimCluster, SimMachine, StoryLog
from kraft_node.testing.replica_laws import ReplicaLaws
from kraft_node.testing.scenario import Scenario, look_up
from kraft_node.testing.script import Script
from kraft_node.testing.workloads.admin import Admin
from kraft_node.testing.workloads.auditor import Auditor
from kraft_node.testing.workloads.consumer import Consumer
from kraft_node.testing.workloads.features import FeaturesOperator
from kraft_node.testing.workloads.producer import WorkloadProducer
from kraft_node.testing.workloads.reassignments import ReassignmentOperator
from kraft_node.testing.workloads.voters import VotersOperator
from kraft_node.testing.world import World

SHAPES: Final = ((3, 0, 0), (0, 3, 3), (0, 1, 3), (0, 3, 4), (0, 4, 3))
"""(combined, controllers, brokers); with four controllers, the log names three first voters."""
SETTLES_MAX_MS: Final = 60_000.0
"""After all faults, every partition has a leader and all its replicas in sync within this time."""
SLOW_SHARE, SLOW_MS = 0.3, 60.0
"""Share of the seeds with a slow network until all faults are over, so that more requests are under way at a time."""
DYNAMIC_SHARE, UPGRADED_SHARE = 0.2, 0.2
"""Shares of the quorums of three controllers: with dynamic voters from the start; made dynamic by an operator."""
RELEASES_SHARE: Final = 0.2
"""Share of the seeds that start at any metadata.version, which an operator changes during the run."""
DIRECTORIES_SHARE: Final = 0.4
"""Share of the seeds with two log directories on each broker."""
FLOODED_SHARE, FETCHED_BYTES = 0.3, 4_000
"""Share of the seeds in which a producer writes faster than the disk of a machine with little memory; what a follower
fetches there at a time: a whole response is appended after one check."""
CUT_SHARE, SMALL_SEGMENT = 0.25, "300"
"""Share of the seeds in which truncations go in steps, and the bytes of a segment there: about a batch."""
LONG_PLANS_SHARE: Final = 0.25
"""Share of the seeds in which the controller changes one partition a turn when a broker leaves or comes back."""
TOPICS: Final[dict[str, tuple[int, dict[str, str]]]] = {"t": (2, {}), "u": (1, {"internal.segment.bytes": "8000"})}
"""Partitions and configuration of each topic."""
MORTAL_TOPICS: Final = ("m0", "m1")
OFFSETS: Final = "__consumer_offsets"


class ClusterScenario(Scenario):
    """A cluster, its clients and its faults."""

    kind = "cluster"
    compacted = frozenset((OFFSETS,))
    """Topics with replicas that may hold different bytes."""
    injector = ClusterFaults

    def __init__(self, world: World, story: StoryLog) -> None:  # the base class would make another world
        self.world = world
        self.story = story
        rng = world.rng
        combined, controllers, brokers = rng.choice(SHAPES)
        overrides = {
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "1",
            "min.insync.replicas": "2",
            "group.min.session.timeout.ms": "1000",
            "broker.session.timeout.ms": str(rng.choice((1000, 2500))),
            "broker.heartbeat.interval.ms": "300",
            "replica.lag.time.max.ms": str(rng.choice((800, 2500))),
            "replica.high.watermark.checkpoint.interval.ms": str(rng.choice((300, 5000))),
            "log.flush.offset.checkpoint.interval.ms": str(rng.choice((300, 60000))),
            "leader.imbalance.check.interval.seconds": str(rng.choice((2, 300))),
            "metadata.log.max.record.bytes.between.snapshots": str(rng.choice((1000, 20971520))),
            "metadata.max.retention.bytes": str(rng.choice((1000, 104857600))),
        }
        overrides |= self.more_overrides(world.seed)
        self.is_flooded = random.Random(f"flood of {world.seed}").random() < FLOODED_SHARE
        if self.is_flooded:
            overrides["replica.fetch.response.max.bytes"] = str(FETCHED_BYTES)
        slow = rng.random() < SLOW_SHARE
        directories = 2 if rng.random() < self.directories_share else 1
        # A generator of its own keeps the other seeds' runs unchanged.
        levels = random.Random(f"levels of {world.seed}")
        release = levels.choice(METADATA_VERSIONS) if levels.random() < self.releases_share else None
        self.cluster = SimCluster(
            world,
            combined,
            overrides,
            controllers=controllers,
            brokers=brokers,
            directories=directories,
            dynamic=controllers > FIRST_VOTERS or (controllers == FIRST_VOTERS and rng.random() < DYNAMIC_SHARE),
            release=release,
            features=self.features(world.seed),
        )
        if slow:
            self.cluster.network.delay_ms = SLOW_MS
        self.checker = Checker(world, offsets_are_durable=True, sole=False)
        world.on_spent = self.checker.spent
        self.topics = dict(TOPICS)
        self._cut_in_steps()
        self.checker.policies.update(dict.fromkeys(self.topics, NO_POLICY))
        self.laws = ReplicaLaws(self.cluster, self.checker, self.compacted)
        world.watcher = self.laws.look
        self.troubles = self.injector(self.cluster, self.checker)
        rotten = {machine.config.node_id: machine for machine in self.cluster.brokers}
        self.checker.is_rotten = lambda node_id: rotten[node_id].rotten
        self.scripts: list[Script] = []
        self.producers: list[WorkloadProducer] = []
        self.consumers: list[Consumer] = []
        self.admins: list[Admin] = []
        self.keyed = []
        self.operators: list[ReassignmentOperator | VotersOperator | FeaturesOperator] = []
        if release is not None:
            self.operators.append(FeaturesOperator(self.cluster, "f0", levels, release.level))

    @property
    def releases_share(self) -> float:
        """Share of the seeds with an older metadata.version at first."""
        return RELEASES_SHARE

    @property
    def directories_share(self) -> float:
        """Share of the seeds with two log directories on each broker."""
        return DIRECTORIES_SHARE

    @property
    def other_topics(self) -> dict[str, tuple[int, dict[str, str]]]:
        """Topics whose records the checker does not judge; `topics` has the others."""
        return {}

    @property
    def movable(self) -> list[tuple[str, int]]:
        """The partitions that an operator moves between brokers."""
        return self.partitions

    @property
    def groups_read(self) -> list[str]:
        """The groups whose committed offsets the checker judges in the end."""
        return ["g0"]

    def more_overrides(self, seed: int) -> dict[str, str]:  # noqa: ARG002 - for scenarios that build on this one
        """Further keys of the nodes' configuration."""
        return {}

    def features(self, seed: int) -> dict[str, int]:  # noqa: ARG002
        """Levels of features on the formatted disks."""
        return {}

    def _cut_in_steps(self) -> None:
        """In some seeds, give a topic small segments; a truncation then drops few of them in a step."""
        rng = random.Random(f"cuts of {self.world.seed}")  # own generator: other runs stay the same
        if rng.random() < CUT_SHARE:
            self.topics["t"] = (2, {"internal.segment.bytes": SMALL_SEGMENT})
            for machine in self.cluster.brokers:
                machine.cut_step = rng.choice((1, 2, 3))

    def _plan_in_turns(self) -> None:
        rng = random.Random(f"plans of {self.world.seed}")  # own generator: other runs stay the same
        if rng.random() < LONG_PLANS_SHARE:
            for machine in self.cluster.controllers:
                machine.plan_turn_ms = rng.choice((1, 20, 200))

    @property
    def workers(self) -> list[Any]:
        """The clients and operators so far; the scenario starts them together and stops them before the audit."""
        return [*super().workers, *self.operators]

    @property
    def faults_done(self) -> list[str]:
        """The names of the faults so far, in their order, from `ClusterFaults`."""
        return self.troubles.done

    def _play(self) -> None:
        self._plan_in_turns()
        for machine in self.cluster.machines:
            if not self.is_flooded:  # with any size of fetch, only a fast disk keeps up
                machine.speed_up_disk()
            machine.on_end = self._process_ended(machine)
            machine.start()
        self._until_serving()
        maker = Admin(self.cluster, self.checker, "maker", ())
        for name, (count, configs) in {**self.topics, **self.other_topics}.items():
            maker.replicas = self.world.rng.choice((2, 3))
            self._finish(self._script("maker", maker.create_surely(name, count, configs)))
        self._start_clients()
        self.troubles.play()
        self._stop_if_broken()
        self.troubles.heal()
        self._end_rare_paths()
        self._until_serving()
        self._before_the_end()
        for worker in self.workers:
            worker.stopping = True
        for script in self.scripts:
            self._finish(script)
        self._until_settled()
        self._audit()
        self._judge_leftovers()
        self.laws.judge()
        judge_history(self.checker)

    def _before_the_end(self) -> None:
        """All faults are over, and the clients still work: for scenarios that build on this one."""

    def _process_ended(self, machine: SimMachine) -> Any:
        def ended(_how: str) -> None:
            self.checker.ends += 1
            if machine.broken is not None:
                self.checker.broken("alive", machine.name, machine.broken)
            elif self.troubles.over and machine is not self.troubles.rotten:
                self.world.at(0.0, machine.start_once)

        return ended

    def _until_settled(self) -> None:
        reached = self.world.run(
            lambda: bool(self.checker.findings) or (self.world.events % 16 == 0 and self.laws.unsettled() is None),
            SETTLES_MAX_MS,
        )
        self._stop_if_broken()
        why = self.laws.unsettled()
        if not reached and why is not None:
            self.checker.broken("alive", "cluster", f"{SETTLES_MAX_MS / 1000:.0f} s after all faults ended {why}")
            self._stop_if_broken()

    def _start_clients(self) -> None:
        world, rng, cluster, checker = self.world, self.world.rng, self.cluster, self.checker
        for number in range(rng.randint(2, 3)):
            idempotent = number == 0
            how: dict[str, Any] = {"acks": -1 if number < 2 else 1, "idempotent": idempotent}
            how["by_id"] = rng.random() < 0.5
            self.producers.append(WorkloadProducer(cluster, checker, f"p{number}", self.partitions, **how))
        counts = {topic: count for topic, (count, _) in self.topics.items()}
        for number in range(rng.randint(1, 2)):
            self.consumers.append(Consumer(cluster, checker, f"c{number}", "g0", counts, sessions=rng.random() < 0.5))
        if rng.random() < 0.5:
            self.admins.append(Admin(cluster, checker, "a0", MORTAL_TOPICS, replicas=rng.choice((2, 3))))
        if rng.random() < 0.6:
            self.operators.append(ReassignmentOperator(cluster, "o0", self.movable))
        if cluster.dynamic or (len(cluster.controllers) == FIRST_VOTERS and rng.random() < UPGRADED_SHARE):
            self.operators.append(VotersOperator(cluster, "v0"))
        if self.is_flooded:
            self._flood_some()
        for worker in self.workers:
            self.scripts.append(Script(world, worker.session.name, worker.run(), worker.session.host))

    def _audit(self) -> None:
        auditor = Auditor(self.cluster, self.checker, "auditor")
        self._finish(self._script("auditor", auditor.run(self.partitions, self.groups_read)))
        for admin in self.admins:
            for topic in MORTAL_TOPICS:
                self._finish(self._script("admin", look_up(admin, topic)))


__all__ = ["ClusterScenario"]
