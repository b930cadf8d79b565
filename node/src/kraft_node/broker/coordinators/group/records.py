"""The stored form of the group coordinator: changes, and their records in `__consumer_offsets`.

A key is an int16 record type and the key's fields; a value an int16 version and the value's fields. Written versions,
as in Apache Kafka 4.3.1: offsets with value version 4 (version 1 if the commit has its own retention time,
OffsetCommit v2 to v4), groups with value version 3. Every version is read, also the older type 0 of offset commits.
The records of consumer groups are in `consumer.changes`. Records of share and streams groups (KIP-932, KIP-1071) are
stored by key and not interpreted. So a group of another type can be listed, deleted, and taken over by classic members
once it is empty.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kraft_node.broker.coordinators.group.consumer import changes
from kraft_node.broker.coordinators.group.consumer.changes import ConsumerChange
from kraft_node.broker.coordinators.group.offsets import CommittedOffset
from kraft_node.broker.coordinators.runtime.machine import NewerRecordError
from kraft_protocol.wire import codec
from kraft_protocol.wire.stored import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

if TYPE_CHECKING:
    from kraft_node.broker.coordinators.group.classic import ClassicGroup
    from kraft_node.broker.coordinators.runtime.machine import StoredRecord
    from kraft_protocol.buffers import Buffer

_INT16 = struct.Struct(">h")
LEGACY_OFFSET_COMMIT: Final = 0
OFFSET_COMMIT: Final = 1
GROUP_METADATA: Final = 2

CONSUMER: Final = "consumer"
SHARE: Final = "share"
STREAMS: Final = "streams"
FOREIGN_TYPES: Final = {
    **dict.fromkeys((10, 11, 12, 13, 14, 15), SHARE),
    **dict.fromkeys((17, 19, 20, 21, 22, 23), STREAMS),
}
"""Record types of groups that are neither classic nor consumer groups, with the group type in ListGroups."""

_FOREIGN_ORDER: Final = (22, 14, 21, 13, 20, 12, 15, 23, 19, 10)
"""The order of deletion, from dependent records to the group: assignments, targets, members, the group."""

OFFSET_VALUE_VERSION: Final = 4
OFFSET_VALUE_VERSION_EXPIRING: Final = 1
GROUP_VALUE_VERSION: Final = 3


class OffsetChange(NamedTuple):
    """A committed offset, or its removal when `value` is None."""

    group: str
    topic: str
    partition: int
    value: CommittedOffset | None


class GroupChange(NamedTuple):
    """A classic group's generation with its members, or the removal of the group if `value` is None."""

    group: str
    value: GroupMetadataValue | None


class ForeignChange(NamedTuple):
    """A record of a group of a type that this release lacks; `key` in stored form, `removed` for a tombstone."""

    group: str
    kind: str
    key: bytes
    removed: bool


Change: TypeAlias = OffsetChange | GroupChange | ForeignChange | ConsumerChange


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """The stored key of a committed offset: the record type as a big-endian int16, then the OffsetCommitKey."""
    return _INT16.pack(OFFSET_COMMIT) + codec.encode(OffsetCommitKey(group, topic, partition), 0)


def encode_change(change: Change) -> StoredRecord:
    """The record to append."""
    if isinstance(change, OffsetChange):
        key = offset_key(change.group, change.topic, change.partition)
        return key, None if change.value is None else _offset_value(change.value)
    if isinstance(change, GroupChange):
        key = _INT16.pack(GROUP_METADATA) + codec.encode(GroupMetadataKey(change.group), 0)
        if change.value is None:
            return key, None
        return key, _INT16.pack(GROUP_VALUE_VERSION) + codec.encode(change.value, GROUP_VALUE_VERSION)
    if isinstance(change, ForeignChange):
        assert change.removed, "records of groups of other types are only ever removed here"
        return change.key, None
    return changes.encode(change)


def _offset_value(value: CommittedOffset) -> bytes:
    expires = value.expire_ms is not None
    version = OFFSET_VALUE_VERSION_EXPIRING if expires else OFFSET_VALUE_VERSION
    message = OffsetCommitValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_ms,
        expire_timestamp=-1 if value.expire_ms is None else value.expire_ms,
        topic_id=value.topic_id,
    )
    return _INT16.pack(version) + codec.encode(message, version)


