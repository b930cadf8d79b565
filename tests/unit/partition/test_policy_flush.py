"""`flush.messages`: a lane flushes; until then no appended record counts as stored."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from kraft_node.log import flushing
from kraft_node.log.config import make_config
from kraft_node.log.log import Log
from kraft_node.log.log_dir import LogDir
from kraft_node.log.recovery.opening import open_log
from kraft_node.log.segments.files import FileCache
from kraft_node.metadata.partitions import PartitionState
from kraft_node.partition.acknowledged import appended, is_acknowledged, when_acknowledged
from kraft_node.partition.acks import ACKS_ALL
from kraft_node.partition.partition import Partition
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import Uuid
from tests.unit.log.world import DIR, NOW, LogWorld, batch
from tests.unit.partition.test_partition import state

ACKS_ONE = 1


class Outcome:
    """The answers to a producer."""

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []

    def __call__(self, code: ErrorCode) -> None:
        self.codes.append(code)


def led(world: LogWorld, number: int = 0, **overrides: str) -> Partition:
    """A partition with this broker as its only replica and leader."""
    path = f"{DIR}/t-{number}"
    world.disk.mkdir(path)
    log = open_log(world.dir, path, "t", number, make_config({"flush.messages": "1", **overrides}))
    partition = Partition(1, "t", Uuid(bytes(16)), number, log)
    partition.follow(state())
    return partition


def append(partition: Partition, acks: int) -> Outcome:
    info = partition.append(batch(b"a"), acks, NOW)
    outcome = Outcome()
    when_acknowledged(appended(partition, info.last_offset + 1), acks, outcome)
    return outcome


def test_an_append_is_acknowledged_and_visible_once_its_flush_is_done() -> None:
    for acks in (ACKS_ONE, ACKS_ALL):
        world = LogWorld()
        partition = led(world)
        outcome = append(partition, acks)
        assert not outcome.codes
        assert not is_acknowledged(partition, 1, acks)
        assert partition.log.high_watermark == 0
        world.rest(1000)
        assert outcome.codes == [ErrorCode.NONE]
        assert partition.log.high_watermark == partition.log.recovery_point == 1


def test_appends_below_the_policy_are_acknowledged_at_once() -> None:
    world = LogWorld()
    partition = led(world, **{"flush.messages": "3"})
    assert append(partition, ACKS_ALL).codes == [ErrorCode.NONE]
    assert append(partition, ACKS_ONE).codes == [ErrorCode.NONE]
    assert append(partition, ACKS_ONE).codes == []
    assert partition.log.high_watermark == 2


def test_a_burst_of_appends_to_many_partitions_costs_the_loop_no_fsync() -> None:
    world = LogWorld()
    fsyncs: list[int] = []
    partitions = [led(world, number) for number in range(50)]
    jobs: list[str] = []
    background: Any = world.env.background
    submit = background.submit
    background.submit = lambda lane, work, done: (jobs.append(lane), submit(lane, work, done))
    world.disk.spent.clear()
    outcome = [append(partition, ACKS_ONE) for partition in partitions]
    fsyncs.append(world.disk.spent.fsyncs)
    world.rest(5000)
    assert fsyncs == [0]
    assert all(one.codes == [ErrorCode.NONE] for one in outcome)
    assert len(jobs) == 1, "one job for all of them"


def test_an_append_during_a_flush_waits_for_the_next() -> None:
    world = LogWorld()
    partition = led(world)
    first = append(partition, ACKS_ONE)
    second = append(partition, ACKS_ONE)
    world.world.run(lambda: bool(first.codes), 10_000)
    world.rest(1000)
    assert first.codes == second.codes == [ErrorCode.NONE]
    assert partition.log.recovery_point == 2


def test_a_failed_flush_acknowledges_nothing_and_takes_the_directory_offline() -> None:
    world = LogWorld()
    partition = led(world)
    outcome = append(partition, ACKS_ONE)
    world.disk.fail = lambda operation, _: OSError(errno.EIO, "I/O error") if operation == "fsync" else None
    world.rest(1000)
    assert outcome.codes == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert world.dir.failed is not None
    assert partition.log.high_watermark == 0


def test_a_flush_without_a_descriptor_is_tried_again() -> None:
    world = LogWorld()
    partition = led(world)
    outcome = append(partition, ACKS_ONE)
    world.disk.short = True
    world.rest(50)
    assert not outcome.codes
    world.disk.short = False
    world.rest(1000)
    assert outcome.codes == [ErrorCode.NONE]


def test_logs_prepared_before_a_shortage_of_descriptors_are_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were forgotten: their producers waited until another append."""
    world = LogWorld()
    partitions = [led(world, number) for number in range(3)]
    fail = [OSError(errno.EMFILE, "too many open files")]

    begin = Log.begin_flush

    def scarce(log: Log) -> flushing.Flush:
        if fail and log is partitions[1].log:
            raise fail.pop()
        return begin(log)

    monkeypatch.setattr(Log, "begin_flush", scarce)
    outcome = [append(partition, ACKS_ONE) for partition in partitions]
    world.rest(5000)
    assert not fail
    assert [one.codes for one in outcome] == [[ErrorCode.NONE]] * 3


