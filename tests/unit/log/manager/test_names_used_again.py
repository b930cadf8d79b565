"""A recreated partition has no state of the deleted one."""

from __future__ import annotations

import pytest

from kraft_node.log.manager.log_manager import LogManager
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import Uuid
from tests.unit.log.node import Node
from tests.unit.log.world import NOW, batch

OLD, NEW = Uuid(bytes([1] * 16)), Uuid(bytes([2] * 16))


def write(manager: LogManager, topic_id: Uuid, count: int) -> None:
    log = manager.get("t", 0) or manager.create("t", 0, topic_id)
    for _ in range(count):
        log.append_as_leader(batch(b"v"), 0, NOW)


def checkpointed(node: Node) -> LogManager:
    """A node whose checkpoints say that ten records of t-0 are durable and seven readable."""
    manager = node.start()
    write(manager, OLD, 10)
    log = manager.get("t", 0)
    assert log is not None
    log.flush()
    log.high_watermark = 10
    log.delete_records(3)
    manager.checkpoint_all()
    node.rest()
    return manager


def create_when_possible(node: Node, manager: LogManager) -> None:
    for _ in range(100):
        try:
            manager.create("t", 0, NEW)
        except KafkaError as e:
            assert e.code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "clients ask again"
            node.rest(5)
        else:
            return
    raise AssertionError("the name is never free again")


@pytest.mark.parametrize("power", [False, True])
def test_checkpoints_of_a_former_partition_do_not_fail_a_new_one(power: bool) -> None:
    for seed in range(20 if power else 1):
        node = Node(seed=seed)
        manager = checkpointed(node)
        manager.delete("t", 0)
        create_when_possible(node, manager)
        write(manager, NEW, 2)
        node.kill()
        if power:
            node.disk.lose_power()
        log = node.start().get("t", 0)
        assert node.failures == []
        assert log is None or log.end_offset <= 2
        assert log is None or log.start_offset == 0


def test_a_name_without_checkpoints_is_free_at_once() -> None:
    node = Node()
    manager = node.start()
    write(manager, OLD, 1)
    manager.delete("t", 0)
    assert manager.create("t", 0, NEW).end_offset == 0


def test_a_running_checkpoint_does_not_restore_offsets_of_a_deleted_partition() -> None:
    node = Node()
    manager = checkpointed(node)
    write(manager, OLD, 1)
    manager.checkpoint_all()  # its work runs later, with the offsets of now
    manager.delete("t", 0)
    create_when_possible(node, manager)
    write(manager, NEW, 1)
    node.kill()
    log = node.start().get("t", 0)
    assert log is not None
    assert (log.start_offset, log.end_offset, node.failures) == (0, 1, [])


@pytest.mark.parametrize("removed", ["by hand", "by a deletion that a kill interrupted"])
def test_checkpoints_of_a_removed_partition_do_not_fail_a_new_one(removed: str) -> None:
    """The message about a damaged log advises this: remove its directory, since other replicas have the records."""
    node = Node()
    manager = checkpointed(node)
    if removed != "by hand":
        manager.delete("t", 0)
    node.kill()
    if removed == "by hand":
        node.disk.rmtree("/d1/t-0")
    manager = node.start()
    create_when_possible(node, manager)
    write(manager, NEW, 2)
    node.kill()
    log = node.start().get("t", 0)
    assert log is not None
    assert (log.start_offset, log.end_offset, node.failures) == (0, 2, [])
