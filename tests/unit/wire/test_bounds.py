"""Malformed bytes and unfit values: one typed error each, and no memory for sizes that are only declared."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from kraft_protocol.wire import codec, messages
from kraft_protocol.wire.errors import DecodeError, EncodeError
from kraft_protocol.wire.runtime import MAX_ELEMENTS, MAX_STRING_BYTES

BIG_VARINT = b"\xff\xff\xff\xff\x0f"


@pytest.mark.parametrize(
    ("cls", "version", "raw", "message"),
    [
        (messages.MetadataRequest, 1, b"\x00\x00\x00\x02\x00\x01a", "2 .*are left|too few"),
        (messages.MetadataRequest, 1, b"\xff\xff\xff\xfe", "wants -2"),
        (messages.MetadataRequest, 1, b"\x00\x00\x00\x01\xff\xff", "null"),
        (messages.HeartbeatRequest, 0, b"\xff\xfe", "wants -2"),
        (messages.HeartbeatRequest, 0, b"\x00\x05abc", "wants 5"),
        (messages.HeartbeatRequest, 4, b"\x00", "null"),
        (messages.HeartbeatRequest, 4, b"\x02\xc3" + bytes(9), "utf-8"),
        (messages.HeartbeatRequest, 4, BIG_VARINT, "at most"),
        (messages.HeartbeatRequest, 4, b"\x80\x80\x80\x80\x80\x00", "longer than 5 bytes"),
        (messages.HeartbeatRequest, 4, b"\xff\xff\xff\xff\x1f", "above 32 bits"),
        (messages.ApiVersionsRequest, 3, b"\x01\x01\x01\x05\x09abc", "tagged field"),
        (messages.ApiVersionsRequest, 3, b"\x01\x01\x00\x00", "1 bytes follow"),
        (messages.ApiVersionsRequest, 9, b"", "no version 9"),
    ],
)
def test_malformed_messages_are_refused(cls: Any, version: int, raw: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        codec.decode(cls, raw, version)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (b"\x02\x05\x01a\x04\x01b", {5: b"a", 4: b"b"}),
        (b"\x02\x05\x01a\x05\x01b", {5: b"b"}),
    ],
)
def test_tags_may_come_in_any_order(tags: bytes, expected: dict[int, bytes]) -> None:
    """As for Apache Kafka 4.3.1, see test_tagged_fields_of_requests_get_the_same_answers in tests/golden/broker."""
    request = codec.decode(messages.ApiVersionsRequest, b"\x01\x01" + tags, 3)
    assert request.unknown_tags == expected
    cluster = b"\x02\x00\x02\x02b\x00\x02\x02c"
    raw = codec.encode(messages.FetchRequest(), 12)
    assert codec.decode(messages.FetchRequest, raw[:-1] + cluster, 12).cluster_id == "c"


def test_a_known_tag_uses_all_its_bytes() -> None:
    request = messages.FetchRequest(cluster_id="c")
    raw = codec.encode(request, 12)
    assert raw.endswith(b"\x01\x00\x02\x02c")
    assert codec.decode(messages.FetchRequest, raw, 12) == request
    with pytest.raises(DecodeError, match="too many in tag 0"):
        codec.decode(messages.FetchRequest, raw[:-3] + b"\x03\x02cc", 12)


def test_the_length_of_strings_and_arrays_is_bounded() -> None:
    long = (MAX_STRING_BYTES + 2).to_bytes(4)
    varint = bytes([long[3] | 0x80, (long[3] >> 7) | (long[2] << 1) & 0x7F | 0x80, (long[2] >> 6) | (long[1] << 2)])
    with pytest.raises(DecodeError, match=f"{MAX_STRING_BYTES} at most"):
        codec.decode(messages.HeartbeatRequest, varint + bytes(40_000), 4)
    with pytest.raises(DecodeError, match=f"{MAX_ELEMENTS} at most"):
        codec.decode(messages.MetadataRequest, (MAX_ELEMENTS + 1).to_bytes(4) + bytes(2 * MAX_ELEMENTS + 2), 1)
    for version in (3, 4):
        with pytest.raises(EncodeError):
            codec.encode(messages.HeartbeatRequest(group_id="x" * (MAX_STRING_BYTES + 1)), version)
        request = messages.HeartbeatRequest(group_id="x" * MAX_STRING_BYTES)
        assert codec.decode(messages.HeartbeatRequest, codec.encode(request, version), version) == request


@pytest.mark.parametrize(
    ("cls", "version", "raw"),
    [
        (messages.MetadataRequest, 1, b"\x00\x3f\xff\xff" + bytes(100)),
        (messages.MetadataRequest, 9, b"\xff\xff\xff\x01" + bytes(100)),
        (messages.SaslAuthenticateRequest, 1, b"\x7f\xff\xff\xff" + bytes(100)),
        (messages.SaslAuthenticateRequest, 2, BIG_VARINT + bytes(100)),
        (messages.LeaveGroupRequest, 5, b"\x01\xff\xff\xff\x01" + bytes(100)),
        (messages.OffsetDeleteRequest, 0, b"\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x3f\xff\xff"),
        (messages.ProduceRequest, 3, b"\xff\xff" + bytes(6) + b"\x00\x00\x00\x01\x00\x01t\x00\x3f\xff\xff" + bytes(99)),
    ],
)
def test_declared_lengths_allocate_no_memory(cls: Any, version: int, raw: bytes) -> None:
    cls.decoder(version)
    tracemalloc.start()
    with pytest.raises(DecodeError):
        codec.decode(cls, raw, version)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize(
    "message",
    [
        messages.HeartbeatRequest(generation_id=1 << 40),
        messages.HeartbeatRequest(group_id=None),  # type: ignore[arg-type]
        messages.HeartbeatRequest(group_id=7),  # type: ignore[arg-type]
        messages.HeartbeatRequest(group_id="\ud800"),
        messages.HeartbeatRequest(generation_id="1"),  # type: ignore[arg-type]
        messages.HeartbeatRequest(unknown_tags={-1: b""}),
        messages.SaslAuthenticateRequest(auth_bytes="text"),  # type: ignore[arg-type]
        messages.DeleteTopicsRequest(topics=None),  # type: ignore[arg-type]
        messages.DescribeGroupsRequest(groups=[None]),  # type: ignore[list-item]
    ],
)
def test_values_that_do_not_fit_are_refused(message: Any) -> None:
    with pytest.raises(EncodeError, match=type(message).__name__):
        codec.encode(message, message.SCHEMA.valid.high)


def test_fields_that_a_version_lacks_are_refused() -> None:
    """They are refused if set, unless the schema marks them as ignorable."""
    assert codec.encode(messages.JoinGroupRequest(reason="why"), 7) == codec.encode(messages.JoinGroupRequest(), 7)
    with pytest.raises(EncodeError, match="group_instance_id"):
        codec.encode(messages.HeartbeatRequest(group_instance_id="i"), 2)
    assert codec.encode(messages.HeartbeatRequest(), 2)


def test_messages_are_plain_values() -> None:
    one, other = messages.HeartbeatRequest("g", 1), messages.HeartbeatRequest(group_id="g", generation_id=1)
    assert one == other
    assert one != messages.HeartbeatRequest("g", 2)
    assert one != messages.LeaveGroupRequest("g")
    assert repr(one) == "HeartbeatRequest(group_id='g', generation_id=1, member_id='', group_instance_id=None)"
    assert messages.FetchRequest().topics is not messages.FetchRequest().topics
    with pytest.raises(AttributeError):
        one.no_such_field = 1  # type: ignore[attr-defined]
    decoded = codec.decode(messages.HeartbeatRequest, codec.encode(one, 4), 4)
    assert isinstance(decoded, messages.HeartbeatRequest)
    assert decoded == one
