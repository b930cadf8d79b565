"""The active controller's periodic work.

Started when the node becomes leader, stopped when it no longer is. A task that finds more work than one turn allows
runs again at once, after other waiting work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kraft_node.base.env import Clock, Scheduler, Timer


class PeriodicTask(NamedTuple):
    """A periodic task. `run` gets its delay in milliseconds and returns whether to run again at once."""

    name: str
    period_ms: int
    run: Callable[[int], bool]


class Periodic:
    """Runs tasks."""

    __slots__ = ("_clock", "_scheduler", "_tasks", "_timers")

    def __init__(self, clock: Clock, scheduler: Scheduler, tasks: list[PeriodicTask]) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._tasks = [task for task in tasks if task.period_ms > 0]
        self._timers: dict[str, Timer] = {}

    def start(self) -> None:
        """Start all timers anew."""
        self.stop()
        for task in self._tasks:
            self._arm(task, task.period_ms)

    def stop(self) -> None:
        """Cancel all timers. A task that is running finishes its turn and is not scheduled again."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _arm(self, task: PeriodicTask, delay_ms: int) -> None:
        due_ms = self._clock.monotonic_ms() + delay_ms
        self._timers[task.name] = self._scheduler.call_later(delay_ms, self._run, task, due_ms)

    def _run(self, task: PeriodicTask, due_ms: int) -> None:
        if task.name not in self._timers:
            return  # stopped after this call was scheduled
        again = task.run(max(0, self._clock.monotonic_ms() - due_ms))
        if task.name in self._timers:
            self._arm(task, 0 if again else task.period_ms)
