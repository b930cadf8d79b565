"""Fetch: answering replicas and readers as the leader, appending fetched records as a follower (KIP-595)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from kraft_node.base import rare
from kraft_node.raft.epochs import follows
from kraft_node.raft.log_view import EpochEnd, SnapshotId
from kraft_node.raft.membership import voter_changes
from kraft_node.raft.membership.quorum import NO_NODE
from kraft_node.raft.messages import INVALID_REQUEST, NONE, FetchReply, FetchRequest
from kraft_node.raft.ready import AppendFetched, ReadLog, Respond
from kraft_node.raft.roles.states import Role
from kraft_node.raft.snapshots import Download
from kraft_node.raft.validation import leader_error

if TYPE_CHECKING:
    from kraft_node.raft.roles.follower import Follower
    from kraft_node.raft.roles.leader import Leader
    from kraft_node.raft.roles.transitions import RaftReplica

WAITING_FETCHES_MAX: Final = 10_000
"""Maximum of waiting fetches, one per replica. Above it, a new fetch is answered at once and its sender fetches
again."""


class WaitingRaftFetch:
    """A Fetch without an answer so far."""

    __slots__ = ("deadline_ms", "request", "token")

    def __init__(self, token: Hashable, request: FetchRequest, deadline_ms: int) -> None:
        self.token = token
        self.request = request
        self.deadline_ms = deadline_ms


def answer_fetch(node: RaftReplica, token: Hashable, request: FetchRequest) -> None:
    """Answer a Fetch now, or keep the request until an answer exists."""
    error = leader_error(node, request.epoch, request.cluster_id)
    if not error and (request.offset < 0 or not 0 <= request.last_epoch <= request.epoch):
        error = INVALID_REQUEST
    if error:
        node.send(Respond(token, FetchReply(error, node.epoch, node.leader_id)))
        return
    if not _fits(node, request):
        _answer_divergence(node, token, request)
        return
    _note_progress(node, node.leader, request)
    if not answer_if_due(node, token, request) and not _may_wait(node, token, request):
        _answer(node, token, request)


def _may_wait(node: RaftReplica, token: Hashable, request: FetchRequest) -> bool:
    if request.max_wait_ms <= 0 or len(node.waiting) >= WAITING_FETCHES_MAX:
        return False
    node.waiting[token] = WaitingRaftFetch(token, request, node.now_ms + request.max_wait_ms)
    return True


def answer_if_due(node: RaftReplica, token: Hashable, request: FetchRequest) -> bool:
    """Answer with new records, or with a high watermark that the replica does not know yet (version 18)."""
    if request.offset >= node.log.end_offset and _high_watermark_for_replicas(node) <= request.high_watermark:
        return False
    _answer(node, token, request)
    return True


def _high_watermark_for_replicas(node: RaftReplica) -> int:
    """The high watermark for followers: -1 until it is past the leader's own LeaderChange (contract 6).

    The leader's former high watermark, as a follower, may be lower than the high watermark of others. Apache Kafka's
    nodes end themselves if the high watermark decreases.
    """
    known = node.high_watermark
    return known if known > node.leader.progress.epoch_start_offset else -1


def _answer(node: RaftReplica, token: Hashable, request: FetchRequest) -> None:
    reply = FetchReply(NONE, node.epoch, node.leader_id, _high_watermark_for_replicas(node), node.log.start_offset)
    if request.offset < node.log.end_offset:
        node.send(ReadLog(token, reply, request.offset, request.max_bytes))
    else:
        node.send(Respond(token, reply))


def _fits(node: RaftReplica, request: FetchRequest) -> bool:
    """Whether the replica's log is a prefix of ours."""
    log = node.log
    if _must_take_snapshot(node, request):
        return False
    if request.offset == 0 and log.start_offset == 0:
        return True
    end = log.end_of_epoch(request.last_epoch)
    return end.epoch == request.last_epoch and request.offset <= end.end_offset


def _must_take_snapshot(node: RaftReplica, request: FetchRequest) -> bool:
    """Whether the replica's log ends before ours begins, or is empty and a snapshot is quicker."""
    log = node.log
    earliest = log.earliest_snapshot
    if earliest is None:
        return False
    if request.offset == 0:
        return True
    if request.offset < log.start_offset or request.last_epoch < earliest.epoch:
        return True
    return request.offset == log.start_offset and request.last_epoch != earliest.epoch


def _answer_divergence(node: RaftReplica, token: Hashable, request: FetchRequest) -> None:
    log = node.log
    reply = FetchReply(NONE, node.epoch, node.leader_id, _high_watermark_for_replicas(node), log.start_offset)
    if _must_take_snapshot(node, request):
        reply = reply._replace(snapshot=log.latest_snapshot)
    else:
        reply = reply._replace(diverging=log.end_of_epoch(request.last_epoch))
    node.send(Respond(token, reply))


