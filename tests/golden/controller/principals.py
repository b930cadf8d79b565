"""Both servers with users who log in: by SCRAM, by PLAIN, by a certificate with a mapped name, and by one without.

The requests are those of `tests.golden.controller.authorization`, where clients are hosts.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kraft_node.security.names import Operation, PatternType, Permission, ResourceType
from kraft_protocol.client.blocking import BlockingConnection
from kraft_protocol.client.properties import client_security
from kraft_protocol.client.session import Software
from kraft_protocol.wire import messages as m
from tests.certificates import Authority
from tests.compat.security.secured import PASSWORDS, Secured, jaas, listener_properties, lone
from tests.compat.targets import free_ports
from tests.golden.broker.pair import Side
from tests.golden.controller import authorization as who

SUPER, NOTHING, SOME, IMPLIED, LOOKS, STRANGER = "root", "nothing", "some", "implied", "looks", "stranger"
USERS: Final = (SUPER, NOTHING, SOME, IMPLIED, LOOKS, STRANGER)
PRINCIPALS: Final = {name: f"User:{name}" for name in USERS} | {STRANGER: "User:CN=stranger,OU=Guests,O=Elsewhere"}
SUBJECTS: Final = {IMPLIED: "CN=IMPLIED,OU=Ops,O=Example", STRANGER: "CN=stranger,OU=Guests,O=Elsewhere"}
"""Users of certificates; the first one's name is mapped to lower case."""
MECHANISMS: Final = {SUPER: "SCRAM-SHA-512", NOTHING: "SCRAM-SHA-256", SOME: "SCRAM-SHA-512", LOOKS: "PLAIN"}
_OF_HOSTS: Final = {who.NOTHING: NOTHING, who.SOME: SOME, who.IMPLIED: IMPLIED, who.LOOKS: LOOKS}
_L, _P = PatternType.LITERAL, PatternType.PREFIXED
ACLS: Final = (
    *(
        (kind, name, pattern, PRINCIPALS[_OF_HOSTS[host]], operation, permission)
        for kind, name, pattern, host, operation, permission in who.ACLS
        if host in _OF_HOSTS
    ),
    # Entries for everybody; the super user is exempt from those that deny.
    (ResourceType.TOPIC, "other", _L, "User:*", Operation.DESCRIBE_CONFIGS, Permission.DENY),
    (ResourceType.GROUP, "h", _L, "User:*", Operation.DESCRIBE, Permission.ALLOW),
    (ResourceType.TOPIC, "shared-", _P, PRINCIPALS[STRANGER], Operation.READ, Permission.ALLOW),
    (ResourceType.TOPIC, "shared-secret", _L, PRINCIPALS[STRANGER], Operation.READ, Permission.DENY),
    (ResourceType.CLUSTER, "kafka-cluster", _L, PRINCIPALS[STRANGER], Operation.IDEMPOTENT_WRITE, Permission.ALLOW),
    (ResourceType.TOPIC, "mine", _L, "User:stranger", Operation.ALL, Permission.ALLOW),
    (ResourceType.TOPIC, "mine", _L, "User:IMPLIED", Operation.ALL, Permission.ALLOW),
)
"""The last two name nobody: a certificate's whole subject, or its mapped name, is the principal."""

SETTINGS: Final = {
    **who.SETTINGS,
    "allow.everyone.if.no.acl.found": "false",
    "super.users": f"User:{SUPER};User:broker;User:ANONYMOUS",
    "ssl.principal.mapping.rules": r"RULE:^CN=(.*?),OU=Ops,O=Example$/$1/L,DEFAULT",
    "listener.name.secure.ssl.client.auth": "required",
    "quota.window.num": "11",
}
"""ANONYMOUS is the test itself, on the plain listener."""


def password(user: str) -> str:
    return f"planted-{user}"


def token_password(hmac: bytes) -> str:
    """The password of a delegation token with this HMAC."""
    return base64.b64encode(bytes(hmac)).decode()


