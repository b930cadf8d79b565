"""The authentication of a connection: its principal, the APIs that it may use now, and its largest frame.

A connection has one of these states:

- *Admitted*: it has a principal, and all APIs of the listener. Connections of PLAINTEXT listeners begin so. Connections
  of SSL listeners are admitted after the handshake, before their first byte arrives.
- *Restricted*: only ApiVersions, SaslHandshake and SaslAuthenticate are served, and only small frames are read
  (`sasl.server.max.receive.size`). Every other request closes the connection. Connections of SASL listeners begin so;
  a session that expires without re-authentication returns to this state.
- *Exchanging tokens*: frames are SASL tokens without Kafka's headers. This follows a SaslHandshake of version 0.

The states cost an admitted connection nothing: the table of APIs and the limit are attributes of the connection, and
no request looks at the state.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Final

from kraft_node.base.request import ANONYMOUS, RequestContext
from kraft_node.server.connections.answering import SIZE, Answering
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.codec import decode_few
from kraft_protocol.wire.error_response import error_response
from kraft_protocol.wire.errors import DecodeError, TooManyItems
from kraft_protocol.wire.frames import decode_request_header

if TYPE_CHECKING:
    from kraft_node.base.net import Transport
    from kraft_node.server.connections.context import ListenerContext, ServedApi
    from kraft_node.server.connections.security import Authentication
    from kraft_node.server.monitoring.metrics import ApiMetrics

TOKEN_BYTES_MAX: Final = 64 << 10
"""The largest token without Kafka's header; tickets of Kerberos are the largest."""


class Authenticating(Answering):
    """The identity of a connection."""

    __slots__ = (
        "_exchanges_tokens",
        "_holds_tokens",
        "apis",
        "authentication",
        "principal",
        "reply",
        "request_bytes_max",
    )

    def __init__(self, server: ListenerContext, transport: Transport) -> None:
        super().__init__(server, transport)
        self.principal = ANONYMOUS
        self.reply = self._answer
        self.apis: dict[int, ServedApi]
        """The APIs that the connection may use now."""
        self.request_bytes_max: int
        """Larger requests close the connection."""
        self._exchanges_tokens = self._holds_tokens = False
        self.authentication: Authentication | None = None
        """None on listeners without SASL."""
        make = server.security.authentication
        if make is None:
            self.admit(ANONYMOUS)
        else:
            self.restrict()
            self.authentication = make(self)

    def admit(self, principal: str) -> None:
        """Serve all APIs from now on, as `principal`."""
        self.principal = principal
        self.apis = self.server.apis
        self.request_bytes_max = self.server.request_bytes_max
        self._exchanges_tokens = False

    def restrict(self) -> None:
        """Serve only `EARLY_APIS`, in small frames, until `admit`."""
        self.apis = self.server.early_apis
        self.request_bytes_max = self.server.security.early_bytes_max

    def expect_tokens(self) -> None:
        """Pass the next frames to `Authentication.token`, until `admit`. A handler calls it before it answers."""
        self._exchanges_tokens = True

    def hold_tokens(self) -> None:
        """Pass no further token on, and read nothing, until `resume_tokens`: a lane judges the last one."""
        self._holds_tokens = True

    def resume_tokens(self) -> None:
        """Continue with received tokens, or with requests after `admit`."""
        self._holds_tokens = False
        if self._resting and not self.closed:
            self._resting = False
            self.transport.resume_reading()
            self._work_again()

    def send_token(self, token: bytes) -> None:
        """Send a frame without Kafka's header."""
        if not self.closed:
            self._out += (SIZE.pack(len(token)), token)
            self._flush()

    def _work_tokens(self, view: memoryview, end: int) -> None:
        """Pass the tokens in view[:end] on; keep the rest. Bytes after the last token are requests."""
        position = 0
        while self._exchanges_tokens and not self._holds_tokens and not self.closed and end - position >= SIZE.size:
            (size,) = SIZE.unpack_from(view, position)
            if not 0 <= size <= TOKEN_BYTES_MAX:
                self._log_refusal(f"SASL token of {size} bytes is outside of 0 to {TOKEN_BYTES_MAX}")
                self.close()
                return
            token_end = position + SIZE.size + size
            if token_end > end:
                break
            assert self.authentication is not None, "law: only SASL exchanges tokens"
            self.authentication.token(bytes(view[position + SIZE.size : token_end]))
            position = token_end
        if self._holds_tokens and not self._resting and not self.closed:
            self._resting = True
            self.transport.pause_reading()
        if self.closed or position == end:
            return
        left = bytes(view[position:end])
        if self._exchanges_tokens:
            self._rest = left
        else:
            self._work(memoryview(left), len(left))

    def _refuse_early(self, frame: memoryview, key: int, version: int, now_ms: int) -> ApiMetrics | None:
        """Handle a request that a restricted connection must not send; None if the connection must be closed."""
        assert self.authentication is not None, "law: only listeners with SASL restrict connections"
        api = self.server.apis.get(key)
        if api is None or not api.speaks(version):
            self._log_refusal(f"api key {key} version {version} is not served on this listener")
            return None
        try:
            header = decode_request_header(frame)
            request, _ = decode_few(api.request, bytes(frame), header.body_offset, version)
        except (DecodeError, TooManyItems):
            self._log_refusal(f"{api.name} before authentication")
            return None
        ctx = RequestContext(
            key, version, header.correlation_id, header.client_id, self.peer_host, self.server.name, ANONYMOUS, self,
            now_ms, self.reply,
        )  # fmt: skip
        text = f"Unexpected Kafka request of type {api.metrics.name} during SASL authentication."
        self.authentication.unexpected(ctx, error_response(request, version, ErrorCode.ILLEGAL_SASL_STATE, text))
        if self.closed:
            self._log_refusal(f"{api.name} before authentication")
            return None
        self._wait(ctx)
        return api.metrics

    @abstractmethod
    def close(self) -> None:
        """Send the remaining responses, then close."""

    def _log_refusal(self, reason: str) -> None:
        self.server.refused(self.peer_host, reason)
