"""The controller on the real raft driver: its appends are written, flushed, committed, and there after a restart."""

from __future__ import annotations

from kraft_protocol.wire.messages import CreateTopicsRequest
from tests.unit.controller.on_raft import RaftedController
from tests.unit.server.quorum.raft_world import MemoryStorage, Node


def started(storage: MemoryStorage) -> RaftedController:
    node = Node(storage)
    rafted = RaftedController(node.driver, node.world)
    node.start()
    return rafted


def test_a_cluster_of_one_survives_its_restart() -> None:
    storage = MemoryStorage()
    first = started(storage)
    assert first.controller.is_active
    first.start_broker(1)
    topic = CreateTopicsRequest.CreatableTopic(name="foo", num_partitions=2, replication_factor=1)
    created = first.ask(CreateTopicsRequest(topics=[topic])).topics[0]
    assert created.error_code == 0

    second = started(storage)
    assert second.controller.is_active
    found = second.driver.image.topics.by_name("foo")
    assert found is not None
    assert found.id == created.topic_id
    second.start_broker(2)
    assert [state.leader for _, state in found.partitions()] == [1, 1]
    assert second.controller.cluster.view.is_empty, "everything is committed, nothing lingers in the overlay"
