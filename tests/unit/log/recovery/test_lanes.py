"""Work that grows with segments or logs is not done in one event: the loop's disk operations are counted."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest

from kraft_node.log.checkpoints.offsets import CheckpointText, parse_offsets
from kraft_node.log.config import make_config
from kraft_node.log.errors import CutLater
from kraft_node.log.log import Log
from kraft_node.log.manager.log_manager import LogManager
from kraft_node.log.timestamps import UNREAD_MAX, TimesUnread, read_times
from kraft_protocol.errors import KafkaError
from tests.unit.log.node import ID, Node
from tests.unit.log.world import NOW, LogWorld, batch

TINY = {"internal.segment.bytes": "100", "file.delete.delay.ms": "0"}
SEGMENTS = 300
OPERATIONS_MAX = 500


class Spending:
    """The most disk operations of one event on a node's loop."""

    def __init__(self, node: Node | LogWorld) -> None:
        self.operations = self.checkpoints = 0
        node.world.on_spent = lambda _host, spent, _function: self.note(spent.operations, spent.checkpoints)

    def note(self, operations: int, checkpoints: int) -> None:
        self.operations = max(self.operations, operations)
        self.checkpoints += checkpoints


def filled(log: Log) -> Log:
    for number in range(SEGMENTS):
        log.append_as_leader(batch(b"v" * 60, timestamp=NOW + number), 0, NOW)
    log.high_watermark = log.end_offset
    return log


def test_retention_of_many_segments_takes_many_events() -> None:
    node = Node()
    config = make_config({**TINY, "retention.ms": "-1", "retention.bytes": "0"})
    manager = node.start(lambda _: config)
    filled(manager.create("t", 0, ID))
    spending = Spending(node)
    node.rest(1_000_000)
    log = manager.get("t", 0)
    assert log is not None
    assert log.segment_bases == [SEGMENTS], "all has gone"
    assert spending.operations < OPERATIONS_MAX


def test_retention_closes_a_log_that_it_opened() -> None:
    node = Node()
    config = make_config({**TINY, "retention.ms": "-1", "retention.bytes": "0"})
    filled(node.start(lambda _: config).create("t", 0, ID))
    node.stop()
    manager = node.start(lambda _: config)
    node.rest(1_000_000)
    assert not isinstance(manager.entry("t", 0), Log)
    log = manager.get("t", 0)
    assert log is not None
    assert log.start_offset == SEGMENTS


def test_records_are_deleted_in_steps() -> None:
    world = LogWorld()
    log = filled(world.open(TINY))
    spending = Spending(world)
    world.disk.spent.clear()
    log.delete_records(SEGMENTS - 1, 16)
    assert world.disk.spent.operations < OPERATIONS_MAX
    assert log.start_offset == SEGMENTS - 1, "readers see it at once"
    assert len(log.segments) == SEGMENTS - 16
    world.rest()
    assert len(log.segments) == 1
    assert spending.operations < OPERATIONS_MAX


def test_the_times_of_many_segments_are_read_in_a_lane() -> None:
    world = LogWorld()
    filled(world.open(TINY)).close()
    log = world.open(TINY)
    world.disk.spent.clear()
    reported: list[int] = []
    try:
        log.offset_for_timestamp(NOW + 250, UNREAD_MAX)
    except TimesUnread as unread:
        read_times(unread.log, lambda: reported.append(1))
    assert world.disk.spent.operations == 0
    world.rest()
    assert reported == [1]
    world.disk.spent.clear()
    assert log.offset_for_timestamp(NOW + 250, UNREAD_MAX) == (NOW + 250, 250)
    assert log.offset_for_timestamp(-3, UNREAD_MAX) == (NOW + SEGMENTS - 1, SEGMENTS - 1)
    assert world.disk.spent.operations < 40


def test_the_times_of_rolled_segments_are_in_memory() -> None:
    world = LogWorld()
    log = filled(world.open(TINY))
    world.disk.spent.clear()
    assert log.offset_for_timestamp(NOW + SEGMENTS, UNREAD_MAX) is None
    assert world.disk.spent.operations == 0


