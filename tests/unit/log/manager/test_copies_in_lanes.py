"""Long copies of moving logs are opened in a lane, as logs are: requests get a retriable error until they are open."""

from __future__ import annotations

import contextlib

import pytest

from kraft_node.log.checkpoints.offsets import column_of
from kraft_node.log.config import LogConfig
from kraft_node.log.manager import futures
from kraft_node.log.manager.log_manager import LogManager
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import Record
from tests.unit.log.compaction.test_cleaner import put
from tests.unit.log.manager.test_copies import DELETE, copied, resumed
from tests.unit.log.node import ID, Node
from tests.unit.log.world import all_records, refused


def killed_during_a_copy(config: LogConfig = DELETE) -> tuple[Node, list[Record]]:
    """A machine after a kill in the midst of a move, and the records of the log."""
    node = Node(["/d1", "/d2"])
    log = node.start(lambda _: config).create("t", 0, ID)
    for number in range(60):
        put(log, (b"%d" % number, b"v" * 30))
    copied(node.manager, log)
    node.rest(10)
    node.kill()
    return node, all_records(log)


def start_with_lanes(node: Node, config: LogConfig = DELETE) -> LogManager:
    """Start the node; every copy counts as long."""
    manager = node.start(lambda _: config)
    manager.recovery.inline_bytes_max = 0
    return manager


def assert_copied_anew(node: Node, records: list[Record]) -> None:
    """The copy is gone, nothing else is, and another one gets all records."""
    assert not node.failures
    with contextlib.suppress(KafkaError):  # a lane opens the log first
        node.manager.get("t", 0)
    node.rest(1000)
    again, copy = resumed(node)
    assert all_records(again) == all_records(copy) == records


def test_a_copy_that_waits_for_its_lane_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its move asks twenty times a second, and each look listed its files on the loop."""
    node, _ = killed_during_a_copy()
    manager = start_with_lanes(node)
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        manager.get("t", 0)
    monkeypatch.setattr(manager.recovery, "open_copy", lambda *_: False)
    looks: list[str] = []
    monkeypatch.setattr(futures, "scan_bytes", lambda _disk, path, _point: looks.append(path) or 1)
    for _ in range(3):
        with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
            manager.futures.get("t", 0)
    assert len(looks) == 1


def test_a_long_copy_is_opened_in_a_lane() -> None:
    node, records = killed_during_a_copy()
    manager = start_with_lanes(node)
    reads = node.disk.spent.bytes
    for _ in range(2):
        with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
            manager.futures.get("t", 0)
    assert node.disk.spent.bytes == reads
    node.rest(200)
    _, copy = resumed(node)
    assert copy.dir is manager.futures.directory_of("t", 0)
    assert all_records(copy) == records


def test_a_lane_that_recovers_a_log_opens_a_copy_later() -> None:
    node, records = killed_during_a_copy()
    manager = start_with_lanes(node)
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        manager.get("t", 0)
    while True:
        try:
            copy = manager.futures.get("t", 0)
        except KafkaError as error:
            assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            node.rest(50)
        else:
            break
    assert copy is not None
    _, copy = resumed(node)
    assert all_records(copy) == records


def test_a_copy_that_is_deleted_while_a_lane_opens_it_stays_deleted() -> None:
    node, records = killed_during_a_copy()
    manager = start_with_lanes(node)
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        manager.futures.get("t", 0)
    manager.futures.delete("t", 0)
    node.rest(1000)
    assert manager.futures.get("t", 0) is None
    assert_copied_anew(node, records)


@pytest.mark.parametrize("clean", [False, True])
def test_a_stop_while_a_lane_opens_a_copy_loses_nothing(clean: bool) -> None:
    node, records = killed_during_a_copy()
    manager = start_with_lanes(node)
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        manager.futures.get("t", 0)
    node.stop() if clean else node.kill()
    node.start(lambda _: DELETE)
    _, copy = resumed(node)
    assert all_records(copy) == records


def test_a_copy_that_a_lane_finds_damaged_is_removed() -> None:
    node, records = killed_during_a_copy()
    manager = start_with_lanes(node)
    target = manager.futures.directory_of("t", 0)
    assert target is not None
    for offsets in (target.recovery_points, target.high_watermarks):
        column_of(offsets, "t")[0] = 60
    ((_, path),) = target.futures
    active = max(name for name in node.disk.listdir(path) if name.endswith(".log"))
    node.disk.open(f"{path}/{active}").truncate(0)  # the checkpoints promise these records
    with refused(ErrorCode.NOT_LEADER_OR_FOLLOWER):
        manager.futures.get("t", 0)
    node.rest(200)
    assert manager.futures.get("t", 0) is None
    assert_copied_anew(node, records)
