"""Steps of copies are short, however small batches, segments and intervals of the index are."""

from __future__ import annotations

import pytest

from kraft_node.broker.log_dir_moves import copy_some
from kraft_node.broker.replication.taking import ROLLS_MAX, STEP
from kraft_node.log.config import make_config
from kraft_protocol.records.batch import build_batch
from kraft_protocol.records.control import build_marker
from tests.unit.log.manager.test_copies import copied
from tests.unit.log.node import ID, Node
from tests.unit.log.world import NOW, batch


def test_a_run_of_batches_writes_its_index_entries_once() -> None:
    """Each entry was written by itself where none may be gathered: 363 in a step of a copy (seed 61092 of the whole
    world)."""
    node = Node(["/d1", "/d2"])
    manager = node.start(lambda _: make_config({"index.interval.bytes": "0"}))
    for directory in manager.directories:
        directory.pending_index_bytes = 0
    log = manager.create("t", 0, ID)
    for number in range(50):
        log.append_as_leader(batch(b"v%d" % number), 0, NOW)
    node.disk.spent.clear()
    copy = copied(manager, log)
    assert copy.end_offset == 50
    assert copy.segments.active.index_count == 49
    assert node.disk.spent.operations < 60


@pytest.mark.parametrize("small", [{"internal.segment.bytes": "100"}, {"segment.ms": "1"}])
def test_a_step_of_a_copy_begins_few_segments(small: dict[str, str]) -> None:
    """A log with large segments moved after they had become small; its copy began 150 segments in one event."""
    node = Node(["/d1", "/d2"])
    manager = node.start()
    log = manager.create("t", 0, ID)
    for number in range(60):
        log.append_as_leader(batch(b"a" * 50, timestamp=NOW + 1000 * number), 0, NOW)
    copy = manager.futures.create("t", 0, ID, next(each for each in manager.directories if each is not log.dir))
    copy.set_config(make_config(small))
    steps = 0
    while copy.end_offset < log.end_offset:
        before = len(copy.segments)
        assert copy_some(log, copy) > 0
        assert len(copy.segments) - before <= ROLLS_MAX
        steps += 1
    assert steps > 5
    assert copy.size_bytes == log.size_bytes


@pytest.mark.parametrize("commit", [True, False])
def test_a_step_of_a_copy_takes_few_batches_however_small_they_are(commit: bool) -> None:
    """Each marker ended a run, so a step of 1 MiB of tiny transactions did 848 disk operations (seed 61092 of the whole
    world)."""
    node = Node(["/d1", "/d2"])
    manager = node.start()
    log = manager.create("t", 0, ID)
    ids = {"producer_id": 1, "producer_epoch": 0}
    for number in range(STEP):
        data = build_batch([(b"k", b"v")], timestamp=NOW, base_sequence=number, transactional=True, **ids)
        log.append_as_leader(data, 0, NOW)
        marker = build_marker(commit=commit, coordinator_epoch=0, timestamp=NOW, **ids)
        log.append_as_leader(marker, 0, NOW, internal=True)
    copy = manager.futures.create("t", 0, ID, next(each for each in manager.directories if each is not log.dir))
    steps = []
    while copy.end_offset < log.end_offset:
        before = copy.end_offset
        node.disk.spent.clear()
        copy_some(log, copy)
        assert copy.end_offset - before <= STEP
        steps.append(node.disk.spent.operations)
    assert len(steps) == 2
    assert max(steps) < (20 if commit else 2 * STEP)
    assert copy.aborted_transactions(0, log.end_offset) == log.aborted_transactions(0, log.end_offset)
