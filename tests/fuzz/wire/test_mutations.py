"""Mutated bytes are decoded or refused with DecodeError; nothing else happens."""

from __future__ import annotations

import random
import struct
from functools import partial

from kio.schema.request_header.v1 import header as kio_v1
from kio.serial import entity_reader

from kraft_node.metadata.records import RECORD_TYPES, decode_record, encode_record
from kraft_protocol.wire import codec, coordinator, frames, stored
from kraft_protocol.wire.api import API, request_header_version
from kraft_protocol.wire.errors import DecodeError
from tests.wire_values import all_messages, random_message

MUTATIONS = 200_000
MUTATIONS_A_BASE = 25
SEED = 20_260


def _mutated(raw: bytes, rng: random.Random) -> bytes:
    data = bytearray(raw)
    for _ in range(rng.choice([1, 1, 2, 4])):
        kind = rng.randrange(4)
        at = rng.randrange(len(data) + 1)
        if kind == 0 and at < len(data):
            data[at] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
        elif kind == 1:
            data[at:at] = rng.randbytes(rng.randrange(1, 5))
        elif kind == 2:
            del data[at : at + rng.randrange(1, 5)]
        elif at + 4 <= len(data):
            data[at : at + 4] = rng.choice([b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff"])
    return bytes(data)


def test_mutated_messages_are_refused_or_read() -> None:
    rng = random.Random(SEED)
    pairs = list(all_messages())
    refused = read = 0
    bases = MUTATIONS // MUTATIONS_A_BASE // len(pairs) + 1
    for cls, version in pairs:
        for _ in range(bases):
            raw = codec.encode(random_message(cls, version, rng, unknown_tags=True), version)
            for _ in range(MUTATIONS_A_BASE):
                try:
                    message = codec.decode(cls, _mutated(raw, rng), version)
                except DecodeError:
                    refused += 1
                else:
                    read += 1
                    if read % 10 == 0:
                        codec.encode(message, version)  # what can be read can be written
    assert read + refused >= 100_000
    assert refused > MUTATIONS // 10
    assert read > MUTATIONS // 10


def test_mutated_responses_are_refused_or_read() -> None:
    rng = random.Random(SEED)
    refused = read = 0
    for key, spec in API.items():
        for version in range(spec.min_version, spec.max_version + 1):
            parts = frames.encode_response(7, key, version, random_message(spec.response, version, rng))
            raw = b"".join(bytes(p) for p in parts)[4:]  # type: ignore[arg-type]
            for _ in range(20):
                try:
                    _, message = frames.decode_response(_mutated(raw, rng), key, version)
                except DecodeError:
                    refused += 1
                else:
                    read += 1
                    assert isinstance(message, spec.response)
    assert min(refused, read) > 500


def test_mutated_coordinator_records_are_refused_or_read() -> None:
    rng = random.Random(SEED)
    refused = read = 0
    for family in (coordinator.GROUP, coordinator.TRANSACTION, coordinator.SHARE):
        for name in coordinator.key_names(family).values():
            key = random_message(getattr(stored, name), 0, rng)
            value_class = getattr(stored, name.removesuffix("Key") + "Value")
            version = value_class.SCHEMA.valid.high
            value = version.to_bytes(2, "big") + codec.encode(random_message(value_class, version, rng), version)
            for _ in range(50):
                for decode, raw in (
                    (partial(coordinator.decode_key, family), coordinator.encode_key(key)),
                    (partial(coordinator.decode_value, key), value),
                ):
                    try:
                        decode(_mutated(raw, rng))
                    except DecodeError:
                        refused += 1
                    else:
                        read += 1
    assert min(refused, read) > 100


def test_mutated_request_headers_are_refused_or_read() -> None:
    """A mutated header is refused, or read as kio's own reader reads it."""
    rng = random.Random(SEED)
    refused = read = 0
    for key, spec in API.items():
        message = random_message(spec.request, spec.max_version, rng)
        parts = frames.encode_request(7, key, spec.max_version, "client", message)
        raw = b"".join(bytes(p) for p in parts)[4:]  # type: ignore[arg-type]
        header = frames.decode_request_header(memoryview(raw))
        assert (header.api_key, header.api_version, header.correlation_id) == (key, spec.max_version, 7)
        for _ in range(50):
            data = _mutated(raw[: header.body_offset], rng) + raw[header.body_offset :]
            try:
                found = frames.decode_request_header(memoryview(data))
            except DecodeError:
                refused += 1
                continue
            read += 1
            assert (found.api_key, found.api_version, found.correlation_id) == struct.unpack_from(">hhi", data)
            served = API.get(found.api_key)  # type: ignore[call-overload]
            # If we do not serve the API, only the fields that all header versions share are read.
            known = served is not None and found.api_version <= served.versions.high
            version = request_header_version(found.api_key, found.api_version) if known else 1
            assert (found.client_id, found.body_offset) == _foreign_header(data, version)
    assert refused > 500
    assert read > 500


def _foreign_header(data: bytes, version: int) -> tuple[str | None, int]:
    """The client id and the body's offset, by kio's reader."""
    if data[8] >= 128:
        data = data[:8] + b"\xff\xff" + data[10:]  # for Kafka every negative length is null, for kio only -1
    header, end = entity_reader(kio_v1.RequestHeader)(data, 0)
    if version == 2:  # kio knows only the schema's tagged fields: skip them here
        count, end = _varint(data, end)
        for _ in range(count):
            _, end = _varint(data, end)
            size, end = _varint(data, end)
            end += size
    return header.client_id, end


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 0x80:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
    return value | data[at] << shift, at + 1


def test_mutated_metadata_records_are_refused_or_read() -> None:
    """Mutated values that can be read can be written again with the same content; all others raise one typed error."""
    rng = random.Random(SEED)
    refused = read = 0
    for kind, name in RECORD_TYPES.items():
        cls = getattr(stored, name)
        version = cls.SCHEMA.valid.high
        raw = encode_record(random_message(cls, version, rng), version)
        assert raw[1] == kind
        for _ in range(100):
            data = _mutated(raw, rng)
            try:
                record = decode_record(data)
            except DecodeError:
                refused += 1
                continue
            read += 1
            assert data[0] == 1
            assert RECORD_TYPES[data[1]] == type(record).__name__
            if not any(data[1:3][i] > 127 for i in range(2)) and data[2] <= type(record).SCHEMA.valid.high:
                assert decode_record(encode_record(record, data[2])) == record
    assert refused > 500
    assert read > 500
