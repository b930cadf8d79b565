"""Snapshots: when to take and delete them, serving them in chunks, fetching one from the leader (KIP-630)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.membership.quorum import VoterSet
from kraft_node.raft.messages import (
    NONE,
    POSITION_OUT_OF_RANGE,
    SNAPSHOT_NOT_FOUND,
    FetchSnapshotReply,
    FetchSnapshotRequest,
)
from kraft_node.raft.ready import ReadSnapshot, Respond, SnapshotPart
from kraft_node.raft.roles.states import Role
from kraft_node.raft.validation import leader_error

if TYPE_CHECKING:
    from kraft_node.raft.roles.follower import Follower
    from kraft_node.raft.roles.transitions import RaftReplica


@dataclass(slots=True, frozen=True)
class SnapshotPolicy:
    """When to take a snapshot, and which old snapshots to delete. The names are Kafka's."""

    max_new_record_bytes: int = 20 * 1024 * 1024
    """metadata.log.max.record.bytes.between.snapshots."""
    max_interval_ms: int = 3_600_000
    """metadata.log.max.snapshot.interval.ms; 0: age never triggers a snapshot."""
    retention_bytes: int = 100 * 1024 * 1024
    """metadata.max.retention.bytes, of log and snapshots together; -1: unlimited."""
    retention_ms: int = 7 * 24 * 3_600_000
    """metadata.max.retention.ms; -1: unlimited."""

    def is_due(self, new_bytes: int, since_ms: int) -> bool:
        """Whether to take a snapshot, `new_bytes` of records and `since_ms` after the last snapshot."""
        if new_bytes <= 0:
            return False
        return new_bytes >= self.max_new_record_bytes or 0 < self.max_interval_ms <= since_ms

    def first_to_keep(
        self, snapshots: Sequence[tuple[SnapshotId, int, int]], log_bytes: int, now_wall_ms: int
    ) -> SnapshotId | None:
        """The oldest snapshot to keep, of (id, size, time of its last record), ascending. None: keep all.

        Old snapshots are deleted while the total is too large or they are too old. The newest always stays.
        """
        total = log_bytes + sum(size for _, size, _ in snapshots)
        first = 0
        while first < len(snapshots) - 1:
            _, size, time_ms = snapshots[first]
            too_much = 0 <= self.retention_bytes < total
            too_old = 0 <= self.retention_ms < now_wall_ms - time_ms
            if not (too_much or too_old):
                break
            total -= size
            first += 1
        return snapshots[first][0] if first else None


RETENTION_CHECK_MS: Final = 60_000
"""How often old snapshots and log segments are checked. This is Kafka's value."""


class Download:
    """A snapshot that is being fetched."""

    __slots__ = ("position", "snapshot")

    def __init__(self, snapshot: SnapshotId) -> None:
        self.snapshot = snapshot
        self.position = 0


def answer_fetch_snapshot(node: RaftReplica, token: Hashable, request: FetchSnapshotRequest) -> None:
    """Answer with a chunk of a complete snapshot."""
    error = leader_error(node, request.epoch, request.cluster_id)
    if not error and request.snapshot not in node.log.snapshots:
        error = SNAPSHOT_NOT_FOUND
    if not error and request.position < 0:
        error = POSITION_OUT_OF_RANGE
    reply = FetchSnapshotReply(error, node.epoch, node.leader_id, request.snapshot, 0, request.position)
    if error:
        node.send(Respond(token, reply))
        return
    leader = node.leader
    if request.replica.id in leader.progress.voters:
        leader.note_fetch(node, request.replica.id)
    node.send(ReadSnapshot(token, reply, request.snapshot, request.position, request.max_bytes))


def fetch_part(node: RaftReplica, follower: Follower, download: Download) -> None:
    """Request the next chunk."""
    request = FetchSnapshotRequest(
        node.epoch,
        node.fetches_as,
        download.snapshot,
        download.position,
        node.config.fetch_snapshot_max_bytes,
        node.cluster_id,
    )
    node.send_request(follower.leader_id, request)


def take_part(node: RaftReplica, node_id: int, request: FetchSnapshotRequest, reply: FetchSnapshotReply) -> None:
    """Use a chunk. After the last chunk the snapshot replaces the log."""
    if node.role.role is not Role.FOLLOWER or request.epoch != node.epoch or node_id != node.leader_id:
        return
    follower = node.follower
    download = follower.download
    if download is None or request.snapshot != download.snapshot or request.position != download.position:
        return
    if reply.error in (SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE) or (reply.error == NONE and reply.size <= 0):
        follower.download = None
        node.requests.back_off(node_id, FetchSnapshotRequest, node.now_ms)
        return
    if reply.error != NONE:
        node.requests.back_off(node_id, FetchSnapshotRequest, node.now_ms)
        return
    follower.alive(node)
    node.ready.part = SnapshotPart(download.snapshot, download.position, reply.data)
    download.position += len(reply.data)
    if download.position >= reply.size:
        follower.download = None
        node.loading = download.snapshot
        node.ready.whole = download.snapshot


def stored(node: RaftReplica, snapshot: SnapshotId, voters: VoterSet | None = None) -> None:
    """Note that a snapshot is durable: our own snapshot is remembered, a fetched snapshot replaces the whole log."""
    if snapshot == node.loading:
        assert node.role.role is not Role.LEADER, "law: a leader never loads a snapshot"
        node.loading = None
        node.log.reset_to(snapshot)
        node.voter_sets.replaced(snapshot.end_offset, voters)
        node.voters = node.voter_sets.current
        node.flush_needed = True
        node.advance_high_watermark(snapshot.end_offset)
        return
    assert snapshot.end_offset <= max(node.high_watermark, 0), "law: snapshots hold committed records only"
    node.log.snapshot_stored(snapshot)
