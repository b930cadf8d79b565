"""A topic's cleanup.policy is another one than when its files were written."""

from __future__ import annotations

from kraft_node.log.config import LONG_MAX, LogConfig, make_config
from kraft_node.log.manager import LogManager
from kraft_node.log.timing import Timing
from tests.unit.log.node import ID, Node
from tests.unit.log.test_cleaner import CONFIG, put
from tests.unit.log.world import all_records

COMPACT = make_config(CONFIG)
DELETE = make_config({**CONFIG, "cleanup.policy": "delete"})


def compacted(node: Node, timing: Timing | None = None) -> LogManager:
    """One log, whose closed segments have lost most of their offsets."""
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


def test_what_was_compacted_is_not_damaged_for_a_topic_that_is_not_compacted_any_more() -> None:
    """The gaps that compaction leaves ended the log, or the log directory, at the first kill."""
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


def test_how_far_compaction_is_is_written_when_it_is_done() -> None:
    timing = Timing()
    timing.checkpoint_ms = timing.high_watermark_checkpoint_ms = LONG_MAX
    node = Node()
    log = compacted(node, timing).get("t", 0)
    assert log is not None
    assert bytes(node.disk._inode("/d1/cleaner-offset-checkpoint").data) == b"0\n1\nt 0 %d\n" % log.active.base
