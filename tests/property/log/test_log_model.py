"""A log against a list: after any event readers see the same, even after clean and unclean stops."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kraft_node.log.log import Log
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import NewRecord, build_batch
from kraft_protocol.records.control import build_marker
from tests.tiers import examples
from tests.unit.log.world import NOW, LogWorld, all_records, read_bytes, whole_headers

CONFIG = {
    "internal.segment.bytes": "700",
    "index.interval.bytes": "150",
    "message.timestamp.after.max.ms": "100000000",
    "retention.ms": "1000",
}

CODEC = st.sampled_from([0, 0, 1, 2, 3, 4])


class ModelRecord:
    def __init__(self, offset: int, when: int, value: bytes, epoch: int, first_of_batch: int) -> None:
        self.offset, self.when, self.value, self.epoch = offset, when, value, epoch
        self.first_of_batch = first_of_batch
        self.producer: tuple[int, int] | None = None
        """Producer id and sequence."""


class LogAgainstList(RuleBasedStateMachine):
    """The model keeps every record, and the open and aborted transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.world = LogWorld()
        self.log: Log = self.world.open(CONFIG)
        self.records: list[ModelRecord] = []
        self.start = self.checkpointed = self.furthest_start = 0
        self.end = 0
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.open_txns: dict[int, int] = {}
        self.aborted: list[tuple[int, int, int]] = []
        self.ended: list[tuple[int, int]] = []
        """First offset and marker of all transactions that have ended."""
        self.replicated = 0
        self.counter = 0
        self.was_cut = False
        """Since the last flush of what came after: a loss of power may bring back what went."""

    @initialize(batches=st.integers(0, 60))
    def begin(self, batches: int) -> None:
        self.epoch = 1
        self.append([[0, 3, -5]] * batches, 0)

    def _values(self, count: int) -> list[bytes]:
        self.counter += 1
        return [b"%d-%d" % (self.counter, i) for i in range(count)]

    def _note(self, values: list[bytes], times: list[int]) -> None:
        first = self.end
        for value, when in zip(values, times, strict=True):
            self.records.append(ModelRecord(self.end, when, value, self.epoch, first))
            self.end += 1

    @rule(
        batches=st.lists(st.lists(st.integers(-20, 20), min_size=1, max_size=4), min_size=1, max_size=12), codec=CODEC
    )
    def append(self, batches: list[list[int]], codec: int) -> None:
        for jitter in batches:
            values = self._values(len(jitter))
            times = [NOW + self.counter + each for each in jitter]
            pairs = zip(values, times, strict=True)
            data = build_batch([NewRecord(b"k", value, when) for value, when in pairs], compression=codec)
            info = self.log.append_as_leader(data, self.epoch, NOW)
            assert info.base_offset == self.end
            self._note(values, times)

    @rule(pid=st.integers(1, 3), again=st.booleans(), gap=st.booleans())
    def append_idempotent(self, pid: int, again: bool, gap: bool) -> None:
        sequence = self.sequences.get(pid, 0)
        transactional = pid == 3
        how: dict[str, Any] = {"producer_id": pid, "producer_epoch": 0, "transactional": transactional}
        values = self._values(1)
        data = build_batch([NewRecord(b"k", values[0], NOW)], base_sequence=sequence, **how)
        info = self.log.append_as_leader(data, self.epoch, NOW)
        assert (info.base_offset, info.is_duplicate) == (self.end, False)
        if transactional:
            self.open_txns.setdefault(pid, self.end)
        self._note(values, [NOW])
        self.records[-1].producer = pid, sequence
        self.sequences[pid] = sequence + 1
        if again:
            repeated = self.log.append_as_leader(data, self.epoch, NOW)
            assert (repeated.base_offset, repeated.is_duplicate) == (self.end - 1, True)
        if gap:
            skipped = build_batch([NewRecord(b"k", b"x", NOW)], base_sequence=sequence + 2, **how)
            try:
                self.log.append_as_leader(skipped, self.epoch, NOW)
                raise AssertionError("a gap in the sequence was taken")
            except KafkaError as e:
                assert e.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @precondition(lambda self: 3 in self.open_txns)
    @rule(commit=st.booleans())
    def end_transaction(self, commit: bool) -> None:
        data = build_marker(commit=commit, producer_id=3, producer_epoch=0, coordinator_epoch=1, timestamp=NOW)
        self.log.append_as_leader(data, self.epoch, NOW, internal=True)
        first = self.open_txns.pop(3)
        self.ended.append((first, self.end))
        if not commit:
            self.aborted.append((3, first, self.end))
        self.records.append(ModelRecord(self.end, NOW, b"", self.epoch, self.end))
        self.end += 1

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule(share=st.floats(0, 1))
    def replicate(self, share: float) -> None:
        self.replicated = max(self.replicated, int(self.end * share))
        self.log.high_watermark = self.replicated

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        before = int(self.replicated * share)
        self.log.delete_records(before)
        self.start = max(self.start, before)

    @rule(share=st.floats(0, 1), everything=st.booleans())
    def retain(self, share: float, everything: bool) -> None:
        """Delete old whole segments; records that are not replicated stay."""
        if everything:
            self.replicate(share := 1.0)
        self.log.retain(NOW + 1000 + int((self.counter + 60) * share))
        assert self.start <= self.log.start_offset <= max(self.start, self.replicated)
        self.start = self.log.start_offset

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        """Truncate as a follower does: the removed records may be replicated, deleted, or part of a transaction."""
        offset = int(self.end * share)
        cut = next((r.first_of_batch for r in self.records if r.offset == offset), offset)
        bottom = self.log.segment_bases[0]
        assert self.log.truncate_to(offset) == (offset < self.end)
        if offset < bottom:
            self._emptied(offset)
        else:
            self._cut(cut)

    @rule(beyond=st.integers(0, 50))
    def reset(self, beyond: int) -> None:
        self.log.reset_to(self.end + beyond)
        self._emptied(self.end + beyond)

    def _cut(self, end: int) -> None:
        """Truncate the model."""
        self.was_cut = True
        self.records = [r for r in self.records if r.offset < end]
        self.end = end
        self.start, self.checkpointed = min(self.start, end), min(self.checkpointed, end)
        self.replicated, self.furthest_start = min(self.replicated, end), min(self.furthest_start, end)
        self.sequences = {r.producer[0]: r.producer[1] + 1 for r in self.records if r.producer is not None}
        self.aborted = [txn for txn in self.aborted if txn[2] < end]
        self.open_txns = {pid: first for pid, first in self.open_txns.items() if first < end}
        for first, marker in self.ended:
            if first < end <= marker:
                self.open_txns[3] = first
        self.ended = [txn for txn in self.ended if txn[1] < end]

    def _emptied(self, at: int) -> None:
        self._cut(0)
        self.start = self.end = self.replicated = at

    @rule()
    def checkpoint(self) -> None:
        self.checkpointed = self.start

    @rule()
    def flush(self) -> None:
        self.log.flush_in_background(lambda: None)
        self.world.rest(1000)
        assert self.log.recovery_point == self.end
        self.was_cut = False

    @rule(how=st.sampled_from(["clean", "killed", "without power"]))
    def reopen(self, how: str) -> None:
        """Restart. After an unclean stop the log's start may be the one last checkpointed; its end stays.

        A power loss may lose records beyond the recovery point.
        """
        self.furthest_start = max(self.furthest_start, self.start)
        if how == "without power" and self.was_cut:
            how = "killed"
        clean = how == "clean"
        if clean:
            self.checkpointed = self.start
            self.log.active.finish()
            self.log.take_snapshot(self.end)
            self.log.flush()
        durable = self.log.recovery_point
        if how == "without power":
            self.world.rest()  # finish all work of this process before the next starts
            durable = self.log.recovery_point
            self.world.disk.lose_power()
        self.log.close()
        self.log = self.world.open(
            CONFIG,
            clean=clean,
            recovery_point=durable,
            start_offset=self.checkpointed,
            high_watermark=self.replicated,
        )
        if how == "without power":
            assert durable <= self.log.end_offset <= self.end
            known = {producer.producer_id: producer.last_sequence + 1 for producer in self.log.producers.active()}
            if self.log.end_offset == self.checkpointed < self.end:
                self._emptied(self.checkpointed)
                self.sequences = known
            else:
                self._cut(self.log.end_offset)
        assert self.checkpointed <= self.log.start_offset <= self.start
        self.start = self.log.start_offset

    @invariant()
    def same_ends(self) -> None:
        log = self.log
        assert (log.start_offset, log.end_offset, log.high_watermark) == (self.start, self.end, self.replicated)
        waiting = list(self.open_txns.values())
        stable = max(self.start, min([*waiting, self.replicated]))
        assert log.last_stable_offset <= self.replicated
        if not any(marker >= self.replicated for _, _, marker in self.aborted):
            assert log.last_stable_offset <= stable or not waiting

    @invariant()
    def same_records(self) -> None:
        expected = [(r.offset, r.when, r.value) for r in self.records if r.offset >= self.start and r.value]
        got = [(r.offset, r.timestamp, r.value or b"") for r in all_records(self.log) if r.key == b"k"]
        assert got == expected

    @rule(share=st.floats(0, 1), size=st.integers(1, 2000), limit=st.floats(0, 1))
    def read(self, share: float, size: int, limit: float) -> None:
        offset = self.start + int((self.end - self.start) * share)
        stop = int(self.end * limit)
        found = self.log.read(offset, size, limit_offset=stop)
        headers = whole_headers(read_bytes(found))
        if offset < min(stop, self.end):
            assert headers or found.size == 0
        if headers:
            assert headers[0].base_offset <= offset <= headers[0].last_offset
            assert found.next_offset >= headers[-1].base_offset

    @rule(share=st.floats(0, 1))
    def by_timestamp(self, share: float) -> None:
        when = NOW - 30 + int((self.counter + 60) * share)
        alive = [r for r in self.records if r.offset >= self.start]
        expected = next(((r.when, r.offset) for r in alive if r.when >= when), None)
        assert self.log.offset_for_timestamp(when) == expected
        largest = max((r.when for r in alive), default=None)
        if largest is not None:
            found = self.log.offset_for_timestamp(-3)
            assert found is not None
            assert found[0] >= largest

    @rule(share=st.floats(0, 1))
    def epochs(self, share: float) -> None:
        offset = int(self.end * share)
        # Records before a start are forgotten, though the disk may bring them back.
        first = max(self.start, self.furthest_start)
        record = next((r for r in self.records if r.offset == offset and r.offset >= first), None)
        if record is not None:
            assert self.log.leader_epochs.epoch_at(offset) == record.epoch
            later = next((r.offset for r in self.records if r.epoch > record.epoch), self.end)
            assert self.log.leader_epochs.end_offset_for(record.epoch, self.end) == (
                record.epoch,
                max(later, self.start),
            )

    @rule(a=st.floats(0, 1), b=st.floats(0, 1))
    def aborted_transactions(self, a: float, b: float) -> None:
        low, high = sorted((int(self.end * a), int(self.end * b)))
        low = max(low, self.start)
        got = self.log.aborted_transactions(low, high)
        needed = [(pid, first) for pid, first, marker in self.aborted if marker >= low and first < high]
        assert [txn for txn in got if txn in needed] == needed if low < high else got == []


LogAgainstList.TestCase.settings = settings(max_examples=examples(80), stateful_step_count=40, deadline=None)
TestLogAgainstList = LogAgainstList.TestCase
