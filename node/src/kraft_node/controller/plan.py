"""The result of a manager: the records to append, and the answer to send once they are committed.

A plan that concerns very many partitions is made in turns of the loop. A generator (`Steps`) yields the records of each
turn but the last, and returns the plan of the last turn. Each turn is an append of its own, which is on the overlay
before the generator continues. Other requests are planned between two turns, so a generator must not keep data of
partitions or brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias


class Plan:
    """Records (empty for a query) and the response that is valid once they are committed.

    `atomic`: all records go into one batch, which is committed or lost as a whole. Otherwise they may be split over
    several batches (the records of one turn, when a broker with a million partitions is fenced).
    """

    __slots__ = ("appended", "atomic", "records", "response", "rest")

    def __init__(self, response: Any, records: Sequence[Any] = (), *, atomic: bool = True) -> None:
        self.response = response
        """None if the plan at the end of `rest` has the response."""
        self.records = records
        self.atomic = atomic
        self.appended: Callable[[int], None] | None = None
        """Called with the log's last offset once the records, if any, are appended."""
        self.rest: Steps | None = None
        """The later turns, after the records of this plan are appended."""


Steps: TypeAlias = Generator[list[Any], None, Plan]
"""The turns of a long plan."""

Turns: TypeAlias = Generator[list[Any], None, list[Any]]
"""A part of a long plan: yields the records of each turn but the last, and returns the records of the last."""


def preceded(first: Sequence[Any], turns: Turns) -> Turns:
    """`turns`, with the records `first` at the beginning of the first turn."""
    try:
        records = next(turns)
    except StopIteration as end:
        return [*first, *end.value]
    yield [*first, *records]
    return (yield from turns)


def next_plan(steps: Steps) -> Plan:
    """The plan of the next turn. Its `rest` is `steps` unless it is the last."""
    try:
        records = next(steps)
    except StopIteration as end:
        last: Plan = end.value
        return last
    plan = Plan(None, records, atomic=False)
    plan.rest = steps
    return plan


def steps_of(turns: Turns) -> Steps:
    """The plan of `turns`, without a response."""
    return Plan(None, (yield from turns), atomic=False)