def group_snapshot(group: ClassicGroup, assignments: dict[str, bytes]) -> GroupChange:
    """The present state of the group, with `assignments` by member id."""
    protocol = group.protocol
    members = [
        GroupMetadataValue.MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.protocols.get(protocol, b"") if protocol is not None else b"",
            assignment=assignments.get(member.member_id, b""),
        )
        for member in group.members.values()
    ]
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=protocol,
        leader=group.leader,
        current_state_timestamp=-1 if group.state_since_ms is None else group.state_since_ms,
        members=members,
    )
    return GroupChange(group.group_id, value)


def new_group(group: ClassicGroup) -> GroupChange:
    """A group without members."""
    since = -1 if group.state_since_ms is None else group.state_since_ms
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=since, members=[]
    )
    return GroupChange(group.group_id, value)


def decode_change(key: Buffer, value: Buffer | None) -> Change:
    """The change in a stored record.

    Raises UnknownRecordTypeError for a type of a later release, ValueError (for example wire.errors.DecodeError) for
    damage.
    """
    key = bytes(key)
    if len(key) < _INT16.size:
        raise ValueError(f"a record key of {len(key)} bytes cannot hold its type")
    (kind,) = _INT16.unpack_from(key)
    body = key[_INT16.size :]
    if kind == OFFSET_COMMIT:
        offset_key = codec.decode(OffsetCommitKey, body, 0)
        return OffsetChange(
            offset_key.group, offset_key.topic, offset_key.partition, None if value is None else _decode_offset(value)
        )
    if kind == GROUP_METADATA:
        group_key = codec.decode(GroupMetadataKey, body, 0)
        if value is None:
            return GroupChange(group_key.group, None)
        version, raw = _versioned(value)
        return GroupChange(group_key.group, codec.decode(GroupMetadataValue, raw, version))
    if kind == LEGACY_OFFSET_COMMIT:
        legacy_key = codec.decode(LegacyOffsetCommitKey, body, 0)
        return OffsetChange(
            legacy_key.group, legacy_key.topic, legacy_key.partition, None if value is None else _decode_legacy(value)
        )
    if kind in changes.CONSUMER_TYPES:
        return changes.decode(kind, body, value)
    foreign = FOREIGN_TYPES.get(kind)
    if foreign is None:
        raise NewerRecordError(f"unknown record type {kind}")
    return ForeignChange(_first_string(body), foreign, key, removed=value is None)


def _versioned(value: Buffer) -> tuple[int, bytes]:
    raw = bytes(value)
    if len(raw) < _INT16.size:
        raise ValueError(f"a record value of {len(raw)} bytes cannot hold its version")
    return _INT16.unpack_from(raw)[0], raw[_INT16.size :]


def _decode_offset(value: Buffer) -> CommittedOffset:
    version, raw = _versioned(value)
    commit = codec.decode(OffsetCommitValue, raw, version)
    expire = None if commit.expire_timestamp == -1 else commit.expire_timestamp
    return CommittedOffset(
        commit.offset, commit.leader_epoch, commit.metadata, commit.commit_timestamp, expire, commit.topic_id
    )


def _decode_legacy(value: Buffer) -> CommittedOffset:
    version, raw = _versioned(value)
    commit = codec.decode(LegacyOffsetCommitValue, raw, version)
    return CommittedOffset(commit.offset, -1, commit.metadata, commit.commit_timestamp)


def _first_string(body: bytes) -> str:
    if len(body) < _INT16.size:
        raise ValueError("a group record's key without group id")
    (length,) = _INT16.unpack_from(body)
    end = _INT16.size + length
    if length < 0 or end > len(body):
        raise ValueError(f"a group id of {length} bytes in a key of {len(body)}")
    return body[_INT16.size : end].decode("utf-8")


def foreign_removals(group: str, kind: str, keys: set[bytes]) -> list[ForeignChange]:
    """Tombstones for all records of a group of another type."""

    def rank(key: bytes) -> tuple[int, bytes]:
        (record_type,) = _INT16.unpack_from(key)
        known = record_type in _FOREIGN_ORDER
        return (_FOREIGN_ORDER.index(record_type) if known else len(_FOREIGN_ORDER)), key

    return [ForeignChange(group, kind, key, removed=True) for key in sorted(keys, key=rank)]
