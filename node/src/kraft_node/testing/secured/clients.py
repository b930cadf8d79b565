"""The clients of a secured cluster: the users, the client that changes a password, the intruders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.client import Security
from kraft_node.testing.script import Script
from kraft_node.testing.secured.intruder import Intruder
from kraft_node.testing.secured.users import Rotator, Users

if TYPE_CHECKING:
    from kraft_node.testing.cluster_scenario import ClusterScenario

SESSIONS_MS: Final = (1500, 4000)


class SecuredClients:
    """From now on, all clients of the scenario's cluster log in."""

    def __init__(self, scenario: ClusterScenario) -> None:
        world, cluster = scenario.world, scenario.cluster
        self.users = Users(world)
        cluster.security = Security(self.users.login, lambda: world.now_ms)
        self.rotator = Rotator(cluster, self.users, "rotator")
        self.intruders = [Intruder(cluster, scenario.checker, self.users, f"x{number}") for number in range(2)]
        self._scenario = scenario

    @property
    def workers(self) -> list[Any]:
        """The client that changes the password, and the intruders."""
        return [self.rotator, *self.intruders]

    def judge(self) -> None:
        """Change the password a last time, and judge who gets in with which password. All faults must be over."""
        scenario = self._scenario
        self.rotator.stopping = True
        for script in scenario.scripts:
            if script.name == self.rotator.session.name:
                scenario._finish(script)
        scenario._finish(scenario._script("rotator", self._surely_changed()))
        host = self.intruders[0].session.host
        scenario._finish(Script(scenario.world, "judge", self.intruders[0].last_password(), host))

    async def _surely_changed(self) -> None:
        while not await self.rotator.change():
            await self.rotator.session.sleep(100)


__all__ = ["SESSIONS_MS", "SecuredClients"]
