"""Very many watchers of one partition: an append costs the same however many wait, and every watcher sees it."""

from __future__ import annotations

import random

import pytest

from kraft_node.base.turns import Turns
from kraft_node.partition import watching
from kraft_node.partition.watching import FEW, TOLD_A_STEP, Crowd, Watchers, added, removed
from tests.unit.broker.world import Loop, make_env


class Reader:
    def __init__(self, number: int = 0, *, fails: bool = False) -> None:
        self.number = number
        self.fails = fails
        self.reported: list[int] = []

    def partition_changed(self, appended_bytes: int) -> None:
        self.reported.append(appended_bytes)
        if self.fails:
            raise ZeroDivisionError

    def high_watermark_moved(self) -> None: ...


class Rig:
    def __init__(self) -> None:
        self.loop = Loop()
        self.turns = Turns(make_env(self.loop))

    def crowd(self, readers: list[Reader]) -> Crowd:
        watchers: Watchers = None
        for reader in readers:
            watchers = added(watchers, reader, self.turns)
        assert isinstance(watchers, Crowd)
        return watchers


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_an_append_notifies_a_crowd_in_turns(rig: Rig) -> None:
    readers = [Reader() for _ in range(1000)]
    crowd = rig.crowd(readers)
    crowd.notify(10)
    assert not any(reader.reported for reader in readers), "that is for the turns"
    rig.loop.run()
    assert all(reader.reported == [10] for reader in readers)
    assert not crowd


def test_a_late_member_learns_of_later_appends_only(rig: Rig) -> None:
    early, late = [Reader() for _ in range(FEW + 1)], Reader()
    crowd = rig.crowd(early)
    crowd.notify(10)
    crowd.add(late)
    crowd.notify(5)
    rig.loop.run()
    assert all(reader.reported == [15] for reader in early)
    assert late.reported == [5]


def test_a_member_that_watches_again_waits_for_the_next_append(rig: Rig) -> None:
    readers = [Reader() for _ in range(FEW + 1)]
    crowd = rig.crowd(readers)
    crowd.notify(10)
    rig.loop.run()
    crowd.add(readers[0])
    rig.loop.run()
    assert readers[0].reported == [10]
    crowd.notify(3)
    rig.loop.run()
    assert readers[0].reported == [10, 3]


def test_other_changes_override_appends(rig: Rig) -> None:
    readers = [Reader() for _ in range(FEW + 1)]
    crowd = rig.crowd(readers)
    crowd.notify(10)
    crowd.notify(0)
    crowd.notify(7)
    rig.loop.run()
    assert all(reader.reported == [0] for reader in readers)


def test_a_member_that_leaves_before_its_turn_is_not_notified(rig: Rig) -> None:
    readers = [Reader() for _ in range(FEW + 1)]
    crowd = rig.crowd(readers)
    crowd.notify(10)
    assert removed(crowd, readers[3]) is crowd
    rig.loop.run()
    assert [reader.number for reader in readers if not reader.reported] == [0]
    assert not readers[3].reported


def test_members_after_a_failing_one_are_notified(rig: Rig) -> None:
    readers = [Reader(fails=number % 40 == 0) for number in range(4 * TOLD_A_STEP)]
    rig.crowd(readers).notify(10)
    failures = 0
    while any(not reader.reported for reader in readers):
        try:
            rig.loop.run()
        except ZeroDivisionError:
            failures += 1
    assert failures
    assert all(reader.reported == [10] for reader in readers)


