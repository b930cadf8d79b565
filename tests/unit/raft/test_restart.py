"""The state of a restarted voter, by its stored data."""

from __future__ import annotations

import pytest

from kraft_node.raft import events
from kraft_node.raft.log_view import LogView
from kraft_node.raft.membership.quorum import QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.node import RaftNode
from kraft_node.raft.roles.states import Role
from kraft_protocol.ids import Uuid
from tests.unit.raft.test_voter_changes import Chance

KEYS = {number: ReplicaKey(number, Uuid(bytes(15) + bytes([number]))) for number in (1, 2, 3)}


def started(state: QuorumState, kraft_version: int) -> RaftNode:
    """A voter with records of the first epoch in its log."""
    log = LogView()
    log.appended(0, 5, 1)
    log.flushed(5)
    node = RaftNode(
        local=KEYS[2],
        voters=VoterSet([Voter(key) for key in KEYS.values()]),
        log=log,
        state=state,
        rng=Chance(),
        cluster_id="c",
        kraft_version=kraft_version,
    )
    node.step(events.Started(), 0)
    return node


@pytest.mark.parametrize(("leader_id", "role", "says"), [(3, Role.FOLLOWER, 3), (2, Role.RESIGNED, 2)])
def test_a_candidate_that_lost_does_not_report_that_it_led(leader_id: int, role: Role, says: int) -> None:
    """Two candidates of an epoch vote for themselves. The one that followed the other then reported, after a restart,
    that it had led that epoch. Apache Kafka's nodes, which know the leader, end at such a claim.
    """
    node = started(QuorumState(1, leader_id, KEYS[2]), kraft_version=1)
    assert (node.role.role, node.leader_id, node.epoch) == (role, says, 1)


def test_a_leader_that_is_no_longer_a_static_voter_is_remembered() -> None:
    """The first start with other voters forgot it; the second one then counted the leader's records as its own."""
    node = started(QuorumState(1, 4, KEYS[2]), kraft_version=0)
    assert (node.role.role, node.leader_id) == (Role.UNATTACHED, 4)
    node.give_up_pre_vote(4)
    assert (node.role.role, node.state) == (Role.UNATTACHED, QuorumState(1, 4, KEYS[2]))
    again = started(node.state, kraft_version=0)
    assert again.role.role is Role.UNATTACHED


@pytest.mark.parametrize("voters", [(2,), (1, 2, 3)], ids=["alone", "three"])
def test_an_election_lasts_from_the_time_when_the_vote_is_on_disk(voters: tuple[int, ...]) -> None:
    """A single voter with a disk that took longer than the election time-out began epoch after epoch, and never led."""
    node = RaftNode(
        local=KEYS[2],
        voters=VoterSet([Voter(KEYS[number]) for number in voters]),
        log=LogView(),
        state=QuorumState(),
        rng=Chance(),
        cluster_id="c",
    )
    node.step(events.Started(), 0)
    if len(voters) > 1:
        node.become_prospective()
        node.become_candidate()
    assert node.role.role is Role.CANDIDATE
    for now_ms in range(500, 20_001, 500):
        node.step(events.Tick(), now_ms)
    assert (node.role.role, node.epoch) == (Role.CANDIDATE, 1)
    work = node.step(events.QuorumStateWritten(node.state), 20_000)
    if len(voters) == 1:
        assert (node.role.role, node.epoch) == (Role.LEADER, 1)
        return
    assert work.releases, "its requests leave now"
    node.step(events.Tick(), 20_000 + node.config.election_timeout_ms - 1)
    assert node.role.role is Role.CANDIDATE
    node.step(events.Tick(), 20_000 + 2 * node.config.election_timeout_ms)
    assert node.role.role is Role.PROSPECTIVE
