"""Unread answers in memory: a limit for the whole node, so that slow readers cannot use all memory.

A connection handles nothing more while a megabyte is unsent, but one answer may be large, and there may be thousands
of connections. Above `UNREAD_MAX` bytes in total, a connection with unread answers handles no more requests.
Connections that read nothing for `PATIENCE_MS` are aborted, the largest amounts first. Above twice that limit the
largest amount is aborted at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from kraft_node.base.net import Transport

UNREAD_MAX: Final = 256 << 20

PATIENCE_MS: Final = 1000
"""How long a connection may read nothing while the limit is exceeded."""


class RefusingListener(Protocol):
    """Counts and logs refusals."""

    def refused(self, host: str, reason: str) -> None:
        """Count and log a refused connection or request."""


class UnreadConnection(Protocol):
    """A connection, for the sum of unread answers."""

    closed: bool
    held_bytes: int
    """Bytes of answers in memory that the client has not read, as counted last."""
    peer_host: str
    transport: Transport

    @property
    def server(self) -> RefusingListener:
        """Its listener."""
        ...


class Unread:
    """The unread answers of a node. `connections` returns all connections."""

    __slots__ = ("_call_later", "_connections", "_is_looking", "limit", "total")

    def __init__(self, call_later: Callable[..., Any], connections: Callable[[], Iterable[UnreadConnection]]) -> None:
        self._call_later = call_later
        self._connections = connections
        self._is_looking = False
        self.limit = UNREAD_MAX
        self.total = 0
        """Never less than the real sum: a connection is counted again when it sends."""

    @property
    def is_over(self) -> bool:
        """Whether the limit is exceeded."""
        return self.total > self.limit

    def note(self, connection: UnreadConnection) -> None:
        """Count the unsent bytes of `connection` again."""
        held = connection.transport.held_bytes
        self.total += held - connection.held_bytes
        connection.held_bytes = held
        if self.total <= self.limit:
            return
        if self.total > 2 * self.limit and self._count() > 2 * self.limit:
            self._abort(max(self._connections(), key=_held))
        if not self._is_looking and self._count() > self.limit:
            self._look_later()

    def forget(self, connection: UnreadConnection) -> None:
        """A connection has ended."""
        self.total -= connection.held_bytes
        connection.held_bytes = 0

    def _count(self) -> int:
        """Count all unsent bytes again."""
        self.total = 0
        for connection in self._connections():
            connection.held_bytes = connection.transport.held_bytes
            self.total += connection.held_bytes
        return self.total

    def _look_later(self) -> None:
        self._is_looking = True
        held = {connection: connection.held_bytes for connection in self._connections() if connection.held_bytes}
        self._call_later(PATIENCE_MS, self._look, held)

    def _look(self, before: dict[UnreadConnection, int]) -> None:
        """Abort connections that have read nothing since they held `before`, until the sum is below the limit."""
        self._is_looking = False
        if self._count() <= self.limit:
            return
        stuck = [connection for connection, held in before.items() if connection.held_bytes >= held]
        for connection in sorted(stuck, key=_held, reverse=True):
            if self.total <= self.limit:
                return
            self._abort(connection)
        if self.total > self.limit:
            self._look_later()

    def _abort(self, connection: UnreadConnection) -> None:
        text = f"the node holds {self.total} bytes of unread answers, {connection.held_bytes} of them for this client"
        connection.server.refused(connection.peer_host, text)
        self.forget(connection)
        connection.closed = True
        connection.transport.abort()


def _held(connection: UnreadConnection) -> int:
    return connection.held_bytes
