"""The effect of each event on a replica: events of its own host, requests of other nodes, answers of other nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kraft_node.raft import election, events, replication, snapshots
from kraft_node.raft.membership import voter_changes
from kraft_node.raft.membership.quorum import NO_NODE, ReplicaKey
from kraft_node.raft.messages import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_CLUSTER_ID,
    INVALID_REQUEST,
    INVALID_VOTER_KEY,
    NONE,
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    Reply,
    Request,
    UpdateVoterRequest,
    VersionsReply,
    VersionsRequest,
    VoteReply,
    VoteRequest,
)
from kraft_node.raft.ready import Proposed, Respond
from kraft_node.raft.replica_state import NotLeader
from kraft_node.raft.roles.follower import Follower
from kraft_node.raft.roles.leader import Leader
from kraft_node.raft.roles.resigned import Resigned
from kraft_node.raft.roles.unattached import Unattached

if TYPE_CHECKING:
    from kraft_node.raft.roles.transitions import RaftReplica


def _started(node: RaftReplica, event: events.Started) -> None:  # noqa: ARG001
    node.start()


def _tick(node: RaftReplica, event: events.Tick) -> None:  # noqa: ARG001
    """`act` does everything that is due, so here only the timer is cleared. A tick may be early."""
    node.timer_ms = None


def _quorum_state_written(node: RaftReplica, event: events.QuorumStateWritten) -> None:
    node.state_written(event.state)


def _flushed(node: RaftReplica, event: events.Flushed) -> None:
    node.flushed(event.offset)


def _propose(node: RaftReplica, event: events.Propose) -> None:
    first = node.prepare(event.epoch, event.batches)
    assert all(event.batches), "law: a proposed batch has records"
    accumulator = node.leader.accumulator
    for records in event.batches:
        accumulator.add(records, node.now_ms)
    node.ready.proposed = Proposed(first, accumulator.next_offset - 1)


def _upgrade_version(node: RaftReplica, event: events.UpgradeVersion) -> None:
    node.leading(event.epoch)
    voter_changes.upgrade(node, event.kraft_version)


def _resign(node: RaftReplica, event: events.Resign) -> None:
    if not isinstance(node.role, Leader) or node.epoch != event.epoch:
        raise NotLeader(f"this node does not lead epoch {event.epoch}")
    node.resign()


def _shut_down(node: RaftReplica, event: events.Shutdown) -> None:  # noqa: ARG001
    node.is_shutting_down = True
    if isinstance(node.role, Leader):
        node.resign()
    else:
        node.finish_shutdown()
    replication.release_waiting(node)


def _snapshot_stored(node: RaftReplica, event: events.SnapshotStored) -> None:
    snapshots.stored(node, event.snapshot, event.voters)


def _snapshots_dropped(node: RaftReplica, event: events.SnapshotsDropped) -> None:
    node.log.prefix_deleted(event.first_kept, event.log_start_offset)


def _learned(node: RaftReplica, event: events.Learned) -> None:
    if event.node_id not in node.bootstrap_ids and event.node_id != node.local.id:
        node.bootstrap_ids.append(event.node_id)


def _disconnected(node: RaftReplica, event: events.Disconnected) -> None:
    """A leader that closed its connections is gone: start a pre-vote soon. The pre-vote makes this safe."""
    role = node.role
    if isinstance(role, Follower) and event.node_id == role.leader_id:
        role.suspect(node)


# Requests of other nodes.


def _requested(node: RaftReplica, event: events.Requested) -> None:
    token, request = event.token, event.request
    if isinstance(request, FetchRequest):
        replication.answer_fetch(node, token, request)
    elif isinstance(request, FetchSnapshotRequest):
        snapshots.answer_fetch_snapshot(node, token, request)
    elif isinstance(request, VoteRequest):
        reply = election.answer_vote(node, request)
        node.send(Respond(token, reply))
    elif isinstance(request, BeginQuorumEpochRequest):
        node.send(Respond(token, _answer_begin(node, request)))
    elif isinstance(request, EndQuorumEpochRequest):
        node.send(Respond(token, _answer_end(node, request)))
    elif isinstance(request, VersionsRequest):
        # Over the wire it is an ApiVersions request, which the listener answers.
        node.send(Respond(token, VersionsReply(NONE, None if node.own is None else node.own.kraft_versions)))
    else:
        voter_changes.answer(node, token, request)


def _answer_begin(node: RaftReplica, request: BeginQuorumEpochRequest) -> BeginQuorumEpochReply:
    error = _voter_error(node, request.epoch, request.cluster_id)
    if not error:
        _follow(node, request.epoch, request.leader_id)
        if request.voter is not None and not request.voter.matches(node.local):
            error = INVALID_VOTER_KEY
    return BeginQuorumEpochReply(error, node.epoch, node.leader_id)


def _answer_end(node: RaftReplica, request: EndQuorumEpochRequest) -> EndQuorumEpochReply:
    error = _voter_error(node, request.epoch, request.cluster_id)
    if not error:
        _follow(node, request.epoch, request.leader_id)
        role = node.role
        if isinstance(role, Follower) and role.leader_id == request.leader_id:
            role.fetch_deadline_ms = node.now_ms + _handover_delay_ms(node, request.successors)
    return EndQuorumEpochReply(error, node.epoch, node.leader_id)


def _voter_error(node: RaftReplica, epoch: int, cluster_id: str | None) -> int:
    if cluster_id is not None and cluster_id != node.cluster_id:
        return INCONSISTENT_CLUSTER_ID
    if not node.epochs.admits(epoch, node.epoch, node.now_ms):
        return INVALID_REQUEST
    return FENCED_LEADER_EPOCH if epoch < node.epoch else NONE


def _handover_delay_ms(node: RaftReplica, successors: tuple[ReplicaKey, ...]) -> int:
    """When this node campaigns after a leader resigned: the first preferred successor at once, later successors after
    growing delays (KIP-595).

    A voter that the leader did not name waits longest.
    """
    longest = node.config.election_backoff_max_ms
    for position, successor in enumerate(successors):
        if successor.matches(node.local):
            if position == 0:
                return 0
            return min(longest, (longest >> (len(successors) - 1)) << (position - 1))
    return longest


def _cancelled(node: RaftReplica, event: events.Cancelled) -> None:
    node.waiting.pop(event.token, None)


# Answers of other nodes.


def _answered(node: RaftReplica, event: events.Answered) -> None:
    found = node.requests.answered(event.number, node.now_ms, failed=event.reply is None)
    if found is None:
        return
    node_id, request = found
    reply = event.reply
    if isinstance(request, VersionsRequest):
        voter_changes.take_versions(node, node_id, reply if isinstance(reply, VersionsReply) else None)
        return
    if reply is None:
        return
    if not node.epochs.admits(reply.epoch, node.epoch, node.now_ms):
        node.requests.back_off(node_id, type(request), node.now_ms)
        return
    node.note_voter_epoch(node_id, reply.epoch)
    if reply.error != NONE:
        node.requests.back_off(node_id, type(request), node.now_ms)
    if _is_stale(node, reply):
        return
    _use(node, node_id, request, reply)


def _unsupported(node: RaftReplica, event: events.Unsupported) -> None:
    found = node.requests.answered(event.number, node.now_ms, failed=True)
    if found is None:
        return
    node_id, request = found
    if isinstance(request, VoteRequest):
        election.take_unsupported(node, node_id, request)
    elif isinstance(request, VersionsRequest):
        voter_changes.take_versions(node, node_id, None)
    elif isinstance(request, UpdateVoterRequest) and isinstance(node.role, Follower):
        node.role.has_reported = True  # this leader does not know UpdateRaftVoter


def _is_stale(node: RaftReplica, reply: Reply) -> bool:
    """Adopt a newer epoch or a newly known leader. Returns whether the answer must not be used further."""
    lost = node.leader_id == NO_NODE or isinstance(node.role, Unattached)
    if reply.epoch > node.epoch or (reply.epoch == node.epoch and lost and reply.leader_id != NO_NODE):
        _follow(node, reply.epoch, reply.leader_id)
        return True
    return reply.epoch < node.epoch


def _follow(node: RaftReplica, epoch: int, leader_id: int) -> None:
    """Adopt the epoch and leader that another node named; the epoch is not older than ours."""
    # The leader need not be among our voters. The voters in the log may be newer than ours, and static voters differ
    # between nodes while they are being changed. A replica that is not a voter there does not count there; majorities
    # still intersect (docs/decisions/0004).
    known = leader_id not in (NO_NODE, node.local.id)
    if epoch > node.epoch:
        if known:
            node.become_follower(epoch, leader_id)
        else:
            node.become_unattached(epoch)
    elif known and not isinstance(node.role, Follower | Leader | Resigned):
        node.become_follower(epoch, leader_id)


def _use(node: RaftReplica, node_id: int, request: Request, reply: Reply) -> None:
    if isinstance(request, FetchRequest) and isinstance(reply, FetchReply):
        replication.take_fetch(node, node_id, request, reply)
    elif isinstance(request, FetchSnapshotRequest) and isinstance(reply, FetchSnapshotReply):
        snapshots.take_part(node, node_id, request, reply)
    elif isinstance(request, VoteRequest) and isinstance(reply, VoteReply):
        election.take_vote(node, node_id, request, reply)
    elif isinstance(request, BeginQuorumEpochRequest):
        _take_begin(node, node_id, reply)
    elif isinstance(request, UpdateVoterRequest) and isinstance(node.role, Follower):
        node.role.has_reported = node.role.has_reported or reply.error == NONE
    elif isinstance(request, EndQuorumEpochRequest) and isinstance(node.role, Resigned):
        node.role.unacknowledged.discard(node_id)


def _take_begin(node: RaftReplica, node_id: int, reply: Reply) -> None:
    if isinstance(node.role, Leader) and reply.error == NONE and node_id in node.role.progress.voters:
        node.role.progress.voters[node_id].has_reported_epoch = True


_Handler: TypeAlias = "Callable[[RaftReplica, Any], None]"

HANDLERS: Final[dict[type, _Handler]] = {
    events.Started: _started,
    events.Tick: _tick,
    events.QuorumStateWritten: _quorum_state_written,
    events.Flushed: _flushed,
    events.Requested: _requested,
    events.Cancelled: _cancelled,
    events.Answered: _answered,
    events.Unsupported: _unsupported,
    events.Disconnected: _disconnected,
    events.Learned: _learned,
    events.Propose: _propose,
    events.UpgradeVersion: _upgrade_version,
    events.SnapshotStored: _snapshot_stored,
    events.SnapshotsDropped: _snapshots_dropped,
    events.Resign: _resign,
    events.Shutdown: _shut_down,
}
