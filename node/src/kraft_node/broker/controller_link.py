"""The node's link to the active controller: forwarding, registration, heartbeats, producer ids, ISR changes (KIP-590).

The quorum determines the active controller; `ActiveControllerLink` follows it. Without a known controller, a request
waits. If a controller has lost its leadership or its connection broke, its unanswered requests are sent again to the
next controller, as in Kafka. So a request may be carried out twice, which these APIs allow.

In a combined node with the active controller, the request goes to it in the same process (`LocalChannel`). To another
node, clients' requests travel in an Envelope with the client's principal and address, over a separate connection. A
connection handles requests in sequence, and a client's request may take long. CreateTopics waits for commits,
AddRaftVoter for a node that is down. A heartbeat behind it could come too late for the broker's lease.

All of `broker` uses it through the protocol `ControllerLink`; `server.node` creates it. It must not interpret requests
or answer them itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from kraft_node.base.request import TokenPrincipal
from kraft_protocol.errors import ErrorCode, KafkaError, error_name
from kraft_protocol.wire import codec
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.errors import DecodeError
from kraft_protocol.wire.frames import LENGTH_SIZE, decode_response, encode_request
from kraft_protocol.wire.messages import EnvelopeRequest
from kraft_protocol.wire.stored import DefaultPrincipalData

if TYPE_CHECKING:
    from kraft_node.base.env import Env, Timer
    from kraft_node.base.request import RequestContext

Answer: TypeAlias = "Any | KafkaError | OSError"
"""A response message, or the reason why it is missing."""


def problem_of(answer: Answer) -> str | None:
    """The reason why an answer is missing, or its error, as text; None for a success."""
    if isinstance(answer, OSError | KafkaError):
        return str(answer)
    return error_name(answer.error_code) if answer.error_code else None


CALLS_MAX: Final = 20_000
"""Maximum of pending requests: twice as many as the broker forwards, so that its own are never refused first."""

RETRY_MS: Final = 20
RETRY_MAX_MS: Final = 500
"""Pauses before retries double up to the maximum; news of another leader ends them at once."""


class ControllerLink(Protocol):
    """A link to the active controller."""

    def send(
        self,
        request: Any,
        version: int | None,
        done: Callable[[Answer], None],
        timeout_ms: int,
        *,
        on_behalf_of: RequestContext | None = None,
    ) -> None:
        """Send `request` in `version` (None: the newest that both sides have); `done` gets the answer or the failure.

        `on_behalf_of`: a forwarded client request; the controller must see that client's principal.
        """


class _Call:
    """A request that is not answered yet."""

    __slots__ = ("attempt", "done", "on_behalf_of", "request", "timer", "until_ms", "version", "waiting")

    def __init__(
        self,
        request: Any,
        version: int | None,
        done: Callable[[Answer], None],
        until_ms: int,
        on_behalf_of: RequestContext | None,
    ) -> None:
        self.attempt = 0
        """How often it was sent."""
        self.request = request
        self.version = version
        self.done: Callable[[Answer], None] | None = done
        self.until_ms = until_ms
        self.on_behalf_of = on_behalf_of
        self.timer: Timer | None = None
        self.waiting = False
        """Whether it must still be sent (again)."""


class ActiveControllerLink:
    """Sends to the quorum's leader, which `leader_changed` reports."""

    def __init__(
        self,
        env: Env,
        own_id: int,
        own: ControllerLink | None,
        others: Callable[[int], ControllerLink | None],
        *,
        forwards: Callable[[int], ControllerLink | None] | None = None,
        drop: Callable[[int], None] = lambda _node_id: None,
        explain: Callable[[], str] = lambda: "",
    ) -> None:
        """`own` leads to this node's controller, if it has one; `others(node_id)` to another node, `forwards(node_id)`
        for forwarded requests; `drop(node_id)` closes the connections to a node. `explain()` returns a text for
        messages: which nodes got a request for the leader."""
        self.leader_id = -1
        self._env = env
        self._own_id = own_id
        self._own = own
        self._others = others
        self._forwards = forwards or others
        self._drop = drop
        self._explain = explain
        self._asked = -1
        """The last node that requests were sent to."""
        self._calls: dict[_Call, None] = {}
        self._retry: Timer | None = None
        self._pause_ms = RETRY_MS
        self._closed = False

    # The leader

    def leader_changed(self, leader_id: int) -> None:
        """That node leads the quorum; -1: the leader is unknown.

        Requests that another node has not answered are sent again at once. Without a leader, answers may still arrive.
        """
        self.leader_id = leader_id
        if leader_id < 0:
            return
        if self._asked not in (-1, leader_id):
            for call in self._calls:
                call.waiting = True
            if self._asked != self._own_id:
                self._drop(self._asked)
        self._pause_ms = RETRY_MS
        self.retry_now()

    def retry_now(self) -> None:
        """Something has changed that may allow waiting requests to proceed."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        for call in [call for call in self._calls if call.waiting]:
            self._dispatch(call)

    def close(self) -> None:
        """The node stops: no more requests are sent, and callers are not notified."""
        self._closed = True
        calls, self._calls = self._calls, {}
        for call in calls:
            call.done = None
            if call.timer is not None:
                call.timer.cancel()
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    # Asking

    def send(
        self,
        request: Any,
        version: int | None,
        done: Callable[[Answer], None],
        timeout_ms: int,
        *,
        on_behalf_of: RequestContext | None = None,
    ) -> None:
        """See `ControllerLink`. Fails with TimeoutError if no active controller has answered in time."""
        if self._closed:
            return
        if len(self._calls) >= CALLS_MAX:
            busy = KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{CALLS_MAX} requests wait for the controller")
            self._env.scheduler.call_soon(done, busy)
            return
        call = _Call(request, version, done, self._env.clock.monotonic_ms() + timeout_ms, on_behalf_of)
        call.timer = self._env.scheduler.call_later(timeout_ms, self._timed_out, call)
        self._calls[call] = None
        self._dispatch(call)

    def _dispatch(self, call: _Call) -> None:
        """Send to the leader, or wait for one."""
        call.waiting = False
        leader = self.leader_id
        to: ControllerLink | None = None
        if leader >= 0:
            others = self._others if call.on_behalf_of is None else self._forwards
            to = self._own if leader == self._own_id else others(leader)
        if to is None:
            self._wait(call)
            return
        self._asked = leader
        left_ms = max(1, call.until_ms - self._env.clock.monotonic_ms())
        client = call.on_behalf_of
        call.attempt += 1
        if client is None:
            to.send(call.request, call.version, _Sent(self, call, sealed=False), left_ms)
        elif leader == self._own_id:
            to.send(call.request, call.version, _Sent(self, call, sealed=False), left_ms, on_behalf_of=client)
        else:
            sealed = envelope(client, call.request, _version_inside(call))
            to.send(sealed, None, _Sent(self, call, sealed=True), left_ms)

    def _wait(self, call: _Call) -> None:
        call.waiting = True
        if self._retry is None and self.leader_id >= 0:
            self._retry = self._env.scheduler.call_later(self._pause_ms, self.retry_now)
            self._pause_ms = min(RETRY_MAX_MS, 2 * self._pause_ms)

    def answered(self, call: _Call, answer: Answer, *, sealed: bool) -> None:
        """The controller that got the last request has answered, or failed."""
        if call.done is None:
            return
        if sealed and not isinstance(answer, KafkaError | OSError):
            answer = _opened(call, answer)
        if isinstance(answer, OSError) or is_not_controller(answer):
            self._wait(call)
            return
        self._pause_ms = RETRY_MS
        self._finish(call, answer)

    def _timed_out(self, call: _Call) -> None:
        waited = "the active controller did not answer in time"
        if self.leader_id < 0:
            waited = f"no active controller is known; asked {self._explain()}"
        self._finish(call, TimeoutError(waited))

    def _finish(self, call: _Call, answer: Answer) -> None:
        self._calls.pop(call, None)
        if call.timer is not None:
            call.timer.cancel()
        done, call.done = call.done, None
        if done is not None:
            done(answer)


class _Sent:
    """Takes the answer to one sending of a call; late answers, after it was sent again, are ignored."""

    __slots__ = ("_attempt", "_call", "_link", "_sealed")

    def __init__(self, link: ActiveControllerLink, call: _Call, *, sealed: bool) -> None:
        self._link = link
        self._call = call
        self._sealed = sealed
        self._attempt = call.attempt

    def __call__(self, answer: Answer) -> None:
        if self._attempt == self._call.attempt and not self._call.waiting:
            self._link.answered(self._call, answer, sealed=self._sealed)


def is_not_controller(answer: Any) -> bool:
    """Whether the answering node is not the active controller, by the top-level error or that of the first item."""
    if isinstance(answer, KafkaError):
        return answer.code == ErrorCode.NOT_CONTROLLER
    while True:
        code = getattr(answer, "error_code", None)
        if code is not None:
            return bool(code == ErrorCode.NOT_CONTROLLER)
        lists = (getattr(answer, name) for name in answer._fields)
        items = next((value for value in lists if isinstance(value, list) and value), None)
        if items is None or not hasattr(items[0], "_fields"):
            return False
        answer = items[0]


def _version_inside(call: _Call) -> int:
    """The version of the sealed request: a client's own request has one, for other requests we choose it."""
    return API[ApiKey(call.request.SCHEMA.api_key)].max_version if call.version is None else call.version


