"""Epochs in other nodes' messages, and fetched batches with a damaged leader epoch."""

from __future__ import annotations

import pytest

from kraft_node.raft import events
from kraft_node.raft import messages as m
from kraft_node.raft.epochs import EPOCH_MAX, FREE_MAX, LEAP_MAX, LEAP_PAUSE_MS, EpochGuard, EpochsExhausted, follows
from kraft_node.raft.log_view import LogView
from kraft_node.raft.membership.quorum import QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.messages import FetchedBatch
from kraft_node.raft.node import RaftNode
from tests.unit.raft.test_voter_changes import Chance

VOTERS = VoterSet(Voter(ReplicaKey(node_id)) for node_id in (1, 2, 3))


def voter(epoch: int = 3) -> RaftNode:
    return RaftNode(
        local=ReplicaKey(1), voters=VOTERS, log=LogView(), state=QuorumState(epoch), rng=Chance(), cluster_id="c"
    )


def test_epochs_up_to_half_of_the_range_are_accepted_as_in_kafka() -> None:
    guard = EpochGuard()
    assert all(guard.admits(named, 0, 0) for named in (-1, 0, 1, 50_000, FREE_MAX))
    assert not guard.admits(FREE_MAX + LEAP_MAX + 1, 0, 0)


def test_above_half_the_range_one_leap_a_second_is_accepted() -> None:
    guard, own = EpochGuard(), FREE_MAX
    assert not guard.admits(own + LEAP_MAX + 1, own, 0)
    assert guard.admits(own + LEAP_MAX, own, 0)
    assert not guard.admits(own + 2, own, LEAP_PAUSE_MS - 1)
    assert guard.admits(own + 1, own, LEAP_PAUSE_MS - 1)
    assert guard.admits(own + 2, own, LEAP_PAUSE_MS)


def test_an_epoch_without_room_for_an_election_is_refused() -> None:
    guard = EpochGuard()
    assert guard.admits(EPOCH_MAX, EPOCH_MAX - 1, 0)
    assert not guard.admits(EPOCH_MAX + 1, EPOCH_MAX, 0)


def test_a_node_at_the_last_epoch_names_the_remedy() -> None:
    with pytest.raises(EpochsExhausted, match="In the quorum-state of each controller set leaderEpoch"):
        voter(EPOCH_MAX).step(events.Started(), 0)


@pytest.mark.parametrize(
    "request_",
    [
        m.VoteRequest(2**31 - 1, ReplicaKey(2), 0, 0),
        m.VoteRequest(2**31 - 1, ReplicaKey(2), 0, 0, pre_vote=True),
        m.BeginQuorumEpochRequest(2**31 - 1, 2),
        m.EndQuorumEpochRequest(2**31 - 1, 2, ()),
    ],
)
def test_a_request_with_the_last_epoch_changes_nothing(request_: m.Request) -> None:
    node = voter()
    node.step(events.Started(), 0)
    node.step(events.Requested("token", request_), 1)
    assert node.epoch == 3


@pytest.mark.parametrize(
    "batches",
    [
        [FetchedBatch(0, 2, 4)],
        [FetchedBatch(0, 2, 2), FetchedBatch(2, 3, 1)],
        [FetchedBatch(1, 2, 3)],
        [FetchedBatch(0, 2, 3), FetchedBatch(3, 4, 3)],
        [FetchedBatch(0, 0, 3)],
    ],
    ids=["epoch-above-the-leaders", "epoch-goes-back", "not-at-the-end", "gap", "empty"],
)
def test_gaps_and_wrong_epochs_do_not_follow_the_log(batches: list[FetchedBatch]) -> None:
    assert not follows(LogView(), batches, 3)
    assert follows(LogView(), [FetchedBatch(0, 2, 1), FetchedBatch(2, 5, 3)], 3)
