"""What can go wrong between us and the brokers, and which answers are worth another try."""

from __future__ import annotations

from typing import Final

NAMES: Final = {
    -1: "UNKNOWN_SERVER_ERROR",
    1: "OFFSET_OUT_OF_RANGE",
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE",
    6: "NOT_LEADER_OR_FOLLOWER",
    7: "REQUEST_TIMED_OUT",
    9: "REPLICA_NOT_AVAILABLE",
    10: "MESSAGE_TOO_LARGE",
    13: "NETWORK_EXCEPTION",
    14: "COORDINATOR_LOAD_IN_PROGRESS",
    15: "COORDINATOR_NOT_AVAILABLE",
    16: "NOT_COORDINATOR",
    17: "INVALID_TOPIC_EXCEPTION",
    18: "RECORD_LIST_TOO_LARGE",
    19: "NOT_ENOUGH_REPLICAS",
    20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    22: "ILLEGAL_GENERATION",
    24: "INVALID_GROUP_ID",
    25: "UNKNOWN_MEMBER_ID",
    27: "REBALANCE_IN_PROGRESS",
    28: "INVALID_COMMIT_OFFSET_SIZE",
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    31: "CLUSTER_AUTHORIZATION_FAILED",
    32: "INVALID_TIMESTAMP",
    35: "UNSUPPORTED_VERSION",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    46: "DUPLICATE_SEQUENCE_NUMBER",
    47: "INVALID_PRODUCER_EPOCH",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    56: "KAFKA_STORAGE_ERROR",
    59: "UNKNOWN_PRODUCER_ID",
    74: "FENCED_LEADER_EPOCH",
    75: "UNKNOWN_LEADER_EPOCH",
    76: "UNSUPPORTED_COMPRESSION_TYPE",
    78: "OFFSET_NOT_AVAILABLE",
    87: "INVALID_RECORD",
    89: "THROTTLING_QUOTA_EXCEEDED",
    100: "UNKNOWN_TOPIC_ID",
    103: "INCONSISTENT_TOPIC_ID",
}
"""The answers that the requests in `messages` may bring, as the protocol names them."""

OFFSET_OUT_OF_RANGE: Final = 1
RETRIABLE: Final = frozenset({3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 56, 74, 75, 78, 89, 100, 103})
"""What another leader, or the same one a little later, may answer otherwise."""
GONE: Final = frozenset({3, 100, 103})
"""Of these what is said of topics that are not there, or not any more."""


class ClientError(Exception):
    """The cluster cannot be asked, or not for this; the message names what, where, and for how long it was tried."""


class BrokerError(ClientError):
    """A broker's answer was an error; `code` is the protocol's."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: {NAMES.get(code, 'error')} ({code})")
        self.code = code


class DataLossError(ClientError):
    """Records that were there when the range was planned are there no longer."""
