"""The metadata log as raft uses it: durable after one fsync, truncated where torn, refused where damaged."""

from __future__ import annotations

import random
from typing import Any

import pytest

from kraft_node.log.checkpoints import quorum_state
from kraft_node.log.errors import LogDirDamaged, LogDirInvalid
from kraft_node.log.metadata_log import MetadataLog, parse_snapshot_name, snapshot_name
from kraft_node.raft.log_view import LogView, SnapshotId
from kraft_node.raft.membership.quorum import QuorumState, ReplicaKey
from kraft_node.raft.storage import MetadataStorage
from kraft_node.testing.disk import SimDisk
from kraft_node.testing.world import SimHost, World
from kraft_protocol.ids import Uuid
from kraft_protocol.records.batch import build_batch, iter_headers
from tests.batches import iter_all_records

PATH = "/m/__cluster_metadata-0"


class Voter:
    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed)
        self.disk = SimDisk(random.Random(seed))
        self.disk.mkdir("/m")
        self.disk.fsync_dir("/")
        self.host = SimHost(self.world, "n1", self.disk)

    def open(self) -> MetadataLog:
        net: Any = None
        return MetadataLog(self.host.env(net), "/m")

    def crash(self) -> None:
        self.host.end_life()
        self.disk.lose_power()


def batch(offset: int, count: int = 1, epoch: int = 1) -> bytes:
    return build_batch(
        [(None, b"%d" % (offset + i)) for i in range(count)], base_offset=offset, leader_epoch=epoch, timestamp=1
    )


def stored(log: MetadataLog) -> list[bytes | None]:
    got: list[bytes | None] = []
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read(offset, 200)
        got += [record.value for record in iter_all_records(data)]
        offset = max(header.next_offset for header in iter_headers(data))
    return got


def test_the_metadata_log_implements_the_storage_of_raft() -> None:
    storage: MetadataStorage = Voter().open()
    storage.append([batch(0, 3), batch(3, epoch=2)])
    storage.begin_flush()()
    assert (storage.start_offset, storage.end_offset) == (0, 4)
    assert storage.epochs() == [(1, 0), (2, 3)]
    assert bytes(storage.read(0, 1)) == batch(0, 3)
    assert bytes(storage.read(1, 10_000)) == batch(0, 3) + batch(3, epoch=2)


def test_a_commit_costs_one_fsync() -> None:
    voter = Voter()
    log = voter.open()
    log.append([batch(0)])
    log.begin_flush()()
    seen: list[str] = []
    voter.disk.fail = lambda operation, path: seen.append(path) if operation.startswith("fsync") else None
    for number in range(1, 4):
        log.append([batch(number)])
        log.begin_flush()()
    assert seen == [f"{PATH}/{0:020d}.log"] * 3


@pytest.mark.parametrize("seed", range(40))
def test_flushed_batches_survive_a_crash(seed: int) -> None:
    voter = Voter(seed)
    rng = random.Random(seed)
    flushed = end = 0
    for _ in range(3):
        log = voter.open()
        assert log.end_offset >= flushed
        end = log.end_offset
        assert stored(log) == [b"%d" % number for number in range(end)]
        for _ in range(rng.randrange(10)):
            count = rng.randrange(1, 5)
            log.append([batch(end, count)])
            end += count
            if rng.random() < 0.5:
                log.begin_flush()()
                flushed = end
        voter.crash()


