"""Compaction: the latest record of each key stays, and nothing else is lost."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from kraft_node.log.compaction import cleaning
from kraft_node.log.compaction.choice import look
from kraft_node.log.compaction.cleaning import STOPPED, Cleaning
from kraft_node.log.config import make_config
from kraft_node.log.log import Log
from kraft_protocol.records.batch import HEADER_SIZE, build_batch, check_batch, iter_headers, records_section
from kraft_protocol.records.compression import compress
from kraft_protocol.records.control import build_marker
from tests.unit.log.node import ID, Node
from tests.unit.log.world import DIR, NOW, LogWorld, all_records, data_records, read_bytes

CONFIG = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "1000",
    "index.interval.bytes": "200",
    "delete.retention.ms": "1000",
}


def put(log: Log, *pairs: tuple[bytes, bytes | None], **how: Any) -> None:
    how.setdefault("timestamp", NOW)
    log.append_as_leader(build_batch(list(pairs), **how), 0, NOW)
    log.high_watermark = log.end_offset


def compact(log: Log, first_dirty: int = 0, now: int = NOW) -> int:
    steps = Cleaning(log, first_dirty, now).steps()
    while True:
        try:
            work = next(steps)
        except StopIteration as end:
            return int(end.value)
        if work is not None:
            work()


def fill(log: Log, seed: int, count: int = 200) -> dict[bytes, tuple[int, bytes | None]]:
    """Random writes; returns the offset of each key's latest record."""
    rng = random.Random(seed)
    latest: dict[bytes, tuple[int, bytes | None]] = {}
    for number in range(count):
        pairs = []
        for i in range(rng.randrange(1, 4)):
            key = b"%d" % rng.randrange(20) if rng.random() < 0.9 else b"a long key " * 4 + b"%d" % rng.randrange(3)
            value = None if rng.random() < 0.1 else b"%d-%d" % (number, i)
            latest[key] = (log.end_offset + len(pairs), value)
            pairs.append((key, value))
        put(log, *pairs, compression=rng.randrange(5), timestamp=NOW + number)
    return latest


def test_a_batch_at_the_log_start_keeps_its_latest_records() -> None:
    log = LogWorld().open(CONFIG)
    put(log, (b"early", b"1"), (b"a", b"1"), (b"b", b"1"))
    put(log, (b"b", b"2"))
    log.delete_records(1)
    log.roll(log.end_offset)
    assert compact(log, log.start_offset) == 4
    assert [(record.offset, record.key, record.value) for record in all_records(log)] == [
        (1, b"a", b"1"),
        (3, b"b", b"2"),
    ]


@pytest.mark.parametrize("seed", range(15))
def test_the_latest_record_of_each_key_keeps_its_offset(seed: int) -> None:
    world = LogWorld()
    log = world.open(CONFIG)
    latest = fill(log, seed)
    before = {record.offset: record for record in all_records(log)}
    size, segments = log.size_bytes, len(log.segment_bases)
    assert compact(log) == log.active.base
    assert log.size_bytes < size
    compact(log)
    assert len(log.segment_bases) < segments, "small segments are joined by the next pass"
    after = {record.offset: record for record in all_records(log)}
    assert all(before[offset] == record for offset, record in after.items()), "offsets, times and headers stay"
    kept = {record.key: (record.offset, record.value) for record in after.values()}
    assert kept == latest
    for record in before.values():
        if record.offset < log.active.base and record.offset not in after:
            assert record.key is not None
            assert latest[record.key][0] > record.offset, "only what has a successor went"
    clean = log.active.base
    seen = [key for key, (offset, _) in kept.items() if offset < clean]
    assert len(seen) == len(set(seen))
    for number in range(len(log.segment_bases)):
        data = log.segments.at(number).file().pread(0, 1_000_000)
        for header in iter_headers(data):
            check_batch(data, header.position)
    for how in ({"clean": True}, {"clean": False}):
        log.active.finish()
        again = world.open(CONFIG, **how)
        assert {record.offset: record for record in all_records(again)} == after
        for offset in range(0, log.end_offset, 7):
            header = next(iter(iter_headers(read_bytes(again.read(offset, 1)))))
            assert header.last_offset >= offset


