"""The users of a simulated cluster: who they are, and which passwords they have now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.workloads.session import BOOTSTRAP, ClusterSession
from kraft_protocol.sasl import scram
from kraft_protocol.sasl.client import Credentials, PlainCredentials
from kraft_protocol.sasl.jaas import written
from kraft_protocol.sasl.login import SaslLogin
from kraft_protocol.sasl.properties import MODULES
from kraft_protocol.sasl.scram import ITERATIONS_MIN, NUMBERS, ScramCredentials
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.testing.machine import SimCluster
    from kraft_node.testing.world import World
    from kraft_protocol.client.session import Login

NODE, CLIENT = ("node", "of-nodes"), ("client", "of-clients")
"""Users of PLAIN with their passwords."""
SCRAM_USER: Final = "carol"
MECHANISM: Final = "SCRAM-SHA-256"


def settings(session_ms: int, more_users: Mapping[str, str] | None = None) -> dict[str, str]:
    """Keys of nodes with SASL on all listeners; sessions of clients end after `session_ms`.

    `more_users`: further users of PLAIN with their passwords.
    """
    users = {f"user_{name}": password for name, password in (NODE, CLIENT, *(more_users or {}).items())}
    entry = written(MODULES["PLAIN"], {"username": NODE[0], "password": NODE[1], **users})
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.plaintext.sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": entry,
        "listener.name.controller.plain.sasl.jaas.config": entry,
        "connections.max.reauth.ms": str(session_ms),
    }


class Users:
    """What clients know of passwords."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.passwords: list[str] = []
        """Passwords of the SCRAM user that a broker may have: the last one acknowledged, and later ones in doubt."""
        self.doubtful: list[str] = []
        """Passwords of requests without an answer. A broker may still forward one, so that it replaces a later one."""
        self.old: str | None = None
        """Passwords that are not valid any more, once brokers have read the metadata."""
        self.is_calm = False
        """Whether honest clients always use PLAIN from now on, so that no connection ends when it logs in again."""

    def login(self) -> Login:
        """A login of an honest client: by PLAIN, or by SCRAM with a password that may be valid."""
        if self.passwords and not self.is_calm and self._world.rng.random() < 0.5:
            return SaslLogin(self.scram(self._world.rng.choice(self.passwords)), "host")
        return SaslLogin(PlainCredentials(*CLIENT), "host")

    def scram(self, password: str) -> Credentials:
        """Credentials of the SCRAM user with this password, valid or not."""
        return ScramCredentials(MECHANISM, SCRAM_USER, password, self._world.rng.randbytes)


class Rotator:
    """Changes the SCRAM user's password while clients work."""

    def __init__(self, cluster: SimCluster, users: Users, name: str) -> None:
        self.session = ClusterSession(cluster, name)
        self.users = users
        self.stopping = False
        self._rng = cluster.world.rng
        self._number = 0

    async def run(self) -> None:
        """Change the password every 0.5 to 3 seconds until stopped."""
        while not self.stopping:
            await self.change()
            await self.session.sleep(500 + self._rng.random() * 2500)

    async def change(self) -> bool:
        """Set a new password once; returns whether that was acknowledged. Without an answer it is in doubt."""
        self._number += 1
        password = f"password-{self._number}"
        salt = self._rng.randbytes(16)
        salted = scram.salted_password(scram.ALGORITHMS[MECHANISM], password, salt, ITERATIONS_MIN)
        aus = m.AlterUserScramCredentialsRequest
        row = aus.ScramCredentialUpsertion(SCRAM_USER, NUMBERS[MECHANISM], ITERATIONS_MIN, salt, salted)
        self.users.passwords.append(password)
        key = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
        answer: Any = await self.session.request(BOOTSTRAP, key, 0, aus([], [row]))
        if answer is None or answer.results[0].error_code:
            self.users.doubtful.append(password)
            return False
        self.users.old = self.users.passwords[0] if self.users.passwords[0] != password else self.users.old
        del self.users.passwords[:-1]
        self.session.note(f"{SCRAM_USER} has {password}")
        return True
