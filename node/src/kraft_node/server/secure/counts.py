"""How the clients of one listener authenticated: the figures of Kafka's socket-server-metrics."""

from __future__ import annotations

from collections import deque
from typing import Final

from kraft_node.base.rates import Rate

WINDOWS: Final = 2
WINDOW_MS: Final = 30_000
"""Rates and durations are of the last 30 to 60 seconds, as with Kafka's defaults of `metrics.num.samples`."""


class Meter:
    """The number of events since the start, and their rate."""

    __slots__ = ("_rate", "total")

    def __init__(self) -> None:
        self.total = 0
        self._rate = Rate(WINDOWS, WINDOW_MS)

    def add(self, now_ms: int) -> None:
        """Count an event."""
        self.total += 1
        self._rate.record(1, now_ms)

    def per_second(self, now_ms: int) -> float:
        """Events per second."""
        return self._rate.per_second(now_ms)


class AuthenticationCounts:
    """The figures of one listener's SASL, or of its TLS."""

    __slots__ = ("_again", "expired_killed", "failed", "failed_again", "succeeded", "succeeded_again", "without_reauth")

    def __init__(self) -> None:
        self.succeeded = Meter()
        self.failed = Meter()
        self.succeeded_again = Meter()
        self.failed_again = Meter()
        self.without_reauth = 0
        """First authentications by clients that cannot authenticate again."""
        self.expired_killed = 0
        """Connections that were closed because their session was over."""
        self._again: deque[tuple[int, int]] = deque(maxlen=1000)

    def took_again(self, duration_ms: int, now_ms: int) -> None:
        """Note the duration of a repeated authentication."""
        self._again.append((now_ms, duration_ms))

    def again_ms(self, now_ms: int) -> list[int]:
        """The recent durations of repeated authentications, of at most 1000."""
        while self._again and now_ms - self._again[0][0] >= WINDOWS * WINDOW_MS:
            self._again.popleft()
        return [duration for _, duration in self._again]
