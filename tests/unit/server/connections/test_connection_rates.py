"""Connections that wait for admission; some of them end meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft_node.metadata.image import MetadataImage
from kraft_node.server.connections.connection_rates import Arrivals, ConnectionRates
from kraft_node.testing.disk import SimDisk
from kraft_node.testing.world import SimHost, World


class Waiting:
    """The parts of a connection that are used before its admission."""

    peer_host = "127.0.0.1"
    transport = SimpleNamespace(pause_reading=lambda: None)


def test_a_connection_closed_while_waiting_gives_no_second_turn() -> None:
    world = World(1)
    net: Any = None
    env = SimHost(world, "n1", SimDisk(world.rng, lambda: 0)).env(net)
    rates = ConnectionRates(MetadataImage(), 11, 1000, None)
    rates.configure(1, {})
    let_in: list[Any] = []
    arrivals = Arrivals(env, "PLAINTEXT", let_in.append)
    any_arrivals: Any = arrivals
    for _ in range(10):
        any_arrivals.add(Waiting(), rates)
    assert len(let_in) == 10, "ten seconds' worth"
    gone, next_one = Waiting(), Waiting()
    any_arrivals.add(gone, rates)
    any_arrivals.discard(gone)
    turns: list[int] = []
    asked = rates.wait_ms
    rates_any: Any = SimpleNamespace(wait_ms=lambda *what: turns.append(1) or asked(*what), close_ms=rates.close_ms)
    any_arrivals.add(next_one, rates_any)
    assert not turns, "it waits for the turn that is being waited for"
    world.rest(5000)
    assert let_in[-1] is next_one
    assert next_one not in arrivals
