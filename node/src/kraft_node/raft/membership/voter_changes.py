"""Changing the voters of a running quorum (KIP-853): one voter at a time; a change counts as soon as it is written.

The leader appends a VotersRecord. Each replica uses the last VotersRecord in its log, committed or not, and returns to
the record before if the last record is truncated. Two consecutive sets differ by one voter, so their majorities have a
voter in common. Therefore the next change waits until the last change is committed, and the first change of an epoch
waits until its LeaderChange is committed. A leader that has removed itself continues to lead, without counting itself,
until the removal is committed; then it resigns.

Before the leader adds a voter, it requests from the voter's endpoints the supported kraft.version. So the leader knows
that the voter is reachable and that the voters can understand each other.

`upgrade` moves static voters (kraft.version 0) into the log: each voter sends its directory and endpoints to the leader
of every epoch by UpdateRaftVoter. Once all have, one batch states the version and the same voters.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from kraft_node.raft.membership.quorum import ReplicaKey, Voter, VoterSet
from kraft_node.raft.messages import (
    DUPLICATE_VOTER,
    FENCED_LEADER_EPOCH,
    INCONSISTENT_CLUSTER_ID,
    INVALID_REQUEST,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_LEADER_EPOCH,
    UNSUPPORTED_VERSION,
    VOTER_NOT_FOUND,
    AddVoterRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VersionsReply,
    VersionsRequest,
    VoterChangeReply,
)
from kraft_node.raft.ready import AppendVoters, Respond
from kraft_protocol.ids import ZERO_UUID

if TYPE_CHECKING:
    from kraft_node.raft.roles.follower import Follower
    from kraft_node.raft.roles.leader import Leader
    from kraft_node.raft.roles.transitions import RaftReplica

FACTS: Final = 2
"""Number of control records that state kraft.version and the voters."""

CAUGHT_UP_WITHIN_MS: Final = 3_600_000
"""A replica that joins has fetched within this time and has been caught up once. This is Kafka's value."""

NOT_STATED: Final = -1
"""The offset of voters from the configuration or from the snapshot that formatting writes."""

VoterChangeRequest = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest


class VoterSets:
    """The voters that the log states, with offsets, so that a truncation can restore earlier sets."""

    __slots__ = ("_sets", "_version_before")

    def __init__(self, first: VoterSet, sets: list[tuple[int, VoterSet]] | None, kraft_version: int) -> None:
        self._sets: list[tuple[int, VoterSet]] = [(NOT_STATED, first), *(sets or ())]
        self._version_before = 0 if sets else kraft_version

    @property
    def kraft_version(self) -> int:
        """1 as soon as the log states voters, and 0 again if the record is truncated."""
        return 1 if len(self._sets) > 1 else self._version_before

    @property
    def current(self) -> VoterSet:
        """The voters in force: those of the last record, even if it is not committed, else the first set."""
        return self._sets[-1][1]

    @property
    def offset(self) -> int:
        """The offset of the record that states the current voters."""
        return self._sets[-1][0]

    @property
    def is_missing_from_log(self) -> bool:
        """Whether only formatting has stated the voters. Then the leader of the next epoch writes them into the log.

        A truncation may restore this state.
        """
        return self.kraft_version >= 1 and self.offset == NOT_STATED

    def stated(self, offset: int, voters: VoterSet) -> None:
        """Note that the log states these voters in the record at `offset`."""
        self._sets.append((offset, voters))

    def truncated(self, offset: int) -> None:
        """Return to the voters of the log below `offset`: everything from there on was removed."""
        while self._sets[-1][0] >= offset:
            self._sets.pop()

    def replaced(self, snapshot_end: int, voters: VoterSet | None) -> None:
        """A snapshot replaced the whole log. Without voters in it, the static voters count, also if the log had voters
        before."""
        if voters is None:
            del self._sets[1:]
        else:
            self._sets = [(snapshot_end - 1, voters)]
            self._version_before = 1

    def removed_just_now(self, key: ReplicaKey, high_watermark: int) -> bool:
        """Whether the last change removed that replica and is not known to be committed."""
        if len(self._sets) < 2 or self.offset < high_watermark:
            return False
        return self._sets[-2][1].has(key) and key.id not in self.current

    def at(self, end_offset: int) -> VoterSet:
        """The voters of a log that ends at this offset. A snapshot must state them."""
        return next(voters for offset, voters in reversed(self._sets) if offset < end_offset)


