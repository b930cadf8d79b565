"""One log: valid appends, their places, and reads."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fastcrc.crc32 import iscsi as crc32c

from kraft_node.log import appending
from kraft_node.log.validate import InvalidRecords
from kraft_protocol.buffers import FileSlice
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import NewRecord, build_batch, check_batch, iter_records, read_header
from tests.unit.log.world import (
    DIR,
    NOW,
    LogWorld,
    all_records,
    batch,
    idempotent,
    read_bytes,
    refused,
    values,
    whole_headers,
)


def test_batches_get_offsets_and_epoch_and_keep_their_bytes() -> None:
    log = LogWorld().open()
    first = log.append_as_leader(batch(b"a", b"b"), 5, NOW)
    second = log.append_as_leader(memoryview(batch(b"c")), 6, NOW)
    assert first == (0, 1, -1, 0, False)
    assert second == (2, 2, -1, 0, False)
    data = read_bytes(log.read(0, 1000))
    headers = whole_headers(data)
    assert [(h.base_offset, h.partition_leader_epoch) for h in headers] == [(0, 5), (2, 6)]
    for header in headers:
        check_batch(data, header.position)
    assert log.leader_epochs.entries() == [(5, 0), (6, 2)]
    assert values(log) == [b"a", b"b", b"c"]


def test_a_read_is_a_slice_of_the_file() -> None:
    log = LogWorld().open()
    one = batch(b"x" * 100)
    for _ in range(10):
        log.append_as_leader(one, 0, NOW)
    found = log.read(3, len(one) + 10)
    assert isinstance(found.records, FileSlice)
    assert (found.records.position, found.records.length) == (3 * len(one), len(one) + 10)
    assert log.read(3, 10).size == len(one), "at least the first batch"
    less = log.read(3, 10, min_one=False)
    assert (less.size, less.first_batch_incomplete) == (0, True)
    assert log.read(3, 10_000, limit_offset=5).size == 2 * len(one)
    assert log.read(5, 10_000, limit_offset=5).size == 0
    assert log.read(10, 10_000).size == 0
    for offset in (-1, 11):
        with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
            log.read(offset, 1)


def test_the_middle_of_a_batch_is_read_from_its_beginning() -> None:
    log = LogWorld().open()
    log.append_as_leader(batch(b"0", b"1", b"2"), 0, NOW)
    log.append_as_leader(batch(b"3", b"4", b"5"), 0, NOW)
    assert read_header(read_bytes(log.read(4, 1000))).base_offset == 3


@pytest.mark.parametrize("position", [8, 16, 21, 30, 60, 61, 70])
def test_a_batch_with_a_changed_byte_is_refused(position: int) -> None:
    log = LogWorld().open()
    data = bytearray(batch(b"hello"))
    data[position] ^= 0x40
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(data, 0, NOW)
    assert caught.value.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
    assert log.end_offset == 0


def test_old_formats_are_refused_with_an_error_code() -> None:
    data = bytearray(batch(b"hello"))
    data[16] = 1
    with refused(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT):
        LogWorld().open().append_as_leader(data, 0, NOW)


def test_batches_that_clients_must_not_send_are_refused() -> None:
    log = LogWorld().open()
    with refused(ErrorCode.INVALID_RECORD):
        log.append_as_leader(batch(b"a", base_offset=1), 0, NOW)
    with refused(ErrorCode.INVALID_RECORD):
        log.append_as_leader(batch(b"a", last_offset=5), 0, NOW)
    with refused(ErrorCode.INVALID_RECORD):
        log.append_as_leader(batch(b"a", control=True), 0, NOW)
    with refused(ErrorCode.INVALID_TIMESTAMP):
        log.append_as_leader(batch(b"a", append_time=-1), 0, NOW)
    with refused(ErrorCode.INVALID_RECORD):
        log.append_as_leader(batch(b"a", producer_id=4, producer_epoch=0), 0, NOW)
    with refused(ErrorCode.INVALID_RECORD):
        appending.append_as_leader(log, b"", 0, NOW, internal=False)
    with refused(ErrorCode.CORRUPT_MESSAGE):
        log.append_as_leader(b"x" * 20, 0, NOW)
    assert log.end_offset == 0


def with_max_timestamp(data: bytes, max_timestamp: int) -> bytes:
    made = bytearray(data)
    made[35:43] = max_timestamp.to_bytes(8, "big", signed=True)
    made[17:21] = crc32c(bytes(made[21:])).to_bytes(4, "big")
    return bytes(made)


@pytest.mark.parametrize("codec", [0, 3])
@pytest.mark.parametrize("stated", [-1, NOW - 1, NOW + 1, NOW + 10**12])
def test_a_wrong_largest_timestamp_is_corrected(codec: int, stated: int) -> None:
    log = LogWorld().open()
    good = build_batch([NewRecord(b"k", b"1", NOW), NewRecord(b"k", b"2", NOW - 5)], compression=codec)
    log.append_as_leader(with_max_timestamp(good, stated), 0, NOW)
    data = read_bytes(log.read(0, 1000))
    assert check_batch(data).max_timestamp == NOW
    assert log.offset_for_timestamp(NOW) is not None
    assert [record.value for record in iter_records(data)] == [b"1", b"2"]


def test_a_producers_append_time_flag_is_replaced_by_create_time() -> None:
    log = LogWorld().open()
    log.append_as_leader(batch(b"a", append_time=NOW), 0, NOW)
    header = check_batch(read_bytes(log.read(0, 1000)))
    assert (header.timestamp_type, header.max_timestamp) == (0, NOW)
    log = LogWorld().open({"message.timestamp.type": "LogAppendTime"})
    with refused(ErrorCode.INVALID_TIMESTAMP):
        log.append_as_leader(batch(b"a", append_time=NOW), 0, NOW)


@pytest.mark.parametrize("count", [1, 3, 5, 50])
def test_undecodable_records_are_refused(count: int) -> None:
    log = LogWorld().open()
    good = batch(*[b"value"] * count)
    payload = good[:61] + b"\x7f" * (len(good) - 61)
    bad = with_max_timestamp(payload, check_batch(good).max_timestamp)
    with refused(ErrorCode.INVALID_RECORD):
        log.append_as_leader(bad, 0, NOW)
    assert log.end_offset == 0


def test_sizes_are_bounded_by_topic_and_segment() -> None:
    log = LogWorld().open({"max.message.bytes": "200"})
    with refused(ErrorCode.MESSAGE_TOO_LARGE):
        log.append_as_leader(batch(b"x" * 200), 0, NOW)
    log = LogWorld().open({"segment.bytes": str(1 << 20), "max.message.bytes": str(1 << 21)})
    too_large = batch(bytes(1 << 20))
    with refused(ErrorCode.RECORD_LIST_TOO_LARGE):
        log.append_as_leader(too_large, 0, NOW)
    with refused(ErrorCode.RECORD_LIST_TOO_LARGE):
        appending.append_as_leader(log, too_large, 0, NOW, internal=False)


def test_timestamps_ahead_are_refused_by_the_header_alone() -> None:
    log = LogWorld().open({"message.timestamp.after.max.ms": "1000"})
    log.append_as_leader(batch(b"a", timestamp=NOW + 1000), 0, NOW)
    with refused(ErrorCode.INVALID_TIMESTAMP):
        log.append_as_leader(batch(b"a", timestamp=NOW + 1001), 0, NOW)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_timestamps_that_are_too_old_name_their_records(codec: int) -> None:
    log = LogWorld().open({"message.timestamp.before.max.ms": "1000"})
    mixed = [NewRecord(b"k", b"1", NOW), NewRecord(b"k", b"2", NOW - 1001), NewRecord(b"k", b"3", -1)]
    with pytest.raises(InvalidRecords) as caught:
        log.append_as_leader(build_batch(mixed, compression=codec), 0, NOW)
    assert caught.value.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in caught.value.record_errors] == [1]


@pytest.mark.parametrize("codec", [0, 3])
def test_a_compacted_topic_requires_keys(codec: int) -> None:
    log = LogWorld().open({"cleanup.policy": "compact"})
    log.append_as_leader(batch(b"a", compression=codec), 0, NOW)
    with pytest.raises(InvalidRecords) as caught:
        log.append_as_leader(build_batch([(b"k", b"1"), (None, b"2")], timestamp=NOW, compression=codec), 0, NOW)
    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in caught.value.record_errors] == [1]


def test_log_append_time_stamps_the_batch() -> None:
    log = LogWorld().open({"message.timestamp.type": "LogAppendTime"})
    info = log.append_as_leader(batch(b"a", b"b", timestamp=5), 0, NOW)
    assert info.log_append_time_ms == NOW
    assert [record.timestamp for record in all_records(log)] == [NOW, NOW]
    check_batch(read_bytes(log.read(0, 1000)))


@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_batches_are_recompressed_to_the_codec_of_the_topic(codec: int, target: str) -> None:
    log = LogWorld().open({"compression.type": target})
    sent = batch(b"a" * 500, b"b" * 500, compression=codec, producer_id=3, producer_epoch=0, base_sequence=0)
    log.append_as_leader(sent, 0, NOW)
    data = read_bytes(log.read(0, 10_000))
    header = check_batch(data)
    assert header.compression == {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4, "uncompressed": 0}[target]
    assert (header.producer_id, header.base_sequence) == (3, 0)
    assert list(iter_records(data)) == list(iter_records(sent))


# --- followers ---


def test_a_follower_keeps_the_leaders_offsets_and_ignores_a_partial_batch() -> None:
    leader, follower = LogWorld().open(), LogWorld().open()
    for number in range(5):
        leader.append_as_leader(idempotent(number), number, NOW)
    data = read_bytes(leader.read(0, 10_000))
    follower.append_as_follower(data[:-1])
    assert follower.end_offset == 4
    follower.append_as_follower(read_bytes(leader.read(4, 10_000)))
    assert read_bytes(follower.read(0, 10_000)) == data
    assert follower.leader_epochs.entries() == leader.leader_epochs.entries()
    assert [p.last_sequence for p in follower.producers.active()] == [4]
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        follower.append_as_follower(data)


# --- segments ---


def small(overrides: dict[str, str] | None = None) -> dict[str, str]:
    return {"internal.segment.bytes": "1000", "index.interval.bytes": "100", **(overrides or {})}


def test_segments_roll_by_size_and_reads_cross_their_bounds() -> None:
    log = LogWorld().open(small())
    for number in range(100):
        log.append_as_leader(batch(b"%d" % number), 0, NOW + number)
    assert len(log.segment_bases) > 5
    assert all(size <= 1000 for size in log.segments.sizes)
    assert values(log) == [b"%d" % number for number in range(100)]
    for offset in range(100):
        assert read_header(read_bytes(log.read(offset, 1))).base_offset == offset


def test_rolling_an_empty_segment_at_its_base_keeps_its_file() -> None:
    world = LogWorld()
    log = world.open()
    log.append_as_leader(batch(b"a"), 0, NOW)
    for _ in range(2):
        log.roll(log.end_offset)
    log.append_as_leader(batch(b"b"), 0, NOW)
    log.active.release()
    assert values(log) == [b"a", b"b"]


def test_segments_roll_by_time_of_the_records() -> None:
    log = LogWorld().open({"segment.ms": "1000"})
    log.append_as_leader(batch(b"a", timestamp=NOW), 0, NOW)
    log.append_as_leader(batch(b"b", timestamp=NOW + 1000), 0, NOW)
    log.append_as_leader(batch(b"c", timestamp=NOW + 1001), 0, NOW)
    assert log.segment_bases == [0, 2]


@pytest.mark.parametrize(("policy", "bases"), [("compact", [0, 2]), ("compact,delete", [0, 2]), ("delete", [0])])
def test_segments_of_compacted_logs_roll_in_time_for_max_compaction_lag(policy: str, bases: list[int]) -> None:
    """The active segment is never compacted."""
    log = LogWorld().open({"cleanup.policy": policy, "max.compaction.lag.ms": "1000"})
    for after_ms in (0, 1000, 1001):
        log.append_as_leader(batch(b"a", timestamp=NOW + after_ms), 0, NOW)
    assert log.segment_bases == bases


def test_segments_roll_when_an_index_is_full() -> None:
    log = LogWorld().open({"segment.index.bytes": "36", "index.interval.bytes": "0"})
    for number in range(20):
        log.append_as_leader(batch(b"v", timestamp=NOW + number), 0, NOW)
    assert len(log.segment_bases) > 3
    assert len(values(log)) == 20


def test_the_time_index_keeps_room_for_its_last_entry() -> None:
    """The bases of Apache Kafka 4.3.1 for the same appends, the last ones with falling timestamps."""
    log = LogWorld().open({"segment.index.bytes": "24", "index.interval.bytes": "0"})
    for number in (*range(8), -1, -2, -3):
        log.append_as_leader(batch(b"v", timestamp=NOW + number), 0, NOW)
    assert log.segment_bases == [0, 2, 4, 6, 8, 10]


def test_retention_by_size_and_time() -> None:
    world = LogWorld()
    log = world.open(small({"retention.bytes": "2500", "retention.ms": "-1"}))
    for number in range(100):
        log.append_as_leader(batch(b"%d" % number), 0, NOW)
    assert log.retain(NOW) == 0, "nothing is replicated"
    log.high_watermark = log.end_offset
    log.retain(NOW)
    assert 2500 <= log.size_bytes < 3500
    assert log.start_offset == log.segment_bases[0] > 0
    assert log.leader_epochs.entries() == [(0, log.start_offset)]
    assert any(name.endswith(".deleted") for name in world.disk.listdir(f"{DIR}/t-0"))
    world.rest()
    assert not any(name.endswith(".deleted") for name in world.disk.listdir(f"{DIR}/t-0"))
    log.set_config(LogWorld().open(small({"retention.ms": "1000"})).config)
    log.retain(NOW + 2000)
    assert (log.start_offset, log.end_offset, log.size_bytes) == (100, 100, 0)
    log.append_as_leader(batch(b"next"), 0, NOW)
    assert values(log) == [b"next"]


def test_dropped_segments_and_snapshots_are_removed_by_a_lane() -> None:
    """Snapshots of producers were removed on the loop: beside retention of 10,000 segments requests waited for 30 ms
    and more, because removing a file may wait for the journal of the file system."""
    world = LogWorld()
    log = world.open(small({"retention.bytes": "2500", "retention.ms": "-1"}))
    for number in range(300):
        log.append_as_leader(idempotent(number, b"%d" % number), 0, NOW)
    log.high_watermark = log.end_offset
    before = log.producer_snapshots
    assert len(before) > 10

    def removed_at_once(change: Callable[[], object]) -> int:
        files = len(world.disk.names(log.path))
        change()
        return files - len(world.disk.names(log.path))

    rest = log.segment_bases[-3]
    assert removed_at_once(lambda: log.retain(NOW)) == 0
    assert removed_at_once(lambda: log.truncate_to(log.end_offset - 7)) <= 0, "the active segment may be a new one"
    log.delete_records(rest)
    world.rest()
    left = world.disk.names(log.path)
    assert not any(name.endswith(".deleted") for name in left)
    kept = tuple(int(name.partition(".")[0]) for name in left if name.endswith(".snapshot"))
    assert kept == log.producer_snapshots == tuple(at for at in before if log.start_offset <= at <= log.end_offset)


def test_delete_records_removes_records_and_whole_segments() -> None:
    log = LogWorld().open(small())
    for number in range(50):
        log.append_as_leader(batch(b"%d" % number), 0, NOW)
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        log.delete_records(10)
    log.high_watermark = 50
    second = log.segment_bases[1]
    log.delete_records(second + 1)
    assert log.start_offset == second + 1
    assert log.segment_bases[0] == second
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        log.read(second, 10)
    log.delete_records(3)
    assert log.start_offset == second + 1


def test_truncation_removes_an_epoch_without_records() -> None:
    """A follower that had led without appending named an epoch unknown to every leader, and truncated for ever."""
    log = LogWorld().open(small())
    log.append_as_leader(idempotent(0, b"x"), 3, NOW)
    log.leader_epochs.assign(5, 1)
    assert not log.truncate_to(1)
    assert log.leader_epochs.entries() == [(3, 0)]


@pytest.mark.parametrize("at", [0, 1, 13, 49, 50])
def test_truncation_removes_later_records(at: int) -> None:
    world = LogWorld()
    log = world.open(small())
    for number in range(50):
        log.append_as_leader(idempotent(number, b"%d" % number), number // 10, NOW)
    log.high_watermark = 50
    assert log.truncate_to(at) == (at < 50)
    assert log.end_offset == at
    assert log.high_watermark == min(50, at)
    assert values(log) == [b"%d" % number for number in range(at)]
    assert log.leader_epochs.entries() == [(epoch, epoch * 10) for epoch in range(5) if epoch * 10 < at]
    assert [p.last_sequence for p in log.producers.active()] == ([at - 1] if at else [])
    log.append_as_leader(idempotent(at, b"new"), 9, NOW)
    assert values(log)[-1] == b"new"
    again = world.open(small(), clean=False)
    assert values(again) == values(log)


# --- timestamps ---


def test_offsets_by_timestamp_agree_with_a_search_through_all() -> None:
    log = LogWorld().open(small())
    times = [NOW + (number * 7919) % 200 - number % 3 for number in range(150)]
    for i in range(0, 150, 3):
        records = [NewRecord(b"k", b"v", when) for when in times[i : i + 3]]
        log.append_as_leader(build_batch(records), 0, NOW)
    for target in range(NOW - 5, NOW + 205):
        expected = next(((when, offset) for offset, when in enumerate(times) if when >= target), None)
        assert log.offset_for_timestamp(target) == expected
    largest = max(times)
    assert log.offset_for_timestamp(-3) == (largest, times.index(largest))
    log.high_watermark = 150
    log.delete_records(100)
    rest = [(when, offset) for offset, when in enumerate(times) if offset >= 100]
    assert log.offset_for_timestamp(NOW) == next(found for found in rest if found[0] >= NOW)


def test_an_empty_log_has_no_timestamps() -> None:
    log = LogWorld().open()
    assert log.offset_for_timestamp(0) is None
    assert log.offset_for_timestamp(-3) is None


# --- failures ---


def test_a_failed_write_kills_the_directory() -> None:
    world = LogWorld()
    log = world.open()
    log.append_as_leader(batch(b"a"), 0, NOW)
    world.disk.fail = lambda operation, _: OSError(28, "No space left on device") if operation == "write" else None
    with refused(ErrorCode.KAFKA_STORAGE_ERROR):
        log.append_as_leader(batch(b"b"), 0, NOW)
    world.disk.fail = None
    for again in (lambda: log.append_as_leader(batch(b"b"), 0, NOW), lambda: log.read(0, 1)):
        with refused(ErrorCode.KAFKA_STORAGE_ERROR):
            again()
    assert world.dir.failed is not None
    assert log.end_offset == 1


def test_a_failed_fsync_kills_the_directory() -> None:
    world = LogWorld()
    log = world.open()
    log.append_as_leader(batch(b"a"), 0, NOW)
    world.disk.fail = lambda operation, _: OSError(5, "I/O error") if operation == "fsync" else None
    done: list[int] = []
    log.flush_in_background(lambda: done.append(1))
    world.rest()
    assert world.dir.failed is not None
    assert not done
    assert log.recovery_point == 0


def test_with_flush_messages_an_append_is_durable_before_it_is_settled() -> None:
    world = LogWorld()
    log = world.open({"flush.messages": "1"})
    for number in range(5):
        settled: list[ErrorCode] = []
        log.append_as_leader(batch(b"%d" % number), 0, NOW)
        assert log.settled_end == number, "a lane has still to flush"
        log.when_settled(number + 1, settled.append)
        assert not settled
        world.rest(1000)
        assert settled == [ErrorCode.NONE]
        assert log.recovery_point == log.settled_end == number + 1
        world.disk.copy()
    world.disk.lose_power()
    assert values(LogWorld(disk=world.disk).open(clean=False, recovery_point=5)) == [b"%d" % n for n in range(5)]


def test_few_files_stay_open() -> None:
    world = LogWorld()
    log = world.open(small())
    for number in range(300):
        log.append_as_leader(batch(b"%d" % number), 0, NOW)
    for offset in range(300):
        log.read(offset, 1)
        assert len(world.dir.files) <= 8
