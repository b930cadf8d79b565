"""A node that is not a voter and looks for the leader."""

from __future__ import annotations

from kraft_node.raft import events
from kraft_node.raft import messages as m
from kraft_node.raft.config import RaftConfig
from kraft_node.raft.log_view import LogView
from kraft_node.raft.membership.quorum import QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.node import RaftNode
from kraft_protocol.ids import Uuid
from tests.unit.raft.host import QuietHost
from tests.unit.raft.test_voter_changes import Chance

VOTER, OBSERVER, LEADER = 1, 6, 7


def observer(own: Voter | None = None, config: RaftConfig | None = None) -> RaftNode:
    return RaftNode(
        local=ReplicaKey(OBSERVER, Uuid(bytes(15) + b"\6")),
        voters=VoterSet([Voter(ReplicaKey(VOTER, Uuid(bytes(15) + b"\1")))]),
        log=LogView(),
        state=QuorumState(),
        rng=Chance(),
        cluster_id="c",
        kraft_version=1,
        own=own,
        config=config or RaftConfig(),
    )


def test_an_unknown_leader_is_asked_again_after_a_lost_answer() -> None:
    host = QuietHost()
    host.node = observer()
    asked: list[int] = []
    host.tell(events.Started())
    for host.now_ms in range(0, 20_000, 10):
        host.tell(events.Tick())
        for fetch in host.requests(m.FetchRequest):
            asked.append(fetch.node_id)
            if fetch.node_id == VOTER:  # the leader's answers are lost
                reply = m.FetchReply(m.NOT_LEADER_OR_FOLLOWER, epoch=5, leader_id=LEADER)
                host.tell(events.Answered(fetch.number, reply))
    assert asked[0] == VOTER
    assert asked.count(LEADER) > 2


def test_an_observer_without_contact_to_its_leader_grants_pre_votes() -> None:
    """It may be a voter in the candidate's voter set, and its vote may be the missing one (raft seed 17286)."""
    host = QuietHost()
    host.node = node = observer()
    fetches: list[int] = []

    def run(first_ms: int, last_ms: int, *, is_heard: bool) -> None:
        for host.now_ms in range(first_ms, last_ms, 10):
            host.tell(events.Tick())
            fetches.extend(fetch.number for fetch in host.requests(m.FetchRequest))
            if is_heard and fetches:
                host.tell(events.Answered(fetches.pop(), m.FetchReply(m.NONE, epoch=5, leader_id=VOTER)))
        asked = m.VoteRequest(5, ReplicaKey(2, Uuid(bytes(15) + b"\2")), 4, 10, pre_vote=True, voter=node.local)
        host.tell(events.Requested("vote", asked))

    host.tell(events.Started())
    run(0, 10_000, is_heard=True)
    run(10_010, 20_000, is_heard=False)
    assert host.votes() == [False, True]


def test_an_observer_follows_its_leader_for_a_while_before_it_asks_to_join() -> None:
    """A voter that is far behind would only slow the quorum down."""
    local = ReplicaKey(OBSERVER, Uuid(bytes(15) + b"\6"))
    own = Voter(local, {"CONTROLLER": ("host", 9006)}, (0, 1))
    config = RaftConfig(auto_join=True)
    host = QuietHost()
    host.node = observer(own, config)
    asked: list[int] = []
    host.tell(events.Started())
    for host.now_ms in range(0, 2 * config.fetch_timeout_ms, 10):
        host.tell(events.Tick())
        for fetch in host.requests(m.FetchRequest):
            host.tell(events.Answered(fetch.number, m.FetchReply(m.NONE, epoch=5, leader_id=VOTER)))
        asked += [host.now_ms for _ in host.requests(m.AddVoterRequest)]
    assert asked[0] >= config.fetch_timeout_ms
