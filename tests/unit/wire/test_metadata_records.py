"""The framing of metadata records (similar cases as in MetadataRecordSerdeTest)."""

from __future__ import annotations

import pytest

from kraft_node.metadata.records import RECORD_TYPES, decode_record, decode_record_versioned, encode_record
from kraft_protocol.wire import stored
from kraft_protocol.wire.errors import DecodeError, EncodeError

TOPIC = stored.TopicRecord("t", bytes(range(16)))  # type: ignore[arg-type]
RAW = b"\x01\x02\x00\x02t" + bytes(range(16)) + b"\x00"


def test_frame_version_type_and_version_precede_the_record() -> None:
    assert encode_record(TOPIC, 0) == RAW
    assert decode_record(RAW) == TOPIC
    assert decode_record_versioned(memoryview(RAW)) == (TOPIC, 0)


def test_every_type_has_a_record() -> None:
    for record_type, name in RECORD_TYPES.items():
        cls = getattr(stored, name)
        assert encode_record(cls(), cls.SCHEMA.valid.high)[1] == record_type


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "ends in its head"),
        (b"\x01\x02", "ends in its head"),
        (b"\x00" + RAW[1:], "frame version 0"),
        (b"\x01\x7f\x00", "unknown type 127"),
        (b"\x01\x06\x00", "unknown type 6"),
        (b"\x01\x02\x7f", "no version 127"),
        (b"\x01\x02\xff\xff\x03", "version 65535"),
        (b"\x01\x80\x80\x80\x80\x80\x00", "longer than 5 bytes"),
        (b"\xff\xff\xff\xff\xff\xff", "longer than 5 bytes"),
        (RAW + b"\x00", "follow"),
        (RAW[:-1], "too few"),
    ],
)
def test_broken_records_are_refused(raw: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        decode_record(raw)


def test_a_version_that_the_record_lacks() -> None:
    with pytest.raises(EncodeError, match="no version 9"):
        encode_record(TOPIC, 9)
