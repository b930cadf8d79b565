"""Client telemetry (KIP-714) without a receiving plugin: it is not advertised, but requests are answered.

A client may send each request once per interval, so each request comes from its own client instance. The ids begin at
BASE, and no two tests share an id.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import ONE_UUID, ZERO_UUID, Uuid
from kraft_protocol.records.compression import compress
from kraft_protocol.wire.messages import (
    ApiVersionsRequest,
    GetTelemetrySubscriptionsRequest,
    IncrementalAlterConfigsRequest,
    PushTelemetryRequest,
)
from tests.golden.broker.pair import Pair, Side, frame, uuid

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("broker-parity")]

BASE = 0x7000 << 64
CLIENT_METRICS = 16
SET, DELETE = 0, 1
BYTES_MAX = 1_048_576
SETTLES_IN_S = 60


def get(number: int) -> GetTelemetrySubscriptionsRequest:
    return GetTelemetrySubscriptionsRequest(uuid(BASE + number))


def push(number: int, **fields: Any) -> Callable[[Side], PushTelemetryRequest]:
    """A push from a client that knows its subscription, as `subscribed` stored it."""

    def request(side: Side) -> PushTelemetryRequest:
        given: dict[str, Any] = {
            "subscription_id": side.memory.get(f"subscription {number}", 0),
            "metrics": b"",
            **fields,
        }
        return PushTelemetryRequest(client_instance_id=uuid(BASE + number), **given)

    return request


def subscribed(pair: Pair, number: int) -> None:
    answers = pair.same(get(number))
    for side, answer in zip(pair.sides, answers, strict=True):
        side.memory[f"subscription {number}"] = answer.subscription_id


def configure(pair: Pair, name: str, **values: str | None) -> None:
    """Set the client-metrics resource; None removes a value. Returns when both brokers know the change."""
    change = IncrementalAlterConfigsRequest.AlterableConfig
    rows = [change(key.replace("_", "."), DELETE if v is None else SET, v) for key, v in values.items()]
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(CLIENT_METRICS, name, rows)
    pair.same(IncrementalAlterConfigsRequest(resources=[resource]), 1)


def asked_of_a_new_client(pair: Pair, first: int, expected: list[str], client_id: str) -> None:
    """Wait until both request `expected` from clients of this name; uses the numbers from `first` on."""
    for side in pair.sides:
        deadline = time.monotonic() + SETTLES_IN_S
        number = first
        while sorted(side.ask(get(number), 0, client_id).requested_metrics) != expected:
            assert time.monotonic() < deadline, (side, expected)
            time.sleep(0.05)
            number += 1


def test_telemetry_is_not_advertised(pair: Pair) -> None:
    for side in pair.sides:
        keys = {row.api_key for row in side.ask(ApiVersionsRequest("a", "1"), 4).api_keys}
        assert keys.isdisjoint({71, 72}), side


def test_client_instance_ids_get_the_same_answers(pair: Pair) -> None:
    """A new client is given an id. Any other id is accepted, but a push from the two reserved ids is refused."""
    for answer in pair.same(GetTelemetrySubscriptionsRequest(ZERO_UUID), mask=without_id):
        assert answer.client_instance_id not in (ZERO_UUID, ONE_UUID)
    pair.same(GetTelemetrySubscriptionsRequest(ONE_UUID))
    pair.same(GetTelemetrySubscriptionsRequest(Uuid(b"\xff" * 16)))
    for reserved in (ZERO_UUID, ONE_UUID):
        pair.same(PushTelemetryRequest(reserved, 1, False, 0, b"x"))
    pair.same(PushTelemetryRequest(uuid(2), 1, False, 0, b"x"))


def without_id(answer: Any) -> Any:
    """The answer without the subscription's number, which depends on random ids."""
    return {key: value for key, value in answer.items() if key != "subscription_id"}


def test_a_second_request_in_an_interval_gets_the_same_error(pair: Pair) -> None:
    subscribed(pair, 1)
    pair.same(get(1))
    pair.same(push(1, metrics=b"some"))
    pair.same(push(1, metrics=b"some"))
    pair.same(get(1))


def test_a_push_for_another_subscription_gets_the_same_error(pair: Pair) -> None:
    pair.same(push(10, subscription_id=17))
    pair.same(get(10))
    pair.same(push(10, subscription_id=18))
    pair.same(get(10))
    subscribed(pair, 11)
    pair.same(push(11))
    pair.same(push(11, subscription_id=19, terminating=True))