def test_a_flush_that_ends_after_leadership_acknowledges_only_readable_records() -> None:
    for acks in (ACKS_ONE, ACKS_ALL):
        world = LogWorld()
        partition = led(world)
        outcome = append(partition, acks)
        partition.follow(PartitionState((1,), (1,), -1, 0, 1))  # the broker is about to stop
        assert not outcome.codes
        world.rest(1000)
        assert outcome.codes == [ErrorCode.NONE]
        assert partition.log.high_watermark == 1


def test_a_former_leader_refuses_records_above_the_high_watermark() -> None:
    world = LogWorld()
    partition = led(world)
    outcome = append(partition, ACKS_ALL)
    partition.follow(PartitionState((1, 2), (2,), 2, 1, 1))
    assert outcome.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    world.rest(1000)
    assert partition.log.high_watermark == 0


def test_new_records_at_truncated_offsets_are_not_settled_by_an_old_flush() -> None:
    world = LogWorld()
    log: Log = led(world).log
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(batch(value), 0, NOW)
        world.rest(1000)
    log.append_as_leader(batch(b"d"), 0, NOW)
    log.truncate_to(1)
    log.append_as_leader(batch(b"e"), 1, NOW)
    assert log.settled_end == 1
    world.rest(1000)
    assert log.settled_end == log.recovery_point == 2


@pytest.mark.parametrize("cut", [lambda log: log.truncate_to(1), lambda log: log.reset_to(9)])
def test_a_producer_with_truncated_records_is_not_acknowledged(cut: Callable[[Log], object]) -> None:
    """The flush that it waited for ended, and stored other records."""
    world = LogWorld()
    partition = led(world, **{"flush.messages": "2"})
    assert append(partition, ACKS_ONE).codes == [ErrorCode.NONE]
    outcome = append(partition, ACKS_ONE)
    during: list[int] = []
    when_acknowledged(appended(partition, 2), ACKS_ONE, lambda _code: during.append(partition.log.end_offset))
    cut(partition.log)
    end = partition.log.end_offset
    assert outcome.codes == during == [], "not in the midst of a truncation"
    partition.log.append_as_follower(batch(b"b", b"c", base_offset=end, leader_epoch=2))
    world.rest(1000)
    assert outcome.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert during == [end + 2]


def test_records_truncated_before_their_wait_are_not_acknowledged() -> None:
    world = LogWorld()
    partition = led(world)
    partition.append(batch(b"a"), ACKS_ONE, NOW)
    records = appended(partition, 1)
    partition.log.truncate_to(0)
    partition.log.append_as_follower(batch(b"b", leader_epoch=2))
    outcome = Outcome()
    when_acknowledged(records, ACKS_ONE, outcome)
    assert outcome.codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_closed_log_answers_that_the_outcome_is_unknown() -> None:
    world = LogWorld()
    world.dir = LogDir(world.env, DIR, FileCache(world.disk, 8))
    partition = led(world)
    outcome = append(partition, ACKS_ONE)
    partition.log.close()
    assert outcome.codes == [ErrorCode.REQUEST_TIMED_OUT]


def test_the_high_watermark_advances_with_unawaited_flushes() -> None:
    world = LogWorld()
    partition = led(world)
    for value in (b"a", b"b", b"c"):
        partition.append(batch(value), 0, NOW)
    assert partition.log.high_watermark == 0
    world.rest(1000)
    assert partition.log.high_watermark == partition.log.settled_end == 3


def test_a_leader_elected_during_a_flush_counts_its_records() -> None:
    world = LogWorld()
    partition = led(world)
    partition.log.append_as_leader(batch(b"a"), 0, NOW)
    partition.follow(state(epoch=2))
    assert partition.log.high_watermark == 0
    world.rest(1000)
    assert partition.log.high_watermark == 1


def test_a_moved_log_counts_records_flushed_by_its_copy() -> None:
    world = LogWorld()
    partition = led(world)
    copy = led(world, 1).log
    copy.append_as_follower(batch(b"a"))
    assert copy.settled_end == 0
    partition.moved(copy)
    assert partition.log.high_watermark == 0
    world.rest(1000)
    assert partition.log.high_watermark == 1
