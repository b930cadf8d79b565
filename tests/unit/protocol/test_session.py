"""One connection without I/O: versions, correlation, and brokers that violate the protocol."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kraft_protocol.client.errors import ProtocolError, VersionError
from kraft_protocol.client.session import Session, Software, Versions, frame_length
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.frames import LENGTH_SIZE, decode_request_header, encode_response

SOFTWARE = Software("me", "a-client", "1")


def _asked(frame: bytes) -> Any:
    """The header of a request."""
    assert struct.unpack_from(">i", frame)[0] == len(frame) - LENGTH_SIZE
    return decode_request_header(memoryview(frame)[LENGTH_SIZE:])


def _answer(head: Any, response: Any, version: int | None = None) -> bytes:
    parts = encode_response(
        head.correlation_id, head.api_key, head.api_version if version is None else version, response
    )
    return b"".join(bytes(part) for part in parts if not hasattr(part, "read"))[LENGTH_SIZE:]


def _served(**ranges: tuple[int, int]) -> list[m.ApiVersionsResponse.ApiVersion]:
    return [m.ApiVersionsResponse.ApiVersion(ApiKey[name], *served) for name, served in ranges.items()]


def _session(wanted: Versions | None = None, **served: tuple[int, int]) -> Session:
    session = Session(SOFTWARE, wanted)
    session.welcome(_answer(_asked(session.hello()), m.ApiVersionsResponse(api_keys=_served(**served))))
    assert session.is_ready
    return session


def test_the_highest_version_of_both_sides_is_used() -> None:
    session = _session(METADATA=(0, 9), FETCH=(4, 99))
    assert _asked(session.request(m.MetadataRequest())).api_version == 9
    assert session.version(ApiKey.FETCH) == 18
    assert _session({ApiKey.METADATA: (5, 7)}, METADATA=(0, 9)).version(ApiKey.METADATA) == 7


def test_a_request_may_choose_a_version_that_both_sides_support() -> None:
    session = _session(METADATA=(3, 9))
    assert _asked(session.request(m.MetadataRequest(), 5)).api_version == 5
    for version in (2, 10, 99):
        with pytest.raises(VersionError, match=rf"serves no Metadata version {version} \(3 to 9\)"):
            session.request(m.MetadataRequest(), version)
    assert session.pending == 1


def test_a_version_error_names_the_versions_of_the_broker() -> None:
    session = _session({ApiKey.METADATA: (12, 12), ApiKey.FETCH: (13, 17)}, METADATA=(0, 9))
    with pytest.raises(VersionError, match=r"serves no Metadata version 12 \(0 to 9\)"):
        session.version(ApiKey.METADATA)
    with pytest.raises(VersionError, match=r"serves no Fetch version 13 to 17 \(none\)"):
        session.request(m.FetchRequest())


def test_a_broker_with_an_older_apiversions_is_asked_again() -> None:
    session = Session(SOFTWARE)
    first = _asked(session.hello())
    refusal = m.ApiVersionsResponse(error_code=35, api_keys=_served(API_VERSIONS=(0, 2)))
    session.welcome(_answer(first, refusal, 0))
    assert not session.is_ready
    second = _asked(session.hello())
    assert (first.api_version, second.api_version) == (4, 2)
    session.welcome(_answer(second, m.ApiVersionsResponse(api_keys=_served(API_VERSIONS=(0, 2)))))
    assert session.is_ready


def test_a_broker_that_refuses_every_apiversions_causes_no_loop() -> None:
    session = Session(SOFTWARE)
    with pytest.raises(ProtocolError, match="UNSUPPORTED_VERSION"):
        for _ in range(10):
            session.welcome(_answer(_asked(session.hello()), m.ApiVersionsResponse(error_code=35), 0))


def test_responses_belong_to_the_oldest_request() -> None:
    session = _session(METADATA=(0, 13))
    first, second = (_asked(session.request(m.MetadataRequest())) for _ in range(2))
    assert session.pending == 2
    assert session.response(_answer(first, m.MetadataResponse(cluster_id="a"))).cluster_id == "a"
    with pytest.raises(ProtocolError, match="not the oldest"):
        session.response(_answer(first, m.MetadataResponse(cluster_id="a")))
    assert second.correlation_id == first.correlation_id + 1


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\0\0\1", b"\0\0\0\1\0\xff"])
def test_malformed_responses_are_errors_of_the_protocol(frame: bytes) -> None:
    session = _session(METADATA=(0, 13))
    session.request(m.MetadataRequest())
    with pytest.raises(ProtocolError):
        session.response(frame)
    with pytest.raises(ProtocolError, match="without a request"):
        session.response(frame)


@pytest.mark.parametrize("head", [b"HTTP", b"\x15\x03\x03\x00", b"\xff\xff\xff\xff", b"\0\0\0\3"])
def test_other_protocols_are_recognized(head: bytes) -> None:
    with pytest.raises(ProtocolError, match="does not speak Kafka's protocol, or needs TLS"):
        frame_length(head)
