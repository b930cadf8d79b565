"""The simulated network."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

from kraft_node.testing.net import SimTransport


class _Receiver:
    def __init__(self) -> None:
        self.received = bytearray()
        self.lost: list[OSError | None] = []
        self._buffer = bytearray(100)

    def get_buffer(self, _size: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, count: int) -> None:
        self.received += self._buffer[:count]

    def connection_lost(self, error: OSError | None) -> None:
        self.lost.append(error)


def test_bytes_that_a_reset_has_overtaken_are_lost() -> None:
    """They arrived behind bytes that the reset had cleared, so the stream had a hole."""
    reaches = [False]
    world = SimpleNamespace(rng=Random(1), now_ms=0.0)
    network = SimpleNamespace(world=world, transports=set(), port=lambda: 1, reaches=lambda *_: reaches[0])
    host = SimpleNamespace(name="a")
    end = SimTransport(network, host, ("b", 1))  # type: ignore[arg-type]
    end.other = SimpleNamespace(host=SimpleNamespace(name="b"))  # type: ignore[assignment]
    receiver = _Receiver()
    end.receiver = receiver  # type: ignore[assignment]
    end.arrive(end, b"first")
    end.reset(ConnectionResetError())
    end.arrive(end, b"second")
    reaches[0] = True
    end.resume_delivery()
    assert receiver.received == b""
    assert [type(error) for error in receiver.lost] == [ConnectionResetError]
