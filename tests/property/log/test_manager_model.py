"""The log of one partition in a manager of two log directories, against a list of all records ever written to it.

A seed decides the events: a leader's appends, with producers and transactions; batches of a leader that compacted its
log, with gaps between them; new policies, segment sizes and periods; moves between the directories, in steps;
truncations, resets, DeleteRecords, retention; time that passes, with compaction, checkpoints and flushes; clean stops,
kills and power losses. After each step these laws hold:

1. No event costs a log directory.
2. Segments do not overlap. Each record equals the one written at its offset in its epoch.
3. All records from the start exist. Once the log was compacted, the last record of each key exists, unless it deletes.
   Records of aborted transactions may be missing, and count for no key. Until a transaction has ended, the last record
   outside it stays, too. While records of an ended transaction exist, its marker does. If it was aborted, the index of
   aborted transactions has it.
4. A read begins with the batch of its offset. Timestamp look-ups return what a search through the list returns.
5. A move does not change what readers see, but it may bring back what the log lost in a power loss.
6. A clean stop or a kill keeps the end, records, producers and transactions. Only a kill may move the start back, to
   its last checkpoint.
7. A power loss removes nothing below both the recovery point and the high watermark, and adds nothing.

Four known effects are not faults here. A replica with gaps that is no longer compacted may be truncated at a gap when
it is killed. A kill after a move forgets producers without a batch. A power loss may undo a truncation before its first
fsync; if the log has rolled since, the segments of both lives mix, and this model omits these losses. The first batch
after a truncation has no gap before it.

More seeds: `pytest -m slow tests/property/log`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from kraft_node.broker.log_dir_moves import copy_some, cut_what_differs
from kraft_node.log import trimming
from kraft_node.log.compaction import cleaner, cleaning
from kraft_node.log.config import LONG_MAX, make_config
from kraft_node.log.errors import CutLater
from kraft_node.log.log import Log
from kraft_node.log.log_dir import PENDING_INDEX_BYTES
from kraft_node.log.manager.timing import Timing
from kraft_node.log.recovery.background import LogIsRecovering
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import NewRecord, build_batch, iter_records
from kraft_protocol.records.control import build_marker
from tests.property.log.observed import (
    Ended,
    Segment,
    State,
    Written,
    check_transactions,
    latest_of,
    records_in,
    segments_of,
    transactions_in,
)
from tests.unit.log.node import ID, Node
from tests.unit.log.world import NOW, read_bytes, whole_headers

STEPS: Final = 120
KEYS: Final = 12
IN_TRANSACTIONS: Final = 3
"""The producer whose batches are transactional; 1 and 2 are idempotent only."""
FAR_AHEAD_MS: Final = 100_000_000


class Model:
    """The model of the log, and all events."""

    def __init__(self, seed: int, cut_step: int = trimming.CUT_STEP) -> None:
        self.rng = random.Random(seed)
        self.node = Node(["/d1", "/d2"], seed)
        self.is_compact = self.rng.random() < 0.5
        self.timing = Timing()
        self.timing.initial_delay_ms = self.timing.retention_check_ms = 1_000_000_000  # the model decides when
        self.timing.cleaner_backoff_ms = 400
        self.timing.checkpoint_ms = 3000
        self.timing.high_watermark_checkpoint_ms = 1500
        self.counter = self.epoch = 0
        self.ever: set[tuple[int, Written]] = set()
        """All records with their offsets, truncated records included."""
        self.pending_index_bytes = 0 if seed % 2 else PENDING_INDEX_BYTES
        self.cut_step = cut_step
        self._draw_config()
        self._start_node()
        self._begin()

    def _begin(self) -> None:
        self.log = self.manager.create("t", 0, ID)
        self.epoch += 1
        self.written: dict[int, Written] = {}
        """What is in the log or was compacted away, by offset."""
        self.epochs: dict[int, int] = {}
        self.was_compacted = self.is_compact
        self.furthest_start = 0
        """Epochs before it may be forgotten, though the records are back."""
        self.cut_end = 0
        self.was_moved = False
        self.may_gap = False
        self.lost: set[tuple[int, Written]] = set()
        """With the power; a copy may have it still."""
        self._take_producers()
        self._take_transactions()

    def _take_producers(self) -> None:
        """Adopt the log's producers as the model's state."""
        producers = list(self.log.producers.active())
        self.sequences = {each.producer_id: each.last_sequence + 1 for each in producers}
        self.in_transaction = any(each.current_txn_first_offset >= 0 for each in producers)

    def _take_transactions(self) -> None:
        """Remove records that are not on the disk from the list, and take the disk's transactions."""
        self.ended, self.open_offsets = transactions_in(segments_of(self.log), IN_TRANSACTIONS)

    def _draw_config(self) -> None:
        rng = self.rng
        self.config = make_config(
            {
                "cleanup.policy": "compact" if self.is_compact else "delete",
                "delete.retention.ms": str(rng.choice((0, 20, 100_000))),
                "flush.messages": str(rng.choice((LONG_MAX, LONG_MAX, 3))),
                "index.interval.bytes": str(rng.choice((0, 100, 150, 400))),
                "internal.segment.bytes": str(rng.choice((400, 700, 1500, 5000))),
                "message.timestamp.after.max.ms": str(10 * FAR_AHEAD_MS),
                "min.cleanable.dirty.ratio": str(rng.choice((0.0, 0.01, 0.5))),
                "retention.bytes": str(rng.choice((-1, -1, 3000))),
                "retention.ms": "100000",
                "segment.index.bytes": str(rng.choice((24, 48, 10_485_760))),
                "segment.ms": str(rng.choice((3000, 604_800_000))),
            }
        )

    def _start_node(self) -> None:
        self.manager = self.node.start(lambda _: self.config, self.timing)
        for directory in self.manager.directories:
            directory.pending_index_bytes = self.pending_index_bytes
            directory.cut_step = self.cut_step

    @property
    def now(self) -> int:
        return NOW + int(self.node.world.now_ms)

    # --- writes ---

    def append(self) -> None:
        """Append some batches of a leader."""
        for _ in range(self.rng.randrange(1, 6)):
            self._append_batch()

    def _append_batch(self) -> None:
        rng, log, base = self.rng, self.log, self.log.end_offset
        records = [self._record() for _ in range(rng.randrange(1, 4))]
        producer = rng.choice((None, None, None, None, None, None, None, 1, 2, IN_TRANSACTIONS))
        is_transactional = producer == IN_TRANSACTIONS
        how: dict[str, Any] = {}
        if producer is not None:
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + len(records)
            how = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            self.in_transaction |= is_transactional
        data = build_batch(records, compression=rng.choice((0, 0, 1, 2, 3, 4)), transactional=is_transactional, **how)
        info = log.append_as_leader(data, self.epoch, self.now)
        assert (info.base_offset, info.is_duplicate) == (base, False)
        self._note(base, records, is_transactional)

    def _record(self) -> NewRecord:
        rng = self.rng
        self.counter += 1
        is_tombstone = self.is_compact and rng.random() < 0.2
        value = None if is_tombstone else b"%d" % self.counter + b"v" * rng.randrange(60)
        jitter = FAR_AHEAD_MS if rng.random() < 0.004 else rng.choice((0, 0, -20, 30, 1))
        return NewRecord(b"%d" % rng.randrange(KEYS), value, self.now + jitter)

    def _note(self, base: int, records: list[NewRecord], is_transactional: bool) -> None:
        self.may_gap = True
        for offset, record in enumerate(records, base):
            self.written[offset] = Written(record.key, record.value, record.timestamp, is_transactional)
            self.ever.add((offset, self.written[offset]))
            self.open_offsets |= {offset} if is_transactional else set()
            self.epochs[offset] = self.epoch

    def follow(self) -> None:
        """Append some batches of a leader that has compacted its log."""
        for _ in range(self.rng.randrange(1, 5) if self.was_compacted else 0):
            base = self.log.end_offset + (self.rng.choice((0, 0, 1, 3, 10)) if self.may_gap else 0)
            record = self._record()
            self.log.append_as_follower(build_batch([record], base_offset=base, leader_epoch=self.epoch))
            self._note(base, [record], False)

    def end_transaction(self) -> None:
        if self.in_transaction:
            is_commit = self.rng.random() < 0.5
            self.ended.append(Ended(frozenset(self.open_offsets), self.log.end_offset, not is_commit))
            self.open_offsets = set()
            marker = build_marker(
                commit=is_commit,
                producer_id=IN_TRANSACTIONS,
                producer_epoch=0,
                coordinator_epoch=1,
                timestamp=self.now,
            )
            self.log.append_as_leader(marker, self.epoch, self.now, internal=True)
            self.in_transaction = False

    def new_epoch(self) -> None:
        self.epoch += 1

    def replicate(self) -> None:
        """Move the high watermark to the end of some batch."""
        log = self.log
        target = int(log.end_offset * self.rng.choice((1, 1, 0.9, 0.5)))
        ends = [header.next_offset for segment in segments_of(log) for header in segment.batches]
        reached = max((end for end in ends if end <= target), default=0)
        log.high_watermark = min(max(log.high_watermark, reached), log.end_offset)

    # --- deletions ---

    def delete_records(self) -> None:
        low, high = self.log.start_offset, self.log.high_watermark
        self.log.delete_records(low + int((high - low) * self.rng.choice((0.1, 0.3, 1))))

    def retain(self) -> None:
        """Apply retention now, or after more or all records have expired."""
        self.log.retain(self.now + self.rng.choice((0, 99_000, 200_000)))

    def truncate(self) -> None:
        """Truncate as a follower of a new leader does."""
        log = self.log
        at = max(log.end_offset - self.rng.choice((1, 3, 8, 30, 200)), 0)
        self._when_promised(lambda: log.truncate_to(at))
        kept = records_in(segments_of(log))
        bottom = log.segment_bases[0]
        self.written = {
            offset: record
            for offset, record in self.written.items()
            if offset in kept or (not self.was_compacted and bottom <= offset < log.end_offset)
        }
        self._cut()

    def reset(self) -> None:
        """Reset as a follower does if its leader's log starts later."""
        at = self.log.end_offset + self.rng.randrange(40)
        self._when_promised(lambda: self.log.reset_to(at))
        self.written, self.epochs = {}, {}
        self.was_compacted = self.is_compact
        self._cut()

    def _when_promised(self, work: Callable[[], object]) -> None:
        """Repeat `work` until the checkpoints promise less."""
        while True:
            try:
                work()
            except CutLater:
                self.node.world.rest(100)
            else:
                return

    def _cut(self) -> None:
        self.cut_end = self.log.end_offset
        self.furthest_start = min(self.furthest_start, self.log.end_offset)
        self.epoch += 1
        self.may_gap = False
        self._take_producers()
        self._take_transactions()

    # --- other events ---

    def flush(self) -> None:
        if self.rng.random() < 0.5:
            self.log.flush()
        else:
            self.log.flush_in_background(lambda: None)

    def rest(self) -> None:
        self.node.rest(self.rng.choice((5, 30, 500, 2000, 20_000)))

    def configure(self) -> None:
        self.is_compact ^= self.rng.random() < 0.4
        self.was_compacted |= self.is_compact
        self._draw_config()
        self.manager.configure("t", self.config)

    def move(self) -> None:
        """Begin or continue a move to the other directory; at its end the copy replaces the log."""
        log = self.log
        copy = log.twin or self._begin_copy()
        if copy is None:
            return
        for _ in range(3):
            self._when_promised(lambda: copy_some(log, copy))
        if copy.end_offset == log.end_offset and self.rng.random() < 0.5:
            self._complete(copy)

    def _begin_copy(self) -> Log | None:
        log, futures = self.log, self.manager.futures
        try:
            copy = futures.get("t", 0)
            if copy is None:
                copy = futures.create(
                    "t", 0, ID, next(each for each in self.manager.directories if each is not log.dir)
                )
            else:
                cut_what_differs(log, copy)
        except KafkaError as error:
            assert error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "an older log of that name is being removed"
            return None
        log.twin = copy
        return copy

    def _complete(self, copy: Log) -> None:
        """Complete a move as `broker.log_dir_moves` does."""
        log = self.log
        if copy.recovery_point < log.recovery_point:
            copy.flush()
        for epoch, start in log.leader_epochs.entries():
            if epoch > copy.leader_epochs.latest_epoch:
                copy.leader_epochs.assign(epoch, start)
        copy.producers.take_over(log.producers)
        copy.high_watermark = max(log.high_watermark, copy.start_offset)
        before = records_in(segments_of(log), copy.start_offset)
        log.twin = None
        self.was_moved = True
        self.log = self.manager.futures.promote("t", 0)
        after = records_in(segments_of(self.log), self.log.start_offset)
        assert before.items() <= after.items()
        assert after.items() - before.items() <= self.lost
        self.written |= records_in(segments_of(self.log))  # a kill may bring back records before the start
        known = {each.marker for each in self.ended}
        self.ended += [
            each for each in transactions_in(segments_of(self.log), IN_TRANSACTIONS)[0] if each.marker not in known
        ]

    # --- stops ---

    def stop(self) -> None:
        """End the process and start another."""
        log = self.log
        how = self.rng.choice(("clean", "clean, power", "kill", "kill", "power"))
        if how == "power" and log.cuts_synced != log.truncations and log.active.base >= self.cut_end:
            how = "kill"
        before, durable = State(log), min(log.recovery_point, log.high_watermark)
        self.furthest_start = max(self.furthest_start, before.start)
        if how.startswith("clean"):
            self.node.stop()
        else:
            self.node.kill()
        if how.endswith("power"):
            self.node.disk.lose_power()
        self._start_node()
        found = self._recovered()
        if found is None and how == "power" and self.manager.futures.partitions():
            found = self.manager.futures.promote("t", 0)  # it was not durable yet
        if found is None:
            assert (how, log.recovery_point) == ("power", 0)
            self._begin()
            return
        self.log = found
        self._judge(how, before, State(found), durable)
        self._take_producers()

    def _recovered(self) -> Log | None:
        """The log after its recovery; if that is long, a client waits for it as well."""
        while True:
            try:
                return self.manager.get("t", 0)
            except LogIsRecovering:
                self.node.rest(1)  # less than the delay of compaction

    def _judge(self, how: str, before: State, after: State, durable: int) -> None:
        is_clean = how.startswith("clean")
        if not is_clean and self.was_compacted and not self.is_compact and after.end in before.gaps:
            self._lost(before, after, 0)
        elif how == "power":
            assert after.end >= durable
            self._lost(before, after, durable)
        else:
            assert after.end == before.end
            assert after.start >= before.start or not is_clean
            assert {at: record for at, record in after.records.items() if at >= before.start} == before.records
            producers = before.producers_in_batches if self.was_moved else before.producers
            assert producers.items() <= after.producers.items()
            assert before.open_transactions.items() <= after.open_transactions.items()
            assert before.aborted <= after.aborted

    def _lost(self, before: State, after: State, durable: int) -> None:
        """Records after `durable` may be lost, or replaced by earlier ones."""
        for offset, record in before.records.items():
            assert not after.start <= offset < durable or after.records.get(offset) == record, f"offset {offset}"
        assert after.records.items() <= self.ever
        self.lost |= before.records.items() - after.records.items()
        self.written = records_in(segments_of(self.log))
        self._take_transactions()
        self.epochs = {at: epoch for at in self.written if (epoch := self.log.leader_epochs.epoch_at(at)) >= 0}
        self.epoch += 1
        self.may_gap = False

    # --- laws ---

    def check(self) -> None:
        """Check all laws except those of moves and stops, which are checked there."""
        assert not self.node.failures
        segments = segments_of(self.log)
        assert [each for each in segments if each.last_end > each.end] == []
        found = records_in(segments, self.log.start_offset)
        self._check_records(found)
        check_transactions(self.log, self.ended, segments, found)
        if found:
            self._check_reads(segments, found)
        epochs = self.log.leader_epochs
        assert {at: epochs.epoch_at(at) for at in found if at in self.epochs and at >= self.furthest_start} == {
            at: self.epochs[at] for at in found if at in self.epochs and at >= self.furthest_start
        }

    def _check_records(self, found: dict[int, Written]) -> None:
        assert found.items() <= self.written.items()
        if not self.was_compacted:
            assert found == {at: record for at, record in self.written.items() if at >= self.log.start_offset}
            return
        aborted = set().union(*(each.offsets for each in self.ended if each.is_aborted))
        for without in (aborted, aborted | self.open_offsets):
            latest = latest_of(self.written, without)
            there = latest_of(found, without)
            for key, (at, record) in latest.items():
                if at >= self.log.start_offset and (record.value is not None or key in there):
                    assert there.get(key) == (at, record)

    def _check_reads(self, segments: list[Segment], found: dict[int, Written]) -> None:
        log, offset = self.log, self.rng.choice(list(found))
        first = whole_headers(read_bytes(log.read(offset, 1)))[0]
        assert first.base_offset <= offset <= first.last_offset
        when = found[offset].timestamp + self.rng.choice((0, 0, 1, -1))
        times = [
            (record.timestamp, record.offset)
            for segment in segments
            for header in segment.batches
            for record in iter_records(segment.data, header)
            if record.offset >= log.start_offset
        ]
        assert log.offset_for_timestamp(when) == next((each for each in times if each[0] >= when), None)
        emptied = [header.max_timestamp for segment in segments for header in segment.batches if not header.count]
        if max(times)[0] > max(emptied, default=-1):  # otherwise the record may be missing, as in Apache Kafka
            largest = log.offset_for_timestamp(-3)
            assert largest is not None
            assert largest[0] >= max(times)[0]  # it may be older than a compaction


