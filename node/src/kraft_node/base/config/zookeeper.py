"""The keys of a controller that migrates a cluster from ZooKeeper (KIP-866); Kafka 4.0 removed them.

Certificates are PEM files, because kazoo reads no other: Kafka's `zookeeper.ssl.*.type=PEM`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kraft_node.base.config.errors import ConfigError, invalid
from kraft_protocol.configs.own import OWN_DEFAULTS

if TYPE_CHECKING:
    from kraft_node.base.config.node_values import NodeValues
    from kraft_protocol.sasl.jaas import JaasEntry

MIGRATION_KEY: Final = "zookeeper.metadata.migration.enable"
CONNECT_KEY: Final = "zookeeper.connect"
SESSION_KEY: Final = "zookeeper.session.timeout.ms"
CONNECTION_KEY: Final = "zookeeper.connection.timeout.ms"
ACL_KEY: Final = "zookeeper.set.acl"
JAAS_KEY: Final = "zookeeper.sasl.jaas.config"
TLS_KEY: Final = "zookeeper.ssl.client.enable"
TRUST_KEY: Final = "zookeeper.ssl.truststore.location"
OWN_CERTIFICATE_KEY: Final = "zookeeper.ssl.keystore.location"
HOST_NAME_KEY: Final = "zookeeper.ssl.endpoint.identification.algorithm"
SECRET_KEY: Final = "password.encoder.secret"  # noqa: S105  (a key's name)
"""The key of brokers' encrypted passwords in ZooKeeper."""
DIGEST_MODULE: Final = "org.apache.zookeeper.server.auth.DigestLoginModule"
KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
LOGIN_OPTIONS: Final = {DIGEST_MODULE: ("username", "password"), KERBEROS_MODULE: ()}
"""The login modules that ZooKeeper's clients use, with the options that they need."""


class ZooKeeperSettings(NamedTuple):
    """How to reach ZooKeeper."""

    servers: str
    """`host:port,host:port/chroot`."""
    session_ms: int
    connect_ms: int
    uses_tls: bool
    trusted: str | None
    """A PEM file with the certificates of authorities; None: the system's."""
    own_certificate: str | None
    """A PEM file with the certificate and the key of this controller."""
    secret: str | None
    sets_acls: bool
    """Whether znodes are made with ACLs."""
    checks_host_name: bool = True
    """Whether ZooKeeper's certificate must have the name of the server."""
    login: JaasEntry | None = None
    """The login module for SASL: DIGEST_MODULE or KERBEROS_MODULE."""


def migrates(config: NodeValues) -> bool:
    """Whether this controller migrates a cluster."""
    return config.is_controller and _boolean(config, MIGRATION_KEY)


def zookeeper_settings(config: NodeValues) -> ZooKeeperSettings | None:
    """The settings of a controller that migrates; None if it does not. Raises ConfigError."""
    if not migrates(config):
        return None
    servers = _text(config, CONNECT_KEY)
    if servers is None:
        raise ConfigError(
            f"{CONNECT_KEY} is missing: with {MIGRATION_KEY}=true it names ZooKeeper's servers", CONNECT_KEY
        )
    session_ms = _milliseconds(config, SESSION_KEY)
    is_set = _text(config, CONNECTION_KEY) is not None
    for key in (TRUST_KEY, OWN_CERTIFICATE_KEY):
        kind = config.texts.get(key.removesuffix("location") + "type", "PEM").strip()
        if _text(config, key) is not None and kind.upper() != "PEM":
            raise ConfigError(f"{key}: only PEM files are read here, not {kind}; convert the store", key)
    return ZooKeeperSettings(
        servers,
        session_ms,
        _milliseconds(config, CONNECTION_KEY) if is_set else session_ms,
        _boolean(config, TLS_KEY),
        _text(config, TRUST_KEY),
        _text(config, OWN_CERTIFICATE_KEY),
        _text(config, SECRET_KEY),
        _sets_acls(config),
        _checks_host_name(config),
        _login(config),
    )


def _login(config: NodeValues) -> JaasEntry | None:
    text = _text(config, JAAS_KEY)
    if text is None:
        return None
    from kraft_protocol.sasl.jaas import JaasError, parse_jaas  # noqa: PLC0415  (few nodes need it)

    try:
        entry = parse_jaas(text)
    except JaasError as e:
        raise ConfigError(f"{JAAS_KEY}: {e}", JAAS_KEY) from None
    if entry.module not in LOGIN_OPTIONS:
        modules = " or ".join(LOGIN_OPTIONS)
        raise ConfigError(f"{JAAS_KEY}: the login module must be {modules}, not {entry.module}", JAAS_KEY)
    for name in LOGIN_OPTIONS[entry.module]:
        if not entry.options.get(name):
            raise ConfigError(f"{JAAS_KEY}: the option {name} is missing", JAAS_KEY)
    return entry


def _checks_host_name(config: NodeValues) -> bool:
    text = _text(config, HOST_NAME_KEY)
    if text is not None and text.upper() != "HTTPS":
        raise invalid(HOST_NAME_KEY, text, "Expected HTTPS, or nothing to check no host names")
    return text is not None


def _sets_acls(config: NodeValues) -> bool:
    if not _boolean(config, ACL_KEY):
        return False
    has_certificate = _boolean(config, TLS_KEY) and _text(config, OWN_CERTIFICATE_KEY) is not None
    if not has_certificate and _text(config, JAAS_KEY) is None:
        raise ConfigError(
            f"{ACL_KEY}=true needs {TLS_KEY}=true and {OWN_CERTIFICATE_KEY}, or {JAAS_KEY}: ZooKeeper must know this"
            " controller by its certificate or its user",
            ACL_KEY,
        )
    return True


def _text(config: NodeValues, key: str) -> str | None:
    return config.texts.get(key, OWN_DEFAULTS[key]).strip() or None


def _boolean(config: NodeValues, key: str) -> bool:
    text = (_text(config, key) or "").lower()
    if text not in ("true", "false"):
        raise invalid(key, text, "Expected value to be either true or false")
    return text == "true"


def _milliseconds(config: NodeValues, key: str) -> int:
    text = _text(config, key) or ""
    if not text.isdecimal() or int(text) < 1:
        raise invalid(key, text, "Value must be at least 1")
    return int(text)
