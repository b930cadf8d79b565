"""Transactions of several producers in one partition, against a list: what read_committed consumers see.

The reader behaves like a client: it takes the aborted transactions of each fetch, and leaves out the records of their
producers up to the marker. Whatever is appended, ended, replicated, deleted, truncated or reopened, it must get exactly
the committed records, in order, below the last stable offset.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kraft_node.log.log import Log
from kraft_node.log.producers.verification import Unverified
from kraft_node.metadata.partitions import PartitionState
from kraft_node.partition.isolation import READ_COMMITTED
from kraft_node.partition.listed_offsets import LATEST, offset_for
from kraft_node.partition.partition import Partition
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import build_batch, iter_records
from kraft_protocol.records.control import ControlType, build_marker, parse_control_key
from tests.tiers import examples
from tests.unit.log.world import NOW, LogWorld, read_bytes, whole_headers

CONFIG = {"internal.segment.bytes": "900", "index.interval.bytes": "1"}
PRODUCERS = st.integers(1, 3)
FETCH_BYTES = (150, 400, 5000)


class Entry:
    """A batch of one record, or a marker (`value` None)."""

    def __init__(self, offset: int, pid: int, epoch: int, value: bytes | None, *, transactional: bool) -> None:
        self.offset, self.pid, self.epoch, self.value = offset, pid, epoch, value
        self.transactional = transactional
        self.commits = False


class PartitionAgainstList(RuleBasedStateMachine):
    """The model is the list of entries; everything else follows from it."""

    def __init__(self) -> None:
        super().__init__()
        self.world = LogWorld()
        self.log: Log = self.world.open(CONFIG)
        self.entries: list[Entry] = []
        self.end = self.start = 0
        self.counter = 0
        self.loaded = 0
        """The end of the log when its producers were last loaded."""
        self.leader_epoch = 0
        self._lead()

    def _lead(self) -> None:
        self.partition = Partition(1, "t", b"t" * 16, 0, self.log)  # type: ignore[arg-type]
        self.leader_epoch += 1
        self.partition.follow(PartitionState((1, 2), (1, 2), 1, self.leader_epoch, self.leader_epoch))

    # -- the model

    def _state(self, pid: int) -> tuple[int, int, int]:
        """Epoch, next sequence and first offset of the open transaction (-1: none) of a producer."""
        epoch, sequence, first = -1, 0, -1
        for entry in self.entries:
            if entry.pid != pid:
                continue
            if entry.epoch != epoch:
                epoch, sequence = entry.epoch, 0
            if entry.value is None:
                first = -1
            else:
                sequence += 1
                if entry.transactional and first < 0:
                    first = entry.offset
        return epoch, sequence, first

    def _transactions(self) -> list[tuple[int, int, int, bool]]:
        """Producer, first offset, marker (the end if open) and whether it was committed, of every transaction."""
        opened: dict[int, int] = {}
        found = []
        for entry in self.entries:
            if entry.value is not None and entry.transactional:
                opened.setdefault(entry.pid, entry.offset)
            elif entry.value is None and entry.pid in opened:
                found.append((entry.pid, opened.pop(entry.pid), entry.offset, entry.commits))
        return found + [(pid, first, self.end, False) for pid, first in opened.items()]

    def _stable(self, loaded: int = 0) -> int:
        """The last stable offset, if markers below `loaded` count as replicated."""
        high = self.log.high_watermark
        first = min(
            [first for _, first, marker, _ in self._transactions() if marker >= max(high, loaded)], default=high
        )
        return min(max(first, self.start), high)

    def _seen(self) -> list[bytes]:
        stable = self.log.last_stable_offset
        transactions = self._transactions()
        values = []
        for entry in self.entries:
            if entry.value is None or not self.start <= entry.offset < stable:
                continue
            inside = [
                commits for pid, first, end, commits in transactions if pid == entry.pid and first <= entry.offset < end
            ]
            if not entry.transactional or inside == [True]:
                values.append(entry.value)
        return values

    # -- what happens

    @rule(pids=st.lists(PRODUCERS, min_size=1, max_size=5))
    def append_several(self, pids: list[int]) -> None:
        """Interleaved batches of transactions."""
        for pid in pids:
            self.append(pid, plain=False, bump=1)

    @rule(pid=PRODUCERS, plain=st.booleans(), bump=st.integers(0, 5))
    def append(self, pid: int, plain: bool, bump: int) -> None:
        """A producer's next batch, verified if it begins a transaction; sometimes in a new epoch."""
        epoch, sequence, first = self._state(pid)
        if epoch < 0 or (bump == 0 and first < 0):
            epoch, sequence = epoch + 1, 0
        self.counter += 1
        value = b"%d" % self.counter
        batch = build_batch(
            [(b"k", value)],
            timestamp=NOW,
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=not plain,
        )
        try:
            info = self.partition.append(batch, 1, NOW)
        except Unverified:
            assert not plain
            assert first < 0
            guard = self.log.producers.begin_verification(pid, epoch, sequence, NOW, with_bumps=False)
            info = self.partition.append(batch, 1, NOW, guard=guard)
        except KafkaError as error:
            assert error.code == ErrorCode.INVALID_TXN_STATE
            assert plain
            assert first >= 0
            return
        else:
            assert plain == (first < 0)
        assert info.base_offset == self.end
        self._note(Entry(self.end, pid, epoch, value, transactional=not plain))

    def _note(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.end += 1

    @rule(pid=PRODUCERS, commit=st.booleans(), newer=st.integers(-1, 1), version=st.sampled_from([0, 2]))
    def end_transaction(self, pid: int, commit: bool, newer: int, version: int) -> None:
        """A marker; with an epoch that is too old it is refused, with transaction.version 2 also with an equal one."""
        epoch, _, first = self._state(pid)
        known = epoch >= 0
        wanted = max(epoch, 0) + newer
        if wanted < 0:
            return
        late = known and (wanted < epoch or (version == 2 and first >= 0 and wanted == epoch))
        try:
            self.log.producers.check_marker(pid, wanted, 1, version)
            marker = build_marker(
                commit=commit, producer_id=pid, producer_epoch=wanted, coordinator_epoch=1, timestamp=NOW
            )
            self.partition.append(marker, -1, NOW, internal=True)
        except KafkaError as error:
            assert late
            assert error.code == ErrorCode.INVALID_PRODUCER_EPOCH
            return
        assert not late
        entry = Entry(self.end, pid, wanted, None, transactional=True)
        entry.commits = commit
        self._note(entry)

    @rule(pid=PRODUCERS, commit=st.booleans())
    def marker_during_verification(self, pid: int, commit: bool) -> None:
        """The transaction ends while its first batch is being verified: the batch must not be appended."""
        epoch, sequence, first = self._state(pid)
        if first >= 0 or epoch < 0:
            return
        guard = self.log.producers.begin_verification(pid, epoch, sequence, NOW, with_bumps=False)
        self.end_transaction(pid, commit, 0, 0)
        batch = build_batch(
            [(b"k", b"never")],
            timestamp=NOW,
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        try:
            self.partition.append(batch, 1, NOW, guard=guard)
            raise AssertionError("a batch was appended behind the end of its transaction")
        except KafkaError as error:
            assert error.code == ErrorCode.INVALID_TXN_STATE

    @rule(share=st.sampled_from([0.5, 1.0, 1.0]))
    def replicate(self, share: float) -> None:
        offset = int(self.end * share)
        if offset >= self.log.start_offset:
            self.partition.follower_fetched(2, -1, offset, 0)

    @rule(share=st.sampled_from([0.1, 0.5, 1.0]))
    def delete_records(self, share: float) -> None:
        before = int(self.log.high_watermark * share)
        self.log.delete_records(before)
        self.start = max(self.start, before)

    @rule(share=st.sampled_from([0.5, 0.9, 1.0]))
    def truncate(self, share: float) -> None:
        """As a follower, down to any offset that is kept; then the broker leads again."""
        offset = max(int(self.end * share), self.log.segment_bases[0], self.start)
        self.log.truncate_to(offset)
        self.entries = [entry for entry in self.entries if entry.offset < offset]
        self.loaded = self.end = min(self.end, offset)
        self._lead()

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        if clean:
            self.log.active.finish()
            self.log.take_snapshot(self.end)
            self.log.flush()
        high = self.log.high_watermark
        self.world.rest()
        recovery_point = self.log.recovery_point
        self.log.close()
        self.log = self.world.open(
            CONFIG,
            clean=clean,
            recovery_point=recovery_point,
            start_offset=self.start,
            high_watermark=high,
        )
        assert self.log.end_offset == self.end
        self.loaded = self.end
        self._lead()

    # -- what must hold

    @invariant()
    def stable_offset_is_that_of_the_model(self) -> None:
        """Snapshots of producers, as in Kafka, do not hold ended transactions: after a load they count as replicated.

        That is harmless: a marker is written only after its coordinator has decided for good.
        """
        stable = self.log.last_stable_offset
        assert self._stable() <= stable <= self._stable(self.loaded)
        if self.log.high_watermark >= self.partition.leader_start_offset:
            assert offset_for(self.partition, LATEST, READ_COMMITTED).offset == stable

    @invariant()
    def consumers_see_what_is_committed(self) -> None:
        expected = self._seen()
        for size in FETCH_BYTES:
            assert self._consumed(size) == expected

    def _consumed(self, size: int) -> list[bytes]:
        """What a read_committed consumer gets from the start."""
        values: list[bytes] = []
        offset, end = self.log.start_offset, self.partition.readable_end(READ_COMMITTED)
        while offset < end:
            found = self.partition.read(offset, size, READ_COMMITTED, min_one=True)
            data = read_bytes(found)
            aborted = sorted(self.log.aborted_transactions(offset, found.next_offset), key=lambda txn: txn[1])
            excluded: set[int] = set()
            before = offset
            for header in whole_headers(data):
                while aborted and aborted[0][1] <= header.last_offset:
                    excluded.add(aborted.pop(0)[0])
                if header.is_control:
                    (record,) = iter_records(data, header)
                    if parse_control_key(record.key) == ControlType.ABORT:
                        excluded.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in excluded):
                    values += [r.value or b"" for r in iter_records(data, header) if r.offset >= offset]
                offset = max(offset, header.next_offset)
            assert offset > before, f"no progress at {offset} of {end}"
        return values

    @invariant()
    def producers_are_those_of_the_model(self) -> None:
        known: dict[int, Any] = {producer.producer_id: producer for producer in self.log.producers.active()}
        for pid in {entry.pid for entry in self.entries if entry.offset >= self.log.segment_bases[0]}:
            epoch, sequence, first = self._state(pid)
            found = known[pid]
            assert (found.producer_epoch, found.last_sequence + 1) == (epoch, sequence)
            assert found.current_txn_first_offset == first


PartitionAgainstList.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=50, deadline=None)
TestPartitionAgainstList = PartitionAgainstList.TestCase
