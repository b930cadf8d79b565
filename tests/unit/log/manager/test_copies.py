"""Copies of logs on their way to another directory: the effects of kills, truncations and compactions."""

from __future__ import annotations

import pytest

from kraft_node.broker.log_dir_moves import copy_some, cut_what_differs
from kraft_node.log.compaction.cleaning import STOPPED, Cleaning
from kraft_node.log.config import LogConfig, make_config
from kraft_node.log.errors import CutLater
from kraft_node.log.log import Log
from kraft_node.log.manager.log_manager import LogManager
from kraft_protocol.ids import Uuid
from kraft_protocol.records.batch import Record
from tests.unit.log.compaction.test_cleaner import CONFIG, put
from tests.unit.log.node import ID, Node
from tests.unit.log.world import NOW, all_records, batch, idempotent, values

DELETE = make_config({**CONFIG, "cleanup.policy": "delete"})
COMPACT = make_config({**CONFIG, "delete.retention.ms": "0"})


def copied(manager: LogManager, log: Log) -> Log:
    """A copy in the other directory, as far as the log reaches."""
    target = next(each for each in manager.directories if each is not log.dir)
    copy = log.twin = manager.futures.create("t", 0, ID, target)
    while copy.end_offset < log.end_offset:
        copy_some(log, copy)
    return copy


@pytest.mark.parametrize("high_watermark", [3, 6])
def test_a_copy_truncated_with_its_log_is_not_taken_for_damaged(high_watermark: int) -> None:
    """Its checkpoint above the high watermark was not lowered, and a kill cost its directory."""
    node = Node(["/d1", "/d2"])
    manager = node.start()
    log = manager.create("t", 0, ID)
    for _ in range(3):
        log.append_as_leader(batch(b"a", b"b", b"c"), 0, NOW)
    log.high_watermark = high_watermark
    copy = copied(manager, log)
    log.flush()
    copy.flush()
    manager.checkpoint_all()
    node.rest()
    log.truncate_to(6)
    node.kill()
    again = node.start().futures.get("t", 0)
    assert again is not None
    assert again.end_offset == high_watermark
    assert not node.failures


def test_checkpoints_after_a_truncation_within_a_batch_end_before_that_batch() -> None:
    """The whole batch is removed: the checkpoints promised its first part, and a kill cost the directory."""
    node = Node()
    manager = node.start()
    log = manager.create("t", 0, ID)
    for _ in range(3):
        log.append_as_leader(batch(b"a", b"b", b"c"), 0, NOW)
    log.high_watermark = 9
    log.flush()
    manager.checkpoint_all()
    node.rest()
    node.cut(log, 8)
    node.kill()
    again = node.start().get("t", 0)
    assert again is not None
    assert again.end_offset == 6


def test_a_high_watermark_within_a_batch_is_not_damage() -> None:
    """If the log begins within a batch, the high watermark can lie there."""
    node = Node()
    manager = node.start()
    log = manager.create("t", 0, ID)
    for _ in range(3):
        log.append_as_leader(batch(b"a", b"b", b"c"), 0, NOW)
    log.high_watermark = 4
    log.flush()
    manager.checkpoint_all()
    node.rest()
    node.kill()
    again = node.start().get("t", 0)
    assert again is not None
    assert values(again) == [b"a", b"b", b"c"] * 3


def test_a_log_is_not_compacted_during_its_copy() -> None:
    """A copy with deleted records got no tombstones: the records were back after the move."""
    node = Node(["/d1", "/d2"])
    manager = node.start(lambda _: COMPACT)
    log = manager.create("t", 0, ID)
    put(log, (b"gone", b"v"))
    copied(manager, log)
    put(log, (b"gone", None))
    node.stop()
    manager = node.start(lambda _: COMPACT)
    again = manager.get("t", 0)
    assert again is not None
    for _ in range(3):
        for _ in range(60):
            put(again, (b"k", b"v" * 30))
        node.rest(30_000)
    copy = manager.futures.get("t", 0)
    assert copy is not None
    while copy.end_offset < again.end_offset:
        copy_some(again, copy)
    assert [record.value for record in all_records(copy) if record.key == b"gone"] == [b"v", None]


def compacted_without(node: Node, failing: str, *, clean: bool) -> None:
    """A run in which `/d2` is offline, and the log in `/d1` is compacted until its tombstone is gone."""
    if failing == "at the start":
        node.disk.dead = "/d2"
    manager = node.start(lambda _: COMPACT)
    if failing == "later":
        manager.directories[1].fail(OSError("gone"))
    log = manager.get("t", 0)
    assert log is not None
    for _ in range(3):
        for _ in range(60):
            put(log, (b"k", b"v" * 30))
        node.rest(30_000)
    assert [record for record in all_records(log) if record.key == b"gone"] == []
    node.stop(epoch=6) if clean else node.kill()
    node.disk.revive("/d2")