def envelope(client: RequestContext, request: Any, version: int) -> EnvelopeRequest:
    """The client's request, or a request on its behalf, with its principal (KIP-590)."""
    key = request.SCHEMA.api_key
    parts = encode_request(client.correlation_id, key, version, client.client_id, request)
    frame = b"".join(bytes(part) for part in parts)  # type: ignore[arg-type]  # administrators' requests hold no files
    kind, _, name = client.principal.partition(":")
    by_token = isinstance(client.principal, TokenPrincipal)
    principal = codec.encode(DefaultPrincipalData(type=kind, name=name, token_authenticated=by_token), 0)
    return EnvelopeRequest(
        request_data=frame[LENGTH_SIZE:],
        request_principal=b"\x00\x00" + principal,
        client_host_address=_address(client.client_host),
    )


def _address(host: str) -> bytes:
    """The 4 or 16 bytes of a numeric address."""
    import ipaddress  # noqa: PLC0415  (a few ms that a node without remote controllers does not need)

    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return bytes(4)


def _opened(call: _Call, answer: Any) -> Answer:
    """The response inside the envelope."""
    if answer.error_code == ErrorCode.NOT_CONTROLLER:
        return KafkaError(ErrorCode.NOT_CONTROLLER)
    if answer.error_code:
        # As in Kafka, the client gets no details: the problem is between broker and controller.
        known = answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION if known else ErrorCode.UNKNOWN_SERVER_ERROR)
    client = call.on_behalf_of
    assert client is not None, "law: only clients' requests are in envelopes"
    try:
        frame = bytes(answer.response_data or b"")
        return decode_response(frame, call.request.SCHEMA.api_key, _version_inside(call))[1]
    except DecodeError as e:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller's answer cannot be read: {e}")
