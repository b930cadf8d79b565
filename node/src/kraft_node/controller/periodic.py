"""What the active controller does by itself from time to time.

Started when leadership comes, stopped when it goes. A task that finds more to do than one turn allows is run again at
once, after whatever else waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kraft_node.base.env import Clock, Scheduler, Timer


class Task(NamedTuple):
    """`run` is told by how many milliseconds it comes too late; returns whether to run again at once."""

    name: str
    period_ms: int
    run: Callable[[int], bool]


class Periodic:
    """Runs tasks."""

    __slots__ = ("_clock", "_scheduler", "_tasks", "_timers")

    def __init__(self, clock: Clock, scheduler: Scheduler, tasks: list[Task]) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._tasks = [task for task in tasks if task.period_ms > 0]
        self._timers: dict[str, Timer] = {}

    def start(self) -> None:
        self.stop()
        for task in self._tasks:
            self._arm(task, task.period_ms)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _arm(self, task: Task, delay_ms: int) -> None:
        due_ms = self._clock.monotonic_ms() + delay_ms
        self._timers[task.name] = self._scheduler.call_later(delay_ms, self._run, task, due_ms)

    def _run(self, task: Task, due_ms: int) -> None:
        if task.name not in self._timers:
            return  # stopped while this call was already on its way
        again = task.run(max(0, self._clock.monotonic_ms() - due_ms))
        if task.name in self._timers:
            self._arm(task, 0 if again else task.period_ms)
