"""One seeded run of a cluster with SASL on all listeners: between nodes by PLAIN, clients by PLAIN and SCRAM.

It is a `ClusterScenario` with short sessions. A password changes while clients log in with it, and intruders try to get
in. All laws of clusters hold, so clients get on in spite of logins that fail and sessions that end.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from kraft_node.testing.cluster_scenario import ClusterScenario
from kraft_node.testing.secured.clients import SESSIONS_MS, SecuredClients
from kraft_node.testing.secured.users import settings

if TYPE_CHECKING:
    from kraft_node.testing.world import World


class SecuredScenario(ClusterScenario):
    """A cluster that knows its clients."""

    kind = "secured"

    def __init__(self, world: World, story: Any) -> None:
        super().__init__(world, story)
        self.secured = SecuredClients(self)

    @property
    def releases_share(self) -> float:
        """None: older releases have no SCRAM."""
        return 0.0

    def more_overrides(self, seed: int) -> dict[str, str]:
        """SASL on all listeners, with sessions of one of the durations in SESSIONS_MS."""
        return settings(random.Random(f"sessions of {seed}").choice(SESSIONS_MS))

    @property
    def workers(self) -> list[Any]:
        """The clients of a cluster, the client that changes the password, and the intruders."""
        return [*super().workers, *self.secured.workers]

    def _before_the_end(self) -> None:
        self.secured.judge()


__all__ = ["SecuredScenario"]
