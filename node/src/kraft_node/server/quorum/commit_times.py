"""How long records take from append to commit, and how many were committed (KIP-631, "New Metrics").

Part of `driver`, which owns it. Only the active controller has a latency, because only it appends. Records of
other leaders count as committed, too.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kraft_node.base.histogram import Histogram

WAITING_MAX: Final = 10_000
"""Maximum of measured pending appends. Further appends are committed unmeasured, and visible as lag anyway."""


class CommitTimes:
    """The commit times of one driver."""

    __slots__ = ("_counted", "_waiting", "committed", "latency_ms")

    def __init__(self) -> None:
        self.latency_ms = Histogram()
        self.committed = 0
        """Records committed since the start."""
        self._counted = 0
        self._waiting: deque[tuple[int, int]] = deque()

    def start(self, end_offset: int) -> None:
        """Records below `end_offset` existed before the start."""
        self._counted = end_offset

    def appended(self, last_offset: int, now_ms: int) -> None:
        """This node, as leader, has appended records up to and including `last_offset`."""
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append((last_offset, now_ms))

    def advanced(self, high_watermark: int, now_ms: int) -> None:
        """Everything below `high_watermark` is committed."""
        self.committed += max(0, high_watermark - self._counted)
        self._counted = max(self._counted, high_watermark)
        waiting = self._waiting
        while waiting and waiting[0][0] < high_watermark:
            self.latency_ms.observe(max(0, now_ms - waiting.popleft()[1]))

    def lost(self) -> None:
        """Another node leads: what happens to the pending records is unknown here."""
        self._waiting.clear()
