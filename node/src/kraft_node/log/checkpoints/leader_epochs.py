"""The start of each leader epoch in a log (KIP-101, KIP-279), stored in the file leader-epoch-checkpoint.

Followers and consumers request the end of an epoch, to find where their logs diverge from the leader's. The file is
written when the log is flushed or truncated, and at a clean stop. After any other stop, the part above the recovery
point is scanned, and its batches contain the epochs. A new partition has no file until its first flush.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final

NO_EPOCH = -1

_SHARED_MAX: Final = 4096
_shared: dict[tuple[int, ...], tuple[int, ...]] = {}


def _one(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """One object for equal tuples: most logs have the same few epochs, which begin at the same few offsets.

    Any thread may call it.
    """
    if len(_shared) >= _SHARED_MAX:
        _shared.clear()
    return _shared.setdefault(numbers, numbers)


class LeaderEpochs:
    """Epochs and their first offsets, both ascending. `dirty` makes the owner write them."""

    __slots__ = ("_epochs", "_starts", "dirty")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs: tuple[int, ...] = ()  # tuples, because most logs have one epoch: an empty list costs as much
        self._starts: tuple[int, ...] = ()
        self.dirty = False
        for epoch, start in entries:
            self.assign(epoch, start)
        self.dirty = False

    def __repr__(self) -> str:
        return f"LeaderEpochs({self.entries()})"

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, first offset) pairs, ascending."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest_epoch(self) -> int:
        """The last epoch; -1 without an epoch."""
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def assign(self, epoch: int, start: int) -> None:
        """Epoch `epoch` begins at offset `start`. Contradicting entries are removed; a known epoch stays unchanged."""
        epochs, starts = self._epochs, self._starts
        if epoch < 0 or (epochs and epoch == epochs[-1]):
            return
        count = len(epochs)
        while count and (epochs[count - 1] >= epoch or starts[count - 1] >= start):
            count -= 1
        self._epochs = _one((*epochs[:count], epoch))
        self._starts = _one((*starts[:count], start))
        self.dirty = True

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at `offset`; -1 before the first known epoch."""
        place = bisect_right(self._starts, offset)
        return self._epochs[place - 1] if place else NO_EPOCH

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest known epoch at or below `epoch`, and its end; (-1, -1) without a known epoch there.

        Like Kafka's OffsetForLeaderEpoch. An epoch before the first known epoch ended at the start of the first known
        epoch, with its own number. An epoch after the latest is unknown.
        """
        epochs = self._epochs
        if epoch == NO_EPOCH or not epochs or epoch > epochs[-1]:
            return NO_EPOCH, -1
        if epoch == epochs[-1]:
            return epoch, log_end
        place = bisect_right(epochs, epoch)
        if place == 0:
            return epoch, self._starts[0]
        return epochs[place - 1], self._starts[place]

    def truncate_from_end(self, end: int) -> None:
        """The log ends at `end` now: epochs that begin there or later go."""
        count = bisect_left(self._starts, end)
        if count < len(self._starts):
            self._starts, self._epochs = self._starts[:count], self._epochs[:count]
            self.dirty = True

    def truncate_from_start(self, start: int) -> None:
        """The log now begins at `start`: its epoch begins there, earlier epochs are removed."""
        place = bisect_right(self._starts, start)
        if place and (place > 1 or self._starts[0] < start):
            self._starts = (start, *self._starts[place:])
            self._epochs = self._epochs[place - 1 :]
            self.dirty = True

    def clear(self) -> None:
        """Remove all epochs, because the log restarts empty; `dirty` if there were any."""
        self.dirty = self.dirty or bool(self._epochs)
        self._epochs = self._starts = ()
