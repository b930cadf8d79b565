"""One fatal boundary: a broken law, commit or snapshot ends the node with a reason; nothing continues half done."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.controller.partitions.leaders import Leaders
from kraft_node.raft import events
from kraft_node.raft.node import NotLeader, RaftNode
from kraft_node.raft.ready import Ready
from kraft_node.server.faults import FaultHandler
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import stored
from tests.unit.controller.on_raft import RaftedController
from tests.unit.server.quorum.joined import OBSERVER, Member, Quorum
from tests.unit.server.quorum.raft_world import Node, append
from tests.unit.server.quorum.test_raft_driver import topic


def ended(node: Node) -> list[str]:
    """The reason why the node ended."""
    return [reported[1] for reported in node.reported if reported[0] == "fatal"]


def a_defect(*_: Any) -> Any:
    raise AssertionError("law: a defect")


def test_a_broken_law_in_a_step_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node().start()
    monkeypatch.setattr(RaftNode, "step", a_defect)
    node.driver.step(events.Tick())
    assert ended(node) == ["__cluster_metadata-0: Tick: AssertionError: law: a defect"]
    with pytest.raises(NotLeader):
        append(node.driver, [topic(1)])


def test_a_broken_law_in_an_effect_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node().start()
    monkeypatch.setattr(node.storage, "begin_flush", a_defect)
    append(node.driver, [topic(1)])
    assert ended(node) == ["__cluster_metadata-0: flush: AssertionError: law: a defect"]


def test_truncation_below_the_high_watermark_ends_the_node_once(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node().start()
    append(node.driver, [topic(1)])
    node.world.run()
    ready = Ready()
    ready.truncate = 1
    monkeypatch.setattr(RaftNode, "step", lambda *_: ready)
    for _ in range(3):
        node.driver.step(events.Tick())
    (why,) = ended(node)
    assert "offset 1" in why
    assert "below 2" in why


def test_a_step_inside_a_step_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node().start()
    monkeypatch.setattr(node.storage, "begin_flush", lambda: node.driver.step(events.Tick()))
    append(node.driver, [topic(1)])
    (why,) = ended(node)
    assert "contract 1" in why


@pytest.mark.parametrize("hook", ["on_commit", "publishers"])
def test_a_hook_that_raises_on_a_commit_ends_the_node(hook: str) -> None:
    node = Node().start()
    hooks: list[Any] = node.driver.on_commit if hook == "on_commit" else node.driver.loader.publishers
    hooks.append(a_defect)
    append(node.driver, [topic(1)])
    node.world.run()
    assert ended(node) == ["__cluster_metadata-0: delivering commits: AssertionError: law: a defect"]


def test_a_committed_record_that_does_not_replay_ends_the_node() -> None:
    node = Node().start()
    append(node.driver, [topic(1)])
    append(node.driver, [topic(1)])
    node.world.run()
    (why,) = ended(node)
    assert "metadata record at offset 2" in why
    assert "created a second time" in why


def test_a_snapshot_that_cannot_be_written_ends_the_node_with_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node().start()
    append(node.driver, [topic(1)])
    node.world.run()
    monkeypatch.setattr("kraft_node.metadata.snapshot_writer.snapshot_footer_batch", a_defect)
    node.driver.snapshots.take()
    node.world.run(1_000)
    assert ended(node) == ["__cluster_metadata-0: writing snapshot (2, 1): AssertionError: law: a defect"]


def test_retention_that_raises_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node().start()
    monkeypatch.setattr(type(node.driver.snapshots.policy), "first_to_keep", a_defect)
    node.world.run(120_000)
    assert ended(node) == ["__cluster_metadata-0: retention: AssertionError: law: a defect"]


def test_a_flush_that_fails_at_the_stop_is_reported() -> None:
    node = Node().start()
    done: list[bool] = []
    node.storage.error = OSError(5, "disk gone")
    node.driver.shutdown(lambda: done.append(True))
    node.world.run(10_000)
    assert ended(node) == ["__cluster_metadata-0: the last flush: [Errno 5] disk gone"]


def behind(quorum: Quorum) -> Member:
    """An observer that needs a snapshot, because the log that it needs was deleted."""
    for number in range(200):
        quorum.append(number)
    quorum.world.run(5_000)
    leader = quorum.leader()
    latest = max(leader.storage.files)
    leader.storage.delete_before(latest.end_offset)
    assert leader.driver is not None
    leader.driver.step(events.SnapshotsDropped(latest, latest.end_offset))
    return quorum.members.setdefault(OBSERVER, Member(quorum, OBSERVER))


def test_a_damaged_fetched_snapshot_ends_the_node_and_is_fetched_again() -> None:
    quorum = Quorum().start()
    observer = behind(quorum)
    leader = quorum.leader()
    (latest,) = [key for key in leader.storage.files if key.end_offset == leader.storage.start_offset]
    whole = leader.storage.files[latest]
    leader.storage.files[latest] = whole[:200] + bytes([whole[200] ^ 1]) + whole[201:]
    observer.make()
    assert observer.driver is not None
    reasons: list[str] = []
    observer.driver.faults = FaultHandler(reasons.append)
    observer.driver.start()
    quorum.world.run(5_000)
    (why,) = reasons
    assert f"loading snapshot {tuple(latest)}" in why
    assert observer.driver.failed
    assert latest not in observer.storage.files, "what is damaged is not what the next start begins with"
    assert observer.storage.end_offset == 0

    leader.storage.files[latest] = whole
    observer.stop()
    observer.start()
    quorum.world.run(5_000)
    assert len(observer.driver.image.topics) == 200


def one_with_controller(*bootstrap: Any) -> tuple[Node, RaftedController]:
    node = Node()
    rafted = RaftedController(node.driver, node.world, bootstrap=bootstrap)
    rafted.controller.on_defect = node.driver.faults.count
    node.start()
    return node, rafted


def test_a_defect_of_the_controller_is_counted_and_the_node_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    node, rafted = one_with_controller()

    def elect(_: Leaders) -> Any:
        raise LookupError("a defect")

    monkeypatch.setattr(Leaders, "elect_preferred", elect)
    node.world.run(700_000)
    assert node.driver.faults.counted == 2
    assert ended(node) == []
    assert rafted.controller.is_active


def test_a_law_that_the_controller_breaks_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    node, _ = one_with_controller()
    monkeypatch.setattr(Leaders, "elect_preferred", a_defect)
    node.world.run(400_000)
    assert ended(node) == ["the controller, periodic work: AssertionError: law: a defect"]


def test_a_controller_that_cannot_start_ends_the_node_with_the_reason() -> None:
    bad = stored.PartitionChangeRecord(topic_id=Uuid(b"t" * 16), partition_id=0)
    node, _ = one_with_controller(bad)
    (why,) = ended(node)
    assert "the first records of the active controller do not fit: changing a partition that does not exist" in why
    assert node.driver.next_offset == 1, "nothing is in the log but the LeaderChange"


def test_only_the_first_fault_ends_the_node() -> None:
    reasons: list[str] = []
    faults = FaultHandler(reasons.append)
    faults.fatal("here", OSError(5, "gone"))
    faults.fatal("there", LookupError("later"))
    assert reasons == ["here: [Errno 5] gone"]
