"""Logs that are truncated, emptied or reset at the edges: their start, their end, and their state."""

from __future__ import annotations

import pytest

from kraft_node.log import trimming
from kraft_node.log.config import make_config
from kraft_node.log.errors import CutLater
from kraft_node.log.log import Log
from kraft_node.log.producers import replay
from kraft_node.log.segments import index
from kraft_protocol.records.batch import build_batch
from tests.unit.log.compaction.test_cleaner import CONFIG as COMPACTED
from tests.unit.log.compaction.test_cleaner import compact, put
from tests.unit.log.node import ID, Node, recorded
from tests.unit.log.world import DIR, NOW, LogWorld, all_records, batch, values


def produced(log: Log, *sequences: int) -> None:
    for number in sequences:
        raw = batch(b"a", b"b", b"c", producer_id=7, producer_epoch=0, base_sequence=number * 3)
        log.append_as_leader(raw, 0, NOW)


@pytest.mark.parametrize("seed", range(10))
def test_a_reset_before_a_power_loss_leaves_a_log_that_starts(seed: int) -> None:
    """A power loss brings the old names back: the log ended before the recovery point, and the start failed."""
    node = Node(seed=seed)
    log = node.start().create("t", 0, ID)
    produced(log, 0, 1)
    log.flush()
    log.reset_to(70)
    node.rest(10_000)
    node.kill()
    node.disk.lose_power()
    again = node.start().get("t", 0)
    assert again is not None
    assert again.end_offset in (6, 70)


def test_a_log_truncated_at_its_start_keeps_its_producers() -> None:
    """As in Apache Kafka: deleted records count as long as they are there."""
    log = LogWorld().open()
    produced(log, 0, 1)
    log.high_watermark = 6
    log.delete_records(6)
    produced(log, 2)
    assert log.truncate_to(6)
    assert (log.start_offset, log.end_offset, log.high_watermark) == (6, 6, 6)
    assert [producer.last_sequence for producer in log.producers.active()] == [5]
    assert log.truncate_to(3)
    assert (log.start_offset, log.end_offset, log.high_watermark) == (3, 3, 3)
    assert [producer.last_sequence for producer in log.producers.active()] == [2]


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_truncated_before_its_first_batch_continues_there(clean: bool) -> None:
    world = LogWorld()
    log = world.open(COMPACTED)
    log.append_as_follower(batch(b"x", base_offset=7))
    log.high_watermark = 8
    log.truncate_to(5)
    assert log.end_offset == 5
    log.flush()
    again = world.open(COMPACTED, clean=clean, recovery_point=5)
    assert again.end_offset == 5
    again.append_as_leader(batch(b"next"), 0, NOW)
    assert values(again) == [b"next"]


def test_a_torn_segment_after_a_gap_continues_at_its_base() -> None:
    """It continued at the previous segment's end, with offsets before its own base."""
    world = LogWorld()
    log = world.open(COMPACTED)
    put(log, (b"a", b"v" * 600))
    put(log, (b"k", b"old"))
    log.roll(base := log.end_offset)
    put(log, (b"k", b"v" * 900))
    log.roll(log.end_offset)
    compact(log)
    assert log.segments.at(0).find(1)[1] == 0, "the first segment ends early"
    world.disk.flip(f"{DIR}/t-0/{base:020d}.log", 30, 1)
    again = LogWorld(disk=world.disk).open(COMPACTED, clean=False)
    assert again.end_offset == base
    put(again, (b"k2", b"next"))
    assert again.end_offset == base + 1
    third = LogWorld(disk=world.disk).open(COMPACTED, clean=False)
    assert values(third)[-1] == b"next"


def test_deleted_offsets_are_not_reused_after_their_records_were_lost() -> None:
    """The checkpoint names them as deleted, so they existed: as in Apache Kafka, the log continues behind them."""
    world = LogWorld()
    log = world.open()
    produced(log, 0)
    again = LogWorld(disk=world.disk).open(clean=False, start_offset=5)
    assert (again.start_offset, again.end_offset, again.high_watermark) == (5, 5, 5)
    again.append_as_leader(batch(b"next"), 0, NOW)
    assert values(again) == [b"next"]
    third = LogWorld(disk=world.disk).open(clean=False, start_offset=5)
    assert (third.start_offset, third.end_offset) == (5, 6)


def test_a_log_truncated_below_its_start_is_recovered_from_there() -> None:
    """The checkpoint of the start is lowered to the truncation at once."""
    node = Node()
    manager = node.start()
    log = manager.create("t", 0, ID)
    produced(log, 0, 1)
    log.high_watermark = 6
    log.delete_records(6)
    manager.directories[0].note(log)
    manager.directories[0].high_watermarks["t"][0] = 0
    manager.directories[0].changed("t")
    manager.directories[0].write_offsets()()
    node.cut(log, 3)
    produced(log, 1)
    node.kill()
    again = node.start().get("t", 0)
    assert again is not None
    assert (again.start_offset, again.end_offset) == (3, 6)


