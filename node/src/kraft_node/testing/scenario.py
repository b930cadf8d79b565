"""One seeded run of whole nodes: clients at work, machines that fail; in the end everything is read and judged.

world, cluster -> topics -> clients at work, faults one after another -> all well again -> audit -> verdict

The seed draws everything: flush and roll settings, the producers, and which faults happen when.
"""

from __future__ import annotations

import importlib
import random
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

from kraft_node.testing.checker import NO_POLICY, Checker, Violation
from kraft_node.testing.faults import WorldFaults
from kraft_node.testing.leftovers import left_in
from kraft_node.testing.machine import SimCluster, SimMachine, StoryLog
from kraft_node.testing.rare_paths import RarePaths
from kraft_node.testing.script import Script
from kraft_node.testing.workloads.admin import Admin
from kraft_node.testing.workloads.auditor import Auditor
from kraft_node.testing.workloads.bulk import CROWD, LONG, LONG_CONFIGS, PARTITIONS, Bulk
from kraft_node.testing.workloads.consumer import Consumer
from kraft_node.testing.workloads.flooder import Flooder, flood_bytes
from kraft_node.testing.workloads.keyed import TOPIC as KEYED
from kraft_node.testing.workloads.keyed import Keyed, topic_configs
from kraft_node.testing.workloads.producer import WorkloadProducer
from kraft_node.testing.workloads.session import Worker
from kraft_node.testing.workloads.sleeper import CLEANED_MS, SLEEPING, sleep
from kraft_node.testing.workloads.sleeper import CONFIGS as SLEEPING_CONFIGS
from kraft_node.testing.workloads.spender import CONFIGS, KEPT_MAX, TOPIC, Spender
from kraft_node.testing.world import World

SERVES_MAX_MS: Final = 60_000.0
"""The upper bound of a start, however slow the disk."""
DONE_MAX_MS: Final = 120_000.0
"""When all faults are over, every client finishes within this time."""
SETTLED_MS: Final = 3_000.0
"""After the clients have stopped, every broker has caught up with the metadata within this time."""
IDLE_MAX_MS: Final = 60_000.0
"""Longer than the time-outs of requests."""
FREED_MAX_MS: Final = 40_000.0
"""Retention starts at most `log.initial.task.delay.ms` after a node's start."""
SHORT_SHARE: Final = 0.25
"""Share of the seeds in which a process runs out of descriptors."""
KEYED_SHARE: Final = 0.3
"""Share of the seeds in which a topic is compacted."""
STOPPED_SHARE: Final = 0.2
"""Share of the seeds in which a node stops while a flush of `flush.messages` is under way."""
BULK_SHARE: Final = 0.06
"""Share of the seeds with a topic of many partitions and a log of many segments; each takes seconds."""
MORTAL_TOPICS: Final = ("m0", "m1", "m2")
KINDS: Final = {
    "cluster": "kraft_node.testing.cluster_scenario:ClusterScenario",
    "groups": "kraft_node.testing.groups.scenario:GroupScenario",
    "secured": "kraft_node.testing.secured.scenario:SecuredScenario",
    "transactions": "kraft_node.testing.transactions.scenario:TransactionScenario",
    "whole": "kraft_node.testing.whole.scenario:WholeScenario",
}
"""The scenarios of clusters."""


@dataclass
class SeedResult:
    """The outcome of one seed."""

    seed: int
    nodes: int
    kind: str
    findings: list[Violation]
    events: int
    simulated_ms: float
    hash: str
    acknowledged: int
    read: int
    faults: list[str]
    story: list[str] = field(repr=False)
    places: dict[str, int] = field(default_factory=dict)
    """How often each place of `base.rare` was reached, if the seed favoured rare paths."""

    @property
    def good(self) -> bool:
        """Whether the seed broke no law."""
        return not self.findings


def run(seed: int, nodes: int = 1, kind: str = "node", *, rare: bool = False) -> SeedResult:
    """Run one seed of `kind`: "node" (`nodes` combined nodes, each with its own records) or one of `KINDS`.

    `rare`: until all faults are over, the nodes often take paths that are rare in production.
    """
    world = World(seed)
    story = StoryLog(world)
    with story.hearing("kraft_node"):
        if kind == "node":
            scenario = Scenario(world, story, nodes)
        else:
            module, _, name = KINDS[kind].partition(":")
            make: Any = getattr(importlib.import_module(module), name)  # they build on this one
            scenario = make(world, story)
        if not rare:
            return scenario.run()
        scenario.rare_paths = paths = RarePaths(seed)
        with paths.in_force():
            result = scenario.run()
        result.places = dict(paths.reached)
        return result


