"""Pods and partitions of the small world."""

from __future__ import annotations

from dataclasses import dataclass

START_TICKS = 2
"""Ticks until a pod is ready."""


@dataclass
class Pod:
    aspects: dict[str, str]
    disk: int
    age: int = 0
    stopping: int | None = None
    broken: bool = False
    """Its container never starts."""
    missing: str = ""
    """Its configuration, where that is gone and cannot be restored."""

    @property
    def ready(self) -> bool:
        return not self.broken and self.stopping is None and self.age >= START_TICKS

    @property
    def voters(self) -> tuple[int, ...]:
        return tuple(int(word) for word in self.aspects.get("voters", "").split(",") if word)

    def has(self, role: str) -> bool:
        return role in self.aspects["roles"].split(",")


@dataclass
class Partition:
    replicas: tuple[int, ...]
    isr: set[int]
    min_isr: int = 2
    target: tuple[int, ...] = ()
    ticks: int = 0
