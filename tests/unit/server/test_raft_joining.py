"""A replica without configured voters starts on a log that states voters, and that may still be truncated."""

from __future__ import annotations

from kraft_node.base.ids import Uuid
from kraft_node.metadata.log_batches import leader_change_batch
from kraft_node.raft import voter_changes
from kraft_node.raft.quorum import ReplicaKey, Voter, VoterSet
from kraft_node.raft.voter_history import encode_kraft_version, encode_voters
from kraft_node.records.control import ControlType
from kraft_node.server.raft_driver import RaftDriver
from tests.unit.server.raft_world import DIRECTORY, MemoryStorage, World

STATED = VoterSet([Voter(ReplicaKey(2, Uuid(bytes([2]) * 16)), {"CONTROLLER": ("host", 9092)})])


def test_voters_of_a_truncated_log_do_not_count_after_a_restart() -> None:
    """Raft seed 580, with drivers and dynamic voters."""
    facts = [(ControlType.KRAFT_VERSION, encode_kraft_version(1)), (ControlType.KRAFT_VOTERS, encode_voters(STATED))]
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
    assert driver.voters == STATED
    driver.node.log.truncated(0)
    voter_changes.take_back(driver.node, 0)
    assert driver.voters == VoterSet(())
    assert not driver.has_stated_voters
