"""One seeded run of a cluster with SASL on all listeners: between nodes by PLAIN, clients by PLAIN and SCRAM.

It is a `ClusterScenario` with short sessions. A password changes while clients log in with it, and intruders try to get
in. All laws of clusters hold, so clients get on in spite of logins that fail and sessions that end.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.client import Security
from kraft_node.testing.cluster_scenario import ClusterScenario
from kraft_node.testing.script import Script
from kraft_node.testing.secured.intruder import Intruder
from kraft_node.testing.secured.users import Rotator, Users, settings

if TYPE_CHECKING:
    from kraft_node.testing.world import World

SESSIONS_MS: Final = (1500, 4000)


class SecuredScenario(ClusterScenario):
    """A cluster that knows its clients."""

    kind = "secured"
    releases_share = 0.0  # older releases have no SCRAM

    def __init__(self, world: World, story: Any) -> None:
        super().__init__(world, story)
        self.users = Users(world)
        self.cluster.security = Security(self.users.login, lambda: world.now_ms)
        self.rotator = Rotator(self.cluster, self.users, "rotator")
        self.intruders = [Intruder(self.cluster, self.checker, self.users, f"x{number}") for number in range(2)]

    def more_overrides(self, seed: int) -> dict[str, str]:
        """SASL on all listeners, with sessions of one of the durations in SESSIONS_MS."""
        return settings(random.Random(f"sessions of {seed}").choice(SESSIONS_MS))

    @property
    def workers(self) -> list[Any]:
        """The clients of a cluster, the client that changes the password, and the intruders."""
        return [*super().workers, self.rotator, *self.intruders]

    def _before_the_end(self) -> None:
        self.rotator.stopping = True
        for script in self.scripts:
            if script.name == self.rotator.session.name:
                self._finish(script)
        self._finish(self._script("rotator", self._surely_changed()))
        host = self.intruders[0].session.host
        self._finish(Script(self.world, "judge", self.intruders[0].last_password(), host))

    async def _surely_changed(self) -> None:
        while not await self.rotator.change():
            await self.rotator.session.sleep(100)


__all__ = ["SecuredScenario"]
