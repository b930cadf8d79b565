"""TLS handshakes of a node: off the loop, in turns by address, bounded in number and time.

A handshake costs the server up to 1.5 ms of signing and verifying, and an attacker almost nothing. Therefore the steps
run in background lanes, which release the interpreter while OpenSSL computes. Addresses take turns, so a flood from one
address does not delay the others. Above `UNFINISHED_MAX`, the oldest unfinished handshake of the address with the most
of them is closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from kraft_node.base.env import Env, Timer

LANES: Final = ("tls:0", "tls:1")
"""The lanes of handshakes. More of them would take processors from the loop."""

UNFINISHED_MAX: Final = 1024
"""Maximum of unfinished handshakes of clients; each holds about 50 KiB."""

TIMEOUT_MS: Final = 10_000
"""Maximum time from the first byte to the end of a handshake. Kafka has only its idle time-out."""

SCRATCH_SIZE: Final = 256 * 1024
"""Maximum of ciphertext of one read."""

Done = Callable[["bool | BaseException"], None]


class Handshaking(Protocol):
    """A connection in its handshake."""

    def give_up(self, reason: str) -> None:
        """Close the connection."""


class Handshakes:
    """The handshakes of one node. All TLS connections also share its receive buffer."""

    __slots__ = ("_free", "_unfinished", "_waiting", "abandoned", "env", "scratch", "unfinished", "unfinished_max")

    def __init__(self, env: Env) -> None:
        self.env = env
        self.scratch = memoryview(bytearray(SCRATCH_SIZE))
        self.unfinished_max = UNFINISHED_MAX
        self.unfinished = 0
        """The number of unfinished handshakes of clients."""
        self._free = list(LANES)
        self._waiting: dict[str, deque[tuple[Callable[[], bool], Done]]] = {}
        self._unfinished: dict[str, dict[Handshaking, Timer]] = {}
        """By address and connection: the call that gives the handshake up."""
        self.abandoned = {"limit": 0, "timeout": 0}
        """Handshakes of clients that the node has closed: too many were unfinished, or they took too long."""

    def begin(self, host: str, connection: Handshaking) -> None:
        """Count a handshake that a client has begun, once; close another one if there are too many."""
        if connection in self._unfinished.get(host, ()):
            return
        if self.unfinished >= self.unfinished_max:
            worst = max(self._unfinished, key=lambda host: len(self._unfinished[host]))
            oldest = next(iter(self._unfinished[worst]))
            self.abandoned["limit"] += 1
            oldest.give_up("too many handshakes are unfinished")
            self.end(worst, oldest)
        timer = self.env.scheduler.call_later(TIMEOUT_MS, self._overdue, host, connection)
        self._unfinished.setdefault(host, {})[connection] = timer
        self.unfinished += 1

    def end(self, host: str, connection: Handshaking) -> None:
        """The handshake is complete, or the connection is closed."""
        there = self._unfinished.get(host)
        timer = None if there is None else there.pop(connection, None)
        if there is None or timer is None:
            return
        timer.cancel()  # it would hold the connection, which may be closed
        self.unfinished -= 1
        if not there:
            del self._unfinished[host]

    def _overdue(self, host: str, connection: Handshaking) -> None:
        self.abandoned["timeout"] += 1
        connection.give_up(f"the handshake did not end within {TIMEOUT_MS} ms")
        self.end(host, connection)

    def run(self, host: str, step: Callable[[], bool], done: Done) -> None:
        """Run one step in a lane when the turn of `host` comes; then `done(result)` on the loop."""
        self._waiting.setdefault(host, deque()).append((step, done))
        self._next()

    def _next(self) -> None:
        while self._free and self._waiting:
            host, steps = next(iter(self._waiting.items()))
            del self._waiting[host]
            step, done = steps.popleft()
            if steps:
                self._waiting[host] = steps  # behind the other addresses
            lane = self._free.pop()
            self.env.background.submit(lane, step, partial(self._done, lane, done))

    def _done(self, lane: str, done: Done, result: Any) -> None:
        self._free.append(lane)
        try:
            done(result)
        finally:
            self._next()
