"""The APIs: keys, versions, listeners, header versions. Read from the schemas' index."""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Final

from kraft_protocol.wire import messages
from kraft_protocol.wire.schema import Versions, index, parse_head

if TYPE_CHECKING:
    from kraft_protocol.wire.classes import Message


class ApiKey(IntEnum):
    """The API keys of requests (ApiKeys of Kafka 4.3.1)."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class ApiSpec:
    """One API. Its message classes are made on first access."""

    __slots__ = ("flexible", "key", "listeners", "name", "unstable", "versions")

    def __init__(
        self, key: ApiKey, name: str, versions: Versions, flexible: Versions, listeners: tuple[str, ...], unstable: bool
    ) -> None:
        self.key = key
        self.name = name
        self.versions = versions
        self.flexible = flexible
        self.listeners = listeners
        self.unstable = unstable

    @property
    def min_version(self) -> int:
        """The oldest version."""
        return self.versions.low

    @property
    def max_version(self) -> int:
        """The latest stable version."""
        return self.versions.high - self.unstable

    @property
    def flexible_from(self) -> int:
        """The first flexible version; above every version if no version is flexible."""
        return self.flexible.low if self.flexible.high >= 0 else 1 << 15

    @property
    def request(self) -> type[Message]:
        """The class of requests."""
        made: type[Message] = getattr(messages, self.name + "Request")
        return made

    @property
    def response(self) -> type[Message]:
        """The class of responses."""
        made: type[Message] = getattr(messages, self.name + "Response")
        return made


@cache
def _specs() -> dict[int, ApiSpec]:
    specs = {}
    for entry in index().values():
        if entry.kind == "request":
            head = parse_head(entry.head)
            key = ApiKey(head.api_key)
            name = head.name.removesuffix("Request")
            if head.valid.high < 0:  # removed; only its number is kept
                continue
            specs[int(key)] = ApiSpec(key, name, head.valid, head.flexible, head.listeners, head.unstable)
    return specs


API: Final[dict[int, ApiSpec]] = _specs()
"""Key -> API."""

FLEXIBLE_REQUESTS_FROM: Final[dict[int, int]] = {key: spec.flexible_from for key, spec in API.items()}
"""Key -> first version with request header 2."""

FLEXIBLE_RESPONSES_FROM: Final[dict[int, int]] = {**FLEXIBLE_REQUESTS_FROM, int(ApiKey.API_VERSIONS): 1 << 15}
"""Key -> first version with response header 1; never for ApiVersions (KIP-511)."""


def request_header_version(key: int, version: int) -> int:
    """1, or 2 (with tagged fields) for flexible versions."""
    return 2 if version >= FLEXIBLE_REQUESTS_FROM[key] else 1


def response_header_version(key: int, version: int) -> int:
    """0, or 1 (with tagged fields) for flexible versions; always 0 for ApiVersions."""
    return 1 if version >= FLEXIBLE_RESPONSES_FROM[key] else 0


def name_of(key: int) -> str:
    """The API's name for messages and logs."""
    spec = API.get(key)
    return spec.name if spec is not None else f"api {key}"
