"""The law `aged`: a replica deletes a record only if it is older than `retention.ms` by the replica's clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft_node.base.config.resources import TOPIC_RESOURCE
from kraft_node.log.log import Log
from kraft_node.testing.checker import Checker
from kraft_node.testing.whole.aged import TOPIC, AgeLaw
from kraft_node.testing.world import START_WALL_MS, World

RETENTION_MS = 1_000
WRITTEN = {0: 0, 1: 100, 2: 900, 3: 200}
"""By offset; the record at 3 is backdated."""


class _Rig:
    """Machines with one log each."""

    def __init__(self, count: int = 2) -> None:
        self.world = World(1)
        self.checker = Checker(self.world)
        self.requested = {RETENTION_MS}
        self.machines: list[Any] = [self._machine(f"b{number}") for number in range(count)]
        times = {offset: START_WALL_MS + at for offset, at in WRITTEN.items()}
        self.law = AgeLaw(self.checker, self.machines, times, self.requested)
        self.law.look()

    def _machine(self, name: str) -> Any:
        host = SimpleNamespace(rate=1.0, wall_shift_ms=0)
        machine = SimpleNamespace(name=name, host=host, world=self.world, log=None)
        self.open(machine, 0)
        return machine

    def open(self, machine: Any, start: int, retention: str = str(RETENTION_MS)) -> None:
        """Start a process, with a log that begins at `start`."""
        log = machine.log = Log.__new__(Log)
        log.start_offset = start
        machine.configs = {(TOPIC_RESOURCE, TOPIC): {"retention.ms": retention}}
        broker = SimpleNamespace(image=SimpleNamespace(configs=machine.configs))
        logs = SimpleNamespace(entry=lambda *_: log)
        machine.node = SimpleNamespace(storage=SimpleNamespace(logs=logs), broker=broker)

    def delete(self, machine: int, start: int, at_ms: float) -> list[str]:
        """The laws broken so far, after a machine has deleted records."""
        self.world.now_ms = at_ms
        self.machines[machine].log.start_offset = start
        self.law.look()
        return [finding.law for finding in self.checker.findings]


@pytest.mark.parametrize(("at_ms", "broken"), [(1_101, []), (1_100, ["aged"])])
def test_a_record_may_be_deleted_once_it_is_older_than_the_retention(at_ms: float, broken: list[str]) -> None:
    assert _Rig().delete(0, 2, at_ms) == broken


def test_a_backdated_record_must_not_take_a_younger_one_with_it() -> None:
    assert _Rig().delete(0, 4, 1_500) == ["aged"]


@pytest.mark.parametrize(("rate", "broken"), [(1.2, []), (0.8, ["aged"])])
def test_the_clock_of_the_machine_decides(rate: float, broken: list[str]) -> None:
    rig = _Rig()
    rig.machines[0].host.rate = rate
    assert rig.delete(0, 2, 1_100) == broken


def test_a_calendar_that_jumped_back_keeps_records() -> None:
    rig = _Rig()
    rig.machines[0].host.wall_shift_ms = -60_000
    assert rig.delete(0, 1, 10_000) == ["aged"]


def test_a_follower_may_delete_what_its_leader_has_deleted() -> None:
    rig = _Rig()
    rig.machines[0].host.wall_shift_ms = 60_000
    assert rig.delete(0, 4, 1_000) == []
    assert rig.delete(1, 4, 1_000) == []


def test_a_raised_retention_counts_at_once() -> None:
    rig = _Rig()
    rig.machines[0].configs[TOPIC_RESOURCE, TOPIC]["retention.ms"] = "5000"
    rig.law.look()
    assert rig.delete(0, 1, 1_500) == ["aged"]


def test_a_process_that_died_may_have_deleted_before_its_calendar_jumped_back() -> None:
    rig = _Rig()
    rig.machines[0].node, rig.world.now_ms = None, 1_101
    rig.law.look()
    rig.machines[0].host.wall_shift_ms = -60_000
    rig.open(rig.machines[0], 2)
    assert rig.delete(0, 2, 1_200) == []
    assert rig.delete(0, 3, 10_000) == ["aged"]
