"""Mutated bytes are decoded or refused with DecodeError; nothing else ever happens."""

from __future__ import annotations

import random

from kraft_node.metadata.records import decode_record, encode_record
from kraft_node.wire import codec, frames, stored
from kraft_node.wire.api import API
from kraft_node.wire.errors import DecodeError
from tests.wire_values import all_messages, random_message

MUTATIONS = 110_000
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


def test_messages() -> None:
    rng = random.Random(SEED)
    pairs = list(all_messages())
    refused = 0
    each = MUTATIONS // len(pairs) + 1
    for cls, version in pairs:
        raw = codec.encode(random_message(cls, version, rng, unknown_tags=True), version)
        for _ in range(each):
            try:
                codec.decode(cls, _mutated(raw, rng), version)
            except DecodeError:
                refused += 1
    assert each * len(pairs) >= 100_000
    assert refused > MUTATIONS // 10


def test_request_headers() -> None:
    rng = random.Random(SEED)
    for key, spec in API.items():
        message = random_message(spec.request, spec.max_version, rng)
        parts = frames.encode_request(7, key, spec.max_version, "client", message)
        raw = b"".join(bytes(p) for p in parts)[4:]  # type: ignore[arg-type]
        header = frames.decode_request_header(memoryview(raw))
        assert (header.api_key, header.api_version, header.correlation_id) == (key, spec.max_version, 7)
        for _ in range(50):
            try:
                frames.decode_request_header(memoryview(_mutated(raw, rng)))
            except DecodeError:
                continue


def test_metadata_records() -> None:
    rng = random.Random(SEED)
    raw = encode_record(stored.TopicRecord("topic", bytes(16)), 0)
    for _ in range(2000):
        try:
            decode_record(_mutated(raw, rng))
        except DecodeError:
            continue
