"""Pauses between the attempts of an operation."""

from __future__ import annotations

from typing import Final

PAUSE_S_MIN: Final = 0.05
PAUSE_S_MAX: Final = 1.0


class Backoff:
    """Pauses that double, until `seconds` have passed. Times are seconds of the caller's monotonic clock."""

    __slots__ = ("_deadline", "_pause_s", "seconds")

    def __init__(self, seconds: float, now: float) -> None:
        self.seconds = seconds
        self._deadline = now + seconds
        self._pause_s = PAUSE_S_MIN

    def pause(self, now: float) -> float | None:
        """The seconds to wait before the next attempt; None if the time is over."""
        left = self._deadline - now
        if left <= 0:
            return None
        pause = min(self._pause_s, left)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        return pause