def server(
    kind: str, folder: Path, authority: Authority, mechanisms: Mapping[str, str] = MECHANISMS, **overrides: str
) -> tuple[Secured, int]:
    """A node, not started, and the port of its listener for certificates.

    `mechanisms`: of users with passwords. Underscores in the names of `overrides` mean dots.
    """
    stores = authority.issue("CN=node,O=Example").stores()
    settings = SETTINGS | {name.replace("_", "."): value for name, value in overrides.items()}
    made = lone(kind, folder, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], {**stores, **settings})
    (port,) = free_ports(1)
    users = {*USERS, *(name for name, mechanism in mechanisms.items() if mechanism == "PLAIN")}
    options = {**{f"user_{name}": password(name) for name in sorted(users)}, "user_broker": PASSWORDS["broker"]}
    entry = jaas("PLAIN", username="broker", password=PASSWORDS["broker"], **options)
    values = made.target.overrides
    values |= listener_properties("SASL", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
    values |= {f"listener.name.{name}.plain.sasl.jaas.config": entry for name in ("sasl", "controller")}
    values["listeners"] += f",SECURE://127.0.0.1:{port}"
    values["advertised.listeners"] += f",SECURE://127.0.0.1:{port}"
    values["listener.security.protocol.map"] += ",SECURE:SSL"
    scram = [(name, mechanism) for name, mechanism in mechanisms.items() if mechanism != "PLAIN"]
    made.target.format_options = tuple(
        word
        for name, mechanism in scram
        for word in ("--add-scram", f"{mechanism}=[name={name},password={password(name)}]")
    )
    return made, port


class User(Side):
    """A side that receives requests of changing users."""

    def __init__(
        self,
        name: str,
        made: Secured,
        ports: dict[str, int],
        clients: Mapping[str, dict[str, str]],
        mechanisms: Mapping[str, str] = MECHANISMS,
    ) -> None:
        """`ports`: by `sasl`, `secure` and `controller`. `clients`: the stores of users with certificates."""
        super().__init__(name, made.target)
        self._ports, self._clients, self._mechanisms = ports, clients, mechanisms
        self.tokens: dict[str, tuple[str, str]] = {}
        """Id and password of the delegation token by which a user logs in."""
        self.user = SUPER
        self.is_controller = False

    def become(self, user: str, *, at_controller: bool = False) -> None:
        """Log in as that user from now on."""
        self.close()
        self.user, self.is_controller = user, at_controller

    def send(self, data: bytes) -> None:
        if self._socket is None:
            if self.user in self._clients and not self.is_controller:
                properties, port = {"security.protocol": "SSL", **self._clients[self.user]}, self._ports["secure"]
            else:
                properties = self._by_password()
                port = self._ports["controller" if self.is_controller else "sasl"]
            opened = BlockingConnection(
                "127.0.0.1", port, software=Software("parity", "parity", "1"), versions=None,
                connect_s=self.timeout_s, request_s=self.timeout_s, security=client_security(properties),
            )  # fmt: skip
            self._socket = opened._socket
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            self._socket.sendall(data)

    def _by_password(self) -> dict[str, str]:
        if self.user in self.tokens:
            token_id, hmac = self.tokens[self.user]
            mechanism, options = "SCRAM-SHA-256", {"username": token_id, "password": hmac, "tokenauth": "true"}
        else:
            mechanism = "PLAIN" if self.is_controller else self._mechanisms[self.user]
            options = {"username": self.user, "password": password(self.user)}
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": jaas(mechanism, **options),
        }

    def _number(self, value: int, field: str) -> Any:
        if field == "port":
            named = {port: f"the port of {name}" for name, port in self._ports.items()}
            if value in named:
                return named[value]
        return super()._number(value, field)


def create_acls(acls: tuple[Any, ...]) -> m.CreateAclsRequest:
    """A request that creates entries like those of `ACLS`."""
    creation = m.CreateAclsRequest.AclCreation
    return m.CreateAclsRequest(
        creations=[
            creation(kind, name, pattern, principal, "*", operation, permission)
            for kind, name, pattern, principal, operation, permission in acls
        ]
    )


def until(what: str, holds: Any, seconds: float = 60) -> None:
    """Wait until `holds()`."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
