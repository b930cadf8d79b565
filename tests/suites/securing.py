"""Clusters whose nodes and clients use TLS and SASL, for the suites: what nodes need, and what clients need.

Nodes speak SASL over TLS to each other, too, except brokers behind a proxy. Clients must authenticate again every ten
seconds. The plain listener is only for the wait until a node has started.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.certificates import Authority
from tests.compat.members import Members
from tests.compat.security.secured import PASSWORDS, STANDARD_AUTHORIZER, jaas, listener_properties
from tests.compat.targets import free_ports

USER, PASSWORD = "suite", "planted-suite"
MECHANISMS: Final = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
BETWEEN: Final = "SCRAM-SHA-512"
REAUTH_MS: Final = 10_000
SECURE, IN_THE_CLEAR = "SECURE", "SASL"
"""Listeners for SASL over TLS and for SASL without it."""
PROTOCOLS: Final = "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,SASL:SASL_PLAINTEXT,CONTROLLER:SASL_SSL"


@dataclass
class Access:
    """How clients of a suite get in."""

    authority: Path
    secure: str
    """Bootstrap servers of the listener with TLS."""
    in_the_clear: str
    """Bootstrap servers of the listener for SASL without TLS; "" without one."""
    java: Path
    """Properties of Java's clients, for the listener with TLS."""


def secure(members: Members, folder: Path, *, ports: dict[int, int] | None = None, between: str = SECURE) -> Access:
    """Change the configuration of members, before their start, and return what clients need.

    `ports`: of the listener with TLS, by node, if it exists in the configuration; otherwise both listeners are added.
    `between`: the listener for other brokers.
    """
    authority = Authority(folder / "certificates")
    stores = authority.issue("CN=node").stores()
    places: dict[str, list[str]] = {SECURE: [], IN_THE_CLEAR: []}
    for node_id, node in members.nodes.items():
        values = node.overrides
        values |= {
            **stores,
            "listener.security.protocol.map": PROTOCOLS,
            "sasl.mechanism.inter.broker.protocol": BETWEEN,
            "sasl.mechanism.controller.protocol": "PLAIN",
            "connections.max.reauth.ms": str(REAUTH_MS),
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "allow.everyone.if.no.acl.found": "true",
            "super.users": "User:broker;User:ANONYMOUS",
            **listener_properties("CONTROLLER", ["PLAIN"]),
            **_keys_of(SECURE),
            **_keys_of(IN_THE_CLEAR),
        }
        node.format_options += tuple(
            word
            for name, password in ((USER, PASSWORD), ("broker", PASSWORDS["broker"]))
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for word in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        )
        if node_id not in members.broker_ids:
            continue
        values["inter.broker.listener.name"] = between
        if ports is not None:
            places[SECURE].append(f"127.0.0.1:{ports[node_id]}")
            continue
        for listener, port in zip(places, free_ports(2), strict=True):
            places[listener].append(f"127.0.0.1:{port}")
            for key in ("listeners", "advertised.listeners"):
                values[key] += f",{listener}://127.0.0.1:{port}"
    java = folder / "client.properties"
    entry = jaas(BETWEEN, username=USER, password=PASSWORD)
    java.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={BETWEEN}\nsasl.jaas.config={entry}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.path}\n"
    )
    return Access(authority.path, ",".join(places[SECURE]), ",".join(places[IN_THE_CLEAR]), java)


def _keys_of(listener: str) -> dict[str, str]:
    values = listener_properties(listener, MECHANISMS)
    prefix = f"listener.name.{listener.lower()}."
    values[f"{prefix}{BETWEEN.lower()}.sasl.jaas.config"] = jaas(
        BETWEEN, username="broker", password=PASSWORDS["broker"]
    )
    options = {"username": "broker", "password": PASSWORDS["broker"], "user_broker": PASSWORDS["broker"]}
    values[f"{prefix}plain.sasl.jaas.config"] = jaas("PLAIN", **options, **{f"user_{USER}": PASSWORD})
    return values
