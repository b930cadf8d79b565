"""Control records: records that brokers and voters write for each other. Applications never get them.

Key: version i16 (0) and type i16. Transaction markers (KIP-98) have a hand-written value. Control records of the
metadata log (KIP-595 leader change, KIP-630 snapshot header and footer, KIP-853 kraft.version and voters) hold flexible
messages at version 0. Their classes are in `wire.stored`; here their values are bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, NamedTuple

from kraft_protocol.buffers import Buffer
from kraft_protocol.records.batch import (
    CONTROL_BIT,
    HEADER_SIZE,
    NO_LEADER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    NewRecord,
    build_batch,
    iter_records,
    seal,
)
from kraft_protocol.records.errors import CorruptBatch

KEY: Final = Struct(">hh")
END_TXN_MARKER: Final = Struct(">hi")
CONTROL_VERSION: Final = 0
_MARKER: Final = Struct(">bbbbbhhbhib")
"""The only record of a marker's batch. All of its varints have one byte: its size, attributes, timestamp and offset
deltas, sizes of key and value, number of headers."""
_MARKER_START: Final = (2 * (_MARKER.size - 1), 0, 0, 0, 2 * KEY.size, CONTROL_VERSION)
_MARKER_VALUE: Final = (2 * END_TXN_MARKER.size, 0)


class ControlType(IntEnum):
    """Types of control records; readers ignore unknown types."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


class ControlRecord(NamedTuple):
    """A control record as read; `value` is the message, still encoded."""

    offset: int
    timestamp: int
    type: ControlType
    value: bytes


def control_key(type_: int) -> bytes:
    """The key of a control record of this type."""
    return KEY.pack(CONTROL_VERSION, type_)


def parse_control_key(key: bytes | None) -> ControlType:
    """The type in `key`; UNKNOWN for types of later releases. Raises CorruptBatch if it is not a control key."""
    if key is None or len(key) < KEY.size:
        raise CorruptBatch(f"control record with key {key!r}")
    version, type_ = KEY.unpack_from(key)
    if version < 0:
        raise CorruptBatch(f"control record key of version {version}")
    return ControlType(type_) if 0 <= type_ <= ControlType.KRAFT_VOTERS else ControlType.UNKNOWN


def build_control_batch(
    records: Iterable[tuple[int, bytes]],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    timestamp: int = -1,
) -> bytes:
    """A control batch of (type, encoded message) records."""
    return build_batch(
        [NewRecord(control_key(type_), value, timestamp) for type_, value in records],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        timestamp=timestamp,
        control=True,
    )


def build_marker(
    *,
    commit: bool,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The batch that ends a producer's transaction in a partition."""
    type_ = ControlType.COMMIT if commit else ControlType.ABORT
    record = _MARKER.pack(*_MARKER_START, type_, *_MARKER_VALUE, coordinator_epoch, 0)
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    fields = (attributes, 0, timestamp, timestamp, producer_id, producer_epoch, NO_SEQUENCE, 1)
    return seal(base_offset, leader_epoch, fields, record)


def built_marker(batch: Buffer) -> tuple[ControlType, int]:
    """The type and the coordinator epoch of a batch that `build_marker` has made."""
    fields = _MARKER.unpack_from(batch, HEADER_SIZE)
    return ControlType.COMMIT if fields[6] == ControlType.COMMIT else ControlType.ABORT, fields[9]


def parse_marker(value: bytes | None) -> int:
    """The coordinator epoch in a marker's value. Raises CorruptBatch."""
    try:
        version, epoch = END_TXN_MARKER.unpack_from(value or b"")
    except StructError:
        raise CorruptBatch(f"transaction marker with value {value!r}") from None
    if version < 0:
        raise CorruptBatch(f"transaction marker of version {version}")
    return int(epoch)


def iter_control_records(buffer: Buffer, header: BatchHeader | None = None) -> Iterable[ControlRecord]:
    """The control records of one control batch."""
    for record in iter_records(buffer, header):
        yield ControlRecord(record.offset, record.timestamp, parse_control_key(record.key), record.value or b"")
