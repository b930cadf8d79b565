"""Logs of very many files are opened in a lane, also after a clean stop: listing them would hold up the loop."""

from __future__ import annotations

import pytest

from kraft_node.log.config import LogConfig, make_config
from kraft_node.log.log import Log
from kraft_node.log.manager.log_manager import LogManager
from kraft_node.log.recovery.background import LogIsRecovering
from kraft_protocol.errors import ErrorCode, KafkaError
from tests.unit.log.node import ID, OTHER_ID, Node
from tests.unit.log.recovery.test_lanes import TINY, Spending, filled
from tests.unit.log.world import NOW, batch, values

SEGMENTS = 300
OPERATIONS_MAX = 20


def stopped(config: LogConfig | None = None) -> Node:
    """A node that was stopped cleanly, with one log of many segments."""
    node = Node()
    filled(node.start(lambda _: config or make_config(TINY)).create("t", 0, ID))
    node.stop()
    return node


def asked(manager: LogManager) -> None:
    with pytest.raises(LogIsRecovering) as refused:
        manager.get("t", 0)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_wide_log_is_opened_in_a_lane_and_stays_open() -> None:
    node = stopped()
    manager = node.start(lambda _: make_config(TINY))
    opened: list[tuple[str, int]] = []
    manager.on_recovered = lambda topic, partition: opened.append((topic, partition))
    node.disk.spent.clear()
    asked(manager)
    asked(manager)
    assert node.disk.spent.operations < OPERATIONS_MAX
    spending = Spending(node)
    node.rest(200)
    assert opened == [("t", 0)]
    assert spending.operations < OPERATIONS_MAX
    log = manager.get("t", 0)
    assert log is not None
    assert len(log.segments) == SEGMENTS
    assert len(values(log)) == SEGMENTS
    log.append_as_leader(batch(b"more"), 0, NOW)
    assert values(log)[-1] == b"more"


def test_a_log_of_few_files_is_opened_at_once() -> None:
    node = Node()
    node.start().create("t", 0, ID).append_as_leader(batch(b"v"), 0, NOW)
    node.stop()
    assert node.start().get("t", 0) is not None


def test_a_wide_log_deleted_while_it_opens_stays_deleted() -> None:
    node = stopped()
    manager = node.start(lambda _: make_config(TINY))
    asked(manager)
    manager.delete("t", 0)
    with pytest.raises(KafkaError):
        manager.create("t", 0, OTHER_ID)
    node.rest(1000)
    assert manager.entry("t", 0) is None
    new = manager.create("t", 0, OTHER_ID)
    new.append_as_leader(batch(b"new"), 0, NOW)
    assert values(new) == [b"new"]
    assert not node.failures


def test_retention_waits_for_the_lane_and_closes_the_log() -> None:
    config = make_config({**TINY, "retention.ms": "-1", "retention.bytes": "0"})
    node = stopped(config)
    manager = node.start(lambda _: config)
    spending = Spending(node)
    node.rest(100_000)
    assert spending.operations < 500
    assert not isinstance(manager.entry("t", 0), Log)
    manager.recovery.inline_names_bytes = 1 << 30
    log = manager.get("t", 0)
    assert log is not None
    assert log.start_offset == SEGMENTS


def test_a_wide_log_that_needs_compaction_stays_open() -> None:
    config = make_config({**TINY, "internal.segment.bytes": "150", "cleanup.policy": "compact"})
    node = stopped(config)
    manager = node.start(lambda _: config)
    node.rest(100_000)
    log = manager.entry("t", 0)
    assert isinstance(log, Log)
    assert log.held


def test_a_stop_while_a_lane_opens_a_log_leaves_the_clean_mark() -> None:
    node = stopped()
    asked(node.start(lambda _: make_config(TINY)))
    node.stop()
    manager = node.start(lambda _: make_config(TINY))
    assert manager.directories[0].clean


def test_an_index_rebuilt_shortly_before_a_stop_prevents_the_clean_mark() -> None:
    node = stopped()
    node.disk.remove(f"/d1/t-0/{SEGMENTS - 1:020d}.index")
    asked(node.start(lambda _: make_config(TINY)))
    node.stop()
    assert not node.start(lambda _: make_config(TINY)).directories[0].clean
