"""Moving replicas: AlterPartitionReassignments (45) v0-1, ListPartitionReassignments (46) v0 (KIP-455, KIP-860).

From [1,2,3] to [3,4,5] the replicas become [3,4,5,1,2], adding [4,5], removing [1,2]. The change that adds the last
new replica to the ISR also completes the reassignment (`change.completed_reassignment`). Reassignments are stored in
the log, so they survive restarts of controllers and brokers.

Difference from Apache Kafka: a reassignment that replaces another reassignment sets both lists, adding and removing.
Kafka keeps a list of the earlier reassignment if the new list is empty. Then a replica can be wanted and being removed
at the same time, or being added and removed, and the reassignment never ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kraft_node.controller.partitions.change import Election
from kraft_node.controller.partitions.topics import check_manual_assignment
from kraft_node.controller.plan import Plan
from kraft_node.controller.state.controller_state import ControllerState, check_operation_size
from kraft_node.controller.state.partition_index import numbers
from kraft_node.metadata.partitions import PartitionState, TopicView
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

ReassignablePartition = AlterPartitionReassignmentsRequest.ReassignablePartition


class Reassignments:
    """Starts, cancels and lists reassignments."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: ControllerState) -> None:
        self._cluster = cluster

    def alter(self, request: AlterPartitionReassignmentsRequest) -> Plan:
        """AlterPartitionReassignments: start or cancel the reassignment of each partition."""
        allow = request.allow_replication_factor_change
        words = None if request.topics else ""  # as Kafka has it
        response = AlterPartitionReassignmentsResponse(error_message=words, allow_replication_factor_change=allow)
        records: list[Any] = []
        for requested in request.topics:
            answers: list[Any] = []
            response.responses.append(
                AlterPartitionReassignmentsResponse.ReassignableTopicResponse(name=requested.name, partitions=answers)
            )
            for partition in requested.partitions:
                answer = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
                    partition_index=partition.partition_index, error_message=None
                )
                answers.append(answer)
                try:
                    record = self._alter_one(requested.name, partition, allow)
                except KafkaError as e:
                    answer.error_code = e.code
                    answer.error_message = e.message
                    continue
                if record is not None:
                    records.append(record)
        check_operation_size(records)
        return Plan(response, records)

    def _alter_one(self, name: str, requested: ReassignablePartition, allow_factor_change: bool) -> Any:
        topic = self._cluster.topic_named(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
        number = requested.partition_index
        state = topic.partition(number)
        if state is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{number}.")
        if requested.replicas is None:
            return self._cancel(topic, number, state)
        return self._start(topic, number, state, requested.replicas, allow_factor_change)

    def _start(
        self, topic: TopicView, number: int, state: PartitionState, target: list[int], allow_factor_change: bool
    ) -> Any:
        check_manual_assignment(self._cluster, target, None)
        if not allow_factor_change:
            factor = len({*state.replicas, *state.adding} - set(state.removing))
            if factor != len(target):
                message = f"The replication factor is changed from {factor} to {len(target)}"
                raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
        replicas, adding = set(state.replicas), set(state.adding)
        half_added = adding - set(state.isr)  # being added by the replaced reassignment: dropped at once
        change = self._cluster.change(topic, number, state)
        change.removing = sorted(replicas - half_added - set(target))
        change.replicas = [*target, *change.removing]
        change.adding = sorted(set(target) - (replicas - adding))
        return change.record()

    def _cancel(self, topic: TopicView, number: int, state: PartitionState) -> Any:
        if not state.is_reassigning:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        replicas = [broker_id for broker_id in state.replicas if broker_id not in state.adding]
        isr = [broker_id for broker_id in state.isr if broker_id not in state.adding]
        unclean_allowed = self._cluster.topic_config(topic.name).unclean_leader_election_enable
        if not isr:
            if not replicas:
                message = "Invalid replica assignment: addingReplicas contains all replicas."
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
            if not unclean_allowed:
                message = (
                    f"Unable to revert partition assignment for {topic.name}:{number} because it would require an "
                    "unclean leader election."
                )
                raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
            isr = [replicas[0]]
        change = self._cluster.change(topic, number, state)
        if unclean_allowed:
            change.election = Election.UNCLEAN
        change.isr = isr
        change.replicas = replicas
        change.removing = []
        change.adding = []
        return change.record()

    def list(self, request: ListPartitionReassignmentsRequest) -> Plan:
        """ListPartitionReassignments: the current reassignments of the requested topics (None: all). No records."""
        response = ListPartitionReassignmentsResponse(error_message=None)
        if request.topics is None:
            for topic_id, mask in self._cluster.index.reassigning.items():
                self._list_topic(self._cluster.topic_with(topic_id), numbers(mask), response)
        else:
            for requested in request.topics:
                self._list_topic(self._cluster.topic_named(requested.name), requested.partition_indexes, response)
        return Plan(response)

    @staticmethod
    def _list_topic(
        topic: TopicView | None, requested: Iterable[int], response: ListPartitionReassignmentsResponse
    ) -> None:
        if topic is None:
            return
        ongoing: list[Any] = []
        for number in requested:
            state = topic.partition(number)
            if state is not None and state.is_reassigning:
                ongoing.append(
                    ListPartitionReassignmentsResponse.OngoingPartitionReassignment(
                        partition_index=number,
                        replicas=list(state.replicas),
                        adding_replicas=list(state.adding),
                        removing_replicas=list(state.removing),
                    )
                )
        if ongoing:
            response.topics.append(
                ListPartitionReassignmentsResponse.OngoingTopicReassignment(name=topic.name, partitions=ongoing)
            )
