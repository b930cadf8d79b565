"""The simulated network."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

from kraft_node.testing.disk import SimDisk
from kraft_node.testing.net import SimNetwork, SimTransport
from kraft_node.testing.world import SimHost, World


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


def _after_an_abort(seed: int) -> _Receiver:
    """What the peer sees of a connection that sends a few bytes and is aborted."""
    world = World(seed)
    network = SimNetwork(world)
    here, there = (network.host(SimHost(world, name, SimDisk(world.rng))) for name in "ab")
    accepted, opened = _Receiver(), []
    there.listen("b", 1, lambda _: accepted)
    here.connect("b", 1, lambda transport: opened.append(transport) or _Receiver(), lambda _: None)
    world.rest(10)
    opened[0].write([b"abc"])
    opened[0].abort()
    world.rest(10)
    return accepted


def test_an_abort_resets_the_peer_and_may_lose_bytes_on_their_way() -> None:
    found = [_after_an_abort(seed) for seed in range(30)]
    assert {bytes(one.received) for one in found} == {b"", b"abc"}
    assert all([type(error) for error in one.lost] == [ConnectionResetError] for one in found)


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
