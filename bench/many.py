"""Many clients at once, in one thread: each has one request under way and sends the next when it is answered."""

from __future__ import annotations

import selectors
import time
from collections.abc import Sequence
from typing import Protocol


class OneAtATime(Protocol):
    """A connection that can be asked the same thing again and again."""

    def fileno(self) -> int: ...

    def send(self) -> None:
        """Send the next request."""

    def receive(self) -> bool:
        """Read what has come; whether that was the answer's end."""


def answers_a_second(connections: Sequence[OneAtATime], count: int) -> float:
    """Answers a second over all connections, until `count` have come."""
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        begun = time.monotonic()
        for connection in connections:
            connection.send()
        done = 0
        while done < count:
            ready = selector.select(30)
            assert ready, "nobody is answered any more"
            for key, _ in ready:
                connection = key.fileobj  # type: ignore[assignment]
                if connection.receive():
                    done += 1
                    connection.send()
        return done / (time.monotonic() - begun)