def test_segments_rolled_during_an_fsync_are_flushed_after_it() -> None:
    world = LogWorld()
    log = world.open({"internal.segment.bytes": "400"})
    for number in range(30):
        log.append_as_leader(batch(b"%d" % number), 0, NOW)
    world.rest(1000)
    assert log.recovery_point == log.active.base


def test_a_reopened_segment_rolls_by_the_time_of_its_first_record() -> None:
    world = LogWorld()
    config = {"internal.segment.bytes": "400", "segment.ms": "1000"}
    log = world.open(config)
    for number in range(12):
        log.append_as_leader(batch(b"%d" % number), 0, NOW)
    log.active.finish()
    again = world.open(config)
    again.truncate_to(again.segment_bases[1] + 1)
    base = again.active.base
    again.append_as_leader(batch(b"late", timestamp=NOW + 2000), 0, NOW + 2000)
    assert again.segment_bases[-2:] == [base, base + 1]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("end", [7, 6, 3, 0])
@pytest.mark.parametrize("flushed", [False, True])
def test_truncated_records_stay_away_after_a_clean_stop_and_power_loss(seed: int, end: int, flushed: bool) -> None:
    """Without a write after the truncation it was not fsynced: a power loss after the stop undid it."""
    node = Node(seed=seed)
    config = make_config({"internal.segment.bytes": "250"})
    log = node.start(lambda _: config).create("t", 0, ID, config)
    produced(log, *range(4))
    if flushed:
        log.flush()
    log.truncate_to(end)
    node.stop()
    node.disk.lose_power()
    again = node.start(lambda _: config).get("t", 0)
    assert again is not None
    assert again.end_offset == end // 3 * 3


@pytest.mark.parametrize("seed", range(10))
def test_records_that_recovery_truncates_stay_away_after_a_clean_stop(seed: int) -> None:
    """A torn batch right after the recovery point returned under the clean mark, and the directory was refused."""
    node = Node(seed=seed)
    log = node.start().create("t", 0, ID)
    produced(log, 0)
    log.flush()
    log.high_watermark = 3
    node.manager.checkpoint_all()
    node.rest()
    node.kill()
    path = f"/d1/t-0/{0:020d}.log"
    node.disk.open(path).pwrite(node.disk.size(path), [b"torn"])
    node.disk.sync_all()
    node.start()
    node.rest()
    node.stop()
    node.disk.lose_power()
    again = node.start().get("t", 0)
    assert again is not None, node.failures
    assert again.end_offset == 3


def test_segments_never_overlap() -> None:
    """An undone truncation brought back records that overlap the next segment, so reads missed its records."""
    world = LogWorld()
    log = world.open(COMPACTED)
    for number in range(30):
        put(log, (b"%d" % number, b"v" * 30))
    first, second = log.segment_bases[:2]
    file = log.segments.at(0).file()
    file.pwrite(file.size(), [batch(b"again", base_offset=second, last_offset=second + 1)])
    again = LogWorld(disk=world.disk).open(COMPACTED, clean=False, recovery_point=second - 1)
    assert again.segment_bases == [first]
    assert again.end_offset == second + 2
    assert values(again)[-1] == b"again"


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_truncated_at_a_gap_continues_there_after_a_restart(clean: bool) -> None:
    """Its file ended before the checkpoints' offsets: a kill cost the directory, a clean stop reused offsets."""
    node = Node()
    config = make_config(COMPACTED)
    log = node.start(lambda _: config).create("t", 0, ID)
    for offset in (0, 7, 20):
        log.append_as_follower(batch(b"x", base_offset=offset, leader_epoch=0))
    log.high_watermark = log.end_offset
    log.flush()
    log.truncate_to(20)
    assert log.end_offset == 20
    node.manager.checkpoint_all()
    log.flush_in_background(lambda: None)
    node.rest(10_000)
    node.manager.checkpoint_all()
    node.rest()
    node.stop() if clean else node.kill()
    again = node.start(lambda _: config).get("t", 0)
    assert again is not None
    assert again.end_offset == 20
    assert again.segment_bases == [0, 20]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("end", [6, 3, 0])
def test_records_truncated_before_a_kill_stay_away_after_a_clean_stop(seed: int, end: int) -> None:
    """The process after the kill found a log that ended at its recovery point, and fsynced nothing at its own end."""
    node = Node(seed=seed)
    config = make_config({"internal.segment.bytes": "250"})
    log = node.start(lambda _: config).create("t", 0, ID, config)
    produced(log, *range(4))
    log.flush()
    log.truncate_to(end)
    node.kill()
    again = node.start(lambda _: config).get("t", 0)
    assert again is not None
    assert again.end_offset == end
    node.stop()
    node.disk.lose_power()
    again = node.start(lambda _: config).get("t", 0)
    assert again is not None
    assert again.end_offset == end


