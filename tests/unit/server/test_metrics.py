"""Histograms against sorted lists, the text format against the reference parser, and the small HTTP server."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kraft_node.base.histogram import Histogram, bucket_of, bucket_top
from kraft_node.broker.lifecycle import BrokerState
from kraft_node.server.monitoring.metrics import MetricsRegistry, RequestMetrics
from kraft_node.server.monitoring.monitoring_server import CONNECTIONS_MAX, REQUEST_MAX, UNSENT_MAX, HttpServer
from kraft_node.server.node import Node
from tests.unit.server.connections.fakes import FakeTransport, World, feed


def test_every_value_is_near_the_top_of_its_bucket() -> None:
    for value in [*range(2_000), *(random.Random(1).randrange(1 << 40) for _ in range(2_000))]:
        top = bucket_top(bucket_of(value))
        assert value <= top <= value * 1.25 + 1
        assert bucket_of(top) == bucket_of(value)
        assert bucket_of(top + 1) == bucket_of(value) + 1


def test_quantiles_are_accurate_to_a_quarter() -> None:
    rng = random.Random(2)
    values = [int(rng.expovariate(0.01)) for _ in range(20_000)]
    histogram = Histogram()
    for value in values:
        histogram.observe(value)
    values.sort()
    for name, found in histogram.quantiles():
        true = values[min(len(values) - 1, int(float(name) * len(values)))]
        assert true * 0.98 - 1 <= found <= true * 1.27 + 1, name
    assert histogram.count == 20_000
    assert histogram.total == sum(values)


def test_quantiles_forget_old_values() -> None:
    histogram = Histogram()
    histogram.turn(60_000)
    histogram.observe(1_000, 10)
    histogram.turn(120_000)
    histogram.observe(1, 10)
    assert histogram.quantiles()[-1][1] == 1_000
    histogram.turn(180_000)
    assert histogram.quantiles()[-1][1] == 1


def test_prometheus_parses_the_text() -> None:
    registry = MetricsRegistry()
    requests = RequestMetrics()
    api = requests.api(0, "Produce")
    api.versions[9] = 3
    api.latency_ms.observe(7, 3)
    registry.register(lambda: requests.collect(0))
    registry.gauge("kafka_test_value", lambda: 2.5, (("topic", 'a"b\\c\nd'),))
    families = {f.name: f for f in text_string_to_metric_families(registry.text())}
    assert families["kafka_test_value"].samples[0].labels == {"topic": 'a"b\\c\nd'}
    assert families["kafka_test_value"].samples[0].value == 2.5
    found = families["kafka_network_requestmetrics_requests"].samples[0]
    assert (found.labels, found.value) == ({"request": "Produce", "version": "9"}, 3.0)
    times = families["kafka_network_requestmetrics_totaltimems"].samples
    assert {s.labels["quantile"]: s.value for s in times}["0.99"] == 7


def serve(not_ready: Any = lambda: None) -> HttpServer:
    registry = MetricsRegistry()
    registry.gauge("up", lambda: 1)
    return HttpServer(World({}).env, registry, not_ready, lambda: "{}\n")


def ask(server: HttpServer, text: bytes, chunk: int = 5) -> FakeTransport:
    transport = FakeTransport()
    feed(server.accept(transport), text, chunk)
    return transport


def test_http_answers_probes_and_scrapers() -> None:
    reason: list[str | None] = ["broker is STARTING"]
    server = serve(lambda: reason[0])
    answer = ask(server, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
    assert answer.sent.startswith(b"HTTP/1.1 503 ")
    assert answer.sent.endswith(b"broker is STARTING\n")
    assert not answer.closed
    reason[0] = None
    assert ask(server, b"GET /readyz HTTP/1.1\r\n\r\n").sent.startswith(b"HTTP/1.1 200 ")
    assert ask(server, b"GET /livez HTTP/1.0\r\n\r\n").closed
    assert ask(server, b"HEAD /metrics HTTP/1.1\r\n\r\n").sent.endswith(b"\r\n\r\n")
    assert ask(server, b"GET /metrics?x=1 HTTP/1.1\r\nConnection: close\r\n\r\n").sent.endswith(b"up 1\n")
    status = ask(server, b"GET /status HTTP/1.1\r\n\r\n").sent
    assert b"Content-Type: application/json\r\n" in status
    assert status.endswith(b"{}\n")
    assert ask(server, b"GET /other HTTP/1.1\r\n\r\n").sent.startswith(b"HTTP/1.1 404 ")
    assert ask(server, b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc").sent.startswith(b"HTTP/1.1 405 ")
    two = ask(server, b"GET /livez HTTP/1.1\r\n\r\nGET /livez HTTP/1.1\r\n\r\n", 1000)
    assert two.sent.count(b"200 OK") == 2


@pytest.mark.parametrize("garbage", [b"\x00\x00\x00\x12\r\n\r\n", b"GET /\r\n\r\n", b"G" * REQUEST_MAX])
def test_malformed_http_requests_are_refused(garbage: bytes) -> None:
    answer = ask(serve(), garbage, 1000)
    assert answer.sent.startswith(b"HTTP/1.1 400 ")
    assert answer.closed


def test_an_endless_request_occupies_one_buffer_and_one_connection() -> None:
    """Slowloris: a client that sends a byte now and then occupies a connection and nothing else."""
    server = serve()
    slow = [FakeTransport() for _ in range(CONNECTIONS_MAX - 1)]
    sessions = [server.accept(transport) for transport in slow]
    begun = b"GET /livez HTTP/1.1\r\nX: " + b"y" * 100
    for session in sessions:
        feed(session, begun, 1)
    assert not any(transport.sent for transport in slow)
    assert ask(server, b"GET /livez HTTP/1.1\r\n\r\n").sent.startswith(b"HTTP/1.1 200 ")
    feed(sessions[0], b"y" * (REQUEST_MAX - len(begun)), 1000)
    assert slow[0].sent.startswith(b"HTTP/1.1 400 ")
    assert slow[0].closed


def test_random_http_garbage_gets_an_answer_or_nothing(caplog: pytest.LogCaptureFixture) -> None:
    random_source = random.Random(3)
    good = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    for _ in range(3000):
        text = bytearray(good)
        for _ in range(random_source.randrange(1, 6)):
            at = random_source.randrange(len(text))
            text[at : at + random_source.randrange(3)] = random_source.randbytes(random_source.randrange(4))
        answer = ask(serve(), bytes(text), random_source.choice((1, 7, 1000)))
        assert not answer.sent or answer.sent[:9] == b"HTTP/1.1 "
    assert caplog.text == ""


def test_a_new_connection_displaces_the_longest_idle_one() -> None:
    """If idle connections stayed, scrapers that vanished silently would eventually block the probes."""
    server = serve()
    opened = [FakeTransport() for _ in range(CONNECTIONS_MAX)]
    sessions = [server.accept(transport) for transport in opened]
    feed(sessions[0], b"GET /livez HTTP/1.1\r\n\r\n", 100)
    assert ask(server, b"GET /livez HTTP/1.1\r\n\r\n").sent.startswith(b"HTTP/1.1 200 ")
    assert [number for number, transport in enumerate(opened) if transport.aborted] == [1]
    sessions[1].connection_lost(None)
    sessions[2].connection_lost(None)
    ask(server, b"")
    assert [number for number, transport in enumerate(opened) if transport.aborted] == [1]
    assert len(server.open) == CONNECTIONS_MAX


def test_a_client_that_never_reads_is_disconnected() -> None:
    server = serve()
    transport = FakeTransport()
    transport.stuck = True
    feed(server.accept(transport), b"GET /metrics HTTP/1.1\r\n\r\n" * 100_000, 1000)
    assert transport.aborted
    assert UNSENT_MAX < transport.unsent_bytes < UNSENT_MAX + 1000


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"stops": True}, "stopping"),
        ({"serving": False}, "broker is RECOVERY"),
        ({}, "broker is fenced"),
        ({"ready": True}, None),
        ({"broker": None, "leader_id": -1}, "no leader"),
        ({"broker": None, "leader_id": 3}, None),
        ({"broker": None, "amnesiac": True}, "no vote until all is there that a lost disk may have held"),
    ],
)
def test_readiness_names_what_the_node_waits_for(state: dict[str, Any], expected: str | None) -> None:
    broker = SimpleNamespace(ready=state.get("ready", False), state=BrokerState.RECOVERY)
    node: Any = SimpleNamespace(
        _stop=SimpleNamespace(is_under_way=state.get("stops", False)),
        broker=state.get("broker", broker),
        serving=state.get("serving", True),
        controller=object(),
        raft=SimpleNamespace(
            leader_id=state.get("leader_id", 1), node=SimpleNamespace(is_amnesiac=state.get("amnesiac", False))
        ),
    )
    assert Node.not_ready(node) == expected
