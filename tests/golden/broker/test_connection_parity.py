"""What a listener reports about itself, and its reaction to bytes that are not valid requests."""

from __future__ import annotations

import random
import struct
from functools import partial
from typing import Any

import pytest

from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.messages import (
    ApiVersionsRequest,
    MetadataRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.golden.broker.pair import CLOSED, SILENT, Pair, Side, frame

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("broker-parity")]

NOT_SERVED = {
    **dict.fromkeys((ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.STREAMS_GROUP_DESCRIBE), "streams groups"),
    **{key: "share groups" for key in ApiKey if "SHARE" in key.name},
}
"""What Apache Kafka advertises on a broker's listener and we do not, and why: the row `not-served` of differences."""


def size(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def header(key: int, version: int, client: bytes | None = b"x", correlation_id: int = 7) -> bytes:
    name = struct.pack(">h", -1) if client is None else struct.pack(">h", len(client)) + client
    return struct.pack(">hhi", key, version, correlation_id) + name


def without_apis(answer: Any) -> Any:
    return {key: value for key, value in answer.items() if key != "api_keys"}


def test_versions_match_the_release(pair: Pair) -> None:
    kafka, ours = (side.ask(ApiVersionsRequest("a", "1"), 4) for side in pair.sides)
    theirs = {ApiKey(row.api_key): (row.min_version, row.max_version) for row in kafka.api_keys}
    mine = {ApiKey(row.api_key): (row.min_version, row.max_version) for row in ours.api_keys}
    assert {key: row for key, row in mine.items() if theirs.get(key) != row} == {}
    assert sorted(theirs.keys() - mine.keys()) == sorted(NOT_SERVED)
    pair.deviations.add("not-served")


def test_answers_to_api_versions_match(pair: Pair) -> None:
    pair.same(ApiVersionsRequest("a", "1"), mask=without_apis)
    for name, version in (("", ""), ("-a", "1"), ("a b", "1"), ("a", "1.0-"), ("ä", "1"), ("a" * 300, "1.2.3-x")):
        pair.same(ApiVersionsRequest(name, version), (3, 4), mask=without_apis)


def test_unknown_versions_of_api_versions_get_the_same_answer(pair: Pair) -> None:
    for version in (5, 6, 99, 32767, -1, -32768):
        pair.raw(f"ApiVersions {version}", size(header(18, version)))
        pair.raw(f"ApiVersions {version}, flexible", size(header(18, version) + b"\0\x02a\x021\0"))


def test_unknown_apis_and_versions_get_the_same_answer(pair: Pair) -> None:
    for key in (-1, 4, 5, 6, 7, 52, 56, 58, 59, 62, 63, 67, 70, 73, 82, 93, 999, 32767):
        pair.raw(f"api {key}", size(header(key, 0) + b"\0" * 20))
    for key in sorted(ApiKey(k) for k in set(API) - {ApiKey.API_VERSIONS}):
        if "broker" in API[key].listeners and key not in NOT_SERVED:
            for version in {API[key].min_version - 1, API[key].max_version + 1} - {-1}:
                pair.raw(f"{key.name} v{version}", size(header(key, version) + b"\0" * 40))


def test_malformed_requests_get_the_same_answer(pair: Pair) -> None:
    metadata = frame(MetadataRequest(topics=[]), 12)
    cases = {
        "header cut off": size(struct.pack(">hh", 3, 12)),
        "no client id": size(header(3, 1, None) + struct.pack(">i", 0)[:0]),
        "client id longer than the frame": size(struct.pack(">hhih", 3, 1, 7, 999)),
        "client id of negative length": size(struct.pack(">hhih", 3, 1, 7, -2) + struct.pack(">i", 0)),
        "nothing behind the header": size(header(3, 1)),
        "array longer than the frame": size(header(3, 1) + struct.pack(">i", 1_000_000)),
        "array of negative length": size(header(3, 0) + struct.pack(">i", -2)),
        "null where none may be": size(header(3, 0) + struct.pack(">i", -1)),
        "bytes behind the message": size(metadata[4:] + b"abc"),
        "frame of no bytes": struct.pack(">i", 0),
        "frame of one byte": struct.pack(">i", 1) + b"\0",
        "frame of negative length": struct.pack(">i", -1) + b"\0" * 20,
        "frame beyond the limit": struct.pack(">i", 104_857_601) + b"\0" * 20,
        "frame of 2 GiB": struct.pack(">i", 2**31 - 1) + b"\0" * 20,
        "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "TLS hello": bytes.fromhex("1603010200010001fc0303") + bytes(32),
    }
    for label, data in cases.items():
        pair.raw(label, data, wait_s=5.0)


@pytest.mark.parametrize("place", ["header", "body"])
def test_tagged_fields_of_requests_get_the_same_answers(pair: Pair, place: str) -> None:
    """Sorted, unsorted, repeated, too long, with ids and counts of all lengths."""
    for tags in (
        b"\0", b"\1\5\2ab", b"\2\5\0\6\0", b"\2\6\0\5\0", b"\2\5\0\5\0", b"\1\0\1a", b"\1\5\x7f", b"\1", b"\2\5\0",
        b"\1\xff\xff\xff\xff\x07\0", b"\1\xff\xff\xff\xff\x0f\0", b"\xff\xff\xff\xff\xff\xff", b"\x81\0\5\0",
    ):  # fmt: skip
        in_header, in_body = (tags, b"\0") if place == "header" else (b"\0", tags)
        data = size(header(3, 12) + in_header + b"\1\0\0" + in_body)
        pair.check(f"{place} {tags.hex()}", partial(outcome, data))


def test_a_request_after_a_refused_one_is_answered_on_a_new_connection(pair: Pair) -> None:
    for side in pair.sides:
        side.close()
    pair.check("alive", Side.is_open)


def test_damaged_frames_get_the_same_answer(pair: Pair) -> None:
    """Bits flipped in valid requests: both close, or both answer (the answer may depend on the bit)."""
    rng = random.Random(4)
    good = [frame(ApiVersionsRequest("a", "1"), 3), frame(SaslHandshakeRequest("PLAIN"), 1)]
    for _ in range(60):
        data = bytearray(rng.choice(good))
        at = rng.randrange(16, len(data))
        data[at] ^= 1 << rng.randrange(8)
        if data[at] < 0x80:  # not UTF-8: see below
            pair.check(f"damaged {data.hex()}", partial(outcome, bytes(data)))


def test_text_that_is_not_utf_8_is_refused(pair: Pair) -> None:
    """Kafka replaces bytes that are not UTF-8 by U+FFFD."""
    for data in (size(header(18, 0, b"\xff\xfe")), size(header(3, 1) + struct.pack(">ih", 1, 1) + b"\xff")):
        assert outcome(data, pair.kafka) == "answers"
        assert outcome(data, pair.ours) == CLOSED
    pair.deviations.add("no-utf-8")


def outcome(data: bytes, side: Side) -> str:
    side.close()
    answer = side.exchange(data, 5.0)
    side.close()
    return answer if answer in {CLOSED, SILENT} else "answers"


def test_sasl_on_a_plain_listener_gets_the_same_answer(pair: Pair) -> None:
    pair.same(SaslHandshakeRequest("PLAIN"))
    pair.same(SaslHandshakeRequest("nonsense"))
    pair.same(SaslAuthenticateRequest(b"\0user\0password"))
