"""An operator that changes the transaction.version while producers work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.metadata.features import SUPPORTED_RANGES, TRANSACTION_VERSION
from kraft_node.testing.workloads.features import SAFE_DOWNGRADE, UPGRADE, FeaturesOperator

if TYPE_CHECKING:
    import random

    from kraft_node.testing.machine import SimCluster
    from kraft_node.testing.transactions.ledger import Ledger


class TransactionVersionOperator(FeaturesOperator):
    """Sends requests through brokers, as Kafka's tool does."""

    def __init__(self, cluster: SimCluster, ledger: Ledger, name: str, rng: random.Random) -> None:
        super().__init__(cluster, name, rng, 0)
        self._ledger = ledger

    async def run(self) -> None:
        """Request any supported level every 0.5 to 4.5 seconds until stopped; refusals are allowed."""
        rng = self._rng
        while not self.stopping:
            await self.session.sleep(500 + rng.random() * 4000)
            level = rng.randint(0, SUPPORTED_RANGES[TRANSACTION_VERSION].max_level)
            self._ledger.version_asked_ms = self.session.world.now_ms
            await self._update(TRANSACTION_VERSION, level, rng.choice((UPGRADE, SAFE_DOWNGRADE)))
