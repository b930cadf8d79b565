"""Headers and lengths; responses and requests as whole frames."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kraft_protocol.buffers import FileSlice
from kraft_protocol.wire import frames, messages
from kraft_protocol.wire.api import API, ApiKey, name_of
from kraft_protocol.wire.errors import DecodeError, EncodeError


def _joined(parts: list[Any]) -> bytes:
    return b"".join(part.read() if isinstance(part, FileSlice) else bytes(part) for part in parts)


@pytest.mark.parametrize(("version", "head"), [(1, 10), (3, 11)])
@pytest.mark.parametrize("client", [None, "", "größe"])
def test_a_request_and_its_header(version: int, head: int, client: str | None) -> None:
    frame = _joined(
        frames.encode_request(7, ApiKey.API_VERSIONS, version, client, messages.ApiVersionsRequest("a", "b"))
    )
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    header = frames.decode_request_header(memoryview(frame)[4:])
    assert (header.api_key, header.api_version, header.correlation_id) == (18, version, 7)
    assert header.client_id == client
    assert header.body_offset == head + len((client or "").encode())


def test_tagged_fields_of_a_header_are_skipped() -> None:
    raw = struct.pack(">hhihs", 3, 12, 5, 1, b"c") + b"\x02\x00\x03abc\x81\x01\x00" + b"body"
    header = frames.decode_request_header(memoryview(raw))
    assert raw[header.body_offset :] == b"body"
    with pytest.raises(DecodeError, match="tagged field"):
        frames.decode_request_header(memoryview(struct.pack(">hhih", 3, 12, 5, -1) + b"\x01\x00\x7f"))


def test_unknown_apis_and_versions_are_read_as_far_as_all_agree() -> None:
    for key, version in ((3, 99), (999, 0), (-1, -1)):
        header = frames.decode_request_header(memoryview(struct.pack(">hhihs", key, version, 5, 1, b"c") + b"\xff"))
        assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (key, version, 5, "c")
    assert (name_of(3), name_of(999)) == ("Metadata", "api 999")


@pytest.mark.parametrize(
    "raw", [b"", b"\x00" * 9, struct.pack(">hhih", 3, 1, 5, 4) + b"abc", struct.pack(">hhihs", 3, 1, 5, 1, b"\xff")]
)
def test_broken_headers_are_refused(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        frames.decode_request_header(memoryview(raw))


@pytest.mark.parametrize("version", [8, 9])
def test_a_response_survives_a_round_trip(version: int) -> None:
    response = messages.ProduceResponse([messages.ProduceResponse.TopicProduceResponse("t")], throttle_time_ms=3)
    frame = _joined(frames.encode_response(11, ApiKey.PRODUCE, version, response))
    assert struct.unpack_from(">ii", frame) == (len(frame) - 4, 11)
    assert frames.decode_response(frame[4:], ApiKey.PRODUCE, version) == (11, response)


def test_the_length_counts_parts_that_are_sent_from_elsewhere() -> None:
    class Stub:
        def pread(self, position: int, length: int) -> bytes:
            return bytes(length)

    data = messages.FetchResponse.PartitionData(0, records=FileSlice(Stub(), 0, 100_000))  # type: ignore[arg-type]
    response = messages.FetchResponse(responses=[messages.FetchResponse.FetchableTopicResponse("t", partitions=[data])])
    parts = frames.encode_response(1, ApiKey.FETCH, 11, response)
    assert any(isinstance(part, FileSlice) for part in parts)
    frame = _joined(parts)
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4 > 100_000


def test_api_versions_responses_never_have_a_flexible_header() -> None:
    frame = _joined(frames.encode_response(1, ApiKey.API_VERSIONS, 3, messages.ApiVersionsResponse()))
    assert frame[4:10] == b"\x00\x00\x00\x01\x00\x00"


def test_short_responses_are_refused() -> None:
    with pytest.raises(DecodeError, match="correlation id"):
        frames.decode_response(b"\x00", ApiKey.METADATA, 9)
    with pytest.raises(DecodeError, match="tagged"):
        frames.decode_response(bytes(4), ApiKey.METADATA, 9)


def test_a_version_that_a_response_lacks() -> None:
    with pytest.raises(EncodeError, match="no version 99"):
        frames.encode_response(1, ApiKey.METADATA, 99, messages.MetadataResponse())


def test_unstable_versions_are_not_the_latest() -> None:
    spec = API[ApiKey.INIT_PRODUCER_ID]
    assert (spec.unstable, spec.max_version, spec.versions.high) == (True, 5, 6)
    assert API[ApiKey.OFFSET_DELETE].flexible_from > 100
