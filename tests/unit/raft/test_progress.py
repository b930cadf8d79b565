"""Which replicas count for a leader, and on which disks."""

from __future__ import annotations

from kraft_node.raft.membership.quorum import ReplicaKey, Voter, VoterSet
from kraft_node.raft.progress import Progress
from kraft_protocol.ids import Uuid

OLD, NEW = (Uuid(bytes([n]) * 16) for n in (8, 9))
LOCAL = ReplicaKey(1, Uuid(bytes(15) + b"\1"))


def _leader(*voters: ReplicaKey) -> Progress:
    progress = Progress(VoterSet(Voter(key) for key in voters), LOCAL, 0)
    progress.flushed(100)
    return progress


def _fetched(progress: Progress, key: ReplicaKey, offset: int) -> None:
    replica = progress.of(key)
    assert replica is not None
    replica.fetched(offset, 100, 1_000)


def test_a_static_voter_with_another_disk_counts_after_its_fetch() -> None:
    """It stayed an observer for the rest of the epoch, and the loss of another voter stopped the quorum."""
    progress = _leader(ReplicaKey(1), ReplicaKey(2), ReplicaKey(3))
    _fetched(progress, ReplicaKey(2, OLD), 90)
    assert progress.high_watermark() == 90
    _fetched(progress, ReplicaKey(2, NEW), 95)
    assert progress.high_watermark() == 95
    assert not progress.observers


def test_acknowledgements_of_a_replaced_disk_no_longer_count() -> None:
    progress = _leader(ReplicaKey(1), ReplicaKey(2), ReplicaKey(3))
    _fetched(progress, ReplicaKey(2, OLD), 90)
    _fetched(progress, ReplicaKey(2, NEW), 40)
    assert progress.voters[2].end_offset == 40


def test_a_dynamic_voter_counts_only_with_its_own_disk() -> None:
    progress = _leader(LOCAL, ReplicaKey(2, OLD), ReplicaKey(3, OLD))
    _fetched(progress, ReplicaKey(2, OLD), 90)
    _fetched(progress, ReplicaKey(2, NEW), 95)
    assert progress.high_watermark() == 90
    assert ReplicaKey(2, NEW) in progress.observers
