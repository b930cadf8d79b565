"""Errors of clients, and how to treat Kafka's error codes."""

from __future__ import annotations

from typing import Final

from kraft_protocol.errors import ErrorCode

OFFSET_OUT_OF_RANGE: Final = int(ErrorCode.OFFSET_OUT_OF_RANGE)
TOPIC_AUTHORIZATION_FAILED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
GONE: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)
"""The retriable codes that a missing or deleted topic causes."""
RETRIABLE: Final = GONE | {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
}
"""Codes after which another leader, or the same leader later, may succeed."""


def code_text(code: int) -> str:
    """A code as `NAME (number)`."""
    return f"{ErrorCode(code).name} ({code})"


class ClientError(Exception):
    """A request failed for good. The message names the request, the broker, and how long the client retried."""


class ProtocolError(ClientError):
    """The other side violates the protocol. The connection can no longer be used."""


class AuthenticationError(ClientError):
    """The broker and the client do not authenticate each other. Retries with the same credentials fail again."""


class VersionError(ClientError):
    """A broker does not serve a version that the client needs."""


class BrokerError(ClientError):
    """A broker answered with an error; `code` is the protocol's error code."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: {code_text(code)}")
        self.code = code


class DataLossError(ClientError):
    """Records of a planned range no longer exist."""
