"""The states of a connection on a SASL listener, as Kafka's SaslServerAuthenticator has them."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kraft_node.base.request import TokenPrincipal
from kraft_node.security.sasl.exchange import InvalidCredentials, PlainUsers, SaslIdentity, SaslRefused
from kraft_node.server.connections.security import ListenerSecurity
from kraft_node.server.sasl.login import ListenerSasl, SaslServerLogin
from kraft_protocol.errors import ErrorCode
from kraft_protocol.sasl.client import PlainCredentials
from kraft_protocol.sasl.login import SaslLogin as ClientLogin
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.frames import decode_response
from kraft_protocol.wire.messages import (
    ApiVersionsRequest,
    MetadataRequest,
    MetadataResponse,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from tests.unit.server.connections.fakes import FakeTransport, World, feed
from tests.unit.server.connections.test_connection import request

RIGHT = b"\0ann\0secret"
WRONG = b"\0ann\0wrong"
DELAY_MS = 100


class Scheduled:
    def __init__(self, due_ms: float, function: Any, args: tuple[Any, ...]) -> None:
        self.due_ms, self.function, self.args = due_ms, function, args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class OneStep:
    """A mechanism that believes what the client says: `NAME` or `NAME EXPIRY`; `slow` names are slow."""

    def exchange(self) -> Any:
        return OneStepExchange()


class OneStepExchange:
    def __init__(self) -> None:
        self.identity: SaslIdentity | None = None
        self.is_slow = True

    def respond(self, token: bytes) -> bytes | None:
        name, _, expiry = token.decode().partition(" ")
        if name == "broken":
            raise RuntimeError("a defect that names the secret")
        if name == "invalid":
            raise InvalidCredentials("for the log only")
        if name == "refused":
            raise SaslRefused("for the client, too")
        self.identity = SaslIdentity(f"User:{name}", int(expiry) if expiry else None, is_token=name == "token")
        return None


class SaslWorld(World):
    def __init__(self, **sasl: Any) -> None:
        self.served: list[Any] = []

        def metadata(ctx: Any, message: Any) -> Any:
            self.served.append(ctx.principal)
            return MetadataResponse()

        super().__init__({ApiKey.METADATA: metadata})
        self.timers: list[Scheduled] = []
        self.scheduler.call_later = self._later  # type: ignore[method-assign, assignment]
        self.sasl = ListenerSasl(
            self.env,
            "SASL",
            {"PLAIN": PlainUsers({"ann": "secret", "bob": "other"}), "ONESTEP": OneStep()},
            failure_delay_ms=DELAY_MS,
            **sasl,
        )
        self.work: list[tuple[Any, Any]] = []
        env: Any = self.env
        object.__setattr__(env, "background", self)
        self.listener.security = ListenerSecurity(
            "SASL_PLAINTEXT", authentication=lambda connection: SaslServerLogin(self.sasl, connection)
        )

    def submit(self, lane: str, work: Any, done: Any) -> None:
        self.work.append((work, done))

    def work_in_the_thread(self) -> None:
        work, self.work = self.work, []
        for function, done in work:
            try:
                result = function()
            except Exception as error:
                result = error
            done(result)
        self.scheduler.run()

    def _later(self, delay_ms: float, function: Any, *args: Any) -> Scheduled:
        timer = Scheduled(self.clock.now + delay_ms, function, args)
        self.timers.append(timer)
        return timer

    def wait(self, ms: int) -> None:
        self.clock.now += ms
        due = [timer for timer in self.timers if timer.due_ms <= self.clock.now]
        self.timers = [timer for timer in self.timers if timer not in due]
        for timer in due:
            if not timer.cancelled:
                timer.function(*timer.args)
        self.scheduler.run()

    def client(self) -> Client:
        return Client(self)


class Client:
    """Sends requests one by one and reads the answers."""

    def __init__(self, world: SaslWorld) -> None:
        self.world = world
        connection, self.transport = world.connect()
        self.connection: Any = connection
        self.sent: list[tuple[ApiKey, int]] = []

    @property
    def closed(self) -> bool:
        return self.transport.closed or self.transport.aborted

    def send(self, key: ApiKey, version: int, message: Any) -> Any:
        """The answer that came at once, or None."""
        self.sent.append((key, version))
        feed(self.connection, request(key, version, len(self.sent), message))
        self.world.scheduler.run()
        return self.answer()

    def answer(self) -> Any:
        frames = self.transport.frames()
        if len(frames) < len(self.sent):
            return None
        return decode_response(frames[len(self.sent) - 1], *self.sent[-1])[1]

    def versions(self) -> Any:
        message = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        return self.send(ApiKey.API_VERSIONS, 3, message)

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        return self.send(ApiKey.SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism))

    def authenticate(self, token: bytes = RIGHT, version: int = 2) -> Any:
        return self.send(ApiKey.SASL_AUTHENTICATE, version, SaslAuthenticateRequest(token))

    def metadata(self) -> Any:
        return self.send(ApiKey.METADATA, 1, MetadataRequest(topics=[]))

    def raw(self, token: bytes) -> None:
        feed(self.connection, struct.pack(">i", len(token)) + token)
        self.world.scheduler.run()


def test_a_client_with_the_password_is_served_under_its_name() -> None:
    world = SaslWorld()
    client = world.client()
    assert client.versions().error_code == 0
    shaken = client.handshake()
    assert (shaken.error_code, list(shaken.mechanisms)) == (0, ["PLAIN", "ONESTEP"])
    done = client.authenticate()
    assert (done.error_code, bytes(done.auth_bytes), done.session_lifetime_ms) == (0, b"", 0)
    assert client.metadata() is not None
    assert world.served == ["User:ann"]
    assert world.sasl.counts.succeeded.total == 1


def test_a_failure_is_answered_and_closed_after_the_delay() -> None:
    world = SaslWorld()
    client = world.client()
    client.handshake()
    assert client.authenticate(WRONG) is None
    client.metadata()
    world.wait(DELAY_MS - 1)
    assert client.transport.frames()[1:] == [] and not client.closed
    world.wait(1)
    client.sent.pop()
    refused = client.answer()
    assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert refused.error_message == "Authentication failed: Invalid username or password"
    assert client.closed and world.served == []
    assert (world.sasl.counts.failed.total, world.sasl.counts.succeeded.total) == (1, 0)


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (
            b"invalid",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism ONESTEP",
        ),
        (
            b"broken",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism ONESTEP",
        ),
        (b"refused", "for the client, too"),
    ],
)
def test_a_failed_client_gets_the_mechanisms_text_only_if_it_is_meant_for_it(token: bytes, text: str) -> None:
    world = SaslWorld()
    client = world.client()
    client.handshake("ONESTEP")
    client.authenticate(token)
    world.work_in_the_thread()
    world.wait(DELAY_MS)
    assert (client.answer().error_code, client.answer().error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, text)
    assert client.closed


def test_an_unknown_mechanism_is_answered_with_those_that_are_enabled() -> None:
    world = SaslWorld()
    client = world.client()
    assert client.handshake("GSSAPI") is None
    world.wait(DELAY_MS)
    answer = client.answer()
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert list(answer.mechanisms) == ["PLAIN", "ONESTEP"]
    assert client.closed and world.sasl.counts.failed.total == 1


def test_a_second_apiversions_request_closes_the_connection() -> None:
    client = SaslWorld().client()
    client.versions()
    assert client.versions() is None and client.closed


def test_an_unknown_version_of_apiversions_is_answered_only_before_a_known_one() -> None:
    client = SaslWorld().client()
    unknown = struct.pack(">hhih", 18, 99, 1, -1) + b"\0"
    client.sent.append((ApiKey.API_VERSIONS, 0))
    client.raw(unknown)
    assert client.answer().error_code == ErrorCode.UNSUPPORTED_VERSION and not client.closed
    assert client.versions().error_code == 0
    client.raw(unknown)
    assert client.closed


def test_apiversions_after_the_handshake_is_an_illegal_state() -> None:
    world = SaslWorld()
    client = world.client()
    client.handshake()
    assert client.versions() is None
    world.wait(DELAY_MS)
    assert client.answer().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.closed


@pytest.mark.parametrize(
    "message", [MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="t")]), MetadataRequest(topics=[])]
)
def test_a_request_with_names_during_the_exchange_is_an_illegal_state(message: Any) -> None:
    world = SaslWorld()
    client = world.client()
    client.handshake()
    assert client.send(ApiKey.METADATA, 1, message) is None
    world.wait(DELAY_MS)
    assert client.closed and world.served == []
    assert client.answer() is not None


def test_another_request_before_the_handshake_closes_the_connection_at_once() -> None:
    for first in (Client.metadata, Client.authenticate):
        client = SaslWorld().client()
        assert first(client) is None and client.closed


def test_another_request_during_the_exchange_is_an_illegal_state() -> None:
    for second in (Client.metadata, Client.handshake):
        world = SaslWorld()
        client = world.client()
        client.handshake()
        assert second(client) is None and not client.closed
        world.wait(DELAY_MS)
        assert client.closed and world.sasl.counts.failed.total == 1 and world.served == []
        assert len(client.transport.frames()) == 2
    assert client.answer().error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_sasl_requests_after_authentication_are_an_illegal_state_without_a_session() -> None:
    client = SaslWorld().client()
    client.handshake()
    client.authenticate()
    assert client.handshake().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.authenticate().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.metadata() is not None


def test_a_slow_mechanism_runs_in_a_thread_and_holds_further_requests() -> None:
    world = SaslWorld()
    client = world.client()
    client.handshake("ONESTEP")
    assert client.authenticate(b"eve") is None
    client.metadata()
    assert world.served == []
    world.work_in_the_thread()
    assert world.served == ["User:eve"]


def test_a_client_that_leaves_during_a_slow_exchange_is_forgotten() -> None:
    world = SaslWorld()
    client = world.client()
    client.handshake("ONESTEP")
    client.authenticate(b"eve")
    client.connection.connection_lost(None)
    world.work_in_the_thread()
    assert world.sasl.counts.succeeded.total == 0


def test_a_token_login_is_marked_so() -> None:
    world = SaslWorld()
    client = world.client()
    client.handshake("ONESTEP")
    client.authenticate(b"token 9000")
    world.work_in_the_thread()
    client.metadata()
    assert isinstance(world.served[0], TokenPrincipal)


# Sessions (KIP-368)


def with_session(world: SaslWorld, name: bytes = b"eve") -> Client:
    client = world.client()
    client.handshake("ONESTEP")
    client.authenticate(name)
    world.work_in_the_thread()
    return client


@pytest.mark.parametrize(
    ("token", "limit", "lifetime"),
    [(b"eve", 3000, 3000), (b"eve 6000", 0, 5000), (b"eve 6000", 3000, 3000), (b"eve 10", 0, 0)],
)
def test_a_session_ends_with_the_credentials_or_at_the_limit(token: bytes, limit: int, lifetime: int) -> None:
    world = SaslWorld(max_session_ms={"ONESTEP": limit})
    client = with_session(world, token)
    assert client.answer().session_lifetime_ms == lifetime
    if lifetime:
        assert client.metadata() is not None
    world.wait(lifetime + 1)
    assert client.metadata() is None and client.closed
    assert world.sasl.counts.expired_killed == 1


def test_a_client_that_authenticates_again_stays() -> None:
    world = SaslWorld(max_session_ms={"ONESTEP": 3000})
    client = with_session(world)
    for _ in range(3):
        world.wait(2000)
        assert client.handshake("ONESTEP").error_code == 0
        client.authenticate(b"eve")
        world.work_in_the_thread()
        assert client.answer().session_lifetime_ms == 3000
        assert client.metadata() is not None
    assert world.sasl.counts.succeeded_again.total == 3


def test_a_client_may_authenticate_again_after_the_end_of_its_session() -> None:
    world = SaslWorld(max_session_ms={"ONESTEP": 3000})
    client = with_session(world)
    world.wait(9000)
    assert client.handshake("ONESTEP").error_code == 0
    client.authenticate(b"eve")
    world.work_in_the_thread()
    assert client.metadata() is not None


def test_authenticating_again_within_a_second_is_an_illegal_state() -> None:
    world = SaslWorld(max_session_ms={"ONESTEP": 3000})
    client = with_session(world)
    for expected in (0, ErrorCode.ILLEGAL_SASL_STATE):
        assert client.handshake("ONESTEP").error_code == expected
        if expected == 0:
            client.authenticate(b"eve")
            world.work_in_the_thread()
            world.wait(999)


def test_another_principal_fails_the_repeated_authentication() -> None:
    world = SaslWorld(max_session_ms={"ONESTEP": 3000})
    client = with_session(world)
    client.handshake("ONESTEP")
    client.authenticate(b"bob")
    world.work_in_the_thread()
    world.wait(DELAY_MS)
    assert client.answer().error_message == "Cannot change principals during re-authentication from User.eve: User.bob"
    assert client.closed and world.sasl.counts.failed_again.total == 1


def test_another_mechanism_fails_the_repeated_authentication_at_its_next_request() -> None:
    world = SaslWorld(max_session_ms={"ONESTEP": 3000})
    client = with_session(world)
    assert client.handshake("PLAIN").error_code == 0
    assert client.authenticate(RIGHT) is None
    world.wait(DELAY_MS)
    assert client.closed and world.sasl.counts.failed_again.total == 1


def test_a_client_does_not_authenticate_again_within_a_second() -> None:
    """The broker would refuse it: sessions that end with a token may be shorter."""
    from kraft_protocol.client.session import Session, Software

    login = ClientLogin(PlainCredentials("ann", "secret"), "h")
    session = Session(Software("c", "test", "1"), login=login)
    for lifetime_ms, after_ms in ((0, 0), (300, 1_100), (2_000, 1_800)):
        login.lifetime_ms = lifetime_ms
        assert session.renews_after_ms == after_ms


def test_a_client_that_limits_its_versions_logs_in() -> None:
    from kraft_protocol.client.session import Session, Software

    world = SaslWorld()
    connection, transport = world.connect()
    login = ClientLogin(PlainCredentials("ann", "secret"), "h")
    session = Session(Software("c", "test", "1"), {ApiKey.METADATA: (1, 12)}, login)
    answered = 0
    while not session.is_ready:
        feed(connection, session.hello())
        session.welcome(transport.frames()[answered])
        answered += 1
    assert connection.principal == "User:ann"


def test_our_client_completes_the_exchange() -> None:
    world = SaslWorld(max_session_ms={"PLAIN": 5000})
    connection, transport = world.connect()
    from kraft_protocol.client.session import Session, Software  # as drivers use it

    session = Session(Software("c", "test", "1"), login=ClientLogin(PlainCredentials("ann", "secret"), "h"))
    answered = 0
    while not session.is_ready:
        feed(connection, session.hello())
        session.welcome(transport.frames()[answered])
        answered += 1
    assert session.renews_after_ms == 4500
    assert connection.principal == "User:ann"
    world.wait(4500)
    session.authenticate_again(ClientLogin(PlainCredentials("ann", "secret"), "h"))
    while not session.is_ready:
        feed(connection, session.hello())
        session.welcome(transport.frames()[answered])
        answered += 1
    world.wait(4500)
    feed(connection, session.request(MetadataRequest(topics=[]), 1))
    assert world.served == ["User:ann"] and isinstance(transport, FakeTransport)
