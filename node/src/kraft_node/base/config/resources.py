"""Types of configuration resources, operations on them, and checks of requests about one node.

The numbers are the same as in requests and in ConfigRecord. Brokers and controllers share this module.
"""

from __future__ import annotations

from typing import Final

from kraft_node.base.config.value_types import java_int
from kraft_protocol.errors import ErrorCode, KafkaError

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
BROKER_LOGGER_RESOURCE: Final = 8
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
RESOURCES: Final = {
    TOPIC_RESOURCE: "TOPIC",
    BROKER_RESOURCE: "BROKER",
    BROKER_LOGGER_RESOURCE: "BROKER_LOGGER",
    CLIENT_METRICS_RESOURCE: "CLIENT_METRICS",
    GROUP_RESOURCE: "GROUP",
}
"""All types, with Kafka's names (ConfigResource.Type)."""

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
OPERATIONS: Final = (SET, DELETE, APPEND, SUBTRACT)
"""Operations of IncrementalAlterConfigs (KIP-339)."""


def check_described(own: int, name: str, alternative: str) -> None:
    """Raise KafkaError INVALID_REQUEST unless the resource `name` of DescribeConfigs is the node `own`."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    number = java_int(name)
    if number is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if number != own:
        message = f"Unexpected broker id, expected {own} {alternative}but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)


def check_altered(own: int, name: str, text: str) -> None:
    """Raise KafkaError INVALID_REQUEST unless the resource `name` of an alteration is the node `own`.

    `text` is the message for the id of another node; it is formatted with `own` and `name`.
    """
    number = java_int(name)
    if number is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if number != own:
        raise KafkaError(ErrorCode.INVALID_REQUEST, text % (own, name))
