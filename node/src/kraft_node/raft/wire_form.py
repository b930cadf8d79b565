"""Conversion of the core's messages from and to the protocol's requests and responses.

All of them carry exactly one partition, `__cluster_metadata`-0. Requests for other partitions get INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kraft_node.base.version import VERSION
from kraft_node.raft.log_view import EpochEnd, SnapshotId
from kraft_node.raft.membership.quorum import NO_NODE, ReplicaKey, Voter, VoterSet
from kraft_node.raft.membership.voter_history import decode_voters
from kraft_node.raft.messages import (
    DUPLICATE_VOTER,
    INCONSISTENT_CLUSTER_ID,
    INVALID_REQUEST,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNSUPPORTED_VERSION,
    VOTER_NOT_FOUND,
    AddVoterRequest,
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    FetchedBatch,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    RemoveVoterRequest,
    Reply,
    Request,
    UpdateVoterRequest,
    VersionsReply,
    VersionsRequest,
    VoterChangeReply,
    VoteReply,
    VoteRequest,
)
from kraft_protocol.ids import METADATA_TOPIC_ID, METADATA_TOPIC_NAME, ZERO_UUID
from kraft_protocol.records.batch import BatchHeader, check_batch
from kraft_protocol.records.control import ControlType, iter_control_records
from kraft_protocol.wire import messages as wire
from kraft_protocol.wire.api import API, ApiKey

TOP_LEVEL_ERRORS: Final = frozenset({INCONSISTENT_CLUSTER_ID})
"""Errors of the whole request, not of its partition."""

FIRST_FETCH_VERSION_WITH_LEADER_ENDPOINTS: Final = 17
FIRST_VOTE_VERSION_WITH_KEYS: Final = 1
VOTER_CHANGES: Final = ("AddRaftVoterResponse", "RemoveRaftVoterResponse", "UpdateRaftVoterResponse")


class NotAboutMetadata(ValueError):  # noqa: N818 - named after what it says
    """A request to the quorum that names another partition than `__cluster_metadata`-0."""


def only_partition(topics: Any, name_field: str = "topic_name", index_field: str = "partition_index") -> Any:
    """The entry of the metadata partition. Raises NotAboutMetadata unless a request names this partition alone."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        topic = topics[0]
        partition = topic.partitions[0]
        if getattr(topic, name_field) == METADATA_TOPIC_NAME and getattr(partition, index_field) == 0:
            return partition
    raise NotAboutMetadata(f"only {METADATA_TOPIC_NAME}-0 is served here")


def _expected(voter_id: int, directory: Any) -> ReplicaKey | None:
    return None if voter_id < 0 else ReplicaKey(voter_id, directory)


def request_from_wire(message: Any) -> Request:
    """The core's form of a request from another node or a tool. Raises NotAboutMetadata."""
    request: Request = _REQUESTS[type(message).__name__](message)
    return request


def _vote_request(message: Any) -> VoteRequest:
    partition = only_partition(message.topics)
    return VoteRequest(
        partition.replica_epoch,
        ReplicaKey(partition.replica_id, partition.replica_directory_id),
        partition.last_offset_epoch,
        partition.last_offset,
        partition.pre_vote,
        _expected(message.voter_id, partition.voter_directory_id),
        message.cluster_id,
    )


def _begin_request(message: Any) -> BeginQuorumEpochRequest:
    partition = only_partition(message.topics)
    voter = _expected(message.voter_id, partition.voter_directory_id)
    return BeginQuorumEpochRequest(partition.leader_epoch, partition.leader_id, voter, message.cluster_id)


def _end_request(message: Any) -> EndQuorumEpochRequest:
    partition = only_partition(message.topics)
    successors = [ReplicaKey(c.candidate_id, c.candidate_directory_id) for c in partition.preferred_candidates]
    successors = successors or [ReplicaKey(node_id) for node_id in partition.preferred_successors]
    return EndQuorumEpochRequest(partition.leader_epoch, partition.leader_id, tuple(successors), message.cluster_id)


