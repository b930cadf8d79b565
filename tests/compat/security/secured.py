"""Servers whose inter-broker, controller and client listeners require SASL, and the settings of clients."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kraft_protocol.sasl.jaas import written
from kraft_protocol.sasl.properties import MODULES
from kraft_protocol.sasl.scram import ALGORITHMS
from tests.compat.targets import Apache, Ours, Target, free_ports

PASSWORDS = {"broker": "planted-broker", "ann": "planted-ann", "bob": "planted-bob"}
SCRAM_USER, SCRAM_PASSWORD = "carol", "planted-carol"
TOKEN_SECRET = "planted-token-secret"
PLAIN_ENTRY = {
    "username": "broker",
    "password": PASSWORDS["broker"],
    **{f"user_{name}": password for name, password in PASSWORDS.items()},
}
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def jaas(mechanism: str, **options: str) -> str:
    return written(MODULES[mechanism], options)


def listener_properties(name: str, mechanisms: list[str]) -> dict[str, str]:
    """The SASL keys of a listener."""
    prefix = f"listener.name.{name.lower()}."
    values = {f"{prefix}sasl.enabled.mechanisms": ",".join(mechanisms)}
    for mechanism in mechanisms:
        options = PLAIN_ENTRY if mechanism == "PLAIN" else {}
        if mechanism == "OAUTHBEARER":
            options = {"unsecuredLoginStringClaim_sub": "broker"}
        values[f"{prefix}{mechanism.lower()}.sasl.jaas.config"] = jaas(mechanism, **options)
    return values


@dataclass
class Secured:
    """One combined node; its PLAINTEXT listener is only for tests that wait."""

    target: Target
    sasl_port: int

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.sasl_port}"


def lone(kind: str, folder: Path, mechanisms: list[str], overrides: dict[str, str] | None = None) -> Secured:
    """A node of a kind (`kraftcluster` or `apache`), not started."""
    port, controller_port, sasl_port = free_ports(3)
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": ",".join(
            f"{name}://127.0.0.1:{at}"
            for name, at in (("PLAINTEXT", port), ("SASL", sasl_port), ("CONTROLLER", controller_port))
        ),
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl_port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "SASL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "delegation.token.secret.key": TOKEN_SECRET,
        **listener_properties("SASL", mechanisms),
        **listener_properties("CONTROLLER", ["PLAIN"]),
        **(overrides or {}),
    }
    server = {"kraftcluster": Ours, "apache": Apache}[kind]
    options = tuple(
        word
        for mechanism in mechanisms
        if mechanism in ALGORITHMS
        for word in ("--add-scram", f"{mechanism}=[name={SCRAM_USER},password={SCRAM_PASSWORD}]")
    )
    target = server(kind, folder, values, port, controller_port, is_lone=False, format_options=options)
    return Secured(target, sasl_port)


def java_client(folder: Path, mechanism: str, **options: str) -> str:
    """A file of client properties for Java's tools and ours; returns its path."""
    path = folder / f"client-{mechanism}-{options.get('username', 'x')[:8]}.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas(mechanism, **options)}\n"
    )
    return str(path)
