"""The tokens of a client that sends no headers around them, after SaslHandshake 0."""

from __future__ import annotations

from kraft_node.base.request import ANONYMOUS
from tests.unit.server.connections.test_sasl_login import DELAY_MS, RIGHT, WRONG, SaslWorld


def test_tokens_without_headers_follow_the_handshake_of_version_0() -> None:
    world = SaslWorld()
    client = world.client()
    client.handshake(version=0)
    client.raw(RIGHT)
    assert client.transport.sent.endswith(bytes(4))
    client.transport.sent = client.transport.sent[:-4]
    assert client.metadata() is not None
    assert world.served == ["User:ann"]
    assert world.sasl.counts.without_reauth == 1


def test_a_slow_mechanism_judges_tokens_without_headers_in_a_thread() -> None:
    world = SaslWorld()
    client = world.client()
    client.handshake("ONESTEP", version=0)
    client.raw(b"ali")
    assert client.connection.principal == ANONYMOUS and len(world.work) == 1
    assert not client.transport.reading
    assert client.metadata() is None and world.served == []  # of a read that was under way
    world.work_in_the_thread()
    assert world.served == ["User:ali"] and client.transport.reading


def test_a_client_that_leaves_while_a_thread_judges_its_token_is_forgotten() -> None:
    world = SaslWorld()
    client = world.client()
    client.handshake("ONESTEP", version=0)
    client.raw(b"ali")
    client.connection.connection_lost(None)
    world.work_in_the_thread()
    assert world.sasl.counts.succeeded.total == 0


def test_a_token_that_a_thread_refuses_closes_the_connection_after_the_delay() -> None:
    world = SaslWorld()
    client = world.client()
    client.handshake("ONESTEP", version=0)
    client.raw(b"refused")
    world.work_in_the_thread()
    assert not client.closed
    world.wait(DELAY_MS)
    assert client.closed and client.transport.frames()[1:] == []


def test_a_failure_without_headers_closes_after_the_delay_without_an_answer() -> None:
    world = SaslWorld()
    client = world.client()
    client.handshake(version=0)
    before = len(client.transport.sent)
    client.raw(WRONG)
    client.raw(RIGHT)
    assert not client.closed
    world.wait(DELAY_MS)
    assert client.closed and len(client.transport.sent) == before and world.served == []
