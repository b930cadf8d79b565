"""The network as the node sees it: byte streams with back-pressure, and nothing of requests.

A `Receiver` (a server's connection, a client's channel) is sans-IO: it owns its receive buffer, gets told how many
bytes arrived, and writes through its `Transport`. `runtime.net` runs it on asyncio's buffered protocols,
`testing.net` on simulated links.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from kraft_node.base.env import Buffer, FileSlice

Outgoing: TypeAlias = Buffer | FileSlice


class Transport(Protocol):
    """The writing half of a connection."""

    @property
    def peer(self) -> tuple[str, int]:
        """Host and port of the other side."""

    @property
    def unsent_bytes(self) -> int:
        """What was written and has not left yet."""

    @property
    def held_bytes(self) -> int:
        """As much of `unsent_bytes` as takes memory: all but file slices."""

    def write(self, parts: Sequence[Outgoing]) -> None:
        """Send all of `parts` in order; file slices go by sendfile where the connection is plain."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Send what was written, then close."""

    def abort(self) -> None:
        """Close at once."""


class Receiver(Protocol):
    """The reading half, told what happens. Called on the loop only.

    Between `get_buffer` and its `buffer_updated` nothing else of the node runs: receivers lend out one shared buffer.
    """

    def get_buffer(self, size_hint: int) -> memoryview:
        """Where the next bytes go; never empty."""

    def buffer_updated(self, count: int) -> None:
        """`count` bytes have been put at the start of the last buffer given."""

    def drained(self) -> None:
        """What had been written has left (after `unsent_bytes` was above the transport's high mark)."""

    def connection_lost(self, error: OSError | None) -> None:
        """No more bytes either way; called once."""


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int:
        """The port bound, also when 0 was asked for."""

    def close(self) -> None:
        """Accept no more; open connections stay."""


class Net(Protocol):
    """Listens and connects."""

    def listen(self, host: str, port: int, accept: Callable[[Transport], Receiver]) -> Listener:
        """Bind now (OSError when that fails), then call `accept` for every new connection."""

    def connect(
        self,
        host: str,
        port: int,
        connected: Callable[[Transport], Receiver],
        failed: Callable[[OSError], None],
    ) -> None:
        """Connect in the background; exactly one of the two is called."""