class Pending:
    """A change with a requester that waits for the answer."""

    __slots__ = ("adding", "deadline_ms", "offset", "token")

    def __init__(
        self, token: Hashable, deadline_ms: int, *, offset: int = NOT_STATED, adding: AddVoterRequest | None = None
    ) -> None:
        self.token = token
        self.deadline_ms = deadline_ms
        self.offset = offset
        """The offset of the change; NOT_STATED until the replica to add has answered."""
        self.adding = adding


def answer(node: RaftReplica, token: Hashable, request: VoterChangeRequest) -> None:
    """Change the voters, or answer with the error. The answer may come later, when the change is committed."""
    error = _error(node, request)
    if error:
        _respond(node, token, error)
    elif isinstance(request, AddVoterRequest):
        _add(node, token, request)
    elif isinstance(request, RemoveVoterRequest):
        _remove(node, token, request)
    else:
        _update(node, token, request)


def _respond(node: RaftReplica, token: Hashable, error: int) -> None:
    node.send(Respond(token, VoterChangeReply(error, node.epoch, node.leader_id)))


def _error(node: RaftReplica, request: VoterChangeRequest) -> int:
    if request.cluster_id is not None and request.cluster_id != node.cluster_id:
        return INCONSISTENT_CLUSTER_ID
    if isinstance(request, UpdateVoterRequest) and request.epoch != node.epoch:
        return FENCED_LEADER_EPOCH if request.epoch < node.epoch else UNKNOWN_LEADER_EPOCH
    if not node.is_leader:
        return NOT_LEADER_OR_FOLLOWER
    if not _is_sound(node, request):
        return INVALID_REQUEST
    if not node.leader.announced or node.leader.pending_change is not None:
        return REQUEST_TIMED_OUT
    if node.voter_sets.kraft_version < 1:
        # Static voters: their endpoints come from the configuration, so an update changes nothing.
        return NONE if isinstance(request, UpdateVoterRequest) else UNSUPPORTED_VERSION
    if node.voter_sets.offset >= node.high_watermark:
        return REQUEST_TIMED_OUT
    return NONE


def _is_sound(node: RaftReplica, request: VoterChangeRequest) -> bool:
    """Whether the request names a replica with its directory, and the endpoint for the other voters."""
    key = request.key if isinstance(request, RemoveVoterRequest) else request.voter.key
    if key.id < 0 or key.directory == ZERO_UUID:
        return False
    if isinstance(request, RemoveVoterRequest):
        return True
    default = None if node.own is None else next(iter(node.own.endpoints), None)
    endpoints = request.voter.endpoints
    lowest, highest = request.voter.kraft_versions
    return bool(endpoints) and default in (None, *endpoints) and 0 <= lowest <= highest


def _add(node: RaftReplica, token: Hashable, request: AddVoterRequest) -> None:
    voter_id = request.voter.key.id
    if voter_id in node.voters:
        _respond(node, token, DUPLICATE_VOTER)
    elif node.send_request(voter_id, VersionsRequest(request.voter.endpoints)):
        node.leader.pending_change = Pending(token, node.now_ms + node.config.request_timeout_ms, adding=request)
    else:
        _respond(node, token, REQUEST_TIMED_OUT)


def take_versions(node: RaftReplica, node_id: int, reply: VersionsReply | None) -> None:
    """The replica to add has reported its supported versions; None: it cannot be reached."""
    pending = node.leader.pending_change if node.is_leader else None
    if pending is None or pending.adding is None or pending.adding.voter.key.id != node_id:
        return
    request = pending.adding
    node.leader.pending_change = None
    error = _why_not_added(node, request, reply)
    if error:
        _respond(node, pending.token, error)
        return
    assert reply is not None
    assert reply.kraft_versions is not None
    voter = request.voter._replace(kraft_versions=reply.kraft_versions)
    _write(node, pending.token, node.voters.with_voter(voter), pending.deadline_ms)
    if not request.ack_when_committed:
        node.leader.pending_change = None
        _respond(node, pending.token, NONE)


