"""Every prefix, bit and crash point: recovery keeps durable records, or refuses with file and offset."""

from __future__ import annotations

import contextlib
import random

import pytest

from kraft_node.log import flushing, trimming
from kraft_node.log.errors import LogDirDamaged
from kraft_node.log.log import Log
from kraft_node.log.segments import segment, txn_index
from kraft_node.testing.disk import SimDisk
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import BatchHeader, check_batch, iter_headers
from kraft_protocol.records.control import build_marker
from tests.unit.log.world import DIR, NOW, LogWorld, batch, read_bytes, values

PATH = f"{DIR}/t-0"
FIRST = f"{PATH}/{0:020d}"
CONFIG = {"internal.segment.bytes": "400", "index.interval.bytes": "100"}


def producer_batch(sequence: int, value: bytes, **how: object) -> bytes:
    return batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence, **how)


def write(world: LogWorld, count: int = 4, config: dict[str, str] | None = None) -> Log:
    log = world.open(config)
    for number in range(count):
        log.append_as_leader(producer_batch(number, b"%d" % number), number // 2, NOW)
    return log


def closed(world: LogWorld, log: Log) -> SimDisk:
    log.active.finish()
    log.take_snapshot(log.end_offset)
    log.flush()
    return world.disk


def content(disk: SimDisk, path: str) -> bytearray:
    return disk._inode(path).data


def cut(disk: SimDisk, path: str, size: int) -> None:
    del content(disk, path)[size:]


def test_every_prefix_of_an_unflushed_log() -> None:
    world = LogWorld()
    write(world)
    size = world.disk.size(FIRST + ".log")
    one = size // 4
    for length in range(size + 1):
        disk = world.disk.copy()
        cut(disk, FIRST + ".log", length)
        log = LogWorld(disk=disk).open(clean=False)
        whole = length // one
        assert log.end_offset == whole
        assert values(log) == [b"%d" % number for number in range(whole)]
        assert disk.size(FIRST + ".log") == whole * one
        assert [p.last_sequence for p in log.producers.active()] == ([whole - 1] if whole else [])
        assert log.leader_epochs.entries() == [(epoch, epoch * 2) for epoch in range(2) if epoch * 2 < whole]
        log.append_as_leader(producer_batch(whole, b"next"), 5, NOW)
        assert values(log)[-1] == b"next"


def test_every_prefix_of_a_flushed_log_is_refused_by_name() -> None:
    world = LogWorld()
    closed(world, write(world))
    size = world.disk.size(FIRST + ".log")
    for length in range(size):
        disk = world.disk.copy()
        cut(disk, FIRST + ".log", length)
        with pytest.raises(LogDirDamaged) as caught:
            LogWorld(disk=disk).open(clean=False, recovery_point=4)
        assert caught.value.file == FIRST + ".log"
        assert caught.value.offset == length // (size // 4)


def test_every_bit_of_an_unflushed_log() -> None:
    """A flipped bit in records that were never durable truncates the log there; the earlier records are unchanged."""
    world = LogWorld()
    write(world)
    size = world.disk.size(FIRST + ".log")
    one = size // 4
    for bit in range(size * 8):
        disk = world.disk.copy()
        disk.flip(FIRST + ".log", bit // 8, bit % 8)
        log = LogWorld(disk=disk).open(clean=False)
        damaged = bit // 8 // one
        # The leader epoch is outside the CRC, and any number may be valid.
        kept = 4 if 12 <= bit // 8 % one < 16 else damaged
        assert log.end_offset == kept
        assert values(log) == [b"%d" % number for number in range(kept)]


def test_every_bit_of_a_flushed_log() -> None:
    """Nothing is truncated below the recovery point: opening or reading refuses, or every returned batch is valid."""
    world = LogWorld()
    closed(world, write(world))
    size = world.disk.size(FIRST + ".log")
    refused = 0
    for bit in range(size * 8):
        disk = world.disk.copy()
        disk.flip(FIRST + ".log", bit // 8, bit % 8)
        other = LogWorld(disk=disk)
        try:
            log = other.open(clean=False, recovery_point=4)
            for offset in range(4):
                data = read_bytes(log.read(offset, 1))
                refused += _is_bad(data, offset)
        except LogDirDamaged as e:
            assert e.file == FIRST + ".log"
            assert 0 <= e.offset <= 4
            refused += 1
        except KafkaError as e:
            assert e.code == ErrorCode.KAFKA_STORAGE_ERROR
            refused += 1
        assert disk.size(FIRST + ".log") == size, "nothing durable is cut off"
    assert refused > size * 4


def _is_bad(data: bytes, offset: int) -> bool:
    """Whether a reader that checks its batch, as every client does, notices the damage."""
    try:
        header: BatchHeader = check_batch(data)
    except ValueError:
        return True
    return not header.base_offset <= offset <= header.last_offset


def test_every_bit_of_the_indexes() -> None:
    """A wrong index costs time, never records."""
    world = LogWorld()
    log = world.open({"index.interval.bytes": "100"})
    for number in range(12):
        log.append_as_leader(batch(b"%d" % number, timestamp=NOW + number), 0, NOW)
    closed(world, log)
    for suffix in (".index", ".timeindex"):
        size = world.disk.size(FIRST + suffix)
        assert size >= 24
        for bit in range(size * 8):
            disk = world.disk.copy()
            disk.flip(FIRST + suffix, bit // 8, bit % 8)
            for clean in (True, False):
                got = LogWorld(disk=disk.copy()).open(clean=clean, recovery_point=12)
                assert got.end_offset == 12
                for offset in range(12):
                    header = next(iter_headers(read_bytes(got.read(offset, 1))))
                    assert header.base_offset == offset


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "cut", "zeros", "empty"])
def test_indexes_are_rebuilt(clean: bool, suffix: str, damage: str) -> None:
    world = LogWorld()
    log = world.open(CONFIG)
    for number in range(30):
        log.append_as_leader(batch(b"%d" % number, timestamp=NOW + number), 0, NOW)
    disk = closed(world, log)
    good = {name: bytes(content(disk, f"{PATH}/{name}")) for name in disk.listdir(PATH) if name.endswith(suffix)}
    for name in good:
        data = content(disk, f"{PATH}/{name}")
        if damage == "missing":
            disk.remove(f"{PATH}/{name}")
        elif damage == "cut":
            del data[-3:]
        elif damage == "zeros":
            data += bytes(10_000)
        else:
            data.clear()
    got = LogWorld(disk=disk).open(CONFIG, clean=clean, recovery_point=30)
    assert values(got) == [b"%d" % number for number in range(30)]
    if damage != "empty":
        assert got.offset_for_timestamp(NOW + 17) == (NOW + 17, 17)


def test_recovery_reads_only_after_the_recovery_point() -> None:
    world = LogWorld()
    log = world.open({"index.interval.bytes": "4096"})
    for number in range(2000):
        log.append_as_leader(batch(b"%d" % number, timestamp=NOW + number), 0, NOW)
    log.active.finish()
    log.take_snapshot(2000)
    log.flush()
    for number in range(5):
        log.append_as_leader(batch(b"%d" % number), 0, NOW)
    # Damage at the front that would stop a full scan.
    world.disk.flip(FIRST + ".log", 1000, 3)
    again = LogWorld(disk=world.disk).open(clean=False, recovery_point=2000)
    assert again.end_offset == 2005


@pytest.mark.parametrize("idempotent", [False, True])
def test_large_batches_below_the_recovery_point_are_not_read(idempotent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Index entries and producers are on disk, because flushed records need them there."""
    monkeypatch.setattr(segment, "PENDING_LOG_BYTES_MAX", 40_000)
    monkeypatch.setattr(flushing, "SNAPSHOT_BYTES", 80_000)
    world = LogWorld()
    log = world.open()
    for number in range(60):
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number} if idempotent else {}
        log.append_as_leader(batch(bytes(10_000), timestamp=NOW + number, **producer), 0, NOW)
        if number % 10 == 9:
            log.flush()
            trimming.drop_old_snapshots(log, log.recovery_point - 20)
    assert len(log.producers.snapshots) <= 4
    world.disk.flip(FIRST + ".log", 16, 3)  # the magic byte of the first batch
    again = LogWorld(disk=world.disk).open(clean=False, recovery_point=log.recovery_point)
    assert again.end_offset == 60
    assert [producer.last_sequence for producer in again.producers.active()] == ([59] if idempotent else [])


def test_damage_after_the_recovery_point_truncates_all_later_segments() -> None:
    world = LogWorld()
    log = world.open(CONFIG)
    for number in range(30):
        log.append_as_leader(producer_batch(number, b"%d" % number), 0, NOW)
    bases = log.segment_bases
    world.disk.flip(f"{PATH}/{bases[2]:020d}.log", 70, 0)
    again = LogWorld(disk=world.disk).open(CONFIG, clean=False, recovery_point=bases[1])
    assert again.end_offset == bases[2]
    assert values(again) == [b"%d" % number for number in range(bases[2])]
    assert [p.last_sequence for p in again.producers.active()] == [bases[2] - 1]
    assert sorted(n for n in world.disk.listdir(PATH) if n.endswith(".log")) == [f"{b:020d}.log" for b in bases[:3]]


def test_damage_in_a_closed_segment_below_the_recovery_point_is_refused() -> None:
    world = LogWorld()
    log = write(world, 30, CONFIG)
    bases = log.segment_bases
    closed(world, log)
    last = f"{PATH}/{bases[-1]:020d}.log"
    world.disk.flip(last, world.disk.size(last) - len(producer_batch(29, b"29")) + 16, 0)
    with pytest.raises(LogDirDamaged) as caught:
        LogWorld(disk=world.disk).open(CONFIG, clean=False, recovery_point=30)
    assert (caught.value.file, caught.value.offset) == (last, 29)


def test_recovery_restores_transactions_and_producers() -> None:
    world = LogWorld()
    log = world.open(CONFIG)
    for number in range(6):
        log.append_as_leader(producer_batch(number * 2, b"%d" % number, transactional=True), 0, NOW)
        log.append_as_leader(producer_batch(number * 2 + 1, b"%d" % number, transactional=True), 0, NOW)
        end = build_marker(commit=number % 2 == 0, producer_id=7, producer_epoch=0, coordinator_epoch=3, timestamp=NOW)
        log.append_as_leader(end, 0, NOW, internal=True)
    log.append_as_leader(producer_batch(12, b"open", transactional=True), 0, NOW)
    log.high_watermark = log.end_offset
    assert log.last_stable_offset == 18
    aborted = log.aborted_transactions(0, 100)
    assert aborted == [(7, 3), (7, 9), (7, 15)]
    for point in (0, 5, log.segment_bases[1], log.segment_bases[2], log.end_offset):
        disk = world.disk.copy()
        again = LogWorld(disk=disk).open(CONFIG, clean=False, recovery_point=point, high_watermark=log.end_offset)
        assert again.aborted_transactions(0, 100) == aborted
        assert again.last_stable_offset == 18
        (producer,) = again.producers.active()
        assert (producer.coordinator_epoch, producer.current_txn_first_offset, producer.last_sequence) == (3, 18, 12)
        assert again.append_as_leader(producer_batch(12, b"open", transactional=True), 0, NOW).is_duplicate


def test_a_lost_entry_of_an_aborted_transaction_leaves_no_hole() -> None:
    """Power took an entry beyond the recovery point and kept the next one: its place holds zeros.

    They would name an aborted transaction of producer 0 from offset 0 on, and hide that producer's committed records.
    """
    world = LogWorld()
    config = {**CONFIG, "internal.segment.bytes": "800"}
    log = world.open(config)
    for number in range(8):
        log.append_as_leader(producer_batch(number, b"%d" % number, transactional=True), 0, NOW)
        end = build_marker(commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=3, timestamp=NOW)
        log.append_as_leader(end, 0, NOW, internal=True)
    closed(world, log)
    base = log.active.base
    index = content(world.disk, f"{PATH}/{base:020d}.txnindex")
    assert base and len(index) > txn_index.ENTRY.size
    index[: txn_index.ENTRY.size] = bytes(txn_index.ENTRY.size)
    again = LogWorld(disk=world.disk).open(config, clean=False, recovery_point=base, high_watermark=16)
    assert again.aborted_transactions(0, 100) == [(7, 2 * number) for number in range(8)]


def test_a_torn_epoch_file_is_rebuilt_from_the_batches() -> None:
    world = LogWorld()
    closed(world, write(world))
    cut(world.disk, f"{PATH}/leader-epoch-checkpoint", 3)
    for clean in (True, False):
        log = LogWorld(disk=world.disk.copy()).open(clean=clean, recovery_point=4)
        assert log.leader_epochs.entries() == [(0, 0), (1, 2)]


def test_deleted_records_that_come_back_have_their_epochs() -> None:
    """The trimmed epochs were durable before a loss of power, the new start of the log was not."""
    for deleted in (1, 3, 5):
        world = LogWorld()
        log = write(world, 6)
        log.high_watermark = 6
        log.delete_records(deleted)
        closed(world, log)
        again = LogWorld(disk=world.disk).open(clean=False, recovery_point=6, high_watermark=6)
        assert again.start_offset == 0
        assert again.leader_epochs.entries() == [(0, 0), (1, 2), (2, 4)]
        later = LogWorld(disk=world.disk).open(recovery_point=6, high_watermark=6)
        assert later.leader_epochs.entries() == [(0, 0), (1, 2), (2, 4)], "they were written"


def test_records_that_a_kill_brings_back_after_a_truncation_to_their_end_have_their_epochs() -> None:
    """All were deleted, so the truncation removed the last epoch. The new start was not in the checkpoint."""
    world = LogWorld()
    log = world.open()
    for epoch in range(3):
        log.append_as_leader(batch(b"a", b"b"), epoch, NOW)
    log.high_watermark = 6
    log.flush()
    log.delete_records(6)
    log.truncate_to(6)
    assert log.leader_epochs.entries() == []
    world.dir.files.shed()
    again = world.open(clean=False, recovery_point=6)
    assert (again.start_offset, again.end_offset) == (0, 6)
    assert again.leader_epochs.entries() == [(0, 0), (1, 2), (2, 4)]


def test_a_damaged_snapshot_is_replaced_by_an_older_one() -> None:
    world = LogWorld()
    log = write(world, 30, CONFIG)
    closed(world, log)
    world.disk.flip(f"{PATH}/{30:020d}.snapshot", 12, 1)
    again = LogWorld(disk=world.disk).open(CONFIG)
    assert [p.last_sequence for p in again.producers.active()] == [29]


def test_leftovers_of_compaction_and_deletion_are_cleaned_up() -> None:
    world = LogWorld()
    log = write(world, 30, CONFIG)
    bases = log.segment_bases
    closed(world, log)
    disk = world.disk
    for name in ("00000000000000000099.log.deleted", "00000000000000000050.index.cleaned", "x.tmp"):
        disk.open(f"{PATH}/{name}", create=True)
    # A compacted segment that was about to replace the first two.
    swap = disk.open(f"{FIRST}.log.swap", create=True)
    keep = batch(b"kept", base_offset=0, last_offset=bases[2] - 1)
    swap.pwrite(0, [keep])
    again = LogWorld(disk=disk).open(CONFIG)
    assert again.segment_bases == [0, *bases[2:]]
    assert values(again) == [b"kept", *[b"%d" % number for number in range(bases[2], 30)]]
    assert not [name for name in disk.listdir(PATH) if name.endswith((".swap", ".cleaned", ".deleted", ".tmp"))]


@pytest.mark.parametrize("seed", range(60))
def test_fsynced_records_survive_a_power_loss_at_any_point(seed: int) -> None:
    """Power is lost after a random number of changes; unsynced changes are kept, lost or torn."""
    rng = random.Random(seed)
    world = LogWorld(seed)
    log = world.open(CONFIG)
    written: list[bytes] = []
    durable = 0
    stop = rng.randrange(400)
    start = world.disk.operations

    class Crash(Exception):  # noqa: N818
        pass

    def fail(_operation: str, _path: str) -> OSError | None:
        if world.disk.operations - start > stop:
            raise Crash
        return None

    world.disk.fail = fail
    try:
        for number in range(200):
            value = b"%d" % number
            written.append(value)
            log.append_as_leader(producer_batch(number, value), number // 20, NOW)
            if rng.random() < 0.1:
                log.flush()
                durable = log.recovery_point
            world.rest(5)
            durable = max(durable, log.recovery_point)
    except Crash:
        pass
    except KafkaError:  # the crash came in the background, where it looks like a failed disk
        assert world.dir.failed is not None
    world.disk.fail = None
    world.disk.lose_power()
    again = LogWorld(disk=world.disk).open(CONFIG, clean=False, recovery_point=durable)
    got = values(again)
    assert len(got) >= durable
    assert got == written[: len(got)]
    assert [p.last_sequence for p in again.producers.active()] == ([len(got) - 1] if got else [])
    again.append_as_leader(producer_batch(len(got), b"next"), 50, NOW)
    assert values(again) == [*got, b"next"]


def emptied(world: LogWorld) -> None:
    """Five records, durable and then expired; no checkpoint has their log yet."""
    log = world.open({"retention.ms": "1000"})
    for number in range(5):
        log.append_as_leader(batch(b"%d" % number), 0, NOW)
    log.flush()
    log.high_watermark = 5
    log.retain(NOW + 2000)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (5, 5, 0)


@pytest.mark.parametrize("waits_ms", [0, 100_000])
def test_a_killed_log_emptied_by_retention_continues_at_its_end(waits_ms: int) -> None:
    """It restarted at 0: consumers that had committed 5 did not see the next records."""
    world = LogWorld()
    emptied(world)
    world.rest(waits_ms)
    world.disk.kill_process()
    again = LogWorld(disk=world.disk).open(clean=False)
    assert (again.end_offset, again.start_offset) == (5, 5)
    again.append_as_leader(batch(b"next"), 0, NOW)
    assert values(again) == [b"next"]


@pytest.mark.parametrize("seed", range(20))
def test_after_a_power_loss_a_log_emptied_by_retention_continues_there(seed: int) -> None:
    world = LogWorld(seed)
    emptied(world)
    world.rest(seed % 2 * 100_000)
    world.disk.lose_power()
    assert LogWorld(disk=world.disk).open(clean=False).end_offset == 5


def test_a_killed_log_continues_at_its_reset_offset() -> None:
    world = LogWorld()
    log = world.open()
    log.append_as_leader(batch(b"old"), 0, NOW)
    log.reset_to(70)
    world.disk.kill_process()
    again = LogWorld(disk=world.disk).open(clean=False)
    assert (again.start_offset, again.end_offset) == (70, 70)


@pytest.mark.parametrize(("snapshot", "clean"), [(True, False), (True, True), (False, False)])
@pytest.mark.parametrize("start", [6, 8, 9])
def test_deleting_records_keeps_the_sequences_of_producers(start: int, snapshot: bool, clean: bool) -> None:
    """The batches after the last snapshot count, even if clients may no longer read them."""
    world = LogWorld()
    log = world.open()
    for number in (0, 3, 6):
        log.append_as_leader(batch(b"a", b"b", b"c", producer_id=7, producer_epoch=0, base_sequence=number), 0, NOW)
        if snapshot and number == 0:
            log.take_snapshot(3)
    log.flush()
    log.high_watermark = 9
    log.delete_records(start)
    world.disk.kill_process()
    again = LogWorld(disk=world.disk).open(clean=clean, recovery_point=9, start_offset=start, high_watermark=9)
    assert [producer.last_sequence for producer in again.producers.active()] == [8]
    again.append_as_leader(batch(b"d", producer_id=7, producer_epoch=0, base_sequence=9), 0, NOW)
    assert again.end_offset == 10


def test_a_time_index_shortened_by_a_power_loss_is_rebuilt() -> None:
    """Its file became durable later than the offset index: records with older neighbours were not found."""
    world = LogWorld()
    log = world.open({"index.interval.bytes": "100"})
    for number in range(30):
        when = NOW + 9000 if number == 10 else NOW + number
        log.append_as_leader(batch(b"v" * 90, timestamp=when), 0, NOW)
    log.active.write_indexes()
    log.flush()
    world.rest()
    with contextlib.closing(world.disk.open(f"{DIR}/t-0/{0:020d}.timeindex")) as file:
        file.truncate(5 * 12)
    again = world.open({"index.interval.bytes": "100"}, clean=False, recovery_point=log.end_offset)
    assert again.offset_for_timestamp(NOW + 500) == (NOW + 9000, 10)
    assert again.offset_for_timestamp(-3) == (NOW + 9000, 10)