@pytest.mark.parametrize("failing", ["at the start", "later"])
@pytest.mark.parametrize("clean", [False, True])
def test_a_copy_that_missed_a_compaction_is_made_anew(failing: str, clean: bool) -> None:
    """The copy came back with its directory. It kept a deleted record, whose tombstone the log no longer had."""
    node = Node(["/d1", "/d2"])
    manager = node.start(lambda _: COMPACT)
    log = manager.create("t", 0, ID, directory_id=Uuid(manager.directories[0].id))
    put(log, (b"gone", b"v"))
    copied(manager, log)
    put(log, (b"gone", None))
    node.stop(epoch=5)
    compacted_without(node, failing, clean=clean)
    manager = node.start(lambda _: COMPACT)
    node.stop(epoch=7)  # before the move goes on
    manager = node.start(lambda _: COMPACT)
    again = manager.get("t", 0)
    assert again is not None
    _, copy = resumed(node)
    assert all_records(copy) == all_records(again)


def test_a_copy_of_a_compacted_log_continues_after_a_clean_stop() -> None:
    node = Node(["/d1", "/d2"])
    manager = node.start(lambda _: COMPACT)
    log = manager.create("t", 0, ID)
    put(log, (b"a", b"v"))
    copied(manager, log)
    put(log, (b"b", b"v"))
    node.stop(epoch=5)
    copy = node.start(lambda _: COMPACT).futures.get("t", 0)
    assert copy is not None
    assert copy.end_offset == 1


def test_a_running_pass_stops_when_a_copy_of_its_log_starts() -> None:
    node = Node(["/d1", "/d2"])
    manager = node.start(lambda _: COMPACT)
    log = manager.create("t", 0, ID)
    for _ in range(200):
        put(log, (b"k", b"v" * 900))
    steps = Cleaning(log, 0, NOW).steps()
    next(steps)
    copied(manager, log)
    with pytest.raises(StopIteration) as ended:
        next(steps)
    assert ended.value.value == STOPPED


def test_a_copy_is_truncated_to_the_records_shared_with_its_log() -> None:
    """The copy kept records of an epoch that the log lost, where the log had records of the previous epoch."""
    node = Node(["/d1", "/d2"])
    manager = node.start()
    log = manager.create("t", 0, ID)
    log.append_as_leader(batch(b"a"), 1, NOW)
    log.append_as_leader(batch(b"b"), 2, NOW)
    log.append_as_leader(batch(b"c"), 2, NOW)
    copy = copied(manager, log)
    log.twin = None
    log.truncate_to(1)
    for value in (b"d", b"e", b"f"):
        log.append_as_follower(batch(value, base_offset=log.end_offset, leader_epoch=1))
    log.append_as_follower(batch(b"g", base_offset=log.end_offset, leader_epoch=3))
    cut_what_differs(log, copy)
    assert values(copy) == [b"a"]


def test_a_copy_takes_over_the_log_start() -> None:
    """A kill that loses the log's deletions lowers its high watermark, too."""
    node = Node(["/d1", "/d2"])
    manager = node.start()
    log = manager.create("t", 0, ID)
    for _ in range(3):
        log.append_as_leader(batch(b"a"), 1, NOW)
    log.high_watermark = 3
    copy = copied(manager, log)
    copy.delete_records(2)
    log.high_watermark = 1
    copy_some(log, copy)
    assert copy.high_watermark == 2


def test_a_copy_that_replaced_its_log_names_its_files_by_their_new_paths() -> None:
    """Lanes read cold data by the path of the open file. The old path was gone, so the data stayed cold, and a follower
    that read other partitions as well never got it (seed 1 of the whole world)."""
    node = Node(["/d1", "/d2"])
    manager = node.start()
    log = manager.create("t", 0, ID)
    for _ in range(3):
        log.append_as_leader(batch(b"a"), 0, NOW)
    copied(manager, log)
    log.twin = None
    moved = manager.futures.promote("t", 0)
    assert moved.segments.active.file().path.startswith(f"{moved.path}/")


