"""Long plans of a controller in small and slow turns, so that other events happen between the turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraft_node.base.env import Scheduler
    from kraft_node.controller.controller import Controller


class SlowTurns:
    """Turns with some time between them (see `kraft_node.base.turns`)."""

    def __init__(self, scheduler: Scheduler, delay_ms: int) -> None:
        self._scheduler = scheduler
        self._delay_ms = delay_ms

    def add(self, step: Callable[[], bool]) -> None:
        """Run `step` in `delay_ms` milliseconds, and again after each turn that returns True."""
        self._scheduler.call_later(self._delay_ms, self._run, step)

    def _run(self, step: Callable[[], bool]) -> None:
        if step():
            self.add(step)


def slow_down_plans(controller: Controller, scheduler: Scheduler, turn_ms: int) -> None:
    """Let the controller's long plans change one partition a turn, with that time between the turns."""
    controller.leaders.partitions_a_turn = 1
    controller.in_turns.turns = SlowTurns(scheduler, turn_ms)
