"""The unhandled bytes of a connection: no bytes, some bytes, or the first part of a large request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft_node.base.net import Transport
    from kraft_node.server.connections.context import ListenerContext


class Received(ABC):
    """The receiving half of a connection; `_work` handles complete requests."""

    __slots__ = ("_have", "_large", "_need", "_rest", "peer_host", "server", "transport")

    def __init__(self, server: ListenerContext, transport: Transport) -> None:
        self.server = server
        self.transport = transport
        self.peer_host = transport.peer[0]
        # Received and not handled: nothing, or some bytes, or the first `_have` of a large request's `_need`.
        self._rest: bytes | memoryview | None = None
        self._large: bytearray | None = None
        self._have = 0
        self._need = 0

    def get_buffer(self, size_hint: int) -> memoryview:  # noqa: ARG002
        """The buffer for the next bytes: the shared scratch, after the leftover bytes, or the rest of the large
        request.
        """
        large = self._large
        if large is not None:
            return memoryview(large)[self._have : self._need]
        rest = self._rest
        scratch = self.server.pool.scratch
        if rest is None:
            return scratch
        scratch[: len(rest)] = rest
        return scratch[len(rest) :]

    def buffer_updated(self, count: int) -> None:
        """Handle every request that is complete now."""
        large = self._large
        if large is not None:
            self._have += count
            if self._have == self._need:
                self._work(memoryview(large), self._need)
            elif self._have == len(large):
                self._grow(large)
        elif self._rest is not None:
            count += len(self._rest)
            self._rest = None
            self._work(self.server.pool.scratch, count)
        else:
            self._work(self.server.pool.scratch, count)

    @abstractmethod
    def _work(self, view: memoryview, end: int) -> None:
        """Handle the received bytes view[:end]."""

    def _work_again(self) -> None:
        """Continue with the bytes that were received when the limits stopped us."""
        if self._large is not None:
            self._work(memoryview(self._large), self._need if self._have == self._need else 0)
        else:
            rest, self._rest = memoryview(self._rest or b""), None
            self._work(rest, len(rest))

    def _begin_large(self, begin: memoryview, need: int) -> None:
        self._have = len(begin)
        self._need = need
        self._large = large = self.server.pool.take(self._have, need)
        large[: self._have] = begin

    def _grow(self, large: bytearray) -> None:
        """Enlarge the buffer of a request with an announced length that was not trusted."""
        self._large = larger = self.server.pool.take(self._have, self._need)
        larger[: self._have] = large
        self.server.pool.give(large)

    def _release_large(self) -> None:
        large, self._large = self._large, None
        if large is not None:
            self.server.pool.give(large)
