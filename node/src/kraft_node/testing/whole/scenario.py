"""One seeded run of the whole world: the clients and laws of all scenarios of clusters, on one cluster.

It is a `ClusterScenario` with more clients and more faults. The seed draws which parts it has (`parts`). All laws of
the other scenarios hold, and those of the modules of this room.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from kraft_node.metadata.features import TRANSACTION_VERSION
from kraft_node.testing.cluster_scenario import OFFSETS, RELEASES_SHARE, ClusterScenario
from kraft_node.testing.groups.clients import GroupClients, group_settings
from kraft_node.testing.lost_appends import AppendRefusals
from kraft_node.testing.secured.clients import SESSIONS_MS, SecuredClients
from kraft_node.testing.secured.users import settings as sasl_settings
from kraft_node.testing.transactions.clients import (
    COMPACTED,
    STATE,
    VERSIONS,
    TransactionClients,
    transaction_settings,
)
from kraft_node.testing.whole import access, aged, lossy, retained
from kraft_node.testing.whole.administration import Administration
from kraft_node.testing.whole.cooperative import GROUP as COOPERATIVE
from kraft_node.testing.whole.cooperative import CooperativeClients
from kraft_node.testing.whole.faults import WholeFaults
from kraft_node.testing.whole.parts import parts_of
from kraft_node.testing.whole.resources import extra_connections, opened_often, unfreed
from kraft_node.testing.whole.statics import GROUP as STATIC
from kraft_node.testing.whole.statics import StaticConsumer, make_statics

if TYPE_CHECKING:
    from kraft_node.testing.world import World

EVENTS, FAULTS_MIN = 4_000, (4, 6, 10)
"""Faults begin during so many events, and until there are so many of them."""
REFUSED_SHARE: Final = 0.3
"""Share of the seeds in which appends of coordinators fail now and then."""
PREFIX: Final = "x"
"""Of topics that only clients of transactions use."""
PATTERN: Final = "[tu]"
"""Matches the topics that members of groups read."""
RESOURCES_MAX_MS: Final = 70_000.0
"""After all clients, deleted files are gone within this time: the default of `file.delete.delay.ms`, and some."""
MOVED_INTERNAL_SHARE: Final = 0.5
"""Share of the seeds in which partitions of internal topics are moved, too."""


class WholeScenario(ClusterScenario):
    """A cluster with everything."""

    kind = "whole"
    compacted = frozenset((OFFSETS, STATE, f"{PREFIX}{COMPACTED}"))
    injector = WholeFaults

    def __init__(self, world: World, story: Any) -> None:
        self.parts = parts_of(world.seed)
        super().__init__(world, story)
        world.note("world", f"has {self.parts}")
        parts, self._rng = self.parts, random.Random(f"whole of {world.seed}")
        self.troubles.events = EVENTS
        self.troubles.least = random.Random(f"faults of {world.seed}").choice(FAULTS_MIN)
        self.secured = SecuredClients(self) if parts.secured else None
        self.transactions = TransactionClients(self, PREFIX) if parts.transactions else None
        self.counts = {topic: count for topic, (count, _) in self.topics.items()}
        """Partitions of the topics that the checker judges; they may grow."""
        self._own = super().partitions
        self.groups = GroupClients(self, self.counts, PATTERN) if parts.groups else None
        self.lossy = lossy.LossyClients(self.cluster, self.checker, self.laws) if parts.lossy else None
        self.retained = retained.RetainedClients(self) if parts.retained else None
        self.aged = aged.AgedClients(self) if parts.aged else None
        self.cooperative = CooperativeClients(self, self.counts) if parts.cooperative else None
        self.statics: list[StaticConsumer] = []
        self.administration = Administration(self, parts, self.counts, lambda: self.movable)

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """The partitions that the checker judges: always the same list, which grows."""
        return self._own

    # -- what the seed draws

    @property
    def releases_share(self) -> float:
        """None with logins or groups of KIP-848: older releases do not have them."""
        return 0.0 if self.parts.secured or self.parts.groups else RELEASES_SHARE

    @property
    def directories_share(self) -> float:
        """All or nothing: it is a part."""
        return float(self.parts.directories)

    def more_overrides(self, seed: int) -> dict[str, str]:
        """The keys of the parts."""
        parts, rng = self.parts, random.Random(f"keys of {seed}")
        found: dict[str, str] = {"log.segment.delete.delay.ms": str(rng.choice((0, 300, 5000)))}
        if parts.groups:
            found |= group_settings(rng)
        if parts.transactions:
            found |= transaction_settings(rng)
        if parts.secured:
            guests = dict((access.GUEST,)) if parts.access else {}
            found |= sasl_settings(rng.choice(SESSIONS_MS), guests)
        if parts.access:
            found |= access.KEYS
        if parts.retained or parts.aged:
            found |= retained.KEYS
        return found

    def features(self, seed: int) -> dict[str, int]:
        """The transaction.version of the formatted disks."""
        if not self.parts.transactions:
            return {}
        return {TRANSACTION_VERSION: random.Random(f"transaction.version of {seed}").choice(VERSIONS)}

    @property
    def other_topics(self) -> dict[str, tuple[int, dict[str, str]]]:
        """The topics of the parts."""
        parts = self.parts
        found = {} if self.transactions is None else dict(self.transactions.topics)
        if parts.lossy:
            found |= lossy.topics(random.Random(f"lossy topic of {self.world.seed}"))
        if parts.retained:
            found |= retained.topics()
        if parts.aged:
            found |= aged.topics(self.world.seed)
        if parts.access:
            found |= access.TOPICS
        return found

    @property
    def movable(self) -> list[tuple[str, int]]:
        """All partitions; in some seeds, also of the internal topics."""
        others = [(topic, index) for topic, (count, _) in self.other_topics.items() for index in range(count)]
        internal = [(OFFSETS, 0), (STATE, 0)] if self._rng.random() < MOVED_INTERNAL_SHARE else []
        return [*self.partitions, *others, *internal]

    @property
    def groups_read(self) -> list[str]:
        """All groups that read topics of the checker."""
        found = ["g0", *(() if self.groups is None else sorted(self.groups.ownerships))]
        of_parts = {STATIC: self.parts.statics, COOPERATIVE: self.parts.cooperative}
        return [*found, *(group for group, is_there in of_parts.items() if is_there)]

    # -- clients

    @property
    def acknowledged(self) -> int:
        """Batches acknowledged to all producers."""
        more = (self.transactions, self.retained, self.aged)
        return super().acknowledged + sum(each.acknowledged for each in more if each is not None)

    @property
    def workers(self) -> list[Any]:
        """All clients and operators."""
        found = super().workers
        if self.transactions is not None:
            found += self.transactions.workers + self.transactions.operators
        if self.groups is not None:
            found += self.groups.members
        if self.cooperative is not None:
            found += self.cooperative.members
        for part in (self.secured, self.lossy, self.retained, self.aged):
            if part is not None:
                found += part.workers
        return found + self.statics + self.administration.workers

    def _start_clients(self) -> None:
        rng = random.Random(f"clients of {self.world.seed}")
        if self.transactions is not None:
            self.transactions.make(rng)
        if self.groups is not None:
            self.groups.make(rng)
        if self.parts.statics:
            self.statics = make_statics(self.cluster, self.checker, self.counts, rng)
        if self.cooperative is not None:
            self.cooperative.make()
        super()._start_clients()
        if self.transactions is not None:
            self.transactions.pause_some(rng)
        if self.groups is not None:
            self.groups.pause_some(rng)
        if self.cooperative is not None:
            self.cooperative.pause_some()
        AppendRefusals(self, lambda broker: [broker.transactions.runtime, broker.groups.runtime], REFUSED_SHARE)

    # -- the end

    def _before_the_end(self) -> None:
        self.administration.restore()
        if self.secured is not None:
            self.secured.users.is_calm = (
                True  # a member whose heartbeat has no answer joins again: no group would settle
            )
        for part in (self.groups, self.cooperative):
            if part is not None:
                part.settle()
                self._stop_if_broken()
        if self.secured is not None:
            self.secured.judge()

    def _audit(self) -> None:
        if self.groups is not None:
            self.groups.judge()
        if self.cooperative is not None:
            self.cooperative.ownership.judge()
        super()._audit()
        if self.transactions is not None:
            self.transactions.audit()
        for part in (self.lossy, self.retained, self.aged):
            if part is not None:
                part.judge()
        self.administration.judge()
        self._stop_if_broken()
        self._judge_resources()

    def _judge_resources(self) -> None:
        """The laws of resources; nodes have RESOURCES_MAX_MS to delete files."""
        machines = self.cluster.brokers
        self.world.run(lambda: not any(unfreed(machine) for machine in machines), RESOURCES_MAX_MS)
        for machine in self.cluster.machines:
            for law, why in (
                ("space", unfreed(machine)), ("descriptors", opened_often(machine)),
                ("idle", extra_connections(self.cluster, machine)),
            ):  # fmt: skip
                if why is not None:
                    self.checker.broken(law, machine.name, why)


__all__ = ["WholeScenario"]