def test_a_batch_that_loses_records_is_compressed_at_its_codecs_default_level() -> None:
    """As by Apache Kafka's cleaner: `compression.gzip.level` is for batches that the broker converts."""
    log = LogWorld().open({**CONFIG, "compression.gzip.level": "1"})
    text = b" ".join(b"%d" % (number * number) for number in range(250))
    put(log, (b"a", b"old"), (b"b", text), compression=1)
    put(log, (b"a", b"new"))
    log.roll(log.end_offset)
    compact(log)
    raw = read_bytes(log.read(0, 100_000))
    header = next(iter_headers(raw))
    plain, packed = bytes(records_section(raw, header)), raw[HEADER_SIZE : header.length]
    assert header.count == 1
    assert packed == compress(1, plain)
    assert packed != compress(1, plain, 1)


def test_tombstones_are_removed_by_a_second_pass() -> None:
    log = LogWorld().open(CONFIG)
    put(log, (b"gone", b"x"))
    put(log, (b"gone", None))
    for number in range(40):
        put(log, (b"k%d" % (number % 4), b"v" * 30))
    first = compact(log)
    assert [r.value for r in all_records(log) if r.key == b"gone"] == [None]
    (header, *_) = iter_headers(read_bytes(log.read(0, 100_000))[: log.segments.at(0).size])
    assert header.delete_horizon_ms == NOW + 1000
    assert [r.timestamp for r in all_records(log) if r.key == b"gone"] == [NOW]
    for number in range(40):
        put(log, (b"k%d" % (number % 4), b"v" * 30))
    second = compact(log, first, NOW + 999)
    assert [r.value for r in all_records(log) if r.key == b"gone"] == [None]
    for number in range(40):
        put(log, (b"k%d" % (number % 4), b"v" * 30))
    compact(log, second, NOW + 1000)
    assert [r.value for r in all_records(log) if r.key == b"gone"] == []


def test_a_producers_last_batch_keeps_its_header() -> None:
    world = LogWorld()
    log = world.open(CONFIG)
    put(log, (b"k", b"1"), producer_id=5, producer_epoch=0, base_sequence=0)
    for _ in range(60):
        put(log, (b"k", b"2" * 20))
    compact(log)
    header = next(iter(iter_headers(read_bytes(log.read(0, 100_000))[: log.segments.at(0).size])))
    assert (header.producer_id, header.count, header.base_offset) == (5, 0, 0)
    log.active.finish()
    for snapshot in list(log.producers.snapshots):
        world.disk.remove(f"{DIR}/t-0/{snapshot:020d}.snapshot")
    again = world.open(CONFIG, clean=False)
    assert [producer.last_sequence for producer in again.producers.active()] == [0]


def test_aborted_records_are_removed_and_open_transactions_stop_the_cleaner() -> None:
    log = LogWorld().open(CONFIG)
    txn: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "transactional": True}
    put(log, (b"only", b"aborted"), base_sequence=0, **txn)
    end = build_marker(commit=False, producer_id=9, producer_epoch=0, coordinator_epoch=1, timestamp=NOW)
    log.append_as_leader(end, 0, NOW, internal=True)
    for _ in range(40):
        put(log, (b"k", b"v" * 30))
    put(log, (b"k", b"open"), base_sequence=1, **txn)
    held = log.end_offset - 1
    for _ in range(40):
        put(log, (b"k", b"v" * 30))
    assert compact(log) <= held
    got = [record.value for record in all_records(log)]
    assert b"aborted" not in got
    assert b"open" in got
    assert all_records(log)[0].offset == 1, "the marker stays as long as records of the transaction were met"
    assert log.aborted_transactions(0, log.end_offset) == [(9, 0)]


