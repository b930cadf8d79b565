"""The logs of a broker: found again after clean and unclean stops, moved aside, deleted, lost with their directory."""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kraft_node.base.config import NodeConfig
from kraft_node.base.config.dynamic import BrokerConfig
from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.base.ids import Uuid, uuid_text
from kraft_node.log import flushing, meta_properties, partition_metadata
from kraft_node.log.closing import SYNC_WHOLE_MIN
from kraft_node.log.config import LogConfig, make_config
from kraft_node.log.errors import LogDirFailure, LogDirInvalid
from kraft_node.log.manager import LogManager
from kraft_node.log.meta_properties import MetaProperties
from kraft_node.log.timing import Timing
from kraft_node.testing.disk import SimDisk
from kraft_node.testing.world import START_WALL_MS, SimHost, World
from tests.unit.log.world import NOW, batch, values

ID = Uuid(bytes(range(16)))
OTHER_ID = Uuid(bytes(range(1, 17)))
CLUSTER = "abcdefghijklmnopqrstuv"
COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/d1",
}


class Node:
    """A machine with log directories; `start` begins a new process on it."""

    def __init__(self, dirs: Sequence[str] = ("/d1",), seed: int = 1) -> None:
        self.world = World(seed)
        self.disk = SimDisk(random.Random(seed), lambda: START_WALL_MS + int(self.world.now_ms))
        self.dirs = list(dirs)
        for number, path in enumerate(dirs):
            self.disk.mkdir(path)
            self.disk.fsync_dir("/")
            meta_properties.write(
                self.disk, path, MetaProperties(1, CLUSTER, 1, Uuid(bytes(15) + bytes([200 + number])))
            )
        self.host = SimHost(self.world, "n1", self.disk)
        self.failures: list[tuple[str, list[tuple[str, int]], BaseException]] = []

    def start(self, topic_config: Callable[[str], LogConfig] | None = None, timing: Timing | None = None) -> LogManager:
        net: Any = None
        self.manager = LogManager(
            self.host.env(net),
            self.dirs,
            node_id=1,
            topic_config=topic_config,
            timing=timing,
            on_failure=lambda *what: self.failures.append(what),
        )
        self.manager.start()
        return self.manager

    def stop(self, epoch: int = 5) -> None:
        done: list[int] = []
        self.manager.shutdown(lambda: done.append(1), broker_epoch=epoch)
        self.world.rest(10_000)
        assert done == [1]
        self.manager.release()
        self.host.end_life()

    def kill(self) -> None:
        self.host.end_life()
        self.disk.kill_process()

    def rest(self, ms: float = 1000) -> None:
        self.world.rest(ms)


def test_logs_are_found_again_after_a_clean_stop() -> None:
    node = Node()
    manager = node.start()
    log = manager.create("a-b", 3, ID)
    for number in range(5):
        log.append_as_leader(batch(b"%d" % number, producer_id=1, producer_epoch=0, base_sequence=number), 0, NOW)
    log.high_watermark = 5
    log.delete_records(2)
    node.stop(epoch=17)
    assert node.disk.exists("/d1/.kafka_cleanshutdown")
    manager = node.start()
    assert manager.previous_broker_epoch == 17
    assert not node.disk.exists("/d1/.kafka_cleanshutdown")
    assert list(manager.partitions()) == [("a-b", 3)]
    assert list(manager.open_logs()) == []
    assert manager.topic_id("a-b", 3) == ID
    again = manager.get("a-b", 3)
    assert again is not None
    assert (again.topic_id, again.start_offset, again.end_offset, again.high_watermark) == (ID, 2, 5, 5)
    assert values(again) == [b"2", b"3", b"4"]
    assert again.append_as_leader(batch(b"4", producer_id=1, producer_epoch=0, base_sequence=4), 0, NOW).is_duplicate
    assert manager.get("a-b", 4) is None
    assert manager.get("c", 0) is None


def test_a_second_clean_stop_without_use_keeps_everything() -> None:
    node = Node()
    log = node.start().create("t", 0, ID)
    log.append_as_leader(batch(b"x"), 0, NOW)
    node.stop()
    node.start()
    node.stop()
    found = node.start().get("t", 0)
    assert found is not None
    assert values(found) == [b"x"]


