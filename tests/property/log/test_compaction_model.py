"""Compaction amid everything else that happens to a log: a reader from its start learns each key's last record."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraft_node.log.compaction import cleaning
from kraft_node.log.compaction.batch_filter import BatchFilter
from kraft_node.log.compaction.cleaning import STOPPED, Cleaning
from kraft_node.log.compaction.transactions import ScannedTransactions
from kraft_node.log.log import Log
from kraft_protocol.records.batch import BatchHeader, NewRecord, Record, build_batch, iter_records
from kraft_protocol.records.control import build_marker
from tests.tiers import seeds
from tests.unit.log.world import NOW, LogWorld, read_bytes, whole_headers

CONFIG = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "700",
    "index.interval.bytes": "150",
    "delete.retention.ms": "20",
}
TXN: dict[str, Any] = {"producer_id": 9, "producer_epoch": 0, "transactional": True}


def all_data(log: Log) -> list[Record]:
    """Records except markers, from the start; compaction may have left nothing at the end."""
    found = []
    for number in range(len(log.segment_bases)):
        data = log.segments.at(number).file().pread(0, log.segments.at(number).size)
        for header in whole_headers(data):
            if not header.is_control:
                found += [record for record in iter_records(data, header) if record.offset >= log.start_offset]
    return found


def headers(log: Log) -> list[BatchHeader]:
    found: list[BatchHeader] = []
    for number in range(len(log.segment_bases)):
        found += whole_headers(log.segments.at(number).file().pread(0, log.segments.at(number).size))
    return found


class Model:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = LogWorld(seed)
        self.log = self.world.open(CONFIG)
        self.written: dict[int, tuple[bytes, bytes | None]] = {}
        """What is in the log or was compacted away, by offset."""
        self.first_dirty = self.now = self.sequence = 0
        self.cleaning: Cleaning | None = None
        self.steps: Any = None
        self.open_txn = False
        self.decided: bool | None = None
        """How the open transaction has ended before its marker was cut off: compaction may have gone by it."""
        self.in_txn: list[int] = []
        """Offsets of the open transaction."""
        self.ended: list[tuple[list[int], int, bool]] = []
        """Offsets of ended transactions, the offset of the marker, whether it says that the transaction was aborted."""

    def put(self) -> None:
        rng, log = self.rng, self.log
        pairs = [
            (b"%d" % rng.randrange(12), None if rng.random() < 0.3 else b"v" * rng.randrange(60))
            for _ in range(rng.randrange(1, 4))
        ]
        how: dict[str, Any] = {}
        if rng.random() < 0.2:
            how, self.open_txn = {**TXN, "base_sequence": self.sequence}, True
            self.sequence += len(pairs)
        for i, pair in enumerate(pairs):
            self.written[log.end_offset + i] = pair
            if how:
                self.in_txn.append(log.end_offset + i)
        records = [NewRecord(key, value, NOW + self.now) for key, value in pairs]
        log.append_as_leader(build_batch(records, **how), 0, NOW + self.now)
        if rng.random() < 0.8:
            log.high_watermark = log.end_offset

    def end_txn(self) -> None:
        if self.open_txn:
            commit = self.rng.random() < 0.5 if self.decided is None else self.decided
            self.decided = None
            self.ended.append((self.in_txn, self.log.end_offset, not commit))
            self.in_txn = []
            marker = build_marker(
                commit=commit, producer_id=9, producer_epoch=0, coordinator_epoch=1, timestamp=NOW + self.now
            )
            self.log.append_as_leader(marker, 0, NOW, internal=True)
            self.open_txn = False

    def clean(self, slices: int) -> None:
        if self.steps is None:
            self.steps = Cleaning(self.log, self.first_dirty, NOW + self.now).steps()
        try:
            for _ in range(slices):
                work = next(self.steps)
                if work is not None:
                    work()
        except StopIteration as end:
            self.steps = None
            if end.value != STOPPED:
                self.first_dirty = max(self.first_dirty, end.value)

    def truncate(self) -> None:
        log = self.log
        log.truncate_to(max(log.end_offset - self.rng.randrange(8), 0))
        self.adopt()

    def adopt(self) -> None:
        """Follow a log that became shorter: records that compaction removed for the lost ones stay removed."""
        log = self.log
        end = log.end_offset
        self.first_dirty = min(self.first_dirty, end)
        while self.ended and self.ended[-1][1] >= end:
            self.in_txn, _, was_aborted = self.ended.pop()
            self.decided = not was_aborted
        self.in_txn = [offset for offset in self.in_txn if offset < end]
        found = {record.offset: (record.key, record.value) for record in all_data(log)}
        for offset in [at for at in self.written if at not in found]:
            del self.written[offset]
        assert found == self.written
        producer = log.producers.get(9)
        self.sequence = 0 if producer is None else producer.last_sequence + 1
        self.open_txn = producer is not None and producer.current_txn_first_offset >= 0
        if not self.open_txn:
            self.in_txn, self.decided = [], None

    def stop(self, how: str) -> None:
        log = self.log
        if self.steps is not None:
            self.steps.close()
            self.steps = None
        if how == "power" or self.rng.random() < 0.3:
            log.flush()
            self.world.rest()
        if how == "clean":
            log.active.finish()
            log.take_snapshot(log.end_offset)
            log.flush()
        end, point, high_watermark = log.end_offset, log.recovery_point, log.high_watermark
        if how == "power":
            self.world.disk.lose_power()
        log.closed = True
        log.close()
        self.log = self.world.open(
            CONFIG, clean=how == "clean", recovery_point=point, high_watermark=high_watermark, start_offset=0
        )
        assert self.log.end_offset == end

    def check(self) -> None:
        """Check that every record was written there, and that each key's last record is there or was a deletion."""
        found = all_data(self.log)
        for record in found:
            assert self.written[record.offset] == (record.key, record.value)
        offsets = {record.offset for record in found}
        gone = self.check_transactions(offsets)
        latest = {key: (at, value) for at, (key, value) in sorted(self.written.items()) if at not in gone}
        got = {record.key: (record.offset, record.value) for record in found if record.offset not in gone}
        for key, (at, value) in latest.items():
            if value is not None or key in got:
                assert got.get(key) == (at, value), f"{key!r}"
        for offset in self.rng.sample(sorted(got.values()), min(3, len(got))):
            first = whole_headers(read_bytes(self.log.read(offset[0], 1)))[0]
            assert first.base_offset <= offset[0] <= first.last_offset

    def check_transactions(self, offsets: set[int]) -> set[int]:
        """A transaction with records has its marker, an aborted one its index entry with all its offsets."""
        log = self.log
        markers = {header.base_offset for header in headers(log) if header.is_control and header.count}
        firsts = [first for _, first in log.aborted_transactions(0, log.end_offset)]
        gone: set[int] = set()
        for of_txn, marker, is_aborted in self.ended:
            left = offsets & set(of_txn)
            assert not left or marker in markers, f"the marker at {marker} is gone, records at {left} are there"
            if is_aborted:
                gone |= set(of_txn)
                assert not left or any(first <= min(left) for first in firsts), f"no entry for {left}"
        return gone


