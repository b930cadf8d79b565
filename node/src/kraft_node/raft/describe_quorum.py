"""DescribeQuorum (55) v0-2: voters and observers of the metadata quorum, and their progress (KIP-595)."""

from __future__ import annotations

from typing import Any

from kraft_node.raft.messages import NONE, NOT_LEADER_OR_FOLLOWER
from kraft_node.raft.node import RaftNode
from kraft_node.raft.progress import ReplicaProgress
from kraft_node.raft.roles.states import Role
from kraft_node.raft.wire_form import NotAboutMetadata, only_partition
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import METADATA_TOPIC_NAME, ZERO_UUID
from kraft_protocol.wire import messages as wire


def describe_quorum(node: RaftNode, request: Any, now_ms: int, wall_ms: int) -> Any:
    """Answer DescribeQuorum: the voters, the observers, and the offset of each. Only the leader knows."""
    try:
        only_partition(request.topics)
    except NotAboutMetadata:
        return _describes_nothing(request)
    if node.role.role is not Role.LEADER:
        return wire.DescribeQuorumResponse(error_code=NOT_LEADER_OR_FOLLOWER)
    progress = node.leader.progress
    own = node.local.id

    def state(replica: ReplicaProgress) -> Any:
        is_own = replica.key.id == own
        # Static voters are not identified by the directories in their fetches. An observer may have a voter's id: it
        # is the disk that will replace the voter's disk.
        voter = node.voters.get(replica.key.id) if progress.voters.get(replica.key.id) is replica else None
        return wire.DescribeQuorumResponse.ReplicaState(
            replica_id=replica.key.id,
            replica_directory_id=(replica.key if voter is None else voter.key).directory,
            log_end_offset=node.log.end_offset if is_own else replica.end_offset,
            last_fetch_timestamp=wall_ms if is_own else _wall(replica.last_fetch_ms, now_ms, wall_ms),
            last_caught_up_timestamp=wall_ms if is_own else _wall(replica.caught_up_ms, now_ms, wall_ms),
        )

    message = wire.DescribeQuorumResponse
    partition = message.PartitionData(
        partition_index=0,
        error_code=NONE,
        leader_id=own,
        leader_epoch=node.epoch,
        high_watermark=node.high_watermark,
        current_voters=[state(voter) for voter in progress.voters.values()],
        observers=[state(observer) for observer in progress.observers.values()],
    )
    response = message(error_code=NONE, topics=[message.TopicData(METADATA_TOPIC_NAME, [partition])])
    response.nodes = [_node(voter.key.id, voter.endpoints) for voter in node.voters]
    return response


def _describes_nothing(request: Any) -> Any:
    """Answer that each requested partition is unknown."""
    message = wire.DescribeQuorumResponse
    why = "This server does not host this topic-partition."
    return message(
        topics=[
            message.TopicData(
                topic.topic_name,
                [
                    message.PartitionData(row.partition_index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def without_directories(response: Any) -> None:
    """Leave out the fields that DescribeQuorum below version 2 lacks."""
    response.nodes = []
    for topic in response.topics:
        for row in topic.partitions:
            for replica in (*row.current_voters, *row.observers):
                replica.replica_directory_id = ZERO_UUID


def _wall(then_ms: int, now_ms: int, wall_ms: int) -> int:
    return -1 if then_ms < 0 else wall_ms - (now_ms - then_ms)


def _node(node_id: int, endpoints: Any) -> Any:
    message = wire.DescribeQuorumResponse
    return message.Node(node_id, [message.Listener(name, *where) for name, where in endpoints.items()])
