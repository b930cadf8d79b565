"""Which log is compacted, and when: as Apache Kafka's LogCleanerManager chooses."""

from __future__ import annotations

import pytest

from kraft_node.log.checkpoints.offsets import column_of
from kraft_node.log.compaction import cleaning, key_map
from kraft_node.log.compaction.choice import first_dirty_offset, look
from kraft_node.log.compaction.key_map import KeyMap
from kraft_node.log.config import make_config
from kraft_node.log.log import Log
from kraft_protocol.records.batch import build_batch, iter_headers
from tests.unit.log.node import ID, Node
from tests.unit.log.world import NOW, LogWorld

CONFIG = {"cleanup.policy": "compact", "internal.segment.bytes": "1000", "index.interval.bytes": "200"}


def put(log: Log, count: int, *, timestamp: int = NOW) -> None:
    for number in range(count):
        log.append_as_leader(build_batch([(b"%d" % number, b"v" * 300)], timestamp=timestamp), 0, NOW)
    log.high_watermark = log.end_offset


def test_the_dirty_part_consists_of_whole_segments() -> None:
    log = LogWorld().open(CONFIG)
    put(log, 10)
    bases, sizes = log.segment_bases, log.segments.sizes
    dirt = look(log, bases[2], NOW)
    assert (dirt.clean_bytes, dirt.dirty_bytes) == (sum(sizes[:2]), sum(sizes[2:-1]))
    assert dirt.end == log.active.base
    assert dirt.ratio == pytest.approx(sum(sizes[2:-1]) / sum(sizes[:-1]))
    log.high_watermark = bases[3] + 1
    assert look(log, 0, NOW).end == bases[3], "the segment that holds the last stable offset is not touched"


def test_a_log_is_due_above_its_dirty_ratio_or_after_its_lag() -> None:
    log = LogWorld().open({**CONFIG, "max.compaction.lag.ms": "5000"})
    put(log, 10)
    bases = log.segment_bases
    assert look(log, bases[2], NOW).is_due(0.1)
    assert not look(log, bases[2], NOW).is_due(0.9)
    late = look(log, bases[2], NOW + 7000)
    assert late.delay_ms == 2000
    assert late.is_due(0.9)
    assert not look(log, log.active.base, NOW + 7000).is_due(0.0), "nothing is dirty"


def test_an_impossible_checkpoint_is_ignored() -> None:
    log = LogWorld().open(CONFIG)
    put(log, 10)
    log.start_offset = 3
    found = [first_dirty_offset(log, offset) for offset in (None, 2, 3, 10, 11)]
    assert found == [3, 3, 3, 10, 3]


def test_the_dirtiest_log_is_the_first() -> None:
    node = Node()
    manager = node.start(lambda _: make_config({**CONFIG, "min.cleanable.dirty.ratio": "0.3"}))
    logs = [manager.create("t", number, ID) for number in range(3)]
    offsets = column_of(manager.directories[0].cleaner_offsets, "t")
    for log, clean in zip(logs, (7, 1, 4), strict=True):
        put(log, 13)
        offsets[log.partition] = log.segment_bases[clean // 2]
    order: list[int] = []
    done = manager.housekeeping.cleaner._done

    def ended(log: Log, offset: int) -> None:
        order.append(log.partition)
        done(log, offset)

    manager.housekeeping.cleaner._done = ended
    node.rest(40_000)
    assert order[:2] == [1, 2]


def test_an_uncleanable_log_is_counted_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node()
    manager = node.start(lambda _: make_config({**CONFIG, "min.cleanable.dirty.ratio": "0"}))
    log = manager.create("t", 0, ID)
    log.append_as_leader(build_batch([(b"k", b"v")], timestamp=NOW), 0, NOW)
    raw = bytearray(build_batch([(b"k", b"v" * 9)], timestamp=NOW, base_offset=1))
    raw[61] += 2  # the record's length
    header = next(iter_headers(bytes(raw)))
    fields = (0, 0, header.base_timestamp, header.max_timestamp, -1, -1, -1, 1)
    from kraft_protocol.records.batch import seal

    bad = seal(1, 0, fields, bytes(raw[61:]))
    log.write_batch((bad,), len(bad), 1, 1, NOW, 0, NOW)
    log.roll(log.end_offset)
    put(log, 1)
    node.rest(20_000)
    cleaner = manager.housekeeping.cleaner
    assert list(cleaner.uncleanable) == ["t-0"]
    dirty = look(log, 0, NOW).dirty_bytes
    assert dirty == log.size_bytes - log.active.size > 0
    assert cleaner.uncleanable_bytes(log.dir.path) == dirty, "as in Kafka, without the active segment"
    assert cleaner.uncleanable_bytes("/other") == 0
    passes: list[int] = []
    monkeypatch.setattr(cleaning.Cleaning, "steps", lambda _: passes.append(1))
    put(log, 5)
    log.roll(log.end_offset)
    put(log, 1)
    node.rest(60_000)
    assert passes == []
    assert cleaner.uncleanable_bytes(log.dir.path) == look(log, 0, NOW).dirty_bytes > dirty
    manager.configure("t", make_config({"cleanup.policy": "delete"}))
    node.rest(20_000)
    assert cleaner.uncleanable == {}, "it is compacted no more"


def test_a_pass_updates_the_metrics() -> None:
    node = Node()
    manager = node.start(lambda _: make_config({**CONFIG, "min.cleanable.dirty.ratio": "0"}))
    log = manager.create("t", 0, ID)
    for _ in range(5):
        put(log, 4)
    node.rest(40_000)
    figures = manager.housekeeping.cleaner.figures
    assert 10 <= figures.recopy_percent <= 60
    assert figures.max_buffer_utilization_percent == 0
    assert figures.max_dirty_ratio == 0, "all is clean"
    assert node.manager.env.clock.monotonic_ms() - figures.last_run_ms <= 15_000


@pytest.mark.parametrize("most", [3, 1000])
def test_a_lane_frees_the_memory_of_a_large_map(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop would stand still while a dictionary of all keys is freed."""
    released: list[KeyMap] = []
    release = KeyMap.release

    def noted(self: KeyMap) -> None:
        assert self.is_large
        release(self)
        released.append(self)

    monkeypatch.setattr(KeyMap, "release", noted)
    monkeypatch.setattr(key_map, "RECENT_MAX", most)
    monkeypatch.setattr(key_map, "LARGE", 3)
    node = Node()
    manager = node.start(lambda _: make_config({**CONFIG, "min.cleanable.dirty.ratio": "0"}))
    log = manager.create("t", 0, ID)
    for _ in range(5):
        put(log, 4)
    node.rest(40_000)
    assert log.size_bytes < 5000
    assert released
    for keys in released:
        assert not keys.recent
        assert not keys._shards
        assert not keys._buckets
