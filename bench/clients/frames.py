"""Request frames written byte by byte, so that neither server's code makes the load that measures it.

Old, inflexible versions that both servers serve: ListOffsets 1, Metadata 4, Produce 7, Fetch 11,
CreateTopics 4, FindCoordinator 2, InitProducerId 1, AddPartitionsToTxn 2, EndTxn 2.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import cramjam
import lz4.frame
from fastcrc import crc32

PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS = 0, 1, 2, 3, 19
FIND_COORDINATOR, INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN = 10, 22, 24, 26
GROUP, TRANSACTION = 0, 1
"""Kinds of coordinators."""
NO_PRODUCER = (-1, -1, -1)
CODECS: dict[str, tuple[int, Callable[[bytes], Any]]] = {
    "lz4": (3, partial(lz4.frame.compress, block_linked=False)),
    "zstd": (4, cramjam.zstd.compress),
}
"""Apache Kafka refuses lz4 frames with linked blocks."""
"""Codec -> attribute of a batch, and its module."""
TRANSACTIONAL = 0x10
"""The attribute of a batch."""

Producer = tuple[int, int]
"""Producer id and epoch."""


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def frame(key: int, version: int, body: bytes, correlation_id: int = 1) -> bytes:
    """A whole request with header v1 and length."""
    header = struct.pack(">hhi", key, version, correlation_id) + _string("bench")
    return struct.pack(">i", len(header) + len(body)) + header + body


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 31)
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def batch(
    count: int, value_size: int, producer: tuple[int, int, int] | None = None, *, transactional: bool = False
) -> bytes:
    """An uncompressed batch of `count` records with the current time, no keys, and values of `value_size` bytes.

    `producer`: producer id, epoch and the sequence number of the first record.
    """
    timestamp_ms = time.time_ns() // 1_000_000
    value = bytes(i * 7 % 251 for i in range(value_size))
    records = bytearray()
    for i in range(count):
        body = b"\x00\x00" + _varint(i) + b"\x01" + _varint(value_size) + value + b"\x00"
        records += _varint(len(body)) + body
    return _sealed(count, timestamp_ms, records, producer or NO_PRODUCER, TRANSACTIONAL if transactional else 0)


def compressed_batch(values: Sequence[bytes], codec: str) -> bytes:
    """A batch of these values without keys, compressed by `lz4` or `zstd` at the default level."""
    number, compress = CODECS[codec]
    records = bytearray()
    for i, value in enumerate(values):
        body = b"\x00\x00" + _varint(i) + b"\x01" + _varint(len(value)) + value + b"\x00"
        records += _varint(len(body)) + body
    return _sealed(len(values), time.time_ns() // 1_000_000, bytes(compress(bytes(records))), attributes=number)


def keyed_batch(pairs: Sequence[tuple[bytes, bytes]]) -> bytes:
    """An uncompressed batch of keys and values with the current time."""
    timestamp_ms = time.time_ns() // 1_000_000
    records = bytearray()
    for i, (key, value) in enumerate(pairs):
        body = b"\x00\x00" + _varint(i) + _varint(len(key)) + key + _varint(len(value)) + value + b"\x00"
        records += _varint(len(body)) + body
    return _sealed(len(pairs), timestamp_ms, records)


def _sealed(
    count: int,
    timestamp_ms: int,
    records: bytes | bytearray,
    producer: tuple[int, int, int] = NO_PRODUCER,
    attributes: int = 0,
) -> bytes:
    """A batch: header and records."""
    after_crc = struct.pack(">hiqqqhii", attributes, count - 1, timestamp_ms, timestamp_ms, *producer, count) + records
    head = struct.pack(">ibI", -1, 2, crc32.iscsi(after_crc))
    return struct.pack(">qi", 0, len(head) + len(after_crc)) + head + after_crc


def produce(topic: str, partition: int, records: bytes, acks: int = -1, transactional_id: str | None = None) -> bytes:
    """A Produce frame for one partition."""
    body = _string(transactional_id) + struct.pack(">hii", acks, 30_000, 1) + _string(topic)
    return frame(PRODUCE, 7, body + struct.pack(">iii", 1, partition, len(records)) + records)


def fetch(topic: str, partition: int, offset: int, max_bytes: int, max_wait_ms: int = 500) -> tuple[bytes, int]:
    """A Fetch frame for one partition without a session, and the position of the fetch offset in it."""
    body = struct.pack(">iiiibii", -1, max_wait_ms, 1, max_bytes, 0, 0, -1) + struct.pack(">i", 1) + _string(topic)
    body += struct.pack(">iii", 1, partition, -1)
    tail = struct.pack(">qqi", offset, -1, max_bytes) + struct.pack(">i", 0) + _string("")
    whole = frame(FETCH, 11, body + tail)
    return whole, len(whole) - len(tail)


def metadata(topics: list[str], *, create: bool = False) -> bytes:
    """A Metadata frame."""
    body = struct.pack(">i", len(topics)) + b"".join(map(_string, topics)) + bytes([create])
    return frame(METADATA, 4, body)


def create_topics(names: list[str], partitions: int, configs: Mapping[str, str] | None = None) -> bytes:
    """A CreateTopics frame, replication factor 1."""
    values = configs or {}
    tail = struct.pack(">i", len(values)) + b"".join(_string(k) + _string(v) for k, v in values.items())
    one = b"".join(_string(n) + struct.pack(">ihi", partitions, 1, 0) + tail for n in names)
    return frame(CREATE_TOPICS, 4, struct.pack(">i", len(names)) + one + struct.pack(">ib", 60_000, 0))


def produce_all(topics: Sequence[str], partitions: int, records: bytes) -> bytes:
    """A Produce frame with the same records for every partition of some topics, acks=all."""
    each = struct.pack(">i", len(records)) + records
    data = b"".join(struct.pack(">i", partition) + each for partition in range(partitions))
    body = _string(None) + struct.pack(">hii", -1, 30_000, len(topics))
    return frame(PRODUCE, 7, body + b"".join(_string(name) + struct.pack(">i", partitions) + data for name in topics))


def list_offsets(topic: str, partition: int) -> bytes:
    """A ListOffsets frame for the end of one partition."""
    body = struct.pack(">ii", -1, 1) + _string(topic) + struct.pack(">iiq", 1, partition, -1)
    return frame(LIST_OFFSETS, 1, body)


def find_coordinator(key: str, kind: int) -> bytes:
    """A FindCoordinator frame for a group or a transactional id."""
    return frame(FIND_COORDINATOR, 2, _string(key) + bytes([kind]))


def init_producer_id(transactional_id: str | None, timeout_ms: int = 60_000) -> bytes:
    """An InitProducerId frame."""
    return frame(INIT_PRODUCER_ID, 1, _string(transactional_id) + struct.pack(">i", timeout_ms))


def add_partition(transactional_id: str, producer: Producer, topic: str, partition: int) -> bytes:
    """An AddPartitionsToTxn frame for one partition."""
    body = _string(transactional_id) + struct.pack(">qhi", *producer, 1) + _string(topic)
    return frame(ADD_PARTITIONS_TO_TXN, 2, body + struct.pack(">ii", 1, partition))


def end_transaction(transactional_id: str, producer: Producer) -> bytes:
    """An EndTxn frame that commits."""
    return frame(END_TXN, 2, _string(transactional_id) + struct.pack(">qhb", *producer, 1))


class Wire:
    """A blocking connection that sends frames and returns responses without their length."""

    def __init__(self, port: int, timeout_s: float = 60) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> bytes:
        """Send one frame and wait for its response."""
        self.send(request)
        return self.receive()

    def _read(self, count: int) -> bytes:
        out = bytearray(count)
        view = memoryview(out)
        while view:
            got = self._socket.recv_into(view)
            if not got:
                raise ConnectionError("closed by the server")
            view = view[got:]
        return bytes(out)

    def send(self, request: bytes) -> None:
        """Send one frame without waiting."""
        self._socket.sendall(request)

    def receive(self) -> bytes:
        """Wait for the next response."""
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def close(self) -> None:
        """Close the socket; a failure of the system is ignored."""
        with suppress(OSError):
            self._socket.close()


def produce_errors(answer: bytes) -> list[int]:
    """The error codes of a Produce response, one per partition."""
    at, codes = 4, []
    (topics,) = struct.unpack_from(">i", answer, at)
    at += 4
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", answer, at)
        (partitions,) = struct.unpack_from(">i", answer, at + 2 + size)
        at += 2 + size + 4
        for _ in range(partitions):
            codes.append(struct.unpack_from(">h", answer, at + 4)[0])
            at += 4 + 2 + 8 + 8 + 8
    return codes


def produce_error(answer: bytes) -> int:
    """The error code of a Produce response's only partition."""
    (code,) = produce_errors(answer)
    return code


