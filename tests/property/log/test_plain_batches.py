"""The short way of compaction, for plain batches, leaves the same bytes as the long way, which looks at each batch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from kraft_node.log.compaction import cleaning, key_map
from kraft_node.log.compaction.batch_filter import BatchFilter
from kraft_node.log.compaction.cleaning import Cleaning
from kraft_node.log.compaction.key_map import KeyMap
from kraft_node.log.log import Log
from kraft_protocol.records.batch import NewRecord, build_batch
from kraft_protocol.records.control import build_marker
from tests.tiers import seeds
from tests.unit.log.world import NOW, LogWorld

CONFIG = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "6000",
    "index.interval.bytes": "500",
    "delete.retention.ms": "30",
}
TXN: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "transactional": True}


class Writer:
    """Writes a log of mostly plain batches, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.log = LogWorld(seed).open(CONFIG)
        self.sequences: dict[int, int] = {}
        self.is_in_txn = False

    def put(self, number: int) -> None:
        rng, log = self.rng, self.log
        how: dict[str, Any] = {}
        if rng.random() < 0.3:
            how = {"producer_id": rng.randrange(3), "producer_epoch": 0}
        elif rng.random() < 0.1:
            how, self.is_in_txn = dict(TXN), True
        count = rng.choice((1, 1, 1, 2, 3, 10, 30))
        if how:
            how["base_sequence"] = self.sequences.get(how["producer_id"], 0)
            self.sequences[how["producer_id"]] = how["base_sequence"] + count
        records = [NewRecord(self._key(), self._value(), NOW + number + rng.randrange(-99, 200)) for _ in range(count)]
        codec = rng.choice((0, 0, 0, 0, 0, 3, 4))
        append_time = NOW + number if rng.random() < 0.1 else None
        log.append_as_leader(build_batch(records, compression=codec, append_time=append_time, **how), 0, NOW)

    def _key(self) -> bytes:
        rng = self.rng
        return b"%d" % rng.randrange(60) * rng.choice((1, 1, 1, 20))

    def _value(self) -> bytes | None:
        return None if self.rng.random() < 0.04 else self.rng.randbytes(self.rng.choice((0, 5, 60, 64, 200)))

    def end_txn(self) -> None:
        if self.is_in_txn:
            commit = self.rng.random() < 0.5
            marker = build_marker(commit=commit, producer_id=9, producer_epoch=0, coordinator_epoch=1, timestamp=NOW)
            self.log.append_as_leader(marker, 0, NOW, internal=True)
            self.is_in_txn = False

    def rest(self) -> None:
        self.end_txn()
        self.log.roll(self.log.end_offset)
        self.log.high_watermark = self.log.end_offset


def compacted(seed: int, keys_max: int) -> list[object]:
    """The result of several passes: bytes, indexes and return values."""
    writer = Writer(seed)
    found: list[object] = []
    first_dirty = 0
    for number in range(4):
        for i in range(60):
            writer.put(number * 60 + i)
            if writer.rng.random() < 0.05:
                writer.end_txn()
        writer.rest()
        first_dirty = one_pass(writer.log, first_dirty, NOW + 20 * number, keys_max, found)
    return found


def one_pass(log: Log, first_dirty: int, now: int, keys_max: int, found: list[object]) -> int:
    one = Cleaning(log, first_dirty, now, keys_max)
    steps = one.steps()
    while True:
        try:
            next(steps)()
        except StopIteration as end:
            clean_to = int(end.value)
            break
    disk = log.dir.env.disk
    for number, base in enumerate(log.segment_bases[:-1]):
        segment = log.segments.at(number)
        segment.finish()
        for suffix in (".log", ".index", ".timeindex") if segment.size else ():
            file = disk.open(f"{log.path}/{base:020d}{suffix}", read_only=True)
            found.append((base, suffix, file.pread(0, file.size())))
            file.close()
    found.append((clean_to, one.bytes_before, one.bytes_after, one.bytes_read, one.bytes_written, one.bytes_handled))
    return clean_to


@pytest.mark.parametrize("keys_max", [1000, 40])
@pytest.mark.parametrize("seed", seeds(range(12), everyday=4))
def test_the_fast_and_slow_compaction_write_the_same_bytes(
    seed: int, keys_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleaning, "SLICE_BYTES", 2000)
    short = compacted(seed, keys_max)
    monkeypatch.setattr(KeyMap, "note_plain", lambda *_: None)
    monkeypatch.setattr(BatchFilter, "keep_plain", lambda *_: None)
    assert compacted(seed, keys_max) == short


@pytest.mark.parametrize("keys_max", [1000, 40])
@pytest.mark.parametrize("seed", seeds(range(6), everyday=2))
def test_a_map_in_shards_leaves_the_same_bytes(seed: int, keys_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "SLICE_BYTES", 2000)
    whole = compacted(seed, keys_max)
    monkeypatch.setattr(key_map, "RECENT_MAX", 11)
    monkeypatch.setattr(key_map, "SORTED_AT_ONCE", 5)
    assert compacted(seed, keys_max) == whole


def test_most_batches_take_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """If all batches took one path, the test above would compare nothing."""
    handled = {"noted": 0, "kept": 0}
    note, keep = KeyMap.note_plain, BatchFilter.keep_plain

    def noted(self: KeyMap, reader: Any) -> None:
        before = reader.at
        note(self, reader)
        handled["noted"] += reader.at - before

    def kept(self: BatchFilter, reader: Any, new: Any) -> None:
        before = reader.at
        keep(self, reader, new)
        handled["kept"] += reader.at - before

    monkeypatch.setattr(KeyMap, "note_plain", noted)
    monkeypatch.setattr(BatchFilter, "keep_plain", kept)
    compacted(1, 1000)
    assert handled["noted"] > 40_000, handled
    assert handled["kept"] > 20_000, handled


def plant_a_lost_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchFilter, "_is_last", lambda *_: False)


def plant_tombstones_that_are_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft_node.log.compaction.batch_filter.TOMBSTONE", 1 << 31)


def plant_transactions_that_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft_node.log.compaction.key_map.NOT_PLAIN", 0x27)


def plant_the_clean_part_knows_recent_keys_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeyMap, "knows_any", lambda self, keys: not self.recent.keys().isdisjoint(keys))


def plant_shards_that_nothing_sorts(monkeypatch: pytest.MonkeyPatch) -> None:
    def sort(self: KeyMap) -> Iterator[None]:
        self._buckets = {0: sorted(self.recent.values())}
        yield

    monkeypatch.setattr(KeyMap, "sort", sort)


@pytest.mark.parametrize("plant", [plant_the_clean_part_knows_recent_keys_only, plant_shards_that_nothing_sorts])
def test_the_comparison_finds_planted_bugs_of_shards(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(6):
            with monkeypatch.context() as of_seed:
                test_a_map_in_shards_leaves_the_same_bytes(seed, 1000, of_seed)


@pytest.mark.parametrize(
    "plant", [plant_a_lost_last_record, plant_tombstones_that_are_records, plant_transactions_that_are_plain]
)
def test_the_comparison_finds_planted_bugs(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, ValueError, IndexError)):
        for seed in range(12):
            with monkeypatch.context() as of_seed:
                test_the_fast_and_slow_compaction_write_the_same_bytes(seed, 1000, of_seed)
