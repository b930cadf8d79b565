"""Written by tools/import_schemas.py; do not edit."""

from kraft_protocol.buffers import Buffer, FileSlice
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.classes import Message

class ProduceRequest(Message):
    class TopicProduceData(Message):
        name: str
        topic_id: Uuid
        partition_data: list[ProduceRequest.PartitionProduceData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            topic_id: Uuid = ...,
            partition_data: list[ProduceRequest.PartitionProduceData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionProduceData(Message):
        index: int
        records: Buffer | FileSlice | list[Buffer | FileSlice] | list[Buffer] | list[FileSlice] | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            index: int = ...,
            records: Buffer | FileSlice | list[Buffer | FileSlice] | list[Buffer] | list[FileSlice] | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[ProduceRequest.TopicProduceData]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        transactional_id: str | None = ...,
        acks: int = ...,
        timeout_ms: int = ...,
        topic_data: list[ProduceRequest.TopicProduceData] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ProduceResponse(Message):
    class TopicProduceResponse(Message):
        name: str
        topic_id: Uuid
        partition_responses: list[ProduceResponse.PartitionProduceResponse]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            topic_id: Uuid = ...,
            partition_responses: list[ProduceResponse.PartitionProduceResponse] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionProduceResponse(Message):
        index: int
        error_code: int
        base_offset: int
        log_append_time_ms: int
        log_start_offset: int
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage]
        error_message: str | None
        current_leader: ProduceResponse.LeaderIdAndEpoch | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            index: int = ...,
            error_code: int = ...,
            base_offset: int = ...,
            log_append_time_ms: int = ...,
            log_start_offset: int = ...,
            record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = ...,
            error_message: str | None = ...,
            current_leader: ProduceResponse.LeaderIdAndEpoch | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class BatchIndexAndErrorMessage(Message):
        batch_index: int
        batch_index_error_message: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            batch_index: int = ...,
            batch_index_error_message: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class LeaderIdAndEpoch(Message):
        leader_id: int
        leader_epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            leader_id: int = ...,
            leader_epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    responses: list[ProduceResponse.TopicProduceResponse]
    throttle_time_ms: int
    node_endpoints: list[ProduceResponse.NodeEndpoint]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        responses: list[ProduceResponse.TopicProduceResponse] = ...,
        throttle_time_ms: int = ...,
        node_endpoints: list[ProduceResponse.NodeEndpoint] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class FetchRequest(Message):
    class ReplicaState(Message):
        replica_id: int
        replica_epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            replica_id: int = ...,
            replica_epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class FetchTopic(Message):
        topic: str
        topic_id: Uuid
        partitions: list[FetchRequest.FetchPartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic: str = ...,
            topic_id: Uuid = ...,
            partitions: list[FetchRequest.FetchPartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class FetchPartition(Message):
        partition: int
        current_leader_epoch: int
        fetch_offset: int
        last_fetched_epoch: int
        log_start_offset: int
        partition_max_bytes: int
        replica_directory_id: Uuid
        high_watermark: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition: int = ...,
            current_leader_epoch: int = ...,
            fetch_offset: int = ...,
            last_fetched_epoch: int = ...,
            log_start_offset: int = ...,
            partition_max_bytes: int = ...,
            replica_directory_id: Uuid = ...,
            high_watermark: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class ForgottenTopic(Message):
        topic: str
        topic_id: Uuid
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic: str = ...,
            topic_id: Uuid = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    cluster_id: str | None
    replica_id: int
    replica_state: FetchRequest.ReplicaState | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchRequest.FetchTopic]
    forgotten_topics_data: list[FetchRequest.ForgottenTopic]
    rack_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        cluster_id: str | None = ...,
        replica_id: int = ...,
        replica_state: FetchRequest.ReplicaState | None = ...,
        max_wait_ms: int = ...,
        min_bytes: int = ...,
        max_bytes: int = ...,
        isolation_level: int = ...,
        session_id: int = ...,
        session_epoch: int = ...,
        topics: list[FetchRequest.FetchTopic] = ...,
        forgotten_topics_data: list[FetchRequest.ForgottenTopic] = ...,
        rack_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class FetchResponse(Message):
    class FetchableTopicResponse(Message):
        topic: str
        topic_id: Uuid
        partitions: list[FetchResponse.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic: str = ...,
            topic_id: Uuid = ...,
            partitions: list[FetchResponse.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition_index: int
        error_code: int
        high_watermark: int
        last_stable_offset: int
        log_start_offset: int
        diverging_epoch: FetchResponse.EpochEndOffset | None
        current_leader: FetchResponse.LeaderIdAndEpoch | None
        snapshot_id: FetchResponse.SnapshotId | None
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None
        preferred_read_replica: int
        records: Buffer | FileSlice | list[Buffer | FileSlice] | list[Buffer] | list[FileSlice] | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            high_watermark: int = ...,
            last_stable_offset: int = ...,
            log_start_offset: int = ...,
            diverging_epoch: FetchResponse.EpochEndOffset | None = ...,
            current_leader: FetchResponse.LeaderIdAndEpoch | None = ...,
            snapshot_id: FetchResponse.SnapshotId | None = ...,
            aborted_transactions: list[FetchResponse.AbortedTransaction] | None = ...,
            preferred_read_replica: int = ...,
            records: Buffer | FileSlice | list[Buffer | FileSlice] | list[Buffer] | list[FileSlice] | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class EpochEndOffset(Message):
        epoch: int
        end_offset: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            epoch: int = ...,
            end_offset: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class LeaderIdAndEpoch(Message):
        leader_id: int
        leader_epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            leader_id: int = ...,
            leader_epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class SnapshotId(Message):
        end_offset: int
        epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            end_offset: int = ...,
            epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class AbortedTransaction(Message):
        producer_id: int
        first_offset: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            producer_id: int = ...,
            first_offset: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: list[FetchResponse.FetchableTopicResponse]
    node_endpoints: list[FetchResponse.NodeEndpoint]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        session_id: int = ...,
        responses: list[FetchResponse.FetchableTopicResponse] = ...,
        node_endpoints: list[FetchResponse.NodeEndpoint] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ListOffsetsRequest(Message):
    class ListOffsetsTopic(Message):
        name: str
        partitions: list[ListOffsetsRequest.ListOffsetsPartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[ListOffsetsRequest.ListOffsetsPartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class ListOffsetsPartition(Message):
        partition_index: int
        current_leader_epoch: int
        timestamp: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            current_leader_epoch: int = ...,
            timestamp: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsRequest.ListOffsetsTopic]
    timeout_ms: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        replica_id: int = ...,
        isolation_level: int = ...,
        topics: list[ListOffsetsRequest.ListOffsetsTopic] = ...,
        timeout_ms: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ListOffsetsResponse(Message):
    class ListOffsetsTopicResponse(Message):
        name: str
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class ListOffsetsPartitionResponse(Message):
        partition_index: int
        error_code: int
        timestamp: int
        offset: int
        leader_epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            timestamp: int = ...,
            offset: int = ...,
            leader_epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    topics: list[ListOffsetsResponse.ListOffsetsTopicResponse]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: list[ListOffsetsResponse.ListOffsetsTopicResponse] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class MetadataRequest(Message):
    class MetadataRequestTopic(Message):
        topic_id: Uuid
        name: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            name: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    topics: list[MetadataRequest.MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topics: list[MetadataRequest.MetadataRequestTopic] | None = ...,
        allow_auto_topic_creation: bool = ...,
        include_cluster_authorized_operations: bool = ...,
        include_topic_authorized_operations: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class MetadataResponse(Message):
    class MetadataResponseBroker(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class MetadataResponseTopic(Message):
        error_code: int
        name: str | None
        topic_id: Uuid
        is_internal: bool
        partitions: list[MetadataResponse.MetadataResponsePartition]
        topic_authorized_operations: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            name: str | None = ...,
            topic_id: Uuid = ...,
            is_internal: bool = ...,
            partitions: list[MetadataResponse.MetadataResponsePartition] = ...,
            topic_authorized_operations: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class MetadataResponsePartition(Message):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: list[int]
        isr_nodes: list[int]
        offline_replicas: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            partition_index: int = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            replica_nodes: list[int] = ...,
            isr_nodes: list[int] = ...,
            offline_replicas: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    brokers: list[MetadataResponse.MetadataResponseBroker]
    cluster_id: str | None
    controller_id: int
    topics: list[MetadataResponse.MetadataResponseTopic]
    cluster_authorized_operations: int
    error_code: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        brokers: list[MetadataResponse.MetadataResponseBroker] = ...,
        cluster_id: str | None = ...,
        controller_id: int = ...,
        topics: list[MetadataResponse.MetadataResponseTopic] = ...,
        cluster_authorized_operations: int = ...,
        error_code: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class LeaderAndIsrRequest(Message):
    class LeaderAndIsrPartitionState(Message):
        topic_name: str
        partition_index: int
        controller_epoch: int
        leader: int
        leader_epoch: int
        isr: list[int]
        partition_epoch: int
        replicas: list[int]
        adding_replicas: list[int]
        removing_replicas: list[int]
        is_new: bool
        leader_recovery_state: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partition_index: int = ...,
            controller_epoch: int = ...,
            leader: int = ...,
            leader_epoch: int = ...,
            isr: list[int] = ...,
            partition_epoch: int = ...,
            replicas: list[int] = ...,
            adding_replicas: list[int] = ...,
            removing_replicas: list[int] = ...,
            is_new: bool = ...,
            leader_recovery_state: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class LeaderAndIsrTopicState(Message):
        topic_name: str
        topic_id: Uuid
        partition_states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            topic_id: Uuid = ...,
            partition_states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class LeaderAndIsrLiveLeader(Message):
        broker_id: int
        host_name: str
        port: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            broker_id: int = ...,
            host_name: str = ...,
            port: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    controller_id: int
    is_k_raft_controller: bool
    controller_epoch: int
    broker_epoch: int
    type: int
    ungrouped_partition_states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState]
    topic_states: list[LeaderAndIsrRequest.LeaderAndIsrTopicState]
    live_leaders: list[LeaderAndIsrRequest.LeaderAndIsrLiveLeader]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        controller_id: int = ...,
        is_k_raft_controller: bool = ...,
        controller_epoch: int = ...,
        broker_epoch: int = ...,
        type: int = ...,
        ungrouped_partition_states: list[LeaderAndIsrRequest.LeaderAndIsrPartitionState] = ...,
        topic_states: list[LeaderAndIsrRequest.LeaderAndIsrTopicState] = ...,
        live_leaders: list[LeaderAndIsrRequest.LeaderAndIsrLiveLeader] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class LeaderAndIsrResponse(Message):
    class LeaderAndIsrPartitionError(Message):
        topic_name: str
        partition_index: int
        error_code: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partition_index: int = ...,
            error_code: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class LeaderAndIsrTopicError(Message):
        topic_id: Uuid
        partition_errors: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partition_errors: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    error_code: int
    partition_errors: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError]
    topics: list[LeaderAndIsrResponse.LeaderAndIsrTopicError]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        error_code: int = ...,
        partition_errors: list[LeaderAndIsrResponse.LeaderAndIsrPartitionError] = ...,
        topics: list[LeaderAndIsrResponse.LeaderAndIsrTopicError] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StopReplicaRequest(Message):
    class StopReplicaPartitionV0(Message):
        topic_name: str
        partition_index: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partition_index: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class StopReplicaTopicV1(Message):
        name: str
        partition_indexes: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partition_indexes: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class StopReplicaTopicState(Message):
        topic_name: str
        partition_states: list[StopReplicaRequest.StopReplicaPartitionState]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partition_states: list[StopReplicaRequest.StopReplicaPartitionState] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class StopReplicaPartitionState(Message):
        partition_index: int
        leader_epoch: int
        delete_partition: bool
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            leader_epoch: int = ...,
            delete_partition: bool = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    controller_id: int
    is_k_raft_controller: bool
    controller_epoch: int
    broker_epoch: int
    delete_partitions: bool
    ungrouped_partitions: list[StopReplicaRequest.StopReplicaPartitionV0]
    topics: list[StopReplicaRequest.StopReplicaTopicV1]
    topic_states: list[StopReplicaRequest.StopReplicaTopicState]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        controller_id: int = ...,
        is_k_raft_controller: bool = ...,
        controller_epoch: int = ...,
        broker_epoch: int = ...,
        delete_partitions: bool = ...,
        ungrouped_partitions: list[StopReplicaRequest.StopReplicaPartitionV0] = ...,
        topics: list[StopReplicaRequest.StopReplicaTopicV1] = ...,
        topic_states: list[StopReplicaRequest.StopReplicaTopicState] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StopReplicaResponse(Message):
    class StopReplicaPartitionError(Message):
        topic_name: str
        partition_index: int
        error_code: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partition_index: int = ...,
            error_code: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    error_code: int
    partition_errors: list[StopReplicaResponse.StopReplicaPartitionError]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        error_code: int = ...,
        partition_errors: list[StopReplicaResponse.StopReplicaPartitionError] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class UpdateMetadataRequest(Message):
    class UpdateMetadataPartitionState(Message):
        topic_name: str
        partition_index: int
        controller_epoch: int
        leader: int
        leader_epoch: int
        isr: list[int]
        zk_version: int
        replicas: list[int]
        offline_replicas: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partition_index: int = ...,
            controller_epoch: int = ...,
            leader: int = ...,
            leader_epoch: int = ...,
            isr: list[int] = ...,
            zk_version: int = ...,
            replicas: list[int] = ...,
            offline_replicas: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class UpdateMetadataTopicState(Message):
        topic_name: str
        topic_id: Uuid
        partition_states: list[UpdateMetadataRequest.UpdateMetadataPartitionState]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            topic_id: Uuid = ...,
            partition_states: list[UpdateMetadataRequest.UpdateMetadataPartitionState] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class UpdateMetadataBroker(Message):
        id: int
        v0_host: str
        v0_port: int
        endpoints: list[UpdateMetadataRequest.UpdateMetadataEndpoint]
        rack: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            id: int = ...,
            v0_host: str = ...,
            v0_port: int = ...,
            endpoints: list[UpdateMetadataRequest.UpdateMetadataEndpoint] = ...,
            rack: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class UpdateMetadataEndpoint(Message):
        port: int
        host: str
        listener: str
        security_protocol: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            port: int = ...,
            host: str = ...,
            listener: str = ...,
            security_protocol: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    controller_id: int
    is_k_raft_controller: bool
    type: int
    controller_epoch: int
    broker_epoch: int
    ungrouped_partition_states: list[UpdateMetadataRequest.UpdateMetadataPartitionState]
    topic_states: list[UpdateMetadataRequest.UpdateMetadataTopicState]
    live_brokers: list[UpdateMetadataRequest.UpdateMetadataBroker]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        controller_id: int = ...,
        is_k_raft_controller: bool = ...,
        type: int = ...,
        controller_epoch: int = ...,
        broker_epoch: int = ...,
        ungrouped_partition_states: list[UpdateMetadataRequest.UpdateMetadataPartitionState] = ...,
        topic_states: list[UpdateMetadataRequest.UpdateMetadataTopicState] = ...,
        live_brokers: list[UpdateMetadataRequest.UpdateMetadataBroker] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class UpdateMetadataResponse(Message):
    error_code: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        error_code: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ControlledShutdownRequest(Message):
    broker_id: int
    broker_epoch: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        broker_id: int = ...,
        broker_epoch: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ControlledShutdownResponse(Message):
    class RemainingPartition(Message):
        topic_name: str
        partition_index: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partition_index: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    error_code: int
    remaining_partitions: list[ControlledShutdownResponse.RemainingPartition]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        error_code: int = ...,
        remaining_partitions: list[ControlledShutdownResponse.RemainingPartition] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class OffsetCommitRequest(Message):
    class OffsetCommitRequestTopic(Message):
        name: str
        topic_id: Uuid
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            topic_id: Uuid = ...,
            partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class OffsetCommitRequestPartition(Message):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        committed_metadata: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            committed_metadata: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: list[OffsetCommitRequest.OffsetCommitRequestTopic]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        generation_id_or_member_epoch: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        retention_time_ms: int = ...,
        topics: list[OffsetCommitRequest.OffsetCommitRequestTopic] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class OffsetCommitResponse(Message):
    class OffsetCommitResponseTopic(Message):
        name: str
        topic_id: Uuid
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            topic_id: Uuid = ...,
            partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class OffsetCommitResponsePartition(Message):
        partition_index: int
        error_code: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    topics: list[OffsetCommitResponse.OffsetCommitResponseTopic]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: list[OffsetCommitResponse.OffsetCommitResponseTopic] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class OffsetFetchRequest(Message):
    class OffsetFetchRequestTopic(Message):
        name: str
        partition_indexes: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partition_indexes: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class OffsetFetchRequestGroup(Message):
        group_id: str
        member_id: str | None
        member_epoch: int
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            group_id: str = ...,
            member_id: str | None = ...,
            member_epoch: int = ...,
            topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class OffsetFetchRequestTopics(Message):
        name: str
        topic_id: Uuid
        partition_indexes: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            topic_id: Uuid = ...,
            partition_indexes: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None
    groups: list[OffsetFetchRequest.OffsetFetchRequestGroup]
    require_stable: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None = ...,
        groups: list[OffsetFetchRequest.OffsetFetchRequestGroup] = ...,
        require_stable: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class OffsetFetchResponse(Message):
    class OffsetFetchResponseTopic(Message):
        name: str
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class OffsetFetchResponsePartition(Message):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            metadata: str | None = ...,
            error_code: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class OffsetFetchResponseGroup(Message):
        group_id: str
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics]
        error_code: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            group_id: str = ...,
            topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = ...,
            error_code: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class OffsetFetchResponseTopics(Message):
        name: str
        topic_id: Uuid
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            topic_id: Uuid = ...,
            partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class OffsetFetchResponsePartitions(Message):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        metadata: str | None
        error_code: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            metadata: str | None = ...,
            error_code: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopic]
    error_code: int
    groups: list[OffsetFetchResponse.OffsetFetchResponseGroup]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopic] = ...,
        error_code: int = ...,
        groups: list[OffsetFetchResponse.OffsetFetchResponseGroup] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class FindCoordinatorRequest(Message):
    key: str
    key_type: int
    coordinator_keys: list[str]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        key: str = ...,
        key_type: int = ...,
        coordinator_keys: list[str] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class FindCoordinatorResponse(Message):
    class Coordinator(Message):
        key: str
        node_id: int
        host: str
        port: int
        error_code: int
        error_message: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            key: str = ...,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: list[FindCoordinatorResponse.Coordinator]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        node_id: int = ...,
        host: str = ...,
        port: int = ...,
        coordinators: list[FindCoordinatorResponse.Coordinator] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class JoinGroupRequest(Message):
    class JoinGroupRequestProtocol(Message):
        name: str
        metadata: bytes
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            metadata: bytes = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: list[JoinGroupRequest.JoinGroupRequestProtocol]
    reason: str | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        session_timeout_ms: int = ...,
        rebalance_timeout_ms: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        protocol_type: str = ...,
        protocols: list[JoinGroupRequest.JoinGroupRequestProtocol] = ...,
        reason: str | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class JoinGroupResponse(Message):
    class JoinGroupResponseMember(Message):
        member_id: str
        group_instance_id: str | None
        metadata: bytes
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            metadata: bytes = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: list[JoinGroupResponse.JoinGroupResponseMember]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        generation_id: int = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        leader: str = ...,
        skip_assignment: bool = ...,
        member_id: str = ...,
        members: list[JoinGroupResponse.JoinGroupResponseMember] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class HeartbeatRequest(Message):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        generation_id: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class HeartbeatResponse(Message):
    throttle_time_ms: int
    error_code: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class LeaveGroupRequest(Message):
    class MemberIdentity(Message):
        member_id: str
        group_instance_id: str | None
        reason: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            reason: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str
    member_id: str
    members: list[LeaveGroupRequest.MemberIdentity]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        members: list[LeaveGroupRequest.MemberIdentity] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class LeaveGroupResponse(Message):
    class MemberResponse(Message):
        member_id: str
        group_instance_id: str | None
        error_code: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            error_code: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    members: list[LeaveGroupResponse.MemberResponse]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        members: list[LeaveGroupResponse.MemberResponse] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class SyncGroupRequest(Message):
    class SyncGroupRequestAssignment(Message):
        member_id: str
        assignment: bytes
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            member_id: str = ...,
            assignment: bytes = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: list[SyncGroupRequest.SyncGroupRequestAssignment]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        generation_id: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        assignments: list[SyncGroupRequest.SyncGroupRequestAssignment] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class SyncGroupResponse(Message):
    throttle_time_ms: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        protocol_type: str | None = ...,
        protocol_name: str | None = ...,
        assignment: bytes = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeGroupsRequest(Message):
    groups: list[str]
    include_authorized_operations: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        groups: list[str] = ...,
        include_authorized_operations: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeGroupsResponse(Message):
    class DescribedGroup(Message):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        protocol_type: str
        protocol_data: str
        members: list[DescribeGroupsResponse.DescribedGroupMember]
        authorized_operations: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            protocol_type: str = ...,
            protocol_data: str = ...,
            members: list[DescribeGroupsResponse.DescribedGroupMember] = ...,
            authorized_operations: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class DescribedGroupMember(Message):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        member_metadata: bytes
        member_assignment: bytes
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            client_id: str = ...,
            client_host: str = ...,
            member_metadata: bytes = ...,
            member_assignment: bytes = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    groups: list[DescribeGroupsResponse.DescribedGroup]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: list[DescribeGroupsResponse.DescribedGroup] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ListGroupsRequest(Message):
    states_filter: list[str]
    types_filter: list[str]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        states_filter: list[str] = ...,
        types_filter: list[str] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ListGroupsResponse(Message):
    class ListedGroup(Message):
        group_id: str
        protocol_type: str
        group_state: str
        group_type: str
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            group_id: str = ...,
            protocol_type: str = ...,
            group_state: str = ...,
            group_type: str = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    groups: list[ListGroupsResponse.ListedGroup]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        groups: list[ListGroupsResponse.ListedGroup] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class SaslHandshakeRequest(Message):
    mechanism: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        mechanism: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class SaslHandshakeResponse(Message):
    error_code: int
    mechanisms: list[str]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        error_code: int = ...,
        mechanisms: list[str] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ApiVersionsRequest(Message):
    client_software_name: str
    client_software_version: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        client_software_name: str = ...,
        client_software_version: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ApiVersionsResponse(Message):
    class ApiVersion(Message):
        api_key: int
        min_version: int
        max_version: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            api_key: int = ...,
            min_version: int = ...,
            max_version: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class SupportedFeatureKey(Message):
        name: str
        min_version: int
        max_version: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            min_version: int = ...,
            max_version: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class FinalizedFeatureKey(Message):
        name: str
        max_version_level: int
        min_version_level: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            max_version_level: int = ...,
            min_version_level: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    error_code: int
    api_keys: list[ApiVersionsResponse.ApiVersion]
    throttle_time_ms: int
    supported_features: list[ApiVersionsResponse.SupportedFeatureKey]
    finalized_features_epoch: int
    finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey]
    zk_migration_ready: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        error_code: int = ...,
        api_keys: list[ApiVersionsResponse.ApiVersion] = ...,
        throttle_time_ms: int = ...,
        supported_features: list[ApiVersionsResponse.SupportedFeatureKey] = ...,
        finalized_features_epoch: int = ...,
        finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey] = ...,
        zk_migration_ready: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class CreateTopicsRequest(Message):
    class CreatableTopic(Message):
        name: str
        num_partitions: int
        replication_factor: int
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment]
        configs: list[CreateTopicsRequest.CreatableTopicConfig]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            num_partitions: int = ...,
            replication_factor: int = ...,
            assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = ...,
            configs: list[CreateTopicsRequest.CreatableTopicConfig] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class CreatableReplicaAssignment(Message):
        partition_index: int
        broker_ids: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            broker_ids: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class CreatableTopicConfig(Message):
        name: str
        value: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            value: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    topics: list[CreateTopicsRequest.CreatableTopic]
    timeout_ms: int
    validate_only: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topics: list[CreateTopicsRequest.CreatableTopic] = ...,
        timeout_ms: int = ...,
        validate_only: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class CreateTopicsResponse(Message):
    class CreatableTopicResult(Message):
        name: str
        topic_id: Uuid
        error_code: int
        error_message: str | None
        topic_config_error_code: int
        num_partitions: int
        replication_factor: int
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            topic_id: Uuid = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            topic_config_error_code: int = ...,
            num_partitions: int = ...,
            replication_factor: int = ...,
            configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class CreatableTopicConfigs(Message):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            value: str | None = ...,
            read_only: bool = ...,
            config_source: int = ...,
            is_sensitive: bool = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    topics: list[CreateTopicsResponse.CreatableTopicResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: list[CreateTopicsResponse.CreatableTopicResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DeleteTopicsRequest(Message):
    class DeleteTopicState(Message):
        name: str | None
        topic_id: Uuid
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str | None = ...,
            topic_id: Uuid = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    topics: list[DeleteTopicsRequest.DeleteTopicState]
    topic_names: list[str]
    timeout_ms: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topics: list[DeleteTopicsRequest.DeleteTopicState] = ...,
        topic_names: list[str] = ...,
        timeout_ms: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DeleteTopicsResponse(Message):
    class DeletableTopicResult(Message):
        name: str | None
        topic_id: Uuid
        error_code: int
        error_message: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str | None = ...,
            topic_id: Uuid = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    responses: list[DeleteTopicsResponse.DeletableTopicResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        responses: list[DeleteTopicsResponse.DeletableTopicResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DeleteRecordsRequest(Message):
    class DeleteRecordsTopic(Message):
        name: str
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class DeleteRecordsPartition(Message):
        partition_index: int
        offset: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            offset: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    topics: list[DeleteRecordsRequest.DeleteRecordsTopic]
    timeout_ms: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topics: list[DeleteRecordsRequest.DeleteRecordsTopic] = ...,
        timeout_ms: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DeleteRecordsResponse(Message):
    class DeleteRecordsTopicResult(Message):
        name: str
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class DeleteRecordsPartitionResult(Message):
        partition_index: int
        low_watermark: int
        error_code: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            low_watermark: int = ...,
            error_code: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class InitProducerIdRequest(Message):
    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int
    producer_epoch: int
    enable2_pc: bool
    keep_prepared_txn: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        transactional_id: str | None = ...,
        transaction_timeout_ms: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        enable2_pc: bool = ...,
        keep_prepared_txn: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class InitProducerIdResponse(Message):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int
    ongoing_txn_producer_epoch: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        ongoing_txn_producer_id: int = ...,
        ongoing_txn_producer_epoch: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class OffsetForLeaderEpochRequest(Message):
    class OffsetForLeaderTopic(Message):
        topic: str
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic: str = ...,
            partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class OffsetForLeaderPartition(Message):
        partition: int
        current_leader_epoch: int
        leader_epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition: int = ...,
            current_leader_epoch: int = ...,
            leader_epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    replica_id: int
    topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        replica_id: int = ...,
        topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class OffsetForLeaderEpochResponse(Message):
    class OffsetForLeaderTopicResult(Message):
        topic: str
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic: str = ...,
            partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class EpochEndOffset(Message):
        error_code: int
        partition: int
        leader_epoch: int
        end_offset: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            partition: int = ...,
            leader_epoch: int = ...,
            end_offset: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AddPartitionsToTxnRequest(Message):
    class AddPartitionsToTxnTopic(Message):
        name: str
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class AddPartitionsToTxnTransaction(Message):
        transactional_id: str
        producer_id: int
        producer_epoch: int
        verify_only: bool
        topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            transactional_id: str = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            verify_only: bool = ...,
            topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    transactions: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction]
    v3_and_below_transactional_id: str
    v3_and_below_producer_id: int
    v3_and_below_producer_epoch: int
    v3_and_below_topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        transactions: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction] = ...,
        v3_and_below_transactional_id: str = ...,
        v3_and_below_producer_id: int = ...,
        v3_and_below_producer_epoch: int = ...,
        v3_and_below_topics: list[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AddPartitionsToTxnResponse(Message):
    class AddPartitionsToTxnTopicResult(Message):
        name: str
        results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            results_by_partition: list[AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class AddPartitionsToTxnPartitionResult(Message):
        partition_index: int
        partition_error_code: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            partition_error_code: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class AddPartitionsToTxnResult(Message):
        transactional_id: str
        topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            transactional_id: str = ...,
            topic_results: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    results_by_transaction: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult]
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results_by_transaction: list[AddPartitionsToTxnResponse.AddPartitionsToTxnResult] = ...,
        results_by_topic_v3_and_below: list[AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AddOffsetsToTxnRequest(Message):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        transactional_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        group_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AddOffsetsToTxnResponse(Message):
    throttle_time_ms: int
    error_code: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class EndTxnRequest(Message):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        transactional_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        committed: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class EndTxnResponse(Message):
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class WriteTxnMarkersRequest(Message):
    class WritableTxnMarker(Message):
        producer_id: int
        producer_epoch: int
        transaction_result: bool
        topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic]
        coordinator_epoch: int
        transaction_version: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            producer_id: int = ...,
            producer_epoch: int = ...,
            transaction_result: bool = ...,
            topics: list[WriteTxnMarkersRequest.WritableTxnMarkerTopic] = ...,
            coordinator_epoch: int = ...,
            transaction_version: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class WritableTxnMarkerTopic(Message):
        name: str
        partition_indexes: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partition_indexes: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    markers: list[WriteTxnMarkersRequest.WritableTxnMarker]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        markers: list[WriteTxnMarkersRequest.WritableTxnMarker] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class WriteTxnMarkersResponse(Message):
    class WritableTxnMarkerResult(Message):
        producer_id: int
        topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            producer_id: int = ...,
            topics: list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class WritableTxnMarkerTopicResult(Message):
        name: str
        partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class WritableTxnMarkerPartitionResult(Message):
        partition_index: int
        error_code: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    markers: list[WriteTxnMarkersResponse.WritableTxnMarkerResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        markers: list[WriteTxnMarkersResponse.WritableTxnMarkerResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class TxnOffsetCommitRequest(Message):
    class TxnOffsetCommitRequestTopic(Message):
        name: str
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class TxnOffsetCommitRequestPartition(Message):
        partition_index: int
        committed_offset: int
        committed_leader_epoch: int
        committed_metadata: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            committed_offset: int = ...,
            committed_leader_epoch: int = ...,
            committed_metadata: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        transactional_id: str = ...,
        group_id: str = ...,
        producer_id: int = ...,
        producer_epoch: int = ...,
        generation_id: int = ...,
        member_id: str = ...,
        group_instance_id: str | None = ...,
        topics: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class TxnOffsetCommitResponse(Message):
    class TxnOffsetCommitResponseTopic(Message):
        name: str
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class TxnOffsetCommitResponsePartition(Message):
        partition_index: int
        error_code: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    topics: list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: list[TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeAclsRequest(Message):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        resource_type_filter: int = ...,
        resource_name_filter: str | None = ...,
        pattern_type_filter: int = ...,
        principal_filter: str | None = ...,
        host_filter: str | None = ...,
        operation: int = ...,
        permission_type: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeAclsResponse(Message):
    class DescribeAclsResource(Message):
        resource_type: int
        resource_name: str
        pattern_type: int
        acls: list[DescribeAclsResponse.AclDescription]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            resource_type: int = ...,
            resource_name: str = ...,
            pattern_type: int = ...,
            acls: list[DescribeAclsResponse.AclDescription] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class AclDescription(Message):
        principal: str
        host: str
        operation: int
        permission_type: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            principal: str = ...,
            host: str = ...,
            operation: int = ...,
            permission_type: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: list[DescribeAclsResponse.DescribeAclsResource]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        resources: list[DescribeAclsResponse.DescribeAclsResource] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class CreateAclsRequest(Message):
    class AclCreation(Message):
        resource_type: int
        resource_name: str
        resource_pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            resource_type: int = ...,
            resource_name: str = ...,
            resource_pattern_type: int = ...,
            principal: str = ...,
            host: str = ...,
            operation: int = ...,
            permission_type: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    creations: list[CreateAclsRequest.AclCreation]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        creations: list[CreateAclsRequest.AclCreation] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class CreateAclsResponse(Message):
    class AclCreationResult(Message):
        error_code: int
        error_message: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    results: list[CreateAclsResponse.AclCreationResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: list[CreateAclsResponse.AclCreationResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DeleteAclsRequest(Message):
    class DeleteAclsFilter(Message):
        resource_type_filter: int
        resource_name_filter: str | None
        pattern_type_filter: int
        principal_filter: str | None
        host_filter: str | None
        operation: int
        permission_type: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            resource_type_filter: int = ...,
            resource_name_filter: str | None = ...,
            pattern_type_filter: int = ...,
            principal_filter: str | None = ...,
            host_filter: str | None = ...,
            operation: int = ...,
            permission_type: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    filters: list[DeleteAclsRequest.DeleteAclsFilter]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        filters: list[DeleteAclsRequest.DeleteAclsFilter] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DeleteAclsResponse(Message):
    class DeleteAclsFilterResult(Message):
        error_code: int
        error_message: str | None
        matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            matching_acls: list[DeleteAclsResponse.DeleteAclsMatchingAcl] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class DeleteAclsMatchingAcl(Message):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        pattern_type: int
        principal: str
        host: str
        operation: int
        permission_type: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
            pattern_type: int = ...,
            principal: str = ...,
            host: str = ...,
            operation: int = ...,
            permission_type: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    filter_results: list[DeleteAclsResponse.DeleteAclsFilterResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        filter_results: list[DeleteAclsResponse.DeleteAclsFilterResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeConfigsRequest(Message):
    class DescribeConfigsResource(Message):
        resource_type: int
        resource_name: str
        configuration_keys: list[str] | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            resource_type: int = ...,
            resource_name: str = ...,
            configuration_keys: list[str] | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    resources: list[DescribeConfigsRequest.DescribeConfigsResource]
    include_synonyms: bool
    include_documentation: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        resources: list[DescribeConfigsRequest.DescribeConfigsResource] = ...,
        include_synonyms: bool = ...,
        include_documentation: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeConfigsResponse(Message):
    class DescribeConfigsResult(Message):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
            configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class DescribeConfigsResourceResult(Message):
        name: str
        value: str | None
        read_only: bool
        config_source: int
        is_sensitive: bool
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym]
        config_type: int
        documentation: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            value: str | None = ...,
            read_only: bool = ...,
            config_source: int = ...,
            is_sensitive: bool = ...,
            synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = ...,
            config_type: int = ...,
            documentation: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class DescribeConfigsSynonym(Message):
        name: str
        value: str | None
        source: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            value: str | None = ...,
            source: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    results: list[DescribeConfigsResponse.DescribeConfigsResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: list[DescribeConfigsResponse.DescribeConfigsResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AlterConfigsRequest(Message):
    class AlterConfigsResource(Message):
        resource_type: int
        resource_name: str
        configs: list[AlterConfigsRequest.AlterableConfig]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            resource_type: int = ...,
            resource_name: str = ...,
            configs: list[AlterConfigsRequest.AlterableConfig] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class AlterableConfig(Message):
        name: str
        value: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            value: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    resources: list[AlterConfigsRequest.AlterConfigsResource]
    validate_only: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        resources: list[AlterConfigsRequest.AlterConfigsResource] = ...,
        validate_only: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AlterConfigsResponse(Message):
    class AlterConfigsResourceResponse(Message):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    responses: list[AlterConfigsResponse.AlterConfigsResourceResponse]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        responses: list[AlterConfigsResponse.AlterConfigsResourceResponse] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AlterReplicaLogDirsRequest(Message):
    class AlterReplicaLogDir(Message):
        path: str
        topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            path: str = ...,
            topics: list[AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class AlterReplicaLogDirTopic(Message):
        name: str
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    dirs: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        dirs: list[AlterReplicaLogDirsRequest.AlterReplicaLogDir] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AlterReplicaLogDirsResponse(Message):
    class AlterReplicaLogDirTopicResult(Message):
        topic_name: str
        partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partitions: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class AlterReplicaLogDirPartitionResult(Message):
        partition_index: int
        error_code: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    results: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: list[AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeLogDirsRequest(Message):
    class DescribableLogDirTopic(Message):
        topic: str
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic: str = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeLogDirsResponse(Message):
    class DescribeLogDirsResult(Message):
        error_code: int
        log_dir: str
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic]
        total_bytes: int
        usable_bytes: int
        is_cordoned: bool
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            log_dir: str = ...,
            topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = ...,
            total_bytes: int = ...,
            usable_bytes: int = ...,
            is_cordoned: bool = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class DescribeLogDirsTopic(Message):
        name: str
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class DescribeLogDirsPartition(Message):
        partition_index: int
        partition_size: int
        offset_lag: int
        is_future_key: bool
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            partition_size: int = ...,
            offset_lag: int = ...,
            is_future_key: bool = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    results: list[DescribeLogDirsResponse.DescribeLogDirsResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        results: list[DescribeLogDirsResponse.DescribeLogDirsResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class SaslAuthenticateRequest(Message):
    auth_bytes: bytes
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        auth_bytes: bytes = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class SaslAuthenticateResponse(Message):
    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        error_code: int = ...,
        error_message: str | None = ...,
        auth_bytes: bytes = ...,
        session_lifetime_ms: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class CreatePartitionsRequest(Message):
    class CreatePartitionsTopic(Message):
        name: str
        count: int
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            count: int = ...,
            assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class CreatePartitionsAssignment(Message):
        broker_ids: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            broker_ids: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    topics: list[CreatePartitionsRequest.CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topics: list[CreatePartitionsRequest.CreatePartitionsTopic] = ...,
        timeout_ms: int = ...,
        validate_only: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class CreatePartitionsResponse(Message):
    class CreatePartitionsTopicResult(Message):
        name: str
        error_code: int
        error_message: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    results: list[CreatePartitionsResponse.CreatePartitionsTopicResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: list[CreatePartitionsResponse.CreatePartitionsTopicResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class CreateDelegationTokenRequest(Message):
    class CreatableRenewers(Message):
        principal_type: str
        principal_name: str
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            principal_type: str = ...,
            principal_name: str = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    owner_principal_type: str | None
    owner_principal_name: str | None
    renewers: list[CreateDelegationTokenRequest.CreatableRenewers]
    max_lifetime_ms: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        owner_principal_type: str | None = ...,
        owner_principal_name: str | None = ...,
        renewers: list[CreateDelegationTokenRequest.CreatableRenewers] = ...,
        max_lifetime_ms: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class CreateDelegationTokenResponse(Message):
    error_code: int
    principal_type: str
    principal_name: str
    token_requester_principal_type: str
    token_requester_principal_name: str
    issue_timestamp_ms: int
    expiry_timestamp_ms: int
    max_timestamp_ms: int
    token_id: str
    hmac: bytes
    throttle_time_ms: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        error_code: int = ...,
        principal_type: str = ...,
        principal_name: str = ...,
        token_requester_principal_type: str = ...,
        token_requester_principal_name: str = ...,
        issue_timestamp_ms: int = ...,
        expiry_timestamp_ms: int = ...,
        max_timestamp_ms: int = ...,
        token_id: str = ...,
        hmac: bytes = ...,
        throttle_time_ms: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class RenewDelegationTokenRequest(Message):
    hmac: bytes
    renew_period_ms: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        hmac: bytes = ...,
        renew_period_ms: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class RenewDelegationTokenResponse(Message):
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        error_code: int = ...,
        expiry_timestamp_ms: int = ...,
        throttle_time_ms: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ExpireDelegationTokenRequest(Message):
    hmac: bytes
    expiry_time_period_ms: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        hmac: bytes = ...,
        expiry_time_period_ms: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ExpireDelegationTokenResponse(Message):
    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        error_code: int = ...,
        expiry_timestamp_ms: int = ...,
        throttle_time_ms: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeDelegationTokenRequest(Message):
    class DescribeDelegationTokenOwner(Message):
        principal_type: str
        principal_name: str
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            principal_type: str = ...,
            principal_name: str = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    owners: list[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        owners: list[DescribeDelegationTokenRequest.DescribeDelegationTokenOwner] | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeDelegationTokenResponse(Message):
    class DescribedDelegationToken(Message):
        principal_type: str
        principal_name: str
        token_requester_principal_type: str
        token_requester_principal_name: str
        issue_timestamp: int
        expiry_timestamp: int
        max_timestamp: int
        token_id: str
        hmac: bytes
        renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            principal_type: str = ...,
            principal_name: str = ...,
            token_requester_principal_type: str = ...,
            token_requester_principal_name: str = ...,
            issue_timestamp: int = ...,
            expiry_timestamp: int = ...,
            max_timestamp: int = ...,
            token_id: str = ...,
            hmac: bytes = ...,
            renewers: list[DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class DescribedDelegationTokenRenewer(Message):
        principal_type: str
        principal_name: str
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            principal_type: str = ...,
            principal_name: str = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    error_code: int
    tokens: list[DescribeDelegationTokenResponse.DescribedDelegationToken]
    throttle_time_ms: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        error_code: int = ...,
        tokens: list[DescribeDelegationTokenResponse.DescribedDelegationToken] = ...,
        throttle_time_ms: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DeleteGroupsRequest(Message):
    groups_names: list[str]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        groups_names: list[str] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DeleteGroupsResponse(Message):
    class DeletableGroupResult(Message):
        group_id: str
        error_code: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            group_id: str = ...,
            error_code: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    results: list[DeleteGroupsResponse.DeletableGroupResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: list[DeleteGroupsResponse.DeletableGroupResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ElectLeadersRequest(Message):
    class TopicPartitions(Message):
        topic: str
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic: str = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    election_type: int
    topic_partitions: list[ElectLeadersRequest.TopicPartitions] | None
    timeout_ms: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        election_type: int = ...,
        topic_partitions: list[ElectLeadersRequest.TopicPartitions] | None = ...,
        timeout_ms: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ElectLeadersResponse(Message):
    class ReplicaElectionResult(Message):
        topic: str
        partition_result: list[ElectLeadersResponse.PartitionResult]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic: str = ...,
            partition_result: list[ElectLeadersResponse.PartitionResult] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionResult(Message):
        partition_id: int
        error_code: int
        error_message: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_id: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    replica_election_results: list[ElectLeadersResponse.ReplicaElectionResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        replica_election_results: list[ElectLeadersResponse.ReplicaElectionResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class IncrementalAlterConfigsRequest(Message):
    class AlterConfigsResource(Message):
        resource_type: int
        resource_name: str
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            resource_type: int = ...,
            resource_name: str = ...,
            configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class AlterableConfig(Message):
        name: str
        config_operation: int
        value: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            config_operation: int = ...,
            value: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource]
    validate_only: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource] = ...,
        validate_only: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class IncrementalAlterConfigsResponse(Message):
    class AlterConfigsResourceResponse(Message):
        error_code: int
        error_message: str | None
        resource_type: int
        resource_name: str
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            resource_type: int = ...,
            resource_name: str = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AlterPartitionReassignmentsRequest(Message):
    class ReassignableTopic(Message):
        name: str
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class ReassignablePartition(Message):
        partition_index: int
        replicas: list[int] | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            replicas: list[int] | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    timeout_ms: int
    allow_replication_factor_change: bool
    topics: list[AlterPartitionReassignmentsRequest.ReassignableTopic]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        timeout_ms: int = ...,
        allow_replication_factor_change: bool = ...,
        topics: list[AlterPartitionReassignmentsRequest.ReassignableTopic] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AlterPartitionReassignmentsResponse(Message):
    class ReassignableTopicResponse(Message):
        name: str
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class ReassignablePartitionResponse(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: list[AlterPartitionReassignmentsResponse.ReassignableTopicResponse]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        allow_replication_factor_change: bool = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: list[AlterPartitionReassignmentsResponse.ReassignableTopicResponse] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ListPartitionReassignmentsRequest(Message):
    class ListPartitionReassignmentsTopics(Message):
        name: str
        partition_indexes: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partition_indexes: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    timeout_ms: int
    topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        timeout_ms: int = ...,
        topics: list[ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics] | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ListPartitionReassignmentsResponse(Message):
    class OngoingTopicReassignment(Message):
        name: str
        partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[ListPartitionReassignmentsResponse.OngoingPartitionReassignment] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class OngoingPartitionReassignment(Message):
        partition_index: int
        replicas: list[int]
        adding_replicas: list[int]
        removing_replicas: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            replicas: list[int] = ...,
            adding_replicas: list[int] = ...,
            removing_replicas: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: list[ListPartitionReassignmentsResponse.OngoingTopicReassignment]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        topics: list[ListPartitionReassignmentsResponse.OngoingTopicReassignment] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class OffsetDeleteRequest(Message):
    class OffsetDeleteRequestTopic(Message):
        name: str
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class OffsetDeleteRequestPartition(Message):
        partition_index: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str
    topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class OffsetDeleteResponse(Message):
    class OffsetDeleteResponseTopic(Message):
        name: str
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class OffsetDeleteResponsePartition(Message):
        partition_index: int
        error_code: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    error_code: int
    throttle_time_ms: int
    topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        error_code: int = ...,
        throttle_time_ms: int = ...,
        topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeClientQuotasRequest(Message):
    class ComponentData(Message):
        entity_type: str
        match_type: int
        match: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            entity_type: str = ...,
            match_type: int = ...,
            match: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    components: list[DescribeClientQuotasRequest.ComponentData]
    strict: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        components: list[DescribeClientQuotasRequest.ComponentData] = ...,
        strict: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeClientQuotasResponse(Message):
    class EntryData(Message):
        entity: list[DescribeClientQuotasResponse.EntityData]
        values: list[DescribeClientQuotasResponse.ValueData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            entity: list[DescribeClientQuotasResponse.EntityData] = ...,
            values: list[DescribeClientQuotasResponse.ValueData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class EntityData(Message):
        entity_type: str
        entity_name: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            entity_type: str = ...,
            entity_name: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class ValueData(Message):
        key: str
        value: float
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            key: str = ...,
            value: float = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    entries: list[DescribeClientQuotasResponse.EntryData] | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        entries: list[DescribeClientQuotasResponse.EntryData] | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AlterClientQuotasRequest(Message):
    class EntryData(Message):
        entity: list[AlterClientQuotasRequest.EntityData]
        ops: list[AlterClientQuotasRequest.OpData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            entity: list[AlterClientQuotasRequest.EntityData] = ...,
            ops: list[AlterClientQuotasRequest.OpData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class EntityData(Message):
        entity_type: str
        entity_name: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            entity_type: str = ...,
            entity_name: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class OpData(Message):
        key: str
        value: float
        remove: bool
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            key: str = ...,
            value: float = ...,
            remove: bool = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    entries: list[AlterClientQuotasRequest.EntryData]
    validate_only: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        entries: list[AlterClientQuotasRequest.EntryData] = ...,
        validate_only: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AlterClientQuotasResponse(Message):
    class EntryData(Message):
        error_code: int
        error_message: str | None
        entity: list[AlterClientQuotasResponse.EntityData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            entity: list[AlterClientQuotasResponse.EntityData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class EntityData(Message):
        entity_type: str
        entity_name: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            entity_type: str = ...,
            entity_name: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    entries: list[AlterClientQuotasResponse.EntryData]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        entries: list[AlterClientQuotasResponse.EntryData] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeUserScramCredentialsRequest(Message):
    class UserName(Message):
        name: str
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    users: list[DescribeUserScramCredentialsRequest.UserName] | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        users: list[DescribeUserScramCredentialsRequest.UserName] | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeUserScramCredentialsResponse(Message):
    class DescribeUserScramCredentialsResult(Message):
        user: str
        error_code: int
        error_message: str | None
        credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            user: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            credential_infos: list[DescribeUserScramCredentialsResponse.CredentialInfo] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class CredentialInfo(Message):
        mechanism: int
        iterations: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            mechanism: int = ...,
            iterations: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        results: list[DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AlterUserScramCredentialsRequest(Message):
    class ScramCredentialDeletion(Message):
        name: str
        mechanism: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            mechanism: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class ScramCredentialUpsertion(Message):
        name: str
        mechanism: int
        iterations: int
        salt: bytes
        salted_password: bytes
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            mechanism: int = ...,
            iterations: int = ...,
            salt: bytes = ...,
            salted_password: bytes = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    deletions: list[AlterUserScramCredentialsRequest.ScramCredentialDeletion]
    upsertions: list[AlterUserScramCredentialsRequest.ScramCredentialUpsertion]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        deletions: list[AlterUserScramCredentialsRequest.ScramCredentialDeletion] = ...,
        upsertions: list[AlterUserScramCredentialsRequest.ScramCredentialUpsertion] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AlterUserScramCredentialsResponse(Message):
    class AlterUserScramCredentialsResult(Message):
        user: str
        error_code: int
        error_message: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            user: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    results: list[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        results: list[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class VoteRequest(Message):
    class TopicData(Message):
        topic_name: str
        partitions: list[VoteRequest.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partitions: list[VoteRequest.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition_index: int
        replica_epoch: int
        replica_id: int
        replica_directory_id: Uuid
        voter_directory_id: Uuid
        last_offset_epoch: int
        last_offset: int
        pre_vote: bool
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            replica_epoch: int = ...,
            replica_id: int = ...,
            replica_directory_id: Uuid = ...,
            voter_directory_id: Uuid = ...,
            last_offset_epoch: int = ...,
            last_offset: int = ...,
            pre_vote: bool = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    cluster_id: str | None
    voter_id: int
    topics: list[VoteRequest.TopicData]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        cluster_id: str | None = ...,
        voter_id: int = ...,
        topics: list[VoteRequest.TopicData] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class VoteResponse(Message):
    class TopicData(Message):
        topic_name: str
        partitions: list[VoteResponse.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partitions: list[VoteResponse.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        vote_granted: bool
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            vote_granted: bool = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    error_code: int
    topics: list[VoteResponse.TopicData]
    node_endpoints: list[VoteResponse.NodeEndpoint]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        error_code: int = ...,
        topics: list[VoteResponse.TopicData] = ...,
        node_endpoints: list[VoteResponse.NodeEndpoint] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class BeginQuorumEpochRequest(Message):
    class TopicData(Message):
        topic_name: str
        partitions: list[BeginQuorumEpochRequest.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partitions: list[BeginQuorumEpochRequest.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition_index: int
        voter_directory_id: Uuid
        leader_id: int
        leader_epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            voter_directory_id: Uuid = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class LeaderEndpoint(Message):
        name: str
        host: str
        port: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            host: str = ...,
            port: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    cluster_id: str | None
    voter_id: int
    topics: list[BeginQuorumEpochRequest.TopicData]
    leader_endpoints: list[BeginQuorumEpochRequest.LeaderEndpoint]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        cluster_id: str | None = ...,
        voter_id: int = ...,
        topics: list[BeginQuorumEpochRequest.TopicData] = ...,
        leader_endpoints: list[BeginQuorumEpochRequest.LeaderEndpoint] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class BeginQuorumEpochResponse(Message):
    class TopicData(Message):
        topic_name: str
        partitions: list[BeginQuorumEpochResponse.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partitions: list[BeginQuorumEpochResponse.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    error_code: int
    topics: list[BeginQuorumEpochResponse.TopicData]
    node_endpoints: list[BeginQuorumEpochResponse.NodeEndpoint]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        error_code: int = ...,
        topics: list[BeginQuorumEpochResponse.TopicData] = ...,
        node_endpoints: list[BeginQuorumEpochResponse.NodeEndpoint] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class EndQuorumEpochRequest(Message):
    class TopicData(Message):
        topic_name: str
        partitions: list[EndQuorumEpochRequest.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partitions: list[EndQuorumEpochRequest.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition_index: int
        leader_id: int
        leader_epoch: int
        preferred_successors: list[int]
        preferred_candidates: list[EndQuorumEpochRequest.ReplicaInfo]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            preferred_successors: list[int] = ...,
            preferred_candidates: list[EndQuorumEpochRequest.ReplicaInfo] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class ReplicaInfo(Message):
        candidate_id: int
        candidate_directory_id: Uuid
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            candidate_id: int = ...,
            candidate_directory_id: Uuid = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class LeaderEndpoint(Message):
        name: str
        host: str
        port: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            host: str = ...,
            port: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    cluster_id: str | None
    topics: list[EndQuorumEpochRequest.TopicData]
    leader_endpoints: list[EndQuorumEpochRequest.LeaderEndpoint]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        cluster_id: str | None = ...,
        topics: list[EndQuorumEpochRequest.TopicData] = ...,
        leader_endpoints: list[EndQuorumEpochRequest.LeaderEndpoint] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class EndQuorumEpochResponse(Message):
    class TopicData(Message):
        topic_name: str
        partitions: list[EndQuorumEpochResponse.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partitions: list[EndQuorumEpochResponse.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    error_code: int
    topics: list[EndQuorumEpochResponse.TopicData]
    node_endpoints: list[EndQuorumEpochResponse.NodeEndpoint]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        error_code: int = ...,
        topics: list[EndQuorumEpochResponse.TopicData] = ...,
        node_endpoints: list[EndQuorumEpochResponse.NodeEndpoint] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeQuorumRequest(Message):
    class TopicData(Message):
        topic_name: str
        partitions: list[DescribeQuorumRequest.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partitions: list[DescribeQuorumRequest.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition_index: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    topics: list[DescribeQuorumRequest.TopicData]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topics: list[DescribeQuorumRequest.TopicData] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeQuorumResponse(Message):
    class ReplicaState(Message):
        replica_id: int
        replica_directory_id: Uuid
        log_end_offset: int
        last_fetch_timestamp: int
        last_caught_up_timestamp: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            replica_id: int = ...,
            replica_directory_id: Uuid = ...,
            log_end_offset: int = ...,
            last_fetch_timestamp: int = ...,
            last_caught_up_timestamp: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class TopicData(Message):
        topic_name: str
        partitions: list[DescribeQuorumResponse.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partitions: list[DescribeQuorumResponse.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        leader_id: int
        leader_epoch: int
        high_watermark: int
        current_voters: list[DescribeQuorumResponse.ReplicaState]
        observers: list[DescribeQuorumResponse.ReplicaState]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            high_watermark: int = ...,
            current_voters: list[DescribeQuorumResponse.ReplicaState] = ...,
            observers: list[DescribeQuorumResponse.ReplicaState] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Node(Message):
        node_id: int
        listeners: list[DescribeQuorumResponse.Listener]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            node_id: int = ...,
            listeners: list[DescribeQuorumResponse.Listener] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Listener(Message):
        name: str
        host: str
        port: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            host: str = ...,
            port: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    error_code: int
    error_message: str | None
    topics: list[DescribeQuorumResponse.TopicData]
    nodes: list[DescribeQuorumResponse.Node]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        error_code: int = ...,
        error_message: str | None = ...,
        topics: list[DescribeQuorumResponse.TopicData] = ...,
        nodes: list[DescribeQuorumResponse.Node] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AlterPartitionRequest(Message):
    class TopicData(Message):
        topic_id: Uuid
        partitions: list[AlterPartitionRequest.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[AlterPartitionRequest.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition_index: int
        leader_epoch: int
        new_isr: list[int]
        new_isr_with_epochs: list[AlterPartitionRequest.BrokerState]
        leader_recovery_state: int
        partition_epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            leader_epoch: int = ...,
            new_isr: list[int] = ...,
            new_isr_with_epochs: list[AlterPartitionRequest.BrokerState] = ...,
            leader_recovery_state: int = ...,
            partition_epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class BrokerState(Message):
        broker_id: int
        broker_epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            broker_id: int = ...,
            broker_epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    broker_id: int
    broker_epoch: int
    topics: list[AlterPartitionRequest.TopicData]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        broker_id: int = ...,
        broker_epoch: int = ...,
        topics: list[AlterPartitionRequest.TopicData] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AlterPartitionResponse(Message):
    class TopicData(Message):
        topic_id: Uuid
        partitions: list[AlterPartitionResponse.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[AlterPartitionResponse.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition_index: int
        error_code: int
        leader_id: int
        leader_epoch: int
        isr: list[int]
        leader_recovery_state: int
        partition_epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            isr: list[int] = ...,
            leader_recovery_state: int = ...,
            partition_epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    topics: list[AlterPartitionResponse.TopicData]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        topics: list[AlterPartitionResponse.TopicData] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class UpdateFeaturesRequest(Message):
    class FeatureUpdateKey(Message):
        feature: str
        max_version_level: int
        allow_downgrade: bool
        upgrade_type: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            feature: str = ...,
            max_version_level: int = ...,
            allow_downgrade: bool = ...,
            upgrade_type: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    timeout_ms: int
    feature_updates: list[UpdateFeaturesRequest.FeatureUpdateKey]
    validate_only: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        timeout_ms: int = ...,
        feature_updates: list[UpdateFeaturesRequest.FeatureUpdateKey] = ...,
        validate_only: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class UpdateFeaturesResponse(Message):
    class UpdatableFeatureResult(Message):
        feature: str
        error_code: int
        error_message: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            feature: str = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    results: list[UpdateFeaturesResponse.UpdatableFeatureResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        results: list[UpdateFeaturesResponse.UpdatableFeatureResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class EnvelopeRequest(Message):
    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        request_data: bytes = ...,
        request_principal: bytes | None = ...,
        client_host_address: bytes = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class EnvelopeResponse(Message):
    response_data: bytes | None
    error_code: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        response_data: bytes | None = ...,
        error_code: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class FetchSnapshotRequest(Message):
    class TopicSnapshot(Message):
        name: str
        partitions: list[FetchSnapshotRequest.PartitionSnapshot]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[FetchSnapshotRequest.PartitionSnapshot] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionSnapshot(Message):
        partition: int
        current_leader_epoch: int
        snapshot_id: FetchSnapshotRequest.SnapshotId
        position: int
        replica_directory_id: Uuid
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition: int = ...,
            current_leader_epoch: int = ...,
            snapshot_id: FetchSnapshotRequest.SnapshotId = ...,
            position: int = ...,
            replica_directory_id: Uuid = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class SnapshotId(Message):
        end_offset: int
        epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            end_offset: int = ...,
            epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    cluster_id: str | None
    replica_id: int
    max_bytes: int
    topics: list[FetchSnapshotRequest.TopicSnapshot]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        cluster_id: str | None = ...,
        replica_id: int = ...,
        max_bytes: int = ...,
        topics: list[FetchSnapshotRequest.TopicSnapshot] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class FetchSnapshotResponse(Message):
    class TopicSnapshot(Message):
        name: str
        partitions: list[FetchSnapshotResponse.PartitionSnapshot]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[FetchSnapshotResponse.PartitionSnapshot] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionSnapshot(Message):
        index: int
        error_code: int
        snapshot_id: FetchSnapshotResponse.SnapshotId
        current_leader: FetchSnapshotResponse.LeaderIdAndEpoch | None
        size: int
        position: int
        unaligned_records: Buffer | FileSlice | list[Buffer | FileSlice] | list[Buffer] | list[FileSlice]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            index: int = ...,
            error_code: int = ...,
            snapshot_id: FetchSnapshotResponse.SnapshotId = ...,
            current_leader: FetchSnapshotResponse.LeaderIdAndEpoch | None = ...,
            size: int = ...,
            position: int = ...,
            unaligned_records: Buffer | FileSlice | list[Buffer | FileSlice] | list[Buffer] | list[FileSlice] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class SnapshotId(Message):
        end_offset: int
        epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            end_offset: int = ...,
            epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class LeaderIdAndEpoch(Message):
        leader_id: int
        leader_epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            leader_id: int = ...,
            leader_epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    topics: list[FetchSnapshotResponse.TopicSnapshot]
    node_endpoints: list[FetchSnapshotResponse.NodeEndpoint]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        topics: list[FetchSnapshotResponse.TopicSnapshot] = ...,
        node_endpoints: list[FetchSnapshotResponse.NodeEndpoint] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeClusterRequest(Message):
    include_cluster_authorized_operations: bool
    endpoint_type: int
    include_fenced_brokers: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        include_cluster_authorized_operations: bool = ...,
        endpoint_type: int = ...,
        include_fenced_brokers: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeClusterResponse(Message):
    class DescribeClusterBroker(Message):
        broker_id: int
        host: str
        port: int
        rack: str | None
        is_fenced: bool
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            broker_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            is_fenced: bool = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    endpoint_type: int
    cluster_id: str
    controller_id: int
    brokers: list[DescribeClusterResponse.DescribeClusterBroker]
    cluster_authorized_operations: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        endpoint_type: int = ...,
        cluster_id: str = ...,
        controller_id: int = ...,
        brokers: list[DescribeClusterResponse.DescribeClusterBroker] = ...,
        cluster_authorized_operations: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeProducersRequest(Message):
    class TopicRequest(Message):
        name: str
        partition_indexes: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partition_indexes: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    topics: list[DescribeProducersRequest.TopicRequest]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topics: list[DescribeProducersRequest.TopicRequest] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeProducersResponse(Message):
    class TopicResponse(Message):
        name: str
        partitions: list[DescribeProducersResponse.PartitionResponse]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: list[DescribeProducersResponse.PartitionResponse] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionResponse(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        active_producers: list[DescribeProducersResponse.ProducerState]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            active_producers: list[DescribeProducersResponse.ProducerState] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class ProducerState(Message):
        producer_id: int
        producer_epoch: int
        last_sequence: int
        last_timestamp: int
        coordinator_epoch: int
        current_txn_start_offset: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            producer_id: int = ...,
            producer_epoch: int = ...,
            last_sequence: int = ...,
            last_timestamp: int = ...,
            coordinator_epoch: int = ...,
            current_txn_start_offset: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    topics: list[DescribeProducersResponse.TopicResponse]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: list[DescribeProducersResponse.TopicResponse] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class BrokerRegistrationRequest(Message):
    class Listener(Message):
        name: str
        host: str
        port: int
        security_protocol: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            host: str = ...,
            port: int = ...,
            security_protocol: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Feature(Message):
        name: str
        min_supported_version: int
        max_supported_version: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            min_supported_version: int = ...,
            max_supported_version: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    broker_id: int
    cluster_id: str
    incarnation_id: Uuid
    listeners: list[BrokerRegistrationRequest.Listener]
    features: list[BrokerRegistrationRequest.Feature]
    rack: str | None
    is_migrating_zk_broker: bool
    log_dirs: list[Uuid]
    previous_broker_epoch: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        broker_id: int = ...,
        cluster_id: str = ...,
        incarnation_id: Uuid = ...,
        listeners: list[BrokerRegistrationRequest.Listener] = ...,
        features: list[BrokerRegistrationRequest.Feature] = ...,
        rack: str | None = ...,
        is_migrating_zk_broker: bool = ...,
        log_dirs: list[Uuid] = ...,
        previous_broker_epoch: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class BrokerRegistrationResponse(Message):
    throttle_time_ms: int
    error_code: int
    broker_epoch: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        broker_epoch: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class BrokerHeartbeatRequest(Message):
    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: list[Uuid]
    cordoned_log_dirs: list[Uuid] | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        broker_id: int = ...,
        broker_epoch: int = ...,
        current_metadata_offset: int = ...,
        want_fence: bool = ...,
        want_shut_down: bool = ...,
        offline_log_dirs: list[Uuid] = ...,
        cordoned_log_dirs: list[Uuid] | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class BrokerHeartbeatResponse(Message):
    throttle_time_ms: int
    error_code: int
    is_caught_up: bool
    is_fenced: bool
    should_shut_down: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        is_caught_up: bool = ...,
        is_fenced: bool = ...,
        should_shut_down: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class UnregisterBrokerRequest(Message):
    broker_id: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        broker_id: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class UnregisterBrokerResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeTransactionsRequest(Message):
    transactional_ids: list[str]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        transactional_ids: list[str] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeTransactionsResponse(Message):
    class TransactionState(Message):
        error_code: int
        transactional_id: str
        transaction_state: str
        transaction_timeout_ms: int
        transaction_start_time_ms: int
        producer_id: int
        producer_epoch: int
        topics: list[DescribeTransactionsResponse.TopicData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            transactional_id: str = ...,
            transaction_state: str = ...,
            transaction_timeout_ms: int = ...,
            transaction_start_time_ms: int = ...,
            producer_id: int = ...,
            producer_epoch: int = ...,
            topics: list[DescribeTransactionsResponse.TopicData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class TopicData(Message):
        topic: str
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic: str = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    transaction_states: list[DescribeTransactionsResponse.TransactionState]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        transaction_states: list[DescribeTransactionsResponse.TransactionState] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ListTransactionsRequest(Message):
    state_filters: list[str]
    producer_id_filters: list[int]
    duration_filter: int
    transactional_id_pattern: str | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        state_filters: list[str] = ...,
        producer_id_filters: list[int] = ...,
        duration_filter: int = ...,
        transactional_id_pattern: str | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ListTransactionsResponse(Message):
    class TransactionState(Message):
        transactional_id: str
        producer_id: int
        transaction_state: str
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            transactional_id: str = ...,
            producer_id: int = ...,
            transaction_state: str = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    unknown_state_filters: list[str]
    transaction_states: list[ListTransactionsResponse.TransactionState]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        unknown_state_filters: list[str] = ...,
        transaction_states: list[ListTransactionsResponse.TransactionState] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AllocateProducerIdsRequest(Message):
    broker_id: int
    broker_epoch: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        broker_id: int = ...,
        broker_epoch: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AllocateProducerIdsResponse(Message):
    throttle_time_ms: int
    error_code: int
    producer_id_start: int
    producer_id_len: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        producer_id_start: int = ...,
        producer_id_len: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupHeartbeatRequest(Message):
    class TopicPartitions(Message):
        topic_id: Uuid
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: list[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        rebalance_timeout_ms: int = ...,
        subscribed_topic_names: list[str] | None = ...,
        subscribed_topic_regex: str | None = ...,
        server_assignor: str | None = ...,
        topic_partitions: list[ConsumerGroupHeartbeatRequest.TopicPartitions] | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupHeartbeatResponse(Message):
    class TopicPartitions(Message):
        topic_id: Uuid
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Assignment(Message):
        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ConsumerGroupHeartbeatResponse.Assignment | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: ConsumerGroupHeartbeatResponse.Assignment | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupDescribeRequest(Message):
    group_ids: list[str]
    include_authorized_operations: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_ids: list[str] = ...,
        include_authorized_operations: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupDescribeResponse(Message):
    class TopicPartitions(Message):
        topic_id: Uuid
        topic_name: str
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            topic_name: str = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Assignment(Message):
        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class DescribedGroup(Message):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: list[ConsumerGroupDescribeResponse.Member]
        authorized_operations: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            group_epoch: int = ...,
            assignment_epoch: int = ...,
            assignor_name: str = ...,
            members: list[ConsumerGroupDescribeResponse.Member] = ...,
            authorized_operations: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Member(Message):
        member_id: str
        instance_id: str | None
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: list[str]
        subscribed_topic_regex: str | None
        assignment: ConsumerGroupDescribeResponse.Assignment
        target_assignment: ConsumerGroupDescribeResponse.Assignment
        member_type: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            member_id: str = ...,
            instance_id: str | None = ...,
            rack_id: str | None = ...,
            member_epoch: int = ...,
            client_id: str = ...,
            client_host: str = ...,
            subscribed_topic_names: list[str] = ...,
            subscribed_topic_regex: str | None = ...,
            assignment: ConsumerGroupDescribeResponse.Assignment = ...,
            target_assignment: ConsumerGroupDescribeResponse.Assignment = ...,
            member_type: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    groups: list[ConsumerGroupDescribeResponse.DescribedGroup]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: list[ConsumerGroupDescribeResponse.DescribedGroup] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ControllerRegistrationRequest(Message):
    class Listener(Message):
        name: str
        host: str
        port: int
        security_protocol: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            host: str = ...,
            port: int = ...,
            security_protocol: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Feature(Message):
        name: str
        min_supported_version: int
        max_supported_version: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            min_supported_version: int = ...,
            max_supported_version: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    controller_id: int
    incarnation_id: Uuid
    zk_migration_ready: bool
    listeners: list[ControllerRegistrationRequest.Listener]
    features: list[ControllerRegistrationRequest.Feature]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        controller_id: int = ...,
        incarnation_id: Uuid = ...,
        zk_migration_ready: bool = ...,
        listeners: list[ControllerRegistrationRequest.Listener] = ...,
        features: list[ControllerRegistrationRequest.Feature] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ControllerRegistrationResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class GetTelemetrySubscriptionsRequest(Message):
    client_instance_id: Uuid
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        client_instance_id: Uuid = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class GetTelemetrySubscriptionsResponse(Message):
    throttle_time_ms: int
    error_code: int
    client_instance_id: Uuid
    subscription_id: int
    accepted_compression_types: list[int]
    push_interval_ms: int
    telemetry_max_bytes: int
    delta_temporality: bool
    requested_metrics: list[str]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        client_instance_id: Uuid = ...,
        subscription_id: int = ...,
        accepted_compression_types: list[int] = ...,
        push_interval_ms: int = ...,
        telemetry_max_bytes: int = ...,
        delta_temporality: bool = ...,
        requested_metrics: list[str] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class PushTelemetryRequest(Message):
    client_instance_id: Uuid
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        client_instance_id: Uuid = ...,
        subscription_id: int = ...,
        terminating: bool = ...,
        compression_type: int = ...,
        metrics: bytes = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class PushTelemetryResponse(Message):
    throttle_time_ms: int
    error_code: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AssignReplicasToDirsRequest(Message):
    class DirectoryData(Message):
        id: Uuid
        topics: list[AssignReplicasToDirsRequest.TopicData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            id: Uuid = ...,
            topics: list[AssignReplicasToDirsRequest.TopicData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class TopicData(Message):
        topic_id: Uuid
        partitions: list[AssignReplicasToDirsRequest.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[AssignReplicasToDirsRequest.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition_index: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    broker_id: int
    broker_epoch: int
    directories: list[AssignReplicasToDirsRequest.DirectoryData]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        broker_id: int = ...,
        broker_epoch: int = ...,
        directories: list[AssignReplicasToDirsRequest.DirectoryData] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AssignReplicasToDirsResponse(Message):
    class DirectoryData(Message):
        id: Uuid
        topics: list[AssignReplicasToDirsResponse.TopicData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            id: Uuid = ...,
            topics: list[AssignReplicasToDirsResponse.TopicData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class TopicData(Message):
        topic_id: Uuid
        partitions: list[AssignReplicasToDirsResponse.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[AssignReplicasToDirsResponse.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition_index: int
        error_code: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    directories: list[AssignReplicasToDirsResponse.DirectoryData]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        directories: list[AssignReplicasToDirsResponse.DirectoryData] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ListConfigResourcesRequest(Message):
    resource_types: list[int]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        resource_types: list[int] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ListConfigResourcesResponse(Message):
    class ConfigResource(Message):
        resource_name: str
        resource_type: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            resource_name: str = ...,
            resource_type: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    config_resources: list[ListConfigResourcesResponse.ConfigResource]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        config_resources: list[ListConfigResourcesResponse.ConfigResource] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeTopicPartitionsRequest(Message):
    class TopicRequest(Message):
        name: str
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Cursor(Message):
        topic_name: str
        partition_index: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partition_index: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    topics: list[DescribeTopicPartitionsRequest.TopicRequest]
    response_partition_limit: int
    cursor: DescribeTopicPartitionsRequest.Cursor | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topics: list[DescribeTopicPartitionsRequest.TopicRequest] = ...,
        response_partition_limit: int = ...,
        cursor: DescribeTopicPartitionsRequest.Cursor | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeTopicPartitionsResponse(Message):
    class DescribeTopicPartitionsResponseTopic(Message):
        error_code: int
        name: str | None
        topic_id: Uuid
        is_internal: bool
        partitions: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition]
        topic_authorized_operations: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            name: str | None = ...,
            topic_id: Uuid = ...,
            is_internal: bool = ...,
            partitions: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition] = ...,
            topic_authorized_operations: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class DescribeTopicPartitionsResponsePartition(Message):
        error_code: int
        partition_index: int
        leader_id: int
        leader_epoch: int
        replica_nodes: list[int]
        isr_nodes: list[int]
        eligible_leader_replicas: list[int] | None
        last_known_elr: list[int] | None
        offline_replicas: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            partition_index: int = ...,
            leader_id: int = ...,
            leader_epoch: int = ...,
            replica_nodes: list[int] = ...,
            isr_nodes: list[int] = ...,
            eligible_leader_replicas: list[int] | None = ...,
            last_known_elr: list[int] | None = ...,
            offline_replicas: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Cursor(Message):
        topic_name: str
        partition_index: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partition_index: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    topics: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic]
    next_cursor: DescribeTopicPartitionsResponse.Cursor | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        topics: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic] = ...,
        next_cursor: DescribeTopicPartitionsResponse.Cursor | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareGroupHeartbeatRequest(Message):
    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: list[str] | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        rack_id: str | None = ...,
        subscribed_topic_names: list[str] | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareGroupHeartbeatResponse(Message):
    class TopicPartitions(Message):
        topic_id: Uuid
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Assignment(Message):
        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: ShareGroupHeartbeatResponse.Assignment | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str | None = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        assignment: ShareGroupHeartbeatResponse.Assignment | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareGroupDescribeRequest(Message):
    group_ids: list[str]
    include_authorized_operations: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_ids: list[str] = ...,
        include_authorized_operations: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareGroupDescribeResponse(Message):
    class TopicPartitions(Message):
        topic_id: Uuid
        topic_name: str
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            topic_name: str = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Assignment(Message):
        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class DescribedGroup(Message):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        assignor_name: str
        members: list[ShareGroupDescribeResponse.Member]
        authorized_operations: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            group_epoch: int = ...,
            assignment_epoch: int = ...,
            assignor_name: str = ...,
            members: list[ShareGroupDescribeResponse.Member] = ...,
            authorized_operations: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Member(Message):
        member_id: str
        rack_id: str | None
        member_epoch: int
        client_id: str
        client_host: str
        subscribed_topic_names: list[str]
        assignment: ShareGroupDescribeResponse.Assignment
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            member_id: str = ...,
            rack_id: str | None = ...,
            member_epoch: int = ...,
            client_id: str = ...,
            client_host: str = ...,
            subscribed_topic_names: list[str] = ...,
            assignment: ShareGroupDescribeResponse.Assignment = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    groups: list[ShareGroupDescribeResponse.DescribedGroup]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: list[ShareGroupDescribeResponse.DescribedGroup] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareFetchRequest(Message):
    class FetchTopic(Message):
        topic_id: Uuid
        partitions: list[ShareFetchRequest.FetchPartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[ShareFetchRequest.FetchPartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class FetchPartition(Message):
        partition_index: int
        partition_max_bytes: int
        acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            partition_max_bytes: int = ...,
            acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class AcknowledgementBatch(Message):
        first_offset: int
        last_offset: int
        acknowledge_types: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            acknowledge_types: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class ForgottenTopic(Message):
        topic_id: Uuid
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    share_acquire_mode: int
    is_renew_ack: bool
    topics: list[ShareFetchRequest.FetchTopic]
    forgotten_topics_data: list[ShareFetchRequest.ForgottenTopic]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str | None = ...,
        member_id: str | None = ...,
        share_session_epoch: int = ...,
        max_wait_ms: int = ...,
        min_bytes: int = ...,
        max_bytes: int = ...,
        max_records: int = ...,
        batch_size: int = ...,
        share_acquire_mode: int = ...,
        is_renew_ack: bool = ...,
        topics: list[ShareFetchRequest.FetchTopic] = ...,
        forgotten_topics_data: list[ShareFetchRequest.ForgottenTopic] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareFetchResponse(Message):
    class ShareFetchableTopicResponse(Message):
        topic_id: Uuid
        partitions: list[ShareFetchResponse.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[ShareFetchResponse.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        acknowledge_error_code: int
        acknowledge_error_message: str | None
        current_leader: ShareFetchResponse.LeaderIdAndEpoch
        records: Buffer | FileSlice | list[Buffer | FileSlice] | list[Buffer] | list[FileSlice]
        acquired_records: list[ShareFetchResponse.AcquiredRecords]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            acknowledge_error_code: int = ...,
            acknowledge_error_message: str | None = ...,
            current_leader: ShareFetchResponse.LeaderIdAndEpoch = ...,
            records: Buffer | FileSlice | list[Buffer | FileSlice] | list[Buffer] | list[FileSlice] = ...,
            acquired_records: list[ShareFetchResponse.AcquiredRecords] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class LeaderIdAndEpoch(Message):
        leader_id: int
        leader_epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            leader_id: int = ...,
            leader_epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class AcquiredRecords(Message):
        first_offset: int
        last_offset: int
        delivery_count: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            delivery_count: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: list[ShareFetchResponse.ShareFetchableTopicResponse]
    node_endpoints: list[ShareFetchResponse.NodeEndpoint]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        acquisition_lock_timeout_ms: int = ...,
        responses: list[ShareFetchResponse.ShareFetchableTopicResponse] = ...,
        node_endpoints: list[ShareFetchResponse.NodeEndpoint] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareAcknowledgeRequest(Message):
    class AcknowledgeTopic(Message):
        topic_id: Uuid
        partitions: list[ShareAcknowledgeRequest.AcknowledgePartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[ShareAcknowledgeRequest.AcknowledgePartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class AcknowledgePartition(Message):
        partition_index: int
        acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class AcknowledgementBatch(Message):
        first_offset: int
        last_offset: int
        acknowledge_types: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            acknowledge_types: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool
    topics: list[ShareAcknowledgeRequest.AcknowledgeTopic]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str | None = ...,
        member_id: str | None = ...,
        share_session_epoch: int = ...,
        is_renew_ack: bool = ...,
        topics: list[ShareAcknowledgeRequest.AcknowledgeTopic] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareAcknowledgeResponse(Message):
    class ShareAcknowledgeTopicResponse(Message):
        topic_id: Uuid
        partitions: list[ShareAcknowledgeResponse.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[ShareAcknowledgeResponse.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class LeaderIdAndEpoch(Message):
        leader_id: int
        leader_epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            leader_id: int = ...,
            leader_epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class NodeEndpoint(Message):
        node_id: int
        host: str
        port: int
        rack: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            node_id: int = ...,
            host: str = ...,
            port: int = ...,
            rack: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: list[ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse]
    node_endpoints: list[ShareAcknowledgeResponse.NodeEndpoint]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        acquisition_lock_timeout_ms: int = ...,
        responses: list[ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse] = ...,
        node_endpoints: list[ShareAcknowledgeResponse.NodeEndpoint] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AddRaftVoterRequest(Message):
    class Listener(Message):
        name: str
        host: str
        port: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            host: str = ...,
            port: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    cluster_id: str | None
    timeout_ms: int
    voter_id: int
    voter_directory_id: Uuid
    listeners: list[AddRaftVoterRequest.Listener]
    ack_when_committed: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        cluster_id: str | None = ...,
        timeout_ms: int = ...,
        voter_id: int = ...,
        voter_directory_id: Uuid = ...,
        listeners: list[AddRaftVoterRequest.Listener] = ...,
        ack_when_committed: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AddRaftVoterResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class RemoveRaftVoterRequest(Message):
    cluster_id: str | None
    voter_id: int
    voter_directory_id: Uuid
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        cluster_id: str | None = ...,
        voter_id: int = ...,
        voter_directory_id: Uuid = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class RemoveRaftVoterResponse(Message):
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class UpdateRaftVoterRequest(Message):
    class Listener(Message):
        name: str
        host: str
        port: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            host: str = ...,
            port: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class KRaftVersionFeature(Message):
        min_supported_version: int
        max_supported_version: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            min_supported_version: int = ...,
            max_supported_version: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    cluster_id: str | None
    current_leader_epoch: int
    voter_id: int
    voter_directory_id: Uuid
    listeners: list[UpdateRaftVoterRequest.Listener]
    k_raft_version_feature: UpdateRaftVoterRequest.KRaftVersionFeature
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        cluster_id: str | None = ...,
        current_leader_epoch: int = ...,
        voter_id: int = ...,
        voter_directory_id: Uuid = ...,
        listeners: list[UpdateRaftVoterRequest.Listener] = ...,
        k_raft_version_feature: UpdateRaftVoterRequest.KRaftVersionFeature = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class UpdateRaftVoterResponse(Message):
    class CurrentLeader(Message):
        leader_id: int
        leader_epoch: int
        host: str
        port: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            leader_id: int = ...,
            leader_epoch: int = ...,
            host: str = ...,
            port: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    current_leader: UpdateRaftVoterResponse.CurrentLeader | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        current_leader: UpdateRaftVoterResponse.CurrentLeader | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class InitializeShareGroupStateRequest(Message):
    class InitializeStateData(Message):
        topic_id: Uuid
        partitions: list[InitializeShareGroupStateRequest.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[InitializeShareGroupStateRequest.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition: int
        state_epoch: int
        start_offset: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition: int = ...,
            state_epoch: int = ...,
            start_offset: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str
    topics: list[InitializeShareGroupStateRequest.InitializeStateData]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        topics: list[InitializeShareGroupStateRequest.InitializeStateData] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class InitializeShareGroupStateResponse(Message):
    class InitializeStateResult(Message):
        topic_id: Uuid
        partitions: list[InitializeShareGroupStateResponse.PartitionResult]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[InitializeShareGroupStateResponse.PartitionResult] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionResult(Message):
        partition: int
        error_code: int
        error_message: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    results: list[InitializeShareGroupStateResponse.InitializeStateResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        results: list[InitializeShareGroupStateResponse.InitializeStateResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ReadShareGroupStateRequest(Message):
    class ReadStateData(Message):
        topic_id: Uuid
        partitions: list[ReadShareGroupStateRequest.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[ReadShareGroupStateRequest.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition: int
        leader_epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition: int = ...,
            leader_epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str
    topics: list[ReadShareGroupStateRequest.ReadStateData]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        topics: list[ReadShareGroupStateRequest.ReadStateData] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ReadShareGroupStateResponse(Message):
    class ReadStateResult(Message):
        topic_id: Uuid
        partitions: list[ReadShareGroupStateResponse.PartitionResult]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[ReadShareGroupStateResponse.PartitionResult] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionResult(Message):
        partition: int
        error_code: int
        error_message: str | None
        state_epoch: int
        start_offset: int
        state_batches: list[ReadShareGroupStateResponse.StateBatch]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            state_epoch: int = ...,
            start_offset: int = ...,
            state_batches: list[ReadShareGroupStateResponse.StateBatch] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class StateBatch(Message):
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            delivery_state: int = ...,
            delivery_count: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    results: list[ReadShareGroupStateResponse.ReadStateResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        results: list[ReadShareGroupStateResponse.ReadStateResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class WriteShareGroupStateRequest(Message):
    class WriteStateData(Message):
        topic_id: Uuid
        partitions: list[WriteShareGroupStateRequest.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[WriteShareGroupStateRequest.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition: int
        state_epoch: int
        leader_epoch: int
        start_offset: int
        delivery_complete_count: int
        state_batches: list[WriteShareGroupStateRequest.StateBatch]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition: int = ...,
            state_epoch: int = ...,
            leader_epoch: int = ...,
            start_offset: int = ...,
            delivery_complete_count: int = ...,
            state_batches: list[WriteShareGroupStateRequest.StateBatch] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class StateBatch(Message):
        first_offset: int
        last_offset: int
        delivery_state: int
        delivery_count: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            first_offset: int = ...,
            last_offset: int = ...,
            delivery_state: int = ...,
            delivery_count: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str
    topics: list[WriteShareGroupStateRequest.WriteStateData]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        topics: list[WriteShareGroupStateRequest.WriteStateData] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class WriteShareGroupStateResponse(Message):
    class WriteStateResult(Message):
        topic_id: Uuid
        partitions: list[WriteShareGroupStateResponse.PartitionResult]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[WriteShareGroupStateResponse.PartitionResult] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionResult(Message):
        partition: int
        error_code: int
        error_message: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    results: list[WriteShareGroupStateResponse.WriteStateResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        results: list[WriteShareGroupStateResponse.WriteStateResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DeleteShareGroupStateRequest(Message):
    class DeleteStateData(Message):
        topic_id: Uuid
        partitions: list[DeleteShareGroupStateRequest.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[DeleteShareGroupStateRequest.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str
    topics: list[DeleteShareGroupStateRequest.DeleteStateData]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        topics: list[DeleteShareGroupStateRequest.DeleteStateData] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DeleteShareGroupStateResponse(Message):
    class DeleteStateResult(Message):
        topic_id: Uuid
        partitions: list[DeleteShareGroupStateResponse.PartitionResult]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[DeleteShareGroupStateResponse.PartitionResult] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionResult(Message):
        partition: int
        error_code: int
        error_message: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    results: list[DeleteShareGroupStateResponse.DeleteStateResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        results: list[DeleteShareGroupStateResponse.DeleteStateResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ReadShareGroupStateSummaryRequest(Message):
    class ReadStateSummaryData(Message):
        topic_id: Uuid
        partitions: list[ReadShareGroupStateSummaryRequest.PartitionData]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[ReadShareGroupStateSummaryRequest.PartitionData] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionData(Message):
        partition: int
        leader_epoch: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition: int = ...,
            leader_epoch: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str
    topics: list[ReadShareGroupStateSummaryRequest.ReadStateSummaryData]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        topics: list[ReadShareGroupStateSummaryRequest.ReadStateSummaryData] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ReadShareGroupStateSummaryResponse(Message):
    class ReadStateSummaryResult(Message):
        topic_id: Uuid
        partitions: list[ReadShareGroupStateSummaryResponse.PartitionResult]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[ReadShareGroupStateSummaryResponse.PartitionResult] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionResult(Message):
        partition: int
        error_code: int
        error_message: str | None
        state_epoch: int
        leader_epoch: int
        start_offset: int
        delivery_complete_count: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            state_epoch: int = ...,
            leader_epoch: int = ...,
            start_offset: int = ...,
            delivery_complete_count: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    results: list[ReadShareGroupStateSummaryResponse.ReadStateSummaryResult]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        results: list[ReadShareGroupStateSummaryResponse.ReadStateSummaryResult] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StreamsGroupHeartbeatRequest(Message):
    class KeyValue(Message):
        key: str
        value: str
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            key: str = ...,
            value: str = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class TopicInfo(Message):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: list[StreamsGroupHeartbeatRequest.KeyValue]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: int = ...,
            replication_factor: int = ...,
            topic_configs: list[StreamsGroupHeartbeatRequest.KeyValue] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Endpoint(Message):
        host: str
        port: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            host: str = ...,
            port: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class TaskOffset(Message):
        subtopology_id: str
        partition: int
        offset: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            subtopology_id: str = ...,
            partition: int = ...,
            offset: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class TaskIds(Message):
        subtopology_id: str
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            subtopology_id: str = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Topology(Message):
        epoch: int
        subtopologies: list[StreamsGroupHeartbeatRequest.Subtopology]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            epoch: int = ...,
            subtopologies: list[StreamsGroupHeartbeatRequest.Subtopology] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Subtopology(Message):
        subtopology_id: str
        source_topics: list[str]
        source_topic_regex: list[str]
        state_changelog_topics: list[StreamsGroupHeartbeatRequest.TopicInfo]
        repartition_sink_topics: list[str]
        repartition_source_topics: list[StreamsGroupHeartbeatRequest.TopicInfo]
        copartition_groups: list[StreamsGroupHeartbeatRequest.CopartitionGroup]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            subtopology_id: str = ...,
            source_topics: list[str] = ...,
            source_topic_regex: list[str] = ...,
            state_changelog_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = ...,
            repartition_sink_topics: list[str] = ...,
            repartition_source_topics: list[StreamsGroupHeartbeatRequest.TopicInfo] = ...,
            copartition_groups: list[StreamsGroupHeartbeatRequest.CopartitionGroup] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class CopartitionGroup(Message):
        source_topics: list[int]
        source_topic_regex: list[int]
        repartition_source_topics: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            source_topics: list[int] = ...,
            source_topic_regex: list[int] = ...,
            repartition_source_topics: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str
    member_id: str
    member_epoch: int
    endpoint_information_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topology: StreamsGroupHeartbeatRequest.Topology | None
    active_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None
    standby_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None
    warmup_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None
    process_id: str | None
    user_endpoint: StreamsGroupHeartbeatRequest.Endpoint | None
    client_tags: list[StreamsGroupHeartbeatRequest.KeyValue] | None
    task_offsets: list[StreamsGroupHeartbeatRequest.TaskOffset] | None
    task_end_offsets: list[StreamsGroupHeartbeatRequest.TaskOffset] | None
    shutdown_application: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        endpoint_information_epoch: int = ...,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        rebalance_timeout_ms: int = ...,
        topology: StreamsGroupHeartbeatRequest.Topology | None = ...,
        active_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None = ...,
        standby_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None = ...,
        warmup_tasks: list[StreamsGroupHeartbeatRequest.TaskIds] | None = ...,
        process_id: str | None = ...,
        user_endpoint: StreamsGroupHeartbeatRequest.Endpoint | None = ...,
        client_tags: list[StreamsGroupHeartbeatRequest.KeyValue] | None = ...,
        task_offsets: list[StreamsGroupHeartbeatRequest.TaskOffset] | None = ...,
        task_end_offsets: list[StreamsGroupHeartbeatRequest.TaskOffset] | None = ...,
        shutdown_application: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StreamsGroupHeartbeatResponse(Message):
    class Status(Message):
        status_code: int
        status_detail: str
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            status_code: int = ...,
            status_detail: str = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class TopicPartition(Message):
        topic: str
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic: str = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class TaskIds(Message):
        subtopology_id: str
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            subtopology_id: str = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Endpoint(Message):
        host: str
        port: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            host: str = ...,
            port: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class EndpointToPartitions(Message):
        user_endpoint: StreamsGroupHeartbeatResponse.Endpoint
        active_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition]
        standby_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            user_endpoint: StreamsGroupHeartbeatResponse.Endpoint = ...,
            active_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = ...,
            standby_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    acceptable_recovery_lag: int
    task_offset_interval_ms: int
    status: list[StreamsGroupHeartbeatResponse.Status] | None
    active_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None
    standby_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None
    warmup_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None
    endpoint_information_epoch: int
    partitions_by_user_endpoint: list[StreamsGroupHeartbeatResponse.EndpointToPartitions] | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        member_id: str = ...,
        member_epoch: int = ...,
        heartbeat_interval_ms: int = ...,
        acceptable_recovery_lag: int = ...,
        task_offset_interval_ms: int = ...,
        status: list[StreamsGroupHeartbeatResponse.Status] | None = ...,
        active_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None = ...,
        standby_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None = ...,
        warmup_tasks: list[StreamsGroupHeartbeatResponse.TaskIds] | None = ...,
        endpoint_information_epoch: int = ...,
        partitions_by_user_endpoint: list[StreamsGroupHeartbeatResponse.EndpointToPartitions] | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StreamsGroupDescribeRequest(Message):
    group_ids: list[str]
    include_authorized_operations: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_ids: list[str] = ...,
        include_authorized_operations: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StreamsGroupDescribeResponse(Message):
    class Endpoint(Message):
        host: str
        port: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            host: str = ...,
            port: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class TaskOffset(Message):
        subtopology_id: str
        partition: int
        offset: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            subtopology_id: str = ...,
            partition: int = ...,
            offset: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Assignment(Message):
        active_tasks: list[StreamsGroupDescribeResponse.TaskIds]
        standby_tasks: list[StreamsGroupDescribeResponse.TaskIds]
        warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            active_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...,
            standby_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...,
            warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class TaskIds(Message):
        subtopology_id: str
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            subtopology_id: str = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class KeyValue(Message):
        key: str
        value: str
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            key: str = ...,
            value: str = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class TopicInfo(Message):
        name: str
        partitions: int
        replication_factor: int
        topic_configs: list[StreamsGroupDescribeResponse.KeyValue]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: int = ...,
            replication_factor: int = ...,
            topic_configs: list[StreamsGroupDescribeResponse.KeyValue] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class DescribedGroup(Message):
        error_code: int
        error_message: str | None
        group_id: str
        group_state: str
        group_epoch: int
        assignment_epoch: int
        topology: StreamsGroupDescribeResponse.Topology | None
        members: list[StreamsGroupDescribeResponse.Member]
        authorized_operations: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            error_code: int = ...,
            error_message: str | None = ...,
            group_id: str = ...,
            group_state: str = ...,
            group_epoch: int = ...,
            assignment_epoch: int = ...,
            topology: StreamsGroupDescribeResponse.Topology | None = ...,
            members: list[StreamsGroupDescribeResponse.Member] = ...,
            authorized_operations: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Topology(Message):
        epoch: int
        subtopologies: list[StreamsGroupDescribeResponse.Subtopology] | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            epoch: int = ...,
            subtopologies: list[StreamsGroupDescribeResponse.Subtopology] | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Subtopology(Message):
        subtopology_id: str
        source_topics: list[str]
        repartition_sink_topics: list[str]
        state_changelog_topics: list[StreamsGroupDescribeResponse.TopicInfo]
        repartition_source_topics: list[StreamsGroupDescribeResponse.TopicInfo]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            subtopology_id: str = ...,
            source_topics: list[str] = ...,
            repartition_sink_topics: list[str] = ...,
            state_changelog_topics: list[StreamsGroupDescribeResponse.TopicInfo] = ...,
            repartition_source_topics: list[StreamsGroupDescribeResponse.TopicInfo] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Member(Message):
        member_id: str
        member_epoch: int
        instance_id: str | None
        rack_id: str | None
        client_id: str
        client_host: str
        topology_epoch: int
        process_id: str
        user_endpoint: StreamsGroupDescribeResponse.Endpoint | None
        client_tags: list[StreamsGroupDescribeResponse.KeyValue]
        task_offsets: list[StreamsGroupDescribeResponse.TaskOffset]
        task_end_offsets: list[StreamsGroupDescribeResponse.TaskOffset]
        assignment: StreamsGroupDescribeResponse.Assignment
        target_assignment: StreamsGroupDescribeResponse.Assignment
        is_classic: bool
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            member_id: str = ...,
            member_epoch: int = ...,
            instance_id: str | None = ...,
            rack_id: str | None = ...,
            client_id: str = ...,
            client_host: str = ...,
            topology_epoch: int = ...,
            process_id: str = ...,
            user_endpoint: StreamsGroupDescribeResponse.Endpoint | None = ...,
            client_tags: list[StreamsGroupDescribeResponse.KeyValue] = ...,
            task_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = ...,
            task_end_offsets: list[StreamsGroupDescribeResponse.TaskOffset] = ...,
            assignment: StreamsGroupDescribeResponse.Assignment = ...,
            target_assignment: StreamsGroupDescribeResponse.Assignment = ...,
            is_classic: bool = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    groups: list[StreamsGroupDescribeResponse.DescribedGroup]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: list[StreamsGroupDescribeResponse.DescribedGroup] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsRequest(Message):
    class DescribeShareGroupOffsetsRequestGroup(Message):
        group_id: str
        topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            group_id: str = ...,
            topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class DescribeShareGroupOffsetsRequestTopic(Message):
        topic_name: str
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    groups: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        groups: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestGroup] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DescribeShareGroupOffsetsResponse(Message):
    class DescribeShareGroupOffsetsResponseGroup(Message):
        group_id: str
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic]
        error_code: int
        error_message: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            group_id: str = ...,
            topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic] = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class DescribeShareGroupOffsetsResponseTopic(Message):
        topic_name: str
        topic_id: Uuid
        partitions: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            topic_id: Uuid = ...,
            partitions: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class DescribeShareGroupOffsetsResponsePartition(Message):
        partition_index: int
        start_offset: int
        leader_epoch: int
        lag: int
        error_code: int
        error_message: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            start_offset: int = ...,
            leader_epoch: int = ...,
            lag: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    groups: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        groups: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AlterShareGroupOffsetsRequest(Message):
    class AlterShareGroupOffsetsRequestTopic(Message):
        topic_name: str
        partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class AlterShareGroupOffsetsRequestPartition(Message):
        partition_index: int
        start_offset: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            start_offset: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str
    topics: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        topics: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AlterShareGroupOffsetsResponse(Message):
    class AlterShareGroupOffsetsResponseTopic(Message):
        topic_name: str
        topic_id: Uuid
        partitions: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            topic_id: Uuid = ...,
            partitions: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class AlterShareGroupOffsetsResponsePartition(Message):
        partition_index: int
        error_code: int
        error_message: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition_index: int = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DeleteShareGroupOffsetsRequest(Message):
    class DeleteShareGroupOffsetsRequestTopic(Message):
        topic_name: str
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    group_id: str
    topics: list[DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        topics: list[DeleteShareGroupOffsetsRequest.DeleteShareGroupOffsetsRequestTopic] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DeleteShareGroupOffsetsResponse(Message):
    class DeleteShareGroupOffsetsResponseTopic(Message):
        topic_name: str
        topic_id: Uuid
        error_code: int
        error_message: str | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_name: str = ...,
            topic_id: Uuid = ...,
            error_code: int = ...,
            error_message: str | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: list[DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        throttle_time_ms: int = ...,
        error_code: int = ...,
        error_message: str | None = ...,
        responses: list[DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...
