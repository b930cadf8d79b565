"""Callbacks that wait for the high watermark of a partition."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from kraft_protocol.errors import ErrorCode

ACKS_ALL: Final = -1

Done: TypeAlias = "Callable[[ErrorCode], None]"
Waiter: TypeAlias = "tuple[int, Done]"


def offset_of(waiter: Waiter) -> int:
    """The offset for which a callback waits: the sort key of the waiting list."""
    return waiter[0]


class Acks:
    """The waiting callbacks. Thousands may wait and time out one by one, so `forget` costs O(1) on average."""

    __slots__ = ("_forgotten", "_waiting")

    def __init__(self) -> None:
        self._waiting: list[Waiter] = []
        self._forgotten: set[Done] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int, done: Done) -> None:
        """Let `take` return `done` once the high watermark has reached `offset`, the end of the records."""
        insort(self._waiting, (offset, done), key=offset_of)  # nearly always behind all others

    def forget(self, done: Done) -> None:
        """Never call `done`. Allowed if it was called already."""
        forgotten = self._forgotten
        forgotten.add(done)
        if 2 * len(forgotten) > len(self._waiting):
            self._waiting = [waiter for waiter in self._waiting if waiter[1] not in forgotten]
            forgotten.clear()

    def take(self, high_watermark: int) -> list[Done]:
        """Remove and return the callbacks that wait for at most `high_watermark`."""
        count = bisect_right(self._waiting, high_watermark, key=offset_of)
        due = self._waiting[:count]
        del self._waiting[:count]
        return [done for _, done in due if done not in self._forgotten]

    def take_all(self) -> list[Done]:
        """Remove and return all callbacks."""
        due, self._waiting = self._waiting, []
        return [done for _, done in due if done not in self._forgotten]
