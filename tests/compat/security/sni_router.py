"""A router as of an Ingress or a Route: it reads the name in the TLS handshake, and passes the connection through."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress

HANDSHAKE, CLIENT_HELLO, SERVER_NAME = 22, 1, 0


class SniRouter:
    """Listens on a loopback port. Connections for other names, and without a name, are closed."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        """`ports`: the port behind each name."""
        self.ports = ports
        self.seen: list[str] = []
        """The names that clients asked for, in order."""
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._open.append(client)
                threading.Thread(target=self._route, args=(client,), daemon=True).start()

    def _route(self, client: socket.socket) -> None:
        with suppress(OSError):
            begin = b""
            while (need := 5 if len(begin) < 5 else 5 + int.from_bytes(begin[3:5], "big")) > len(begin):
                more = client.recv(need - len(begin))
                if not more:
                    return client.close()
                begin += more
            name = server_name(begin)
            self.seen.append(name)
            if name not in self.ports:
                return client.close()
            broker = socket.create_connection(("127.0.0.1", self.ports[name]))
            self._open.append(broker)
            broker.sendall(begin)
            threading.Thread(target=_pump, args=(client, broker), daemon=True).start()
            _pump(broker, client)
        return None


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def server_name(record: bytes) -> str:
    """The name in a ClientHello (RFC 6066), read from its first TLS record; empty without one."""
    assert record[0] == HANDSHAKE
    assert record[5] == CLIENT_HELLO
    at = 5 + 4 + 2 + 32
    at += 1 + record[at]  # the session
    at += 2 + int.from_bytes(record[at : at + 2], "big")  # cipher suites
    at += 1 + record[at]  # compression
    end = at + 2 + int.from_bytes(record[at : at + 2], "big")
    at += 2
    while at < end:
        kind, size = (int.from_bytes(record[at + i : at + i + 2], "big") for i in (0, 2))
        if kind == SERVER_NAME:
            length = int.from_bytes(record[at + 7 : at + 9], "big")
            return record[at + 9 : at + 9 + length].decode()
        at += 4 + size
    return ""
