"""Sockets: bytes arrive in order, files go by sendfile, back-pressure is reported, ends are reported once."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_node.runtime.env import RealEnv
from kraft_protocol.buffers import FileSlice

OPEN: list[Any] = []
"""The transports of the running test."""


class Peer:
    """A receiver that collects."""

    def __init__(self, transport: Any, on_data: Callable[[Peer], None] | None = None) -> None:
        OPEN.append(transport)
        self.transport = transport
        self.data = bytearray()
        self.buffer = memoryview(bytearray(1 << 16))
        self.lost: list[OSError | None] = []
        self.drains = 0
        self.on_data = on_data

    def get_buffer(self, size_hint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, count: int) -> None:
        self.data += self.buffer[:count]
        if self.on_data is not None:
            self.on_data(self)

    def drained(self) -> None:
        self.drains += 1

    def connection_lost(self, error: OSError | None) -> None:
        self.lost.append(error)


@pytest.fixture
def real() -> Iterator[RealEnv]:
    made = RealEnv()
    made.loop.call_later(20_000, made.loop.stop)
    OPEN.clear()
    yield made
    for transport in OPEN:
        transport.abort()
    made.close()


def pair(real: RealEnv, on_client: Callable[[Peer], None] | None = None) -> tuple[list[Peer], list[Peer], Any]:
    servers: list[Peer] = []
    clients: list[Peer] = []

    def accept(transport: Any) -> Peer:
        servers.append(Peer(transport))
        return servers[-1]

    def connected(transport: Any) -> Peer:
        clients.append(Peer(transport, on_client))
        real.loop.call_soon(real.loop.stop)
        return clients[-1]

    listener = real.env.net.listen("127.0.0.1", 0, accept)
    real.env.net.connect("127.0.0.1", listener.port, connected, lambda e: pytest.fail(str(e)))
    real.loop.run()
    while not servers:
        real.loop.call_later(5, real.loop.stop)
        real.loop.run()
    return servers, clients, listener


def test_parts_of_every_kind_arrive_in_order(real: RealEnv, tmp_path: Path) -> None:
    rng = random.Random(5)
    content = rng.randbytes(3_000_000)
    (tmp_path / "f").write_bytes(content)
    file = real.env.disk.open(str(tmp_path / "f"))
    expected = bytearray()
    total = 0

    def check(peer: Peer) -> None:
        if len(peer.data) >= total:
            real.loop.stop()

    servers, clients, listener = pair(real, check)
    for _ in range(60):
        parts: list[Any] = []
        for _ in range(rng.randrange(1, 800 if rng.random() < 0.1 else 5)):
            if rng.random() < 0.3:
                position = rng.randrange(len(content))
                length = min(rng.choice((1, 5_000, 1_000_000)), len(content) - position)
                parts.append(FileSlice(file, position, length))
                expected += content[position : position + length]
            else:
                piece = rng.randbytes(rng.choice((0, 1, 100, 70_000) if len(parts) < 10 else (0, 30)))
                parts.append(rng.choice((bytes, bytearray, memoryview))(piece))
                expected += piece
        servers[0].transport.write(parts)
    total = len(expected)
    assert 0 < servers[0].transport.held_bytes < servers[0].transport.unsent_bytes
    real.loop.run()
    assert clients[0].data == expected
    assert servers[0].transport.unsent_bytes == servers[0].transport.held_bytes == 0
    assert servers[0].drains >= 1
    servers[0].transport.close()
    listener.close()


def test_close_sends_written_data_and_ends_are_reported_once(real: RealEnv) -> None:
    servers, clients, listener = pair(real)
    server, client = servers[0], clients[0]
    server.transport.write([bytes(5_000_000)])
    server.transport.close()
    server.transport.close()
    server.transport.write([b"too late"])
    real.loop.call_later(300, real.loop.stop)
    real.loop.run()
    assert len(client.data) == 5_000_000
    assert len(server.lost) == len(client.lost) == 1
    client.transport.abort()
    listener.close()


def test_a_paused_reader_reads_nothing_but_notices_a_reset(real: RealEnv) -> None:
    servers, clients, listener = pair(real)
    servers[0].transport.pause_reading()
    clients[0].transport.write([b"hello"])
    real.loop.call_later(50, real.loop.stop)
    real.loop.run()
    assert servers[0].data == b""
    servers[0].transport.resume_reading()
    real.loop.call_later(50, real.loop.stop)
    real.loop.run()
    assert servers[0].data == b"hello"
    clients[0].transport.close()
    real.loop.call_later(50, real.loop.stop)
    real.loop.run()
    assert servers[0].lost == [None]
    listener.close()


def test_a_pause_changes_what_the_loop_watches_only_when_bytes_arrive(
    real: RealEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, clients, listener = pair(real)
    server = servers[0].transport
    changes: list[int] = []
    rewatch = real.loop.rewatch
    monkeypatch.setattr(real.loop, "rewatch", lambda fd, mask: (changes.append(mask), rewatch(fd, mask)))
    for _ in range(10):  # a client that waits for each answer
        server.pause_reading()
        server.resume_reading()
    assert changes == []
    server.pause_reading()
    clients[0].transport.write([b"early"])
    real.loop.call_later(50, real.loop.stop)
    real.loop.run()
    assert changes == [0]
    assert servers[0].data == b""
    server.resume_reading()
    real.loop.call_later(50, real.loop.stop)
    real.loop.run()
    assert servers[0].data == b"early"
    listener.close()


def test_a_reset_is_noticed_before_and_after_bytes_arrive_in_a_pause(real: RealEnv) -> None:
    for early in (b"", b"early"):
        servers, clients, listener = pair(real)
        servers[0].transport.pause_reading()
        if early:
            clients[0].transport.write([early])
            real.loop.call_later(50, real.loop.stop)
            real.loop.run()
        sock = clients[0].transport._sock
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        clients[0].transport.abort()
        real.loop.call_later(50, real.loop.stop)
        real.loop.run()
        assert len(servers[0].lost) == 1
        assert isinstance(servers[0].lost[0], ConnectionResetError)
        listener.close()


def test_a_file_that_shrank_ends_the_connection(real: RealEnv, tmp_path: Path, caplog: Any) -> None:
    servers, _, listener = pair(real)
    file = real.env.disk.open(str(tmp_path / "f"), create=True)
    file.pwrite(0, [b"x" * 1000])
    servers[0].transport.write([b"head", FileSlice(file, 0, 2000)])
    real.loop.call_later(50, real.loop.stop)
    real.loop.run()
    assert "1000 bytes early" in str(servers[0].lost[0])
    listener.close()


def test_a_failing_receiver_costs_its_own_connection_only(real: RealEnv, caplog: Any) -> None:
    servers, clients, listener = pair(real)

    def fail(_peer: Peer) -> None:
        raise RuntimeError("receiver trouble")

    servers[0].on_data = fail
    clients[0].transport.write([b"x"])
    real.loop.call_later(50, real.loop.stop)
    real.loop.run()
    assert servers[0].lost == [None]
    assert clients[0].lost
    assert "receiver trouble" in caplog.text
    other = socket.create_connection(("127.0.0.1", listener.port))
    real.loop.call_later(50, real.loop.stop)
    real.loop.run()
    assert len(servers) == 2
    other.close()
    listener.close()


def test_refused_connections_and_unknown_hosts_are_reported(real: RealEnv) -> None:
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    errors: list[OSError] = []

    def failed(error: OSError) -> None:
        errors.append(error)
        if len(errors) == 2:
            real.loop.stop()

    real.env.net.connect("127.0.0.1", closed.getsockname()[1], lambda t: pytest.fail("connected"), failed)
    real.env.net.connect("no-such-host.invalid", 1, lambda t: pytest.fail("connected"), failed)
    real.loop.run()
    assert len(errors) == 2
    closed.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_SYNCNT"), reason="the kernel's connection timeout cannot be set here")
def test_an_unresponsive_address_times_out_in_seconds(real: RealEnv) -> None:
    """For example the address of a deleted pod. The kernel would try for two minutes, and a name that has another
    address by then would not be looked up earlier. The silent address here is a listener with a full queue.
    """
    errors: list[OSError] = []

    def failed(error: OSError) -> None:
        errors.append(error)
        real.loop.stop()

    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as filler:
        filler.connect(full.getsockname())
        real.env.net.connect("127.0.0.1", full.getsockname()[1], lambda t: pytest.fail("connected"), failed)
        real.loop.run()
    assert [error.errno for error in errors] == [errno.ETIMEDOUT]


@pytest.mark.parametrize("answers", [[["full", "open"]], [["full"], ["full"], ["open"]], [["full"], [], ["open"]]])
def test_an_unresponsive_address_does_not_delay_the_next(
    real: RealEnv, answers: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next address is tried in parallel. After the last one, the name may have a new address: of a replaced pod. A
    wait for the former pod delayed acknowledgements.
    """
    listener = real.env.net.listen("127.0.0.1", 0, Peer)
    peers: list[object] = []

    def connected(transport: Any) -> Peer:
        peers.append(transport.peer)
        real.loop.stop()
        return Peer(transport)

    def failed(error: OSError) -> None:
        peers.append(error)
        real.loop.stop()

    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as filler:
        filler.connect(full.getsockname())
        ports = {"full": full.getsockname()[1], "open": listener.port}

        def getaddrinfo(*_: object, **__: object) -> list[Any]:
            found = answers.pop(0)
            if not found:
                raise socket.gaierror(socket.EAI_AGAIN, "the name server is away")
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", ports[one])) for one in found]

        with monkeypatch.context() as patched:
            patched.setattr(socket, "getaddrinfo", getaddrinfo)
            real.env.net.connect("broker-1", 9092, connected, failed)
            real.loop.run()
    listener.close()
    assert (peers, answers) == ([("127.0.0.1", listener.port)], [])


def test_a_port_in_use_is_named(real: RealEnv) -> None:
    listener = real.env.net.listen("127.0.0.1", 0, Peer)
    with pytest.raises(OSError, match=f"127.0.0.1:{listener.port}"):
        real.env.net.listen("127.0.0.1", listener.port, Peer)
    listener.close()


def test_a_name_with_addresses_of_both_families_is_listened_on_by_its_ipv4_address(
    real: RealEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Java. On a machine where localhost is ::1, too, a node with this listener refused clients of 127.0.0.1."""

    def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 0, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    listener = real.env.net.listen("localhost", 0, Peer)
    monkeypatch.undo()
    with socket.create_connection(("127.0.0.1", listener.port)):
        pass
    listener.close()


def test_every_address_is_listened_on_without_a_host(real: RealEnv) -> None:
    seen: list[str] = []

    def accept(transport: Any) -> Peer:
        seen.append(transport.peer[0])
        return Peer(transport)

    listener = real.env.net.listen("", 0, accept)
    with socket.create_connection(("127.0.0.1", listener.port)):
        real.loop.call_later(50, real.loop.stop)
        real.loop.run()
    assert seen == ["127.0.0.1"]
    listener.close()
