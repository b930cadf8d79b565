"""The subset of gRPC that the bench uses for etcd: frames in pieces, answers to the server's requests, refusals."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import closing

import pytest

from bench.clients import etcd
from bench.clients.many import answers_a_second

DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8


@pytest.fixture
def pair() -> Iterator[tuple[etcd.EtcdConnection, socket.socket]]:
    ours, server = socket.socketpair()
    with closing(ours), closing(server):
        for end in (ours, server):
            end.settimeout(60)
        connection = etcd.EtcdConnection(ours)
        assert server.recv(65536).startswith(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04")
        yield connection, server


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + body


def test_an_answer_in_pieces_is_joined_and_pings_are_answered(
    pair: tuple[etcd.EtcdConnection, socket.socket],
) -> None:
    connection, server = pair
    connection.send()
    sent = server.recv(65536)
    assert sent[3:9] == struct.pack(">BBI", HEADERS, 4, 1)
    assert b"/etcdserverpb.KV/Put" in sent
    answer = frame(SETTINGS, 0, 0) + frame(PING, 0, 0, b"12345678") + frame(HEADERS, 4, 1, b"h")
    answer += frame(DATA, 0, 1, b"\0\0\0\0\x02\x08\x01") + frame(HEADERS, 5, 1, b"t")
    for piece in (answer[:20], answer[20:-4]):
        server.sendall(piece)
        assert not connection.receive()
    assert server.recv(65536) == frame(SETTINGS, 1, 0) + frame(PING, 1, 0, b"12345678")
    server.sendall(answer[-4:])
    assert connection.receive()


def test_the_window_of_a_connection_is_opened_again(pair: tuple[etcd.EtcdConnection, socket.socket]) -> None:
    connection, server = pair
    body = bytes(16_384)
    sent = b""
    for call in range(4):  # 65,536 bytes: one more than a server may send without an update
        connection.send()
        sent += server.recv(65536)
        server.sendall(frame(DATA, 0, 1 + 2 * call, body) + frame(HEADERS, 5, 1 + 2 * call, b"t"))
        while not connection.receive():
            pass
    connection.send()
    sent += server.recv(65536)
    assert sent.count(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 32_768))) == 2


def test_a_refusal_is_an_error(pair: tuple[etcd.EtcdConnection, socket.socket]) -> None:
    connection, server = pair
    connection.send()
    server.sendall(frame(HEADERS, 5, 1, b"only trailers"))
    with pytest.raises(AssertionError, match="refused"):
        connection.receive()


def test_fields_of_a_message() -> None:
    assert etcd._numbers(b"\x0a\x02\x10\x07\x20\x96\x01") == {1: b"\x10\x07", 4: 150}


def test_each_connection_sends_again_after_its_answer() -> None:
    sent = []

    class Echo:
        def __init__(self) -> None:
            self.near, self.far = socket.socketpair()

        def fileno(self) -> int:
            return self.near.fileno()

        def send(self) -> None:
            sent.append(self)
            self.far.sendall(b"x")

        def receive(self) -> bool:
            return self.near.recv(1) == b"x"

    echoes = [Echo() for _ in range(3)]
    try:
        assert answers_a_second(echoes, 30)[0] > 0
    finally:
        for echo in echoes:
            echo.near.close()
            echo.far.close()
    assert 30 <= len(sent) <= 33
    assert all(sent.count(echo) >= 10 for echo in echoes)
