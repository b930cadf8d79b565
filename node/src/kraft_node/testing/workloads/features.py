"""An operator that changes feature levels while the cluster works: metadata.version, mostly up, and ELR on.

It judges nothing: requests may be refused for many good reasons. It draws from its own generator.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from kraft_node.metadata.features import ELR_VERSION, LATEST_PRODUCTION_METADATA_VERSION, METADATA_VERSION
from kraft_node.testing.workloads.session import BOOTSTRAP, ClusterSession
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.testing.machine import SimCluster

UPDATE_FEATURES: Final = 2
"""API version."""
UPGRADE, SAFE_DOWNGRADE = 1, 2
ELR_SHARE, LOWERED_SHARE = 0.2, 0.15


class FeaturesOperator:
    """Sends requests through brokers, as Kafka's tool does."""

    def __init__(self, cluster: SimCluster, name: str, rng: random.Random, level: int) -> None:
        """`level`: the cluster's initial metadata.version."""
        self.session = ClusterSession(cluster, name)
        self.stopping = False
        self._rng = rng
        self._level = level

    async def run(self) -> None:
        """Request a change of a feature every 0.2 to 2.7 seconds until stopped; refusals are allowed."""
        rng = self._rng
        while not self.stopping:
            await self.session.sleep(200 + rng.random() * 2500)
            if rng.random() < ELR_SHARE:
                await self._update(ELR_VERSION, 1, UPGRADE)
            elif rng.random() < LOWERED_SHARE:
                await self._change(self._level - 1, SAFE_DOWNGRADE)
            elif self._level < LATEST_PRODUCTION_METADATA_VERSION:
                await self._change(rng.randint(self._level + 1, LATEST_PRODUCTION_METADATA_VERSION), UPGRADE)

    async def _change(self, level: int, kind: int) -> None:
        if await self._update(METADATA_VERSION, level, kind):
            self._level = level

    async def _update(self, feature: str, level: int, kind: int) -> bool:
        """Request a change. Returns whether the level certainly changed."""
        row = m.UpdateFeaturesRequest.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=kind)
        request = m.UpdateFeaturesRequest(timeout_ms=2000, feature_updates=[row])
        answer = await self.session.request(BOOTSTRAP, ApiKey.UPDATE_FEATURES, UPDATE_FEATURES, request)
        outcome = "no answer" if answer is None else ErrorCode(answer.error_code).name
        self.session.note(f"{feature} to {level}: {outcome}")
        return answer is not None and answer.error_code == ErrorCode.NONE