@pytest.mark.parametrize("seed", range(10))
def test_a_high_watermark_does_not_outlive_its_records(seed: int) -> None:
    """Power brought truncated records back, and the checkpointed high watermark belonged to their replacements."""
    node = Node(seed=seed)
    log = node.start().create("t", 0, ID)
    log.append_as_follower(build_batch([(b"k", b"old")], leader_epoch=0))
    log.flush()
    log.truncate_to(0)
    log.append_as_follower(build_batch([(b"k", b"new")], leader_epoch=1))
    log.high_watermark = 1
    node.manager.checkpoint_all()
    node.rest()
    node.kill()
    node.disk.lose_power()
    again = node.start().get("t", 0)
    if again is not None and again.high_watermark:
        assert [record.value for record in all_records(again)] == [b"new"]


@pytest.mark.parametrize("reset", [False, True])
def test_thousands_of_segments_are_truncated_in_steps(*, reset: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 segments took a second of the loop; a kill between two steps finds a truncated log."""
    node = Node()
    log = node.start(lambda _: make_config({"internal.segment.bytes": "100"})).create("t", 0, ID)
    for number in range(3 * trimming.CUT_STEP):
        log.append_as_leader(batch(b"%d" % number), 0, NOW)
    seen = recorded(node, monkeypatch)
    attempts: list[int] = []
    is_done = False
    while not is_done:
        assert len(attempts) < 100
        before = len(seen)
        try:
            log.reset_to(5000) if reset else log.truncate_to(1)
            is_done = True
        except CutLater:
            pass
        attempts.append(len(seen) - before)
        assert values(log) == [b"%d" % number for number in range(log.end_offset if log.end_offset < 5000 else 0)]
        node.rest(1)
    assert max(attempts) < 10 * trimming.CUT_STEP
    assert len(attempts) >= 3
    assert log.end_offset == (5000 if reset else 1)
    node.kill()
    manager = node.start()
    manager.recovery.inline_names_bytes = 1 << 30
    again = manager.get("t", 0)
    assert again is not None
    assert (again.end_offset, values(again)) == ((5000, []) if reset else (1, [b"0"]))


def cut_in_steps(node: Node, log: Log, offset: int) -> int:
    """Truncate; returns the number of steps that may be repeated at once."""
    for step in range(100):
        try:
            log.truncate_to(offset)
        except CutLater as later:
            assert later.is_soon
        else:
            return step
    raise AssertionError("the truncation does not end")


def test_a_truncation_step_reads_no_index_of_dropped_segments(caplog: pytest.LogCaptureFixture) -> None:
    """Missing indexes of the segments where a step ended were rebuilt on the event loop, from whole segments."""
    node = Node()
    log = node.start(lambda _: make_config({"internal.segment.bytes": "100"})).create("t", 0, ID)
    for number in range(3 * trimming.CUT_STEP):
        log.append_as_leader(batch(b"%d" % number), 0, NOW)
    node.stop()
    again = node.start(lambda _: log.config).get("t", 0)
    assert again is not None
    for base in again.segment_bases[1:]:
        node.disk.remove(f"{again.path}/{base:020d}.index")
    assert cut_in_steps(node, again, 1) >= 2
    assert "indexes are rebuilt" not in caplog.text
    again.append_as_follower(batch(b"new", base_offset=1, timestamp=NOW + 5))
    assert values(again) == [b"0", b"new"]
    assert again.offset_for_timestamp(NOW + 5) == (NOW + 5, 1)


def test_a_truncation_checks_no_index_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """It went through all entries, which took a tenth of a second for a large segment."""
    node = Node()
    log = node.start(lambda _: make_config({"index.interval.bytes": "0"})).create("t", 0, ID)
    for number in range(300):
        log.append_as_leader(batch(b"%d" % number, timestamp=NOW + number), 0, NOW)
    for check in ("used_entries", "used_time_entries"):
        monkeypatch.setattr(index, check, lambda _data: 1 // 0)
    log.truncate_to(123)
    for number in range(123, 130):
        log.append_as_leader(batch(b"again", timestamp=NOW + 1000 + number), 1, NOW)
    node.stop()
    monkeypatch.undo()
    again = node.start(lambda _: log.config).get("t", 0)
    assert again is not None
    assert [again.offset_for_timestamp(NOW + number) for number in (50, 122, 1126)] == [
        (NOW + 50, 50),
        (NOW + 122, 122),
        (NOW + 1126, 126),
    ]
    assert values(again)[120:125] == [b"120", b"121", b"122", b"again", b"again"]


def test_truncating_a_log_without_producers_reads_no_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    log = node.start().create("t", 0, ID)
    for number in range(20):
        log.append_as_leader(batch(b"%d" % number), 0, NOW)
    node.kill()
    again = node.start().get("t", 0)
    assert again is not None
    assert again.known_producers is not None
    monkeypatch.setattr(replay, "batches", lambda *_: 1 // 0)
    again.truncate_to(12)
    assert values(again) == [b"%d" % number for number in range(12)]
