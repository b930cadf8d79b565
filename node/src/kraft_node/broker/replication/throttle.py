"""Replication quotas: how fast replicas that catch up may be sent and fetched (`*.replication.throttled.rate`).

Only partitions that `*.replication.throttled.replicas` of their topic names are held back, and only towards replicas
that are not in sync: what acknowledgements wait for is never slowed. Rates are bytes a second over eleven seconds, as
Kafka's. Used by the fetch handler (as leader) and by fetchers (as follower).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kraft_node.base.env import Clock

UNLIMITED: Final = (1 << 63) - 1
SAMPLES: Final = 11
"""quota.window.num's default for replication: so many seconds are looked back on."""
EVERYTHING: Final = "*"
PAUSE_MS: Final = 200
"""How long a held-back partition is left out before it is tried again."""


class ReplicationQuota:
    """One direction. `listed(topic)` gives the topic's list of throttled replicas."""

    def __init__(self, clock: Clock, broker_id: int, listed: Callable[[str], str]) -> None:
        self.limit = UNLIMITED
        """Bytes a second."""
        self._clock = clock
        self._broker_id = broker_id
        self._listed = listed
        self._samples: deque[list[int]] = deque(maxlen=SAMPLES)
        """[second, bytes] of the last seconds in which there were any."""

    @property
    def is_active(self) -> bool:
        return self.limit != UNLIMITED

    def holds(self, topic: str, index: int) -> bool:
        """Whether the partition is throttled, and the rate is exceeded now."""
        return self.is_active and self.rate() > self.limit and self.applies_to(topic, index)

    def applies_to(self, topic: str, index: int) -> bool:
        """Whether the topic names this broker's replica of the partition, or all replicas."""
        listed = self._listed(topic).strip()
        if listed == EVERYTHING:
            return True
        return f"{index}:{self._broker_id}" in (entry.strip() for entry in listed.split(","))

    def record(self, topic: str, index: int, size: int) -> None:
        """So many bytes of the partition have been sent or fetched."""
        if self.is_active and self.applies_to(topic, index):
            second = self._clock.monotonic_ms() // 1000
            if self._samples and self._samples[-1][0] == second:
                self._samples[-1][1] += size
            else:
                self._samples.append([second, size])

    def rate(self) -> float:
        """Bytes a second."""
        oldest = self._clock.monotonic_ms() // 1000 - SAMPLES
        return sum(size for second, size in self._samples if second > oldest) / (SAMPLES - 1)
