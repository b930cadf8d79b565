"""Conversion of metadata records to batches of the metadata log and of snapshots, and back (KIP-631, KIP-630)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NamedTuple

from kraft_node.metadata.kinds import kind_of
from kraft_node.metadata.partitions import MetadataError
from kraft_node.metadata.records import decode_record, encode_record
from kraft_node.raft.membership.quorum import ReplicaKey
from kraft_protocol.buffers import Buffer
from kraft_protocol.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    iter_headers,
    iter_records,
    records_section,
    seal,
)
from kraft_protocol.records.control import ControlRecord, ControlType, build_control_batch, iter_control_records
from kraft_protocol.records.varint import write_varint
from kraft_protocol.wire import stored
from kraft_protocol.wire.codec import encode
from kraft_protocol.wire.errors import DecodeError

SNAPSHOT_BATCH_BYTES: Final = 16 * 1024
"""Approximate size of a batch in a snapshot. The format allows 8 MiB, but commits wait while a batch is made."""

VARINTS_KEPT: Final = 4_000
"""Cached varints of offset deltas and lengths: more than the records of a snapshot's batch."""


def encode_values(records: Iterable[Any], metadata_level: int) -> list[bytes]:
    """Record values at the given metadata.version level."""
    return [encode_record(record, kind_of(record).version(metadata_level)) for record in records]


def data_batch(values: Sequence[bytes], base_offset: int, epoch: int, timestamp_ms: int) -> bytes:
    """One uncompressed batch of record values: equal to the result of `build_batch`, without an object per record."""
    parts: list[bytes] = []
    for delta, value in enumerate(values):
        place, length = _varint(delta), _varint(len(value))
        # Attributes and time delta are 0, then the offset's delta, no key (-1), the value, no headers.
        size = 4 + len(place) + len(length) + len(value)
        parts += (_varint(size), b"\0\0", place, b"\1", length, value, b"\0")
    count = len(values)
    fields = (0, max(count - 1, 0), timestamp_ms, timestamp_ms, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, count)
    return seal(base_offset, epoch, fields, b"".join(parts))


@lru_cache(maxsize=VARINTS_KEPT)
def _varint(number: int) -> bytes:
    out = bytearray()
    write_varint(out, number)
    return bytes(out)


def iter_values(buffer: Buffer, header: BatchHeader) -> Iterator[bytes]:
    """The record values of a batch of metadata, in order: `iter_records` without an object per record.

    Raises BatchError. Records in any other form than `data_batch` writes are read by `iter_records`.
    """
    data = bytes(records_section(buffer, header))
    position = 0
    for taken in range(header.count):
        found = _plain_value(data, position, taken)
        if found is None:
            break
        value, position = found
        yield value
    else:
        if position == len(data):
            return
        taken = header.count
    for record in islice(iter_records(buffer, header), taken, None):
        yield record.value or b""


def _plain_value(data: bytes, position: int, delta: int) -> tuple[bytes, int] | None:
    """The value of the record at `position`, and the next position; None unless it has the plain form."""
    try:
        size = data[position]
        start = position + 1
        if size >= 0x80:
            high = data[start]
            if high >= 0x80:
                return None
            size = size & 0x7F | high << 7
            start += 1
        place = _varint(delta)
        at = start + 2 + len(place)
        if data[start : at + 1] != b"\0\0" + place + b"\1":
            return None
        length = data[at + 1]
        at += 2
        if length >= 0x80:
            high = data[at]
            if high >= 0x80:
                return None
            length = length & 0x7F | high << 7
            at += 1
        end = at + (length >> 1)
        if (size | length) & 1 or end + 1 != start + (size >> 1) or data[end]:
            return None
    except IndexError:
        return None
    return data[at:end], end + 1


def leader_change_batch(
    offset: int,
    epoch: int,
    leader_id: int,
    voters: Iterable[ReplicaKey],
    granting: Iterable[ReplicaKey],
    timestamp_ms: int,
    extra: Sequence[tuple[int, bytes]] = (),
) -> bytes:
    """The first batch of an epoch (KIP-595): LeaderChange at version 0, as in the release, then `extra`."""
    voter = stored.LeaderChangeMessage.Voter
    message = stored.LeaderChangeMessage(
        version=0,
        leader_id=leader_id,
        voters=[voter(voter_id=key.id) for key in voters],
        granting_voters=[voter(voter_id=key.id) for key in granting],
    )
    value = encode(message, 0)
    return build_control_batch(
        [(ControlType.LEADER_CHANGE, value), *extra], base_offset=offset, leader_epoch=epoch, timestamp=timestamp_ms
    )


def voters_batch(offset: int, epoch: int, records: Sequence[tuple[int, bytes]], timestamp_ms: int) -> bytes:
    """The batch that states the voters, perhaps after kraft.version (KIP-853): (control type, value) pairs."""
    return build_control_batch(records, base_offset=offset, leader_epoch=epoch, timestamp=timestamp_ms)


def snapshot_header_batch(
    epoch: int, last_contained_ms: int, timestamp_ms: int, extra: Sequence[tuple[int, bytes]] = ()
) -> bytes:
    """The first batch of a snapshot: its header, then (`extra`) kraft.version and voters if the log has them."""
    message = stored.SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_ms)
    value = encode(message, 0)
    return build_control_batch(
        [(ControlType.SNAPSHOT_HEADER, value), *extra], base_offset=0, leader_epoch=epoch, timestamp=timestamp_ms
    )


def snapshot_footer_batch(base_offset: int, epoch: int, timestamp_ms: int) -> bytes:
    """The control batch that ends a snapshot: without it the snapshot is not whole (KIP-630)."""
    value = encode(stored.SnapshotFooterRecord(version=0), 0)
    return build_control_batch(
        [(ControlType.SNAPSHOT_FOOTER, value)], base_offset=base_offset, leader_epoch=epoch, timestamp=timestamp_ms
    )


class MetadataBatch(NamedTuple):
    """A batch as read: its records with their offsets, or its control records."""

    last_offset: int
    epoch: int
    timestamp_ms: int
    records: list[tuple[int, Any]]
    control: list[ControlRecord]
    length: int


def _decode(offset: int, value: bytes | None) -> tuple[int, Any]:
    try:
        return offset, decode_record(value or b"")
    except DecodeError as e:
        raise MetadataError(f"metadata record at offset {offset}: {e}") from None


def decode_batches(buffer: Buffer) -> Iterator[MetadataBatch]:
    """The batches in `buffer`, with decoded records.

    Raises BatchError; MetadataError, which names the record's offset.
    """
    for header in iter_headers(buffer):
        records: list[tuple[int, Any]] = []
        control: list[ControlRecord] = []
        if header.is_control:
            control = list(iter_control_records(buffer, header))
        else:
            records = [_decode(found.offset, found.value) for found in iter_records(buffer, header)]
        yield MetadataBatch(
            header.last_offset, header.partition_leader_epoch, header.max_timestamp, records, control, header.length
        )
