"""A client on a simulated host: sends requests of the wire protocol, gets responses or hears that the connection broke.

It knows nothing of retries or metadata: scenarios say what a client does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraft_node.wire import frames

if TYPE_CHECKING:
    from kraft_node.base.net import Net, Transport
    from kraft_node.wire.classes import Message

Answered = Callable[["Message | None"], None]
BUFFER_BYTES: Final = 64 * 1024


class SimClient:
    """One connection at a time, made on demand; requests are answered in order, with None when the connection broke."""

    def __init__(self, net: Net, host: str, port: int) -> None:
        self._net = net
        self._host = host
        self._port = port
        self._transport: Transport | None = None
        self._connecting = False
        self._waiting: deque[tuple[int, int, Message, Answered]] = deque()
        self._asked: deque[tuple[int, int, int, Answered]] = deque()
        self._correlation = 0
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._got = bytearray()

    def ask(self, api_key: int, version: int, request: Message, done: Answered) -> None:
        """Send; `done(response)`, or `done(None)` when that can no longer come."""
        self._waiting.append((api_key, version, request, done))
        if self._transport is not None:
            self._send()
        elif not self._connecting:
            self._connecting = True
            self._net.connect(self._host, self._port, self._connected, self._failed)

    def _connected(self, transport: Transport) -> SimClient:
        self._transport = transport
        self._connecting = False
        self._send()
        return self

    def _failed(self, _error: OSError) -> None:
        self._connecting = False
        self._give_up()

    def _send(self) -> None:
        while self._waiting and self._transport is not None:
            api_key, version, request, done = self._waiting.popleft()
            self._correlation += 1
            self._asked.append((self._correlation, api_key, version, done))
            self._transport.write(frames.encode_request(self._correlation, api_key, version, "sim", request))

    def _give_up(self) -> None:
        lost = [done for *_, done in self._asked] + [done for *_, done in self._waiting]
        self._asked.clear()
        self._waiting.clear()
        self._got.clear()
        for done in lost:
            done(None)

    # -- base.net.Receiver

    def get_buffer(self, size_hint: int) -> memoryview:  # noqa: ARG002
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self._got += self._buffer[:count]
        while len(self._got) >= frames.LENGTH_SIZE:
            size = int.from_bytes(self._got[: frames.LENGTH_SIZE], "big")
            end = frames.LENGTH_SIZE + size
            if len(self._got) < end:
                return
            frame = bytes(self._got[frames.LENGTH_SIZE : end])
            del self._got[:end]
            expected, api_key, version, done = self._asked.popleft()
            correlation_id, response = frames.decode_response(frame, api_key, version)
            assert correlation_id == expected, f"answer {correlation_id} to request {expected}: out of order"
            done(response)

    def drained(self) -> None:
        """Nothing waits for room here."""

    def connection_lost(self, error: OSError | None) -> None:  # noqa: ARG002
        self._transport = None
        self._give_up()
