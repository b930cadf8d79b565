"""Making connections: whatever fails, the caller gets a connection or an error."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from kraft_node.runtime.background import ThreadBackground
from kraft_node.runtime.connecting import Connecting
from kraft_node.runtime.loop import Loop
from kraft_node.runtime.net import SocketNet


def _connect(loop: Loop, where: tuple[str, int]) -> list[Any]:
    got: list[Any] = []

    def ended(result: Any, *_: Any) -> None:
        got.append(result)
        loop.stop()

    background = ThreadBackground(loop)
    Connecting(loop, background, where, ended, ended).start()
    loop.call_later(10_000, loop.stop)
    loop.run()
    background.close(5)
    loop.close()
    return got


def test_an_address_without_a_socket_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without IPv6 a name with an IPv6 address ended in no call at all."""
    real = socket.socket

    def limited(family: int = -1, *rest: Any, **named: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "address family not supported")
        return real(family, *rest, **named)

    with real(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        found = [(socket.AF_INET6, 1, 6, "", ("::1", port, 0, 0)), (socket.AF_INET, 1, 6, "", ("127.0.0.1", port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        loop = Loop()
        monkeypatch.setattr("kraft_node.runtime.connecting.socket.socket", limited)
        (made,) = _connect(loop, ("broker.example", port))
        assert made.getpeername() == ("127.0.0.1", port)
        made.close()


def test_a_shortage_of_descriptors_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()

    def none(*_: Any, **__: Any) -> socket.socket:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr("kraft_node.runtime.connecting.socket.socket", none)
    (error,) = _connect(loop, ("127.0.0.1", 9))
    assert error.errno == errno.EMFILE


def test_a_connection_that_is_closed_at_once_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()
    background = ThreadBackground(loop)
    got: list[Any] = []

    class Closed(socket.socket):
        def getpeername(self) -> Any:
            raise OSError(errno.ENOTCONN, "not connected")

    def failed(error: OSError) -> None:
        got.append(error.errno)
        loop.stop()

    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr("kraft_node.runtime.connecting.socket.socket", Closed)
        net = SocketNet(loop, background)
        net.connect("127.0.0.1", server.getsockname()[1], got.append, failed)
        loop.call_later(10_000, loop.stop)
        loop.run()
    assert got == [errno.ENOTCONN]
    background.close(5)
    loop.close()
