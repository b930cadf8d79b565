"""The records of consumer groups in `__consumer_offsets`: types 3 to 8 and 16, as in Apache Kafka 4.3.1.

A change without a value is a tombstone. Type 4 (topics with their partitions) was replaced by a hash: its records are
read without effect, and removed with their group.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kraft_node.broker.coordinators.group.consumer.assignors.spec import Target
from kraft_node.broker.coordinators.group.consumer.member import (
    ClassicProtocol,
    ClassicSide,
    Current,
    Held,
    MemberData,
    MemberState,
    Resolved,
)
from kraft_protocol.wire import codec
from kraft_protocol.wire.stored import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

if TYPE_CHECKING:
    from kraft_protocol.buffers import Buffer
    from kraft_protocol.ids import Uuid

GROUP, OLD_TOPICS, MEMBER, TARGET, TARGET_MEMBER, CURRENT, PATTERN = 3, 4, 5, 6, 7, 8, 16
_INT16: Final = struct.Struct(">h")
_VERSION: Final = _INT16.pack(0)


class GroupEpoch(NamedTuple):
    """The epoch of a group, and the hash of the topics to which it subscribes."""

    epoch: int
    metadata_hash: int


class TargetEpoch(NamedTuple):
    """The group epoch for which the target was computed, and when; 0: it may be computed again at once."""

    epoch: int
    timestamp_ms: int


class EpochChange(NamedTuple):
    """Type 3. The tombstone removes the group."""

    group: str
    value: GroupEpoch | None


class OldTopicsChange(NamedTuple):
    """Type 4; without effect."""

    group: str
    value: bytes | None = None


class MemberChange(NamedTuple):
    """Type 5."""

    group: str
    member_id: str
    value: MemberData | None


class TargetEpochChange(NamedTuple):
    """Type 6."""

    group: str
    value: TargetEpoch | None


class TargetChange(NamedTuple):
    """Type 7."""

    group: str
    member_id: str
    value: Target | None


class CurrentChange(NamedTuple):
    """Type 8."""

    group: str
    member_id: str
    value: Current | None


class PatternChange(NamedTuple):
    """Type 16."""

    group: str
    pattern: str
    value: Resolved | None


ConsumerChange: TypeAlias = (
    EpochChange | OldTopicsChange | MemberChange | TargetEpochChange | TargetChange | CurrentChange | PatternChange
)
CONSUMER_TYPES: Final = frozenset((GROUP, OLD_TOPICS, MEMBER, TARGET, TARGET_MEMBER, CURRENT, PATTERN))


# -- writing


def encode(change: ConsumerChange) -> tuple[bytes, bytes | None]:
    """Key and value of the record to append."""
    kind, key, value_of = _WRITERS[type(change)]
    stored_key = _INT16.pack(kind) + codec.encode(key(*change[:-1]), 0)
    if change.value is None:
        return stored_key, None
    assert value_of is not None, "law: records of type 4 are only ever removed"
    return stored_key, _VERSION + codec.encode(value_of(change.value), 0)


def _epoch_value(value: GroupEpoch) -> ConsumerGroupMetadataValue:
    return ConsumerGroupMetadataValue(epoch=value.epoch, metadata_hash=value.metadata_hash)


def _member_value(member: MemberData) -> ConsumerGroupMemberMetadataValue:
    kind = ConsumerGroupMemberMetadataValue
    classic = None
    if member.classic is not None:
        protocols = [kind.ClassicProtocol(name=p.name, metadata=p.metadata) for p in member.classic.protocols]
        classic = kind.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms, supported_protocols=protocols
        )
    return kind(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.names),
        subscribed_topic_regex=member.pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )


def _target_epoch_value(value: TargetEpoch) -> ConsumerGroupTargetAssignmentMetadataValue:
    return ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=value.epoch, assignment_timestamp=value.timestamp_ms
    )


def _target_value(target: Target) -> ConsumerGroupTargetAssignmentMemberValue:
    row = ConsumerGroupTargetAssignmentMemberValue.TopicPartition
    rows = [row(topic_id=topic, partitions=sorted(target[topic])) for topic in sorted(target)]
    return ConsumerGroupTargetAssignmentMemberValue(topic_partitions=rows)


def _current_value(current: Current) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        assigned_partitions=_held_rows(current.assigned),
        partitions_pending_revocation=_held_rows(current.revoking),
    )


def _held_rows(held: Held) -> list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]:
    rows = []
    for topic in sorted(held):
        numbers = sorted(held[topic])
        epochs = [held[topic][number] for number in numbers]
        rows.append(
            ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
                topic_id=topic, partitions=numbers, assignment_epochs=epochs
            )
        )
    return rows


def _resolved_value(value: Resolved) -> ConsumerGroupRegularExpressionValue:
    return ConsumerGroupRegularExpressionValue(
        topics=sorted(value.topics), version=value.version, timestamp=value.timestamp_ms
    )


_WRITERS: Final[dict[type, tuple[int, Callable[..., Any], Callable[[Any], Any] | None]]] = {
    EpochChange: (GROUP, ConsumerGroupMetadataKey, _epoch_value),
    OldTopicsChange: (OLD_TOPICS, ConsumerGroupPartitionMetadataKey, None),
    MemberChange: (MEMBER, ConsumerGroupMemberMetadataKey, _member_value),
    TargetEpochChange: (TARGET, ConsumerGroupTargetAssignmentMetadataKey, _target_epoch_value),
    TargetChange: (TARGET_MEMBER, ConsumerGroupTargetAssignmentMemberKey, _target_value),
    CurrentChange: (CURRENT, ConsumerGroupCurrentMemberAssignmentKey, _current_value),
    PatternChange: (PATTERN, ConsumerGroupRegularExpressionKey, _resolved_value),
}


# -- reading


def decode(kind: int, key: bytes, value: Buffer | None) -> ConsumerChange:
    """The change in a record of one of `CONSUMER_TYPES`. Raises ValueError (for example DecodeError) for damage."""
    change, key_class, value_class, value_of = _READERS[kind]
    parsed_key = codec.decode(key_class, key, 0)
    names = [getattr(parsed_key, field) for field in _KEY_FIELDS[kind]]
    if value is None:
        return change(*names, None)  # type: ignore[no-any-return]
    raw = bytes(value)
    if len(raw) < _INT16.size:
        raise ValueError(f"a record value of {len(raw)} bytes cannot hold its version")
    if value_class is None:
        return change(*names, raw)  # type: ignore[no-any-return]
    (version,) = _INT16.unpack_from(raw)
    parsed_value = codec.decode(value_class, raw[_INT16.size :], version)
    return change(*names, value_of(parsed_value, *names))  # type: ignore[no-any-return]


def _epoch_of(value: ConsumerGroupMetadataValue, _group: str) -> GroupEpoch:
    return GroupEpoch(value.epoch, value.metadata_hash)


def _member_of(value: ConsumerGroupMemberMetadataValue, _group: str, member_id: str) -> MemberData:
    classic = None
    stored = value.classic_member_metadata
    if stored is not None:
        protocols = tuple(ClassicProtocol(p.name, bytes(p.metadata)) for p in stored.supported_protocols)
        classic = ClassicSide(stored.session_timeout_ms, protocols)
    return MemberData(
        member_id,
        value.instance_id,
        value.rack_id,
        value.client_id,
        value.client_host,
        frozenset(value.subscribed_topic_names),
        value.subscribed_topic_regex or "",
        value.rebalance_timeout_ms,
        value.server_assignor,
        classic,
    )


def _target_epoch_of(value: ConsumerGroupTargetAssignmentMetadataValue, _group: str) -> TargetEpoch:
    return TargetEpoch(value.assignment_epoch, value.assignment_timestamp)


def _target_of(value: ConsumerGroupTargetAssignmentMemberValue, _group: str, _member_id: str) -> Target:
    return {row.topic_id: frozenset(row.partitions) for row in value.topic_partitions if row.partitions}


def _current_of(value: ConsumerGroupCurrentMemberAssignmentValue, _group: str, _member_id: str) -> Current:
    known = value.state in (MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED)
    return Current(
        value.member_epoch,
        value.previous_member_epoch,
        MemberState(value.state) if known else MemberState.UNKNOWN,
        _held_of(value.assigned_partitions, value.member_epoch),
        _held_of(value.partitions_pending_revocation, value.member_epoch),
    )


def _held_of(
    rows: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions], epoch: int
) -> dict[Uuid, Mapping[int, int]]:
    """Rows of older releases have no epochs: then the member's epoch counts for all."""
    held: dict[Uuid, Mapping[int, int]] = {}
    for row in rows:
        epochs = row.assignment_epochs
        if epochs is None or len(epochs) != len(row.partitions):
            held[row.topic_id] = dict.fromkeys(row.partitions, epoch)
        else:
            held[row.topic_id] = dict(zip(row.partitions, epochs, strict=True))
    return held


