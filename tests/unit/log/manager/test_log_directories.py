"""Directories: dead ones, foreign ones, and their description files."""

from __future__ import annotations

import re

import pytest

from kraft_node.log.checkpoints import meta_properties
from kraft_node.log.checkpoints.meta_properties import MetaProperties
from kraft_node.log.errors import LogDirFailure, LogDirInvalid
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import uuid_text
from tests.unit.log.node import CLUSTER, ID, Node
from tests.unit.log.world import NOW, batch, values


def test_a_failed_directory_takes_only_its_own_logs_offline() -> None:
    node = Node(["/d1", "/d2"])
    manager = node.start()
    first = manager.create("t", 0, ID, directory_id=manager.directories[0].directory_id)
    second = manager.create("t", 1, ID, directory_id=manager.directories[1].directory_id)
    node.disk.fail = lambda _, path: OSError(5, "I/O error") if path.startswith("/d1") else None
    with pytest.raises(KafkaError) as caught:
        first.append_as_leader(batch(b"x"), 0, NOW)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    second.append_as_leader(batch(b"y"), 0, NOW)
    node.rest(10)
    ((path, lost, error),) = node.failures
    assert (path, lost) == ("/d1", [("t", 0)])
    assert isinstance(error, LogDirFailure)
    with pytest.raises(KafkaError):
        manager.get("t", 0)
    node.disk.fail = None
    node.stop()
    assert not node.disk.exists("/d1/.kafka_cleanshutdown")
    assert node.disk.exists("/d2/.kafka_cleanshutdown")


def test_damage_found_at_opening_takes_the_directory_offline() -> None:
    node = Node()
    log = node.start().create("t", 0, ID)
    for _ in range(3):
        log.append_as_leader(batch(b"x"), 0, NOW)
    log.high_watermark = 3
    node.stop()
    node.disk.remove("/d1/.kafka_cleanshutdown")
    node.disk.flip("/d1/t-0/00000000000000000000.log", 16, 1)
    manager = node.start()
    with pytest.raises(KafkaError, match=r"/d1/t-0/0+\.log is damaged at offset 0"):
        manager.get("t", 0)


def test_a_truncation_after_the_last_checkpoint_is_not_damage() -> None:
    """Simulator (cluster seed 91): a follower killed soon after its truncation never started again."""
    node = Node()
    manager = node.start()
    log = manager.create("t", 0, ID)
    for number in range(9):
        log.append_as_leader(batch(b"%d" % number), 0, NOW)
    log.flush()
    log.high_watermark = 4
    manager.checkpoint_all()
    node.rest(100)
    log.truncate_to(5)
    log.append_as_leader(batch(b"other"), 1, NOW)
    node.kill()
    found = node.start().get("t", 0)
    assert found is not None
    assert values(found) == [b"0", b"1", b"2", b"3", b"4", b"other"]
    assert not node.failures


@pytest.mark.parametrize("to", [3, 0])
@pytest.mark.parametrize("busy", [False, True])
def test_a_truncation_below_the_checkpoint_by_an_unclean_leader_is_not_damage(to: int, busy: bool) -> None:
    """Killed before the next checkpoint, the follower had less than the last one promised, and did not start."""
    node = Node()
    manager = node.start()
    log = manager.create("t", 0, ID)
    for number in range(9):
        log.append_as_leader(batch(b"%d" % number), 0, NOW)
    log.flush()
    log.high_watermark = 9
    manager.checkpoint_all()
    if not busy:
        node.rest(100)
    node.cut(log, to)
    log.append_as_follower(batch(b"other", base_offset=to, leader_epoch=2))
    if busy:
        node.rest(100)  # the earlier checkpoint is written late, or rather not at all
    node.kill()
    found = node.start().get("t", 0)
    assert found is not None
    assert values(found) == [b"%d" % number for number in range(to)] + [b"other"]
    assert not node.failures


