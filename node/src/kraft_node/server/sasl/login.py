"""The authentication of one connection: which requests it may send, what failures look like, and its sessions.

A connection begins with ApiVersions (at most one that succeeds) and SaslHandshake. Then the mechanism's messages
travel in SaslAuthenticate requests, or as bare frames after SaslHandshake v0. Every other request closes the
connection. A failure is answered after `connection.failed.authentication.delay.ms`, then the connection is closed.

A session (KIP-368) ends when the credentials expire or after `connections.max.reauth.ms`. Before, the client repeats
SaslHandshake and SaslAuthenticate with the same mechanism and principal.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.request import TokenPrincipal
from kraft_node.security.sasl.exchange import (
    InvalidCredentials,
    SaslIdentity,
    SaslRefused,
    ServerExchange,
    ServerMechanism,
)
from kraft_node.server.connections.security import Authentication, SecuredConnection
from kraft_node.server.secure.counts import AuthenticationCounts
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import SaslAuthenticateResponse, SaslHandshakeResponse

if TYPE_CHECKING:
    from kraft_node.base.env import Env, Timer
    from kraft_node.base.request import RequestContext

log = logging.getLogger(__name__)

LANE: Final = "sasl"
"""The background lane of slow mechanisms."""
REAUTHENTICATION_PAUSE_MS: Final = 1000
"""A client that authenticates again earlier is refused, as in Kafka."""
_ILLEGAL: Final = ErrorCode.ILLEGAL_SASL_STATE
_AFTER: Final = "SaslAuthenticate request received after successful authentication"


class ListenerSasl:
    """What the connections of a listener share."""

    def __init__(
        self,
        env: Env,
        name: str,
        mechanisms: Mapping[str, ServerMechanism],
        *,
        max_session_ms: Mapping[str, int] | None = None,
        failure_delay_ms: int = 100,
        receive_bytes_max: int = 524_288,
    ) -> None:
        """`name`: of the listener. `max_session_ms`: by mechanism; 0 or missing: no limit."""
        self.env = env
        self.name = name
        self.mechanisms = dict(mechanisms)
        self.max_session_ms = dict(max_session_ms or {})
        self.failure_delay_ms = failure_delay_ms
        self.receive_bytes_max = receive_bytes_max
        self.counts = AuthenticationCounts()


class Stage(Enum):
    """How far a connection is."""

    VERSIONS = auto()
    """ApiVersions or SaslHandshake is next."""
    HANDSHAKE = auto()
    """SaslHandshake is next."""
    EXCHANGE = auto()
    """The mechanism's next message is next."""
    DONE = auto()
    WRONG_MECHANISM = auto()
    """A repeated authentication began with another mechanism; the next request fails."""
    FAILED = auto()


