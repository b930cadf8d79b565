"""The laws for each process of the Raft simulator, bare core or driver, after each step and at each message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_node.raft.messages import FetchRequest, VoteReply, VoteRequest
from kraft_node.testing.raft.laws import require

if TYPE_CHECKING:
    from kraft_node.raft.log_view import LogView
    from kraft_node.raft.node import RaftNode
    from kraft_node.raft.roles.leader import Leader
    from kraft_node.testing.raft.quorum import RaftMachine


def start(replica: RaftMachine) -> None:
    """A process does not start in an older epoch than it has sent before."""
    if replica.node is not None and not replica.was_amnesiac:
        require(
            replica.epoch >= replica.said_epoch,
            "epochs are never forgotten",
            f"{replica.id} starts in {replica.epoch}, but reported {replica.said_epoch}",
        )


def voters(replica: RaftMachine, node: RaftNode) -> None:
    """Check that the core's voters and kraft.version are as in the log."""
    sim = replica.sim
    require(
        node.voters == replica.last_voters(),
        "the voters in force are the last voters in the log",
        f"{replica.id} counts {node.voters.ids}, its log states {replica.last_voters().ids}",
    )
    version = int(replica.last_voters() is not sim.voters)
    require(
        sim.is_dynamic or node.voter_sets.kraft_version == version,
        "kraft.version is as in the log",
        f"{replica.id} believes in {node.voter_sets.kraft_version}, its log states {version}",
    )


def majority(replica: RaftMachine, leader: Leader) -> None:
    """CheckQuorum: a majority has recently fetched from the leader."""
    now_ms = replica.local_us() // 1000
    since = now_ms - 2 * replica.sim.config.check_quorum_timeout_ms
    voters = leader.progress.voters
    in_contact = sum(1 for voter_id in voters if voter_id == replica.id or replica.heard_ms.get(voter_id, -1) >= since)
    require(
        in_contact * 2 > len(voters) or replica.leading_since_ms >= since,
        "a leader that no majority asks resigns",
        f"{replica.id} in {replica.epoch} had requests of {in_contact - 1} of {len(voters)} voters lately",
    )


def snapshots(replica: RaftMachine, log: LogView) -> None:
    """The disk keeps no known snapshot that ends before the log starts."""
    replica.known_snapshots.update(log.snapshots)
    for kept in replica.disk.snapshots:
        if kept.id.end_offset < log.start_offset and kept.id in replica.known_snapshots:
            require(
                kept.id.is_bootstrap,
                "snapshots that end before the log starts are deleted",
                f"{replica.id} has {kept.id}, its log starts at {log.start_offset}",
            )


def words(replica: RaftMachine) -> None:
    """When a message leaves, vote and epoch are on disk."""
    node = replica.node
    assert node is not None
    if node.is_amnesiac:
        return
    state = replica.disk.state
    if state != replica.state:
        require(
            False,
            "vote and epoch are on disk before words leave (contract 2)",
            f"{replica.id}: {state} on disk, but {replica.state} reported",
        )
    replica.said_epoch = state.epoch


def fetch(replica: RaftMachine, request: Any) -> None:
    """A voter's fetch acknowledges exactly what its log holds."""
    node = replica.node
    assert node is not None
    if type(request) is FetchRequest and node.is_voter:
        durable = replica.disk.durable
        if durable.chain_at(request.offset) != replica.disk.log.chain_at(request.offset):
            require(
                False,
                "a voter fetches from where its log is on disk (contract 5 and 8)",
                f"{replica.id} from {request.offset}, on disk {durable.end}",
            )
        if replica.disk.pending:
            require(
                not any(isinstance(write, int) for write in replica.disk.pending),
                "a truncation is on disk before its end is acknowledged (contract 8)",
                f"{replica.id} fetches from {request.offset}",
            )


def vote(replica: RaftMachine, token: Any, reply: Any) -> None:
    """A response that may grant a vote."""
    if type(reply) is VoteReply and reply.granted:
        request: VoteRequest = token.request
        if not request.pre_vote:
            replica.sim.laws.voted(replica, request.epoch, request.candidate.id)