def _fetch_request(message: Any) -> FetchRequest:
    topics = message.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1 or topics[0].partitions[0].partition != 0:
        raise NotAboutMetadata(f"only {METADATA_TOPIC_NAME}-0 is served here")
    if topics[0].topic_id not in (METADATA_TOPIC_ID, ZERO_UUID) or topics[0].topic not in (METADATA_TOPIC_NAME, ""):
        raise NotAboutMetadata(f"only {METADATA_TOPIC_NAME}-0 is served here")
    partition = topics[0].partitions[0]
    replica_id = message.replica_id
    if replica_id < 0 and message.replica_state is not None:
        replica_id = message.replica_state.replica_id
    return FetchRequest(
        partition.current_leader_epoch,
        ReplicaKey(replica_id, partition.replica_directory_id),
        partition.fetch_offset,
        partition.last_fetched_epoch,
        min(message.max_bytes, partition.partition_max_bytes),
        message.max_wait_ms,
        partition.high_watermark,
        message.cluster_id,
    )


def _fetch_snapshot_request(message: Any) -> FetchSnapshotRequest:
    partition = only_partition(message.topics, "name", "partition")
    return FetchSnapshotRequest(
        partition.current_leader_epoch,
        ReplicaKey(message.replica_id, partition.replica_directory_id),
        SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        partition.position,
        message.max_bytes,
        message.cluster_id,
    )


def _endpoint_map(listeners: Any) -> dict[str, tuple[str, int]]:
    return {listener.name: (listener.host, listener.port) for listener in listeners}


def _add_voter_request(message: Any) -> AddVoterRequest:
    key = ReplicaKey(message.voter_id, message.voter_directory_id)
    voter = Voter(key, _endpoint_map(message.listeners))
    return AddVoterRequest(voter, message.timeout_ms, message.ack_when_committed, message.cluster_id)


def _remove_voter_request(message: Any) -> RemoveVoterRequest:
    return RemoveVoterRequest(ReplicaKey(message.voter_id, message.voter_directory_id), message.cluster_id)


def _update_voter_request(message: Any) -> UpdateVoterRequest:
    key = ReplicaKey(message.voter_id, message.voter_directory_id)
    feature = message.k_raft_version_feature
    versions = (feature.min_supported_version, feature.max_supported_version)
    voter = Voter(key, _endpoint_map(message.listeners), versions)
    return UpdateVoterRequest(message.current_leader_epoch, voter, message.cluster_id)


_REQUESTS: Final[dict[str, Any]] = {
    "AddRaftVoterRequest": _add_voter_request,
    "RemoveRaftVoterRequest": _remove_voter_request,
    "UpdateRaftVoterRequest": _update_voter_request,
    "VoteRequest": _vote_request,
    "BeginQuorumEpochRequest": _begin_request,
    "EndQuorumEpochRequest": _end_request,
    "FetchRequest": _fetch_request,
    "FetchSnapshotRequest": _fetch_snapshot_request,
}


def reply_to_wire(reply: Reply, version: int, voters: VoterSet, listener: str) -> Any:
    """The protocol's response, with the leader's endpoint if the version has room for it."""
    if reply.error in TOP_LEVEL_ERRORS:
        return _response_class(reply)(error_code=reply.error)
    if isinstance(reply, FetchReply):
        return _fetch_response(reply, version, voters, listener)
    if isinstance(reply, FetchSnapshotReply):
        return _fetch_snapshot_response(reply, version, voters, listener)
    message = _response_class(reply)
    partition = message.PartitionData(0, reply.error, reply.leader_id, reply.epoch)
    if isinstance(reply, VoteReply):
        partition.vote_granted = reply.granted
    response = message(error_code=NONE, topics=[message.TopicData(METADATA_TOPIC_NAME, [partition])])
    if version >= FIRST_VOTE_VERSION_WITH_KEYS:
        response.node_endpoints = _endpoints(message.NodeEndpoint, reply.leader_id, voters, listener)
    return response


def _response_class(reply: Reply) -> Any:
    return getattr(wire, type(reply).__name__.replace("Reply", "Response"))


def announced_leader(request: Any) -> tuple[int, dict[str, tuple[str, int]]]:
    """The leader of the epoch that begins or ends, and the endpoints that it names."""
    named = {endpoint.name: (endpoint.host, endpoint.port) for endpoint in request.leader_endpoints}
    return only_partition(request.topics).leader_id, named