class SaslServerLogin(Authentication):
    """The state of one connection on a SASL listener."""

    __slots__ = (
        "_again_ms",
        "_began_ms",
        "_connection",
        "_end",
        "_exchange",
        "_has_headers",
        "_identity",
        "_is_over",
        "_knows_sessions",
        "_mechanism",
        "_sasl",
        "_session",
        "stage",
    )

    def __init__(self, sasl: ListenerSasl, connection: SecuredConnection) -> None:
        self.stage = Stage.VERSIONS
        self._sasl = sasl
        self._connection = connection
        self._exchange: ServerExchange | None = None
        self._mechanism = ""
        self._identity: SaslIdentity | None = None
        self._has_headers = False
        self._knows_sessions = False
        # Whether there is a session that may be renewed; when the present authentication began; when the last
        # repeated one did.
        self._session = False
        self._began_ms = 0
        self._again_ms: int | None = None
        # Ends the session; whether it is over.
        self._end: Timer | None = None
        self._is_over = False

    def closed(self) -> None:
        """See `Authentication`."""
        self.stage = Stage.FAILED
        self._exchange = None
        self._cancel_end()

    # Requests

    def begin_versions(self) -> bool:
        """See `Authentication`."""
        return self.stage is Stage.VERSIONS or (self.stage is Stage.DONE and not self._is_over)

    def versions_answered(self) -> None:
        """See `Authentication`."""
        if self.stage is Stage.VERSIONS:
            self.stage = Stage.HANDSHAKE

    def handshake(self, ctx: RequestContext, request: Any) -> Any:
        """See `Authentication`."""
        if self.stage is Stage.DONE:
            if not self._may_begin_again():
                return SaslHandshakeResponse(error_code=_ILLEGAL)
            self._cancel_end()
            self._connection.restrict()
        elif self.stage not in (Stage.VERSIONS, Stage.HANDSHAKE):
            return self.unexpected(ctx, SaslHandshakeResponse(error_code=_ILLEGAL))
        mechanism = request.mechanism
        known = list(self._sasl.mechanisms)
        if mechanism not in self._sasl.mechanisms:
            response = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, known)
            return self._fail(ctx, response, "mechanism is not enabled")
        if ctx.api_version >= 1:
            self._has_headers = True
        if self._identity is not None and mechanism != self._mechanism:
            self.stage = Stage.WRONG_MECHANISM
        else:
            self._mechanism = mechanism
            self._exchange = self._sasl.mechanisms[mechanism].exchange()
            self.stage = Stage.EXCHANGE
            if not self._has_headers:
                self._connection.expect_tokens()
        return SaslHandshakeResponse(mechanisms=known)

    def _may_begin_again(self) -> bool:
        now_ms = self._sasl.env.clock.monotonic_ms()
        if not self._session or (self._again_ms is not None and now_ms - self._again_ms < REAUTHENTICATION_PAUSE_MS):
            return False
        self._again_ms = self._began_ms = now_ms
        return True

    def authenticate(self, ctx: RequestContext, request: Any) -> Any:
        """See `Authentication`."""
        if self.stage is Stage.DONE:
            raise KafkaError(_ILLEGAL, _AFTER)
        if self.stage is Stage.WRONG_MECHANISM:
            return self._fail(ctx, None, "another mechanism than before")
        if self.stage is not Stage.EXCHANGE:
            ctx.close_connection()
            return None
        self._knows_sessions = ctx.api_version > 0
        exchange = self._exchange
        assert exchange is not None
        token = bytes(request.auth_bytes)
        if not exchange.is_slow:
            return self._answer(ctx, exchange, _outcome(exchange, token))
        self._sasl.env.background.submit(
            LANE, partial(exchange.respond, token), partial(self._answer_later, ctx, exchange)
        )
        return None

    def _answer_later(
        self, ctx: RequestContext, exchange: ServerExchange, outcome: bytes | BaseException | None
    ) -> None:
        if self._connection.closed:
            return
        response = self._answer(ctx, exchange, outcome)
        if response is not None:
            ctx.respond(response)

    def _answer(self, ctx: RequestContext, exchange: ServerExchange, outcome: bytes | BaseException | None) -> Any:
        """The response to the mechanism's message; None if it comes later."""
        if isinstance(outcome, bytes | None) and exchange.identity is not None:
            outcome = self._other_principal(exchange.identity) or outcome
        if isinstance(outcome, BaseException):
            text, reason = self._texts(outcome)
            response = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, text)
            return self._fail(ctx, response, reason)
        lifetime_ms = 0 if exchange.identity is None else self._complete(exchange.identity)
        return SaslAuthenticateResponse(auth_bytes=outcome or b"", session_lifetime_ms=lifetime_ms)

    def token(self, token: bytes) -> None:
        """See `Authentication`."""
        exchange = self._exchange
        if exchange is None:
            return
        if not exchange.is_slow:
            self._token_judged(exchange, _outcome(exchange, token))
            return
        self._connection.hold_tokens()
        self._sasl.env.background.submit(LANE, partial(exchange.respond, token), partial(self._go_on, exchange))

    def _go_on(self, exchange: ServerExchange, outcome: bytes | BaseException | None) -> None:
        """Continue after the lane has judged a token."""
        if not self._connection.closed:
            self._token_judged(exchange, outcome)
            self._connection.resume_tokens()

    def _token_judged(self, exchange: ServerExchange, outcome: bytes | BaseException | None) -> None:
        if isinstance(outcome, bytes | None) and exchange.identity is not None:
            outcome = self._other_principal(exchange.identity) or outcome
        if isinstance(outcome, BaseException):
            self._note_failure(self._texts(outcome)[1])
            self._sasl.env.scheduler.call_later(self._sasl.failure_delay_ms, self._connection.close)
            return
        if exchange.identity is not None:
            self._complete(exchange.identity)
        if outcome is not None:
            self._connection.send_token(outcome)

    def unexpected(self, ctx: RequestContext, response: Any) -> Any:
        """See `Authentication`."""
        if self.stage is Stage.DONE:
            self._sasl.counts.expired_killed += 1
            log.debug("session is over, connection closed peer=%s", self._connection.peer_host)
        if self.stage is Stage.EXCHANGE:
            return self._fail(ctx, response, "another request during the exchange")
        if self.stage is Stage.WRONG_MECHANISM:
            return self._fail(ctx, None, "another mechanism than before")
        ctx.close_connection()
        return None

    # Outcomes

    def _other_principal(self, identity: SaslIdentity) -> SaslRefused | None:
        before = self._identity
        if before is None or before.principal == identity.principal:
            return None
        one, other = (who.principal.replace(":", ".", 1) for who in (before, identity))
        return SaslRefused(f"Cannot change principals during re-authentication from {one}: {other}")

    def _texts(self, outcome: BaseException) -> tuple[str, str]:
        """The text for the client, and the text for the log."""
        if isinstance(outcome, SaslRefused):
            return str(outcome), str(outcome)
        again = "re-authentication" if self._identity is not None else "authentication"
        text = f"Authentication failed during {again} due to invalid credentials with SASL mechanism {self._mechanism}"
        if isinstance(outcome, InvalidCredentials):
            return text, str(outcome)
        log.error("mechanism failed mechanism=%s", self._mechanism, exc_info=outcome)
        return text, f"failure of the mechanism ({type(outcome).__name__})"

    def _complete(self, identity: SaslIdentity) -> int:
        """Begin the session; returns its duration in milliseconds, 0 if it has no end."""
        sasl = self._sasl
        now_ms = sasl.env.clock.monotonic_ms()
        limits = [limit for limit in (sasl.max_session_ms.get(self._mechanism, 0),) if limit > 0]
        if identity.expires_ms is not None:
            limits.append(identity.expires_ms - sasl.env.clock.wall_ms())
        lifetime_ms = max(0, min(limits, default=0))
        self._session = bool(limits)
        counts = sasl.counts
        if self._identity is not None:
            counts.succeeded_again.add(now_ms)
            counts.took_again(max(0, now_ms - self._began_ms), now_ms)
        else:
            counts.succeeded.add(now_ms)
            counts.without_reauth += not self._knows_sessions
        self._identity = identity
        self._exchange = None
        self.stage = Stage.DONE
        self._connection.admit(TokenPrincipal(identity.principal) if identity.is_token else identity.principal)
        self._is_over = False
        if limits:
            self._end = sasl.env.scheduler.call_later(lifetime_ms + 1, self._session_over)
        return lifetime_ms

    def _session_over(self) -> None:
        """The next request, except for SaslHandshake, closes the connection."""
        self._end = None
        if self.stage is Stage.DONE:
            self._is_over = True
            self._connection.restrict()

    def _cancel_end(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None

    def _fail(self, ctx: RequestContext, response: Any, reason: str) -> None:
        """Answer and close after the delay; `response` None: only close. Further input is ignored meanwhile."""
        self._note_failure(reason)

        def end() -> None:
            if self._connection.closed:
                return
            if response is None:
                ctx.close_connection()
            else:
                ctx.respond(response)
                self._connection.close()

        self._sasl.env.scheduler.call_later(self._sasl.failure_delay_ms, end)

    def _note_failure(self, reason: str) -> None:
        self.stage = Stage.FAILED
        self._exchange = None
        counts = self._sasl.counts
        meter = counts.failed if self._identity is None else counts.failed_again
        meter.add(self._sasl.env.clock.monotonic_ms())
        log.info(
            "authentication failed peer=%s listener=%s mechanism=%s reason=%s",
            self._connection.peer_host, self._sasl.name, self._mechanism, reason,
        )  # fmt: skip


def _outcome(exchange: ServerExchange, token: bytes) -> bytes | Exception | None:
    try:
        return exchange.respond(token)
    except Exception as error:  # whatever fails, the client is not authenticated
        return error
