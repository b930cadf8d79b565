"""DescribeQuorum: voters and observers, by their disks."""

from __future__ import annotations

from typing import Any

from kraft_node.raft import messages as m
from kraft_node.raft.describe_quorum import describe_quorum
from kraft_node.raft.membership.quorum import ReplicaKey
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.messages import DescribeQuorumRequest
from tests.unit.raft.test_voter_changes import TWO, Leader


def _described(leader: Leader) -> Any:
    data = DescribeQuorumRequest.TopicData
    topic = data(topic_name="__cluster_metadata", partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)])
    response = describe_quorum(leader.node, DescribeQuorumRequest(topics=[topic]), 0, 0)
    return response.topics[0].partitions[0]


def test_an_observer_with_a_voters_id_is_described_with_its_own_disk() -> None:
    leader = Leader()
    leader.fetch(TWO)
    leader.ask("add", m.AddVoterRequest(TWO, 1000))
    leader.fetch(TWO)
    emptied = TWO._replace(key=ReplicaKey(2, Uuid(bytes([9]) * 16)))
    leader.fetch(emptied)
    reported = _described(leader)
    assert {one.replica_id: one.replica_directory_id for one in reported.current_voters}[2] == TWO.key.directory
    assert [(one.replica_id, one.replica_directory_id) for one in reported.observers] == [(2, emptied.key.directory)]
