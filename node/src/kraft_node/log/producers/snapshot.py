"""Producer snapshot files (`<offset>.snapshot`), version 1: the producers as of an offset.

i16 version, u32 CRC-32C of the rest, i32 count. Then for each producer: id i64, epoch i16, last sequence i32, last
offset i64, offset delta of the last batch i32, timestamp i64, coordinator epoch i32, first offset of the open
transaction i64. Only the last batch is stored.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from fastcrc.crc32 import iscsi as crc32c

from kraft_node.log.producers.producer_state import NONE, SEQUENCE_MAX, BatchMetadata, ProducerEntry, Producers
from kraft_protocol.buffers import Buffer

VERSION: Final = 1
_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")


class SnapshotError(ValueError):
    """The bytes are not a producer snapshot."""


def encode_snapshot(producers: Producers) -> bytes:
    """The file's bytes."""
    body = bytearray(_COUNT.pack(len(producers)))
    for producer in producers.active():
        last = producer.batches[-1] if producer.batches else None
        body += _ENTRY.pack(
            producer.producer_id,
            producer.producer_epoch,
            producer.last_sequence,
            producer.last_offset,
            0 if last is None else last.last_offset - last.first_offset,
            producer.last_timestamp_ms,
            producer.coordinator_epoch,
            producer.current_txn_first_offset,
        )
    return _HEAD.pack(VERSION, crc32c(bytes(body))) + bytes(body)


def decode_snapshot(data: Buffer) -> list[ProducerEntry]:
    """The producers in a snapshot file. Raises SnapshotError."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise SnapshotError(f"{len(data)} bytes are too few")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise SnapshotError(f"unknown version {version}")
    if crc32c(memoryview(data)[_HEAD.size :]) != crc:
        raise SnapshotError("the CRC does not fit")
    (count,) = _COUNT.unpack_from(data, _HEAD.size)
    start = _HEAD.size + _COUNT.size
    if count < 0 or len(data) - start != count * _ENTRY.size:
        raise SnapshotError(f"{count} producers do not take {len(data) - start} bytes")
    return [_producer(fields) for fields in _ENTRY.iter_unpack(memoryview(data)[start:])]


def _producer(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, txn_first = fields
    producer = ProducerEntry(producer_id, epoch, timestamp, coordinator_epoch, txn_first)
    if last_offset != NONE:
        is_numbered = last_sequence != NONE  # the batches of coordinators are not
        first_sequence = (last_sequence - delta) & SEQUENCE_MAX if is_numbered else NONE
        producer.batches.append(
            BatchMetadata(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp)
        )
    return producer