def test_a_directory_of_another_node_or_process_is_refused() -> None:
    node = Node()
    meta_properties.write(node.disk, "/d1", MetaProperties(1, CLUSTER, 2, ID))
    with pytest.raises(LogDirInvalid, match="belongs to node 2, this is node 1"):
        node.start()
    node = Node(["/d1", "/d2"])
    meta_properties.write(node.disk, "/d2", MetaProperties(1, "another", 1, ID))
    with pytest.raises(LogDirInvalid, match="belongs to cluster another"):
        node.start()
    node = Node()
    node.disk.remove("/d1/meta.properties")
    with pytest.raises(LogDirInvalid, match="not formatted"):
        node.start()
    node = Node()
    node.start()
    with pytest.raises(LogDirInvalid, match="another process"):
        node.start()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version=1\nnode.id=zz\ncluster.id=c\n", "node.id is not a number: zz"),
        ("version=0\nbroker.id=\ncluster.id=c\n", "broker.id is not a number: "),
        ("version=one\nnode.id=1\n", "version is not a number: one"),
        ("version=7\nnode.id=1\n", "unknown version 7"),
        ("version=1\n", "names no cluster.id or no node.id"),
        ("version=1\nnode.id=1\ncluster.id=c\ndirectory.id=short\n", "directory.id"),
    ],
)
def test_an_invalid_meta_properties_is_refused_with_the_reason(text: str, words: str) -> None:
    node = Node()
    file = node.disk.open("/d1/meta.properties")
    file.truncate(0)
    file.pwrite(0, [text.encode()])
    with pytest.raises(LogDirInvalid, match=re.escape(words)) as refusal:
        node.start()
    assert "/d1" in str(refusal.value)


def test_version_0_of_meta_properties_becomes_version_1() -> None:
    node = Node()
    data = f"version=0\nbroker.id=1\ncluster.id={CLUSTER}\n".encode()
    file = node.disk.open("/d1/meta.properties")
    file.truncate(0)
    file.pwrite(0, [data])
    manager = node.start()
    found = meta_properties.read(node.disk, "/d1")
    assert found == MetaProperties(1, CLUSTER, 1, manager.directories[0].directory_id)


def test_checkpoints_have_the_text_format_of_kafka() -> None:
    node = Node()
    manager = node.start()
    log = manager.create("t", 0, ID)
    for number in range(3):
        log.append_as_leader(batch(b"%d" % number), 4, NOW)
    log.high_watermark = 2
    node.rest(6000)
    disk = node.disk

    def text(name: str) -> str:
        return bytes(disk._inode(name).data).decode()

    assert text("/d1/replication-offset-checkpoint") == "0\n1\nt 0 2\n"
    assert text("/d1/recovery-point-offset-checkpoint") == "0\n1\nt 0 0\n"
    assert text("/d1/log-start-offset-checkpoint") == "0\n0\n"
    assert text("/d1/t-0/partition.metadata") == f"version: 0\ntopic_id: {uuid_text(ID)}"
    node.stop(3)
    assert text("/d1/t-0/leader-epoch-checkpoint") == "0\n1\n4 0\n"
    assert text("/d1/.kafka_cleanshutdown") == '{"version":0,"brokerEpoch":3}'
    assert text("/d1/recovery-point-offset-checkpoint") == "0\n1\nt 0 3\n"


def test_empty_checkpoints_are_not_damage(caplog: pytest.LogCaptureFixture) -> None:
    """Apache Kafka creates cleaner-offset-checkpoint and leader-epoch-checkpoint before they have content."""
    node = Node()
    node.start().create("t", 0, ID)
    node.stop()
    for name in ("cleaner-offset-checkpoint", "t-0/leader-epoch-checkpoint"):
        node.disk.open(f"/d1/{name}", create=True).close()
    with caplog.at_level("WARNING"):
        log = node.start().get("t", 0)
    assert log is not None
    assert caplog.text == ""
    log.append_as_leader(batch(b"x"), 2, NOW)
    node.kill()
    found = node.start().get("t", 0)
    assert found is not None
    assert found.leader_epochs.entries() == [(2, 0)]


def test_damaged_checkpoints_cost_work_not_data() -> None:
    node = Node()
    node.start().create("t", 0, ID).append_as_leader(batch(b"x"), 0, NOW)
    node.stop()
    for name in ("recovery-point", "replication", "log-start"):
        node.disk.open(f"/d1/{name}-offset-checkpoint", create=True).truncate(1)
    found = node.start().get("t", 0)
    assert found is not None
    assert values(found) == [b"x"]
