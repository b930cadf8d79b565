"""A client's connection on a simulated host: sends requests of the wire protocol and delivers responses.

It does not know retries or metadata: `workloads` implement client behaviour.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraft_protocol.wire import frames

if TYPE_CHECKING:
    from kraft_node.base.net import Net, Transport
    from kraft_protocol.wire.classes import Message

Answered = Callable[["Message | None"], None]
BUFFER_BYTES: Final = 64 * 1024


class SimClient:
    """At most one connection, opened on demand. Responses come in order; None if the connection broke."""

    def __init__(self, net: Net, host: str, port: int, client_id: str = "sim") -> None:
        self._net = net
        self._host = host
        self._port = port
        self._client_id = client_id
        self._link: _Link | None = None
        self._correlation = 0

    def ask(self, api_key: int, version: int, request: Message, done: Answered | None) -> None:
        """Send a request; calls `done(response)`, or `done(None)` if no response can come. Without `done`, none is
        expected."""
        if self._link is None or self._link.ended:
            self._link = _Link()
            self._net.connect(self._host, self._port, self._link.connected, self._link.failed)
        self._correlation += 1
        frame = b"".join(
            map(bytes, frames.encode_request(self._correlation, api_key, version, self._client_id, request))  # type: ignore[arg-type]
        )
        self._link.send(frame, None if done is None else (self._correlation, api_key, version, done))

    def close(self) -> None:
        """Give up the connection: requests under way get None, and later responses are ignored."""
        if self._link is not None:
            self._link.give_up()


class _Link:
    """One connection, from the attempt to open it to its end (`base.net.Receiver`)."""

    def __init__(self) -> None:
        self.ended = False
        self._transport: Transport | None = None
        self._unsent: list[bytes] = []
        self._asked: deque[tuple[int, int, int, Answered]] = deque()
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._got = bytearray()

    def send(self, frame: bytes, asked: tuple[int, int, int, Answered] | None) -> None:
        if asked is not None:
            self._asked.append(asked)
        if self._transport is not None:
            self._transport.write([frame])
        else:
            self._unsent.append(frame)

    def connected(self, transport: Transport) -> _Link:
        self._transport = transport
        if self.ended:
            transport.abort()
        else:
            for frame in self._unsent:
                transport.write([frame])
        return self

    def failed(self, _error: OSError) -> None:
        self.give_up()

    def give_up(self) -> None:
        """Close it from this side."""
        if self.ended:
            return
        self.ended = True
        if self._transport is not None:
            self._transport.abort()
        asked = list(self._asked)
        self._asked.clear()
        for *_, done in asked:
            done(None)

    # -- base.net.Receiver

    def get_buffer(self, size_hint: int) -> memoryview:  # noqa: ARG002
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self._got += self._buffer[:count]
        while len(self._got) >= frames.LENGTH_SIZE and not self.ended:
            size = int.from_bytes(self._got[: frames.LENGTH_SIZE], "big")
            end = frames.LENGTH_SIZE + size
            if len(self._got) < end:
                return
            frame = bytes(self._got[frames.LENGTH_SIZE : end])
            del self._got[:end]
            expected, api_key, version, done = self._asked.popleft()
            found = frames.response_correlation_id(frame)
            assert found == expected, f"answers in order: answer {found} came to request {expected}"
            done(frames.decode_response(frame, api_key, version)[1])

    def drained(self) -> None:
        """Does nothing: no sender waits for buffer space here."""

    def connection_lost(self, error: OSError | None) -> None:  # noqa: ARG002
        self._transport = None
        self.give_up()
