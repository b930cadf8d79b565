"""The storage contract without power loss: the Raft simulator's disk relies on promises of the real files.

Each seed runs some lives of `log.metadata_log.MetadataLog` on the simulated disk. After each reopening all reported
writes must be there, and nothing that was replaced may be back.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraft_node.log.metadata_log import MetadataLog
from kraft_node.raft.log_view import LogView, SnapshotId
from kraft_node.raft.membership.quorum import QuorumState, ReplicaKey
from kraft_node.testing.disk import SimDisk
from kraft_node.testing.world import SimHost, World
from kraft_protocol.records.batch import build_batch, iter_headers

SEEDS = 60
NET: Any = None


class Life:
    """The promises so far: the log as (offset, epoch, stamp), and its durable part."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(seed)
        self.disk = SimDisk(random.Random(seed + 1))
        self.disk.mkdir("/m")
        self.disk.fsync_dir("/")
        self.host = SimHost(self.world, "n1", self.disk)
        self.stamp = 0
        self.start = 0
        self.log: list[tuple[int, int]] = []
        self.durable = 0
        """Below that offset nothing may be lost."""
        self.state = QuorumState()
        self.snapshots: set[SnapshotId] = set()
        self.replaced = False
        self.epoch = 1

    @property
    def end(self) -> int:
        return self.start + len(self.log)

    def open(self) -> MetadataLog:
        return MetadataLog(self.host.env(NET), "/m")

    def check(self, storage: MetadataLog) -> None:
        """At opening: all promised records, and no record that was not written."""
        assert storage.load_quorum_state() == self.state
        found = {file.id for file in storage.snapshots()}
        assert self.snapshots <= found
        for snapshot in self.snapshots:
            assert list(storage.snapshot_batches(snapshot)), "a snapshot that has its name is whole"
        assert storage.end_offset >= self.durable, "what was flushed is there"
        assert storage.end_offset <= max(self.end, self.durable), "nothing is there that was never written"
        view = LogView(storage.start_offset, storage.end_offset, storage.epochs(), found)
        assert [snapshot.end_offset for snapshot in view.snapshots[:1]] == [view.start_offset] * bool(view.start_offset)
        for snapshot in view.stale:
            if self.rng.random() < 0.5:
                storage.remove_snapshot(snapshot)
        if self.replaced:
            assert storage.start_offset >= self.start, "what a snapshot has replaced does not come back"
        stamps = {}
        offset = storage.start_offset
        while offset < storage.end_offset:
            for header in iter_headers(bytes(storage.read(offset, 10_000))):
                stamps[header.base_offset] = (header.partition_leader_epoch, header.max_timestamp)
                offset = header.next_offset
        for at in range(max(self.start, storage.start_offset), storage.end_offset):
            assert stamps[at] == self.log[at - self.start], f"offset {at} holds what was written last"
        self.log = self.log[: max(0, storage.end_offset - self.start)]
        self.durable = storage.end_offset
        self.start = max(self.start, storage.start_offset)
        self.log = [stamps[at] for at in range(self.start, storage.end_offset)]

    def act(self, storage: MetadataLog) -> None:
        rng = self.rng
        what = rng.random()
        if what < 0.5:
            self.epoch += rng.random() < 0.1
            self.stamp += 1
            value = b"x" * rng.choice((10, 700, 3000))
            storage.append(
                [build_batch([(None, value)], base_offset=self.end, leader_epoch=self.epoch, timestamp=self.stamp)]
            )
            self.log.append((self.epoch, self.stamp))
        elif what < 0.7:
            storage.begin_flush()()
            self.durable, self.replaced = self.end, True
        elif what < 0.8 and self.end > self.start:
            committed = max((snapshot.end_offset for snapshot in self.snapshots), default=0)
            offset = rng.randint(max(self.start, committed), self.end)
            storage.truncate(offset)
            storage.begin_flush()()
            del self.log[offset - self.start :]
            self.durable, self.replaced = self.end, True
            self.epoch += 1
        elif what < 0.9:
            self.state = QuorumState(self.state.epoch + 1, -1, ReplicaKey(rng.randint(1, 3)))
            storage.begin_save_quorum_state(self.state, 0, [1, 2, 3])()
        elif what < 0.95:
            # A leader's snapshot of a newer epoch than this log has.
            self.epoch += 1
            offset = rng.randint(1, self.end + 5)
            if offset <= max((snapshot.end_offset for snapshot in self.snapshots), default=self.start):
                return
            snapshot = SnapshotId(offset, self.epoch)
            writer = storage.create_snapshot(snapshot)
            writer.append(build_batch([(None, b"state")], base_offset=0, leader_epoch=self.epoch, timestamp=1))
            writer.begin_finish()()
            self.snapshots = {snapshot}
            storage.reset_to(offset)
            self.start, self.log, self.durable, self.replaced = offset, [], offset, True
        elif self.end > self.start:
            # A snapshot of its own. The previous one stays, or the log before the new one is deleted with it.
            offset = rng.randint(self.start + 1, self.end)
            if offset <= max((snapshot.end_offset for snapshot in self.snapshots), default=0):
                return
            snapshot = SnapshotId(offset, self.log[offset - 1 - self.start][0])
            writer = storage.create_snapshot(snapshot)
            writer.append(build_batch([(None, b"state")], base_offset=0, leader_epoch=snapshot.epoch, timestamp=1))
            writer.begin_finish()()
            storage.begin_flush()()
            self.durable, self.replaced = self.end, True
            self.snapshots = {snapshot}


@pytest.mark.parametrize("seed", range(SEEDS))
def test_data_reported_as_durable_survives_a_power_loss(seed: int) -> None:
    life = Life(seed)
    for _ in range(4):
        storage = life.open()
        life.check(storage)
        for _ in range(life.rng.randint(1, 30)):
            life.act(storage)
        life.host.end_life()
        life.disk.kill_process()
        life.disk.lose_power()
    life.check(life.open())