def test_the_largest_time_of_a_growing_segment_is_updated_incrementally() -> None:
    world = LogWorld()
    log = world.open()
    for number in range(10):
        log.append_as_leader(batch(b"v", timestamp=NOW + (50 if number == 0 else number)), 0, NOW)
    log.high_watermark = log.end_offset
    log.delete_records(1)
    assert log.offset_for_timestamp(-3) == (NOW + 9, 9)
    log.append_as_leader(batch(b"v", timestamp=NOW + 20), 0, NOW)
    assert log.offset_for_timestamp(-3) == (NOW + 20, 10)
    assert log.partial_times is not None
    assert log.partial_times.position == log.active.size


def test_a_segment_that_a_lane_cannot_read_is_read_on_the_loop() -> None:
    world = LogWorld()
    filled(world.open(TINY)).close()
    world.disk.remove("/data/t-0/00000000000000000007.timeindex")
    log = world.open(TINY)
    read_times(log, lambda: None)
    world.rest()
    assert log.offset_for_timestamp(NOW + 7, UNREAD_MAX) == (NOW + 7, 7)


def test_segments_without_indexes_are_read_in_the_lane() -> None:
    """They stayed unread, and look-ups were answered with "try again" forever."""
    world = LogWorld()
    filled(world.open(TINY)).close()
    for base in range(0, SEGMENTS, 2):
        world.disk.remove(f"/data/t-0/{base:020d}.timeindex")
    log = world.open(TINY)
    read_times(log, lambda: None)
    world.rest()
    assert log.offset_for_timestamp(NOW + 250, UNREAD_MAX) == (NOW + 250, 250)


def test_the_first_segment_is_read_without_its_index() -> None:
    world = LogWorld()
    log = world.open()
    for number in range(10):
        log.append_as_leader(batch(b"v", timestamp=NOW + number), 0, NOW)
    log.high_watermark = log.end_offset
    log.roll(log.end_offset)
    log.close()
    world.disk.remove("/data/t-0/00000000000000000000.index")
    log = world.open(start_offset=3)
    read_times(log, lambda: None)
    world.rest()
    assert log.partial_times is not None
    assert log.partial_times.largest == NOW + 9


def test_damage_that_a_lane_finds_ends_the_replica() -> None:
    world = LogWorld()
    filled(world.open(TINY)).close()
    for base in range(0, SEGMENTS, 2):
        world.disk.remove(f"/data/t-0/{base:020d}.timeindex")
        world.disk.flip(f"/data/t-0/{base:020d}.log", 16, 7)  # the format of the batch
    log = world.open(TINY)
    read_times(log, lambda: None)
    world.rest()
    assert log.dir.failed is not None
    assert "no batch" in str(log.dir.failed)


class _Lane:
    """Background work that a test finishes."""

    def __init__(self) -> None:
        self.jobs: list[Any] = []

    def submit(self, _lane: str, work: Any, done: Any) -> None:
        self.jobs.append((work, done))


