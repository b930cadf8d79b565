"""The numbers of ACLs (org.apache.kafka.common.acl and .resource of 4.3.1), and which operations imply others."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from kraft_protocol.errors import ErrorCode


class Operation(IntEnum):
    """An operation on a resource (AclOperation)."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """A type of resource (ResourceType)."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The meaning of an entry's resource name (PatternType)."""

    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """The effect of an entry (AclPermissionType)."""

    DENY = 2
    ALLOW = 3


CLUSTER_NAME: Final = "kafka-cluster"
"""The only resource of type CLUSTER."""

WILDCARD: Final = "*"
"""As a literal resource name: every resource of the type. As a host: every host."""

EVERYBODY: Final = "User:*"

_O = Operation

ALLOWED_BY: Final[dict[int, frozenset[int]]] = {
    **{operation: frozenset({operation, _O.ALL}) for operation in _O},
    _O.DESCRIBE: frozenset({_O.ALL, _O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER}),
    _O.DESCRIBE_CONFIGS: frozenset({_O.ALL, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS}),
}
"""Operation -> operations with a permission that implies it. A denial applies to its own operation, or to all."""

DENIED_BY: Final[dict[int, frozenset[int]]] = {operation: frozenset({operation, _O.ALL}) for operation in _O}

SUPPORTED: Final[dict[int, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        _O.READ, _O.WRITE, _O.CREATE, _O.DESCRIBE, _O.DELETE, _O.ALTER, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_O.READ, _O.DESCRIBE, _O.DELETE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        _O.CREATE, _O.CLUSTER_ACTION, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.IDEMPOTENT_WRITE, _O.ALTER, _O.DESCRIBE,
    ),
}  # fmt: skip
"""The possible operations on each type of resource, for answers that list them (KIP-430)."""

ALL_OPERATIONS: Final = {kind: sum(1 << operation for operation in names) for kind, names in SUPPORTED.items()}
"""The same as bit fields: everyone's operations without an authorizer."""

REFUSALS: Final[dict[int, tuple[ErrorCode, str]]] = {
    ResourceType.TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    ResourceType.GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    ResourceType.CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    ResourceType.TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
}
"""The refusal for each resource type, with Kafka's text for answers that have a message field."""


def type_title(resource_type: int) -> str:
    """The name of a resource type for people: `TransactionalId`."""
    return "".join(part.capitalize() for part in ResourceType(resource_type).name.split("_"))
