"""The members of consumer groups in a cluster, of both protocols, and the laws for them at the end of the faults.

Members join, leave, die, and are paused; some are static, some subscribe by a regular expression. In some seeds a group
has members of the classic protocol, too, so that it changes its protocol both ways.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kraft_node.testing.groups.classic import ClassicMember
from kraft_node.testing.groups.member import SimulatedMember, Ways
from kraft_node.testing.groups.ownership import Ownership
from kraft_node.testing.groups.stability import coordinating, existing, unstable

if TYPE_CHECKING:
    from kraft_node.testing.cluster_scenario import ClusterScenario
    from kraft_node.testing.workloads.session import Worker

STABLE_MAX_MS: Final = 60_000.0
"""After all faults, each group is stable within this time."""
MIXED_SHARE, PATTERN_SHARE, STATIC_SHARE = 0.4, 0.3, 0.3
STATIC_LEAVES: Final = 0.15
"""How often a static member leaves for a while after a round: it comes back with a new id and takes over."""
PAUSES_MS: Final = (400.0, 2500.0, 6000.0)
"""Pauses of members; the longer ones outlast a session or a rebalance."""


def group_settings(rng: random.Random) -> dict[str, str]:
    """Short sessions, heartbeats and assignment intervals of groups of KIP-848."""
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


class GroupClients:
    """The members of all groups of one run."""

    def __init__(self, scenario: ClusterScenario, counts: Mapping[str, int], pattern: str) -> None:
        """`counts`: the partitions of the topics that members read, which may grow; `pattern` matches these topics."""
        self.ownerships: dict[str, Ownership] = {}
        self.members: list[SimulatedMember | ClassicMember] = []
        self._scenario = scenario
        self._counts = counts
        self._pattern = pattern

    def is_newest(self, node_id: int, group: str) -> bool:
        """Whether the node coordinates the group, and no later leader was elected."""
        return is_newest(self._scenario, node_id, group)

    def make(self, rng: random.Random) -> None:
        """Make the members of a group of KIP-848, and in some seeds of a group with both protocols."""
        self._make_group("pure", rng, classic=0)
        if rng.random() < MIXED_SHARE:
            self._make_group("mixed", rng, classic=rng.randint(1, 2))

    def _make_group(self, group: str, rng: random.Random, *, classic: int) -> None:
        cluster, checker = self._scenario.cluster, self._scenario.checker
        own = self.ownerships[group] = Ownership(checker, group, has_epochs=not classic)
        for number in range(rng.randint(2, 3)):
            name = f"{group}{number}"
            pattern = self._pattern if rng.random() < PATTERN_SHARE else None
            is_static = not classic and rng.random() < STATIC_SHARE
            ways = Ways(
                tuple(self._counts),
                pattern=pattern,
                instance_id=f"{name}-i" if is_static else None,
                assignor=rng.choice((None, None, "uniform", "range")),
                sessions=rng.random() < 0.5,
                leaves=rng.choice((0.0, 0.02, 0.05)) if not classic else 0.05,
                dies=rng.choice((0.0, 0.02)),
            )
            if is_static:
                ways = replace(ways, leaves=STATIC_LEAVES)
            self.members.append(SimulatedMember(cluster, checker, own, name, ways, self.is_newest))
        for number in range(classic):
            name, sessions = f"classic{number}", rng.random() < 0.5
            self.members.append(
                ClassicMember(cluster, checker, own, name, dict(self._counts), self.is_newest, sessions=sessions)
            )

    def pause_some(self, rng: random.Random) -> None:
        """Pause each member now and then until the faults are over."""
        for member in self.members:
            pause_sometimes(self._scenario, member, rng)

    # -- the end

    def settle(self) -> None:
        """Judge the law `settled`: each group gets stable while its members work, once all faults are over."""
        world, checker = self._scenario.world, self._scenario.checker
        for member in self.members:
            if isinstance(member, SimulatedMember):
                member.stays = True
        reached = world.run(
            lambda: bool(checker.findings) or (world.events % 16 == 0 and self.unstable() is None), STABLE_MAX_MS
        )
        why = None if checker.findings else self.unstable()
        if not reached and why is not None:
            checker.broken("settled", "cluster", f"{STABLE_MAX_MS / 1000:.0f} s after all faults {why}")

    def unstable(self) -> str | None:
        """Why not all groups are stable.

        The newest metadata names the partitions, not the operator who adds them: a broker may forward its last request
        again after the operator has given up.
        """
        image = self._scenario.troubles._newest_image()
        partitions = {} if image is None else existing(image.topics, self._counts)
        if len(partitions) < sum(self._counts.values()):
            return f"the metadata has {len(partitions)} of {sum(self._counts.values())} partitions"
        newest_epoch = self._scenario.laws.newest_epoch
        for group in self.ownerships:
            shards = [coordinating(machine, group, newest_epoch) for machine in self._scenario.cluster.brokers]
            shard = next((one for one in shards if one is not None), None)
            if shard is None:
                return f"{group} has no coordinator"
            why = unstable(shard.machine, group, partitions)
            if why is not None:
                return why
        return None

    def judge(self) -> None:
        """Judge the owners of all partitions."""
        for ownership in self.ownerships.values():
            ownership.judge()


def is_newest(scenario: ClusterScenario, node_id: int, group: str) -> bool:
    """Whether the node coordinates the group, and no later leader was elected."""
    for machine in scenario.cluster.brokers:
        if machine.config.node_id == node_id:
            return coordinating(machine, group, scenario.laws.newest_epoch) is not None
    return False


def pause_sometimes(scenario: ClusterScenario, member: Worker, rng: random.Random) -> None:
    """Pause a member now and then until the faults are over: the coordinator may give its partitions to others."""
    world = scenario.world

    def pause() -> None:
        if member.stopping or scenario.troubles.over:
            return
        pause_ms = rng.choice(PAUSES_MS)
        member.session.note(f"is paused for {pause_ms:.0f} ms")
        member.session.pause(pause_ms)
        world.at(pause_ms + rng.random() * 8000, pause)

    world.at(rng.random() * 3000, pause)


__all__ = ["GroupClients", "group_settings", "is_newest", "pause_sometimes"]
