"""What a look-up by time costs: the files of closed segments are read once."""

from __future__ import annotations

import pytest

from kraft_node.log.segment import Segment
from tests.unit.log.world import NOW, LogWorld, batch

SEGMENTS = 12
SMALL = {"segment.bytes": "1048576", "max.message.bytes": "1000000"}


def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The segments whose index files have been looked at so far."""
    seen: list[int] = []
    real = Segment.load_index

    def counted(self: Segment) -> None:
        if self.index_count < 0:
            seen.append(self.base)
        real(self)

    monkeypatch.setattr(Segment, "load_index", counted)
    return seen


def test_look_ups_by_time_read_a_closed_segment_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = LogWorld()
    log = world.open(SMALL)
    for number in range(SEGMENTS):
        log.append_as_leader(batch(b"x" * 600_000, timestamp=NOW + number), 0, NOW)
    log.close()
    log = world.open(SMALL)
    assert len(log.segment_bases) == SEGMENTS
    seen = loads(monkeypatch)
    assert log.offset_for_timestamp(NOW + SEGMENTS) is None
    assert len(seen) <= SEGMENTS
    seen.clear()
    for number in range(SEGMENTS):
        assert log.offset_for_timestamp(NOW + number) == (NOW + number, number)
        assert log.offset_for_timestamp(NOW + SEGMENTS) is None
    assert len(seen) <= SEGMENTS, "only the segment that holds the answer is looked into"


def test_look_ups_by_time_follow_cuts_and_appends() -> None:
    log = LogWorld().open(SMALL)
    for number in range(6):
        log.append_as_leader(batch(b"x" * 600_000, timestamp=NOW + number), 0, NOW)
    assert log.offset_for_timestamp(NOW + 100) is None
    log.truncate_to(3)
    assert log.offset_for_timestamp(NOW + 3) is None
    for number in range(3):
        log.append_as_leader(batch(b"y" * 600_000, timestamp=NOW + 100 + number), 1, NOW)
    assert log.offset_for_timestamp(NOW + 100) == (NOW + 100, 3)
    assert log.offset_for_timestamp(NOW + 102) == (NOW + 102, 5)
