"""Long logs are recovered in a lane: the loop continues, and requests get a retriable error until the log is open."""

from __future__ import annotations

import pytest

from kraft_node.log.checkpoints.offsets import column_of
from kraft_node.log.config import make_config
from kraft_node.log.manager.log_manager import UNMEASURED, LogManager
from kraft_node.log.recovery import background
from kraft_node.log.recovery.background import LogIsRecovering
from kraft_protocol.errors import ErrorCode, KafkaError
from tests.unit.log.node import ID, OTHER_ID, Node
from tests.unit.log.world import NOW, batch, values

LONG = 8


def killed(partitions: int = 1) -> Node:
    """A node that was killed; each of its logs has `LONG` batches that were never flushed."""
    node = Node()
    manager = node.start()
    for partition in range(partitions):
        log = manager.create("t", partition, ID)
        for number in range(LONG):
            log.append_as_leader(batch(b"%d" % number), 0, NOW)
    node.kill()
    return node


def start(node: Node) -> LogManager:
    """Start the node; every unrecovered log counts as long."""
    manager = node.start()
    manager.recovery.inline_bytes_max = 0
    return manager


def asked(manager: LogManager, partition: int = 0) -> None:
    with pytest.raises(LogIsRecovering) as refused:
        manager.get("t", partition)
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_requests_for_a_long_log_are_refused_until_recovery_ends() -> None:
    node = killed()
    manager = start(node)
    opened: list[tuple[str, int]] = []
    manager.on_recovered = lambda topic, partition: opened.append((topic, partition))
    asked(manager)
    asked(manager)
    assert list(manager.open_logs()) == []
    node.rest(200)
    assert opened == [("t", 0)]
    found = manager.get("t", 0)
    assert found is not None
    assert values(found) == [b"%d" % number for number in range(LONG)]
    assert found.dir is manager.directories[0]
    found.append_as_leader(batch(b"more"), 0, NOW)
    assert values(found)[-1] == b"more"


def test_the_loop_does_not_measure_a_log_in_its_lane() -> None:
    """The lane may rename a file between its listing and its measuring: that took the directory offline."""
    node = killed(partitions=2)
    manager = start(node)
    asked(manager)
    sizes = {partition: size for _, partition, size in manager.sizes(manager.directories[0])}
    assert sizes[0] == UNMEASURED
    assert sizes[1] > 0
    node.rest(200)
    assert {size for _, _, size in manager.sizes(manager.directories[0])} == {sizes[1]}


def test_unused_logs_are_recovered_in_the_lane_and_closed() -> None:
    node = killed(partitions=20)
    manager = start(node)
    node.rest(5000)
    assert not manager.directories[0].unrecovered
    assert list(manager.open_logs()) == []
    node.stop()
    assert node.start().directories[0].clean


def test_a_log_killed_during_a_flush_is_flushed_before_its_records_count() -> None:
    node = Node()
    policy = make_config({"flush.messages": "2"})
    manager = node.start(topic_config=lambda _topic: policy)
    log = manager.create("t", 0, ID)
    for number in range(3):  # their flush is not complete, so they were not acknowledged
        log.append_as_leader(batch(b"%d" % number), 0, NOW)
    assert log.settled_end < 3
    node.kill()
    manager = node.start(topic_config=lambda _topic: policy)
    asked(manager)
    node.rest(200)
    found = manager.get("t", 0)
    assert found is not None
    assert found.settled_end == found.recovery_point == 3
    node.host.end_life()
    node.disk.lose_power()
    manager = node.start(topic_config=lambda _topic: policy)
    asked(manager)
    node.rest(200)
    found = manager.get("t", 0)
    assert found is not None
    assert values(found) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("request_again", [False, True])
def test_a_waiting_log_whose_topic_loses_its_policy_is_still_announced(request_again: bool) -> None:
    """The loop opened the log without a notice. So a follower never fetched, and refused batches were forgotten."""
    node = killed(partitions=5)
    policy = {"flush.messages": "1"}
    manager = node.start(topic_config=lambda _topic: make_config(policy))
    opened: list[int] = []
    manager.on_recovered = lambda _topic, partition: opened.append(partition)
    for partition in range(5):
        asked(manager, partition)
    policy.clear()
    if request_again:
        asked(manager, 1)
    node.rest(5000)
    assert sorted(opened) == [0, 1, 2, 3, 4]