def test_times_of_files_that_compaction_replaced_meanwhile_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A merged segment got the largest timestamp of its first part: look-ups passed over newer records."""
    world = LogWorld()
    filled(world.open(TINY)).close()
    log = world.open(TINY)
    lane = _Lane()
    env = log.dir.env
    monkeypatch.setattr(log.dir, "env", dataclasses.replace(env, background=lane))
    read_times(log, lambda: None)
    monkeypatch.setattr(log.dir, "env", env)
    ((work, done),) = lane.jobs
    found = work()
    parts = [world.disk.open(f"/data/t-0/{base:020d}.log") for base in (4, 5)]
    cleaned = world.disk.open("/data/t-0/merged.cleaned", create=True)
    cleaned.pwrite(0, [part.pread(0, part.size()) for part in parts])
    log.segments.replace([4, 5], cleaned.size(), "/data/t-0/merged.cleaned")
    done(found)
    assert log.offset_for_timestamp(NOW + 5) == (NOW + 5, 5)


def made(manager: LogManager, count: int) -> list[Log]:
    logs = [manager.create("t", number, ID) for number in range(count)]
    for log in logs:
        for _ in range(3):
            log.append_as_leader(batch(b"v"), 0, NOW)
        log.flush()
        log.high_watermark = log.end_offset
    return logs


def test_truncations_below_checkpoints_share_one_write_in_a_lane() -> None:
    """After an unclean election each log rewrote the checkpoints, four fsyncs, on the loop."""
    node = Node()
    manager = node.start()
    logs = made(manager, 50)
    manager.checkpoint_all()
    node.rest(100)
    spending = Spending(node)
    directory = manager.directories[0]
    before = directory.writes
    node.disk.spent.clear()
    waiting = 0
    for log in logs:
        try:
            log.truncate_to(1)
        except CutLater:
            waiting += 1
    assert waiting == 50
    assert node.disk.spent.checkpoints == 0
    node.rest(1000)
    assert directory.writes == before + 1
    assert all(log.truncate_to(1) for log in logs)
    assert spending.checkpoints == node.disk.spent.checkpoints == 0
    node.kill()
    again = node.start().get("t", 17)
    assert again is not None
    assert again.end_offset == 1
    assert not node.failures


def test_checkpoints_before_a_pending_truncation_stay_below_it() -> None:
    node = Node()
    manager = node.start()
    (log,) = made(manager, 1)
    manager.checkpoint_all()
    node.rest(100)
    try:
        log.truncate_to(1)
    except CutLater:
        node.rest(30_000)  # several checkpoints are written, and no checkpoint promises more again
    assert manager.directories[0].promised("t", 0) == 1
    assert log.truncate_to(1)
    node.kill()
    again = node.start().get("t", 0)
    assert again is not None
    assert again.end_offset == 1


def test_a_pending_truncation_that_is_not_repeated_expires() -> None:
    node = Node()
    manager = node.start()
    (log,) = made(manager, 1)
    manager.checkpoint_all()
    node.rest(100)
    try:
        log.truncate_to(1)
    except CutLater:
        node.rest(200_000)
    assert manager.directories[0].promised("t", 0) == 3


def test_a_checkpoint_formats_the_topics_that_have_changed() -> None:
    text = CheckpointText(2)
    text.update({"a": ({0: 5, 1: 6}, {}), "b": ({7: 1}, {7: 2})})
    assert parse_offsets(text.data(0)) == {"a": {0: 5, 1: 6}, "b": {7: 1}}
    text.update({"a": ({1: 8}, {1: 1})})
    assert parse_offsets(text.data(0)) == {"a": {1: 8}, "b": {7: 1}}
    text.update({"b": ({}, {})})
    assert (parse_offsets(text.data(0)), parse_offsets(text.data(1))) == ({"a": {1: 8}}, {"a": {1: 1}})


def test_offsets_of_many_open_logs_are_taken_in_turns() -> None:
    node = Node()
    manager = node.start()
    for number in range(1300):
        manager.create("t", number, ID)
    manager.checkpoint_all()
    assert len(manager.directories[0].recovery_points["t"]) == 512
    node.rest(100)
    assert len(manager.directories[0].recovery_points["t"]) == 1300


def test_a_flush_of_a_renamed_log_is_repeated() -> None:
    """Found by the model of a log that moves (seed 1363): records that were never synced counted as durable."""
    node = Node(["/d1", "/d2"])
    manager = node.start()
    log = manager.create("t", 0, ID)
    copy = manager.futures.create("t", 0, ID, manager.directories[1 - manager.directories.index(log.dir)])  # type: ignore[arg-type]
    for each in (log, copy):
        each.append_as_leader(batch(b"v"), 0, NOW)
    copy.flush_in_background(lambda: None)
    promoted = manager.futures.promote("t", 0)
    node.rest(1000)
    assert promoted.recovery_point == 1
    node.kill()
    node.disk.lose_power()
    found = node.start().get("t", 0)
    assert found is not None
    assert found.end_offset == 1


def test_a_failed_directory_answers_a_pending_deletion_of_segments() -> None:
    world = LogWorld()
    log = filled(world.open(TINY))
    log.delete_records(SEGMENTS - 1, 16)
    world.dir.fail(OSError(5, os.strerror(5)))
    world.rest()
    assert len(log.segments) == SEGMENTS - 16
    try:
        log.retain(NOW, 16)
    except KafkaError as error:
        assert "Input/output error" in str(error)
