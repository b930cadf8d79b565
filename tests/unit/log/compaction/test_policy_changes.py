"""A topic's cleanup.policy has changed since its files were written."""

from __future__ import annotations

import pytest

from kraft_node.broker.log_dir_moves import copy_some
from kraft_node.log.config import LONG_MAX, LogConfig, make_config
from kraft_node.log.manager.directory import directory_of
from kraft_node.log.manager.log_manager import LogManager
from kraft_node.log.manager.timing import Timing
from tests.unit.log.compaction.test_cleaner import CONFIG, put
from tests.unit.log.node import ID, Node
from tests.unit.log.world import all_records, batch

COMPACT = make_config(CONFIG)
DELETE = make_config({**CONFIG, "cleanup.policy": "delete"})


def compacted(node: Node, timing: Timing | None = None) -> LogManager:
    """A log with closed segments that have lost most of their offsets."""
    manager = node.start(lambda _: COMPACT, timing)
    log = manager.create("t", 0, ID)
    for number in range(40):
        put(log, (b"%d" % number, b"v" * 30))
        put(log, (b"k", b"v" * 30))
    node.rest(30_000)
    assert len(all_records(log)) < 60
    return manager


def reopened(node: Node, config: LogConfig) -> list[int]:
    manager = node.start(lambda _: config)
    log = manager.get("t", 0)
    assert log is not None, node.failures
    return [record.offset for record in all_records(log)]


def test_gaps_of_compaction_are_no_damage_after_cleanup_policy_changes() -> None:
    """Compaction's gaps ended the log, or the log directory, at the first kill."""
    for lost in ("", "recovery-point-offset-checkpoint", "t-0/leader-epoch-checkpoint"):
        node = Node()
        log = compacted(node).get("t", 0)
        assert log is not None
        before = [record.offset for record in all_records(log)]
        node.kill()
        if lost:
            node.disk.remove(f"/d1/{lost}")
        assert reopened(node, DELETE) == before, lost
        assert not node.failures


def test_the_cleaner_checkpoint_is_written_when_a_pass_ends() -> None:
    timing = Timing()
    timing.checkpoint_ms = timing.high_watermark_checkpoint_ms = LONG_MAX
    node = Node()
    log = compacted(node, timing).get("t", 0)
    assert log is not None
    assert bytes(node.disk._inode("/d1/cleaner-offset-checkpoint").data) == b"0\n1\nt 0 %d\n" % log.active.base


def follower(node: Node, config: LogConfig, *offsets: int) -> LogManager:
    """A replica of a leader's compacted log: single records at these offsets."""
    manager = node.start(lambda _: config)
    log = manager.create("t", 0, ID)
    for offset in offsets:
        log.append_as_follower(batch(b"x" * 50, base_offset=offset, leader_epoch=0))
    log.high_watermark = log.end_offset
    return manager


@pytest.mark.parametrize("flushed", [0, 1, 2, 3])
def test_a_replica_of_a_compacted_log_keeps_its_gaps(flushed: int) -> None:
    """No cleaner ran here: the log was truncated at its first gap, or the log directory was refused."""
    node = Node()
    manager = follower(node, DELETE, 0, 5)
    log = manager.get("t", 0)
    assert log is not None
    for number, offset in enumerate((6, 9, 12, 20)):
        if number == flushed:
            log.flush()
        log.append_as_follower(batch(b"y" * 50, base_offset=offset, leader_epoch=0))
        log.high_watermark = log.end_offset
    if flushed == 3:
        log.flush()
    manager.checkpoint_all()
    node.rest()
    node.kill()
    assert reopened(node, DELETE) == [0, 5, 6, 9, 12, 20]
    assert not node.failures


def test_a_log_that_has_moved_to_another_directory_keeps_its_gaps() -> None:
    node = Node(["/d1", "/d2"])
    manager = compacted(node)
    log = manager.get("t", 0)
    assert log is not None
    before = [record.offset for record in all_records(log)]
    target = next(each for each in manager.directories if each is not log.dir)
    copy = manager.futures.create("t", 0, ID, target)
    while copy.end_offset < log.end_offset:
        copy_some(log, copy)
    copy.flush()
    clean = directory_of(log).cleaner_offsets["t"][0]
    manager.futures.promote("t", 0)
    assert target.cleaner_offsets == {"t": {0: clean}}
    node.rest()
    node.kill()
    assert reopened(node, DELETE) == before
    assert not node.failures