def with_a_lost_segment(config: LogConfig) -> tuple[Node, list[Record]]:
    """A machine after a loss of power that has emptied a segment of a copy, and the records of the log."""
    node = Node(["/d1", "/d2"])
    log = node.start(lambda _: config).create("t", 0, ID)
    for number in range(60):
        put(log, (b"%d" % number, b"v" * 30))
    node.manager.checkpoint_all()
    copy = copied(node.manager, log)
    path, records = copy.segments.at(1).path(".log"), all_records(log)
    node.rest(10)
    node.kill()
    node.disk.open(path).truncate(0)
    return node, records


def resumed(node: Node) -> tuple[Log, Log]:
    """The log and its copy, after the copy has caught up."""
    manager = node.manager
    again, copy = manager.get("t", 0), manager.futures.get("t", 0)
    assert again is not None
    if copy is None:
        node.rest(1000)
        return again, copied(manager, again)
    cut_what_differs(again, copy)
    while copy.end_offset < again.end_offset:
        copy_some(again, copy)
    return again, copy


@pytest.mark.parametrize("config", [COMPACT, DELETE], ids=["compact", "delete"])
def test_parts_of_a_copy_that_may_be_lost_are_copied_again(config: LogConfig) -> None:
    """In a compacted log, a gap left by a power loss looks like a gap left by compaction."""
    node, records = with_a_lost_segment(config)
    node.start(lambda _: config)
    _, copy = resumed(node)
    assert all_records(copy) == records


@pytest.mark.parametrize("config", [COMPACT, DELETE], ids=["compact", "delete"])
def test_a_clean_stop_does_not_hide_a_hole_in_a_copy(config: LogConfig) -> None:
    """It flushed the copy, whose recovery point then vouched for the hole."""
    node, records = with_a_lost_segment(config)
    for _ in range(2):
        node.start(lambda _: config).get("t", 0)
        node.rest(10_000)
        node.stop()
    manager = node.start(lambda _: config)
    assert manager.previous_broker_epoch == 5
    _, copy = resumed(node)
    assert all_records(copy) == records


@pytest.mark.parametrize("config", [COMPACT, DELETE], ids=["compact", "delete"])
def test_a_flush_does_not_hide_a_hole_in_a_copy(config: LogConfig) -> None:
    node, records = with_a_lost_segment(config)
    copy = node.start(lambda _: config).futures.get("t", 0)
    if copy is not None:
        copy.flush()
    _, copy = resumed(node)
    assert all_records(copy) == records


def test_a_copy_is_truncated_to_its_durable_part_in_steps() -> None:
    """No caller gets it before the last step, and a clean stop in between leaves the rest to the next start."""
    node = Node(["/d1", "/d2"])
    log = node.start(lambda _: DELETE).create("t", 0, ID)
    for number in range(60):
        put(log, (b"%d" % number, b"v" * 30))
    records = all_records(log)
    copied(node.manager, log)
    node.rest(10)
    node.kill()
    manager = node.start(lambda _: DELETE)
    target = manager.futures.directory_of("t", 0)
    assert target is not None
    target.cut_step = 1
    with pytest.raises(CutLater):
        manager.futures.get("t", 0)
    assert list(manager.futures.logs()) == []
    node.stop()
    node.start(lambda _: DELETE)
    _, copy = resumed(node)
    assert all_records(copy) == records