def test_after_a_kill_logs_are_recovered_in_small_steps_or_on_demand() -> None:
    node = Node()
    manager = node.start()
    for partition in range(30):
        log = manager.create("t", partition, ID)
        log.append_as_leader(batch(b"%d" % partition), 0, NOW)
    node.kill()
    manager = node.start()
    assert manager.previous_broker_epoch == -1
    (directory,) = manager.directories
    assert len(directory.unrecovered) == 30
    first = manager.get("t", 7)
    assert first is not None
    assert values(first) == [b"7"]
    node.rest(5000)
    assert not directory.unrecovered
    assert [log.partition for log in manager.open_logs()] == [7]
    node.stop()
    manager = node.start()
    assert manager.directories[0].clean
    for partition in range(30):
        found = manager.get("t", partition)
        assert found is not None
        assert values(found) == [b"%d" % partition]


def test_a_stop_during_recovery_looks_at_the_rest_first() -> None:
    node = Node()
    manager = node.start()
    for partition in range(30):
        manager.create("t", partition, ID).append_as_leader(batch(b"x"), 0, NOW)
    tail = "/d1/t-29/00000000000000000000.log"
    node.disk.open(tail).pwrite(node.disk.size(tail), [b"torn"])
    node.kill()
    node.start()
    node.stop()
    manager = node.start()
    found = manager.get("t", 29)
    assert found is not None
    found.append_as_leader(batch(b"y"), 0, NOW)
    assert values(found) == [b"x", b"y"]


