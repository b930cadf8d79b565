"""After a kill without a reboot only the tail of a log is scanned, after a reboot the whole log."""

from __future__ import annotations

import contextlib
import errno
from typing import Any

import pytest

from kraft_node.log import names
from kraft_node.log.config import LogConfig, make_config
from kraft_node.log.log import Log
from kraft_node.log.manager.log_manager import LogManager
from kraft_node.log.recovery import opening, walking
from kraft_protocol.errors import KafkaError
from kraft_protocol.records.control import build_marker
from tests.unit.log.node import ID, Node
from tests.unit.log.world import NOW, batch, values

CONFIG = make_config({"internal.segment.bytes": "4000", "index.interval.bytes": "100"})
BATCHES = 200


def started(node: Node, config: LogConfig = CONFIG) -> LogManager:
    manager = node.start(lambda _: config)
    for directory in manager.directories:
        directory.pending_index_bytes = 0
    return manager


def killed_node() -> Node:
    """A node whose log has several segments, four leader epochs and a producer, killed before any flush."""
    node = Node()
    written(started(node).create("t", 0, ID))
    node.kill()
    return node


def written(log: Log) -> None:
    """Append the batches that `check` finds."""
    for number in range(BATCHES):
        how = {"producer_id": 1, "producer_epoch": 0, "base_sequence": number, "timestamp": NOW + number}
        log.append_as_leader(batch(b"%d" % number, **how), number // 60, NOW)


def check(log: Log) -> None:
    assert values(log) == [b"%d" % number for number in range(BATCHES)]
    assert log.leader_epochs.entries() == [(0, 0), (1, 60), (2, 120), (3, 180)]
    again = batch(b"199", producer_id=1, producer_epoch=0, base_sequence=BATCHES - 1, timestamp=NOW + 199)
    assert log.append_as_leader(again, 3, NOW).is_duplicate
    assert log.offset_for_timestamp(NOW + 150) == (NOW + 150, 150)


def walked_from(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The recovery points at which log scans begin."""
    seen: list[int] = []
    recover = walking.recover

    def record(log: Log, compacted_below: int, **how: bool) -> int:
        seen.append(log.recovery_point)
        return recover(log, compacted_below, **how)

    monkeypatch.setattr(walking, "recover", record)
    monkeypatch.setattr(opening, "recover", record)
    return seen


def test_a_killed_log_is_scanned_from_its_last_index_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    node = killed_node()
    seen = walked_from(monkeypatch)
    log = started(node).get("t", 0)
    assert log is not None
    assert seen == [seen[0]]
    assert seen[0] > BATCHES - 5
    check(log)


def test_a_second_kill_costs_no_more_than_the_first() -> None:
    """The second life had moved the recovery point past the last index entry, so all headers were read for times."""
    node = Node()
    config = make_config({})
    log = started(node, config).create("t", 0, ID)
    for _ in range(BATCHES):
        log.append_as_leader(batch(bytes(2000)), 0, NOW)
    node.kill()
    spent = []
    for _ in range(2):
        manager = started(node, config)
        manager.recovery.inline_bytes_max = 1 << 20
        node.disk.spent.clear()
        again = manager.get("t", 0)
        assert again is not None
        assert again.end_offset == BATCHES
        spent.append(node.disk.spent.bytes)
        again.take_snapshot(again.end_offset)
        again.flush()
        again.high_watermark = again.end_offset
        manager.checkpoint_all()
        node.rest(100)
        node.kill()
    assert spent[1] < spent[0] / 2  # of the first


@pytest.mark.parametrize("flushed", range(0, BATCHES, 7))
@pytest.mark.parametrize("lost_epochs", [False, True])
def test_a_kill_keeps_the_epochs_between_the_last_index_entry_and_the_recovery_point(
    flushed: int, *, lost_epochs: bool
) -> None:
    """Nothing read the headers there, so an epoch that begins there began too late after the start, or was missing."""
    node = Node()
    config = make_config({"index.interval.bytes": "1000"})
    manager = node.start(lambda _: config)
    manager.directories[0].pending_index_bytes = 100
    log = manager.create("t", 0, ID)
    for number in range(BATCHES):
        log.append_as_leader(batch(b"%d" % number), number // 3, NOW)
        if number == flushed:
            log.high_watermark = log.end_offset
            log.flush()
            manager.checkpoint_all()
            node.rest(100)
    known = log.leader_epochs.entries()
    node.kill()
    if lost_epochs:
        node.disk.remove(f"/d1/t-0/{names.LEADER_EPOCH_CHECKPOINT}")
    again = node.start(lambda _: config).get("t", 0)
    assert again is not None
    assert again.end_offset == BATCHES
    assert again.leader_epochs.entries() == known


class Killed(BaseException):
    """The end of the process, at an operation of its disk."""


@pytest.mark.parametrize("operations", range(16))
def test_a_kill_while_a_follower_appends_keeps_the_index_of_aborted_transactions(operations: int) -> None:
    """A response was one write, and its entries in the offset index came before those of its aborted transactions."""
    config = make_config({"index.interval.bytes": "0"})
    node = Node()
    manager = node.start(lambda _: config)
    manager.directories[0].pending_index_bytes = 0
    log = manager.create("t", 0, ID)
    log.append_as_follower(batch(b"first", leader_epoch=0))
    of_producer: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "leader_epoch": 0}
    sent = [
        batch(b"aborted", base_offset=1, base_sequence=0, transactional=True, **of_producer),
        build_marker(commit=False, base_offset=2, timestamp=NOW, coordinator_epoch=0, **of_producer),
        *(batch(b"plain", base_offset=offset, leader_epoch=0) for offset in range(3, 9)),
    ]
    node.disk.on_death = Killed
    node.disk.die_after(operations)
    with contextlib.suppress(Killed):
        log.append_as_follower(b"".join(sent))
    node.kill()
    again = node.start(lambda _: config).get("t", 0)
    assert again is not None
    assert again.aborted_transactions(0, 100) == ([(1, 1)] if again.end_offset > 2 else [])


def test_a_log_is_scanned_whole_after_a_reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    node = killed_node()
    node.disk.sync_all()
    node.disk.lose_power()
    seen = walked_from(monkeypatch)
    log = started(node).get("t", 0)
    assert log is not None
    assert seen == [0]
    check(log)


def test_a_copied_directory_is_scanned_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    node = killed_node()
    monkeypatch.setattr(node.disk, "identity", lambda _path: "another inode")
    seen = walked_from(monkeypatch)
    log = started(node).get("t", 0)
    assert log is not None
    assert seen == [0]
    check(log)


def test_a_kill_during_recovery_after_a_reboot_causes_another_whole_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    node = killed_node()
    node.disk.sync_all()
    node.disk.lose_power()
    started(node)
    node.kill()
    seen = walked_from(monkeypatch)
    log = started(node).get("t", 0)
    assert log is not None
    assert seen == [0]
    check(log)


def test_a_directory_that_failed_is_scanned_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes that the disk had lost counted as durable without a reboot: holes stayed in the log."""
    node = Node()
    written(started(node).create("t", 0, ID))
    log = node.manager.get("t", 0)
    assert log is not None
    node.disk.fail = lambda operation, _: OSError(errno.EIO, "input/output error") if operation == "fsync" else None
    with pytest.raises(KafkaError):
        log.flush()
    node.rest(100)
    node.kill()
    node.disk.fail = None
    seen = walked_from(monkeypatch)
    again = started(node).get("t", 0)
    assert again is not None
    assert seen == [0]
    check(again)


def test_a_missing_segment_causes_a_whole_scan() -> None:
    node = killed_node()
    bases = sorted(name for name in node.disk.listdir("/d1/t-0") if name.endswith(names.LOG))
    node.disk.remove(f"/d1/t-0/{bases[2]}")
    log = started(node).get("t", 0)
    assert log is not None
    assert log.end_offset == names.parse_offset(bases[2])


def test_an_index_that_points_past_the_log_causes_a_whole_scan() -> None:
    node = killed_node()
    bases = sorted(name for name in node.disk.listdir("/d1/t-0") if name.endswith(names.LOG))
    last = f"/d1/t-0/{bases[-1]}"
    node.disk.open(last).truncate(10)
    log = started(node).get("t", 0)
    assert log is not None
    assert log.end_offset == names.parse_offset(bases[-1])


def test_damage_below_the_recovery_point_still_takes_the_directory_offline() -> None:
    node = Node()
    log = started(node).create("t", 0, ID)
    for number in range(BATCHES):
        log.append_as_leader(batch(b"%d" % number), 0, NOW)
    log.high_watermark = BATCHES
    log.flush()
    node.manager.checkpoint_all()
    node.rest(100)
    last = log.active
    node.kill()
    node.disk.flip(last.path(names.LOG), last.size - 3, 1)
    manager = started(node)
    with pytest.raises(Exception, match="is damaged"):
        manager.get("t", 0)
