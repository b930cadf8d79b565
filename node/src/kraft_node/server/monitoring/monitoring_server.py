"""The HTTP server of the node: `/metrics` for Prometheus, `/livez` and `/readyz` for supervisors.

It implements the part of HTTP/1.1 that probes and scrapers need: GET and HEAD, one request after the other,
`Connection: close`. `/livez` is 200 while the loop runs. `/readyz` is 200 once clients are served (else 503 with the
reason). `/status` is a JSON object with the process's configuration revision and its metadata counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraft_node.server.monitoring.metrics import MetricsRegistry

if TYPE_CHECKING:
    from kraft_node.base.env import Env
    from kraft_node.base.net import Listener, Receiver, Transport

log = logging.getLogger("kraft_node.server.monitoring.monitoring_server")

REQUEST_MAX: Final = 8 * 1024
"""Maximum size of a request with all headers: a scraper sends a few hundred bytes."""

CONNECTIONS_MAX: Final = 64
"""A probe and a scraper or two use one connection each; a new connection replaces the connection that was silent
longest."""

UNSENT_MAX: Final = 1024 * 1024
"""Unsent answer bytes that may be pending when the next request arrives."""

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}


class HttpServer:
    """Serves `registry`. `not_ready` returns why clients are not served, None if they are; `status` returns JSON."""

    def __init__(
        self, env: Env, registry: MetricsRegistry, not_ready: Callable[[], str | None], status: Callable[[], str] = str
    ) -> None:
        self._env = env
        self._registry = registry
        self._not_ready = not_ready
        self._status = status
        self._socket: Listener | None = None
        self.open: dict[_Session, None] = {}
        """The connection that was silent longest comes first."""

    def listen(self, host: str, port: int) -> int:
        """Bind. Returns the port, also if 0 was requested. Raises OSError."""
        self._socket = self._env.net.listen(host, port, self.accept)
        return self._socket.port

    def accept(self, transport: Transport) -> Receiver:
        """A new connection."""
        session = _Session(self, transport)
        if len(self.open) >= CONNECTIONS_MAX:
            silent = next(iter(self.open))
            del self.open[silent]
            silent.transport.abort()
        self.open[session] = None
        return session

    def note_request(self, session: _Session) -> None:
        """Note that the session has sent a request."""
        if session in self.open:
            del self.open[session]
            self.open[session] = None

    def close(self) -> None:
        """Stop listening, and close open connections."""
        if self._socket is not None:
            self._socket.close()
        for session in list(self.open):
            session.transport.close()

    def answer(self, method: str, target: str) -> tuple[int, str, str]:
        """Status, content type and text."""
        if method not in {"GET", "HEAD"}:
            return 405, TEXT, "only GET and HEAD\n"
        path = target.partition("?")[0]
        if path == "/metrics":
            return 200, MetricsRegistry.CONTENT_TYPE, self._registry.text()
        if path == "/livez":
            return 200, TEXT, "ok\n"
        if path == "/readyz":
            reason = self._not_ready()
            return (200, TEXT, "ok\n") if reason is None else (503, TEXT, reason + "\n")
        if path == "/status":
            return 200, JSON, self._status()
        return 404, TEXT, "the paths are /metrics, /livez, /readyz and /status\n"


class _Session:
    """One connection (`base.net.Receiver`)."""

    __slots__ = ("_buffer", "_have", "server", "transport")

    def __init__(self, server: HttpServer, transport: Transport) -> None:
        self.server = server
        self.transport = transport
        self._buffer = bytearray(REQUEST_MAX)
        self._have = 0

    def get_buffer(self, size_hint: int) -> memoryview:  # noqa: ARG002
        return memoryview(self._buffer)[self._have :]

    def buffer_updated(self, count: int) -> None:
        self._have += count
        while True:
            end = self._buffer.find(b"\r\n\r\n", 0, self._have)
            if end < 0:
                if self._have == REQUEST_MAX:
                    self._send(400, TEXT, "request too long\n", keep=False, head=False)
                return
            lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
            left = self._have - end - 4
            self._buffer[:left] = self._buffer[end + 4 : self._have]
            self._have = left
            if not self._serve(lines):
                return

    def _serve(self, lines: list[str]) -> bool:
        """Answer one request. Returns whether the next request may follow."""
        if self.transport.unsent_bytes > UNSENT_MAX:
            self.transport.abort()
            return False
        self.server.note_request(self)
        words = lines[0].split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._send(400, TEXT, "not HTTP/1\n", keep=False, head=False)
            return False
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])
        }
        keep = words[2] == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        keep = keep and headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers
        try:
            status, kind, text = self.server.answer(words[0], words[1])
        except Exception as e:
            log.exception("HTTP request failed path=%s", words[1])
            status, kind, text = 503, TEXT, f"{type(e).__name__}\n"
        self._send(status, kind, text, keep=keep, head=words[0] == "HEAD")
        return keep

    def _send(self, status: int, kind: str, text: str, *, keep: bool, head: bool) -> None:
        body = text.encode()
        lines = (
            f"HTTP/1.1 {status} {_REASONS[status]}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            f"Connection: {'keep-alive' if keep else 'close'}",
        )
        answer = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        self.transport.write([answer] if head else [answer, body])
        if not keep:
            self.transport.close()

    def drained(self) -> None:
        """Nothing waits for room."""

    def connection_lost(self, error: OSError | None) -> None:  # noqa: ARG002
        self.server.open.pop(self, None)