OPERATIONS: Final = {
    Model.append: 30,
    Model.follow: 4,
    Model.end_transaction: 6,
    Model.new_epoch: 3,
    Model.replicate: 15,
    Model.delete_records: 3,
    Model.retain: 3,
    Model.truncate: 4,
    Model.reset: 1,
    Model.flush: 4,
    Model.rest: 12,
    Model.configure: 3,
    Model.move: 10,
    Model.stop: 5,
}
"""What may happen, and how often."""


def run(seed: int, monkeypatch: pytest.MonkeyPatch, cut_step: int | None = None) -> None:
    """Run the life of one log; an error names the seed and the last event."""
    monkeypatch.setattr(cleaning, "SLICE_BYTES", 400)
    for module in (cleaner, cleaning):
        monkeypatch.setattr(module, "KEYS_MAX", 5 if seed % 3 == 0 else 200_000)
    if cut_step is None:
        cut_step = 2 if seed % 5 == 0 else trimming.CUT_STEP
    model = Model(seed, cut_step)
    steps = model.rng.choices(list(OPERATIONS), list(OPERATIONS.values()), k=STEPS)
    done: list[str] = []
    try:
        for step in steps:
            done.append(f"{model.log}: {step.__name__}")
            step(model)
            model.check()
    except Exception as error:
        error.add_note("\n".join([f"seed {seed}, in the end:", *done[-8:], str(model.log)]))
        raise


@pytest.mark.parametrize("seed", range(6))
def test_a_log_that_moves_keeps_its_promises(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run(seed, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("cut_step", [None, 2])
@pytest.mark.parametrize("first", range(1000, 1500, 50))
def test_more_seeds_hold(first: int, cut_step: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + 50):
        run(seed, monkeypatch, cut_step)