@pytest.mark.parametrize("seed", range(20))
def test_each_member_is_notified_once_of_all_appends_since_it_joined(
    rig: Rig, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "TOLD_A_STEP", 2)
    rng = random.Random(seed)
    readers = [Reader(number) for number in range(200)]
    crowd = rig.crowd(readers)
    grown = 0
    began = dict.fromkeys(readers, 0)
    for _ in range(400):
        what = rng.randrange(4)
        reader = rng.choice(readers)
        if what == 0:
            size = rng.randint(1, 100)
            grown += size
            crowd.notify(size)
        elif what == 1 and reader in began:
            crowd.discard(reader)
            del began[reader]
        elif what == 2 and reader not in began:
            crowd.add(reader)
            began[reader] = grown
        else:
            rig.loop.turn()
        for member in list(began):
            if member.reported:
                assert member.reported == [grown - began.pop(member)]
                member.reported.clear()
    rig.loop.run()
    assert all(bool(reader.reported) == (reader in began and began[reader] < grown) for reader in readers)


def test_a_patient_member_is_notified_once_there_is_enough(rig: Rig) -> None:
    crowd, patient = rig.crowd([Reader() for _ in range(FEW + 1)]), Reader()
    crowd.notify(7)
    crowd.add(patient, 100)
    for _ in range(9):
        crowd.notify(11)
    rig.loop.run()
    assert not patient.reported
    crowd.notify(1)
    rig.loop.run()
    assert patient.reported == [100]
    assert not crowd


def test_a_patient_member_learns_of_other_changes_at_once(rig: Rig) -> None:
    crowd, patient = rig.crowd([Reader() for _ in range(FEW + 1)]), Reader()
    crowd.add(patient, 100)
    crowd.notify(0)
    rig.loop.run()
    assert patient.reported == [0]
    crowd.add(patient, 100)
    crowd.notify(99)
    rig.loop.run()
    assert patient.reported == [0]


def test_changes_before_a_turn_do_not_add_up(rig: Rig) -> None:
    """With followers each move of the high watermark is such a change, and a turn notifies 32 members."""
    crowd, readers = rig.crowd([Reader() for _ in range(FEW + 1)]), [Reader() for _ in range(100)]
    for reader in readers:
        crowd.add(reader, 1000)
    for _ in range(50):
        crowd.notify(0)
    assert len(crowd._due) == 100
    rig.loop.run()
    assert all(reader.reported == [0] for reader in readers)


def test_patient_members_that_leave_are_forgotten(rig: Rig) -> None:
    crowd = rig.crowd([Reader() for _ in range(FEW + 1)])
    readers = [Reader() for _ in range(1000)]
    for reader in readers:
        crowd.add(reader, 100)
    for reader in readers[1:]:
        crowd.discard(reader)
    assert len(crowd._heap) <= 2 + watching.LEFT_MAX
    crowd.notify(100)
    rig.loop.run()
    assert [len(reader.reported) for reader in readers] == [1] + [0] * 999


@pytest.mark.parametrize("seed", range(20))
def test_each_patient_member_is_notified_once_and_not_too_early(
    rig: Rig, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "TOLD_A_STEP", 2)
    monkeypatch.setattr(watching, "LEFT_MAX", 4)
    rng = random.Random(seed)
    readers = [Reader(number) for number in range(100)]
    crowd = rig.crowd([Reader() for _ in range(FEW + 1)])
    grown = changed = 0
    began: dict[Reader, tuple[int, int]] = {}
    for _ in range(600):
        what = rng.randrange(5)
        reader = rng.choice(readers)
        if what == 0:
            size = rng.randint(1, 100)
            grown += size
            crowd.notify(size)
        elif what == 1 and rng.random() < 0.1:
            grown += 1
            changed = grown
            crowd.notify(0)
        elif what == 2:
            crowd.discard(reader)
            began.pop(reader, None)
        elif what == 3 and reader not in began:
            missing = rng.choice((1, 50, 300))
            crowd.add(reader, missing)
            began[reader] = (grown, missing)
        else:
            rig.loop.turn()
        for member in list(began):
            if member.reported:
                since, missing = began.pop(member)
                assert member.reported == [0 if since < changed else grown - since]
                assert since < changed or grown - since >= missing
                member.reported.clear()
    rig.loop.run()
    for member, (since, missing) in began.items():
        assert bool(member.reported) == (since < changed or grown - since >= missing)
