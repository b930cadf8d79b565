"""Metadata records in and out of the batches of the metadata log and of snapshots (KIP-631, KIP-630)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from kraft_node.base.env import Buffer
from kraft_node.metadata.features import record_version
from kraft_node.metadata.partitions import MetadataError
from kraft_node.metadata.records import decode_record, encode_record
from kraft_node.raft.quorum import ReplicaKey
from kraft_node.records.batch import build_batch, iter_headers, iter_records
from kraft_node.records.control import ControlRecord, ControlType, build_control_batch, iter_control_records
from kraft_node.wire import stored
from kraft_node.wire.codec import encode
from kraft_node.wire.errors import DecodeError

SNAPSHOT_BATCH_BYTES: Final = 1024 * 1024
"""About how large a batch in a snapshot gets; the format allows 8 MiB, readers hold one batch at a time."""


def encode_values(records: Iterable[Any], metadata_level: int) -> list[bytes]:
    """Record values as that metadata.version level writes them."""
    return [encode_record(record, record_version(type(record).__name__, metadata_level)) for record in records]


def data_batch(values: Sequence[bytes], base_offset: int, epoch: int, timestamp_ms: int) -> bytes:
    """One uncompressed batch of record values."""
    pairs = [(None, value) for value in values]
    return build_batch(pairs, base_offset=base_offset, leader_epoch=epoch, timestamp=timestamp_ms)


def leader_change_batch(
    offset: int,
    epoch: int,
    leader_id: int,
    voters: Iterable[ReplicaKey],
    granting: Iterable[ReplicaKey],
    timestamp_ms: int,
    extra: Sequence[tuple[int, bytes]] = (),
) -> bytes:
    """The batch that opens an epoch (KIP-595), LeaderChange at version 0 as the release writes it, then `extra`."""
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


def voters_batch(offset: int, epoch: int, voters: bytes, timestamp_ms: int) -> bytes:
    """The batch that states the voters anew (KIP-853); `voters` is the encoded VotersRecord."""
    records = [(ControlType.KRAFT_VOTERS, voters)]
    return build_control_batch(records, base_offset=offset, leader_epoch=epoch, timestamp=timestamp_ms)


def snapshot_header_batch(
    epoch: int, last_contained_ms: int, timestamp_ms: int, extra: Sequence[tuple[int, bytes]] = ()
) -> bytes:
    """The batch that opens a snapshot: its header, then (`extra`) kraft.version and voters where the log has them."""
    message = stored.SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_ms)
    value = encode(message, 0)
    return build_control_batch(
        [(ControlType.SNAPSHOT_HEADER, value), *extra], base_offset=0, leader_epoch=epoch, timestamp=timestamp_ms
    )


def snapshot_footer_batch(base_offset: int, epoch: int, timestamp_ms: int) -> bytes:
    value = encode(stored.SnapshotFooterRecord(version=0), 0)
    return build_control_batch(
        [(ControlType.SNAPSHOT_FOOTER, value)], base_offset=base_offset, leader_epoch=epoch, timestamp=timestamp_ms
    )


class MetadataBatch(NamedTuple):
    """A batch as read: its records with their offsets, or else its control records."""

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
    """The batches in `buffer`, their records decoded. Raises BatchError, MetadataError naming the record's offset."""
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
