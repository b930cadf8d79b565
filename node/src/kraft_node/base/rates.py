"""A rate over the last few windows, and how long to pause until it is low enough: Kafka's Rate and QuotaUtils.

Used by the quotas of clients and of new connections. A rate starts at zero: if it is younger than all windows but one,
the missing windows count as empty.
"""

from __future__ import annotations

from collections import deque
from typing import Final

THROTTLE_MS_MAX: Final = 2**31 - 1
"""With a limit of zero, a client pauses for the longest time that an answer can carry."""


class Rate:
    """The recorded amount per second, over `windows` windows of `window_ms` each."""

    __slots__ = ("_samples", "used_ms", "window_ms", "windows")

    def __init__(self, windows: int, window_ms: int) -> None:
        self.windows = windows
        self.window_ms = window_ms
        self.used_ms = 0
        """The time of the last recorded value."""
        self._samples: deque[_Sample] = deque(maxlen=windows + 1)

    def record(self, value: float, now_ms: int) -> None:
        """Add a value to the sample of `now_ms`; a new sample begins after `window_ms`."""
        self.used_ms = now_ms
        if not self._samples or now_ms - self._samples[-1].start_ms >= self.window_ms:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[-1]
        sample.total += value
        sample.last_ms = now_ms

    def per_second(self, now_ms: int) -> float:
        """The rate now."""
        span_ms = self._span_ms(now_ms)
        return sum(sample.total for sample in self._samples) * 1000 / span_ms

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long to pause until the rate is down to `limit`, in milliseconds; 0 if it is not above."""
        span_ms = self._span_ms(now_ms)
        excess = sum(sample.total for sample in self._samples) * 1000 / span_ms - limit
        if excess <= 0:
            return 0
        return int(min(THROTTLE_MS_MAX, excess / limit * span_ms + 0.5)) if limit > 0 else THROTTLE_MS_MAX

    def _span_ms(self, now_ms: int) -> int:
        """The time span of the rate: since the oldest sample, but at least all windows but one."""
        samples = self._samples
        while samples and now_ms - samples[0].last_ms >= self.windows * self.window_ms:
            samples.popleft()
        elapsed_ms = now_ms - samples[0].start_ms if samples else 0
        missing = max(0, self.windows - 1 - elapsed_ms // self.window_ms)
        return max(1, elapsed_ms + missing * self.window_ms)


class _Sample:
    """The amount that was recorded since `start_ms`."""

    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = self.last_ms = start_ms
        self.total = 0.0
