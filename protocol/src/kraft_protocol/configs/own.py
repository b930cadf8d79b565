"""Keys that Kafka's tables lack: keys that only our node has, and keys that Kafka leaves to plug-ins or the JVM."""

from __future__ import annotations

from typing import Final

LISTENER_PREFIX: Final = "listener.name."
"""Prefix of keys for a single listener."""
PROVIDERS_PREFIX: Final = "config.providers."
"""Prefix of keys for a single provider of values (`configs.providers`)."""
OPEN_PREFIXES: Final = (LISTENER_PREFIX, PROVIDERS_PREFIX)
"""Prefixes of keys whose rest is free."""

OWN_DEFAULTS: Final[dict[str, str]] = {
    "http.listener": "",  # host:port of /metrics, /livez, /readyz and /status; empty: not served
    "config.revision": "",  # a word that /status repeats; it identifies the file that the process read
    "quorum.empty.disk.guard": "true",
    "broker.session.closed.timeout.ms": "",
    "broker.session.replace.on.restart": "true",
    "stray.log.delete.delay.ms": "86400000",  # KIP-516: how long logs of deleted topics are kept; -1: always
    "broker.heartbeat.timeout.ms": "",  # KIP-343: time without a controller after which clients are refused; 0: never
    "zookeeper.metadata.migration.enable": "false",  # KIP-866; these keys of ZooKeeper are those of Kafka 3.9
    "zookeeper.connect": "",
    "zookeeper.session.timeout.ms": "18000",
    "zookeeper.connection.timeout.ms": "",  # empty: the session's
    "zookeeper.set.acl": "false",
    "zookeeper.sasl.jaas.config": "",  # Apache Kafka has the section `Client` of a file that its JVM names
    "zookeeper.ssl.client.enable": "false",
    "zookeeper.ssl.truststore.location": "",
    "zookeeper.ssl.keystore.location": "",
    "zookeeper.ssl.endpoint.identification.algorithm": "HTTPS",
    "password.encoder.secret": "",
}
"""Default texts of our node's keys."""

PLUGIN_KEYS: Final = frozenset({"super.users", "allow.everyone.if.no.acl.found"})
"""Keys of Kafka's authorizer, which are not in Kafka's definitions."""
