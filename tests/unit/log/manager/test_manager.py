"""The logs of a broker: found again after clean and unclean stops, set aside, deleted."""

from __future__ import annotations

import random

import pytest

from kraft_node.log.config import LogConfig, make_config
from tests.unit.log.node import ID, OTHER_ID, Node, recorded
from tests.unit.log.world import NOW, batch, values


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


def test_a_stop_during_recovery_recovers_the_remaining_logs_first() -> None:
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
def test_a_power_loss_keeps_checkpointed_records(seed: int) -> None:
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


DAYS_30_MS = 30 * 24 * 3600 * 1000


def for_ever(_topic: str) -> LogConfig:
    return make_config({"retention.ms": "-1"})


def test_retention_deletes_nothing_before_topics_are_known() -> None:
    """Without a controller a broker has only its own defaults: a topic without retention lost records after 30 s."""
    node = Node()
    log = node.start(for_ever).create("t", 0, ID)
    log.append_as_leader(batch(b"x"), 0, NOW)
    log.high_watermark = 1
    node.stop()
    node.rest(DAYS_30_MS)
    manager = node.start(topics_known=False)
    node.rest(600_000)
    manager.topic_config = for_ever
    manager.topics_known()
    node.rest(600_000)
    found = manager.get("t", 0)
    assert found is not None
    assert (found.start_offset, found.end_offset) == (0, 1)


def test_logs_wait_for_their_cleanup_policy_before_recovery() -> None:
    """A log with gaps after its recovery point counted as damaged, and its directory as failed."""
    compacted = make_config({"cleanup.policy": "compact"})
    node = Node()
    log = node.start(lambda _: compacted).create("t", 0, ID)
    log.append_as_leader(batch(b"x"), 0, NOW)
    log.append_as_follower(batch(b"y", base_offset=7, leader_epoch=0))
    node.kill()
    manager = node.start(topics_known=False)
    node.rest(600_000)
    assert list(manager.directories[0].unrecovered) == [("t", 0)]
    manager.topic_config = lambda _: compacted
    manager.topics_known()
    node.rest()
    found = manager.get("t", 0)
    assert found is not None
    assert (found.end_offset, node.failures) == (8, [])


def test_a_log_is_compacted_only_while_the_manager_holds_it() -> None:
    """A log that a walk had opened was closed and reopened during its compaction: a rename failed."""
    config = make_config({"cleanup.policy": "compact", "internal.segment.bytes": "300"})
    node = Node()
    log = node.start(lambda _: config).create("t", 0, ID)
    for number in range(20):
        log.append_as_leader(batch(b"%d" % number), 0, NOW)
    log.high_watermark = log.end_offset
    node.rest(1000)
    node.stop()
    manager = node.start(lambda _: config)
    log = manager.open(manager.directories[0], "t", 0)
    before = log.size_bytes
    node.rest(120_000)
    assert log.size_bytes == before
    assert manager.get("t", 0) is log
    node.rest(120_000)
    assert log.size_bytes < before


def test_a_stop_before_topics_are_known_leaves_unrecovered_logs_alone() -> None:
    node = Node()
    manager = node.start()
    manager.create("t", 0, ID).append_as_leader(batch(b"x"), 0, NOW)
    node.kill()
    node.start(topics_known=False)
    node.stop()
    assert not node.disk.exists("/d1/.kafka_cleanshutdown")
    manager = node.start()
    assert list(manager.directories[0].unrecovered) == [("t", 0)]
    node.rest()
    assert list(manager.directories[0].unrecovered) == []
    node.stop()
    assert node.disk.exists("/d1/.kafka_cleanshutdown")


def test_deleted_logs_are_gone_at_once_and_their_files_after_a_delay() -> None:
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


def test_strays_of_known_topics_are_removed_after_a_delay_across_restarts() -> None:
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


def test_files_are_removed_only_when_the_new_name_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """If files went earlier, a crash could restore the log under its old name without some of its files."""
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


def test_partitions_are_spread_over_directories_unless_one_is_requested() -> None:
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
