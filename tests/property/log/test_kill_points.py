"""A log that is killed at any operation of its disk, read again on the same boot, and by a whole scan.

The page cache keeps all writes of a killed process, so the node trusts indexes, snapshots and closed segments
(`recovery.page_cache`). A whole scan of a copy trusts less. Both must find the same log: its end, leader epochs,
producers, aborted transactions, and offsets by time.

A seed decides the events before the kill: appends of a leader, responses of many batches to a follower, transactions,
truncations, deleted records, retention, rolls, compaction, flushes and checkpoints. The last write may be torn.

More seeds: `pytest -m slow tests/property/log`.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Any, Final

import pytest

from kraft_node.log.config import make_config
from kraft_node.log.errors import CutLater
from kraft_node.log.log import Log
from kraft_node.log.manager.log_manager import LogManager
from kraft_node.log.manager.timing import Timing
from kraft_node.log.recovery.background import LogIsRecovering
from kraft_node.log.segments import txn_index
from kraft_node.testing.disks.handles import SimFile
from kraft_node.testing.disks.inode import Inode
from kraft_protocol.buffers import Buffer
from kraft_protocol.records.batch import build_batch
from kraft_protocol.records.control import ControlType, build_marker, built_marker
from tests import tiers
from tests.unit.log.node import ID, Node
from tests.unit.log.world import NOW, whole_headers

STEPS: Final = 60
PRODUCERS: Final = 3
SEEDS: Final = 3000
EVERYDAY: Final = 150


class Killed(BaseException):
    """The end of the process."""


class LastWrites:
    """Remembers writes before they take effect: a kill may stop the last one half-way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.last: tuple[Inode, int, bytes] | None = None
        pwrite = SimFile.pwrite

        def note(file: SimFile, position: int, buffers: Sequence[Buffer]) -> None:
            self.last = (file.inode, position, b"".join(buffers))
            pwrite(file, position, buffers)
            self.last = None

        monkeypatch.setattr(SimFile, "pwrite", note)

    def tear(self, rng: random.Random) -> None:
        """Let a part of the write that was cut off take effect."""
        if self.last is not None:
            inode, position, data = self.last
            inode.write(position, data[: rng.randint(0, len(data))])


class Story:
    """The events of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.node = Node(["/d1"], seed)
        self.config = make_config(
            {
                "index.interval.bytes": str(rng.choice((0, 100, 500, 4096))),
                "internal.segment.bytes": str(rng.choice((1500, 5000, 100_000))),
                "segment.index.bytes": str(rng.choice((48, 10_485_760))),
                "retention.ms": "100000",
                "cleanup.policy": rng.choice(("delete", "delete", "compact")),
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": str(rng.choice((0, 100_000))),
            }
        )
        self.timing = Timing()
        self.timing.cleaner_backoff_ms = 400
        self.pending_index_bytes = rng.choice((0, 30, 4096))
        self.node.disk.on_death = Killed
        self.log = self.start(self.node).create("t", 0, ID)
        self.epoch = self.clock_ms = 0
        self.sequences: dict[int, int] = {}

    def start(self, node: Node) -> LogManager:
        manager = node.start(lambda _: self.config, self.timing)
        for directory in manager.directories:
            directory.pending_index_bytes = self.pending_index_bytes
        return manager

    # --- events ---

    def run(self) -> None:
        """All events, unless the process is killed."""
        events = [self.lead, self.lead, self.follow, self.follow, self.follow, self.elect, self.flush, self.checkpoint]
        events += [self.truncate, self.delete, self.retain, self.rest, self.replicate, self.settle, self.settle]
        for _ in range(STEPS):
            self.rng.choice(events)()

    def batch(self, base: int = 0) -> tuple[bytes, bool, int]:
        """A batch or a marker at offset `base`, whether it is a marker, and its end."""
        rng = self.rng
        self.clock_ms += rng.choice((0, 1, 50))
        how: dict[str, Any] = {"base_offset": base, "leader_epoch": self.epoch, "timestamp": NOW + self.clock_ms}
        producer = rng.choice((-1, *range(PRODUCERS)))
        open_here = producer in self.open
        if open_here and rng.random() < 0.5:
            self.open.discard(producer)
            ids = {"producer_id": producer, "producer_epoch": 0, "coordinator_epoch": 0}
            return build_marker(commit=rng.random() < 0.3, **ids, **how), True, base + 1
        count = rng.randint(1, 3)
        if producer >= 0:
            first = self.sequences.get(producer, 0)
            self.sequences[producer] = first + count
            how |= {"producer_id": producer, "producer_epoch": 0, "base_sequence": first}
            how["transactional"] = producer > 0
            self.open |= {producer} if producer > 0 else set()
        records = [(b"%d" % rng.randrange(9), rng.randbytes(rng.choice((1, 60, 300)))) for _ in range(count)]
        return build_batch(records, **how), False, base + count

    def lead(self) -> None:
        self.learn()
        for _ in range(self.rng.randint(1, 4)):
            data, is_marker, _ = self.batch()
            self.log.append_as_leader(data, self.epoch, self.now, internal=is_marker)

    def follow(self) -> None:
        self.learn()
        end, found = self.log.end_offset, []
        for _ in range(self.rng.randint(1, 25)):
            self.epoch += self.rng.random() < 0.1
            data, _, end = self.batch(end)
            found.append(data)
        self.log.append_as_follower(b"".join(found), self.epoch)

    def learn(self) -> None:
        """Take the producers from the log: a truncation may have changed them."""
        producers = list(self.log.producers.active())
        self.sequences = {each.producer_id: each.last_sequence + 1 for each in producers}
        self.open = {each.producer_id for each in producers if each.current_txn_first_offset >= 0}

    @property
    def now(self) -> int:
        return NOW + int(self.node.world.now_ms)

    def elect(self) -> None:
        self.epoch += 1
        self.log.leader_epochs.assign(self.epoch, self.log.end_offset)

    def replicate(self) -> None:
        ends = [self.log.high_watermark]
        for number in range(len(self.log.segment_bases)):
            segment = self.log.segments.at(number)
            ends += [header.next_offset for header in whole_headers(segment.file().pread(0, segment.size))]
        self.log.high_watermark = max(self.log.high_watermark, self.rng.choice(ends))

    def flush(self) -> None:
        self.log.flush_in_background(lambda: None)
        self.node.rest(self.rng.choice((1, 50)))

    def checkpoint(self) -> None:
        self.node.manager.checkpoint_all()
        self.node.rest(self.rng.choice((1, 50)))

    def settle(self) -> None:
        """All is replicated, durable, and promised to be so."""
        self.log.high_watermark = self.log.end_offset
        self.flush()
        self.checkpoint()

    def rest(self) -> None:
        self.node.rest(self.rng.choice((1, 20, 500)))

    def truncate(self) -> None:
        log = self.log
        at = max(log.end_offset - self.rng.choice((1, 3, 8, 30)), log.start_offset)
        self.epoch += 1
        try:
            log.truncate_to(at)
        except CutLater:
            self.node.rest(50)

    def delete(self) -> None:
        low, high = self.log.start_offset, self.log.high_watermark
        if high > low:
            self.log.delete_records(self.rng.randint(low, high))

    def retain(self) -> None:
        self.log.retain(self.now + self.rng.choice((0, 99_990, 200_000)))

    # --- judgement ---

    def opened(self, node: Node) -> Log:
        """The log after a start on the node's disk."""
        manager = self.start(node)
        while True:
            try:
                log = manager.get("t", 0)
            except LogIsRecovering:
                node.rest(100)
                continue
            assert log is not None
            return log