def plant_early_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    met = ScannedTransactions.met_marker

    def needless(self: ScannedTransactions, header: BatchHeader, batch: Any) -> bool:
        met(self, header, batch)
        return True

    monkeypatch.setattr(ScannedTransactions, "met_marker", needless)


def plant_early_tombstones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BatchFilter, "_keep_dirty", BatchFilter._keep_clean)


def plant_visible_aborts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScannedTransactions, "met_batch", lambda _self, _header: False)


@pytest.mark.parametrize("plant", [plant_early_markers, plant_early_tombstones, plant_visible_aborts])
def test_the_model_finds_planted_bugs(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(24):
            with monkeypatch.context() as of_seed:
                test_the_model_knows_the_latest_record_of_each_key(seed, of_seed)


@pytest.mark.parametrize("seed", seeds(range(24), everyday=8))
def test_the_model_knows_the_latest_record_of_each_key(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "KEYS_MAX", 5 if seed % 2 else 1000)
    monkeypatch.setattr(cleaning, "SLICE_BYTES", 300)
    model = Model(seed)
    for _ in range(250):
        what = model.rng.random()
        model.now += model.rng.randrange(4)
        if what < 0.55:
            model.put()
        elif what < 0.65:
            model.end_txn()
        elif what < 0.92:
            model.clean(model.rng.choice((1, 3, 1000)))
        elif what < 0.96:
            model.truncate()
        else:
            model.stop(model.rng.choice(("clean", "kill", "power")))
        model.check()
