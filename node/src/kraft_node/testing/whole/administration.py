"""The administrators of the whole world: they change a cluster under load, and what they changed is judged."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.whole.access import AclOperator, Guest
from kraft_node.testing.whole.aged import TOPIC as AGED
from kraft_node.testing.whole.directories import DirectoryOperator, unmoved
from kraft_node.testing.whole.growth import GrowthOperator
from kraft_node.testing.whole.quotas import QuotasOperator
from kraft_node.testing.whole.retained import TOPIC as KEPT
from kraft_node.testing.whole.settings import SettingsOperator, unapplied

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraft_node.testing.cluster_scenario import ClusterScenario
    from kraft_node.testing.whole.operators import ChangesOperator
    from kraft_node.testing.whole.parts import Parts

MOVED_MAX_MS: Final = 60_000.0
"""After all faults and requests, moves between directories have ended within this time."""
THROTTLED: Final = ("p0", "p1", "c0", "w0.1", "plain", "all", "a0", "rw0", "lw0")
"""Clients that may get a quota."""


class Administration:
    """All administrators that a run has."""

    def __init__(
        self,
        scenario: ClusterScenario,
        parts: Parts,
        counts: dict[str, int],
        movable: Callable[[], list[tuple[str, int]]],
    ) -> None:
        """`counts`: the partitions of the topics that the checker judges; they grow. `movable`: the partitions that may
        move between directories."""
        self._scenario = scenario
        cluster, checker = scenario.cluster, scenario.checker
        rng = random.Random(f"administration of {scenario.world.seed}")
        self.growth = (
            GrowthOperator(cluster, checker, "growth", rng, counts, scenario.partitions)
            if parts.growth else None
        )  # fmt: skip
        self.directories = DirectoryOperator(cluster, "directories", rng, movable) if parts.directories else None
        topics = [*scenario.topics, *scenario.other_topics]
        groups = ["pure"] if parts.groups else []
        changed = [name for name in topics if name not in (KEPT, AGED)]
        self.settings = (
            SettingsOperator(cluster, checker, "settings", rng, changed, groups)
            if parts.settings else None
        )  # fmt: skip
        self.quotas = QuotasOperator(cluster, checker, "quotas", rng, THROTTLED) if parts.quotas else None
        self.acls = AclOperator(cluster, "acls", rng) if parts.access else None
        self.guest = Guest(cluster, checker, "guest", rng) if parts.access else None

    @property
    def _operators(self) -> list[ChangesOperator]:
        found = (self.growth, self.directories, self.settings, self.quotas, self.acls)
        return [each for each in found if each is not None]

    @property
    def workers(self) -> list[Any]:
        """All of them."""
        return [*self._operators, *([] if self.guest is None else [self.guest])]

    def restore(self) -> None:
        """Stop all operators, and wait until they have made their last changes. All faults must be over."""
        scenario = self._scenario
        names = {each.session.name for each in self._operators}
        for operator in self._operators:
            operator.stopping = True
        for script in scenario.scripts:
            if script.name in names:
                scenario._finish(script)
        self._settle_growth()

    def _settle_growth(self) -> None:
        image = self._scenario.troubles._newest_image()
        if self.growth is not None and image is not None:
            self.growth.settle({topic.name: len(topic) for topic in image.topics})

    def judge(self) -> None:
        """Judge what was changed. The cluster must be at rest."""
        scenario = self._scenario
        brokers, checker, world = scenario.cluster.brokers, scenario.checker, scenario.world
        self._settle_growth()
        world.run(lambda: not any(unmoved(machine) for machine in brokers), MOVED_MAX_MS)
        for machine in brokers:
            for law, why in (("moved", unmoved(machine)), ("applied", unapplied(machine))):
                if why is not None:
                    checker.broken(law, machine.name, why)
        for operator in (self.settings, self.quotas):
            if operator is not None:
                scenario._finish(scenario._script("judge", operator.judge()))
        if self.guest is not None and self.acls is not None:
            scenario._finish(scenario._script("judge", self.guest.judge(self.acls)))


__all__ = ["Administration"]
