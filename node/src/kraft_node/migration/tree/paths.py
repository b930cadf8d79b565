"""The paths of Kafka's znodes.

Names of users, client ids and addresses are percent-encoded in paths; names of topics and of ACLs' resources are not.
`<default>` is the entity of all others.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote

from kraft_node.security.names import PatternType, type_title

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
MIGRATION: Final = "/migration"
CLUSTER_ID: Final = "/cluster/id"
BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
DELETED_TOPICS: Final = "/admin/delete_topics"
CONFIGS: Final = "/config"
PRODUCER_IDS: Final = "/latest_producer_id_block"
TOKENS: Final = "/delegation_token/tokens"

CONFIG_CHANGE: Final = "/config/changes/config_change_"
TOKEN_CHANGE: Final = "/delegation_token/token_changes/token_change_"  # noqa: S105 - a path
LITERAL_ACL_CHANGE: Final = "/kafka-acl-changes/acl_changes_"
EXTENDED_ACL_CHANGE: Final = "/kafka-acl-extended-changes/acl_changes_"
"""Brokers watch these folders: a sequential znode names what has changed."""

DEFAULT: Final = "<default>"
LITERAL_ACLS: Final = "/kafka-acl"
PREFIXED_ACLS: Final = "/kafka-acl-extended/prefixed"


_UNUSABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")
"""Characters that ZooKeeper refuses in paths (its PathUtils, which counts in units of UTF-16)."""


def is_name(text: str) -> bool:
    """Whether a znode can have this name. A resource of ACLs may have any name, such as `..` or `a/b`."""
    return text not in ("", ".", "..") and "/" not in text and not _UNUSABLE.search(text)


def is_usable(path: str) -> bool:
    """Whether ZooKeeper accepts the path."""
    return all(map(is_name, path.split("/")[1:]))


def encoded_name(name: str | None) -> str:
    """The part of a path that stands for a user, a client id or an address; None is the default entity."""
    return DEFAULT if name is None else quote(name, safe="").replace("~", "%7E")


def decoded_name(part: str) -> str | None:
    """Inverse of `encoded_name`."""
    return None if part == DEFAULT else unquote(part)


def topic(name: str) -> str:
    """The znode with the assignments of a topic's partitions."""
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    """The folder of a topic's partitions, the parent of `partition`."""
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, number: int) -> str:
    """The folder of a partition; its only child is `partition_state`."""
    return f"{TOPICS}/{name}/partitions/{number}"


def partition_state(name: str, number: int) -> str:
    """The znode with a partition's leader, epoch and ISR."""
    return f"{TOPICS}/{name}/partitions/{number}/state"


def config(entity_path: str) -> str:
    """The znode of a configuration or a quota; `entity_path` as in notifications: `topics/a`, `users/b/clients/c`."""
    return f"{CONFIGS}/{entity_path}"


def acl_store(pattern: int) -> str:
    """The folder of a pattern type's ACLs."""
    return LITERAL_ACLS if pattern == PatternType.LITERAL else PREFIXED_ACLS


def acls(pattern: int, resource_type: int, name: str) -> str:
    """The znode with the ACLs of one resource."""
    return f"{acl_store(pattern)}/{type_title(resource_type)}/{name}"


def acl_change(pattern: int) -> str:
    """The beginning of the path of the sequential znodes that announce changed ACLs of this pattern type."""
    return LITERAL_ACL_CHANGE if pattern == PatternType.LITERAL else EXTENDED_ACL_CHANGE


def token(token_id: str) -> str:
    """The znode of a delegation token."""
    return f"{TOKENS}/{token_id}"
