"""The channel to the controller of the same process: the same requests as over the network, without the network.

A combined node sends itself the requests that separate nodes would exchange, with the same messages and versions; only
bytes and sockets are left out. As with a socket, answers come from the event loop, never from within `send`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.request import ANONYMOUS, RequestContext
from kraft_node.base.turns import Turns
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.error_response import error_response

if TYPE_CHECKING:
    from kraft_node.base.env import Env, Timer
    from kraft_node.base.request import Handler
    from kraft_protocol.wire.classes import Message

log = logging.getLogger("kraft_node.server.channels.local_channel")

UNANSWERED_MAX: Final = 20_000
"""Maximum of pending requests: twice as many as the broker forwards, so that its own are never refused first."""


LOOPBACK: Final = "127.0.0.1"


class _Call:
    """One pending request; it takes the place of a connection."""

    __slots__ = ("channel", "closed", "done", "timer")

    lost = False
    """The broker of this process lives as long as its controller."""

    def __init__(self, channel: LocalChannel, done: Callable[[Any], None]) -> None:
        self.channel = channel
        self.done = done
        self.closed = False
        self.timer: Timer | None = None

    def answer(self, ctx: RequestContext, message: Any) -> None:  # noqa: ARG002
        self.channel.scheduler.call_soon(self.finish, message)

    def close(self) -> None:
        self.channel.scheduler.call_soon(self.finish, ConnectionResetError("closed by the handler"))

    def timed_out(self) -> None:
        self.finish(TimeoutError("the controller did not answer in time"))

    def finish(self, result: Any) -> None:
        if self.closed:
            return
        self.closed = True
        self.channel.unanswered -= 1
        if self.timer is not None:
            self.timer.cancel()
        self.done(result)


class LocalChannel:
    """Sends to `handlers` of this process under the name of `listener`.

    An authorizer checks these requests as if they came over the network: with the principal of a connection from
    `host`.
    """

    def __init__(
        self,
        env: Env,
        listener: str,
        client_id: str,
        handlers: Mapping[ApiKey, Handler],
        host: str = LOOPBACK,
        principal: Callable[[], str] = lambda: ANONYMOUS,
    ) -> None:
        """`principal`: the principal that the node's own requests would have over the network."""
        self.clock = env.clock
        self.scheduler = env.scheduler
        self.listener = listener
        self.client_id = client_id
        self.handlers = handlers
        self.host = host
        self.principal = principal
        self.unanswered = 0
        self._turns = Turns(env)
        """Where clients' requests are handled: however many clients send, a turn of the loop does not become longer."""
        self._keys: dict[type[Message], ApiKey] = {}
        self._correlation_id = 0

    def send(
        self,
        request: Any,
        version: int | None,
        done: Callable[[Any], None],
        timeout_ms: int,
        *,
        on_behalf_of: RequestContext | None = None,
    ) -> None:
        """Send a request. `done` gets the response, a KafkaError or an OSError.

        `on_behalf_of`: the forwarded client request.
        """
        if self.unanswered >= UNANSWERED_MAX:
            busy = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{UNANSWERED_MAX} requests wait for the controller")
            self.scheduler.call_soon(done, busy)
            return
        self.unanswered += 1
        call = _Call(self, done)
        call.timer = self.scheduler.call_later(timeout_ms, call.timed_out)
        if on_behalf_of is None:
            self.scheduler.call_soon(self._deliver, call, request, version, None)
        else:
            self._turns.add(partial(self._take_turn, call, request, version, on_behalf_of))

    def _take_turn(self, *call: Any) -> bool:
        self._deliver(*call)
        return False

    def _deliver(self, call: _Call, request: Any, version: int | None, client: RequestContext | None) -> None:
        key = self._key(type(request))
        handler = self.handlers.get(key)
        spec = API[key]
        if handler is None:
            call.finish(KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"the controller does not serve {key.name}"))
            return
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        ctx = RequestContext(
            int(key),
            spec.max_version if version is None else version,
            self._correlation_id,
            self.client_id if client is None else client.client_id,
            self.host if client is None else client.client_host,
            self.listener,
            self.principal() if client is None else client.principal,
            call,
            self.clock.monotonic_ms(),
            call.answer,
        )
        try:
            response = handler(ctx, request)
        except KafkaError as e:
            response = error_response(request, ctx.api_version, e.code, e.message)
        except Exception:
            log.exception("request failed api=%s version=%d", key.name, ctx.api_version)
            response = error_response(request, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR, None)
        if response is not None:
            ctx.finish()
            call.finish(response)

    def _key(self, cls: type[Message]) -> ApiKey:
        found = self._keys.get(cls)
        if found is None:
            found = self._keys[cls] = ApiKey(cls.SCHEMA.api_key)
        return found