def _why_not_added(node: RaftReplica, request: AddVoterRequest, reply: VersionsReply | None) -> int:
    if reply is None or reply.error:
        return REQUEST_TIMED_OUT
    versions = reply.kraft_versions
    if versions is None or not _supports(node, request.voter._replace(kraft_versions=versions)):
        return INVALID_REQUEST
    entry = node.leader.progress.observers.get(request.voter.key)
    if entry is None or entry.caught_up_ms < 0 or entry.last_fetch_ms < node.now_ms - CAUGHT_UP_WITHIN_MS:
        return REQUEST_TIMED_OUT
    return NONE


def _remove(node: RaftReplica, token: Hashable, request: RemoveVoterRequest) -> None:
    voter = node.voters.get(request.key.id)
    if voter is None or voter.key.directory != request.key.directory or len(node.voters) == 1:
        _respond(node, token, VOTER_NOT_FOUND)
        return
    rest = node.voters.without(request.key.id)
    if not _can_commit(node, rest):
        _respond(node, token, REQUEST_TIMED_OUT)
        return
    _write(node, token, rest, node.now_ms + node.config.request_timeout_ms)


def _can_commit(node: RaftReplica, voters: VoterSet) -> bool:
    """Whether a majority of these voters fetches.

    The new voters count from the append on. Without their majority the removal is never committed, nor is any other
    record, and no replica may be elected: of three voters, the leader removes one while another is down. Kafka does not
    check this; etcd does (strict-reconfig-check). A voter that is gone can always be removed, because the leader needs
    a majority of the others to stay the leader.
    """
    since_ms = node.now_ms - node.config.fetch_timeout_ms
    progress = node.leader.progress.voters
    present = (voter.key.id == node.local.id or progress[voter.key.id].last_fetch_ms > since_ms for voter in voters)
    return sum(present) >= voters.majority


def _update(node: RaftReplica, token: Hashable, request: UpdateVoterRequest) -> None:
    voter = node.voters.get(request.voter.key.id)
    if node.voter_sets.kraft_version < 1:
        _respond(node, token, _answer_static_voter(node, request.voter))
    elif not _supports(node, request.voter):
        _respond(node, token, INVALID_REQUEST)
    elif voter is None or voter.key.directory != request.voter.key.directory:
        _respond(node, token, VOTER_NOT_FOUND)
    else:
        if voter != request.voter:
            _write(node, None, node.voters.with_voter(request.voter), 0)
            node.leader.pending_change = None
        _respond(node, token, NONE)


def _answer_static_voter(node: RaftReplica, voter: Voter) -> int:
    """Keep what a static voter reports about itself, until it reports again or the epoch ends.

    Returns the error code.
    """
    if voter.key.id not in node.voters:
        return VOTER_NOT_FOUND
    if not _supports(node, voter) or not voter.endpoints or voter.key.directory == ZERO_UUID:
        return INVALID_REQUEST
    node.leader.reported[voter.key.id] = voter
    return NONE


def why_not_upgrade(node: RaftReplica, level: int) -> str | None:
    """The reason why the leader cannot raise kraft.version to `level`; None if it can."""
    reported = node.leader.reported
    present = node.leader.progress.voters
    # A voter may have got another disk since.
    unknown = [i for i in node.voters.ids if i not in reported or not present[i].key.matches(reported[i].key)]
    if unknown:
        return f"{', '.join(map(str, unknown))} has not confirmed its support yet"
    unfit = [
        voter.key.id for voter in reported.values() if not voter.kraft_versions[0] <= level <= voter.kraft_versions[1]
    ]
    return f"{', '.join(map(str, unfit))} would not" if unfit else None


def upgrade(node: RaftReplica, level: int) -> None:
    """Make the log state the voters from here on: the same voters, with their reports about themselves."""
    assert why_not_upgrade(node, level) is None, "law: why_not_upgrade was called before"
    leader = node.leader
    leader.write_all(node)
    voters = VoterSet(leader.reported[voter_id] for voter_id in node.voters.ids)
    offset = node.log.end_offset
    node.log.appended(offset, offset + 2, node.epoch)
    leader.accumulator.next_offset = offset + 2
    node.write(AppendVoters(offset, node.epoch, voters, level))
    use(node, offset, voters)


