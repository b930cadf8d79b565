"""One seeded run of a cluster with consumer groups (KIP-848) under all faults.

It is a `ClusterScenario` with other consumers: members that join, leave, die, and are paused; static members;
subscriptions by regular expressions; both assignors. In some seeds a group has members of the classic protocol, too, so
that it changes its protocol both ways. When all faults are over, and before the members stop, each group gets stable.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.cluster_scenario import OFFSETS, ClusterScenario
from kraft_node.testing.groups.classic import ClassicMember
from kraft_node.testing.groups.member import SimulatedMember, Ways
from kraft_node.testing.groups.ownership import Ownership
from kraft_node.testing.groups.stability import coordinating, unstable
from kraft_node.testing.lost_appends import AppendRefusals
from kraft_node.testing.script import Script
from kraft_node.testing.workloads.auditor import Auditor
from kraft_node.testing.workloads.producer import WorkloadProducer
from kraft_node.testing.workloads.reassignments import ReassignmentOperator
from kraft_node.testing.workloads.voters import VotersOperator

if TYPE_CHECKING:
    from kraft_node.testing.world import World

EVENTS: Final = 6_000
"""The number of events during which faults begin: groups take longer than single requests."""
STABLE_MAX_MS: Final = 60_000.0
"""After all faults, each group is stable within this time."""
PARTITIONS: Final = {"t": 4, "u": 2}
PATTERN: Final = "[tu]"
MIXED_SHARE, PATTERN_SHARE, STATIC_SHARE = 0.4, 0.3, 0.3
STATIC_LEAVES: Final = 0.15
"""How often a static member leaves for a while after a round: it comes back with a new id and takes over."""
REFUSED_SHARE: Final = 0.5
"""Share of the seeds in which appends of coordinators fail now and then."""
PAUSES_MS: Final = (400.0, 2500.0, 6000.0)
"""Pauses of members; the longer ones outlast a session or a rebalance."""


class GroupScenario(ClusterScenario):
    """A cluster and the members of its groups."""

    kind = "groups"
    releases_share = 0.0  # older releases do not serve the protocol

    def __init__(self, world: World, story: Any) -> None:
        super().__init__(world, story)
        self.topics = {name: (count, self.topics[name][1]) for name, count in PARTITIONS.items()}
        self.troubles.events = EVENTS
        self.ownerships: dict[str, Ownership] = {}
        self.members: list[SimulatedMember | ClassicMember] = []

    def more_overrides(self, seed: int) -> dict[str, str]:
        """Short sessions, heartbeats and assignment intervals (KIP-848), drawn by a generator of its own."""
        rng = random.Random(f"groups of {seed}")
        return {
            "offsets.topic.num.partitions": str(rng.choice((1, 2))),
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": str(rng.choice((1500, 3000))),
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": str(rng.choice((150, 400))),
            "group.consumer.assignment.interval.ms": str(rng.choice((0, 0, 1000))),
            "group.consumer.regex.refresh.interval.ms": "10000",
            "group.coordinator.append.linger.ms": str(rng.choice((-1, 0, 5))),
            "log.cleaner.backoff.ms": "500",
        }

    @property
    def workers(self) -> list[Any]:
        """Producers, members of both protocols, and operators. There are no other consumers and no administrators."""
        return [*self.producers, *self.members, *self.operators]

    def _is_newest(self, node_id: int, group: str) -> bool:
        """Whether the node coordinates the group, and no later leader was elected."""
        for machine in self.cluster.brokers:
            if machine.config.node_id == node_id:
                return coordinating(machine, group, self.laws.newest_epoch) is not None
        return False

    def _start_clients(self) -> None:
        world, cluster, checker = self.world, self.cluster, self.checker
        rng = random.Random(f"members of {world.seed}")
        for number in range(2):
            how: dict[str, Any] = {"acks": -1, "idempotent": number == 0, "by_id": rng.random() < 0.5}
            self.producers.append(WorkloadProducer(cluster, checker, f"p{number}", self.partitions, **how))
        self._join_group("pure", rng, classic=0)
        if rng.random() < MIXED_SHARE:
            self._join_group("mixed", rng, classic=rng.randint(1, 2))
        if rng.random() < 0.4:
            self.operators.append(ReassignmentOperator(cluster, "o0", [*self.partitions, (OFFSETS, 0)]))
        if cluster.dynamic:
            self.operators.append(VotersOperator(cluster, "v0"))
        for worker in self.workers:
            self.scripts.append(Script(world, worker.session.name, worker.run(), worker.session.host))
        for member in self.members:
            world.at(rng.random() * 3000, self._pause, member, rng)
        AppendRefusals(self, lambda broker: [broker.groups.runtime], REFUSED_SHARE)

    def _join_group(self, group: str, rng: random.Random, *, classic: int) -> None:
        cluster, checker = self.cluster, self.checker
        own = self.ownerships[group] = Ownership(checker, group, has_epochs=not classic)
        for number in range(rng.randint(2, 3)):
            name = f"{group}{number}"
            pattern = PATTERN if rng.random() < PATTERN_SHARE else None
            is_static = not classic and rng.random() < STATIC_SHARE
            ways = Ways(
                tuple(PARTITIONS),
                pattern=pattern,
                instance_id=f"{name}-i" if is_static else None,
                assignor=rng.choice((None, None, "uniform", "range")),
                sessions=rng.random() < 0.5,
                leaves=rng.choice((0.0, 0.02, 0.05)) if not classic else 0.05,
                dies=rng.choice((0.0, 0.02)),
            )
            if is_static:
                ways = replace(ways, leaves=STATIC_LEAVES)
            self.members.append(SimulatedMember(cluster, checker, own, name, ways, self._is_newest))
        for number in range(classic):
            name, sessions = f"classic{number}", rng.random() < 0.5
            self.members.append(
                ClassicMember(cluster, checker, own, name, dict(PARTITIONS), self._is_newest, sessions=sessions)
            )

    def _pause(self, member: SimulatedMember | ClassicMember, rng: random.Random) -> None:
        """Pause a member now and then: the coordinator may give its partitions to others."""
        if member.stopping or self.troubles.over:
            return
        pause_ms = rng.choice(PAUSES_MS)
        member.session.note(f"is paused for {pause_ms:.0f} ms")
        member.session.host.paused_until_ms = self.world.now_ms + pause_ms
        self.world.at(pause_ms + rng.random() * 8000, self._pause, member, rng)

    # -- the end

    def _before_the_end(self) -> None:
        for member in self.members:
            if isinstance(member, SimulatedMember):
                member.stays = True
        reached = self.world.run(
            lambda: bool(self.checker.findings) or (self.world.events % 16 == 0 and self._unstable() is None),
            STABLE_MAX_MS,
        )
        self._stop_if_broken()
        why = self._unstable()
        if not reached and why is not None:
            self.checker.broken("settled", "cluster", f"{STABLE_MAX_MS / 1000:.0f} s after all faults {why}")
        self._stop_if_broken()

    def _unstable(self) -> str | None:
        """Why not all groups are stable."""
        for group in self.ownerships:
            shards = [coordinating(machine, group, self.laws.newest_epoch) for machine in self.cluster.brokers]
            shard = next((one for one in shards if one is not None), None)
            if shard is None:
                return f"{group} has no coordinator"
            why = unstable(shard.machine, group, sum(PARTITIONS.values()))
            if why is not None:
                return why
        return None

    def _audit(self) -> None:
        for ownership in self.ownerships.values():
            ownership.judge()
        auditor = Auditor(self.cluster, self.checker, "auditor")
        self._finish(self._script("auditor", auditor.run(self.partitions, sorted(self.ownerships))))
