"""The cost of a new log, and the safety of files that new logs share."""

from __future__ import annotations

import errno

import pytest

from kraft_node.log import flushing
from kraft_node.log.checkpoints import partition_metadata
from kraft_node.log.config import make_config
from kraft_protocol.errors import KafkaError
from tests.unit.log.node import ID, OTHER_ID, Node, recorded
from tests.unit.log.world import NOW, batch


def test_many_new_logs_share_the_fsync_of_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    manager = node.start()
    node.rest(1)
    seen = recorded(node, monkeypatch)
    for partition in range(100):
        manager.create("t", partition, ID)
        node.rest(0.2)
    node.rest()
    assert 1 <= seen.count(("fsync_dir", "/d1")) <= 2


def test_new_logs_of_a_topic_share_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a file system a file costs far more than another name for one, and more than the rest of a new partition."""
    node = Node()
    manager = node.start()
    manager.create("t", 0, ID).append_as_leader(batch(b"x"), 0, NOW)
    seen = recorded(node, monkeypatch)
    manager.create("t", 1, ID).append_as_leader(batch(b"x"), 0, NOW)
    made = f"/d1/t-1/{0:020d}.log"
    assert seen == [("mkdir", "/d1/t-1"), ("link", "/d1/t-1/partition.metadata"), ("create", made), ("write", made)]


def test_a_change_of_one_new_log_leaves_shared_files_alone() -> None:
    node = Node()
    manager = node.start(lambda topic: make_config({"file.delete.delay.ms": "0"}))
    for partition in range(3):
        manager.create("t", partition, ID).append_as_leader(batch(b"x"), partition, NOW)
    path = "/d1/t-0/partition.metadata"
    partition_metadata.write(node.disk, "/d1/t-0", OTHER_ID)  # in place of the file, not into it
    manager.delete("t", 1)
    node.rest()
    manager.create("t", 1, OTHER_ID).append_as_leader(batch(b"x"), 0, NOW)
    node.stop()
    found = [partition_metadata.read(node.disk, f"/d1/t-{partition}") for partition in range(3)]
    assert found == [OTHER_ID, OTHER_ID, ID]
    assert node.disk.exists(path)
    epochs = [bytes(node.disk._inode(f"/d1/t-{p}/leader-epoch-checkpoint").data) for p in range(3)]
    assert epochs == [b"0\n1\n0 0\n", b"0\n1\n0 0\n", b"0\n1\n2 0\n"]


@pytest.mark.parametrize("number", [errno.EMLINK, errno.EPERM, errno.ENOENT])
def test_without_hard_links_new_logs_get_files_of_their_own(number: int) -> None:
    node = Node()
    node.disk.fail = lambda operation, path: OSError(number, "no link", path) if operation == "link" else None
    manager = node.start()
    for partition in range(3):
        manager.create("t", partition, ID).append_as_leader(batch(b"x"), 0, NOW)
    node.stop()
    manager = node.start()
    for partition in range(3):
        log = manager.get("t", partition)
        assert log is not None
        assert (log.topic_id, log.end_offset, log.leader_epochs.entries()) == (ID, 1, [(0, 0)])


def test_unflushed_epochs_are_recovered_from_the_batches() -> None:
    node = Node()
    log = node.start().create("t", 0, ID)
    for epoch in (3, 3, 5):
        log.append_as_leader(batch(b"x"), epoch, NOW)
    assert not node.disk.exists(f"{log.path}/leader-epoch-checkpoint")
    flushing.flush_now(log)
    assert bytes(node.disk._inode(f"{log.path}/leader-epoch-checkpoint").data) == b"0\n2\n3 0\n5 2\n"
    log.append_as_leader(batch(b"x"), 8, NOW)
    node.kill()
    found = node.start().get("t", 0)
    assert found is not None
    assert found.leader_epochs.entries() == [(3, 0), (5, 2), (8, 3)]


def test_a_log_refused_for_lack_of_descriptors_can_be_made_later() -> None:
    """Its directory remained: the next topic of that name took the log directory offline, and ended the node."""
    node = Node()
    manager = node.start()
    node.disk.short = True
    with pytest.raises(KafkaError, match="try again"):
        manager.create("t", 0, ID)
    node.disk.short = False
    log = manager.create("t", 0, OTHER_ID)
    log.append_as_leader(batch(b"x"), 0, NOW)
    node.rest(10_000)
    assert manager.directories[0].online
    assert [name for name in node.disk.listdir("/d1") if name.startswith("t")] == ["t-0"]