@pytest.mark.parametrize("seed", range(20))
def test_power_loss_keeps_what_the_checkpoint_promises(seed: int) -> None:
    node = Node(seed=seed)
    rng = random.Random(seed)
    config = make_config({"internal.segment.bytes": "400"})
    manager = node.start(lambda _: config)
    logs = [manager.create("t", partition, ID) for partition in range(3)]
    count = [0, 0, 0]
    for _ in range(rng.randrange(200)):
        which = rng.randrange(3)
        logs[which].append_as_leader(batch(b"%d" % count[which]), count[which] // 10, NOW)
        count[which] += 1
        if rng.random() < 0.05:
            manager.checkpoint_all()
        node.rest(rng.randrange(30))
    promised = [log.recovery_point for log in logs]
    node.host.end_life()
    node.disk.lose_power()
    manager = node.start(lambda _: config)
    for partition in range(3):
        found = manager.get("t", partition)
        if found is None:
            assert promised[partition] == 0
            continue
        got = values(found)
        assert len(got) >= promised[partition]
        assert got == [b"%d" % number for number in range(len(got))]
    assert not node.failures


def test_deleted_logs_go_at_once_and_their_files_later() -> None:
    node = Node()
    manager = node.start()
    log = manager.create("t", 0, ID)
    log.append_as_leader(batch(b"old"), 0, NOW)
    manager.delete("t", 0)
    assert manager.get("t", 0) is None
    (name,) = [name for name in node.disk.listdir("/d1") if name.startswith("t-0.")]
    assert name.endswith("-delete")
    fresh = manager.create("t", 0, OTHER_ID)
    assert values(fresh) == []
    node.rest(61_000)
    assert not [name for name in node.disk.listdir("/d1") if name.endswith("-delete")]
    manager.delete("nothing", 0)


def test_left_over_deletions_are_finished_at_the_next_start() -> None:
    node = Node()
    manager = node.start()
    manager.create("t", 0, ID)
    manager.delete("t", 0)
    node.kill()
    manager = node.start()
    assert len(manager) == 0
    node.rest()
    assert not [name for name in node.disk.listdir("/d1") if name.endswith("-delete")]


def test_strays_keep_their_files() -> None:
    node = Node()
    manager = node.start()
    manager.create("t", 0, ID).append_as_leader(batch(b"x"), 0, NOW)
    manager.set_aside("t", 0)
    assert len(manager) == 0
    node.stop()
    assert len(node.start()) == 0
    node.rest(200_000)
    (name,) = [name for name in node.disk.listdir("/d1") if name.endswith("-stray")]
    assert node.disk.size(f"/d1/{name}/00000000000000000000.log") > 0


def test_strays_of_known_topics_go_after_a_delay_also_after_a_restart() -> None:
    node = Node()
    manager = node.start()
    manager.create("known", 0, ID).append_as_leader(batch(b"x"), 0, NOW)
    manager.create("unknown", 0, ID).append_as_leader(batch(b"x"), 0, NOW)
    node.rest()
    node.disk.remove("/d1/unknown-0/partition.metadata")
    for topic in ("known", "unknown"):
        manager.set_aside(topic, 0)
    node.rest(40_000_000)
    node.stop()
    node.start()
    node.rest(86_000_000)
    assert len([name for name in node.disk.listdir("/d1") if name.endswith("-stray")]) == 2
    node.rest(1_000_000)
    (left,) = [name for name in node.disk.listdir("/d1") if name.endswith("-stray")]
    assert left.startswith("unknown-0.")


def recorded(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The changes of the node's disk from now on."""
    seen: list[tuple[str, str]] = []
    about_to = node.disk.about_to

    def record(operation: str, path: str) -> None:
        seen.append((operation, path))
        about_to(operation, path)

    monkeypatch.setattr(node.disk, "about_to", record)
    return seen


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


def test_new_logs_of_a_topic_are_made_of_few_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file costs a file system far more than another name for one, and all else that a new partition takes."""
    node = Node()
    manager = node.start()
    manager.create("t", 0, ID).append_as_leader(batch(b"x"), 0, NOW)
    seen = recorded(node, monkeypatch)
    manager.create("t", 1, ID).append_as_leader(batch(b"x"), 0, NOW)
    made = f"/d1/t-1/{0:020d}.log"
    assert seen == [("mkdir", "/d1/t-1"), ("link", "/d1/t-1/partition.metadata"), ("create", made), ("write", made)]


def test_what_new_logs_share_is_not_changed_with_one_of_them() -> None:
    node = Node()
    manager = node.start(lambda topic: make_config({"file.delete.delay.ms": "0"}))
    for partition in range(3):
        manager.create("t", partition, ID).append_as_leader(batch(b"x"), partition, NOW)
    path = "/d1/t-0/partition.metadata"
    partition_metadata.write(node.disk, "/d1/t-0", OTHER_ID)  # in its place, not into it
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
def test_where_no_link_can_be_made_there_are_files(number: int) -> None:
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


def test_epochs_that_no_flush_has_written_are_in_the_batches() -> None:
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


def test_files_are_removed_only_when_the_new_name_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a crash could bring the log back under its old name, without some of its files."""
    node = Node()
    manager = node.start(lambda topic: make_config({"file.delete.delay.ms": "0"}))
    manager.create("t", 0, ID).append_as_leader(batch(b"x"), 0, NOW)
    node.rest(2000)
    seen = recorded(node, monkeypatch)
    manager.delete("t", 0)
    node.rest()
    assert [operation for operation, _ in seen][:3] == ["rename", "fsync_dir", "remove"]


def test_long_topic_names_can_be_deleted() -> None:
    node = Node()
    manager = node.start()
    manager.create("x" * 249, 0, ID)
    manager.delete("x" * 249, 0)
    assert all(len(name) <= 255 for name in node.disk.listdir("/d1"))


def test_partitions_spread_over_directories_or_go_where_they_are_sent() -> None:
    node = Node(["/d1", "/d2"])
    manager = node.start()
    for partition in range(4):
        manager.create("t", partition, ID)
    assert [directory.count for directory in manager.directories] == [2, 2]
    second = manager.directories[1]
    manager.create("t", 9, ID, directory_id=second.directory_id)
    assert manager.directory_of("t", 9) is second
    sizes = {partition: size for _, partition, size in manager.sizes(second)}
    assert sizes[9] == 0


def test_a_dead_directory_takes_its_logs_with_it_and_no_other() -> None:
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


def test_damage_kills_the_directory_when_the_log_is_opened() -> None:
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


def test_what_a_follower_has_cut_off_since_the_checkpoint_is_no_damage() -> None:
    """Found by the simulator (cluster seed 91): a follower killed soon after it was truncated never started again."""
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
def test_what_an_unclean_leader_has_a_follower_cut_off_below_the_checkpointed_high_watermark_is_no_damage(
    to: int, busy: bool
) -> None:
    """Killed before the next checkpoint, the follower found less than the last one had promised, and did not start."""
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
    log.truncate_to(to)
    log.append_as_follower(batch(b"other", base_offset=to, leader_epoch=2))
    if busy:
        node.rest(100)  # the checkpoint of before is written late, or rather not at all
    node.kill()
    found = node.start().get("t", 0)
    assert found is not None
    assert values(found) == [b"%d" % number for number in range(to)] + [b"other"]
    assert not node.failures


def test_directories_of_others_are_refused() -> None:
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
        ("version=1\nnode.id=zz\ncluster.id=c\n", "node.id is no number: zz"),
        ("version=0\nbroker.id=\ncluster.id=c\n", "broker.id is no number: "),
        ("version=one\nnode.id=1\n", "version is no number: one"),
        ("version=7\nnode.id=1\n", "unknown version 7"),
        ("version=1\n", "names no cluster.id or no node.id"),
        ("version=1\nnode.id=1\ncluster.id=c\ndirectory.id=short\n", "directory.id"),
    ],
)
def test_meta_properties_that_make_no_sense_say_what_is_wrong(text: str, words: str) -> None:
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


