"""Replication quotas: rate limits for replicas that catch up (`*.replication.throttled.rate`).

Only partitions listed in their topic's `*.replication.throttled.replicas` are throttled, and only for replicas that
are not in sync, so acknowledgements are never delayed. The rate covers the last eleven seconds, or the time since the
first byte if this time is shorter. Otherwise a move could begin with ten seconds' worth of data at once (Kafka's
SimpleRate). The fetch handler (as leader) and the fetchers (as follower) use it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kraft_node.base.env import Clock

UNLIMITED: Final = (1 << 63) - 1
SAMPLES: Final = 11
"""The default of `quota.window.num` for replication: the number of seconds that the rate covers."""
SAMPLE_MS: Final = 1000
"""The default of `quota.window.size.seconds`."""
EVERYTHING: Final = "*"
LISTS_KEPT: Final = 10_000
"""Topics whose list of throttled replicas is kept in parsed form."""
PAUSE_MS: Final = 200
"""How long a throttled partition pauses before the next attempt."""


class ReplicationQuota:
    """The quota of one direction. `listed(topic)` returns the topic's list of throttled replicas."""

    def __init__(self, clock: Clock, broker_id: int, listed: Callable[[str], str]) -> None:
        self.limit = UNLIMITED
        """Bytes per second."""
        self._clock = clock
        self._broker_id = broker_id
        self._listed = listed
        self._samples: deque[_Sample] = deque()
        """Samples of the last seconds, at most one per second."""

    @property
    def is_active(self) -> bool:
        """Whether a limit is set; without a limit, bytes are not even counted."""
        return self.limit != UNLIMITED

    def holds(self, topic: str, index: int) -> bool:
        """Whether the partition is throttled and the rate is exceeded now."""
        return self.is_active and self.rate() > self.limit and self.applies_to(topic, index)

    def applies_to(self, topic: str, index: int) -> bool:
        """Whether the topic lists this broker's replica of the partition, or all replicas."""
        listed = self._listed(topic).strip()
        if listed == EVERYTHING:
            return True
        return f"{index}:{self._broker_id}" in _entries_of(self._broker_id, listed)

    def record(self, topic: str, index: int, size: int) -> None:
        """Count bytes of the partition that were sent or fetched."""
        if self.is_active and self.applies_to(topic, index):
            now_ms = self._forget()
            if not self._samples or now_ms - self._samples[-1].start_ms >= SAMPLE_MS:
                self._samples.append(_Sample(now_ms))
            self._samples[-1].add(now_ms, size)

    def _forget(self) -> int:
        """Drop old samples. Returns the current time in ms."""
        now_ms = self._clock.monotonic_ms()
        while self._samples and now_ms - self._samples[0].last_ms >= SAMPLES * SAMPLE_MS:
            self._samples.popleft()
        return now_ms

    def rate(self) -> float:
        """Bytes per second."""
        now_ms = self._forget()
        if not self._samples:
            return 0.0
        elapsed_ms = max(SAMPLE_MS, now_ms - self._samples[0].start_ms)
        return sum(sample.size for sample in self._samples) * 1000 / elapsed_ms


@lru_cache(maxsize=LISTS_KEPT)
def _entries_of(broker_id: int, listed: str) -> frozenset[str]:
    """The entries of a broker. Each partition of a fetch asks, and the list names all partitions of its topic."""
    return frozenset(each for entry in listed.split(",") if (each := entry.strip()).endswith(f":{broker_id}"))


class _Sample:
    """Bytes since `start_ms`."""

    __slots__ = ("last_ms", "size", "start_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = self.last_ms = start_ms
        self.size = 0

    def add(self, now_ms: int, size: int) -> None:
        self.last_ms = now_ms
        self.size += size
