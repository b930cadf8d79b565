"""Stands between a client and a server on loopback: counts the traffic, and can be turned off."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

REQUEST = re.compile(rb"^(GET|HEAD|PUT|POST|DELETE) ")


class Proxy:
    """Listens on `port`; `counts` has requests by method, and bytes `up` (to the server) and `down`."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.counts: Counter[str] = Counter()
        self.refused = 0
        """Connections that came while it was away."""
        self._lock, self._open, self._away = threading.Lock(), set[socket.socket](), False
        threading.Thread(target=self._accept, daemon=True).start()

    def leave(self) -> None:
        """Cut all connections, and refuse new ones."""
        with self._lock:
            self._away = True
            for one in self._open:
                _cut(one)

    def come_back(self) -> None:
        """Serve again."""
        with self._lock:
            self._away = False

    def close(self) -> None:
        """Stop serving."""
        self.leave()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    if self._away:
                        self.refused += 1
                        client.close()
                        continue
                    try:
                        server = socket.create_connection(self._server)
                    except OSError:
                        client.close()
                        continue
                    self._open |= {client, server}
                threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        answers = threading.Thread(target=self._carry, args=(server, client, "down"), daemon=True)
        answers.start()
        self._carry(client, server, "up")
        answers.join()
        with self._lock:
            self._open -= {client, server}
        for one in (client, server):  # not before both threads have released their descriptors
            one.close()

    def _carry(self, source: socket.socket, to: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                found = REQUEST.match(data) if way == "up" else None
                if found:
                    self.counts[found[1].decode()] += 1
                self.counts[way] += len(data)
                to.sendall(data)
        for one in (source, to):
            _cut(one)


def _cut(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


@contextmanager
def proxy_of(options: dict[str, str]) -> Iterator[tuple[Proxy, dict[str, str]]]:
    """A proxy of an object store, and the options to reach the store through it."""
    host, port = options["AWS_ENDPOINT_URL"].removeprefix("http://").split(":")
    proxy = Proxy((host, int(port)))
    try:
        yield proxy, {**options, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
    finally:
        proxy.close()
