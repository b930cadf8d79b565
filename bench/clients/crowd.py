"""Many connections in one thread, with several requests under way on each: frames out, responses to callbacks.

Messages are encoded and decoded at the versions given here, which both servers serve.
"""

from __future__ import annotations

import heapq
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kraft_protocol.wire import frames

READ_BYTES = 1 << 18
LENGTH = 4

Answered = Callable[[Any], None]
"""Gets the response; None if the connection ended before."""


class Connection:
    """A connection whose responses come in the order of its requests."""

    def __init__(self, crowd: Crowd, port: int) -> None:
        self._crowd = crowd
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._out = bytearray()
        self._got = bytearray()
        self._expected: deque[tuple[int, int, Answered]] = deque()
        self.is_open = True
        crowd.selector.register(self._socket, selectors.EVENT_READ, self)

    @property
    def under_way(self) -> int:
        """The number of requests without a response."""
        return len(self._expected)

    def send(self, api_key: int, version: int, message: Any, answered: Answered) -> None:
        """Send a request; `answered` is called from `Crowd.turn`."""
        if not self.is_open:
            self._crowd.later(0, lambda: answered(None))
            return
        for part in frames.encode_request(1, api_key, version, "bench", message):
            self._out += bytes(part)  # type: ignore[arg-type]
        self._expected.append((api_key, version, answered))
        self._crowd.unsent.append(self)

    def flush(self) -> None:
        """Write as much as the socket takes."""
        try:
            while self._out and self.is_open:
                del self._out[: self._socket.send(self._out)]
        except BlockingIOError:
            self._crowd.later(0.001, self.flush)
        except OSError:
            self.close()

    def receive(self) -> None:
        """Read available data, and deliver the complete responses."""
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self._got += data
        at = 0
        while len(self._got) - at >= LENGTH:
            (size,) = struct.unpack_from(">i", self._got, at)
            if len(self._got) - at - LENGTH < size:
                break
            frame = bytes(self._got[at + LENGTH : at + LENGTH + size])
            at += LENGTH + size
            api_key, version, answered = self._expected.popleft()
            answered(frames.decode_response(frame, api_key, version)[1])
        del self._got[:at]

    def close(self) -> None:
        """End the connection; requests under way get None."""
        if not self.is_open:
            return
        self.is_open = False
        with suppress(KeyError):
            self._crowd.selector.unregister(self._socket)
        self._socket.close()
        expected, self._expected = self._expected, deque()
        for _, _, answered in expected:
            answered(None)


class Crowd:
    """The connections and timers of one thread."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.unsent: list[Connection] = []
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0

    def connect(self, port: int) -> Connection:
        """Open a connection. Raises OSError if the server refuses."""
        return Connection(self, port)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call from `turn` after a pause."""
        self._number += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._number, call))

    def turn(self, longest_s: float = 0.05) -> None:
        """Send what is queued, wait for responses or timers, and deliver them."""
        unsent, self.unsent = self.unsent, []
        for connection in dict.fromkeys(unsent):
            connection.flush()
        pause = longest_s
        if self._timers:
            pause = max(0.0, min(pause, self._timers[0][0] - time.monotonic()))
        for key, _ in self.selector.select(0 if self.unsent else pause):
            key.data.receive()
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()

    def until(self, what: str, law: Callable[[], bool], limit_s: float = 300.0) -> None:
        """Run turns until the law holds. Raises AssertionError after the limit."""
        deadline = time.monotonic() + limit_s
        while not law():
            assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
            self.turn()

    def run(self, seconds: float) -> None:
        """Run turns for some time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.turn(min(0.05, max(0.0, end - time.monotonic())))

    def close(self) -> None:
        """Close all connections."""
        for key in list(self.selector.get_map().values()):
            key.data.close()
        self.selector.close()
