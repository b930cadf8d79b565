"""One node with a listener for each security protocol and every mechanism, and what a client needs for each way in.

The listener for SASL without TLS accepts unsigned OAUTHBEARER tokens, the listener with TLS accepts signed tokens.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from kraft_protocol.sasl.oauthbearer import OAUTHBEARER, unsecured_token
from tests.certificates import Authority, Issued
from tests.compat.security.secured import PASSWORDS, SCRAM_PASSWORD, SCRAM_USER, TOKEN_SECRET, jaas, listener_properties
from tests.compat.targets import Apache, Ours, Target, free_ports

PLAIN, SCRAM_256, SCRAM_512 = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"
MECHANISMS: Final = [PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER]
ISSUER, AUDIENCE, SUBJECT = "https://issuer.example", "kafka", "dora"
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
REAUTH_MS = 3_000


class Way(NamedTuple):
    """A security protocol and its mechanism ("" without SASL)."""

    protocol: str
    mechanism: str = ""

    def __str__(self) -> str:
        return "-".join(part for part in self if part)

    @property
    def is_signed(self) -> bool:
        """Whether the token must be signed."""
        return self == Way("SASL_SSL", OAUTHBEARER)


WAYS: Final = (
    Way("SSL"),
    *(Way(protocol, mechanism) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS),
)


@dataclass
class Access:
    """What a client needs. The programs in Go and JavaScript read it as JSON."""

    Way: str
    Bootstrap: str
    TLS: bool = False
    CA: str = ""
    Certificate: str = ""
    Key: str = ""
    Mechanism: str = ""
    Username: str = ""
    Password: str = ""
    Token: str = ""
    TokenFile: str = ""
    Delegated: bool = False
    Count: int = 20
    PauseMs: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @property
    def protocol(self) -> str:
        if self.Mechanism:
            return "SASL_SSL" if self.TLS else "SASL_PLAINTEXT"
        return "SSL"

    def java(self) -> dict[str, str]:
        """The properties of Java's clients, and of ours."""
        values = {"security.protocol": self.protocol}
        if self.TLS:
            values |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.CA}
        if self.Certificate:
            pem = Path(self.Key).with_suffix(".pem")
            values |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pem)}
        if self.Mechanism:
            options = {"username": self.Username, "password": self.Password}
            if self.Delegated:
                options["tokenauth"] = "true"
            if self.Mechanism == OAUTHBEARER:
                options = {} if self.TLS else {"unsecuredLoginStringClaim_sub": SUBJECT}
            if self.Mechanism == OAUTHBEARER and self.TLS:
                values["sasl.oauthbearer.token.endpoint.url"] = Path(self.TokenFile).as_uri()
                values["sasl.login.callback.handler.class"] = (
                    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
                )
            values |= {"sasl.mechanism": self.Mechanism, "sasl.jaas.config": jaas(self.Mechanism, **options)}
        return values


