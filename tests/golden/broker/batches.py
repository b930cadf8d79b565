"""Record batches, valid or wrong in one respect, and Produce requests with them."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from fastcrc.crc32 import iscsi as crc32c

from kraft_protocol.records.batch import NewRecord, build_batch
from kraft_protocol.records.compression import compress
from kraft_protocol.records.varint import write_varint
from kraft_protocol.wire.messages import ProduceRequest
from tests.golden.broker.pair import Side, uuid

WHEN = 1_700_000_000_000
"""The time of records: long ago, so that answers do not depend on the clock."""
HEADER = struct.Struct(">hiqqqhii")
FIELDS = (
    "attributes", "last_delta", "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "sequence", "count",
)  # fmt: skip


def record(value: bytes | None = b"value", key: bytes | None = b"key", at: int = WHEN, **fields: Any) -> NewRecord:
    return NewRecord(key, value, at, **fields)


def batch(*records: NewRecord, **fields: Any) -> bytes:
    """A valid batch; by default of one record."""
    return build_batch(records or (record(),), **fields)


def sealed(data: bytes | bytearray) -> bytes:
    """The batch with the right CRC."""
    made = bytearray(data)
    made[17:21] = struct.pack(">I", crc32c(bytes(made[21:])))
    return bytes(made)


def altered(data: bytes, **fields: int) -> bytes:
    """The batch with changed header fields after the CRC, and the right CRC."""
    values = dict(zip(FIELDS, HEADER.unpack_from(data, 21), strict=True)) | fields
    made = bytearray(data)
    HEADER.pack_into(made, 21, *(values[name] for name in FIELDS))
    return sealed(made)


def with_payload(payload: bytes, count: int = 1, codec: int = 0, **fields: int) -> bytes:
    """A batch of `count` records whose encoded records are `payload`, compressed with `codec`."""
    empty = batch(record(b"", b""))[:61]
    made = bytearray(empty + (compress(codec, payload) if codec else payload))
    made[8:12] = struct.pack(">i", len(made) - 12)
    return altered(bytes(made), **{"count": count, "last_delta": count - 1, "attributes": codec} | fields)


def varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def raw_record(
    offset: int = 0,
    *,
    size: int | None = None,
    attributes: int = 0,
    at: int = 0,
    key: int = 3,
    value: int = 5,
    headers: bytes = b"\0",
    tail: bytes = b"",
) -> bytes:
    """One encoded record; `size`, `key` and `value` may give wrong lengths."""
    body = bytes([attributes]) + varint(at) + varint(offset)
    body += varint(key) + b"key" + varint(value) + b"value" + headers + tail
    return varint(len(body) if size is None else size) + body


def produce(
    topic: str, *data: tuple[int, bytes | None], acks: int = -1, transactional_id: str | None = None
) -> Callable[[Side], ProduceRequest]:
    """A request for `topic` by name and id; partitions are (partition, records) pairs."""

    def made(side: Side) -> ProduceRequest:
        rows = [ProduceRequest.PartitionProduceData(index=index, records=records) for index, records in data]
        named = ProduceRequest.TopicProduceData(name=topic, topic_id=side.ids.get(topic, uuid(7)), partition_data=rows)
        return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=10_000, topic_data=[named])

    return made


def stored(side: Side, topic: str, partition: int = 0) -> bytes:
    """The bytes of the first segment."""
    path = side.target.data / f"{topic}-{partition}" / "00000000000000000000.log"
    return path.read_bytes() if path.exists() else b""
