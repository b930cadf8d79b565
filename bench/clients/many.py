"""Many clients in one thread: each has one request under way and sends the next after the response."""

from __future__ import annotations

import math
import selectors
import time
from collections.abc import Sequence
from typing import Protocol


class OneAtATime(Protocol):
    """A connection that sends the same request repeatedly."""

    def fileno(self) -> int:
        """The socket's descriptor, for a selector."""
        ...

    def send(self) -> None:
        """Send the next request."""

    def receive(self) -> bool:
        """Read available data. Returns whether the response is complete."""


def answers_a_second(
    connections: Sequence[OneAtATime], count: float = math.inf, *, seconds: float = math.inf
) -> tuple[float, list[int]]:
    """Responses per second over all connections, until `count` have come or the time is over; and the responses of
    each second.

    Connections must be idle, and cannot be used afterwards: each has a response under way.
    """
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        begun = time.monotonic()
        for connection in connections:
            connection.send()
        done = 0
        series: list[int] = []
        while done < count and time.monotonic() - begun < seconds:
            ready = selector.select(30)
            assert ready, "no connection is answered any more"
            second = int(time.monotonic() - begun)
            series += [0] * (second + 1 - len(series))
            for key, _ in ready:
                connection = key.fileobj  # type: ignore[assignment]
                if connection.receive():
                    done += 1
                    series[second] += 1
                    connection.send()
        return done / (time.monotonic() - begun), series[: int(time.monotonic() - begun)]