def test_checkpoints_are_kafkas_text() -> None:
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


def test_empty_checkpoints_are_no_damage(caplog: pytest.LogCaptureFixture) -> None:
    """Apache Kafka makes cleaner-offset-checkpoint and leader-epoch-checkpoint before there is anything to put in."""
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


def test_retention_reaches_logs_that_nobody_has_opened() -> None:
    node = Node()
    config = make_config({"internal.segment.bytes": "400", "retention.ms": "3600000"})
    manager = node.start(lambda _: config)
    for partition in range(3):
        log = manager.create("t", partition, ID)
        for _ in range(20):
            log.append_as_leader(batch(b"x"), 0, NOW)
        log.high_watermark = 20
    node.stop()
    manager = node.start(lambda _: config)
    node.rest(3_000_000)
    assert list(manager.open_logs()) == []
    node.rest(1_500_000)
    for partition in range(3):
        found = manager.get("t", partition)
        assert found is not None
        assert (found.start_offset, found.end_offset) == (20, 20)


def test_producers_of_old_records_are_kept_until_the_log_has_been_open_for_the_period() -> None:
    """The first walk after the start forgot them, half a minute later; Kafka checks each log every ten minutes."""
    node = Node()
    manager = node.start()
    old = batch(b"x", timestamp=1_000, producer_id=1, producer_epoch=0, base_sequence=0)
    first = manager.create("t", 0, ID)
    first.append_as_leader(old, 0, NOW)
    node.rest(300_000)
    second = manager.create("t", 1, ID)
    second.append_as_leader(old, 0, NOW)
    node.rest(295_000)
    assert first.producers.get(1) is not None
    node.rest(10_000)
    assert first.producers.get(1) is None
    assert second.producers.get(1) is not None
    node.rest(600_000)
    assert second.producers.get(1) is None


def test_producers_in_a_transaction_never_expire_and_young_ones_when_they_are_old() -> None:
    node = Node()
    timing = Timing()
    timing.producer_check_ms = 1_000
    log = node.start(timing=timing).create("t", 0, ID)
    log.append_as_leader(
        batch(b"x", timestamp=1_000, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True), 0, NOW
    )
    log.append_as_leader(batch(b"x", producer_id=2, producer_epoch=0, base_sequence=0), 0, NOW)
    node.rest(5_000)
    assert [producer.producer_id for producer in log.producers.active()] == [1, 2]
    config = BrokerConfig(NodeConfig.parse(COMBINED))
    config.update({}, {"producer.id.expiration.ms": "6000"})
    node.manager.reconfigure(config)
    node.rest(5_000)
    assert [producer.producer_id for producer in log.producers.active()] == [1]