def test_a_copy_without_its_log_keeps_its_durable_records() -> None:
    """A crash between the two renames of a promotion: no checkpoint says that the copy is complete."""
    node = Node(["/d1", "/d2"])
    manager = node.start()
    log = manager.create("t", 0, ID)
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(batch(value), 0, NOW)
    copied(manager, log).flush()
    node.disk.fsync_dir("/d2")
    manager.take_away("t", 0, ".delete")
    node.disk.fsync_dir("/d1")
    node.kill()
    node.disk.lose_power()
    manager = node.start()
    assert manager.get("t", 0) is None
    assert values(manager.futures.promote("t", 0)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("is_offline", [False, True])
def test_a_name_proves_that_a_copy_is_complete(is_offline: bool) -> None:
    """A crash between the two renames of a promotion. The directory of the copy may be offline at the next start."""
    node = Node(["/d1", "/d2"])
    manager = node.start()
    log = manager.create("t", 0, ID, directory_id=Uuid(manager.directories[0].id))
    log.append_as_leader(batch(b"a"), 0, NOW)
    copied(manager, log).flush()
    (copy,) = (name for name in node.disk.listdir("/d2") if name.endswith("-future"))
    node.disk.rename("/d1/t-0", f"/d1/{copy.removesuffix('future')}delete")
    node.disk.fsync_dir("/d1")
    node.disk.fsync_dir("/d2")
    node.kill()
    if is_offline:
        node.disk.dead = "/d2"
        node.start()
        node.rest(100_000)
        node.kill()
        node.disk.revive("/d2")
    manager = node.start()
    assert manager.futures.is_complete("t", 0, ID)
    assert values(manager.futures.promote("t", 0)) == [b"a"]
    node.rest(100_000)
    assert [name for name in node.disk.listdir("/d1") if name.startswith("t-")] == []


@pytest.mark.parametrize("others", [0, 1])
def test_a_kill_after_a_move_forgets_no_producer_without_a_batch(others: int) -> None:
    """All records of the producer are deleted, so the copy has none of them; its state was in memory only."""
    node = Node(["/d1", "/d2"])
    manager = node.start()
    log = manager.create("t", 0, ID, directory_id=Uuid(manager.directories[0].id))
    log.append_as_leader(idempotent(0, b"a", b"b"), 0, NOW)
    log.roll(log.end_offset)
    log.high_watermark = log.end_offset
    log.delete_records(log.end_offset)
    for _ in range(others):
        log.append_as_leader(batch(b"c"), 0, NOW)
        log.high_watermark = log.end_offset
    copy = copied(manager, log)
    copy.flush()
    copy.producers.take_over(log.producers)
    log.twin = None
    manager.futures.promote("t", 0)
    node.rest(100)
    node.kill()
    found = node.start().get("t", 0)
    assert found is not None
    assert (found.start_offset, found.end_offset) == (2, 2 + others)
    assert found.append_as_leader(idempotent(0, b"a", b"b"), 0, NOW).is_duplicate


def test_a_copy_without_the_old_name_is_not_known_to_be_complete() -> None:
    """Its log may be in a directory that was removed from the configuration."""
    node = Node(["/d1", "/d2"])
    manager = node.start()
    copied(manager, manager.create("t", 0, ID)).flush()
    manager.take_away("t", 0, ".delete")
    node.kill()
    assert not node.start().futures.is_complete("t", 0, ID)


def test_a_copy_accepts_a_batch_that_overlaps_its_last_gap() -> None:
    """After a power loss the shorter log was written again, in batches with other bounds than the copy's."""
    node = Node(["/d1", "/d2"])
    manager = node.start(lambda _: COMPACT)
    log = manager.create("t", 0, ID)
    log.append_as_leader(batch(b"a", b"b", b"c"), 0, NOW)
    log.append_as_leader(batch(b"d", b"e", b"f"), 0, NOW)
    log.high_watermark = 6
    log.delete_records(5)
    copy = log.twin = manager.futures.create(
        "t", 0, ID, next(each for each in manager.directories if each is not log.dir)
    )
    copy.append_as_follower(batch(b"k", base_offset=0))
    copy.append_as_follower(batch(b"l", base_offset=8))
    node.cut(copy, 5)
    while copy.end_offset < log.end_offset:
        copy_some(log, copy)
    assert values(copy) == values(log) == [b"f"]


def test_the_start_of_a_moved_log_is_checkpointed_soon() -> None:
    node = Node(["/d1", "/d2"])
    manager = node.start()
    log = manager.create("t", 0, ID)
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(batch(value), 0, NOW)
    log.high_watermark = 3
    copied(manager, log).high_watermark = 3
    log.delete_records(2)
    copy_some(log, log.twin)
    manager.futures.promote("t", 0)
    node.rest(1000)
    node.kill()
    moved = node.start().get("t", 0)
    assert moved is not None
    assert moved.start_offset == 2


@pytest.mark.parametrize("moves_during_removal", [False, True])
def test_segments_that_a_copy_drops_are_removed_from_the_place_where_it_replaces_its_log(
    moves_during_removal: bool,
) -> None:
    """They were looked for where the copy had been, and took space until the next start."""
    node = Node(["/d1", "/d2"])
    config = make_config({"internal.segment.bytes": "200", "file.delete.delay.ms": "2000"})
    manager = node.start(lambda _: config)
    log = manager.create("t", 0, ID)
    for _ in range(9):
        log.append_as_leader(batch(b"x" * 50), 0, NOW)
    log.high_watermark = 3
    copy = copied(manager, log)
    log.flush()
    copy.flush()
    copy.truncate_to(3)
    folder = copy.path.rpartition("/")[2]
    assert [name for name in node.disk.names(f"/d2/{folder}") if name.endswith(".deleted")]
    log.truncate_to(3)
    if moves_during_removal:
        node.host.background_ms = 1_000.0
        node.rest(2_001)
    manager.futures.promote("t", 0)
    node.rest(10_000)
    assert [name for name in node.disk.names("/d2/t-0") if name.endswith(".deleted")] == []