def test_the_lag_keeps_young_segments() -> None:
    log = LogWorld().open({**CONFIG, "min.compaction.lag.ms": "10000"})
    for number in range(60):
        put(log, (b"k", b"v" * 30), timestamp=NOW + number)
    assert compact(log, 0, NOW + 5000) == 0
    assert look(log, 0, NOW + 5000).ratio == 0
    assert compact(log, 0, NOW + 20_000) == log.active.base


def test_a_truncation_during_a_pass_stops_it() -> None:
    log = LogWorld().open(CONFIG)
    fill(log, 1)
    steps = Cleaning(log, 0, NOW).steps()
    next(steps)
    log.truncate_to(log.segment_bases[1])
    before = all_records(log)
    with pytest.raises(StopIteration):
        while True:
            work = next(steps)
            if work is not None:
                work()
    assert all_records(log) == before


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_at_any_point_of_a_pass_loses_no_record(seed: int) -> None:
    world = LogWorld(seed)
    log = world.open(CONFIG)
    latest = fill(log, seed, 80)
    log.active.finish()
    log.flush()
    for name in world.disk.listdir(f"{DIR}/t-0"):
        world.disk.open(f"{DIR}/t-0/{name}").fsync()
    world.disk.fsync_dir(f"{DIR}/t-0")
    stop = world.disk.operations + random.Random(seed).randrange(250)

    class Crash(Exception):  # noqa: N818
        pass

    def fail(_operation: str, _path: str) -> OSError | None:
        if world.disk.operations > stop:
            raise Crash
        return None

    world.disk.fail = fail
    with contextlib.suppress(Crash):
        compact(log)
    world.disk.fail = None
    world.disk.lose_power()
    again = LogWorld(disk=world.disk).open(CONFIG, clean=False, recovery_point=log.recovery_point)
    assert again.end_offset == log.end_offset
    kept = {record.key: (record.offset, record.value) for record in all_records(again)}
    assert kept == latest


def with_aborted(world: LogWorld) -> Log:
    """A log whose first segment holds an aborted transaction and many records that compaction removes."""
    log = world.open(CONFIG)
    txn: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "transactional": True}
    put(log, (b"k", b"aborted"), base_sequence=0, **txn)
    end = build_marker(commit=False, producer_id=9, producer_epoch=0, coordinator_epoch=1, timestamp=NOW)
    log.append_as_leader(end, 0, NOW, internal=True)
    for _ in range(40):
        put(log, (b"k", b"v" * 30))
    log.active.finish()
    log.flush()
    world.rest()
    return log


@pytest.mark.parametrize("power", [False, True])
def test_a_kill_during_a_compaction_loses_no_aborted_transaction(power: bool) -> None:
    """The index of aborted transactions was deleted with the segment that the compacted one was about to replace."""
    for step in range(1000):
        world = LogWorld(step)
        log = with_aborted(world)
        if power:
            world.disk.sync_all()
        stop, ended = world.disk.operations + step, False

        def fail(_operation: str, path: str, world: LogWorld = world, stop: int = stop) -> OSError | None:
            return OSError("killed", path) if world.disk.operations > stop else None

        world.disk.fail = fail
        try:
            compact(log)
            ended = True
        except OSError:
            pass
        world.disk.fail = None
        world.disk.lose_power() if power else world.disk.kill_process()
        again = LogWorld(disk=world.disk).open(CONFIG, clean=False, recovery_point=log.recovery_point)
        assert again.aborted_transactions(0, again.end_offset) == [(9, 0)], step
        if ended:
            return


