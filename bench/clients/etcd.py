"""The cost of a commit in etcd, with three members started from PATH, printed beside our own figures.

Each put is one fsynced entry in a Raft log of three voters, like one of our metadata records. The client implements
just enough gRPC for one unary call, so that 1,000 connections cost it next to nothing.
"""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.clients.many import answers_a_second
from tests.compat.targets import free_ports

WAIT_S = 60.0
PUT = b"/etcdserverpb.KV/Put"
STATUS = b"/etcdserverpb.Maintenance/Status"

_DATA, _HEADERS, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 4, 6, 8
_ACK = _END_STREAM = 1
_END_HEADERS = 4
_WINDOW = 32_768
"""Bytes to receive before the server gets room for as many again; by then it may have sent 65,535 (RFC 9113, 6.9)."""
_HEAD = 9
"""The size of a frame header: length in three bytes, type, flags, stream."""


def _frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body))[1:] + struct.pack(">BBI", kind, flags, stream) + body


def _call(path: bytes, stream: int, message: bytes) -> bytes:
    """One unary call; header fields are literals, so a header table is not needed."""
    fields = (
        *((b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"bench")),
        *((b"content-type", b"application/grpc"), (b"te", b"trailers")),
    )
    head = b"".join(bytes((0, len(name))) + name + bytes((len(value),)) + value for name, value in fields)
    body = b"\0" + struct.pack(">I", len(message)) + message
    return _frame(_HEADERS, _END_HEADERS, stream, head) + _frame(_DATA, _END_STREAM, stream, body)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _numbers(message: bytes) -> dict[int, int | bytes]:
    """The fields of a protobuf message of varints and strings; the last value of each field number."""
    found: dict[int, int | bytes] = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        value, at = _varint(message, at)
        if key & 7 == 0:
            found[key >> 3] = value
        else:
            found[key >> 3] = message[at : at + value]
            at += value
    return found


def _put(number: int) -> bytes:
    key, value = b"bench", b"%d" % number
    return bytes((0x0A, len(key))) + key + bytes((0x12, len(value))) + value


class EtcdConnection:
    """A connection with one call under way at a time."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0))
        self._stream = -1
        self._waiting = b""
        self._received = 0
        """Bytes since the last update of the window."""
        self._answer = b""

    @classmethod
    def to(cls, port: int) -> EtcdConnection:
        """Connect to a member on this machine."""
        connected = socket.create_connection(("127.0.0.1", port), 30)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(connected)

    def fileno(self) -> int:
        """The socket's descriptor, for a selector."""
        return self.socket.fileno()

    def send(self) -> None:
        """Start the next put."""
        self._begin(PUT, _put(self._stream))

    def _begin(self, path: bytes, message: bytes) -> None:
        self._stream += 2
        self._answer = b""
        self.socket.sendall(_call(path, self._stream, message))

    def receive(self) -> bool:
        """Read available data. Returns whether the call is complete. Raises AssertionError if it was refused."""
        data = self.socket.recv(65536)
        assert data, "etcd closed the connection"
        data = self._waiting + data
        at = 0
        done = False
        while len(data) - at >= _HEAD:
            length = int.from_bytes(data[at : at + 3], "big")
            kind, flags, stream = struct.unpack_from(">BBI", data, at + 3)
            end = at + _HEAD + length
            if end > len(data):
                break
            body = data[at + _HEAD : end]
            at = end
            if kind in (_SETTINGS, _PING) and not flags & _ACK:
                self.socket.sendall(_frame(kind, _ACK, 0, body if kind == _PING else b""))
            elif kind == _DATA:
                self._note_received(length)
                if stream == self._stream:
                    self._answer += body
            if stream == self._stream and kind in (_DATA, _HEADERS) and flags & _END_STREAM:
                assert self._answer, "etcd refused a call"
                done = True
        self._waiting = data[at:]
        return done

    def _note_received(self, length: int) -> None:
        """Open the connection's window again; otherwise the server stops after some 1,800 answers."""
        self._received += length
        if self._received >= _WINDOW:
            self.socket.sendall(_frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", self._received)))
            self._received = 0

    def ask(self, path: bytes, message: bytes) -> bytes:
        """Make one call and return the response message."""
        self._begin(path, message)
        while not self.receive():
            pass
        return self._answer[5:]

    def close(self) -> None:
        """Close the socket, without waiting for a call under way."""
        self.socket.close()


@contextmanager
def _cluster(program: str, folder: Path) -> Iterator[list[int]]:
    """Start three members. Yields their client ports."""
    ports = free_ports(6)
    peers = ",".join(f"m{i}=http://127.0.0.1:{ports[3 + i]}" for i in range(3))
    processes = []
    try:
        for i in range(3):
            client, peer = (f"http://127.0.0.1:{port}" for port in (ports[i], ports[3 + i]))
            command = (
                *(program, "--name", f"m{i}", "--data-dir", str(folder / f"m{i}"), "--log-level", "error"),
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", peers),
            )
            processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        yield ports[:3]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _leader(ports: list[int]) -> int:
    """The client port of the leader."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for port in ports:
            try:
                connection = EtcdConnection.to(port)
            except OSError:
                continue
            try:
                status = _numbers(connection.ask(STATUS, b""))
            except (OSError, AssertionError):
                continue
            finally:
                connection.close()
            header = status[1]
            assert isinstance(header, bytes)
            if status.get(4) == _numbers(header)[2]:
                return port
        time.sleep(0.1)
    raise AssertionError(f"etcd has no leader within {WAIT_S} s")


@contextmanager
def started(folder: Path) -> Iterator[int]:
    """Start three members. Yields the leader's client port. Raises AssertionError if etcd is not in PATH."""
    program = shutil.which("etcd")
    assert program, "etcd is not in PATH"
    with _cluster(program, folder) as ports:
        yield _leader(ports)


def commits(port: int, seconds: float, clients: int) -> tuple[list[float], float]:
    """Milliseconds of each put of a single client, and puts per second of `clients` clients, each for `seconds`.

    The first fifth of each period is a warm-up and does not count.
    """
    one = EtcdConnection.to(port)
    taken: list[float] = []
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        begun = time.monotonic()
        one.ask(PUT, _put(len(taken)))
        taken.append((time.monotonic() - begun) * 1000)
    one.close()
    rate = 0.0
    for share in (0.2, 0.8):
        many = [EtcdConnection.to(port) for _ in range(clients)]
        try:
            rate, _series = answers_a_second(many, seconds=seconds * share)
        finally:
            for connection in many:
                connection.close()
    return taken[len(taken) // 5 :], rate