def test_damage_in_flushed_batches_is_refused_but_a_torn_tail_is_truncated() -> None:
    voter = Voter()
    log = voter.open()
    log.append([batch(0)])
    log.append([batch(1)])
    log.begin_flush()()
    log.append([batch(2)])
    log.begin_flush()()  # the flush covers the records before
    size = voter.disk.size(f"{PATH}/{0:020d}.log")
    voter.host.end_life()
    voter.disk.kill_process()
    torn = voter.disk.copy()
    torn._inode(f"{PATH}/{0:020d}.log").data.pop()
    voter.disk, keep = torn, voter.disk
    voter.host.disk = torn
    assert stored(voter.open()) == [b"0", b"1"]
    keep.flip(f"{PATH}/{0:020d}.log", size // 3 + 16, 0)
    voter.host.disk = keep
    with pytest.raises(LogDirDamaged) as caught:
        voter.open()
    assert caught.value.file == f"{PATH}/{0:020d}.log"


def test_a_batch_damaged_while_the_node_runs_is_not_replayed() -> None:
    """Recovery checks a log once. A bit that flips later changed the metadata of this node alone (seed 1100444)."""
    voter = Voter()
    log = voter.open()
    log.append([batch(0)])
    size = voter.disk.size(f"{PATH}/{0:020d}.log")
    log.append([batch(1)])
    log.begin_flush()()
    voter.disk.flip(f"{PATH}/{0:020d}.log", size + 60, 0)
    assert bytes(log.read(0, size)) == batch(0), "other batches are still read"
    with pytest.raises(OSError, match=f"{PATH} is damaged at or after offset 1: CRC"):
        log.read(1, size)


def test_truncation_and_reset_are_durable() -> None:
    voter = Voter()
    log = voter.open()
    for number in range(10):
        log.append([batch(number, epoch=1 + number // 5)])
    log.begin_flush()()
    log.truncate(7)
    assert (log.end_offset, log.epochs()) == (7, [(1, 0), (2, 5)])
    log.append([batch(7, epoch=3)])
    log.begin_flush()()
    voter.crash()
    log = voter.open()
    assert (log.end_offset, log.epochs()) == (8, [(1, 0), (2, 5), (3, 7)])
    writer = log.create_snapshot(SnapshotId(100, 3))
    writer.append(batch(0))
    writer.begin_finish()()
    log.reset_to(100)
    assert (log.start_offset, log.end_offset, log.epochs()) == (100, 100, [])
    log.append([batch(100, epoch=4)])
    log.begin_flush()()
    log.close()
    log = voter.open()
    assert (log.end_offset, stored(log)) == (101, [b"100"])


def test_a_snapshot_appears_whole_or_not_at_all() -> None:
    voter = Voter()
    log = voter.open()
    for number in range(10):
        log.append([batch(number)])
    log.begin_flush()()
    abandoned = log.create_snapshot(SnapshotId(4, 1))
    abandoned.append(b"x")
    abandoned.abandon()
    writer = log.create_snapshot(SnapshotId(5, 1))
    data = batch(0, 3) + batch(3)
    writer.append(data[:50])
    writer.append(data[50:])
    assert log.snapshots() == []
    writer.begin_finish()()
    assert [(found.id, found.size_bytes) for found in log.snapshots()] == [(SnapshotId(5, 1), len(data))]
    assert [bytes(part) for part in log.snapshot_batches(SnapshotId(5, 1))] == [batch(0, 3), batch(3)]
    assert log.read_snapshot(SnapshotId(5, 1), 10, 20).read() == data[10:30]
    assert log.delete_before(5) == 5
    log.create_snapshot(SnapshotId(6, 1)).append(b"half")
    voter.crash()
    log = voter.open()
    assert [found.id for found in log.snapshots()] == [SnapshotId(5, 1)]
    assert (log.start_offset, log.end_offset) == (5, 10), "the log begins at its oldest snapshot"
    assert not [name for name in voter.disk.listdir(PATH) if name.endswith(".part")]
    voter.disk.flip(f"{PATH}/{snapshot_name(SnapshotId(5, 1))}", 30, 0)
    with pytest.raises(ValueError, match="checkpoint is damaged"):
        list(log.snapshot_batches(SnapshotId(5, 1)))
    log.remove_snapshot(SnapshotId(5, 1))
    assert log.snapshots() == []
    voter.world.rest(70_000)
    assert not [name for name in voter.disk.listdir(PATH) if "checkpoint" in name and "leader" not in name]


def test_a_snapshot_past_the_end_replaces_the_log() -> None:
    voter = Voter()
    log = voter.open()
    log.append([batch(0)])
    log.begin_flush()()
    writer = log.create_snapshot(SnapshotId(50, 3))
    writer.append(batch(0))
    writer.begin_finish()()
    voter.crash()
    log = voter.open()
    assert (log.start_offset, log.end_offset) == (50, 50)


@pytest.mark.parametrize("crash", [False, True])
def test_the_log_opens_at_the_downloaded_snapshot_beside_stale_ones(crash: bool) -> None:
    """The node died between the log's reset and the deletion of the earlier snapshots."""
    voter = Voter()
    log = voter.open()
    log.append([batch(number) for number in range(10)])
    log.begin_flush()()
    for snapshot in (SnapshotId(0, 0), SnapshotId(5, 1), SnapshotId(50, 3)):
        writer = log.create_snapshot(snapshot)
        writer.append(batch(0))
        writer.begin_finish()()
    log.reset_to(50)
    log.append([batch(50, epoch=4)])
    log.begin_flush()()
    if crash:
        voter.crash()
    else:
        log.close()
    log = voter.open()
    found = [file.id for file in log.snapshots()]
    assert (log.start_offset, log.end_offset, log.epochs()) == (50, 51, [(4, 50)])
    view = LogView(log.start_offset, log.end_offset, log.epochs(), found)
    assert (view.snapshots, view.stale) == ([SnapshotId(50, 3)], [SnapshotId(5, 1)])
    assert view.end_of_epoch(1) == (3, 50), "where the snapshot ends, by its epoch"


def test_a_log_that_starts_after_every_snapshot_is_damaged() -> None:
    voter = Voter()
    log = voter.open()
    writer = log.create_snapshot(SnapshotId(50, 3))
    writer.append(batch(0))
    writer.begin_finish()()
    log.reset_to(50)
    log.append([batch(50, epoch=4)])
    log.remove_snapshot(SnapshotId(50, 3))
    log.close()
    with pytest.raises(LogDirDamaged, match="the log starts at 50, the newest snapshot ends at 0"):
        voter.open()


def test_a_snapshot_replaces_a_longer_log_of_older_epochs() -> None:
    """The node died after the snapshot was renamed, and before the log's reset."""
    voter = Voter()
    log = voter.open()
    log.append([batch(number) for number in range(100)])
    log.begin_flush()()
    writer = log.create_snapshot(SnapshotId(50, 3))
    writer.append(batch(0))
    writer.begin_finish()()
    voter.crash()
    log = voter.open()
    assert (log.start_offset, log.end_offset, log.epochs()) == (50, 50, [])


def test_names_of_snapshots_are_parsed() -> None:
    assert snapshot_name(SnapshotId(7, 2)) == "00000000000000000007-0000000002.checkpoint"
    assert parse_snapshot_name("00000000000000000007-0000000002.checkpoint") == SnapshotId(7, 2)
    for other in ("leader-epoch-checkpoint", "bootstrap.checkpoint", "1-2.checkpoint.part", "1-2.checkpoint.deleted"):
        assert parse_snapshot_name(other) is None


def test_quorum_state_has_the_json_of_kafka() -> None:
    voter = Voter()
    log = voter.open()
    assert log.load_quorum_state() == QuorumState()
    state = QuorumState(2, 1, ReplicaKey(-1))
    log.begin_save_quorum_state(state, 0, [1, 2])()
    assert bytes(voter.disk._inode(f"{PATH}/quorum-state").data) == (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1},{"voterId":2}],'
        b'"data_version":0}'
    )
    voter.crash()
    assert voter.open().load_quorum_state() == state


def test_quorum_state_names_the_directory_voted_for_from_kraft_version_1_on() -> None:
    voter = Voter()
    state = QuorumState(3, -1, ReplicaKey(2, Uuid(b"D" * 16)))
    voter.open().begin_save_quorum_state(state, 1, [1, 2])()
    assert bytes(voter.disk._inode(f"{PATH}/quorum-state").data) == (
        b'{"leaderId":-1,"leaderEpoch":3,"votedId":2,"votedDirectoryId":"RERERERERERERERERERERA","data_version":1}'
    )
    voter.crash()
    assert voter.open().load_quorum_state() == state


def test_quorum_state_version_1_and_damage() -> None:
    state = QuorumState(9, -1, ReplicaKey(3, Uuid(bytes(range(16)))))
    data = quorum_state.render(state, version=1)
    assert data == (
        b'{"leaderId":-1,"leaderEpoch":9,"votedId":3,"votedDirectoryId":"AAECAwQFBgcICQoLDA0ODw","data_version":1}'
    )
    assert quorum_state.parse(data) == state
    for bad in (b"", b"{}", b"[]", b'{"data_version":2}', data[:-1], b'{"leaderEpoch":"x","data_version":0}'):
        with pytest.raises(quorum_state.QuorumStateError):
            quorum_state.parse(bad)


def test_the_directory_is_locked() -> None:
    voter = Voter()
    first = voter.open()
    with pytest.raises(LogDirInvalid):
        voter.open()
    first.close()
    voter.open()