def test_an_interrupted_compaction_of_apache_kafka_is_completed_with_all_its_files() -> None:
    """Its segments have their indexes, and its files are renamed one after the other: the .log first."""
    indexes = (".index", ".timeindex", ".txnindex")
    for renamed in range(5):
        world = LogWorld()
        disk, path = world.disk, f"{DIR}/t-0/{0:020d}"
        log = with_aborted(world)
        second = log.segment_bases[1]
        log.close()
        for suffix in (".log", *indexes):
            file = disk.open(path + suffix)
            with contextlib.closing(disk.open(path + suffix + ".swap", create=True)) as swap:
                swap.pwrite(0, [file.pread(0, file.size())])
        disk.open(path + ".txnindex").truncate(0)  # the old file, with other content
        for suffix in (".log", *indexes)[:renamed]:
            disk.rename(path + suffix + ".swap", path + suffix)
        again = LogWorld(disk=disk).open(CONFIG)
        assert again.segment_bases[:2] == [0, second]
        assert again.aborted_transactions(0, again.end_offset) == [(9, 0)], renamed
        assert not [name for name in disk.listdir(f"{DIR}/t-0") if name.endswith(".swap")]


def test_a_tombstone_that_no_pass_read_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that could not read that far removed it while copying its segment, and deleted records came back."""
    monkeypatch.setattr(cleaning, "KEYS_MAX", 3)
    log = LogWorld().open({**CONFIG, "delete.retention.ms": "0"})
    put(log, (b"gone", b"x"))
    for number in range(8):
        put(log, (b"%d" % number, b"v"))
    put(log, (b"gone", None))
    log.roll(log.end_offset)
    put(log, (b"z", b"active"))
    first_dirty, now = 0, NOW
    for _ in range(9):
        first_dirty, now = compact(log, first_dirty, now), now + 1
    assert [record.value for record in all_records(log) if record.key == b"gone"] in ([], [None])


def test_a_tombstone_removes_a_record_written_in_a_transaction() -> None:
    log = LogWorld().open({**CONFIG, "delete.retention.ms": "0"})
    put(log, (b"gone", b"x"), producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    end = build_marker(commit=True, producer_id=9, producer_epoch=0, coordinator_epoch=1, timestamp=NOW)
    log.append_as_leader(end, 0, NOW, internal=True)
    put(log, (b"gone", None), (b"other", None))
    put(log, (b"last", b"x"))
    log.roll(log.end_offset)
    put(log, (b"z", b"active"))
    compact(log)
    assert [(record.key, record.value) for record in data_records(log)][:2] == [(b"gone", None), (b"other", None)]
    compact(log, 0, NOW + 1)
    assert [record.key for record in data_records(log)] == [b"last", b"z"]


def test_a_log_whose_last_records_were_removed_is_clean() -> None:
    """Its last segment stayed dirty: it was compacted again every 15 s."""
    log = LogWorld().open(CONFIG)
    put(log, (b"gone", b"x"))
    put(log, (b"gone", None))
    log.roll(log.end_offset)
    put(log, (b"z", b"active"))
    compact(log)
    compact(log, 0, NOW + 1000)
    assert [record.key for record in all_records(log)] == [b"z"]
    assert compact(log, 0, NOW + 2000) == log.active.base


def test_segments_emptied_by_compaction_do_not_block_retention() -> None:
    for retention in ({"retention.ms": "1000"}, {"retention.bytes": "1"}):
        log = LogWorld().open({**CONFIG, "cleanup.policy": "compact,delete", **retention})
        for _ in range(3):
            put(log, (b"k", b"v" * 700))
        compact(log)
        assert log.segments.sizes[0] == 0
        log.retain(NOW + 2000)
        assert len(log.segment_bases) == 1, retention


def test_a_truncated_log_is_dirty_from_the_truncation() -> None:
    """The replacement counted as clean: values that its tombstones had deleted came back when these expired."""
    node = Node()
    config = make_config(CONFIG)
    manager = node.start(lambda _: config)
    log = manager.create("t", 0, ID)
    offsets = manager.directories[0].cleaner_offsets
    for number in range(40):
        put(log, (b"%d" % number, b"v" * 30))
    node.rest(30_000)
    assert offsets["t"][0] == log.active.base
    node.cut(log, 7)
    assert offsets["t"][0] == 7
    node.kill()
    manager = node.start(lambda _: config)
    assert manager.directories[0].cleaner_offsets["t"][0] == 7


@pytest.mark.parametrize("slices", range(1, 14))
def test_a_pass_stopped_by_a_truncation_leaves_no_cleaned_files(slices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment under its reader counted as damaged, and with it the log directory, or the log was left alone."""
    monkeypatch.setattr(cleaning, "SLICE_BYTES", 300)
    log = LogWorld().open(CONFIG)
    fill(log, 1, 30)
    steps = Cleaning(log, 0, NOW).steps()
    with pytest.raises(StopIteration) as end:
        for number in range(1000):
            if number == slices:
                log.truncate_to(2)
            work = next(steps)
            if work is not None:
                work()
    assert end.value.value == STOPPED
    assert not [name for name in log.dir.env.disk.listdir(log.path) if name.endswith(".cleaned")]
    assert log.end_offset <= 2