def _note_progress(node: RaftReplica, leader: Leader, request: FetchRequest) -> None:
    entry = leader.progress.of(request.replica)
    if entry is not None:
        entry.fetched(request.offset, node.log.end_offset, node.now_ms)
        if entry.key.id in leader.progress.voters:
            leader.note_fetch(node, entry.key.id)
    node.advance_high_watermark(leader.progress.high_watermark())


def release_waiting(node: RaftReplica) -> None:
    """Answer waiting fetches that have expired or have news; answer all of them if this node no longer leads."""
    if not node.waiting:
        return
    for waiting in list(node.waiting.values()):
        request = waiting.request
        if node.role.role is not Role.LEADER or request.epoch != node.epoch:
            del node.waiting[waiting.token]
            answer_fetch(node, waiting.token, request)
        elif answer_if_due(node, waiting.token, request):
            del node.waiting[waiting.token]
        elif node.now_ms >= waiting.deadline_ms:
            del node.waiting[waiting.token]
            _answer(node, waiting.token, request)


# The follower's side.


def fetch_from(node: RaftReplica, node_id: int) -> None:
    """Fetch the next records, once everything before them is durable here (contract 5, 8)."""
    # A replica that may become a voter must fsync like a voter from the start. The leader counts it before the replica
    # learns that it is a voter.
    acknowledges = node.is_voter or node.own is not None
    if node.loading is not None or (acknowledges and not node.is_log_durable):
        return
    request = FetchRequest(
        node.epoch,
        node.fetches_as,
        node.log.end_offset,
        node.log.last_epoch,
        1 if rare.takes("quorum fetch small") else node.config.fetch_max_bytes,
        node.fetch_wait_ms,
        node.high_watermark,
        node.cluster_id,
    )
    node.send_request(node_id, request)


def fetch_from_anyone(node: RaftReplica) -> None:
    """Look for the leader: any node names it. Sends the request to one random node at a time, and to another node if a
    node is silent."""
    # The last known leader gets the request again, too. It may not be a voter that is known here, and all others only
    # name it.
    known = dict.fromkeys([*node.bootstrap_ids, *node.voters.ids, node.leader_id])
    candidates = [node_id for node_id in known if node_id not in (node.local.id, NO_NODE)]
    requests = node.requests
    others = [node_id for node_id in candidates if node_id != node.leader_id]
    if any(requests.may_answer(node_id, FetchRequest, node.now_ms) for node_id in others):
        return
    ready = [node_id for node_id in candidates if requests.is_ready(node_id, FetchRequest, node.now_ms)]
    if ready:
        fetch_from(node, ready[node.rng.randrange(len(ready))])


def take_fetch(node: RaftReplica, node_id: int, request: FetchRequest, reply: FetchReply) -> None:
    """Use the leader's answer to our Fetch."""
    if reply.error != NONE:
        return
    if node.role.role is not Role.FOLLOWER or request.epoch != node.epoch or node_id != node.leader_id:
        return
    follower: Follower = node.follower
    if request.offset != node.log.end_offset:
        return
    if not follows(node.log, reply.batches, node.epoch):
        node.requests.back_off(node_id, FetchRequest, node.now_ms)
        return
    follower.alive(node)
    if reply.diverging is not None:
        _truncate(node, reply.diverging)
    elif reply.snapshot is not None:
        if _is_needed(node, reply.snapshot):
            follower.download = Download(reply.snapshot)
        else:
            node.requests.back_off(node_id, FetchRequest, node.now_ms)
    else:
        _append(node, reply)
        if reply.high_watermark >= 0:
            node.advance_high_watermark(min(reply.high_watermark, node.log.end_offset))
    node.caught_up_perhaps(request, reply)


def _is_needed(node: RaftReplica, snapshot: SnapshotId) -> bool:
    """Whether the snapshot holds more than this replica has committed.

    A leader that offers less has a wrong view of the log: requests without a pause would never end.
    """
    latest = node.log.latest_snapshot
    known = node.high_watermark if latest is None else max(latest.end_offset, node.high_watermark)
    return snapshot.end_offset > known and snapshot.epoch <= node.epoch


def _append(node: RaftReplica, reply: FetchReply) -> None:
    if not reply.batches:
        return
    start = node.log.end_offset
    for batch in reply.batches:
        node.log.appended(batch.base_offset, batch.next_offset, batch.epoch)
        if batch.voters is not None:
            voter_changes.use(node, batch.base_offset, batch.voters)
    node.write(AppendFetched(start, node.log.end_offset, reply.records))


def _truncate(node: RaftReplica, diverging: EpochEnd) -> None:
    own = node.log.end_of_epoch(diverging.epoch)
    offset = min(diverging.end_offset, own.end_offset) if own.epoch == diverging.epoch else own.end_offset
    offset = min(offset, node.log.end_offset)
    assert offset >= node.high_watermark, (
        f"law: committed records are never truncated (to {offset}, high watermark {node.high_watermark})"
    )
    node.log.truncated(offset)
    voter_changes.take_back(node, offset)
    node.flush_needed = True
    node.ready.truncate = offset
