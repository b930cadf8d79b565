"""What is checked while records are read: each record of each producer once, and in order."""

from __future__ import annotations

import threading
from collections import defaultdict

FINDINGS_MAX = 50


class Sequences:
    """The sequences of producers in the partitions of a topic, as the members of one group read them.

    A member that takes over a partition may read again what another has read; such records are not new.
    """

    def __init__(self, reader: str) -> None:
        self.findings: list[str] = []
        self.read = 0
        """Records, each counted once."""
        self.read_again = 0
        self._reader = reader
        self._next: dict[tuple[str, int], int] = defaultdict(int)
        self._ends: dict[int, int] = defaultdict(int)
        self._lock = threading.Lock()

    def take(self, partition: int, offset: int, value: bytes) -> bool:
        """Check one record; returns whether it is new."""
        name, sequence, _ = value.split(b" ", 2)
        with self._lock:
            if offset < self._ends[partition]:
                self.read_again += 1
                return False
            self._ends[partition] = offset + 1
            self.read += 1
            key = (name.decode(), partition)
            expected, found = self._next[key], int(sequence)
            self._next[key] = found + 1
            if found != expected and len(self.findings) < FINDINGS_MAX:
                kind = "lost" if found > expected else "repeated"
                place = f"{self._reader}: partition {partition}, offset {offset}, producer {key[0]}"
                self.findings.append(f"{kind}: {place}: sequence {found} instead of {expected}")
            return True

    def missing(self, sent: dict[tuple[str, int], int]) -> list[str]:
        """What was not read to its end; `sent` has the number of acknowledged records by producer and partition."""
        with self._lock:
            return [
                f"not read: {self._reader}: {name} in partition {partition}: {self._next[name, partition]} of {count}"
                for (name, partition), count in sorted(sent.items())
                if self._next[name, partition] < count
            ]


class Latencies:
    """Latencies of a kind, in milliseconds, since they were last taken."""

    def __init__(self) -> None:
        self._values: list[float] = []
        self._lock = threading.Lock()

    def add(self, value_ms: float) -> None:
        with self._lock:
            self._values.append(value_ms)

    def taken(self) -> tuple[int, float, float, float]:
        """Their number, median, 99th percentile and maximum; they are forgotten."""
        with self._lock:
            values, self._values = sorted(self._values), []
        if not values:
            return 0, 0.0, 0.0, 0.0
        return len(values), values[len(values) // 2], values[len(values) * 99 // 100], values[-1]
