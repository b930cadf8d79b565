"""Events of a paused host keep their order if the pause ends early, or if another pause begins.

Seed 60067 of the scenario `whole` with rare paths sent requests to a controller that hung. The end of all faults woke
the controller without its waiting events. Later bytes of a connection overtook them, and a request came seconds late.
"""

from __future__ import annotations

from kraft_node.testing.disk import SimDisk
from kraft_node.testing.net import SimNetwork
from kraft_node.testing.world import SimHost, World


class _Receiver:
    def __init__(self) -> None:
        self.received = bytearray()
        self._buffer = bytearray(100)

    def get_buffer(self, _size: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, count: int) -> None:
        self.received += self._buffer[:count]

    def connection_lost(self, error: OSError | None) -> None:
        raise AssertionError(error)

    def drained(self) -> None:
        pass


def _host(world: World, name: str = "h") -> SimHost:
    return SimHost(world, name, SimDisk(world.rng, lambda: 0))


def test_waiting_events_run_at_once_and_in_order_if_a_pause_ends_early() -> None:
    world = World(1)
    host, ran = _host(world), list[tuple[str, float]]()
    for name, due_ms in (("first", 10.0), ("second", 20.0), ("later", 60.0)):
        world.at(due_ms, lambda name=name: ran.append((name, world.now_ms)), host=host)
    host.pause(5_000.0)
    world.rest(50.0)
    assert ran == []
    host.wake()
    world.at(0.0, lambda: ran.append(("new", world.now_ms)), host=host)
    world.rest(50.0)
    assert ran == [("first", 50.0), ("second", 50.0), ("new", 50.0), ("later", 60.0)]


def test_a_short_pause_does_not_end_a_longer_one() -> None:
    world = World(1)
    host, ran = _host(world), list[tuple[str, float]]()
    world.at(10.0, lambda: ran.append(("waits", world.now_ms)), host=host)
    host.pause(1_000.0)
    world.rest(50.0)
    host.pause(300.0)
    world.at(500.0, lambda: ran.append(("new", world.now_ms)), host=host)
    world.rest(2_000.0)
    assert ran == [("waits", 1_000.0), ("new", 1_000.0)]


def test_a_host_that_wakes_early_gets_the_bytes_of_a_connection_in_order() -> None:
    world = World(1)
    network, client, server = SimNetwork(world), _host(world, "client"), _host(world, "server")
    receiver, transports = _Receiver(), []
    network.host(server).listen("server", 1, lambda _: receiver)

    def connected(transport: object) -> _Receiver:
        transports.append(transport)
        return _Receiver()

    network.host(client).connect("server", 1, connected, lambda error: None)
    world.rest(100.0)
    (transport,) = transports
    server.pause(5_000.0)
    transport.write([b"first "])
    world.rest(100.0)
    server.wake()
    transport.write([b"second"])
    world.rest(100.0)
    assert receiver.received == b"first second"


def test_a_run_ends_at_its_limit_though_the_next_event_was_cancelled() -> None:
    """The first event in the queue is within the limit, but does not happen, and the next one is beyond it."""
    world = World(1)
    world.at(10, lambda: None).cancel()
    late: list[float] = []
    world.at(5_000, lambda: late.append(world.now_ms))
    world.rest(100)
    assert (world.now_ms, late) == (100, [])


def test_a_run_ends_at_its_limit_though_the_next_event_is_put_off_by_a_pause() -> None:
    world = World(1)
    host = _host(world)
    late: list[float] = []
    world.at(10, lambda: late.append(world.now_ms), host=host)
    host.paused_until_ms = 3_000
    world.rest(100)
    assert (world.now_ms, late) == (100, [])
    world.rest(2_900)
    assert late == [3_000]
