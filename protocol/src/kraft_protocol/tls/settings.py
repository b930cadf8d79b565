"""Kafka's `ssl.*` keys of one listener or client, parsed.

`SslSettings.parse` takes texts by key, without a listener's prefix. Keys that only a JVM understands are refused if
their value asks for something that OpenSSL does not do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from kraft_protocol.tls.errors import TlsConfigError

KEYS: Final = (
    "security.providers",
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.engine.factory.class",
    "ssl.key.password",
    "ssl.keymanager.algorithm",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.principal.mapping.rules",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
"""All keys of TLS."""
SERVER_KEYS: Final = frozenset(
    {"ssl.allow.dn.changes", "ssl.allow.san.changes", "ssl.client.auth", "ssl.principal.mapping.rules"}
)
"""Keys that only servers have."""

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
WEAK_PROTOCOLS: Final = ("SSL", "SSLv2", "SSLv3", "TLSv1", "TLSv1.1")
STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")
CLIENT_AUTH: Final = ("none", "requested", "required")

JVM_DEFAULTS: Final = {
    "ssl.keymanager.algorithm": ("SunX509", "PKIX", "NewSunX509"),
    "ssl.trustmanager.algorithm": ("PKIX", "SunX509"),
    "ssl.provider": (),
    "ssl.secure.random.implementation": (),
    "ssl.engine.factory.class": ("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",),
    "security.providers": (),
}
"""Keys of the JVM, and their values that OpenSSL's behaviour equals."""


class StoreSettings(NamedTuple):
    """Where a key store or trust store is: a file, or PEM texts inline."""

    prefix: str
    """`ssl.keystore` or `ssl.truststore`, for messages."""
    kind: str
    location: str
    password: str | None
    key_password: str | None
    key: str
    certificates: str

    @property
    def is_given(self) -> bool:
        """Whether there is a store."""
        return bool(self.location or self.certificates or self.key)


class SslSettings(NamedTuple):
    """The values of the `ssl.*` keys."""

    keystore: StoreSettings
    truststore: StoreSettings
    protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    client_auth: str
    verifies_host: bool
    mapping_rules: str
    allows_dn_changes: bool
    allows_san_changes: bool

    @classmethod
    def parse(cls, texts: Mapping[str, str]) -> SslSettings:
        """The settings in `texts`; missing keys have Kafka's defaults. Raises TlsConfigError."""
        _check_jvm(texts)
        client_auth = texts.get("ssl.client.auth", "none").strip().lower()
        if client_auth not in CLIENT_AUTH:
            raise TlsConfigError("ssl.client.auth", f"{client_auth!r} is not one of {', '.join(CLIENT_AUTH)}")
        endpoint = texts.get("ssl.endpoint.identification.algorithm", "https").strip()
        if endpoint.lower() not in ("", "https"):
            raise TlsConfigError("ssl.endpoint.identification.algorithm", f"{endpoint!r} is neither https nor empty")
        return cls(
            _keystore(texts),
            _truststore(texts),
            _protocols(texts),
            tuple(_list(texts.get("ssl.cipher.suites", ""))),
            client_auth,
            bool(endpoint),
            texts.get("ssl.principal.mapping.rules", "DEFAULT"),
            _boolean(texts, "ssl.allow.dn.changes"),
            _boolean(texts, "ssl.allow.san.changes"),
        )


def _check_jvm(texts: Mapping[str, str]) -> None:
    for key, allowed in JVM_DEFAULTS.items():
        value = texts.get(key, "").strip()
        if value and value not in allowed:
            raise TlsConfigError(key, f"{value} needs a JVM, and TLS is OpenSSL's here; remove the key")


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _boolean(texts: Mapping[str, str], key: str) -> bool:
    text = texts.get(key, "false").strip().lower()
    if text not in ("true", "false"):
        raise TlsConfigError(key, f"{text!r} is neither true nor false")
    return text == "true"


def _protocols(texts: Mapping[str, str]) -> tuple[str, ...]:
    key = "ssl.enabled.protocols"
    names = _list(texts.get(key, ",".join(PROTOCOLS)))
    highest = texts.get("ssl.protocol", "TLSv1.3").strip()
    for name, where in (*((name, key) for name in names), (highest, "ssl.protocol")):
        if name in WEAK_PROTOCOLS:
            raise TlsConfigError(where, f"{name} is broken and not supported; use {' or '.join(PROTOCOLS)}")
        if name not in (*PROTOCOLS, "TLS"):
            raise TlsConfigError(where, f"{name!r} is not one of {', '.join(PROTOCOLS)}")
    if "TLS" in names:
        raise TlsConfigError(key, f"TLS is not a version; use {' or '.join(PROTOCOLS)}")
    found = tuple(name for name in PROTOCOLS if name in names and not (highest == "TLSv1.2" and name == "TLSv1.3"))
    if not found:
        raise TlsConfigError(key, f"{names} and ssl.protocol={highest} have no version in common")
    return found


def _kind(texts: Mapping[str, str], prefix: str) -> str:
    kind = texts.get(f"{prefix}.type", "JKS").strip()
    if kind.upper() not in STORE_TYPES:
        raise TlsConfigError(f"{prefix}.type", f"{kind!r} is not one of {', '.join(STORE_TYPES)}")
    return kind.upper()


def _keystore(texts: Mapping[str, str]) -> StoreSettings:
    prefix = "ssl.keystore"
    kind = _kind(texts, prefix)
    location = texts.get(f"{prefix}.location", "").strip()
    key, chain = texts.get(f"{prefix}.key", ""), texts.get(f"{prefix}.certificate.chain", "")
    password, key_password = texts.get(f"{prefix}.password"), texts.get("ssl.key.password")
    if key or chain:
        if kind != "PEM":
            raise TlsConfigError(f"{prefix}.type", f"must be PEM, not {kind}, if ssl.keystore.key is given")
        if location:
            raise TlsConfigError(f"{prefix}.location", "must not be given together with ssl.keystore.key")
        if not key:
            raise TlsConfigError(f"{prefix}.key", "is missing, but ssl.keystore.certificate.chain is given")
        if not chain:
            raise TlsConfigError(f"{prefix}.certificate.chain", "is missing, but ssl.keystore.key is given")
    _check_password(prefix, kind, location or key, password)
    if location and kind != "PEM" and password is None:
        raise TlsConfigError(f"{prefix}.password", f"is missing; a key store of type {kind} needs it")
    return StoreSettings(prefix, kind, location, password, key_password, key, chain)


def _truststore(texts: Mapping[str, str]) -> StoreSettings:
    prefix = "ssl.truststore"
    kind = _kind(texts, prefix)
    location = texts.get(f"{prefix}.location", "").strip()
    certificates = texts.get(f"{prefix}.certificates", "")
    password = texts.get(f"{prefix}.password")
    if certificates:
        if kind != "PEM":
            raise TlsConfigError(f"{prefix}.type", f"must be PEM, not {kind}, if ssl.truststore.certificates is given")
        if location:
            raise TlsConfigError(f"{prefix}.location", "must not be given together with ssl.truststore.certificates")
    _check_password(prefix, kind, location or certificates, password)
    return StoreSettings(prefix, kind, location, password, None, "", certificates)


def _check_password(prefix: str, kind: str, store: str, password: str | None) -> None:
    if password is None:
        return
    if kind == "PEM" and store:
        raise TlsConfigError(f"{prefix}.password", "must not be given for PEM; ssl.key.password encrypts the key")
    if not store:
        raise TlsConfigError(f"{prefix}.location", f"is missing, but {prefix}.password is given")
