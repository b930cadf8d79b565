"""A replica without configured voters starts on a log that names voters and may still be truncated."""

from __future__ import annotations

from kraft_node.metadata.log_batches import leader_change_batch
from kraft_node.raft import events
from kraft_node.raft.membership import voter_changes
from kraft_node.raft.membership.quorum import ReplicaKey, Voter, VoterSet
from kraft_node.raft.membership.voter_history import encode_kraft_version, encode_voters
from kraft_node.raft.messages import BeginQuorumEpochRequest
from kraft_node.server.quorum.driver import RaftDriver
from kraft_node.server.quorum.peers import FIRST_BOOTSTRAP_ID
from kraft_protocol.ids import Uuid
from kraft_protocol.records.control import ControlType
from kraft_protocol.wire import messages
from tests.unit.server.quorum.raft_world import DIRECTORY, MemoryStorage, World

STATED = VoterSet([Voter(ReplicaKey(2, Uuid(bytes([2]) * 16)), {"CONTROLLER": ("host", 9092)})])


def replica(stated: VoterSet = STATED) -> RaftDriver:
    """A started replica with these voters in its log, and without a quorum-state."""
    facts = [(ControlType.KRAFT_VERSION, encode_kraft_version(1)), (ControlType.KRAFT_VOTERS, encode_voters(stated))]
    storage, world = MemoryStorage(), World()
    storage.batches = [leader_change_batch(0, 1, 2, [], [], 0, facts)]
    driver = RaftDriver(
        world,  # type: ignore[arg-type]
        storage,  # type: ignore[arg-type]
        local=ReplicaKey(1, DIRECTORY),
        voters=VoterSet(()),
        cluster_id="cluster",
        bootstrap_servers=[("host", 9092)],
    )
    driver.start()
    assert driver.voters == stated
    return driver


def test_voters_of_a_truncated_log_do_not_count_after_a_restart() -> None:
    """Raft seed 580, with drivers and dynamic voters."""
    driver = replica()
    driver.node.log.truncated(0)
    voter_changes.take_back(driver.node, 0)
    assert driver.voters == VoterSet(())
    assert not driver.has_stated_voters


def test_a_voter_of_the_log_without_a_quorum_state_has_never_voted() -> None:
    """Raft seed 5001354: a quorum never elected a leader again when a voter left it before two others had caught up."""
    local = Voter(ReplicaKey(1, DIRECTORY), {"CONTROLLER": ("host", 9091)})
    assert not replica(STATED.with_voter(local)).node.is_amnesiac


def test_configured_servers_are_asked_beside_the_voters_of_the_log() -> None:
    """All voters that a stopped controller knew had moved, and it never found the leader (simulated groups, seed
    4300002)."""
    driver = replica()
    assert FIRST_BOOTSTRAP_ID in driver.node.bootstrap_ids
    assert driver.peers.endpoint_of(FIRST_BOOTSTRAP_ID) == ("host", 9092)


def vote_response(epoch: int, port: int) -> messages.VoteResponse:
    """An answer that names node 2 as the leader of that epoch, on that port."""
    message = messages.VoteResponse
    topics = [message.TopicData("__cluster_metadata", [message.PartitionData(0, 0, 2, epoch)])]
    return message(0, topics, [message.NodeEndpoint(2, "host", port)])


def test_a_refused_epoch_does_not_hide_the_leaders_endpoint() -> None:
    driver = replica()
    driver.peers._answered(1, 2, vote_response(1, 9192))
    assert (driver.epoch, driver.peers.endpoint_of(2)) == (1, ("host", 9192)), "the leader has moved"
    driver.peers._answered(2, 2, vote_response(2**31 - 1, 9292))
    assert (driver.epoch, driver.peers.endpoint_of(2)) == (1, ("host", 9192))
    driver.peers._answered(3, 2, vote_response(1, 9392))
    assert driver.peers.endpoint_of(2) == ("host", 9392), "the leader has moved again"
    driver.peers._answered(4, 2, vote_response(2, 9492))
    driver.step(events.Requested(None, BeginQuorumEpochRequest(2, 2)))
    assert (driver.epoch, driver.peers.endpoint_of(2)) == (2, ("host", 9492)), "in the next epoch"
