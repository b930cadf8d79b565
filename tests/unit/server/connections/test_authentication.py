"""The states of a connection before and after authentication (`server.connections.authentication`)."""

from __future__ import annotations

import struct
from typing import Any

from kraft_node.base.request import ANONYMOUS
from kraft_node.server.connections.authentication import Authenticating
from kraft_node.server.connections.security import Authentication, ListenerSecurity
from kraft_protocol.client.session import Session, Software
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import (
    ApiVersionsRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.unit.server.connections.fakes import FakeTransport, World, feed
from tests.unit.server.connections.test_connection import request

SMALL = 1000
SECRET = b"open sesame"


class Sesame(Authentication):
    """Admits the secret."""

    def __init__(self, connection: Authenticating) -> None:
        self.connection = connection
        self.ended = False

    def handshake(self, ctx: Any, message: Any) -> Any:
        if ctx.api_version == 0:
            self.connection.expect_tokens()
        return SaslHandshakeResponse(mechanisms=["SESAME"])

    def authenticate(self, ctx: Any, message: Any) -> Any:
        if bytes(message.auth_bytes) == SECRET:
            self.connection.admit("User:ali")
        return SaslAuthenticateResponse()

    def token(self, token: bytes) -> None:
        self.connection.send_token(token[::-1])
        if token == SECRET:
            self.connection.admit("User:ali")

    def closed(self) -> None:
        self.ended = True


def world_with_sasl() -> tuple[World, list[str]]:
    seen: list[str] = []

    def metadata(ctx: Any, message: Any) -> Any:
        seen.append(ctx.principal)
        return MetadataResponse()

    world = World({ApiKey.METADATA: metadata, ApiKey.HEARTBEAT: lambda ctx, m: HeartbeatResponse()})
    world.listener.security = ListenerSecurity("SASL_PLAINTEXT", authentication=Sesame, early_bytes_max=SMALL)
    return world, seen


def login(number: int, secret: bytes = SECRET) -> bytes:
    return request(ApiKey.SASL_AUTHENTICATE, 1, number, SaslAuthenticateRequest(auth_bytes=secret))


def ask(number: int) -> bytes:
    return request(ApiKey.METADATA, 1, number, MetadataRequest(topics=[]))


def tokens_of(transport: FakeTransport) -> list[bytes]:
    return transport.frames()[1:]


def test_a_request_before_authentication_closes_the_connection_without_an_answer() -> None:
    world, seen = world_with_sasl()
    connection, transport = world.connect()
    feed(connection, ask(1))
    assert transport.closed and transport.frames() == [] and seen == []


def test_all_apis_are_advertised_before_authentication() -> None:
    world, _ = world_with_sasl()
    connection, transport = world.connect()
    session = Session(Software("t", "test", "1"))
    feed(connection, session.hello())
    session.welcome(transport.frames()[0])
    assert session.is_ready and int(ApiKey.METADATA) in session.served
    assert connection.principal == ANONYMOUS


def test_apis_are_served_under_the_principal_after_authentication() -> None:
    world, seen = world_with_sasl()
    connection, transport = world.connect()
    feed(connection, login(1) + ask(2))
    assert transport.correlation_ids() == [1, 2]
    assert seen == ["User:ali"]


def test_a_wrong_secret_admits_nobody() -> None:
    world, seen = world_with_sasl()
    connection, transport = world.connect()
    feed(connection, login(1, b"wrong") + ask(2))
    assert transport.correlation_ids() == [1]
    assert transport.closed and seen == []


def test_a_frame_above_the_early_limit_closes_the_connection_before_authentication_only() -> None:
    world, seen = world_with_sasl()
    large = request(
        ApiKey.METADATA, 1, 2, MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t" * SMALL)])
    )
    connection, transport = world.connect()
    feed(connection, large[:8])
    assert transport.closed
    connection, transport = world.connect()
    feed(connection, login(1) + large)
    assert transport.correlation_ids() == [1, 2] and seen == ["User:ali"]


def test_a_restricted_connection_refuses_requests_again() -> None:
    world, seen = world_with_sasl()
    connection, transport = world.connect()
    feed(connection, login(1) + ask(2))
    connection.restrict()
    feed(connection, ask(3))
    assert transport.closed and transport.correlation_ids() == [1, 2] and seen == ["User:ali"]


def test_tokens_without_headers_follow_a_handshake_of_version_0() -> None:
    for chunk in (1, 3, 1 << 20):
        world, seen = world_with_sasl()
        connection, transport = world.connect()
        handshake = request(ApiKey.SASL_HANDSHAKE, 0, 1, SaslHandshakeRequest(mechanism="SESAME"))
        feed(connection, handshake, chunk)
        tokens = b"".join(struct.pack(">i", len(token)) + token for token in (b"", b"ab", SECRET))
        feed(connection, tokens + ask(2), chunk)
        assert tokens_of(transport)[:3] == [b"", b"ba", SECRET[::-1]]
        assert transport.frames()[-1][:4] == struct.pack(">i", 2) and seen == ["User:ali"]


def test_an_oversized_token_closes_the_connection() -> None:
    for size in (-1, 1 << 30):
        world, _ = world_with_sasl()
        connection, transport = world.connect()
        feed(connection, request(ApiKey.SASL_HANDSHAKE, 0, 1, SaslHandshakeRequest(mechanism="SESAME")))
        feed(connection, struct.pack(">i", size))
        assert transport.closed


def test_the_authentication_learns_that_its_connection_has_closed() -> None:
    world, _ = world_with_sasl()
    connection, _ = world.connect()
    connection.connection_lost(None)
    state = connection.authentication
    assert isinstance(state, Sesame) and state.ended


class Knock:
    """A login of two exchanges."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    @property
    def is_done(self) -> bool:
        return len(self.answers) == 2

    def request(self) -> Any:
        return SaslAuthenticateRequest(auth_bytes=SECRET) if self.answers else SaslHandshakeRequest(mechanism="SESAME")

    def answered(self, response: Any) -> None:
        self.answers.append(response)


def test_a_session_logs_in_before_it_is_ready() -> None:
    world, seen = world_with_sasl()
    connection, transport = world.connect()
    session = Session(Software("t", "test", "1"), login=Knock())
    while not session.is_ready:
        sent = len(transport.frames())
        feed(connection, session.hello())
        session.welcome(transport.frames()[sent])
    feed(connection, session.request(MetadataRequest(topics=[]), 1))
    session.response(transport.frames()[-1])
    assert seen == ["User:ali"] and len(transport.frames()) == 4


def test_a_session_without_a_login_is_ready_after_the_versions() -> None:
    world, _ = world_with_sasl()
    world.listener.security = ListenerSecurity()
    connection, transport = world.connect()
    session = Session(Software("t", "test", "1"))
    feed(connection, session.hello())
    session.welcome(transport.frames()[0])
    assert session.is_ready
    feed(connection, request(ApiKey.API_VERSIONS, 0, 5, ApiVersionsRequest()))
    assert transport.correlation_ids()[-1] == 5
