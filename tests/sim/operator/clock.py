"""An event loop whose time passes only while no callback is due: deadlines and sleeps of minutes take no time."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class _Selector(selectors.SelectSelector):
    """Never waits: adds the waiting time to the loop's time."""

    loop: SimLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "everybody waits, and nothing is to come"
        self.loop.now += max(0.0, timeout)
        return super().select(0)


class SimLoop(asyncio.SelectorEventLoop):
    """`asyncio` in simulated seconds."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.now = 1000.0
        super().__init__(selector)

    def time(self) -> float:
        return self.now
