"""One seeded run of a cluster with transactions: producers, applications that copy, and readers, under all faults.

It is a `ClusterScenario` with the clients of `TransactionClients`. The seed also draws the transaction.version, which
an operator may change during the run, and the time-outs. Once the faults are over, all transactions must end: by their
producers, or by their time-outs. Then the logs are read and judged (`judge`, `node_laws`).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from kraft_node.metadata.features import TRANSACTION_VERSION
from kraft_node.testing.cluster_scenario import OFFSETS, ClusterScenario
from kraft_node.testing.lost_appends import AppendRefusals
from kraft_node.testing.script import Script
from kraft_node.testing.transactions.clients import (
    COMPACTED,
    STATE,
    VERSIONS,
    TransactionClients,
    transaction_settings,
)
from kraft_node.testing.workloads.reassignments import ReassignmentOperator
from kraft_node.testing.workloads.voters import VotersOperator

if TYPE_CHECKING:
    from kraft_node.testing.world import World

EVENTS: Final = 2_500
"""The number of events during which faults begin: transactions take longer than single batches."""
REFUSED_SHARE: Final = 0.3
"""Share of the seeds in which appends of coordinators fail now and then."""
WARM_SHARE, WARM_BATCHES, WARM_MAX_MS = 0.7, 10, 5_000.0
"""In this share of the seeds the faults begin after so many batches: the internal topics exist by then."""


class TransactionScenario(ClusterScenario):
    """A cluster and clients that use transactions."""

    kind = "transactions"
    compacted = frozenset((OFFSETS, STATE, COMPACTED))

    def __init__(self, world: World, story: Any) -> None:
        super().__init__(world, story)
        self.transactions = TransactionClients(self)
        self.topics = self.transactions.topics
        self.checker.policies.clear()
        self.troubles.events = EVENTS

    def more_overrides(self, seed: int) -> dict[str, str]:
        """Intervals and limits of the transaction coordinator, drawn by a generator of its own."""
        return transaction_settings(random.Random(f"transactions of {seed}"))

    def features(self, seed: int) -> dict[str, int]:
        """The transaction.version of the formatted disks, from VERSIONS."""
        return {TRANSACTION_VERSION: random.Random(f"transaction.version of {seed}").choice(VERSIONS)}

    @property
    def acknowledged(self) -> int:
        """Batches acknowledged to all kinds of producers of this scenario."""
        return self.transactions.acknowledged

    @property
    def workers(self) -> list[Any]:
        """Writers, copiers, readers and operators; the clients of `ClusterScenario` are absent."""
        return [*self.transactions.workers, *self.operators]

    def _start_clients(self) -> None:
        world, cluster = self.world, self.cluster
        rng = random.Random(f"clients of {world.seed}")
        self.transactions.make(rng)
        self.operators += self.transactions.operators  # type: ignore[arg-type]
        if rng.random() < 0.4:
            self.operators.append(ReassignmentOperator(cluster, "o0", [*self.partitions, (STATE, 0), (OFFSETS, 0)]))
        if cluster.dynamic:
            self.operators.append(VotersOperator(cluster, "v0"))
        for worker in self.workers:
            self.scripts.append(Script(world, worker.session.name, worker.run(), worker.session.host))
        self.transactions.pause_some(rng)
        AppendRefusals(self, lambda broker: [broker.transactions.runtime, broker.groups.runtime], REFUSED_SHARE)
        if rng.random() < WARM_SHARE:
            self.world.run(lambda: bool(self.checker.findings) or self.acknowledged >= WARM_BATCHES, WARM_MAX_MS)

    def _audit(self) -> None:
        self.transactions.audit()
