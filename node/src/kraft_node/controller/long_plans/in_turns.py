"""Long plans of the active controller: the turns after the first turn (see `plan`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from kraft_node.controller.plan import Plan, Steps, next_plan
from kraft_protocol.errors import KafkaError


class TakesTurns(Protocol):
    """`base.turns.Turns`, or slower turns in simulations."""

    def add(self, step: Callable[[], bool]) -> None:
        """Call `step` in a later turn, and again in later turns as long as it returns True."""


class PlanWriter(Protocol):
    """The controller, for long plans."""

    epoch: int | None

    def planned(self, what: str, planner: Callable[[], Plan]) -> Plan:
        """The plan that `planner` returns. Raises KafkaError, for a defect of the planner, too."""

    def write(self, plan: Plan) -> None:
        """Append the plan's records. Raises KafkaError."""

    def not_controller(self) -> KafkaError:
        """The error NOT_CONTROLLER for requests that the epoch's end has interrupted."""
        ...


class InTurns:
    """Carries out long plans."""

    __slots__ = ("_writer", "turns", "under_way")

    def __init__(self, turns: TakesTurns, writer: PlanWriter) -> None:
        self.turns = turns
        self._writer = writer
        self.under_way = 0
        """Number of plans that are not complete."""

    def add(self, steps: Steps, done: Callable[[Plan | KafkaError], None]) -> None:
        """Write the plans of `steps` in turns, then call `done` with the last plan.

        `done` gets the error if a turn is refused, or if the controller's epoch ends; nothing follows then. Records of
        earlier turns stay.
        """
        epoch = self._writer.epoch
        self.under_way += 1

        def step() -> bool:
            outcome = self._turn(steps, epoch)
            if isinstance(outcome, Plan) and outcome.rest is not None:
                return True
            self.under_way -= 1
            steps.close()
            done(outcome)
            return False

        self.turns.add(step)

    def _turn(self, steps: Steps, epoch: int | None) -> Plan | KafkaError:
        if self._writer.epoch != epoch:
            return self._writer.not_controller()
        try:
            plan = self._writer.planned("planning in turns", partial(next_plan, steps))
            self._writer.write(plan)
        except KafkaError as e:  # nothing of this turn is in the log
            return e
        return plan
