"""Client metrics (KIP-714): which metrics clients must push, and how long their state is kept."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kraft_node.broker import telemetry
from kraft_node.broker.telemetry import Telemetry
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import ZERO_UUID, Uuid
from kraft_protocol.records.compression import Compression, compress
from kraft_protocol.wire.messages import PushTelemetryRequest
from tests.stopped_time import SeededRandom
from tests.unit.broker.world import Client, Loop

CLIENT_METRICS, TOPIC = 16, 2


class Wire(Client):
    """A connection with the subset that telemetry uses."""

    def __init__(self) -> None:
        super().__init__()
        self.client_software: tuple[str, str] | None = None
        self.transport = self
        self.peer = ("127.0.0.1", 50_000)


class Rig:
    """Telemetry, and one connection to it."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.telemetry = Telemetry(self.loop, SeededRandom(), 1000)
        self.wire = Wire()

    def get(self, number: int, client_id: str | None = "app") -> Any:
        ctx = self.wire.context(71, 0, client_id)
        return self.telemetry.subscribe(ctx, uuid(number) if number else ZERO_UUID)

    def push(self, number: int, subscription: int, **fields: Any) -> ErrorCode:
        request = PushTelemetryRequest(client_instance_id=uuid(number), subscription_id=subscription, **fields)
        try:
            self.telemetry.push(self.wire.context(72, 0), request)
        except KafkaError as e:
            return e.code
        return ErrorCode.NONE

    def refused(self, number: int) -> ErrorCode:
        with pytest.raises(KafkaError) as raised:
            self.get(number)
        return raised.value.code


def uuid(number: int) -> Uuid:
    return Uuid((0x5000 + number).to_bytes(16, "big"))


def test_a_client_without_an_id_gets_one() -> None:
    rig = Rig()
    first, second = rig.get(0), rig.get(0)
    assert first.id != second.id
    assert ZERO_UUID not in (first.id, second.id)


def test_subscriptions_add_up_at_the_shortest_interval() -> None:
    rig = Rig()
    assert (rig.get(1).metrics, rig.get(2).interval_ms) == ([], 300_000)
    rig.telemetry.configs_changed("a", {"metrics": "b,a", "interval.ms": "500000"})
    rig.telemetry.configs_changed("b", {"metrics": "b,c", "interval.ms": "2000", "match": "client_id=ap+"})
    both, one, nameless = rig.get(3), rig.get(4, "application"), rig.get(5, None)
    assert (both.metrics, both.interval_ms) == (["a", "b", "c"], 2000)
    assert (one.metrics, one.interval_ms) == (nameless.metrics, nameless.interval_ms) == (["a", "b"], 300_000)
    rig.telemetry.configs_changed("b", {"metrics": "*"})
    assert rig.get(6).metrics == ["*"]
    rig.telemetry.configs_changed("b", None)
    assert rig.get(7).metrics == ["a", "b"]


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ("client_software_name=java,client_software_version=4.*", True),
        ("client_software_name=java,client_software_version=3.*", False),
        ("client_source_address=127.0.0.1,client_source_port=50000", True),
        ("client_source_port=5000", False),
        ("client_instance_id=AAAAAAAAAAAAAAAAAABQAQ", True),
    ],
)
def test_patterns_match_whole_attributes(match: str, fits: bool) -> None:
    rig = Rig()
    rig.wire.client_software = ("java", "4.3.1")
    rig.telemetry.configs_changed("a", {"metrics": "m", "match": match})
    assert rig.get(1).metrics == (["m"] if fits else [])


def test_a_snapshot_replaces_all_subscriptions() -> None:
    rig = Rig()
    rig.telemetry.configs_changed("old", {"metrics": "old"})
    rig.telemetry.reload([((CLIENT_METRICS, "new"), {"metrics": "new"}), ((TOPIC, "topic"), {"metrics": "x"})])
    assert rig.get(1).metrics == ["new"]


def test_a_pattern_that_only_java_accepts_is_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    with caplog.at_level(logging.WARNING):
        rig.telemetry.configs_changed("a", {"metrics": "m", "match": "client_id=\\p{L}+"})
    assert rig.get(1).metrics == []
    assert "ignored name=a" in caplog.text


def test_a_push_must_match_its_subscription() -> None:
    rig = Rig()
    client = rig.get(1)
    assert rig.refused(1) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert rig.push(1, client.subscription_id) == ErrorCode.NONE
    assert rig.push(1, client.subscription_id) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    rig.loop.run(300_000)
    assert rig.push(1, client.subscription_id) == ErrorCode.NONE
    assert rig.push(1, client.subscription_id + 1, terminating=True) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert rig.get(1).subscription_id == client.subscription_id  # asks anew before the interval is over
    assert rig.push(1, client.subscription_id) == ErrorCode.INVALID_REQUEST  # it had sent its last push


def test_a_changed_subscription_is_reported_at_the_next_push() -> None:
    rig = Rig()
    before = rig.get(1).subscription_id
    rig.telemetry.configs_changed("a", {"metrics": "m"})
    assert rig.push(1, before) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    reported = rig.get(1).subscription_id
    assert rig.push(1, reported) == ErrorCode.THROTTLING_QUOTA_EXCEEDED  # the refused push counts
    rig.loop.run(300_000)
    assert rig.push(1, reported) == ErrorCode.NONE


def test_a_compressed_push_larger_than_the_limit_is_refused() -> None:
    rig = Rig()
    subscription = rig.get(1).subscription_id
    bomb = compress(Compression.GZIP, bytes(1001))
    assert rig.push(1, subscription, compression_type=1, metrics=bomb) == ErrorCode.INVALID_RECORD


def test_clients_are_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    rig.telemetry.configs_changed("a", {"interval.ms": "100"})
    rig.get(1)
    rig.loop.run(59_999)
    rig.push(1, 0, terminating=True)
    rig.loop.run(59_999)
    assert rig.push(1, 0) == ErrorCode.INVALID_REQUEST
    rig.push(1, 0, terminating=True)
    rig.loop.run(60_000)
    assert rig.push(1, 0) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    rig.wire.closed = True
    before = rig.get(2)
    rig.wire = Wire()
    assert rig.get(2) is not before
    assert len(rig.telemetry) == 1  # the instances of the closed connection were removed
    monkeypatch.setattr(telemetry, "CLIENTS_MAX", 5)
    for number in range(10, 20):
        rig.get(number)
    assert len(rig.telemetry) == 5