class Scenario:
    """Nodes with their own records, their clients and their faults."""

    kind = "node"
    rare_paths: RarePaths | None = None

    def __init__(self, world: World, story: StoryLog, nodes: int) -> None:
        self.world = world
        self.story = story
        rng = world.rng
        flush_all = rng.choice((NO_POLICY, NO_POLICY, NO_POLICY, 1, 3))
        overrides = {
            "group.min.session.timeout.ms": "1000",
            "replica.high.watermark.checkpoint.interval.ms": str(rng.choice((300, 5000))),
            "log.flush.offset.checkpoint.interval.ms": str(rng.choice((200, 1000, 60000))),
            "log.initial.task.delay.ms": str(rng.choice((0, 500, 30000))),
            "log.retention.check.interval.ms": "1000",
            "log.segment.delete.delay.ms": str(rng.choice((0, 300, 60000))),
            "log.cleaner.backoff.ms": str(rng.choice((500, 15000))),
            "metadata.log.max.record.bytes.between.snapshots": str(rng.choice((500, 3000, 20971520))),
            "metadata.max.retention.bytes": str(rng.choice((1000, 104857600))),
        }
        if flush_all != NO_POLICY:
            overrides["log.flush.interval.messages"] = str(flush_all)
        self.cluster = SimCluster(world, nodes, overrides)
        self.checker = Checker(world, offsets_are_durable=flush_all == 1)
        world.on_spent = self.checker.spent
        self.topics: dict[str, tuple[int, dict[str, str]]] = {}
        for name, flushed in (("plain", NO_POLICY), ("safe", 1), ("third", 3)):
            configs = {} if flushed == NO_POLICY else {"flush.messages": str(flushed)}
            if rng.random() < 0.5:
                configs["segment.ms"] = str(rng.choice((100, 700)))
            if rng.random() < 0.3:
                configs["internal.segment.bytes"] = "8000"
            if rng.random() < 0.3:
                configs["flush.ms"] = "500"
            self.topics[name] = (rng.randint(1, 2), configs)
            self.checker.policies[name] = min(flushed, flush_all) if flushed == NO_POLICY else flushed
        self.faults = WorldFaults(self.cluster, self.checker)
        self.scripts: list[Script] = []
        self.producers: list[WorkloadProducer] = []
        self.consumers: list[Consumer] = []
        self.admins: list[Admin] = []
        self.keyed: list[Keyed] = []

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """Topic and index of each partition of the scenario's own topics, without topics that administrators create."""
        return [(topic, index) for topic, (count, _) in self.topics.items() for index in range(count)]

    @property
    def faults_done(self) -> list[str]:
        """The names of the faults so far."""
        return self.faults.done

    @property
    def workers(self) -> list[Worker]:
        """The clients so far; the scenario starts them together and stops them before the audit."""
        return [*self.producers, *self.consumers, *self.admins, *self.keyed]

    @property
    def acknowledged(self) -> int:
        """Batches that were acknowledged."""
        return sum(producer.acknowledged for producer in self.producers)

    # -- the run

    def run(self) -> SeedResult:
        """Play the scenario and judge it. An exception in the run becomes a finding of the law `alive`."""
        try:
            self._play()
        except Exception as e:
            # An event failed: an assertion, a law of the product, or an unreadable response.
            self.world.note("world", traceback.format_exc())
            if not self.checker.findings:
                self.checker.broken("alive", "event", f"{type(e).__name__}: {e}")
        for failure in self.story.failures:
            self.checker.broken("alive", "log", failure)
        world = self.world
        findings = self.checker.judge() if not self.checker.findings else self.checker.findings
        return SeedResult(
            world.seed,
            len(self.cluster.machines),
            self.kind,
            findings,
            world.events,
            world.now_ms,
            world.hash,
            self.acknowledged,
            self.checker.records_read,
            self.faults_done,
            world.trace,
        )

    def _play(self) -> None:
        for machine in self.cluster.machines:
            machine.on_end = self._process_ended(machine)
            machine.start()
        self._until_serving()
        maker = Admin(self.cluster, self.checker, "maker", ())
        for name, (count, configs) in self.topics.items():
            self._finish(self._script("maker", maker.create_surely(name, count, configs)))
        self._compact_some(maker)
        self._start_clients()
        self._run_short()
        self.faults.script(self.scripts)
        if random.Random(f"stop of {self.world.seed}").random() < STOPPED_SHARE:
            self.faults.stop_during_flush(self.cluster.machines[0])
        self._heal()
        for worker in self.workers:
            worker.stopping = True
        for script in self.scripts:
            self._finish(script)
        if self.world.rng.random() < 0.5:
            self.faults.restart(self.cluster.machines[0])
        self._audit()
        self._judge_leftovers()

    def _judge_leftovers(self) -> None:
        """The law `idle`: nodes have IDLE_MAX_MS to end what goes on without clients."""
        machines = self.cluster.machines
        until_ms = self.world.now_ms + IDLE_MAX_MS
        while any(left_in(machine, len(machines)) for machine in machines) and self.world.now_ms < until_ms:
            self.world.rest(SETTLED_MS)
        for machine in machines:
            for what in left_in(machine, len(machines)):
                self.checker.broken("idle", machine.name, f"{IDLE_MAX_MS / 1000:.0f} s after the last request: {what}")

    def _compact_some(self, maker: Admin) -> None:
        """In some seeds, add a compacted topic and its client."""
        rng = random.Random(f"keyed of {self.world.seed}")  # own generator: other runs stay the same
        if self.kind == "node" and rng.random() < KEYED_SHARE:
            configs = topic_configs(rng)
            self._finish(self._script("maker", maker.create_surely(KEYED, 1, configs)))
            retention_ms = int(configs["delete.retention.ms"])
            self.keyed.append(Keyed(self.cluster, self.checker, "k0", f"{rng.random()}", retention_ms))

    def _run_short(self) -> None:
        """In some seeds, let clients take all descriptors for a while. No node may mistake that for a dead disk."""
        rng = random.Random(f"descriptors of {self.world.seed}")  # own generator: other runs stay the same
        if rng.random() < SHORT_SHARE:
            for machine in self.cluster.machines:
                self.world.at(rng.uniform(300.0, 4000.0), self._short, machine, rng.uniform(50.0, 800.0))

    def _short(self, machine: SimMachine, duration_ms: float) -> None:
        if not machine.serving:
            return
        self.world.note("faults", f"{machine.name} has no descriptor left for {duration_ms:.0f} ms")
        disk = machine.disk
        disk.short = True

        def over() -> None:
            disk.short = False

        self.world.at(duration_ms, over)

    def _process_ended(self, machine: SimMachine) -> Callable[[str], None]:
        def ended(how: str) -> None:
            self.checker.ends += 1
            if how == "stopped":
                self.checker.stopped_cleanly(machine.closed_cleanly())
            if machine.broken is not None:
                self.checker.broken("alive", machine.name, machine.broken)

        return ended

    def _script(self, name: str, work: Coroutine[Any, Any, None]) -> Script:
        return Script(self.world, name, work, self.cluster.client_host(name))

    def _start_clients(self) -> None:
        world, rng, cluster, checker = self.world, self.world.rng, self.cluster, self.checker
        for number in range(rng.randint(2, 4)):
            idempotent = number == 0 or (number == 2 and rng.random() < 0.5)
            acks = -1 if idempotent else rng.choice((0, 1, -1, -1))
            how: dict[str, Any] = {"acks": acks, "idempotent": idempotent, "by_id": rng.random() < 0.5}
            self.producers.append(WorkloadProducer(cluster, checker, f"p{number}", self.partitions, **how))
        counts = {topic: count for topic, (count, _) in self.topics.items()}
        for number in range(rng.randint(1, 3)):
            group = "g0" if number < 2 else "g1"
            self.consumers.append(Consumer(cluster, checker, f"c{number}", group, counts, sessions=rng.random() < 0.5))
        for number in range(rng.randint(0, 2)):
            self.admins.append(Admin(cluster, checker, f"a{number}", MORTAL_TOPICS))
        self._flood_some()
        for worker in self.workers:
            self.scripts.append(Script(world, worker.session.name, worker.run(), worker.session.host))

    def _flood_some(self) -> None:
        """Write more than the kernel of a machine with little memory allows to be dirty.

        Only to topics without flushes by count: a flush writes back, too.
        """
        unflushed = [partition for partition in self.partitions if self.checker.policies[partition[0]] == NO_POLICY]
        if unflushed and flood_bytes(self.cluster):
            self.producers.append(Flooder(self.cluster, self.checker, "flood", unflushed))

    def _heal(self) -> None:
        self.faults.heal()
        self._end_rare_paths()
        self._until_serving()

    def _end_rare_paths(self) -> None:
        if self.rare_paths is not None:
            self.rare_paths.end()

    def _until_serving(self) -> None:
        served = self.world.run(
            lambda: bool(self.checker.findings) or all(machine.serving for machine in self.cluster.machines),
            SERVES_MAX_MS,
        )
        self._stop_if_broken()
        assert served, f"no service after {SERVES_MAX_MS:.0f} ms without a fault"

    def _finish(self, script: Script) -> None:
        done = self.world.run(lambda: script.done or bool(self.checker.findings), DONE_MAX_MS)
        self._stop_if_broken()
        assert done, f"{script.name} is not done after {DONE_MAX_MS:.0f} ms without a fault"

    def _stop_if_broken(self) -> None:
        assert not self.checker.findings, "a law is broken"

    def _audit(self) -> None:
        self._until_serving()
        auditor = Auditor(self.cluster, self.checker, "auditor")
        groups = sorted({consumer.group for consumer in self.consumers})
        self._finish(self._script("auditor", auditor.run(self.partitions, groups)))
        self.world.rest(SETTLED_MS)
        for admin in self.admins[:1]:
            for topic in MORTAL_TOPICS:
                self._finish(self._script("admin", look_up(admin, topic)))
        for keyed in self.keyed:
            self._finish(self._script("reader", keyed.read()))
            self._let_a_key_sleep()
        self._spend()
        rng = random.Random(f"bulk of {self.world.seed}")
        if len(self.cluster.machines) == 1 and rng.random() < BULK_SHARE:
            self._handle_bulk(rng)

    def _let_a_key_sleep(self) -> None:
        """Check that a deleted value does not return once its tombstone is gone."""
        maker = Admin(self.cluster, self.checker, "maker", ())
        self._finish(self._script("maker", maker.create_surely(SLEEPING, 1, SLEEPING_CONFIGS)))
        keyed = Keyed(self.cluster, self.checker, "sleeper", f"sleeper of {self.world.seed}", 0, SLEEPING)
        for step in sleep(keyed):
            self._finish(self._script("sleeper", step))
            self.world.rest(CLEANED_MS)

    def _handle_bulk(self, rng: random.Random) -> None:
        """Do work that grows with partitions and segments; it must not run on the loop."""
        self.world.note("bulk", "begins")
        maker, bulk = Admin(self.cluster, self.checker, "maker", ()), Bulk(self.cluster, "bulk")
        self._finish(self._script("maker", maker.create_surely(CROWD, PARTITIONS, {})))
        self._finish(self._script("maker", maker.create_surely(LONG, 1, LONG_CONFIGS)))
        self._finish(self._script("bulk", bulk.fill()))
        end = rng.choice(("stop", "kill", None))
        if end is not None:
            self.faults.end(self.cluster.machines[0], end)
            self._until_serving()
        bulk = Bulk(self.cluster, "bulk")
        for work in (bulk.times, bulk.delete_records, bulk.delete_topics):
            self._finish(self._script("bulk", work()))
        self.world.rest(SETTLED_MS)

    def _spend(self) -> None:
        """Write more than retention keeps: the disk must get the rest back."""
        maker, spender = Admin(self.cluster, self.checker, "maker", ()), Spender(self.cluster, "spender")
        self._finish(self._script("maker", maker.create_surely(TOPIC, 1, CONFIGS)))
        self._finish(self._script("spender", spender.run()))
        until_ms = self.world.now_ms + FREED_MAX_MS
        while self.world.now_ms < until_ms and any(m.log_bytes(TOPIC, 0) > KEPT_MAX for m in self.cluster.machines):
            self.world.rest(SETTLED_MS)
        for machine in self.cluster.machines:
            for path, size in machine.disk.pinned().items():
                self.checker.broken("space", machine.name, f"{path} is deleted but open, and takes {size} bytes")
            kept = machine.log_bytes(TOPIC, 0)
            if kept > KEPT_MAX:
                self.checker.broken("space", machine.name, f"retention of {TOPIC} has left {kept} bytes")


async def look_up(admin: Admin, topic: str) -> None:
    """Request a topic's final state until an answer arrives."""
    while not await admin.look_up(topic, settled=True):
        await admin.session.sleep(100)
