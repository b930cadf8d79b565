"""A lane reads data outside the page cache before it is sent, while other connections are served."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_node.runtime import net
from kraft_node.runtime.env import RealEnv
from kraft_node.runtime.residency import bring_in, is_resident
from kraft_protocol.buffers import FileSlice
from tests.unit.runtime.test_net import Peer, pair, real  # noqa: F401 - a fixture

DATA = random.Random(1).randbytes(3 << 20)


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    folder = tmp_path / "t-0"
    folder.mkdir()
    path = folder / "0.log"
    path.write_bytes(DATA)
    return path


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """All files are cold until a lane has read them; the lane waits for `go`."""
    seen: dict[str, Any] = {"read": [], "asked": 0, "go": threading.Event()}

    def ask(_fd: int, _position: int, _length: int) -> bool:
        seen["asked"] += 1
        return False

    def bring(fd: int, position: int, length: int) -> None:
        assert seen["go"].wait(10)
        seen["read"].append((position, length, threading.current_thread().name))
        bring_in(fd, position, length)

    monkeypatch.setattr(net, "is_resident", ask)
    monkeypatch.setattr(net, "bring_in", bring)
    yield seen
    seen["go"].set()


def joined(real: RealEnv) -> tuple[list[Peer], list[Peer]]:  # noqa: F811
    servers, clients, listener = pair(real)
    listener.close()
    return servers, clients


def until(real: RealEnv, is_done: Any) -> None:  # noqa: F811
    for _ in range(2000):
        if is_done():
            return
        real.loop.call_later(2, real.loop.stop)
        real.loop.run()
    raise AssertionError("it does not come")


def opened(real: RealEnv, path: Path, position: int, length: int) -> FileSlice:  # noqa: F811
    return FileSlice(real.env.disk.open(str(path), read_only=True), position, length)


def test_other_connections_are_served_during_cold_reads(
    real: RealEnv,  # noqa: F811
    segment: Path,
    cold: dict[str, Any],
) -> None:
    servers, clients = joined(real)
    others, their_clients = joined(real)
    servers[0].transport.write([b"head", opened(real, segment, 100, len(DATA) - 100)])
    others[0].transport.write([b"not concerned"])
    until(real, lambda: their_clients[0].data == b"not concerned")
    assert clients[0].data in (b"", b"head")
    cold["go"].set()
    until(real, lambda: len(clients[0].data) == 4 + len(DATA) - 100)
    assert clients[0].data == b"head" + DATA[100:]
    assert [length for _, length, _ in cold["read"]] == [
        net.WINDOW_MAX,
        net.WINDOW_MAX,
        len(DATA) - 100 - 2 * net.WINDOW_MAX,
    ]
    assert {name.split(":")[0] for _, _, name in cold["read"]} == {"lane-read"}


def test_a_connection_that_ends_during_a_cold_read_is_reported_once(
    real: RealEnv,  # noqa: F811
    segment: Path,
    cold: dict[str, Any],
) -> None:
    servers, clients = joined(real)
    servers[0].transport.write([opened(real, segment, 0, 1000)])
    clients[0].transport.abort()
    until(real, lambda: servers[0].lost)
    cold["go"].set()
    until(real, lambda: cold["read"])
    real.loop.call_later(5, real.loop.stop)
    real.loop.run()
    assert len(servers[0].lost) == 1


def test_data_written_during_a_cold_read_follows_it(
    real: RealEnv,  # noqa: F811
    segment: Path,
    cold: dict[str, Any],
) -> None:
    servers, clients = joined(real)
    servers[0].transport.write([opened(real, segment, 0, 1000)])
    servers[0].transport.write([b"next"])
    servers[0].transport.close()
    cold["go"].set()
    until(real, lambda: clients[0].lost)
    assert clients[0].data == DATA[:1000] + b"next"


def test_a_failing_disk_ends_the_connection(
    real: RealEnv,  # noqa: F811
    segment: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bring(_fd: int, _position: int, _length: int) -> None:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(net, "is_resident", lambda *_: False)
    monkeypatch.setattr(net, "bring_in", bring)
    servers, _ = joined(real)
    servers[0].transport.write([opened(real, segment, 0, 1000)])
    until(real, lambda: servers[0].lost)
    assert isinstance(servers[0].lost[0], OSError)


def test_the_kernel_reports_data_in_memory(segment: Path) -> None:
    """New data is in memory. After a lane's read it is there again, even if the kernel dropped it."""
    fd = os.open(segment, os.O_RDONLY)
    try:
        assert is_resident(fd, 0, len(DATA))
        bring_in(fd, 0, len(DATA))
        assert is_resident(fd, 5, 100)
    finally:
        os.close(fd)


def test_a_receiver_is_notified_when_cold_data_was_sent(
    real: RealEnv,  # noqa: F811
    segment: Path,
    cold: dict[str, Any],
) -> None:
    """A connection that pauses until its answers have been sent would otherwise never read its next request."""
    servers, clients = joined(real)
    servers[0].transport.write([opened(real, segment, 0, 1000)])
    cold["go"].set()
    until(real, lambda: len(clients[0].data) == 1000)
    until(real, lambda: servers[0].drains == 1)
