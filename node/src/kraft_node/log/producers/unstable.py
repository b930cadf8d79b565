"""What holds back the last stable offset of a partition: open transactions, and ended ones whose marker may be lost.

Each step costs the same however many transactions there have been. A replicated transaction is forgotten without a
read, because most partitions have no read_committed consumer.
"""

from __future__ import annotations

from bisect import bisect_left, insort


class UnstableOffsets:
    """The transactions of one partition that a read_committed reader must not read beyond."""

    __slots__ = ("_ended", "_open")

    def __init__(self) -> None:
        self._open: list[int] = []
        """First offsets of open transactions, ascending."""
        self._ended: list[tuple[int, int]] = []
        """First and marker offset of ended transactions, both ascending. A transaction is left out if one that began
        before it has ended after it: the other one holds the offset back for longer, and further back."""

    def begin(self, first_offset: int) -> None:
        """A transaction is open that begins there."""
        insort(self._open, first_offset)

    def end(self, first_offset: int, marker_offset: int, high_watermark: int) -> None:
        """The marker of the open transaction that began at `first_offset` is in the log."""
        del self._open[bisect_left(self._open, first_offset)]
        self._forget(high_watermark)
        ended = self._ended
        while ended and ended[-1][0] > first_offset:
            del ended[-1]
        ended.append((first_offset, marker_offset))

    def first(self, high_watermark: int) -> int | None:
        """The first offset that a read_committed reader must not see yet; None if it may see all."""
        self._forget(high_watermark)
        first = self._ended[0][0] if self._ended else None
        begun = self.first_open
        return begun if first is None or (begun is not None and begun < first) else first

    @property
    def first_open(self) -> int | None:
        """The first offset of an open transaction."""
        return self._open[0] if self._open else None

    def __len__(self) -> int:
        """Transactions that are kept."""
        return len(self._open) + len(self._ended)

    def _forget(self, high_watermark: int) -> None:
        """Drop the transactions whose marker is replicated."""
        ended = self._ended
        count = 0
        while count < len(ended) and ended[count][1] < high_watermark:
            count += 1
        if count:
            del ended[:count]
