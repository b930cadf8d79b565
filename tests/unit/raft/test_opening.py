"""The batch that opens an epoch: which leader writes the voters that only formatting has named."""

from __future__ import annotations

from typing import Any

from kraft_node.raft import events
from kraft_node.raft import messages as m
from kraft_node.raft import ready as do
from kraft_node.raft.log_view import EpochEnd, LogView
from kraft_node.raft.membership.quorum import QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.node import RaftNode
from kraft_protocol.ids import Uuid
from tests.unit.raft.host import QuietHost
from tests.unit.raft.test_voter_changes import Chance

VOTERS = VoterSet(Voter(ReplicaKey(n, Uuid(bytes([n]) * 16)), {"CONTROLLER": ("host", 9000 + n)}) for n in (1, 2, 3))


class First(QuietHost):
    """The first voter of three that were formatted together. Its disk is fast; voter 2 grants every vote."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[do.AppendLeaderChange] = []
        self.fetch = 0
        self.node = RaftNode(
            local=ReplicaKey(1, Uuid(bytes([1]) * 16)),
            voters=VOTERS,
            log=LogView(),
            state=QuorumState(),
            rng=Chance(),
            cluster_id="c",
            kraft_version=1,
        )
        self.tell(events.Started())

    def append(self, batch: Any) -> None:
        if isinstance(batch, do.AppendLeaderChange):
            self.opened.append(batch)

    def send(self, message: Any) -> None:
        if isinstance(message, do.Send) and isinstance(message.request, m.FetchRequest):
            self.fetch = message.number
        elif isinstance(message, do.Send) and isinstance(message.request, m.VoteRequest) and message.node_id == 2:
            reply = m.VoteReply(m.NONE, message.request.epoch, granted=True)
            self.tell(events.Answered(message.number, reply))


def test_a_leader_records_the_voters_again_after_its_first_batch_was_truncated() -> None:
    first = First()
    node = first.node
    assert (node.is_leader, node.log.end_offset) == (True, 3)
    assert first.opened[0].stated == VOTERS
    # Another voter opened the next epoch on an empty log, and died before any node had its records.
    first.tell(events.Requested("t", m.BeginQuorumEpochRequest(2, 3)))
    reply = m.FetchReply(m.NONE, 2, 3, diverging=EpochEnd(1, 0))
    first.tell(events.Answered(first.fetch, reply))
    assert (node.log.end_offset, node.voters) == (0, VOTERS)
    first.now_ms = 10_000
    first.tell(events.Tick())
    assert (node.is_leader, node.epoch, node.log.end_offset) == (True, 3, 3)
    assert first.opened[1].stated == VOTERS


def test_dynamic_voters_are_not_recorded_again() -> None:
    first = First()
    first.tell(events.Resign(1))
    for first.now_ms in (10_000, 20_000):
        first.tell(events.Tick())
    assert first.node.is_leader
    assert [opened.stated for opened in first.opened] == [VOTERS, None]
