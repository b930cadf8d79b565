"""Topics: CreateTopics (19) v2-7, DeleteTopics (20) v1-6, CreatePartitions (37) v0-3.

Records of a new topic, in order: TopicRecord, its ConfigRecords, a PartitionRecord per partition. A deletion is one
RemoveTopicRecord for a topic of any size. Each topic of a request is checked by itself; its error does not affect
other topics. A request is one atomic batch, so its size is bounded.

Differences: CreateTopicPolicy plug-ins are not supported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from kraft_node.base.config.describe import describe_topic
from kraft_node.controller.mutation_quota import UNBOUNDED, Permission
from kraft_node.controller.partitions.placement import REPLICATION_FACTOR_MAX, StripedPlacer
from kraft_node.controller.partitions.topic_names import check_topic_name
from kraft_node.controller.plan import Plan
from kraft_node.controller.settings.configs import Configs
from kraft_node.controller.state.controller_state import ControllerState, check_operation_size
from kraft_node.metadata.partitions import TopicView
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import ZERO_UUID, Uuid, random_uuid
from kraft_protocol.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kraft_protocol.wire.stored import PartitionRecord, RemoveTopicRecord, TopicRecord

PARTITIONS_PER_BATCH_MAX: Final = 10_000
"""Maximum of partitions that one request may create (Kafka's MAX_PARTITIONS_PER_BATCH)."""

UNKNOWN_ID: Final = "This server does not host this topic ID."
UNKNOWN_NAME: Final = "This server does not host this topic-partition."

FORBIDDEN_NAME: Final = "__cluster_metadata"

Assignments: TypeAlias = Sequence[Sequence[int]]
"""The replicas of each partition, in order."""

SHOWN_CONFIGS_MAX: Final = 64
"""Maximum of cached descriptions of override sets: applications create topics of a few kinds."""


class TopicManager:
    """Answers requests that create, extend and delete topics."""

    __slots__ = ("_cluster", "_configs", "_shown", "_shown_generation")

    def __init__(self, cluster: ControllerState, configs: Configs) -> None:
        self._cluster = cluster
        self._configs = configs
        self._shown: dict[tuple[tuple[str, str], ...], list[Any]] = {}
        self._shown_generation = -1

    # CreateTopics

    def create(self, request: CreateTopicsRequest, quota: Permission = UNBOUNDED) -> Plan:
        """CreateTopics: plan the records of all valid topics. Each other topic gets its own error."""
        errors = self._name_errors(request)
        self._check_partition_total(request)
        response = CreateTopicsResponse()
        records: list[Any] = []
        done: set[str] = set()
        for topic in request.topics:
            if topic.name in done:
                continue
            done.add(topic.name)
            error = errors.get(topic.name)
            if error is None:
                try:
                    response.topics.append(self._create_one(topic, records, quota))
                    continue
                except KafkaError as e:
                    error = e
            response.topics.append(
                CreateTopicsResponse.CreatableTopicResult(
                    name=topic.name, error_code=error.code, error_message=error.message
                )
            )
        check_operation_size(records)
        response.throttle_time_ms = quota.throttle_ms
        return Plan(response, () if request.validate_only else records)

    def _name_errors(self, request: CreateTopicsRequest) -> dict[str, KafkaError]:
        errors: dict[str, KafkaError] = {}
        names = [topic.name for topic in request.topics]
        twice = repeated(names)
        for name in dict.fromkeys(names):
            try:
                if name in twice:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                if name == FORBIDDEN_NAME:
                    message = f"Creation of internal topic {FORBIDDEN_NAME} is prohibited."
                    raise KafkaError(ErrorCode.INVALID_REQUEST, message)
                check_topic_name(name)
                if self._cluster.topic_named(name) is not None:
                    raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
                self._check_collision(name)
            except KafkaError as e:
                errors[name] = e
        return errors

    def _check_collision(self, name: str) -> None:
        other = self._cluster.names.colliding(name)
        if other is not None:
            message = f"Topic '{name}' collides with existing topic: {other}"
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)

    def _check_partition_total(self, request: CreateTopicsRequest) -> None:
        total = 0
        for topic in request.topics:
            if topic.assignments:
                total += len(topic.assignments)
            elif topic.num_partitions == -1:
                total += self._cluster.static.int("num.partitions")
            elif topic.num_partitions > 0:
                total += topic.num_partitions
        if total > PARTITIONS_PER_BATCH_MAX:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")

    def _create_one(
        self, topic: CreateTopicsRequest.CreatableTopic, records: list[Any], quota: Permission
    ) -> CreateTopicsResponse.CreatableTopicResult:
        wanted = {config.name: config.value for config in topic.configs}
        overrides, config_records = self._configs.plan_new_topic(topic.name, wanted)
        assignments = self._manual(topic) if topic.assignments else self._placed(topic)
        in_sync = [self._active(replicas) for replicas in assignments]
        if topic.assignments:
            for number, isr in enumerate(in_sync):
                if not isr:
                    message = (
                        f"All brokers specified in the manual partition assignment for partition {number} are fenced "
                        "or in controlled shutdown."
                    )
                    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        elif not all(in_sync):
            self._no_leader(len(assignments[0]))
        quota.record(len(assignments))
        topic_id = random_uuid(self._cluster.rng)
        records.append(TopicRecord(name=topic.name, topic_id=topic_id))
        records += config_records
        self._add_partitions(topic_id, 0, assignments, in_sync, records)
        return CreateTopicsResponse.CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=len(assignments),
            replication_factor=len(assignments[0]),
            configs=self._shown_configs(overrides),
        )

    @staticmethod
    def _no_leader(replicas: int) -> None:
        message = (
            f"Unable to replicate the partition {replicas} time(s): All brokers are currently fenced or in controlled "
            "shutdown."
        )
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)

    def _manual(self, topic: CreateTopicsRequest.CreatableTopic) -> Assignments:
        if topic.replication_factor != -1:
            message = "A manual partition assignment was specified, but replication factor was not set to -1."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if topic.num_partitions != -1:
            message = "A manual partition assignment was specified, but numPartitions was not set to -1."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        assignments: dict[int, Sequence[int]] = {}
        replicas: int | None = None
        for assignment in topic.assignments:
            number = assignment.partition_index
            if number in assignments:
                message = f"Found multiple manual partition assignments for partition {number}"
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
            check_manual_assignment(self._cluster, assignment.broker_ids, replicas)
            replicas = len(assignment.broker_ids)
            assignments[number] = assignment.broker_ids
        if sorted(assignments) != list(range(len(assignments))):
            message = "partitions should be a consecutive 0-based integer sequence"
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        return [assignments[number] for number in range(len(assignments))]

    def _placed(self, topic: CreateTopicsRequest.CreatableTopic) -> Assignments:
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            message = "Replication factor must be larger than 0, or -1 to use the default value."
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        if topic.num_partitions < -1 or topic.num_partitions == 0:
            message = "Number of partitions was set to an invalid non-positive value."
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
        static = self._cluster.static
        partitions = static.int("num.partitions") if topic.num_partitions == -1 else topic.num_partitions
        replicas = topic.replication_factor
        if replicas == -1:
            replicas = static.int("default.replication.factor")
        try:
            return StripedPlacer(self._cluster.usable_brokers(), self._cluster.rng).place(partitions, replicas)
        except KafkaError as e:
            message = f"Unable to replicate the partition {replicas} time(s): {e.message}"
            raise KafkaError(e.code, message) from None

    def _active(self, replicas: Sequence[int]) -> list[int]:
        return [broker_id for broker_id in replicas if self._cluster.is_active(broker_id)]

    def _add_partitions(
        self, topic_id: Uuid, first: int, assignments: Assignments, in_sync: Assignments, records: list[Any]
    ) -> None:
        directories = self._cluster.directories_for(assignments)
        for number, (replicas, isr) in enumerate(zip(assignments, in_sync, strict=True), start=first):
            records.append(
                PartitionRecord(
                    partition_id=number,
                    topic_id=topic_id,
                    replicas=list(replicas),
                    isr=list(isr),
                    leader=isr[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[directories[broker_id] for broker_id in replicas] if directories else [],
                )
            )

    def _shown_configs(self, overrides: dict[str, str]) -> list[Any]:
        """The configs field of a created topic, with the text of its overrides. Topics with the same overrides share
        it.
        """
        generation = self._cluster.config_generation
        if generation != self._shown_generation or len(self._shown) >= SHOWN_CONFIGS_MAX:
            self._shown.clear()
            self._shown_generation = generation
        key = tuple(sorted(overrides.items()))
        configs = self._shown.get(key)
        if configs is None:
            entries = sorted(describe_topic(overrides, self._cluster.config), key=lambda entry: entry.name)
            configs = self._shown[key] = [
                CreateTopicsResponse.CreatableTopicConfigs(
                    name=entry.name,
                    value=None if entry.sensitive else overrides.get(entry.name, entry.value),
                    read_only=entry.read_only,
                    config_source=entry.source,
                    is_sensitive=entry.sensitive,
                )
                for entry in entries
            ]
        return configs

    # DeleteTopics

    def delete(self, request: DeleteTopicsRequest, api_version: int, quota: Permission = UNBOUNDED) -> Plan:
        """Delete topics by name or id, with one result per requested topic."""
        if not self._cluster.static.boolean("delete.topic.enable"):
            if api_version < 3:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "This version does not support topic deletion.")
            raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED)
        requested: list[tuple[str | None, Uuid]] = [(state.name, state.topic_id) for state in request.topics]
        if api_version < 6:
            requested = [(name, ZERO_UUID) for name in request.topic_names]
        response = DeleteTopicsResponse()
        found: dict[Uuid, str] = {}
        for name, topic_id, error in self._deletions(requested, found, quota):
            result = DeleteTopicsResponse.DeletableTopicResult(name=name, topic_id=topic_id)
            if error is not None:
                result.error_code = error.code
                result.error_message = error.message
            response.responses.append(result)
        records = [RemoveTopicRecord(topic_id=topic_id) for topic_id in found]
        check_operation_size(records)
        response.throttle_time_ms = quota.throttle_ms
        return Plan(response, records)

    def _deletions(
        self, requested: Sequence[tuple[str | None, Uuid]], found: dict[Uuid, str], quota: Permission
    ) -> list[tuple[str | None, Uuid, KafkaError | None]]:
        """One result per topic; topics to delete are put into `found`."""
        results: list[tuple[str | None, Uuid, KafkaError | None]] = []
        wrong = [row for row in requested if (row[0] is None) == (row[1] == ZERO_UUID)]
        for name, topic_id in wrong:
            message = "Neither topic name nor id were specified."
            if name is not None:
                message = "You may not specify both topic name and topic id."
            results.append((name, topic_id, KafkaError(ErrorCode.INVALID_REQUEST, message)))
        if wrong:
            requested = [row for row in requested if (row[0] is None) != (row[1] == ZERO_UUID)]
        keys = [topic_id if name is None else name for name, topic_id in requested]
        doubtful = repeated(keys)
        named = {name for name, topic_id in requested if topic_id == ZERO_UUID} - doubtful
        by_id = {topic_id for name, topic_id in requested if name is None}
        reported: set[Any] = set()
        for key, (name, topic_id) in zip(keys, requested, strict=True):
            if key in reported:
                continue
            reported.add(key)
            try:
                topic = self._deletable(name, topic_id, doubtful)
            except KafkaError as e:
                results.append((name, topic_id, e))
                continue
            if name is None and topic.name in named:
                continue  # refused under its name
            if name is not None and topic.id in by_id:
                message = "The provided topic name maps to an ID that was already supplied."
                results.append((topic.name, topic.id, KafkaError(ErrorCode.INVALID_REQUEST, message)))
                continue
            try:
                quota.record(len(topic))
                found[topic.id] = topic.name
                results.append((topic.name, topic.id, None))
            except KafkaError as e:
                results.append((topic.name, topic.id, e))
        return results

    def _deletable(self, name: str | None, topic_id: Uuid, doubtful: set[Any]) -> TopicView:
        if (topic_id if name is None else name) in doubtful:
            what = "id" if name is None else "name"
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
        topic = self._cluster.topic_with(topic_id) if name is None else self._cluster.topic_named(name)
        if topic is None:
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_ID)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_NAME)
        return topic

    # CreatePartitions

    def grow(self, request: CreatePartitionsRequest, quota: Permission = UNBOUNDED) -> Plan:
        """Add partitions to topics."""
        response = CreatePartitionsResponse()
        records: list[Any] = []
        twice = repeated([topic.name for topic in request.topics])
        done: set[str] = set()
        for topic in request.topics:
            if topic.name in done:
                continue
            done.add(topic.name)
            result = CreatePartitionsResponse.CreatePartitionsTopicResult(name=topic.name, error_message=None)
            try:
                if topic.name in twice:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                records += self._grow_one(topic, quota)
            except KafkaError as e:
                result.error_code = e.code
                result.error_message = e.message
            response.results.append(result)
        check_operation_size(records)
        response.throttle_time_ms = quota.throttle_ms
        return Plan(response, () if request.validate_only else records)

    def _grow_one(self, requested: CreatePartitionsRequest.CreatePartitionsTopic, quota: Permission) -> list[Any]:
        topic = self._cluster.topic_named(requested.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        now = len(topic)
        if requested.count == now:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {now} partition(s).")
        if requested.count < now:
            message = (
                f"The topic {requested.name} currently has {now} partition(s); "
                f"{requested.count} would not be an increase."
            )
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
        more = requested.count - now
        if requested.assignments is not None and len(requested.assignments) != more:
            message = (
                f"Attempted to add {more} additional partition(s), but only {len(requested.assignments)} assignment(s) "
                "were specified."
            )
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        quota.record(more)
        if more > PARTITIONS_PER_BATCH_MAX:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        first = topic.partition(0)
        replicas = 1 if first is None else min(len(first.replicas), REPLICATION_FACTOR_MAX)
        assignments = self._more_assignments(requested, now, more, replicas)
        in_sync = [self._active(assignment) for assignment in assignments]
        if not all(in_sync):
            self._no_leader(replicas)
        records: list[Any] = []
        self._add_partitions(topic.id, now, assignments, in_sync, records)
        return records

    def _more_assignments(
        self, requested: CreatePartitionsRequest.CreatePartitionsTopic, now: int, more: int, replicas: int
    ) -> Assignments:
        if requested.assignments is None:
            return StripedPlacer(self._cluster.usable_brokers(), self._cluster.rng).place(more, replicas)
        assignments = [assignment.broker_ids for assignment in requested.assignments]
        for number, assignment in enumerate(assignments, start=now):
            check_manual_assignment(self._cluster, assignment, replicas)
            if not self._active(assignment):
                message = (
                    f"All brokers specified in the manual partition assignment for partition {number} are fenced or "
                    "in controlled shutdown."
                )
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        return assignments


def repeated(keys: Iterable[Any]) -> set[Any]:
    """The keys that occur more than once."""
    seen: set[Any] = set()
    twice: set[Any] = set()
    for key in keys:
        (twice if key in seen else seen).add(key)
    return twice


def check_manual_assignment(cluster: ControllerState, replicas: Sequence[int], factor: int | None) -> None:
    """Raise INVALID_REPLICA_ASSIGNMENT unless users may place a partition on these brokers, `factor` of them (None:
    any).
    """
    why: str | None = None
    if not replicas:
        why = "The manual partition assignment includes an empty replica list."
    else:
        previous: int | None = None
        for broker_id in sorted(replicas):
            if cluster.broker(broker_id) is None:
                why = f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
                break
            if broker_id == previous:
                why = f"The manual partition assignment includes the broker {broker_id} more than once."
                break
            previous = broker_id
    if why is None and factor is not None and len(replicas) != factor:
        why = (
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {factor} replica(s)."
        )
    if why is not None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