def test_the_manager_compacts_and_remembers_its_progress() -> None:
    node = Node()
    config = make_config(CONFIG)
    log = node.start(lambda _: config).create("t", 0, ID)
    for _ in range(100):
        put(log, (b"k", b"v" * 30))
    size = log.size_bytes
    node.rest(30_000)
    assert log.size_bytes < size / 4
    node.stop()
    assert bytes(node.disk._inode("/d1/cleaner-offset-checkpoint").data).decode() == f"0\n1\nt 0 {log.active.base}\n"
    manager = node.start(lambda _: config)
    again = manager.get("t", 0)
    assert again is not None
    assert look(again, manager.directories[0].cleaner_offsets["t"][0], NOW).ratio == 0
    assert all_records(again)[-1].value == b"v" * 30


def test_an_unused_log_is_compacted_after_a_restart() -> None:
    """It stayed as it was until a client or a follower fetched from it."""
    node = Node()
    lazy, eager = make_config({**CONFIG, "min.cleanable.dirty.ratio": "1"}), make_config(CONFIG)
    log = node.start(lambda _: lazy).create("t", 0, ID)
    for _ in range(100):
        put(log, (b"k", b"v" * 30))
    size = log.size_bytes
    node.stop()
    manager = node.start(lambda _: eager)
    node.rest(120_000)
    assert sum(size for _, _, size in manager.sizes(manager.directories[0])) < size / 4


def test_the_largest_timestamp_is_found_anew_after_compaction() -> None:
    """The look-up's result was remembered even after compaction had removed the record."""
    log = LogWorld().open(CONFIG)
    put(log, (b"k", b"early"), timestamp=NOW + 500)
    for _ in range(40):
        put(log, (b"k", b"v" * 30))
    assert log.offset_for_timestamp(-3) == (NOW + 500, 0)
    compact(log)
    assert log.offset_for_timestamp(-3) == (NOW, all_records(log)[0].offset)


def test_a_failed_compaction_does_not_block_the_next_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Node()
    manager = node.start(topic_config=lambda _topic: make_config({**CONFIG, "min.cleanable.dirty.ratio": "0"}))
    for partition in (0, 1):
        log = manager.create("t", partition, ID)
        fill(log, 1)
        log.roll(log.end_offset)
    rewrite = Cleaning._rewrite

    def fails(self: Cleaning, group: list[int]) -> Any:
        if self._log.partition == 0:
            raise ValueError("nobody expected this")
        return rewrite(self, group)

    monkeypatch.setattr(Cleaning, "_rewrite", fails)
    with pytest.raises(ValueError, match="nobody expected this"):
        node.rest(60_000)
    before = [log.size_bytes for log in manager.open_logs()]
    node.rest(60_000)
    after = [log.size_bytes for log in manager.open_logs()]
    assert after[0] == before[0]
    assert after[1] < before[1]