def error_response(request: Any, error: int) -> Any:
    """The response with an error for the whole request."""
    name = type(request).__name__.replace("Request", "Response")
    return getattr(wire, name)(error_code=error)


def not_about_metadata(request: Any) -> Any:
    """The answer INVALID_REQUEST for a request about anything but partition 0 of `__cluster_metadata`."""
    return error_response(request, INVALID_REQUEST)


def _endpoints(kind: Any, leader_id: int, voters: VoterSet, listener: str) -> list[Any]:
    voter = voters.get(leader_id)
    if voter is None or not voter.endpoints:
        return []
    host, port = voter.endpoints.get(listener) or next(iter(voter.endpoints.values()))
    return [kind(node_id=leader_id, host=host, port=port)]


def _fetch_response(reply: FetchReply, version: int, voters: VoterSet, listener: str) -> Any:
    message = wire.FetchResponse
    partition = message.PartitionData(
        partition_index=0,
        error_code=reply.error,
        high_watermark=reply.high_watermark,
        log_start_offset=reply.log_start_offset,
        aborted_transactions=None,
        records=reply.records,
    )
    partition.current_leader = message.LeaderIdAndEpoch(reply.leader_id, reply.epoch)
    if reply.diverging is not None:
        partition.diverging_epoch = message.EpochEndOffset(reply.diverging.epoch, reply.diverging.end_offset)
    if reply.snapshot is not None:
        partition.snapshot_id = message.SnapshotId(reply.snapshot.end_offset, reply.snapshot.epoch)
    topic = message.FetchableTopicResponse(
        topic=METADATA_TOPIC_NAME, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    response = wire.FetchResponse(error_code=NONE, session_id=0, responses=[topic])
    if version >= FIRST_FETCH_VERSION_WITH_LEADER_ENDPOINTS:
        response.node_endpoints = _endpoints(wire.FetchResponse.NodeEndpoint, reply.leader_id, voters, listener)
    return response


def _fetch_snapshot_response(reply: FetchSnapshotReply, version: int, voters: VoterSet, listener: str) -> Any:
    message = wire.FetchSnapshotResponse
    snapshot = reply.snapshot or SnapshotId(-1, -1)
    partition = message.PartitionSnapshot(
        index=0,
        error_code=reply.error,
        snapshot_id=message.SnapshotId(snapshot.end_offset, snapshot.epoch),
        size=reply.size,
        position=reply.position,
        unaligned_records=reply.data,
    )
    partition.current_leader = message.LeaderIdAndEpoch(reply.leader_id, reply.epoch)
    response = wire.FetchSnapshotResponse(
        error_code=NONE, topics=[message.TopicSnapshot(METADATA_TOPIC_NAME, [partition])]
    )
    if version >= 1:
        kind = wire.FetchSnapshotResponse.NodeEndpoint
        response.node_endpoints = _endpoints(kind, reply.leader_id, voters, listener)
    return response


def voter_change_to_wire(key: ApiKey, reply: VoterChangeReply, voters: VoterSet, listener: str) -> Any:
    """The protocol's response to AddRaftVoter, RemoveRaftVoter or UpdateRaftVoter."""
    kind: Any = API[key].response
    response = kind(error_code=reply.error)
    if isinstance(response, wire.UpdateRaftVoterResponse):
        leader = wire.UpdateRaftVoterResponse.CurrentLeader(leader_id=reply.leader_id, leader_epoch=reply.epoch)
        for endpoint in _endpoints(wire.FetchResponse.NodeEndpoint, reply.leader_id, voters, listener):
            leader.host, leader.port = endpoint.host, endpoint.port
        response.current_leader = leader
    elif reply.error:
        response.error_message = _VOTER_CHANGE_ERRORS.get(reply.error)
    return response


_VOTER_CHANGE_ERRORS: Final = {
    INCONSISTENT_CLUSTER_ID: "the request names another cluster",
    REQUEST_TIMED_OUT: "another change of the voters is not committed, or a replica that it needs lags or is silent",
    UNSUPPORTED_VERSION: "kraft.version is 0: the voters come from the configuration",
    DUPLICATE_VOTER: "a replica with this id is a voter",
    VOTER_NOT_FOUND: "that replica is not a voter, or it is the only voter",
    NOT_LEADER_OR_FOLLOWER: "this node is not the quorum's leader",
    INVALID_REQUEST: "no replica with a listener for controllers is named, or it lacks the finalized kraft.version",
}


# Our requests to others, and their responses.


def request_to_wire(request: Request, local: ReplicaKey, voters: VoterSet) -> Any:
    """The protocol's request. The channel chooses the version; the codec leaves out fields that the version lacks."""
    if isinstance(request, VoteRequest):
        return _to_vote(request)
    if isinstance(request, FetchRequest):
        return _to_fetch(request)
    if isinstance(request, FetchSnapshotRequest):
        return _to_fetch_snapshot(request)
    if isinstance(request, AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest):
        return _to_voter_change(request)
    if isinstance(request, VersionsRequest):
        return wire.ApiVersionsRequest(client_software_name="kraftcluster", client_software_version=VERSION)
    voter = voters.get(local.id)
    endpoints = {} if voter is None else voter.endpoints
    if isinstance(request, BeginQuorumEpochRequest):
        message: Any = wire.BeginQuorumEpochRequest
        partition = message.PartitionData(partition_index=0, leader_id=request.leader_id, leader_epoch=request.epoch)
        if request.voter is not None:
            partition.voter_directory_id = request.voter.directory
    else:
        message = wire.EndQuorumEpochRequest
        info = message.ReplicaInfo
        partition = message.PartitionData(
            partition_index=0,
            leader_id=request.leader_id,
            leader_epoch=request.epoch,
            preferred_successors=[key.id for key in request.successors],
            preferred_candidates=[info(key.id, key.directory) for key in request.successors],
        )
    converted = message(cluster_id=request.cluster_id, topics=[message.TopicData(METADATA_TOPIC_NAME, [partition])])
    converted.leader_endpoints = [message.LeaderEndpoint(name, *where) for name, where in endpoints.items()]
    if isinstance(request, BeginQuorumEpochRequest) and request.voter is not None:
        converted.voter_id = request.voter.id
    return converted


def _to_voter_change(request: AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest) -> Any:
    if isinstance(request, RemoveVoterRequest):
        return wire.RemoveRaftVoterRequest(
            cluster_id=request.cluster_id, voter_id=request.key.id, voter_directory_id=request.key.directory
        )
    key, endpoints, versions = request.voter
    if isinstance(request, AddVoterRequest):
        return wire.AddRaftVoterRequest(
            cluster_id=request.cluster_id,
            timeout_ms=request.timeout_ms,
            voter_id=key.id,
            voter_directory_id=key.directory,
            listeners=[wire.AddRaftVoterRequest.Listener(name, *where) for name, where in endpoints.items()],
            ack_when_committed=request.ack_when_committed,
        )
    return wire.UpdateRaftVoterRequest(
        cluster_id=request.cluster_id,
        current_leader_epoch=request.epoch,
        voter_id=key.id,
        voter_directory_id=key.directory,
        listeners=[wire.UpdateRaftVoterRequest.Listener(name, *where) for name, where in endpoints.items()],
        k_raft_version_feature=wire.UpdateRaftVoterRequest.KRaftVersionFeature(*versions),
    )


def _to_vote(request: VoteRequest) -> Any:
    message = wire.VoteRequest
    voter = request.voter or ReplicaKey(-1)
    partition = message.PartitionData(
        partition_index=0,
        replica_epoch=request.epoch,
        replica_id=request.candidate.id,
        replica_directory_id=request.candidate.directory,
        voter_directory_id=voter.directory,
        last_offset_epoch=request.last_epoch,
        last_offset=request.end_offset,
        pre_vote=request.pre_vote,
    )
    topics = [message.TopicData(METADATA_TOPIC_NAME, [partition])]
    return message(cluster_id=request.cluster_id, voter_id=voter.id, topics=topics)


def _to_fetch(request: FetchRequest) -> Any:
    message = wire.FetchRequest
    partition = message.FetchPartition(
        partition=0,
        current_leader_epoch=request.epoch,
        fetch_offset=request.offset,
        last_fetched_epoch=request.last_epoch,
        log_start_offset=-1,
        partition_max_bytes=request.max_bytes,
        replica_directory_id=request.replica.directory,
        high_watermark=request.high_watermark,
    )
    return message(
        cluster_id=request.cluster_id,
        replica_state=message.ReplicaState(request.replica.id),
        max_wait_ms=request.max_wait_ms,
        min_bytes=0,
        max_bytes=request.max_bytes,
        topics=[message.FetchTopic(topic=METADATA_TOPIC_NAME, topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def _to_fetch_snapshot(request: FetchSnapshotRequest) -> Any:
    message = wire.FetchSnapshotRequest
    partition = message.PartitionSnapshot(
        partition=0,
        current_leader_epoch=request.epoch,
        snapshot_id=message.SnapshotId(request.snapshot.end_offset, request.snapshot.epoch),
        position=request.position,
        replica_directory_id=request.replica.directory,
    )
    return message(
        cluster_id=request.cluster_id,
        replica_id=request.replica.id,
        max_bytes=request.max_bytes,
        topics=[message.TopicSnapshot(METADATA_TOPIC_NAME, [partition])],
    )


def reply_from_wire(message: Any) -> Reply | None:
    """The core's form of a node's answer; None if it is unusable (a top-level error, or invalid content)."""
    name = type(message).__name__
    if name in VOTER_CHANGES:
        return VoterChangeReply(message.error_code)
    if name == "ApiVersionsResponse":
        found = (f for f in message.supported_features if f.name == "kraft.version")
        range_ = next(((f.min_version, f.max_version) for f in found), None)
        return VersionsReply(message.error_code, range_)
    if message.error_code != NONE:
        return None
    topics = message.responses if name == "FetchResponse" else message.topics
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    partition = topics[0].partitions[0]
    if name == "FetchResponse":
        return _fetch_reply(partition)
    if name == "FetchSnapshotResponse":
        return _fetch_snapshot_reply(partition)
    if name == "VoteResponse":
        return VoteReply(partition.error_code, partition.leader_epoch, partition.leader_id, partition.vote_granted)
    kind = BeginQuorumEpochReply if name == "BeginQuorumEpochResponse" else EndQuorumEpochReply
    return kind(partition.error_code, partition.leader_epoch, partition.leader_id)


def _fetch_reply(partition: Any) -> FetchReply:
    diverging = partition.diverging_epoch
    snapshot = partition.snapshot_id
    records = bytes(partition.records or b"")
    epoch, leader_id = _current_leader(partition)
    return FetchReply(
        partition.error_code,
        epoch,
        leader_id,
        partition.high_watermark,
        partition.log_start_offset,
        EpochEnd(diverging.epoch, diverging.end_offset) if diverging and diverging.epoch >= 0 else None,
        SnapshotId(snapshot.end_offset, snapshot.epoch) if snapshot and snapshot.epoch >= 0 else None,
        tuple(_batches(records)),
        records,
    )


def _current_leader(partition: Any) -> tuple[int, int]:
    """Epoch and id of the leader; -1 for both if the sender leaves out the tagged field."""
    leader = partition.current_leader
    return (-1, NO_NODE) if leader is None else (leader.leader_epoch, leader.leader_id)


def _batches(records: bytes) -> Iterable[FetchedBatch]:
    """The fetched batches. The CRC of each batch is checked before its content is used."""
    position = 0
    while position < len(records):
        header = check_batch(records, position)
        voters = _stated_voters(records, header) if header.is_control else None
        yield FetchedBatch(header.base_offset, header.next_offset, header.partition_leader_epoch, voters)
        position += header.length


def _stated_voters(records: bytes, header: BatchHeader) -> VoterSet | None:
    found = None
    for control in iter_control_records(records, header):
        if control.type is ControlType.KRAFT_VOTERS:
            found = decode_voters(control.value)
    return found


def _fetch_snapshot_reply(partition: Any) -> FetchSnapshotReply:
    epoch, leader_id = _current_leader(partition)
    return FetchSnapshotReply(
        partition.error_code,
        epoch,
        leader_id,
        SnapshotId(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
        partition.size,
        partition.position,
        bytes(partition.unaligned_records or b""),
    )