def test_the_last_push_gets_the_same_answer(pair: Pair) -> None:
    subscribed(pair, 20)
    pair.same(push(20, metrics=b"some"))
    pair.same(push(20, metrics=b"more", terminating=True))
    pair.same(push(20, metrics=b"more", terminating=True))
    pair.same(push(20, metrics=b"more"))
    pair.same(push(20, metrics=b"more"))
    pair.same(get(20))


def test_codecs_of_pushes_get_the_same_answers(pair: Pair) -> None:
    """Whole, damaged and unknown codecs; a push that is too large as sent, or only after decompression."""
    number = 30
    for codec in range(5):
        for data in (compress(codec, b"metrics" * 100), b"no such thing", b""):
            subscribed(pair, number)
            pair.same(push(number, compression_type=codec, metrics=data), label=f"{codec} {data[:4]!r}")
            number += 1
    for codec in (-1, 5, 127):
        subscribed(pair, number)
        pair.same(push(number, compression_type=codec, metrics=b"x"))
        pair.same(get(number))
        number += 1
    for size in (BYTES_MAX, BYTES_MAX + 1):
        for codec in (0, 1, 3, 4):
            subscribed(pair, number)
            pair.same(
                push(number, compression_type=codec, metrics=compress(codec, bytes(size))), label=f"{codec} {size}"
            )
            number += 1


def test_a_client_is_forgotten_with_its_connection(pair: Pair) -> None:
    subscribed(pair, 70)
    pair.same(get(70))
    for side in pair.sides:
        side.close()
        deadline = time.monotonic() + SETTLES_IN_S  # until the server has noticed the end of the connection
        while side.ask(get(70), 0).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
            assert time.monotonic() < deadline, side
            time.sleep(0.05)


def test_subscriptions_get_the_same_answers(pair: Pair) -> None:
    """A client is asked for all subscriptions that match it, at the shortest interval; a change makes it ask again."""
    subscribed(pair, 100)
    configure(pair, "some", metrics="org.apache.kafka.producer.,org.apache.kafka.consumer.", match="client_id=tele.*")
    asked_of_a_new_client(pair, 1000, ["org.apache.kafka.consumer.", "org.apache.kafka.producer."], "telemetry")
    pair.same(push(100, metrics=b"some"))  # the subscription changed, but not for this client
    pair.same(get(101), client_id="telemetry", mask=without_id)  # the number depends on the order of a Java set
    pair.same(get(102), client_id="a telemetry")
    pair.same(get(103), client_id=None)
    configure(pair, "some", metrics="one", interval_ms="100")
    asked_of_a_new_client(pair, 1100, ["one"], "telemetry")
    pair.same(get(110), client_id="telemetry")
    configure(pair, "more", metrics="*", match="client_software_name=parity,client_software_version=1\\..*")
    for side in pair.sides:
        side.close()
        side.ask(ApiVersionsRequest("parity", "1.5"), 4)
    asked_of_a_new_client(pair, 1200, ["*"], "others")
    pair.same(get(120), client_id="others")
    pair.same(get(121), client_id="telemetry")
    for side in pair.sides:
        side.close()
        side.ask(ApiVersionsRequest("parity", "2.5"), 4)
    pair.same(get(122), client_id="others")
    pair.same(get(123), client_id="telemetry")
    configure(pair, "more", match="client_source_address=127.0.0.1,client_source_port=[0-9]+")
    asked_of_a_new_client(pair, 1300, ["*"], "others")
    pair.same(get(130), client_id="others")
    for name in ("some", "more"):
        configure(pair, name, metrics=None, interval_ms=None, match=None)
    asked_of_a_new_client(pair, 1400, [], "telemetry")
    pair.same(get(140), client_id="telemetry")


def test_garbage_in_pushes_gets_the_same_answers(pair: Pair) -> None:
    for request in (get(200), PushTelemetryRequest(uuid(BASE + 201), 1, False, 0, b"abc")):
        whole = frame(request, 0)[4:]
        for cut in (1, 5, 17):
            data = whole[:-cut]
            pair.raw(f"cut by {cut}", len(data).to_bytes(4, "big") + data, wait_s=5.0)
