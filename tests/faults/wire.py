"""One route to a broker on which a test delays answers, delivers some of them, and breaks connections.

That is what a network may do: each side gets a prefix of the bytes, perhaps later, and then a reset.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from functools import partial

from kraft_protocol.wire.api import ApiKey

SIZE = 4
"""Bytes of a frame's length."""
HEAD = 8
"""API key, version and correlation id of a request."""


class Wire:
    """Forwards connections to the port `target`, frame by frame. `held` has the delayed answers with their APIs."""

    def __init__(self) -> None:
        self.target = 0
        self.held: list[tuple[ApiKey, bytes, socket.socket]] = []
        self._changed = threading.Condition()
        self._holding = False
        self._lost: set[ApiKey] = set()
        self.losses = 0
        """Requests that were lost."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def lose(self, *apis: ApiKey) -> None:
        """From now on, a connection breaks before a request of these APIs reaches the broker."""
        self._lost = set(apis)

    def hold(self) -> None:
        """Delay all answers from now on."""
        with self._changed:
            self._holding = True

    def wait_held(self, api: ApiKey, count: int, timeout_s: float) -> None:
        """Wait until this many answers of an API are held. Raises AssertionError."""
        with self._changed:
            came = self._changed.wait_for(lambda: self._count(api) >= count, timeout_s)
        assert came, f"{self._count(api)} answers of {api.name} are held, not {count}"

    def deliver_then_break(self, api: ApiKey, count: int) -> None:
        """Deliver the held answers up to the `count`th of an API, close the connections, and stop to hold."""
        with self._changed:
            left = count
            for key, frame, client in self.held:
                client.sendall(frame)
                left -= key is api
                if not left:
                    break
            assert left == 0, f"{left} answers of {api.name} are missing"
            self.held.clear()
            self._holding = False
        self._close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._close()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _count(self, api: ApiKey) -> int:
        return sum(1 for key, _, _ in self.held if key is api)

    def _close(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def _start(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True, name="wire")
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self.target))
                except OSError:
                    client.close()
                    continue
                self._sockets += [client, server]
                apis: dict[bytes, ApiKey] = {}
                self._start(partial(self._pump, client, server, partial(self._request, server, apis)))
                self._start(partial(self._pump, server, client, partial(self._answer, client, apis)))

    def _request(self, server: socket.socket, apis: dict[bytes, ApiKey], frame: bytes) -> None:
        api = ApiKey(int.from_bytes(frame[SIZE : SIZE + 2], "big"))
        if api in self._lost:
            self.losses += 1
            raise ConnectionResetError(f"{api.name} is lost")
        apis[frame[SIZE + 4 : SIZE + HEAD]] = api
        server.sendall(frame)

    def _answer(self, client: socket.socket, apis: dict[bytes, ApiKey], frame: bytes) -> None:
        api = apis.pop(frame[SIZE : SIZE + 4])
        with self._changed:
            if self._holding:
                self.held.append((api, frame, client))
                self._changed.notify_all()
                return
        client.sendall(frame)

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, pass_on: Callable[[bytes], None]) -> None:
        with contextlib.suppress(OSError), source.makefile("rb") as frames:
            while head := frames.read(SIZE):
                pass_on(head + frames.read(int.from_bytes(head, "big")))
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        source.close()


__all__ = ["Wire"]
