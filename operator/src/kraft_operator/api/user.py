"""`KRaftUser`: a user of a cluster as a resource, with its credentials, ACLs and quotas."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from kraft_operator.api.base import GROUP, Model, Rule, marked
from kraft_operator.api.status import Condition
from kraft_protocol.sasl.scram import ITERATIONS_MAX, ITERATIONS_MIN

USER_NAME: Final = r"^[a-zA-Z0-9._@+-]+$"
USER_NAME_CHARS_MAX: Final = 64
"""The longest common name of a certificate."""
SECRET_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"  # noqa: S105
SECRET_KEY: Final = r"^[-._a-zA-Z0-9]+$"  # noqa: S105
ROTATE: Final = f"{GROUP}/rotate"
"""The annotation that requests new credentials: they are issued once for each new value."""
MOUNT: Final = "/etc/kraft-user"
CLUSTER: Final = "kafka-cluster"
"""The name of the only resource of the type Cluster."""
OPERATIONS: Final = {
    "Topic": ("Read", "Write", "Create", "Describe", "Delete", "Alter", "DescribeConfigs", "AlterConfigs"),
    "Group": ("Read", "Describe", "Delete", "DescribeConfigs", "AlterConfigs"),
    "Cluster": (
        "Create",
        "ClusterAction",
        "DescribeConfigs",
        "AlterConfigs",
        "IdempotentWrite",
        "Alter",
        "Describe",
    ),
    "TransactionalId": ("Describe", "Write", "TwoPhaseCommit"),
    "DelegationToken": ("Describe",),
    "User": ("CreateTokens", "DescribeTokens"),
}
"""The operations that Kafka knows for each type of resource, beside All."""


def _operations_rule(kind: str) -> Rule:
    names = ",".join(f"'{name}'" for name in ("All", *OPERATIONS[kind]))
    return Rule(
        f"self.resource.type != '{kind}' || self.operations.all(o, o in [{names}])",
        f"Kafka knows for {kind} only the operations All, {', '.join(OPERATIONS[kind])}",
    )


class SecretKey(Model):
    """A key of a Secret in the same namespace."""

    secret: Annotated[str, Field(pattern=SECRET_NAME, max_length=253)]
    key: Annotated[str, Field(pattern=SECRET_KEY, max_length=253)] = "password"


class UserAuthentication(Model):
    """How the user proves its identity."""

    RULES: ClassVar = (
        Rule(
            "self.type != 'MutualTls' || !has(self.passwordFrom)",
            "a user of MutualTls has a certificate and no password: remove passwordFrom, or choose ScramSha512",
        ),
        Rule(
            "!has(self.passwordFrom) || !has(self.rotateAfterDays)",
            "the operator does not change a given password: remove rotateAfterDays, or passwordFrom",
        ),
    )
    type: Annotated[
        Literal["ScramSha512", "ScramSha256", "MutualTls"],
        Field(description="ScramSha512, ScramSha256: user name and password. MutualTls: a certificate of the cluster"),
    ] = "ScramSha512"
    password_from: (
        Annotated[SecretKey, Field(description="a given password; without it, the operator generates one")] | None
    ) = None
    iterations: Annotated[
        int, Field(ge=ITERATIONS_MIN, le=ITERATIONS_MAX, description="SCRAM: rounds of the hash over the password")
    ] = 8192
    rotate_after_days: (
        Annotated[
            int, Field(ge=1, le=3650, description="issue a new password or certificate after so many days; else never")
        ]
        | None
    ) = None
    valid_days: Annotated[
        int,
        Field(ge=1, le=3650, description="MutualTls: how long a certificate is valid; it is renewed after two thirds"),
    ] = 90


class AclResource(Model):
    """The resources that an ACL is about."""

    RULES: ClassVar = (
        Rule(
            f"self.type == 'Cluster' ? (!has(self.name) || self.name == '{CLUSTER}') : has(self.name)",
            "name is required, but for the type Cluster, of which there is one only",
        ),
        Rule(
            "self.type != 'Cluster' || self.pattern == 'Literal'",
            "the type Cluster has one resource only: leave out pattern",
        ),
    )
    type: Literal["Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User"]
    name: (
        Annotated[
            str, Field(min_length=1, max_length=249, description="a name, its beginning (Prefixed), or * for all")
        ]
        | None
    ) = None
    pattern: Literal["Literal", "Prefixed"] = "Literal"


class AclRule(Model):
    """Operations that the user may, or must not, carry out."""

    RULES: ClassVar = tuple(map(_operations_rule, OPERATIONS))
    resource: AclResource
    operations: Annotated[
        list[
            Literal[
                "All",
                "Read",
                "Write",
                "Create",
                "Delete",
                "Alter",
                "Describe",
                "ClusterAction",
                "DescribeConfigs",
                "AlterConfigs",
                "IdempotentWrite",
                "CreateTokens",
                "DescribeTokens",
                "TwoPhaseCommit",
            ]
        ],
        Field(min_length=1, max_length=14, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ]
    permission: Literal["Allow", "Deny"] = "Allow"
    host: Annotated[str, Field(min_length=1, max_length=45, description="an address of clients, or * for all")] = "*"


class UserQuotas(Model):
    """Quotas of the user, each for one broker; the mutations for one controller."""

    producer_byte_rate: Annotated[int, Field(ge=1, le=2**53, description="bytes a second")] | None = None
    consumer_byte_rate: Annotated[int, Field(ge=1, le=2**53, description="bytes a second")] | None = None
    request_percentage: (
        Annotated[int, Field(ge=1, le=100_000, description="time of request handlers; 100 is one thread")] | None
    ) = None
    controller_mutation_rate: (
        Annotated[int, Field(ge=1, le=1_000_000, description="partitions created or deleted a second")] | None
    ) = None


class KRaftUserSpec(Model):
    """The desired state of the user."""

    RULES: ClassVar = (
        Rule(
            "!has(oldSelf.cluster) || self.cluster == oldSelf.cluster",
            "a user cannot move to another cluster: create another KRaftUser there",
        ),
        Rule(
            "has(self.userName) == has(oldSelf.userName) && (!has(self.userName) || self.userName == oldSelf.userName)",
            "a user cannot be renamed: create another KRaftUser, move the applications, and delete this one",
        ),
    )
    cluster: Annotated[str, Field(min_length=1, max_length=63, description="the KRaftCluster in the same namespace")]
    user_name: (
        Annotated[
            str,
            Field(
                pattern=USER_NAME,
                max_length=USER_NAME_CHARS_MAX,
                description="the principal is User:NAME; the resource's name if left out",
            ),
        ]
        | None
    ) = None
    authentication: UserAuthentication = UserAuthentication()
    listener: (
        Annotated[
            str,
            Field(max_length=30, description="the listener in the client configuration; default: the first that fits"),
        ]
        | None
    ) = None
    controllers: (
        Annotated[
            bool,
            Field(
                description="its Secret also has controllers.properties, for connections to controllers of a cluster"
                " with TLS, as a KafkaMetadataArchive needs them; with ClusterAction it can do there what nodes can"
            ),
        ]
        | None
    ) = None
    acls: Annotated[list[AclRule], Field(max_length=128, description="what the user may do")] = []
    quotas: UserQuotas = UserQuotas()
    adopt: (
        Annotated[
            bool,
            Field(
                description="take over a user that exists: its passwords are replaced, and its declared ACLs and quotas"
                " are deleted with the resource"
            ),
        ]
        | None
    ) = None
    exclusive: (
        Annotated[
            bool,
            Field(description="delete ACLs and quotas of the user that this resource does not name; else they stay"),
        ]
        | None
    ) = None


class KRaftUserStatus(Model):
    """The state of the user."""

    observed_generation: int = 0
    conditions: Annotated[list[Condition], Field(json_schema_extra=marked(keys=("type",)))] = []
    user_name: Annotated[str, Field(description="the principal without `User:`")] | None = None
    secret: Annotated[str, Field(description="the Secret with its credentials and client configurations")] | None = None
    credential: Annotated[str, Field(description="id of the password that the cluster has; not a secret")] = ""
    issued: Annotated[str, Field(description="when the present password or certificate was made")] | None = None
    expires: Annotated[str, Field(description="when the present certificate expires")] | None = None
    old_ends: (
        Annotated[
            str,
            Field(
                description="until this time, connections with the former password may stay open"
                " (connections.max.reauth.ms); Never: until they close"
            ),
        ]
        | None
    ) = None
    rotation: Annotated[str, Field(description="the last value of the annotation rotate that was carried out")] = ""
    acls: Annotated[int, Field(description="number of ACLs")] = 0
