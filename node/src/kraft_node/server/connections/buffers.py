"""Receive memory: one scratch buffer for all connections of a loop, and large buffers for large requests.

Between two reads almost every connection has no leftover bytes: it has no buffer and reads into the scratch buffer.
The beginning of an incomplete small request is stored in exactly its size. A large request gets a buffer that receives
its rest directly. Above a trusted size, the buffer grows with the received bytes, not with the announced length. A
client that announces 2 GiB and sends ten bytes uses little memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SCRATCH_SIZE: Final = 256 * 1024
"""Maximum of one read: enough for sixteen default batches, and within the processor's cache."""

LARGE: Final = 128 * 1024
"""Larger requests get their own buffer; also the unit of the sizes of these buffers."""

LARGE_BEGUN: Final = 64 * 1024
"""Bytes of a large request that must arrive before it gets its buffer: thousands of announcements cost nothing."""

TRUSTED: Final = 2 << 20
"""Up to this announced size the buffer is made for the whole request at once, so that common batches are never moved.
Above it, buffers double with the received bytes."""

TRUSTED_SUM_MAX: Final = 128 << 20
"""If more bytes than this are lent to unfinished requests, no announced size is trusted."""

KEPT_MAX: Final = 8 << 20
"""Bytes of returned buffers that are kept for the next large request: a new buffer costs a page fault each 4 KiB."""


class BufferPool:
    """Lends buffers; single-threaded."""

    __slots__ = ("_kept", "_kept_bytes", "_lent_max", "_waiting", "lent", "scratch")

    def __init__(self, lent_max: int = -1) -> None:
        """`lent_max`: no buffers are lent above this number of bytes (`queued.max.request.bytes`); -1: no limit."""
        self._lent_max = lent_max
        self._waiting: list[Callable[[], None]] = []
        self.scratch = memoryview(bytearray(SCRATCH_SIZE))
        self._kept: dict[int, list[bytearray]] = {}
        self._kept_bytes = 0
        self.lent = 0

    def is_exhausted(self, freed: Callable[[], None]) -> bool:
        """Whether no buffer may be lent now. Then `freed` is called once when this may have changed.

        As in Kafka, the last accepted request may exceed the limit, so that a request of any size is accepted
        eventually.
        """
        if self._lent_max < 0 or self.lent < self._lent_max:
            return False
        self._waiting.append(freed)
        return True

    def take(self, have: int, need: int) -> bytearray:
        """A buffer for a request of `need` bytes after `have` bytes have arrived; larger than `have`."""
        size = need if need <= TRUSTED and self.lent + need <= TRUSTED_SUM_MAX else min(need, max(2 * have, LARGE))
        size = -(-size // LARGE) * LARGE
        self.lent += size
        kept = self._kept.get(size)
        if kept:
            self._kept_bytes -= size
            return kept.pop()
        return bytearray(size)

    def give(self, buffer: bytearray) -> None:
        """Take a buffer back. The caller must not use it afterwards."""
        size = len(buffer)
        self.lent -= size
        if self._kept_bytes + size <= KEPT_MAX:
            self._kept_bytes += size
            self._kept.setdefault(size, []).append(buffer)
        if self._waiting and self.lent < self._lent_max:
            waiting, self._waiting = self._waiting, []
            for freed in waiting:
                freed()

    def trim(self) -> None:
        """Free the kept buffers; called when the node has been idle."""
        self._kept.clear()
        self._kept_bytes = 0