def seen(log: Log) -> dict[str, Any]:
    """All that must not depend on the kind of scan."""
    log.high_watermark = log.end_offset
    producers = {
        each.producer_id: (each.producer_epoch, each.last_sequence, each.last_offset, each.current_txn_first_offset)
        for each in log.producers.active()
    }
    times = {time: log.offset_for_timestamp(time) for time in range(NOW, NOW + 2000, 25)}
    aborted = {
        (start, end): sorted(log.aborted_transactions(start, end))
        for start in range(log.start_offset, log.end_offset, 5)
        for end in (start + 1, start + 7, log.end_offset)
    }
    return {
        "ends": (log.start_offset, log.end_offset, log.last_stable_offset),
        "epochs": log.leader_epochs.entries(),
        "producers": producers,
        "times": times,
        "aborted": aborted,
    }


def check_by_batches(log: Log) -> None:
    """The epochs and aborted transactions are those of the batches."""
    epochs: dict[int, int] = {}
    begun: dict[int, int] = {}
    ended: set[tuple[int, int]] = set()
    for number in range(len(log.segment_bases)):
        segment = log.segments.at(number)
        data = segment.file().pread(0, segment.size)
        for header in whole_headers(data):
            epochs.setdefault(header.partition_leader_epoch, header.base_offset)
            if not header.is_transactional:
                continue
            if not header.is_control:
                begun.setdefault(header.producer_id, header.base_offset)
                continue
            kind, _ = built_marker(data[header.position : header.position + header.length])
            first = begun.pop(header.producer_id, None)
            if kind == ControlType.ABORT and first is not None:
                ended.add((header.producer_id, header.base_offset))
    known = dict(log.leader_epochs.entries())
    for epoch, start in epochs.items():
        if start >= log.start_offset:
            assert known.get(epoch) is not None, f"epoch {epoch} is missing in {known}"
            assert known[epoch] <= start
    indexed: set[tuple[int, int]] = set()
    for base in log.txn_bases:
        for txn in txn_index.read(log.dir.env.disk, f"{log.path}/{base:020d}.txnindex"):
            indexed.add((txn.producer_id, txn.last_offset))
    assert ended <= indexed


def judge(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(seed)
    with monkeypatch.context() as patches:
        writes = LastWrites(patches)
        story.node.disk.die_after(story.rng.randrange(story.rng.choice((100, 400, 1000))))
        with contextlib.suppress(Killed):
            story.run()
        story.node.kill()
        writes.tear(story.rng)
    copy = Node(["/d1"], seed)
    copy.disk = story.node.disk.copy()
    copy.host.disk = copy.disk
    copy.world.now_ms = story.node.world.now_ms
    log = story.opened(story.node)
    check_by_batches(log)
    assert seen(log) == seen(story.opened(copy))


@pytest.mark.parametrize("first", tiers.seeds(range(0, SEEDS, EVERYDAY), 1))
def test_a_kill_at_any_operation_leaves_what_a_whole_scan_finds(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + EVERYDAY):
        try:
            judge(seed, monkeypatch)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error
