"""`spec.migration` of a KRaftCluster: the migration of a cluster of Apache Kafka from ZooKeeper (KIP-866)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from kraft_operator.api.base import Free, Model, NodeId, Rule, SecretName

OUTSIDE_MAX: Final = 100
"""Maximum of brokers with ZooKeeper."""
POOL_IDS: Final = 100
"""Distance of the node ids of two pools."""
MIGRATION_KEYS: Final = ("zookeeper.connect", "zookeeper.metadata.migration.enable")
"""Kafka's keys that the operator derives from `spec.migration`."""

_KEYS_CEL: Final = "[" + ",".join(f"'{key}'" for key in MIGRATION_KEYS) + "]"
_OVER_CEL: Final = "!has(self.migration) || self.migration.phase == 'Finalized'"

MIGRATION_RULES: Final = (
    Rule(
        "has(oldSelf.migration) || !has(self.migration)",
        "a cluster begins with spec.migration or never has it, because its controllers already have metadata: make"
        " another KRaftCluster",
    ),
    Rule(
        "!has(oldSelf.migration) || has(self.migration) || oldSelf.migration.phase == 'Finalized'",
        "the migration is not finalized: keep spec.migration, or set its phase to Finalized first. To go back to"
        " ZooKeeper, see the guide Migrate from ZooKeeper on Kubernetes",
    ),
    Rule(
        "!has(self.migration) || has(self.clusterId)",
        "the cluster keeps the id that it has in ZooKeeper: set clusterId to the id in ZooKeeper's /cluster/id",
    ),
    Rule(
        f"{_OVER_CEL} || (has(self.metadataVersion) && self.metadataVersion.matches('^3[.][6-9](-IV[0-9]+)?$'))",
        "brokers with ZooKeeper know metadata.version 3.6 to 3.9: set metadataVersion to inter.broker.protocol.version"
        " of these brokers",
    ),
    Rule(
        f"{_OVER_CEL} || self.nodePools.all(p, !('controller' in p.roles) || !('broker' in p.roles))",
        "a controller that migrates a cluster is no broker: give controllers and brokers pools of their own",
    ),
    Rule(
        f"{_OVER_CEL} || self.quorum.mode == 'Static'",
        "brokers with ZooKeeper find the controllers by controller.quorum.voters: set quorum.mode to Static until the"
        " migration is finalized",
    ),
    Rule(
        f"{_OVER_CEL} || (has(self.security) && self.security.tls == 'Disabled')",
        "brokers with ZooKeeper have no certificate of this cluster's authority: set security.tls to Disabled until"
        " the migration is finalized",
    ),
    Rule(
        "!has(self.migration) || self.nodePools.all(p, self.migration.brokers.all(b, b < p.firstNodeId"
        f" || b - p.firstNodeId >= {POOL_IDS}))",
        "a broker of migration.brokers has an id of a pool: give the pool a firstNodeId that is 100 or more away",
    ),
    Rule(
        f"!has(self.migration) || (self.config.all(k, !(k in {_KEYS_CEL}))"
        f" && self.nodePools.all(p, p.config.all(k, !(k in {_KEYS_CEL}))))",
        "config has a key that follows from spec.migration (" + ", ".join(MIGRATION_KEYS) + "): use spec.migration",
    ),
)
"""Rules of the specification."""


class ZooKeeperTls(Model):
    """TLS to ZooKeeper."""

    secret_name: Annotated[
        SecretName,
        Field(
            description="a Secret with PEM files: ca.crt, and tls-combined.pem with the certificate and the key of the"
            " controllers (cert-manager: additionalOutputFormats CombinedPEM)"
        ),
    ]
    client_certificate: Annotated[
        bool, Field(description="present tls-combined.pem; false if ZooKeeper requires no certificate")
    ] = True


class ZooKeeper(Model):
    """How controllers reach ZooKeeper."""

    connect: Annotated[
        str,
        Field(
            min_length=1,
            max_length=2048,
            pattern=r"^[^\s]+$",
            description="zookeeper.connect of the brokers: HOST:PORT,HOST:PORT/CHROOT",
        ),
    ]
    tls: ZooKeeperTls | None = None
    password_encoder_secret: (
        Annotated[
            SecretName,
            Field(
                description="a Secret with the key password.encoder.secret, which is the brokers' value: they encrypt"
                " passwords in ZooKeeper with it"
            ),
        ]
        | None
    ) = None
    sasl_secret: (
        Annotated[
            SecretName,
            Field(
                description="a Secret with the key zookeeper.sasl.jaas.config, the login module with which controllers"
                " authenticate to ZooKeeper by SASL"
            ),
        ]
        | None
    ) = None


class Migration(Model):
    """The migration of a cluster with ZooKeeper to this KRaftCluster."""

    phase: Annotated[
        Literal["Migrate", "Finalized"],
        Field(
            description="Migrate: controllers read ZooKeeper and write each change to both. Finalized: once no broker"
            " uses ZooKeeper, the controllers stop writing there. There is no way back from it"
        ),
    ] = "Migrate"
    zookeeper: ZooKeeper
    brokers: Annotated[
        list[NodeId],
        Field(
            min_length=1,
            max_length=OUTSIDE_MAX,
            description="ids of the brokers outside, which use ZooKeeper. The operator does not manage them",
            json_schema_extra={"x-kubernetes-list-type": "set"},
        ),
    ]
    move_replicas: Annotated[
        bool,
        Field(description="once the metadata is migrated, move all replicas from brokers outside to brokers of pools"),
    ] = False
    network_peers: Annotated[
        list[Free],
        Field(
            max_length=32,
            description="where brokers outside connect from, as NetworkPolicyPeers: they reach the controllers and the"
            " brokers. If the list is empty, the network policy admits no broker outside to the controllers",
        ),
    ] = []
