"""The consumer protocol inside the classic one: subscriptions and assignments as bytes, which members exchange.

A broker reads and writes them only for classic members of consumer groups.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from kraft_protocol.wire import codec
from kraft_protocol.wire.errors import DecodeError
from kraft_protocol.wire.stored import ConsumerProtocolAssignment, ConsumerProtocolSubscription

_INT16: Final = struct.Struct(">h")
LATEST_VERSION: Final = 3


class Subscription(NamedTuple):
    """The subscription of a classic member."""

    topics: frozenset[str]
    owned: Mapping[str, frozenset[int]]
    """The partitions that it has not given up, by topic name."""
    rack_id: str | None
    version: int


def read_subscription(metadata: bytes) -> Subscription:
    """The subscription in a protocol's metadata. Raises ValueError for other bytes."""
    version, body = _versioned(metadata)
    stored = codec.decode_from(ConsumerProtocolSubscription, body, 0, min(version, LATEST_VERSION))[0]
    owned: dict[str, frozenset[int]] = {}
    for row in stored.owned_partitions:
        owned[row.topic] = owned.get(row.topic, frozenset()).union(row.partitions)
    return Subscription(frozenset(stored.topics), owned, stored.rack_id, version)


def read_assignment(assignment: bytes) -> tuple[dict[str, frozenset[int]], bytes]:
    """The assigned partitions by topic name, and the assignor's own data. Raises ValueError for other bytes."""
    if not assignment:
        return {}, b""
    version, body = _versioned(assignment)
    stored = codec.decode_from(ConsumerProtocolAssignment, body, 0, min(version, LATEST_VERSION))[0]
    found = {row.topic: frozenset(row.partitions) for row in stored.assigned_partitions}
    return found, bytes(stored.user_data or b"")


def write_assignment(partitions: Mapping[str, list[int]], version: int) -> bytes:
    """The bytes for a member with a subscription of `version`."""
    version = min(version, LATEST_VERSION)
    row = ConsumerProtocolAssignment.TopicPartition
    rows = [row(topic=topic, partitions=sorted(partitions[topic])) for topic in sorted(partitions)]
    message = ConsumerProtocolAssignment(assigned_partitions=rows, user_data=None)
    return _INT16.pack(version) + codec.encode(message, version)


def _versioned(data: bytes) -> tuple[int, bytes]:
    if len(data) < _INT16.size:
        raise DecodeError(f"{len(data)} bytes cannot hold the version of the consumer protocol")
    (version,) = _INT16.unpack_from(data)
    if version < 0:
        raise DecodeError(f"the consumer protocol has no version {version}")
    return version, data[_INT16.size :]
