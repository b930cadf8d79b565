"""One seeded run of a cluster with consumer groups (KIP-848) under all faults.

It is a `ClusterScenario` with other consumers: the members of `GroupClients`. When all faults are over, and before the
members stop, each group gets stable.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.cluster_scenario import OFFSETS, ClusterScenario
from kraft_node.testing.groups.clients import GroupClients, group_settings
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
PARTITIONS: Final = {"t": 4, "u": 2}
PATTERN: Final = "[tu]"
REFUSED_SHARE: Final = 0.5
"""Share of the seeds in which appends of coordinators fail now and then."""


class GroupScenario(ClusterScenario):
    """A cluster and the members of its groups."""

    kind = "groups"

    def __init__(self, world: World, story: Any) -> None:
        super().__init__(world, story)
        self.topics = {name: (count, self.topics[name][1]) for name, count in PARTITIONS.items()}
        self.troubles.events = EVENTS
        self.groups = GroupClients(self, PARTITIONS, PATTERN)

    @property
    def releases_share(self) -> float:
        """None: older releases do not serve the protocol."""
        return 0.0

    def more_overrides(self, seed: int) -> dict[str, str]:
        """Short sessions, heartbeats and assignment intervals (KIP-848), drawn by a generator of its own."""
        return group_settings(random.Random(f"groups of {seed}"))

    @property
    def workers(self) -> list[Any]:
        """Producers, members of both protocols, and operators. There are no other consumers and no administrators."""
        return [*self.producers, *self.groups.members, *self.operators]

    def _start_clients(self) -> None:
        world, cluster, checker = self.world, self.cluster, self.checker
        rng = random.Random(f"members of {world.seed}")
        for number in range(2):
            how: dict[str, Any] = {"acks": -1, "idempotent": number == 0, "by_id": rng.random() < 0.5}
            self.producers.append(WorkloadProducer(cluster, checker, f"p{number}", self.partitions, **how))
        self.groups.make(rng)
        if rng.random() < 0.4:
            self.operators.append(ReassignmentOperator(cluster, "o0", [*self.partitions, (OFFSETS, 0)]))
        if cluster.dynamic:
            self.operators.append(VotersOperator(cluster, "v0"))
        for worker in self.workers:
            self.scripts.append(Script(world, worker.session.name, worker.run(), worker.session.host))
        self.groups.pause_some(rng)
        AppendRefusals(self, lambda broker: [broker.groups.runtime], REFUSED_SHARE)

    def _before_the_end(self) -> None:
        self.groups.settle()
        self._stop_if_broken()

    def _audit(self) -> None:
        self.groups.judge()
        auditor = Auditor(self.cluster, self.checker, "auditor")
        self._finish(self._script("auditor", auditor.run(self.partitions, sorted(self.groups.ownerships))))