class Signer:
    """An issuer of signed tokens: its key, and files with its public key and a token."""

    def __init__(self, folder: Path) -> None:
        from joserfc import jwk

        self._key = jwk.RSAKey.generate_key(2048, {"kid": "one"})
        self.jwks, self.token_file = folder / "jwks.json", folder / "token.jwt"
        self.jwks.write_text(json.dumps({"keys": [self._key.as_dict(private=False, alg="RS256", use="sig")]}))
        self.token_file.write_text(self.token())

    def token(self, lifetime_s: float = 3_600, **claims: Any) -> str:
        from joserfc import jwt

        now = int(time.time())
        given = {"sub": SUBJECT, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": int(now + lifetime_s), **claims}
        return jwt.encode({"alg": "RS256", "kid": "one", "typ": "JWT"}, given, self._key)


class AllWays:
    """The node; its plain listener is only for tests that wait."""

    def __init__(self, kind: str, folder: Path, overrides: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.authority = Authority(folder / "certificates")
        self.signer = Signer(folder)
        self.server = self.authority.issue("CN=node", file="node")
        self.client = self.authority.issue("CN=client", file="client")
        names = ("PLAINTEXT", "CONTROLLER", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
        self.ports = dict(zip(names, free_ports(len(names)), strict=True))
        make = {"kraftcluster": Ours, "apache": Apache}[kind]
        words = [
            word
            for mechanism in (SCRAM_256, SCRAM_512)
            for word in ("--add-scram", f"{mechanism}=[name={SCRAM_USER},password={SCRAM_PASSWORD}]")
        ]
        self.target: Target = make(
            kind, folder / "node", {**self._properties(), **(overrides or {})}, self.ports["PLAINTEXT"],
            self.ports["CONTROLLER"], is_lone=False, format_options=tuple(words),
            jvm_options=(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.signer.jwks.as_uri()}",),
        )  # fmt: skip

    def _properties(self) -> dict[str, str]:
        brokers = {name: port for name, port in self.ports.items() if name != "CONTROLLER"}
        stores = self.server.stores()
        signed = "listener.name.sasl_ssl.oauthbearer.sasl"
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.ports['CONTROLLER']}",
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()),
            "advertised.listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in brokers.items()),
            "listener.security.protocol.map": ",".join(
                f"{name}:{'PLAINTEXT' if name == 'CONTROLLER' else name}" for name in self.ports
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.ssl.ssl.client.auth": "required",
            "delegation.token.secret.key": TOKEN_SECRET,
            "connections.max.reauth.ms": str(REAUTH_MS),
            **{f"listener.name.{name}.{key}": value for name in ("ssl", "sasl_ssl") for key, value in stores.items()},
            **listener_properties("SASL_PLAINTEXT", MECHANISMS),
            **listener_properties("SASL_SSL", MECHANISMS),
            f"{signed}.jaas.config": jaas(OAUTHBEARER),
            f"{signed}.server.callback.handler.class": VALIDATOR,
            f"{signed}.oauthbearer.jwks.endpoint.url": self.signer.jwks.as_uri(),
            f"{signed}.oauthbearer.expected.issuer": ISSUER,
            f"{signed}.oauthbearer.expected.audience": AUDIENCE,
        }

    def access(self, way: Way, **more: Any) -> Access:
        """How a client gets in by this way; `more` replaces fields."""
        found = Access(str(way), f"127.0.0.1:{self.ports[way.protocol]}", Mechanism=way.mechanism)
        if way.protocol.endswith("SSL"):
            found.TLS, found.CA = True, str(self.authority.path)
        if way.protocol == "SSL":
            assert self.client.pem.exists()
            found.Certificate, found.Key = str(self.client.chain), str(self.client.key)
        if way.mechanism == PLAIN:
            found.Username, found.Password = "ann", PASSWORDS["ann"]
        elif way.mechanism in (SCRAM_256, SCRAM_512):
            found.Username, found.Password = SCRAM_USER, SCRAM_PASSWORD
        elif way.mechanism == OAUTHBEARER:
            now = int(time.time())
            unsigned = unsecured_token({"sub": SUBJECT, "iat": now, "exp": now + 3_600})
            found.Token = self.signer.token() if way.is_signed else unsigned
            found.TokenFile = str(self.signer.token_file)
        for name, value in more.items():
            setattr(found, name, value)
        return found

    def exchange_certificate(self) -> Issued:
        """Replace the certificate of both TLS listeners under way, as `kafka-configs.sh` does."""
        from confluent_kafka.admin import (  # type: ignore[attr-defined]
            AdminClient,
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            ResourceType,
        )

        renewed = self.authority.issue("CN=node", file="renewed")
        self.server.pem.write_text(renewed.key_text + renewed.chain_text)
        entries = [
            ConfigEntry(
                f"listener.name.{name}.ssl.keystore.location",
                str(self.server.pem),
                incremental_operation=AlterConfigOpType.SET,
            )
            for name in ("ssl", "sasl_ssl")
        ]
        admin = AdminClient({"bootstrap.servers": self.target.bootstrap})
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
        admin.incremental_alter_configs([resource])[resource].result(30)
        return renewed
