"""Pauses between the attempts of an operation."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

N = TypeVar("N", int, float)
PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 1.0


class Pauses(Generic[N]):
    """Pauses that double from `first` to `most`, in the caller's unit."""

    __slots__ = ("_first", "_most", "_next")

    def __init__(self, first: N, most: N) -> None:
        self._first: N = first
        self._most: N = most
        self._next: N = first

    def take(self) -> N:
        """The next pause. The next pause is twice as long."""
        pause = self._next
        self._next = min(2 * pause, self._most)
        return pause

    def reset(self) -> None:
        """Begin with the first pause again, after a success."""
        self._next = self._first


class Backoff:
    """Pauses that double, until `seconds` have passed. Times are seconds of the caller's monotonic clock."""

    __slots__ = ("_deadline", "_pauses", "seconds")

    def __init__(self, seconds: float, now: float) -> None:
        self.seconds = seconds
        self._deadline = now + seconds
        self._pauses = Pauses(PAUSE_S_MIN, PAUSE_S_MAX)

    def pause(self, now: float) -> float | None:
        """The seconds to wait before the next attempt; None if the time is over."""
        left = self._deadline - now
        return None if left <= 0 else min(self._pauses.take(), left)
