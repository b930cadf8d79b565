"""Written by tools/import_schemas.py; do not edit."""

from kraft_protocol.buffers import Buffer, FileSlice
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.classes import Message

class ConsumerProtocolAssignment(Message):
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
    assigned_partitions: list[ConsumerProtocolAssignment.TopicPartition]
    user_data: bytes | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        assigned_partitions: list[ConsumerProtocolAssignment.TopicPartition] = ...,
        user_data: bytes | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerProtocolSubscription(Message):
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
    topics: list[str]
    user_data: bytes | None
    owned_partitions: list[ConsumerProtocolSubscription.TopicPartition]
    generation_id: int
    rack_id: str | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topics: list[str] = ...,
        user_data: bytes | None = ...,
        owned_partitions: list[ConsumerProtocolSubscription.TopicPartition] = ...,
        generation_id: int = ...,
        rack_id: str | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ControlRecordTypeSchema(Message):
    type: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        type: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DefaultPrincipalData(Message):
    type: str
    name: str
    token_authenticated: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        type: str = ...,
        name: str = ...,
        token_authenticated: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class EndTxnMarker(Message):
    coordinator_epoch: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        coordinator_epoch: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class KRaftVersionRecord(Message):
    version: int
    k_raft_version: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        version: int = ...,
        k_raft_version: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class LeaderChangeMessage(Message):
    class Voter(Message):
        voter_id: int
        voter_directory_id: Uuid
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            voter_id: int = ...,
            voter_directory_id: Uuid = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    version: int
    leader_id: int
    voters: list[LeaderChangeMessage.Voter]
    granting_voters: list[LeaderChangeMessage.Voter]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        version: int = ...,
        leader_id: int = ...,
        voters: list[LeaderChangeMessage.Voter] = ...,
        granting_voters: list[LeaderChangeMessage.Voter] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ProducerSnapshot(Message):
    class ProducerEntry(Message):
        producer_id: int
        epoch: int
        last_sequence: int
        last_offset: int
        offset_delta: int
        timestamp: int
        coordinator_epoch: int
        current_txn_first_offset: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            producer_id: int = ...,
            epoch: int = ...,
            last_sequence: int = ...,
            last_offset: int = ...,
            offset_delta: int = ...,
            timestamp: int = ...,
            coordinator_epoch: int = ...,
            current_txn_first_offset: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    crc: int
    producer_entries: list[ProducerSnapshot.ProducerEntry]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        crc: int = ...,
        producer_entries: list[ProducerSnapshot.ProducerEntry] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class QuorumStateData(Message):
    class Voter(Message):
        voter_id: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            voter_id: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    cluster_id: str
    leader_id: int
    leader_epoch: int
    voted_id: int
    voted_directory_id: Uuid
    applied_offset: int
    current_voters: list[QuorumStateData.Voter] | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        cluster_id: str = ...,
        leader_id: int = ...,
        leader_epoch: int = ...,
        voted_id: int = ...,
        voted_directory_id: Uuid = ...,
        applied_offset: int = ...,
        current_voters: list[QuorumStateData.Voter] | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class RequestHeader(Message):
    request_api_key: int
    request_api_version: int
    correlation_id: int
    client_id: str | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        request_api_key: int = ...,
        request_api_version: int = ...,
        correlation_id: int = ...,
        client_id: str | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ResponseHeader(Message):
    correlation_id: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        correlation_id: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class SnapshotFooterRecord(Message):
    version: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        version: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class SnapshotHeaderRecord(Message):
    version: int
    last_contained_log_timestamp: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        version: int = ...,
        last_contained_log_timestamp: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class VotersRecord(Message):
    class Voter(Message):
        voter_id: int
        voter_directory_id: Uuid
        endpoints: list[VotersRecord.Endpoint]
        k_raft_version_feature: VotersRecord.KRaftVersionFeature
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            voter_id: int = ...,
            voter_directory_id: Uuid = ...,
            endpoints: list[VotersRecord.Endpoint] = ...,
            k_raft_version_feature: VotersRecord.KRaftVersionFeature = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Endpoint(Message):
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
    version: int
    voters: list[VotersRecord.Voter]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        version: int = ...,
        voters: list[VotersRecord.Voter] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class LegacyOffsetCommitKey(Message):
    group: str
    topic: str
    partition: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group: str = ...,
        topic: str = ...,
        partition: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class LegacyOffsetCommitValue(Message):
    offset: int
    metadata: str
    commit_timestamp: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        offset: int = ...,
        metadata: str = ...,
        commit_timestamp: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class RegisterBrokerRecord(Message):
    class BrokerEndpoint(Message):
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
    class BrokerFeature(Message):
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
    is_migrating_zk_broker: bool
    incarnation_id: Uuid
    broker_epoch: int
    end_points: list[RegisterBrokerRecord.BrokerEndpoint]
    features: list[RegisterBrokerRecord.BrokerFeature]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: list[Uuid]
    cordoned_log_dirs: list[Uuid] | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        broker_id: int = ...,
        is_migrating_zk_broker: bool = ...,
        incarnation_id: Uuid = ...,
        broker_epoch: int = ...,
        end_points: list[RegisterBrokerRecord.BrokerEndpoint] = ...,
        features: list[RegisterBrokerRecord.BrokerFeature] = ...,
        rack: str | None = ...,
        fenced: bool = ...,
        in_controlled_shutdown: bool = ...,
        log_dirs: list[Uuid] = ...,
        cordoned_log_dirs: list[Uuid] | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class RemoteLogSegmentMetadataRecord(Message):
    class RemoteLogSegmentIdEntry(Message):
        topic_id_partition: RemoteLogSegmentMetadataRecord.TopicIdPartitionEntry
        id: Uuid
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id_partition: RemoteLogSegmentMetadataRecord.TopicIdPartitionEntry = ...,
            id: Uuid = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class TopicIdPartitionEntry(Message):
        name: str
        id: Uuid
        partition: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            id: Uuid = ...,
            partition: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class SegmentLeaderEpochEntry(Message):
        leader_epoch: int
        offset: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            leader_epoch: int = ...,
            offset: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    remote_log_segment_id: RemoteLogSegmentMetadataRecord.RemoteLogSegmentIdEntry
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    segment_leader_epochs: list[RemoteLogSegmentMetadataRecord.SegmentLeaderEpochEntry]
    segment_size_in_bytes: int
    custom_metadata: bytes | None
    remote_log_segment_state: int
    txn_index_empty: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        remote_log_segment_id: RemoteLogSegmentMetadataRecord.RemoteLogSegmentIdEntry = ...,
        start_offset: int = ...,
        end_offset: int = ...,
        broker_id: int = ...,
        max_timestamp_ms: int = ...,
        event_timestamp_ms: int = ...,
        segment_leader_epochs: list[RemoteLogSegmentMetadataRecord.SegmentLeaderEpochEntry] = ...,
        segment_size_in_bytes: int = ...,
        custom_metadata: bytes | None = ...,
        remote_log_segment_state: int = ...,
        txn_index_empty: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareSnapshotKey(Message):
    group_id: str
    topic_id: Uuid
    partition: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        topic_id: Uuid = ...,
        partition: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareSnapshotValue(Message):
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
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp: int
    write_timestamp: int
    state_batches: list[ShareSnapshotValue.StateBatch]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        snapshot_epoch: int = ...,
        state_epoch: int = ...,
        leader_epoch: int = ...,
        start_offset: int = ...,
        delivery_complete_count: int = ...,
        create_timestamp: int = ...,
        write_timestamp: int = ...,
        state_batches: list[ShareSnapshotValue.StateBatch] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class TransactionLogKey(Message):
    transactional_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        transactional_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class TransactionLogValue(Message):
    class PartitionsSchema(Message):
        topic: str
        partition_ids: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic: str = ...,
            partition_ids: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    producer_id: int
    previous_producer_id: int
    next_producer_id: int
    producer_epoch: int
    next_producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_partitions: list[TransactionLogValue.PartitionsSchema] | None
    transaction_last_update_timestamp_ms: int
    transaction_start_timestamp_ms: int
    client_transaction_version: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        producer_id: int = ...,
        previous_producer_id: int = ...,
        next_producer_id: int = ...,
        producer_epoch: int = ...,
        next_producer_epoch: int = ...,
        transaction_timeout_ms: int = ...,
        transaction_status: int = ...,
        transaction_partitions: list[TransactionLogValue.PartitionsSchema] | None = ...,
        transaction_last_update_timestamp_ms: int = ...,
        transaction_start_timestamp_ms: int = ...,
        client_transaction_version: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class OffsetCommitKey(Message):
    group: str
    topic: str
    partition: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group: str = ...,
        topic: str = ...,
        partition: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class OffsetCommitValue(Message):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: Uuid
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        offset: int = ...,
        leader_epoch: int = ...,
        metadata: str = ...,
        commit_timestamp: int = ...,
        expire_timestamp: int = ...,
        topic_id: Uuid = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class RemoteLogSegmentMetadataUpdateRecord(Message):
    class RemoteLogSegmentIdEntry(Message):
        topic_id_partition: RemoteLogSegmentMetadataUpdateRecord.TopicIdPartitionEntry
        id: Uuid
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id_partition: RemoteLogSegmentMetadataUpdateRecord.TopicIdPartitionEntry = ...,
            id: Uuid = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class TopicIdPartitionEntry(Message):
        name: str
        id: Uuid
        partition: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            id: Uuid = ...,
            partition: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    remote_log_segment_id: RemoteLogSegmentMetadataUpdateRecord.RemoteLogSegmentIdEntry
    broker_id: int
    event_timestamp_ms: int
    custom_metadata: bytes | None
    remote_log_segment_state: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        remote_log_segment_id: RemoteLogSegmentMetadataUpdateRecord.RemoteLogSegmentIdEntry = ...,
        broker_id: int = ...,
        event_timestamp_ms: int = ...,
        custom_metadata: bytes | None = ...,
        remote_log_segment_state: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareUpdateKey(Message):
    group_id: str
    topic_id: Uuid
    partition: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        topic_id: Uuid = ...,
        partition: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareUpdateValue(Message):
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
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: list[ShareUpdateValue.StateBatch]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        snapshot_epoch: int = ...,
        leader_epoch: int = ...,
        start_offset: int = ...,
        delivery_complete_count: int = ...,
        state_batches: list[ShareUpdateValue.StateBatch] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class UnregisterBrokerRecord(Message):
    broker_id: int
    broker_epoch: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        broker_id: int = ...,
        broker_epoch: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class GroupMetadataKey(Message):
    group: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class GroupMetadataValue(Message):
    class MemberMetadata(Message):
        member_id: str
        group_instance_id: str | None
        client_id: str
        client_host: str
        rebalance_timeout: int
        session_timeout: int
        subscription: bytes
        assignment: bytes
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            member_id: str = ...,
            group_instance_id: str | None = ...,
            client_id: str = ...,
            client_host: str = ...,
            rebalance_timeout: int = ...,
            session_timeout: int = ...,
            subscription: bytes = ...,
            assignment: bytes = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: list[GroupMetadataValue.MemberMetadata]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        protocol_type: str = ...,
        generation: int = ...,
        protocol: str | None = ...,
        leader: str | None = ...,
        current_state_timestamp: int = ...,
        members: list[GroupMetadataValue.MemberMetadata] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class RemotePartitionDeleteMetadataRecord(Message):
    class TopicIdPartitionEntry(Message):
        name: str
        id: Uuid
        partition: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            id: Uuid = ...,
            partition: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    topic_id_partition: RemotePartitionDeleteMetadataRecord.TopicIdPartitionEntry
    broker_id: int
    event_timestamp_ms: int
    remote_partition_delete_state: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topic_id_partition: RemotePartitionDeleteMetadataRecord.TopicIdPartitionEntry = ...,
        broker_id: int = ...,
        event_timestamp_ms: int = ...,
        remote_partition_delete_state: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class TopicRecord(Message):
    name: str
    topic_id: Uuid
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        name: str = ...,
        topic_id: Uuid = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupMetadataKey(Message):
    group_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupMetadataValue(Message):
    epoch: int
    metadata_hash: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        epoch: int = ...,
        metadata_hash: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class PartitionRecord(Message):
    partition_id: int
    topic_id: Uuid
    replicas: list[int]
    isr: list[int]
    removing_replicas: list[int]
    adding_replicas: list[int]
    leader: int
    leader_recovery_state: int
    leader_epoch: int
    partition_epoch: int
    directories: list[Uuid]
    eligible_leader_replicas: list[int] | None
    last_known_elr: list[int] | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        partition_id: int = ...,
        topic_id: Uuid = ...,
        replicas: list[int] = ...,
        isr: list[int] = ...,
        removing_replicas: list[int] = ...,
        adding_replicas: list[int] = ...,
        leader: int = ...,
        leader_recovery_state: int = ...,
        leader_epoch: int = ...,
        partition_epoch: int = ...,
        directories: list[Uuid] = ...,
        eligible_leader_replicas: list[int] | None = ...,
        last_known_elr: list[int] | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class RemoteLogSegmentMetadataSnapshotRecord(Message):
    class SegmentLeaderEpochEntry(Message):
        leader_epoch: int
        offset: int
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            leader_epoch: int = ...,
            offset: int = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    segment_id: Uuid
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    segment_leader_epochs: list[RemoteLogSegmentMetadataSnapshotRecord.SegmentLeaderEpochEntry]
    segment_size_in_bytes: int
    custom_metadata: bytes | None
    remote_log_segment_state: int
    txn_index_empty: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        segment_id: Uuid = ...,
        start_offset: int = ...,
        end_offset: int = ...,
        broker_id: int = ...,
        max_timestamp_ms: int = ...,
        event_timestamp_ms: int = ...,
        segment_leader_epochs: list[RemoteLogSegmentMetadataSnapshotRecord.SegmentLeaderEpochEntry] = ...,
        segment_size_in_bytes: int = ...,
        custom_metadata: bytes | None = ...,
        remote_log_segment_state: int = ...,
        txn_index_empty: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConfigRecord(Message):
    resource_type: int
    resource_name: str
    name: str
    value: str | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        resource_type: int = ...,
        resource_name: str = ...,
        name: str = ...,
        value: str | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupPartitionMetadataKey(Message):
    group_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupPartitionMetadataValue(Message):
    class TopicMetadata(Message):
        topic_id: Uuid
        topic_name: str
        num_partitions: int
        partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            topic_name: str = ...,
            num_partitions: int = ...,
            partition_metadata: list[ConsumerGroupPartitionMetadataValue.PartitionMetadata] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class PartitionMetadata(Message):
        partition: int
        racks: list[str]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            partition: int = ...,
            racks: list[str] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    topics: list[ConsumerGroupPartitionMetadataValue.TopicMetadata]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topics: list[ConsumerGroupPartitionMetadataValue.TopicMetadata] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupMemberMetadataKey(Message):
    group_id: str
    member_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupMemberMetadataValue(Message):
    class ClassicMemberMetadata(Message):
        session_timeout_ms: int
        supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            session_timeout_ms: int = ...,
            supported_protocols: list[ConsumerGroupMemberMetadataValue.ClassicProtocol] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class ClassicProtocol(Message):
        name: str
        metadata: bytes
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            metadata: bytes = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        client_id: str = ...,
        client_host: str = ...,
        subscribed_topic_names: list[str] = ...,
        subscribed_topic_regex: str | None = ...,
        rebalance_timeout_ms: int = ...,
        server_assignor: str | None = ...,
        classic_member_metadata: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class PartitionChangeRecord(Message):
    partition_id: int
    topic_id: Uuid
    isr: list[int] | None
    leader: int
    replicas: list[int] | None
    removing_replicas: list[int] | None
    adding_replicas: list[int] | None
    leader_recovery_state: int
    directories: list[Uuid] | None
    eligible_leader_replicas: list[int] | None
    last_known_elr: list[int] | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        partition_id: int = ...,
        topic_id: Uuid = ...,
        isr: list[int] | None = ...,
        leader: int = ...,
        replicas: list[int] | None = ...,
        removing_replicas: list[int] | None = ...,
        adding_replicas: list[int] | None = ...,
        leader_recovery_state: int = ...,
        directories: list[Uuid] | None = ...,
        eligible_leader_replicas: list[int] | None = ...,
        last_known_elr: list[int] | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMetadataKey(Message):
    group_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int
    assignment_timestamp: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        assignment_epoch: int = ...,
        assignment_timestamp: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMemberKey(Message):
    group_id: str
    member_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupTargetAssignmentMemberValue(Message):
    class TopicPartition(Message):
        topic_id: Uuid
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    topic_partitions: list[ConsumerGroupTargetAssignmentMemberValue.TopicPartition]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topic_partitions: list[ConsumerGroupTargetAssignmentMemberValue.TopicPartition] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class FenceBrokerRecord(Message):
    id: int
    epoch: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        id: int = ...,
        epoch: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupCurrentMemberAssignmentKey(Message):
    group_id: str
    member_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupCurrentMemberAssignmentValue(Message):
    class TopicPartitions(Message):
        topic_id: Uuid
        partitions: list[int]
        assignment_epochs: list[int] | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[int] = ...,
            assignment_epochs: list[int] | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]
    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        member_epoch: int = ...,
        previous_member_epoch: int = ...,
        state: int = ...,
        assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ...,
        partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class UnfenceBrokerRecord(Message):
    id: int
    epoch: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        id: int = ...,
        epoch: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class RemoveTopicRecord(Message):
    topic_id: Uuid
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topic_id: Uuid = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class DelegationTokenRecord(Message):
    owner: str
    requester: str
    renewers: list[str]
    issue_timestamp: int
    max_timestamp: int
    expiration_timestamp: int
    token_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        owner: str = ...,
        requester: str = ...,
        renewers: list[str] = ...,
        issue_timestamp: int = ...,
        max_timestamp: int = ...,
        expiration_timestamp: int = ...,
        token_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareGroupMemberMetadataKey(Message):
    group_id: str
    member_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareGroupMemberMetadataValue(Message):
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        rack_id: str | None = ...,
        client_id: str = ...,
        client_host: str = ...,
        subscribed_topic_names: list[str] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareGroupMetadataKey(Message):
    group_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareGroupMetadataValue(Message):
    epoch: int
    metadata_hash: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        epoch: int = ...,
        metadata_hash: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class UserScramCredentialRecord(Message):
    name: str
    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        name: str = ...,
        mechanism: int = ...,
        salt: bytes = ...,
        stored_key: bytes = ...,
        server_key: bytes = ...,
        iterations: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class FeatureLevelRecord(Message):
    name: str
    feature_level: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        name: str = ...,
        feature_level: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareGroupTargetAssignmentMetadataKey(Message):
    group_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int
    assignment_timestamp: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        assignment_epoch: int = ...,
        assignment_timestamp: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareGroupTargetAssignmentMemberKey(Message):
    group_id: str
    member_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareGroupTargetAssignmentMemberValue(Message):
    class TopicPartition(Message):
        topic_id: Uuid
        partitions: list[int]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            partitions: list[int] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    topic_partitions: list[ShareGroupTargetAssignmentMemberValue.TopicPartition]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topic_partitions: list[ShareGroupTargetAssignmentMemberValue.TopicPartition] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ClientQuotaRecord(Message):
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
    entity: list[ClientQuotaRecord.EntityData]
    key: str
    value: float
    remove: bool
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        entity: list[ClientQuotaRecord.EntityData] = ...,
        key: str = ...,
        value: float = ...,
        remove: bool = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareGroupCurrentMemberAssignmentKey(Message):
    group_id: str
    member_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareGroupCurrentMemberAssignmentValue(Message):
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
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: list[ShareGroupCurrentMemberAssignmentValue.TopicPartitions]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        member_epoch: int = ...,
        previous_member_epoch: int = ...,
        state: int = ...,
        assigned_partitions: list[ShareGroupCurrentMemberAssignmentValue.TopicPartitions] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ProducerIdsRecord(Message):
    broker_id: int
    broker_epoch: int
    next_producer_id: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        broker_id: int = ...,
        broker_epoch: int = ...,
        next_producer_id: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareGroupStatePartitionMetadataKey(Message):
    group_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ShareGroupStatePartitionMetadataValue(Message):
    class TopicPartitionsInfo(Message):
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
    class TopicInfo(Message):
        topic_id: Uuid
        topic_name: str
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            topic_id: Uuid = ...,
            topic_name: str = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    initializing_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]
    initialized_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo]
    deleting_topics: list[ShareGroupStatePartitionMetadataValue.TopicInfo]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        initializing_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo] = ...,
        initialized_topics: list[ShareGroupStatePartitionMetadataValue.TopicPartitionsInfo] = ...,
        deleting_topics: list[ShareGroupStatePartitionMetadataValue.TopicInfo] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupRegularExpressionKey(Message):
    group_id: str
    regular_expression: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        regular_expression: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ConsumerGroupRegularExpressionValue(Message):
    topics: list[str]
    version: int
    timestamp: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topics: list[str] = ...,
        version: int = ...,
        timestamp: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class BrokerRegistrationChangeRecord(Message):
    broker_id: int
    broker_epoch: int
    fenced: int
    in_controlled_shutdown: int
    log_dirs: list[Uuid]
    cordoned_log_dirs: list[Uuid] | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        broker_id: int = ...,
        broker_epoch: int = ...,
        fenced: int = ...,
        in_controlled_shutdown: int = ...,
        log_dirs: list[Uuid] = ...,
        cordoned_log_dirs: list[Uuid] | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StreamsGroupMetadataKey(Message):
    group_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StreamsGroupMetadataValue(Message):
    class LastAssignmentConfig(Message):
        key: str
        value: str
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            key: str = ...,
            value: str = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    epoch: int
    metadata_hash: int
    validated_topology_epoch: int
    last_assignment_configs: list[StreamsGroupMetadataValue.LastAssignmentConfig] | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        epoch: int = ...,
        metadata_hash: int = ...,
        validated_topology_epoch: int = ...,
        last_assignment_configs: list[StreamsGroupMetadataValue.LastAssignmentConfig] | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AccessControlEntryRecord(Message):
    id: Uuid
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
        id: Uuid = ...,
        resource_type: int = ...,
        resource_name: str = ...,
        pattern_type: int = ...,
        principal: str = ...,
        host: str = ...,
        operation: int = ...,
        permission_type: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class RemoveAccessControlEntryRecord(Message):
    id: Uuid
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        id: Uuid = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StreamsGroupMemberMetadataKey(Message):
    group_id: str
    member_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StreamsGroupMemberMetadataValue(Message):
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
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: str
    user_endpoint: StreamsGroupMemberMetadataValue.Endpoint | None
    client_tags: list[StreamsGroupMemberMetadataValue.KeyValue]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        instance_id: str | None = ...,
        rack_id: str | None = ...,
        client_id: str = ...,
        client_host: str = ...,
        rebalance_timeout_ms: int = ...,
        topology_epoch: int = ...,
        process_id: str = ...,
        user_endpoint: StreamsGroupMemberMetadataValue.Endpoint | None = ...,
        client_tags: list[StreamsGroupMemberMetadataValue.KeyValue] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class NoOpRecord(Message):
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StreamsGroupTargetAssignmentMetadataKey(Message):
    group_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StreamsGroupTargetAssignmentMetadataValue(Message):
    assignment_epoch: int
    assignment_timestamp: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        assignment_epoch: int = ...,
        assignment_timestamp: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StreamsGroupTargetAssignmentMemberKey(Message):
    group_id: str
    member_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StreamsGroupTargetAssignmentMemberValue(Message):
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
    active_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds]
    standby_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds]
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        active_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds] = ...,
        standby_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds] = ...,
        warmup_tasks: list[StreamsGroupTargetAssignmentMemberValue.TaskIds] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ZkMigrationStateRecord(Message):
    zk_migration_state: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        zk_migration_state: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class RemoveUserScramCredentialRecord(Message):
    name: str
    mechanism: int
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        name: str = ...,
        mechanism: int = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StreamsGroupCurrentMemberAssignmentKey(Message):
    group_id: str
    member_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        member_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StreamsGroupCurrentMemberAssignmentValue(Message):
    class TaskIds(Message):
        subtopology_id: str
        partitions: list[int]
        assignment_epochs: list[int] | None
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            subtopology_id: str = ...,
            partitions: list[int] = ...,
            assignment_epochs: list[int] | None = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    member_epoch: int
    previous_member_epoch: int
    state: int
    active_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        member_epoch: int = ...,
        previous_member_epoch: int = ...,
        state: int = ...,
        active_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        standby_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        warmup_tasks: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentValue.TaskIds] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class BeginTransactionRecord(Message):
    name: str | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        name: str | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StreamsGroupTopologyKey(Message):
    group_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        group_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class StreamsGroupTopologyValue(Message):
    class TopicConfig(Message):
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
        topic_configs: list[StreamsGroupTopologyValue.TopicConfig]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            name: str = ...,
            partitions: int = ...,
            replication_factor: int = ...,
            topic_configs: list[StreamsGroupTopologyValue.TopicConfig] = ...,
            unknown_tags: dict[int, bytes] | None = ...,
        ) -> None: ...
    class Subtopology(Message):
        subtopology_id: str
        source_topics: list[str]
        source_topic_regex: list[str]
        state_changelog_topics: list[StreamsGroupTopologyValue.TopicInfo]
        repartition_sink_topics: list[str]
        repartition_source_topics: list[StreamsGroupTopologyValue.TopicInfo]
        copartition_groups: list[StreamsGroupTopologyValue.CopartitionGroup]
        unknown_tags: dict[int, bytes] | None
        def __init__(
            self,
            subtopology_id: str = ...,
            source_topics: list[str] = ...,
            source_topic_regex: list[str] = ...,
            state_changelog_topics: list[StreamsGroupTopologyValue.TopicInfo] = ...,
            repartition_sink_topics: list[str] = ...,
            repartition_source_topics: list[StreamsGroupTopologyValue.TopicInfo] = ...,
            copartition_groups: list[StreamsGroupTopologyValue.CopartitionGroup] = ...,
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
    epoch: int
    subtopologies: list[StreamsGroupTopologyValue.Subtopology]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        epoch: int = ...,
        subtopologies: list[StreamsGroupTopologyValue.Subtopology] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class EndTransactionRecord(Message):
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class AbortTransactionRecord(Message):
    reason: str | None
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        reason: str | None = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class RemoveDelegationTokenRecord(Message):
    token_id: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        token_id: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class RegisterControllerRecord(Message):
    class ControllerEndpoint(Message):
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
    class ControllerFeature(Message):
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
    end_points: list[RegisterControllerRecord.ControllerEndpoint]
    features: list[RegisterControllerRecord.ControllerFeature]
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        controller_id: int = ...,
        incarnation_id: Uuid = ...,
        zk_migration_ready: bool = ...,
        end_points: list[RegisterControllerRecord.ControllerEndpoint] = ...,
        features: list[RegisterControllerRecord.ControllerFeature] = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...

class ClearElrRecord(Message):
    topic_name: str
    unknown_tags: dict[int, bytes] | None
    def __init__(
        self,
        topic_name: str = ...,
        unknown_tags: dict[int, bytes] | None = ...,
    ) -> None: ...