def test_the_cleaner_follows_its_configuration_at_once() -> None:
    node = Node()
    timing = Timing()
    timing.cleaner_backoff_ms = 86_400_000
    compacted = make_config({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.ms": "1"})
    log = node.start(lambda _: compacted, timing).create("t", 0, ID)
    for number in range(5):
        log.append_as_leader(batch(b"%d" % number, timestamp=NOW + number * 10), 0, NOW)
        log.high_watermark = log.end_offset
    node.rest(60_000)
    assert len(values(log)) == 5
    config = BrokerConfig(NodeConfig.parse(COMBINED))
    config.update({}, {"log.cleaner.backoff.ms": "100"})
    node.manager.reconfigure(config)
    node.rest(5_000)
    assert len(values(log)) < 5


def test_flush_ms_moves_the_recovery_point() -> None:
    node = Node()
    config = make_config({"flush.ms": "2000"})
    log = node.start(lambda _: config).create("t", 0, ID)
    log.append_as_leader(batch(b"x"), 0, NOW)
    node.rest(5000)
    assert log.recovery_point == 1


def _counted(calls: list[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        calls.append(name)
        return function(*args, **options)

    return call


def test_a_clean_start_costs_nothing_a_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 partitions on the real file system: the disk is asked as often as with one, and no object for any."""
    from kraft_node.runtime.env import RealEnv

    real = RealEnv()
    try:
        path = str(tmp_path)
        meta_properties.write(real.env.disk, path, MetaProperties(1, CLUSTER, 1, ID))
        for number in range(10_000):
            (tmp_path / f"topic-{number % 100}-{number // 100}").mkdir()
        (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
        manager = LogManager(real.env, [path], node_id=1)
        calls: list[str] = []
        for name in ("open", "exists", "is_dir", "size", "mtime_ms", "listdir"):
            monkeypatch.setattr(real.env.disk, name, _counted(calls, name, getattr(real.env.disk, name)), raising=True)
        manager.start()
        assert len(manager) == 10_000
        assert list(manager.open_logs()) == []
        assert len(calls) < 20, calls
        manager.release()
    finally:
        real.close()


def many_logs(node: Node) -> None:
    manager = node.start()
    for partition in range(SYNC_WHOLE_MIN + 5):
        log = manager.create("t", partition, ID)
        log.append_as_leader(batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0), 0, NOW)
        log.high_watermark = 1


def test_a_stop_makes_no_files_on_the_loop() -> None:
    """Each costs a millisecond on a busy disk: with 10,000 logs a controller in the same process would be silent."""
    node = Node()
    manager = node.start()
    log = manager.create("t", 0, ID)
    log.append_as_leader(batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0), 0, NOW)
    before = node.disk.listdir(log.path)
    manager.shutdown(lambda: None)
    assert node.disk.listdir(log.path) == before
    node.rest()
    made = set(node.disk.listdir(log.path)) - set(before)
    assert made == {f"{0:020d}.index", f"{0:020d}.timeindex", f"{1:020d}.snapshot", "leader-epoch-checkpoint"}
    manager.release()
    node.host.end_life()


def test_a_stop_with_many_new_logs_syncs_the_file_system_once_and_loses_nothing() -> None:
    """It made four fsyncs a log: 10,000 new partitions kept a stop busy for many seconds, a busy disk for minutes."""
    node = Node()
    many_logs(node)
    node.rest(1000)
    seen: list[str] = []
    node.disk.fail = lambda operation, path: seen.append(f"{operation} {path}")
    node.stop()
    node.disk.fail = None
    assert seen.count("syncfs /d1") == 1
    assert len([one for one in seen if one.startswith("fsync")]) < 20
    node.disk.lose_power()
    manager = node.start()
    assert not manager.directories[0].unrecovered
    for partition in range(SYNC_WHOLE_MIN + 5):
        log = manager.get("t", partition)
        assert log is not None
        assert values(log) == [b"x"]
        assert log.producers.get(1) is not None


def test_a_file_system_that_cannot_be_synced_leaves_no_mark() -> None:
    node = Node()
    many_logs(node)
    node.disk.fail = lambda operation, path: OSError(5, "I/O error", path) if operation == "syncfs" else None
    node.stop()
    assert [path for path, _, _ in node.failures] == ["/d1"]
    node.disk.fail = None
    assert not node.disk.exists("/d1/.kafka_cleanshutdown")


def test_where_there_is_no_such_sync_each_file_is_made_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimDisk, "file_system", lambda _disk, _path: None)
    node = Node()
    many_logs(node)
    node.stop()
    node.disk.lose_power()
    manager = node.start()
    assert not manager.directories[0].unrecovered
    for partition in range(SYNC_WHOLE_MIN + 5):
        log = manager.get("t", partition)
        assert log is not None
        assert values(log) == [b"x"]
