"""The proxy cuts the named connections in the named direction, and leaks nothing."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from tests.faults.proxy import CLIENT, Proxy, inode_by_netlink, inode_by_table, owner

ASK = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=30)
for line in sys.stdin:
    connection.sendall(line.encode())
    print(connection.recv(100).decode().strip(), flush=True)
"""


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back all bytes that it receives."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=_echo, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    # A thread in accept() keeps the socket open after close().
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def _echo(connection: socket.socket) -> None:
    with connection:
        while data := connection.recv(100):
            connection.sendall(data)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    members: dict[int, str] = {}
    made = Proxy(lambda: {**members, os.getpid(): CLIENT})
    made.members = members  # type: ignore[attr-defined]
    yield made
    made.close()


def _silent(connection: socket.socket) -> bool:
    connection.settimeout(0.3)
    try:
        return connection.recv(100) == b"never"
    except TimeoutError:
        return True
    finally:
        connection.settimeout(10)


def test_data_held_by_a_cut_arrives_after_healing(proxy: Proxy, echo: int) -> None:
    with socket.create_connection(("127.0.0.1", proxy.route("a", echo)), timeout=10) as connection:
        connection.sendall(b"one")
        assert connection.recv(100) == b"one"
        for pair in ((CLIENT, "a"), ("a", CLIENT)):
            proxy.cut([pair])
            connection.sendall(b"two")
            assert _silent(connection), pair
            proxy.heal([pair])
            assert connection.recv(100) == b"two"


def test_a_cut_between_members_does_not_affect_clients(proxy: Proxy, echo: int) -> None:
    port = proxy.route("a", echo)
    member = subprocess.Popen(
        [sys.executable, "-c", ASK, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert member.stdin is not None
    assert member.stdout is not None
    try:
        proxy.members[member.pid] = "b"  # type: ignore[attr-defined]
        member.stdin.write("one\n")
        assert member.stdout.readline() == "one\n"
        proxy.cut([("b", "a")])
        member.stdin.write("two\n")
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(b"client")
            assert connection.recv(100) == b"client"
        answers: list[str] = []
        reader = threading.Thread(target=lambda: answers.append(member.stdout.readline()))  # type: ignore[union-attr]
        reader.start()
        time.sleep(0.3)
        assert answers == []
        proxy.heal([("b", "a")])
        reader.join(10)
        assert answers == ["two\n"]
    finally:
        member.kill()
        member.wait()
        member.stdin.close()
        member.stdout.close()


def test_two_cuts_of_a_pair_need_two_healings(proxy: Proxy, echo: int) -> None:
    with socket.create_connection(("127.0.0.1", proxy.route("a", echo)), timeout=10) as connection:
        pair = [(CLIENT, "a")]
        proxy.cut(pair)
        proxy.cut(pair)
        connection.sendall(b"one")
        proxy.heal(pair)
        assert _silent(connection)
        proxy.heal(pair)
        assert connection.recv(100) == b"one"


def test_resets_close_connections(proxy: Proxy, echo: int) -> None:
    with socket.create_connection(("127.0.0.1", proxy.route("a", echo)), timeout=10) as connection:
        connection.sendall(b"one")
        assert connection.recv(100) == b"one"
        assert proxy.reset("a") == 1
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(100) == b""


def test_connections_made_while_the_proxy_closes_are_closed(
    echo: int, recwarn: pytest.WarningsRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", left.append)
    for _ in range(2):
        closing = Proxy(lambda: {os.getpid(): CLIENT})
        port = closing.route("a", echo)
        made: list[socket.socket] = []
        clients = threading.Thread(target=_connect_until_refused, args=(port, made))
        clients.start()
        while len(made) < 3:
            time.sleep(0.001)
        closing.close()
        clients.join()
        for connection in made:
            connection.close()
        del closing
        gc.collect()
    assert not left and not list(recwarn)


def _connect_until_refused(port: int, made: list[socket.socket]) -> None:
    with contextlib.suppress(OSError):
        while len(made) < 2000:
            made.append(socket.create_connection(("127.0.0.1", port), timeout=10))


def test_the_owner_of_a_connection_is_found_without_reading_all_connections(echo: int) -> None:
    """A suite of tests leaves twenty thousand connections: reading the table for each new one stopped the proxy."""
    with socket.create_connection(("127.0.0.1", echo)) as connection:
        port = connection.getsockname()[1]
        inode = os.fstat(connection.fileno()).st_ino
        assert inode_by_table(port, echo) == inode
        with contextlib.suppress(OSError):
            assert inode_by_netlink(port, echo) == inode
            assert inode_by_netlink(port, 1) is None
        assert owner(port, echo, {1: "init", os.getpid(): "me"}) == "me"
        assert owner(port, 1, {os.getpid(): "me"}) == CLIENT
