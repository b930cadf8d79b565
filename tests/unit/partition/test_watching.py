"""A defect in one watcher of a partition does not affect the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraft_node.partition.isolation import READ_LOG_END, READ_UNCOMMITTED
from kraft_protocol.errors import ErrorCode
from tests.unit.partition.test_partition import NOW_MS, Rig, state


class Reader:
    """Records its calls; a defective reader raises then."""

    def __init__(self, reported: list[str], name: str, *, fails: bool = False) -> None:
        self.reported, self.name, self.fails = reported, name, fails

    def partition_changed(self, appended_bytes: int) -> None:
        self._note(self.name)

    def high_watermark_moved(self) -> None:
        self._note(f"{self.name}: high watermark")

    def _note(self, what: str) -> None:
        self.reported.append(what)
        if self.fails:
            raise ZeroDivisionError


def watch(rig: Rig, reported: list[str]) -> None:
    for isolation, kind in ((READ_UNCOMMITTED, "reader"), (READ_LOG_END, "follower")):
        for number in range(3):
            rig.partition.watch(Reader(reported, f"{kind} {number}", fails=number == 0), isolation)


READERS = [f"reader {n}" for n in range(3)]
FOLLOWERS = [f"follower {n}" for n in range(3)]


def test_readers_and_followers_after_a_failing_one_learn_of_an_append(tmp_path: Path) -> None:
    rig, reported = Rig(tmp_path), list[str]()
    watch(rig, reported)
    with pytest.raises(ZeroDivisionError):
        rig.append(NOW_MS)
    assert reported == [*READERS, *(f"{name}: high watermark" for name in FOLLOWERS), *FOLLOWERS]
    assert rig.log.end_offset == rig.log.high_watermark == 1


def acks(rig: Rig, reported: list[str]) -> None:
    def done(number: int) -> Callable[[ErrorCode], None]:
        def acknowledged(code: ErrorCode) -> None:
            reported.append(f"producer {number}: {code.name}")
            if not number:
                raise ZeroDivisionError

        return acknowledged

    for number in range(3):
        rig.partition.when_replicated(1, done(number))


def test_producers_and_readers_after_a_failing_one_learn_of_a_high_watermark(tmp_path: Path) -> None:
    rig, reported = Rig(tmp_path, isr=(1, 2)), list[str]()
    rig.append(NOW_MS)
    acks(rig, reported)
    watch(rig, reported)
    with pytest.raises(ZeroDivisionError):
        rig.partition.follower_fetched(2, -1, 1, 0)
    producers = [f"producer {n}: NONE" for n in range(3)]
    assert reported == [*producers, *READERS, *(f"{name}: high watermark" for name in FOLLOWERS)]


@pytest.mark.parametrize("way", ["another leader", "closed"])
def test_lost_leadership_is_reported_to_all(tmp_path: Path, way: str) -> None:
    rig, reported = Rig(tmp_path, isr=(1, 2)), list[str]()
    rig.append(NOW_MS)
    acks(rig, reported)
    watch(rig, reported)
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    ways: dict[str, Callable[[], Any]] = {
        "another leader": lambda: rig.partition.follow(state(leader=2, epoch=1, isr=(2,))),
        "closed": lambda: rig.partition.close(code),
    }
    with pytest.raises(ZeroDivisionError):
        ways[way]()
    assert reported[:3] == [f"producer {n}: {code.name}" for n in range(3)]
    assert set(reported[3:]) >= {*READERS, *FOLLOWERS}


def test_deletions_after_a_failing_one_are_answered(tmp_path: Path) -> None:
    rig, reported = Rig(tmp_path, isr=(1, 2)), list[ErrorCode]()

    def fail(_: ErrorCode) -> None:
        raise ZeroDivisionError

    for done in (fail, reported.append):
        rig.partition.when_deleted(0, done)
    with pytest.raises(ZeroDivisionError):
        rig.partition.follower_fetched(2, -1, 0, 0)
    assert reported == [ErrorCode.NONE]
