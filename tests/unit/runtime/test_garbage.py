"""Full collections wait for long jobs, and long jobs look through the young objects."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraft_node.base.turns import TURN_MS, Line
from kraft_node.runtime.garbage import FULL, LOOK_MS, MIDDLE, NEVER, REST, WAIT_MAX_MS, Garbage

TOOK_MS = 45


class Rig:
    """One loop with its line; `looks` has the generation of each collection."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.done = 0
        self.looks: list[int] = []
        self.soon: list[Callable[[], None]] = []
        self.timers: list[Callable[[], None]] = []
        loop: Any = self
        self.line = Line(loop.monotonic_ms, loop.call_soon)
        Garbage(self.line, loop, loop).start()
        self.looks.clear()

    def monotonic_ms(self) -> int:
        return self.now_ms

    def call_soon(self, function: Callable[[], None]) -> None:
        self.soon.append(function)

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> None:
        assert delay_ms == LOOK_MS
        self.timers.append(function)

    def collect(self, generation: int = 2) -> int:
        self.looks.append(generation)
        if generation == 2:
            self.done = 0
            self.now_ms += TOOK_MS
        return 0

    def pass_time(self) -> None:
        """The next check whether a full collection is due."""
        self.now_ms += LOOK_MS
        timers, self.timers = self.timers, []
        for function in timers:
            function()

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for function in soon:
            function()


class Job:
    """An owner whose jobs take `step_ms` each, until it is told to end."""

    def __init__(self, rig: Rig, step_ms: int) -> None:
        self.rig, self.step_ms, self.ends = rig, step_ms, False
        self.latest = None
        owner: Any = self
        rig.line.add(owner)

    def take_step(self) -> None:
        self.rig.now_ms += self.step_ms

    def goes_on(self) -> bool:
        return not self.ends


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    thresholds, was_enabled = gc.get_threshold(), gc.isenabled()
    made: list[Rig] = []
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(gc, "collect", lambda generation=2: made[0].collect(generation) if made else 0)
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, made[0].done))
    made.append(Rig())
    assert gc.get_threshold()[2] == NEVER
    yield made[0]
    gc.set_threshold(*thresholds)
    if not was_enabled:
        gc.disable()


def test_a_long_turn_ends_with_a_look_through_the_young_objects(rig: Rig) -> None:
    Job(rig, TURN_MS)
    for _ in range(2 * MIDDLE):
        rig.turn()
    assert rig.looks == [*[0] * (MIDDLE - 1), 1] * 2


def test_a_short_turn_costs_nothing(rig: Rig) -> None:
    job = Job(rig, 0)
    job.ends = True
    rig.turn()
    assert rig.looks == []


def test_a_full_collection_waits_for_long_jobs(rig: Rig) -> None:
    job = Job(rig, 0)
    rig.done = FULL
    rig.pass_time()
    assert rig.looks == []
    job.ends = True
    rig.turn()
    rig.pass_time()
    assert rig.looks == [2]


def test_jobs_without_end_delay_a_full_collection_for_minutes_only(rig: Rig) -> None:
    Job(rig, 0)
    rig.done = FULL
    for _ in range(WAIT_MAX_MS // LOOK_MS + 1):
        assert rig.looks == []
        rig.pass_time()
    assert rig.looks == [2]


def test_full_collections_take_a_thousandth_of_the_time(rig: Rig) -> None:
    rig.done = FULL - 1
    rig.pass_time()
    assert rig.looks == []
    began_ms = rig.now_ms
    for _ in range(100):
        rig.done = FULL
        rig.pass_time()
    most = (rig.now_ms - began_ms) / (REST * TOOK_MS) + 1
    assert most / 2 < rig.looks.count(2) <= most