def coordinator_error(answer: bytes) -> int:
    """The error code of a FindCoordinator response."""
    (code,) = struct.unpack_from(">h", answer, 8)
    return int(code)


def given_producer(answer: bytes) -> tuple[int, Producer]:
    """Error code, and producer id and epoch, of an InitProducerId response."""
    error, producer_id, epoch = struct.unpack_from(">hqh", answer, 8)
    return error, (producer_id, epoch)


def added_error(answer: bytes) -> int:
    """The error code of an AddPartitionsToTxn response's only partition, which ends the response."""
    (code,) = struct.unpack_from(">h", answer, len(answer) - 2)
    return int(code)


def ended_error(answer: bytes) -> int:
    """The error code of an EndTxn response."""
    (code,) = struct.unpack_from(">h", answer, 8)
    return int(code)


def listed_offset(answer: bytes) -> tuple[int, int]:
    """Error code and offset of a ListOffsets response's only partition."""
    (size,) = struct.unpack_from(">h", answer, 8)
    at = 10 + size + 4 + 4
    error, _timestamp, offset = struct.unpack_from(">hqq", answer, at)
    return error, offset


def create_errors(answer: bytes) -> list[int]:
    """The error codes of a CreateTopics response, one per topic."""
    at = 4 + 4
    (count,) = struct.unpack_from(">i", answer, at)
    at += 4
    codes = []
    for _ in range(count):
        (size,) = struct.unpack_from(">h", answer, at)
        at += 2 + size
        codes.append(struct.unpack_from(">h", answer, at)[0])
        at += 2
        (size,) = struct.unpack_from(">h", answer, at)
        at += 2 + max(size, 0)
    return codes