def _supports(node: RaftReplica, voter: Voter) -> bool:
    lowest, highest = voter.kraft_versions
    return lowest <= node.voter_sets.kraft_version <= highest


def _write(node: RaftReplica, token: Hashable, voters: VoterSet, deadline_ms: int) -> None:
    leader = node.leader
    leader.write_all(node)
    offset = node.log.end_offset
    node.log.appended(offset, offset + 1, node.epoch)
    leader.accumulator.next_offset = offset + 1
    node.write(AppendVoters(offset, node.epoch, voters))
    leader.pending_change = Pending(token, deadline_ms, offset=offset)
    use(node, offset, voters)


def state_own(node: RaftReplica) -> None:
    """Correct this leader's endpoints and versions in the log, once its LeaderChange is committed.

    The leader has no leader to send UpdateRaftVoter to. Kafka's leader does this in the batch of its LeaderChange.
    """
    own = node.own
    if own is None or node.voter_sets.kraft_version < 1 or not node.voters.has(own.key):
        return
    if node.voters.get(own.key.id) != own:
        _write(node, None, node.voters.with_voter(own), 0)
        node.leader.pending_change = None
        node.want_flush()


def use(node: RaftReplica, offset: int, voters: VoterSet) -> None:
    """The log states these voters from now on."""
    node.voter_sets.stated(offset, voters)
    _follow(node)


def take_back(node: RaftReplica, offset: int) -> None:
    """The log was truncated to `offset`."""
    node.voter_sets.truncated(offset)
    _follow(node)


def _follow(node: RaftReplica) -> None:
    node.voters = node.voter_sets.current
    if node.is_leader:
        node.leader.use_voters(node)


def settle(node: RaftReplica, leader: Leader) -> None:
    """Finish a pending change after the high watermark has moved or time has passed. May end the leadership."""
    pending = leader.pending_change
    if pending is not None:
        if pending.offset != NOT_STATED and node.high_watermark > pending.offset:
            leader.pending_change = None
            _respond(node, pending.token, NONE)
        elif node.now_ms >= pending.deadline_ms:
            leader.pending_change = None
            _respond(node, pending.token, REQUEST_TIMED_OUT)
    if not node.is_voter and node.voter_sets.offset < node.high_watermark:
        node.resign()


def abandon(node: RaftReplica, leader: Leader) -> None:
    """The leadership is over; whether the change will be committed is unknown."""
    pending, leader.pending_change = leader.pending_change, None
    if pending is not None:
        _respond(node, pending.token, NOT_LEADER_OR_FOLLOWER)


def request_to_join(node: RaftReplica, follower: Follower) -> None:
    """From time to time, request to become a voter, or report changed endpoints to the leader.

    Sends the request only with `controller.quorum.auto.join.enable`. A static voter reports to each leader once.
    """
    if node.own is None or not follower.has_fetched:
        return
    if node.now_ms < node.join_ms or node.own.key != node.local:
        return
    if node.voter_sets.kraft_version < 1:
        if node.is_voter and not follower.has_reported:
            node.join_ms = node.now_ms + node.config.fetch_timeout_ms
            node.send_request(follower.leader_id, UpdateVoterRequest(node.epoch, node.own, node.cluster_id))
        return
    stated = node.voters.get(node.local.id)
    if stated == node.own or not (node.is_voter or node.config.auto_join):
        return
    node.join_ms = node.now_ms + node.config.fetch_timeout_ms
    cluster_id = node.cluster_id
    if stated is None:
        request = AddVoterRequest(node.own, node.config.request_timeout_ms, False, cluster_id)
        node.send_request(follower.leader_id, request)
    elif stated.key.directory != node.local.directory:
        # The disk that had this id before; it will never return.
        node.send_request(follower.leader_id, RemoveVoterRequest(stated.key, cluster_id))
    else:
        node.send_request(follower.leader_id, UpdateVoterRequest(node.epoch, node.own, cluster_id))


def is_known(node: RaftReplica, leader_id: int) -> bool:
    """Whether to keep following the previous leader after a restart. If the leader is no longer a static voter, it may
    be gone for good, and no other node has its address."""
    return leader_id in node.voters or node.voter_sets.kraft_version > 0 or not len(node.voters)
