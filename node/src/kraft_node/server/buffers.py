"""Receive memory: one scratch buffer shared by all connections of a loop, and large buffers lent to large requests.

Between two reads almost every connection has nothing left over: it owns no buffer and reads into the scratch. The
begin of an incomplete small request is kept as just those bytes; a large request gets a buffer that its rest is
received into directly. How large follows what has arrived rather than what the length field claims, once the claim is
past what is trusted: a client that announces 2 GiB and sends ten bytes holds little.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

SCRATCH_SIZE: Final = 256 * 1024
"""One read's most: enough for sixteen default batches at a time, and it stays within the processor's cache."""

LARGE: Final = 128 * 1024
"""Requests beyond this are received into a buffer of their own; also the unit of such buffers' sizes."""

LARGE_BEGUN: Final = 64 * 1024
"""Bytes of a large request that must have come before it gets its buffer: thousands of mere promises cost nothing."""

TRUSTED: Final = 2 << 20
"""A claimed request size up to which the buffer is made for the whole request at once, so that the common batch is
never moved; beyond, buffers double with what arrives."""

TRUSTED_SUM_MAX: Final = 128 << 20
"""Bytes lent to unfinished requests at a time beyond which no claim is trusted any more."""

KEPT_MAX: Final = 8 << 20
"""Bytes of returned buffers kept for the next large request: making one anew costs a page fault each 4 KiB."""


class BufferPool:
    """Lends buffers; single-threaded."""

    __slots__ = ("_kept", "_kept_bytes", "_lent_max", "_waiting", "lent", "scratch")

    def __init__(self, lent_max: int = -1) -> None:
        """`lent_max`: bytes beyond which nothing more is lent (`queued.max.request.bytes`), -1 for no limit."""
        self._lent_max = lent_max
        self._waiting: list[Callable[[], None]] = []
        self.scratch = memoryview(bytearray(SCRATCH_SIZE))
        self._kept: dict[int, list[bytearray]] = {}
        self._kept_bytes = 0
        self.lent = 0

    def is_exhausted(self, freed: Callable[[], None]) -> bool:
        """Whether nothing may be lent now; `freed` is called once when that may have changed.

        As in Kafka, the last request that is let in may exceed the limit: one of any size comes in at last.
        """
        if self._lent_max < 0 or self.lent < self._lent_max:
            return False
        self._waiting.append(freed)
        return True

    def take(self, have: int, need: int) -> bytearray:
        """A buffer for a request of `need` bytes of which `have` have arrived; larger than `have`."""
        size = need if need <= TRUSTED and self.lent + need <= TRUSTED_SUM_MAX else min(need, max(2 * have, LARGE))
        size = -(-size // LARGE) * LARGE
        self.lent += size
        kept = self._kept.get(size)
        if kept:
            self._kept_bytes -= size
            return kept.pop()
        return bytearray(size)

    def give(self, buffer: bytearray) -> None:
        """Take a buffer back. The caller reads no more from it."""
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
        """Let go of what is kept; called when the node has been quiet."""
        self._kept.clear()
        self._kept_bytes = 0
