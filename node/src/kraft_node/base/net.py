"""The network's interface for the node: byte streams with back-pressure, without knowledge of requests.

A `Receiver` (a server's connection, a client's channel) is sans-IO. It owns its receive buffer, gets the number of
received bytes, and writes through its `Transport`. `runtime.net` connects it to sockets on the node's event loop,
`testing.net` to simulated links.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from kraft_protocol.buffers import Buffer, FileSlice

Outgoing: TypeAlias = Buffer | FileSlice


class Transport(Protocol):
    """The writing half of a connection."""

    @property
    def peer(self) -> tuple[str, int]:
        """Host and port of the other side."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes that were written and are not sent yet."""

    @property
    def held_bytes(self) -> int:
        """The part of `unsent_bytes` that uses memory: everything except file slices."""

    def write(self, parts: Sequence[Outgoing]) -> None:
        """Send all `parts` in order. File slices are sent by sendfile on plain connections."""

    def pause_reading(self) -> None:
        """Deliver no received bytes until `resume_reading`."""

    def resume_reading(self) -> None:
        """Deliver received bytes again."""

    def close(self) -> None:
        """Send the written data, then close."""

    def abort(self) -> None:
        """Close at once."""


class Receiver(Protocol):
    """The reading half: gets the events of a connection. Called on the loop only.

    Between `get_buffer` and its `buffer_updated` no other code of the node runs, so receivers can share one buffer.
    """

    def get_buffer(self, size_hint: int) -> memoryview:
        """The buffer for the next bytes; never empty."""

    def buffer_updated(self, count: int) -> None:
        """`count` bytes were put at the start of the last buffer."""

    def drained(self) -> None:
        """All written data was sent (after `unsent_bytes` was above the transport's high mark)."""

    def connection_lost(self, error: OSError | None) -> None:
        """The connection is closed in both directions; called once."""


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int:
        """The bound port, also if port 0 was requested."""

    def close(self) -> None:
        """Stop accepting; open connections stay."""


class Net(Protocol):
    """Listens and connects."""

    def listen(self, host: str, port: int, accept: Callable[[Transport], Receiver]) -> Listener:
        """Bind now, then call `accept` for every new connection. Raises OSError if the bind fails."""

    def connect(
        self,
        host: str,
        port: int,
        connected: Callable[[Transport], Receiver],
        failed: Callable[[OSError], None],
    ) -> None:
        """Connect in the background; exactly one of the two callbacks is called."""