def test_the_last_requested_log_is_recovered_first() -> None:
    node = killed(partitions=5)
    manager = start(node)
    opened: list[int] = []
    manager.on_recovered = lambda _topic, partition: opened.append(partition)
    for partition in (0, 1, 2, 3):
        asked(manager, partition)
    node.rest(500)
    assert opened[:4] == [0, 3, 2, 1]


def test_a_partition_deleted_during_recovery_stays_deleted() -> None:
    node = killed()
    manager = start(node)
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


def test_a_stop_during_recovery_leaves_no_clean_mark_and_loses_nothing() -> None:
    node = killed(partitions=3)
    manager = start(node)
    asked(manager)
    node.stop()
    assert not node.disk.exists("/d1/.kafka_cleanshutdown")
    manager = start(node)
    asked(manager)
    node.rest(5000)
    for partition in range(3):
        found = manager.get("t", partition)
        assert found is not None
        assert len(values(found)) == LONG


def test_a_torn_tail_is_truncated_in_the_lane() -> None:
    node = killed()
    tail = "/d1/t-0/00000000000000000000.log"
    node.disk.open(tail).pwrite(node.disk.size(tail), [b"torn"])
    manager = start(node)
    asked(manager)
    node.rest(200)
    found = manager.get("t", 0)
    assert found is not None
    assert node.disk.size(tail) == found.active.size
    assert values(found) == [b"%d" % number for number in range(LONG)]


def produced(sequence: int, epoch: int = 0, producer_id: int = 7) -> bytes:
    return batch(b"a", b"b", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def refuse(manager: LogManager, *batches: bytes) -> None:
    with pytest.raises(LogIsRecovering) as refused:
        manager.get("t", 0)
    for records in batches:
        refused.value.refuses(records)


def take(manager: LogManager, records: bytes) -> ErrorCode:
    found = manager.get("t", 0)
    assert found is not None
    try:
        found.append_as_leader(records, 0, NOW)
    except KafkaError as e:
        return e.code
    return ErrorCode.NONE


def test_no_batch_overtakes_a_batch_that_was_refused_during_recovery() -> None:
    node = killed()
    manager = start(node)
    refuse(manager, produced(0))
    node.rest(5000)
    assert take(manager, produced(2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert take(manager, produced(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [take(manager, produced(sequence)) for sequence in (0, 2, 4)] == [ErrorCode.NONE] * 3


def test_a_retried_batch_and_a_new_epoch_are_accepted_after_recovery() -> None:
    node = killed()
    manager = start(node)
    refuse(manager, produced(6), produced(8), produced(6), produced(9, producer_id=8), batch(b"of nobody"), b"short")
    node.rest(5000)
    assert take(manager, produced(4, producer_id=9)) == ErrorCode.NONE, "it was refused nothing"
    assert take(manager, produced(6)) == ErrorCode.NONE, "the first of those refused"
    assert take(manager, produced(10, epoch=1, producer_id=8)) == ErrorCode.NONE, "it has given the old epoch up"


def test_a_duplicate_sent_after_recovery_is_recognized() -> None:
    node = Node()
    log = node.start().create("t", 0, ID)
    for sequence in (0, 2, 4):
        log.append_as_leader(produced(sequence), 0, NOW)
    node.kill()
    manager = start(node)
    node.rest(5000)
    assert [take(manager, produced(sequence)) for sequence in (2, 4, 6)] == [ErrorCode.NONE] * 3
    found = manager.get("t", 0)
    assert found is not None
    assert values(found) == [b"a", b"b"] * 4


def test_the_number_of_remembered_producers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "REFUSED_MAX", 1)
    node = killed()
    manager = start(node)
    refuse(manager, produced(0), produced(0, producer_id=8), produced(0, epoch=1))
    node.rest(5000)
    assert take(manager, produced(2, producer_id=8)) == ErrorCode.NONE
    assert take(manager, produced(2, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_log_with_a_later_start_offset_is_opened_on_the_loop() -> None:
    node = killed()
    start(node)
    column_of(node.manager.directories[0].start_offsets, "t")[0] = 100
    asked(node.manager)
    node.rest(200)
    found = node.manager.get("t", 0)
    assert found is not None
    assert (found.start_offset, found.end_offset) == (100, 100)
