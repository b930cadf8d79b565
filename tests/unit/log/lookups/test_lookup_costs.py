"""The cost of a look-up by time: the files of closed segments are read once."""

from __future__ import annotations

import pytest

from kraft_node.log import lookup, names
from kraft_node.log.config import make_config
from kraft_node.log.log import Log
from kraft_node.log.segments.scan import batches
from kraft_node.log.segments.segment import Segment
from kraft_node.log.timestamps import TimesUnread, read_times
from tests.unit.log.node import ID, Node
from tests.unit.log.world import NOW, LogWorld, batch

SEGMENTS = 12
SMALL = {"segment.bytes": "1048576", "max.message.bytes": "1000000"}


def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The segments whose index files have been read so far."""
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


def with_doubts(values: int) -> tuple[Node, Log]:
    """A log of one large segment whose timestamps are constant, after a loss of power."""
    node = Node()
    manager = node.start(lambda _: make_config({"max.message.bytes": "1000000"}))
    log = manager.create("t", 0, ID)
    for _ in range(values):
        log.append_as_leader(batch(b"x" * 300_000), 0, NOW)
    log.high_watermark = log.end_offset
    log.active.write_indexes()
    for suffix in (".index", ".timeindex"):
        node.disk.open(log.active.path(suffix)).fsync()
    node.disk.fsync_dir(log.path)
    log.flush()
    manager.checkpoint_all()
    node.rest(10_000)
    node.kill()
    node.disk.lose_power()
    manager = node.start(lambda _: make_config({"max.message.bytes": "1000000"}))
    manager.recovery.inline_bytes_max = 1 << 40
    found = manager.get("t", 0)
    assert found is not None
    return node, found


def test_recovery_after_a_power_loss_verifies_constant_timestamps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up reads no batch headers on the event loop for it."""
    node, log = with_doubts(8)
    assert log.active.time_count < log.active.index_count
    at: list[int] = []
    monkeypatch.setattr(lookup, "batches", lambda file, start, end: at.append(start) or batches(file, start, end))
    assert log.offset_for_timestamp(NOW, 8) == (NOW, 0)
    assert log.offset_for_timestamp(NOW + 1, 8) is None
    assert at == [0]
    node.kill()


def test_a_shortened_time_index_is_rebuilt_even_after_new_entries() -> None:
    """Entries that recovery added after the lost one hid the loss."""
    node = Node()
    config = make_config({"index.interval.bytes": "0"})
    log = node.start(lambda _: config).create("t", 0, ID)
    log.append_as_leader(batch(b"first", timestamp=NOW + 1000), 0, NOW)
    log.append_as_leader(batch(b"second"), 0, NOW)
    log.high_watermark = 2
    log.active.write_indexes()
    log.flush()
    node.manager.checkpoint_all()
    node.rest(10_000)
    log.append_as_leader(batch(b"third", timestamp=NOW + 5), 0, NOW)
    path = log.active.path(".timeindex")
    node.kill()
    node.disk.lose_power()
    node.disk.open(path).truncate(0)
    again = node.start(lambda _: config).get("t", 0)
    assert again is not None
    again.append_as_leader(batch(b"fourth", timestamp=NOW + 7), 0, NOW)
    again.active.write_indexes()
    assert again.offset_for_timestamp(NOW + 1000) == (NOW + 1000, 0)
    assert again.offset_for_timestamp(-3) == (NOW + 1000, 0)


LAST_SEGMENTS = 12
"""More than the closed segments that a log keeps as objects."""


def with_a_short_time_index() -> tuple[Node, Log]:
    """A log of many segments after a loss of power, which has shortened the time index where the recovery point is."""
    node = Node()
    config = make_config({"index.interval.bytes": "0", "internal.segment.bytes": "600", "segment.index.bytes": "1000"})
    log = node.start(lambda _: config).create("t", 0, ID)
    log.append_as_leader(batch(b"first", timestamp=NOW + 1000), 0, NOW)
    log.append_as_leader(batch(b"second"), 0, NOW)
    log.high_watermark = 2
    log.flush()
    node.manager.checkpoint_all()
    node.rest(10_000)
    while len(log.segments) < LAST_SEGMENTS:
        log.append_as_leader(batch(b"later" * 20), 0, NOW)
    node.kill()
    node.disk.open(f"{log.path}/{0:020d}.timeindex").truncate(0)
    node.disk.remove(f"/d1/{names.BOOT}")  # as after a boot
    manager = node.start(lambda _: config)
    manager.recovery.inline_bytes_max = 1 << 40
    again = manager.get("t", 0)
    assert again is not None
    return node, again


def test_times_of_a_closed_segment_are_verified_after_a_power_loss() -> None:
    """The doubt was forgotten after eight other segments had been used, or the log had been closed."""
    _, log = with_a_short_time_index()
    assert log.offset_for_timestamp(NOW + 1000) == (NOW + 1000, 0)
    assert log.offset_for_timestamp(-3) == (NOW + 1000, 0)


def test_the_lane_does_not_trust_a_shortened_time_index() -> None:
    node, log = with_a_short_time_index()
    with pytest.raises(TimesUnread):
        log.offset_for_timestamp(NOW + 1000, 8)
    read_times(log, lambda: None)
    node.rest()
    assert log.offset_for_timestamp(NOW + 1000, 8) == (NOW + 1000, 0)


def test_a_reopened_log_has_all_its_timestamps() -> None:
    node, log = with_a_short_time_index()
    node.stop()
    again = node.start(lambda _: log.config).get("t", 0)
    assert again is not None
    assert again.offset_for_timestamp(NOW + 1000) == (NOW + 1000, 0)


def test_a_log_deleted_during_its_look_up_leaves_its_directory_online() -> None:
    """The lane found no files under the old name, which counted as an I/O error of the directory."""
    node, log = with_a_short_time_index()
    with pytest.raises(TimesUnread):
        log.offset_for_timestamp(NOW + 1000, 8)
    done: list[int] = []
    read_times(log, lambda: done.append(1))
    node.manager.delete("t", 0)
    node.rest()
    assert done == [1]
    assert node.manager.directories[0].online
    assert not node.failures
