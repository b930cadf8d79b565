"""Kafka's protocol as the operator uses it: the versions of its requests, and its client."""

from __future__ import annotations

from typing import Final

from kraft_protocol.client.aio import ANSWER_S, Client
from kraft_protocol.client.security import NO_SECURITY, ClientSecurity
from kraft_protocol.client.session import Software, Versions
from kraft_protocol.wire.api import ApiKey

SOFTWARE: Final = Software("kraft-operator", "kraft-operator", "1")
VERSIONS: Final = {
    ApiKey.METADATA: 12,
    # Versions before 4 leave out features with a range from 0, such as kraft.version (KIP-1022).
    ApiKey.API_VERSIONS: 4,
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.DESCRIBE_CONFIGS: 4,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 2,
    ApiKey.DESCRIBE_LOG_DIRS: 4,
    ApiKey.DESCRIBE_ACLS: 3,
    ApiKey.CREATE_ACLS: 3,
    ApiKey.DELETE_ACLS: 3,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: 0,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: 1,
    ApiKey.ALTER_CLIENT_QUOTAS: 1,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: 0,
    ApiKey.DESCRIBE_QUORUM: 2,
    ApiKey.UPDATE_FEATURES: 1,
    ApiKey.DESCRIBE_CLUSTER: 2,
    ApiKey.UNREGISTER_BROKER: 0,
    ApiKey.ADD_RAFT_VOTER: 0,
    ApiKey.REMOVE_RAFT_VOTER: 0,
}
"""The version of each request. Apache Kafka 4.0 and later serve all of them."""


def new_client(timeout_s: float = ANSWER_S, security: ClientSecurity = NO_SECURITY) -> Client:
    """A client for the nodes of one cluster. The caller closes it."""
    versions: Versions = {key: (version, version) for key, version in VERSIONS.items()}
    return Client(SOFTWARE, versions, timeout_s, security=security)
