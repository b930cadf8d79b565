"""What `spec.migration` means for a controller: its keys, and the files for TLS to ZooKeeper."""

from __future__ import annotations

from typing import Any, Final

from kraft_operator.api.migration import Migration
from kraft_operator.specs.cluster import NamedCluster, digest

FOLDER: Final = "/etc/kraft-zookeeper"
VOLUME: Final = "kraft-zookeeper-tls"
TRUST: Final = "ca.crt"
CERTIFICATE: Final = "tls-combined.pem"
ENCODER_KEY: Final = "password.encoder.secret"
SASL_KEY: Final = "zookeeper.sasl.jaas.config"
VARIABLES: Final = {ENCODER_KEY: "KRAFT_PASSWORD_ENCODER_SECRET", SASL_KEY: "KRAFT_ZOOKEEPER_SASL"}
"""Keys of the node with secret values -> the variables of its container that have them."""
READABLE: Final = 0o444
"""The mode of the files: only the pod's own processes see them."""


def zookeeper_digest(cluster: NamedCluster, migration: Migration) -> str:
    """A digest of everything that controllers of a migration must restart for.

    They connect to brokers, so they have the internal listener in their files. With TLS, that never changes.
    """
    if cluster.secure:
        return zookeeper_digest_of_before(migration)
    internal = cluster.internal
    return digest([migration.zookeeper.model_dump(exclude_defaults=True), internal.name, internal.authentication])


def zookeeper_digest_of_before(migration: Migration) -> str:
    """The digest of earlier operators. A change of the internal listener changed another digest."""
    return digest(migration.zookeeper.model_dump(exclude_defaults=True))


def properties(cluster: NamedCluster) -> dict[str, str]:
    """The keys of a controller that migrates; empty once the specification has no migration."""
    if cluster.spec.migration is None:
        return {}
    zookeeper = cluster.spec.migration.zookeeper
    found = {"zookeeper.metadata.migration.enable": "true", "zookeeper.connect": zookeeper.connect}
    if zookeeper.tls is None:
        return found
    found |= {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.type": "PEM",
        "zookeeper.ssl.truststore.location": f"{FOLDER}/{TRUST}",
    }
    if zookeeper.tls.client_certificate:
        found |= {
            "zookeeper.ssl.keystore.type": "PEM",
            "zookeeper.ssl.keystore.location": f"{FOLDER}/{CERTIFICATE}",
        }
    return found


def volumes(cluster: NamedCluster) -> list[dict[str, Any]]:
    """The volume with the files for ZooKeeper; none without TLS."""
    migration = cluster.spec.migration
    if migration is None or migration.zookeeper.tls is None:
        return []
    secret = {"secretName": migration.zookeeper.tls.secret_name, "defaultMode": READABLE}
    return [{"name": VOLUME, "secret": secret}]


def mounts(cluster: NamedCluster) -> list[dict[str, Any]]:
    """The mount of this volume."""
    return [{"name": VOLUME, "mountPath": FOLDER, "readOnly": True}] if volumes(cluster) else []


def variables(cluster: NamedCluster) -> list[dict[str, Any]]:
    """The variables with secret values; none without Secrets. A file would show them to all readers."""
    return [
        {"name": VARIABLES[key], "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}
        for key, name in _secrets(cluster).items()
    ]


def overrides(cluster: NamedCluster) -> list[str]:
    """Arguments of the node that set keys from these variables."""
    return [word for key in _secrets(cluster) for word in ("--override", f"{key}=$({VARIABLES[key]})")]


def _secrets(cluster: NamedCluster) -> dict[str, str]:
    """Keys of the node -> the Secrets with their values, under the same key."""
    if cluster.spec.migration is None:
        return {}
    zookeeper = cluster.spec.migration.zookeeper
    named = {ENCODER_KEY: zookeeper.password_encoder_secret, SASL_KEY: zookeeper.sasl_secret}
    return {key: name for key, name in named.items() if name is not None}