def _resolved_of(value: ConsumerGroupRegularExpressionValue, _group: str, _pattern: str) -> Resolved:
    return Resolved(frozenset(value.topics), value.version, value.timestamp)


_KEY_FIELDS: Final = {
    GROUP: ("group_id",),
    OLD_TOPICS: ("group_id",),
    MEMBER: ("group_id", "member_id"),
    TARGET: ("group_id",),
    TARGET_MEMBER: ("group_id", "member_id"),
    CURRENT: ("group_id", "member_id"),
    PATTERN: ("group_id", "regular_expression"),
}
_READERS: Final[dict[int, tuple[Callable[..., Any], Any, Any, Callable[..., Any]]]] = {
    GROUP: (EpochChange, ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, _epoch_of),
    OLD_TOPICS: (OldTopicsChange, ConsumerGroupPartitionMetadataKey, None, bytes),
    MEMBER: (MemberChange, ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, _member_of),
    TARGET: (
        TargetEpochChange,
        ConsumerGroupTargetAssignmentMetadataKey,
        ConsumerGroupTargetAssignmentMetadataValue,
        _target_epoch_of,
    ),
    TARGET_MEMBER: (
        TargetChange,
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMemberValue,
        _target_of,
    ),
    CURRENT: (
        CurrentChange,
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupCurrentMemberAssignmentValue,
        _current_of,
    ),
    PATTERN: (
        PatternChange,
        ConsumerGroupRegularExpressionKey,
        ConsumerGroupRegularExpressionValue,
        _resolved_of,
    ),
}


# -- removal


def member_removal(group: str, member_id: str) -> list[ConsumerChange]:
    """The tombstones of one member, from the dependent records to the member."""
    return [
        CurrentChange(group, member_id, None),
        TargetChange(group, member_id, None),
        MemberChange(group, member_id, None),
    ]
