"""Reports of partition leaders and brokers about replicas: AlterPartition (56) v2-3, AssignReplicasToDirs (73) v0.

The ISR that a leader requests is checked against every change that the leader may not have seen (KIP-497, KIP-704,
KIP-841, KIP-903). The order is Apache Kafka's. The resulting ISR may differ: if it completes a reassignment, the
answer contains the change. If that change moves the leader itself, the record is written and the answer is
NEW_LEADER_ELECTED.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kraft_node.controller.partitions.change import RECOVERED, RECOVERING, Election, PartitionChange
from kraft_node.controller.plan import Plan
from kraft_node.controller.state.controller_state import ControllerState
from kraft_node.metadata.features import DIRECTORY_ASSIGNMENT_SUPPORTED
from kraft_node.metadata.partitions import NO_LEADER, PartitionState, TopicView
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import DIRECTORY_LOST, DIRECTORY_UNASSIGNED, Uuid
from kraft_protocol.wire.messages import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

PartitionAnswer = AlterPartitionResponse.PartitionData


class Isr:
    """Answers leaders and brokers about their replicas."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: ControllerState) -> None:
        self._cluster = cluster

    # AlterPartition

    def alter(self, request: AlterPartitionRequest, api_version: int) -> Plan:
        """AlterPartition: plan the ISR changes that a leader requests. Raises STALE_BROKER_EPOCH."""
        cluster = self._cluster
        cluster.check_epoch(request.broker_id, request.broker_epoch)
        response = AlterPartitionResponse()
        records: list[Any] = []
        for requested in request.topics:
            answers: list[PartitionAnswer] = []
            response.topics.append(AlterPartitionResponse.TopicData(topic_id=requested.topic_id, partitions=answers))
            topic = cluster.topic_with(requested.topic_id)
            for partition in requested.partitions:
                number = partition.partition_index
                state = None if topic is None else topic.partition(number)
                if topic is None:
                    answers.append(_refusal(number, ErrorCode.UNKNOWN_TOPIC_ID))
                elif state is None:
                    answers.append(_refusal(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
                else:
                    isr = _wanted_isr(partition, api_version)
                    answers.append(self._alter_one(request.broker_id, topic, number, state, partition, isr, records))
        return Plan(response, records, atomic=False)

    def _alter_one(
        self,
        sender: int,
        topic: TopicView,
        number: int,
        state: PartitionState,
        requested: AlterPartitionRequest.PartitionData,
        isr: Sequence[tuple[int, int]],
        records: list[Any],
    ) -> PartitionAnswer:
        error = self._check(sender, state, requested, isr)
        if error is not None:
            return _refusal(number, error)
        cluster = self._cluster
        change = cluster.change(topic, number, state)
        if cluster.topic_config(topic.name).unclean_leader_election_enable:
            change.election = Election.UNCLEAN
        change.isr = [broker_id for broker_id, _ in isr]
        change.recovery = requested.leader_recovery_state
        record = change.record()
        after = state
        if record is not None:
            records.append(record)
            after = state.changed_by(record)
            if after.leader not in (state.leader, sender):
                # The reassignment that this completes moves the leader: it must wait for the record and stop leading.
                return _refusal(number, ErrorCode.NEW_LEADER_ELECTED)
        return AlterPartitionResponse.PartitionData(
            partition_index=number,
            error_code=0,
            leader_id=after.leader,
            leader_epoch=after.leader_epoch,
            isr=list(after.isr),
            leader_recovery_state=after.leader_recovering,
            partition_epoch=after.partition_epoch,
        )

    def _check(
        self,
        sender: int,
        state: PartitionState,
        requested: AlterPartitionRequest.PartitionData,
        isr: Sequence[tuple[int, int]],
    ) -> ErrorCode | None:
        if requested.leader_epoch > state.leader_epoch or requested.partition_epoch > state.partition_epoch:
            return ErrorCode.NOT_CONTROLLER  # the leader has newer metadata: this node is no longer the controller
        if requested.leader_epoch < state.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if sender != state.leader:
            return ErrorCode.INVALID_REQUEST
        if requested.partition_epoch < state.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        members = [broker_id for broker_id, _ in isr]
        if not members or len(set(members)) != len(members) or not set(members) <= set(state.replicas):
            return ErrorCode.INVALID_REQUEST
        if state.leader not in members:
            return ErrorCode.INVALID_REQUEST
        if requested.leader_recovery_state == RECOVERING:
            if len(members) > 1 or state.leader_recovering == RECOVERED:
                return ErrorCode.INVALID_REQUEST
        elif requested.leader_recovery_state != RECOVERED:
            return ErrorCode.INVALID_REQUEST
        return None if all(self._eligible(state, member) for member in isr) else ErrorCode.INELIGIBLE_REPLICA

    def _eligible(self, state: PartitionState, member: tuple[int, int]) -> bool:
        """Whether a broker, in the incarnation that the leader saw (-1: any), may be in an ISR.

        A broker whose replica is lost may not join: it begins with an empty log, although the leader knows it as caught
        up until it fetches again.
        """
        if member[0] not in state.isr and state.directory(member[0]) == DIRECTORY_LOST:
            return False
        broker = self._cluster.broker(member[0])
        return broker is not None and self._cluster.is_active(broker.id) and member[1] in (-1, broker.epoch)

    # AssignReplicasToDirs

    def assign_directories(self, request: AssignReplicasToDirsRequest) -> Plan:
        """Store the log directory of each replica of a broker. Replicas in a lost directory leave the ISR.

        A replica that moves from a lost directory into another begins anew, so its former log does not count for
        elections any more. With the directory `DIRECTORY_UNASSIGNED` its broker says that the log is whole again: it
        may lead at once. Apache Kafka's controllers accept this as well, and elect at the broker's next registration.
        """
        if self._cluster.level < DIRECTORY_ASSIGNMENT_SUPPORTED:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
        broker = self._cluster.check_epoch(request.broker_id, request.broker_epoch)
        response = AssignReplicasToDirsResponse()
        records: list[Any] = []
        lost: dict[tuple[Uuid, int], PartitionState] = {}
        """Partitions in directories that are not online, with their state after `records`."""
        for directory in request.directories:
            is_online = broker.has_online_directory(directory.id)
            topics: list[Any] = []
            response.directories.append(AssignReplicasToDirsResponse.DirectoryData(id=directory.id, topics=topics))
            for requested in directory.topics:
                partitions: list[Any] = []
                topics.append(
                    AssignReplicasToDirsResponse.TopicData(topic_id=requested.topic_id, partitions=partitions)
                )
                topic = self._cluster.topic_with(requested.topic_id)
                for partition in requested.partitions:
                    number = partition.partition_index
                    error, after = self._assign_one(broker.id, directory.id, is_online, topic, number, records)
                    if after is not None and topic is not None and not is_online:
                        lost[topic.id, number] = after
                    partitions.append(
                        AssignReplicasToDirsResponse.PartitionData(partition_index=number, error_code=error)
                    )
        for (topic_id, number), state in lost.items():
            self._leave(broker.id, topic_id, number, state, records)
        return Plan(response, records, atomic=False)

    def _assign_one(
        self,
        broker_id: int,
        directory: Uuid,
        is_online: bool,
        topic: TopicView | None,
        number: int,
        records: list[Any],
    ) -> tuple[ErrorCode, PartitionState | None]:
        """The error, or the partition's state afterwards."""
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID, None
        state = topic.partition(number)
        if state is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        if broker_id not in state.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
        is_back = is_online and not self._cluster.may_have_records(state, broker_id)
        begins_anew = is_back and directory != DIRECTORY_UNASSIGNED
        if begins_anew:
            state = self._forget_log(broker_id, topic, number, state, records)
        change = self._cluster.change(topic, number, state)
        change.directories[broker_id] = directory
        state = _carried_out(change, records)
        # If no other replica can have records, an empty one may lead, too: nothing more is lost.
        may_lead = is_back and (not begins_anew or self._is_last_hope(state, broker_id))
        if may_lead and state.leader == NO_LEADER:
            state = _carried_out(self._election(topic, number, state), records)
        return ErrorCode.NONE, state

    def _is_last_hope(self, state: PartitionState, broker_id: int) -> bool:
        """Whether no other replica can have records that this one had."""
        if state.isr == (broker_id,):  # without eligible leader replicas
            return not any(b != broker_id and self._cluster.may_have_records(state, b) for b in state.replicas)
        return state.last_known_elr == (broker_id,)

    def _forget_log(
        self, broker_id: int, topic: TopicView, number: int, state: PartitionState, records: list[Any]
    ) -> PartitionState:
        """The state without the replica among the eligible ones and the last known leaders; the next of these may
        lead. If no other replica can have records, it stays the last known leader.

        This goes before the new directory: with both, the empty replica could be elected if the plan ended here.
        """
        if broker_id not in state.elr and broker_id not in state.last_known_elr:
            return state
        change = self._election(topic, number, state)
        change.unclean_shutdown = frozenset((broker_id,))
        others = [b for b in state.replicas if b != broker_id and self._cluster.may_have_records(state, b)]
        if others or len(state.last_known_elr) > 1:
            change.last_known_elr = [b for b in state.last_known_elr if b != broker_id]
        return _carried_out(change, records)

    def _election(self, topic: TopicView, number: int, state: PartitionState) -> PartitionChange:
        change = self._cluster.change(topic, number, state)
        if self._cluster.topic_config(topic.name).unclean_leader_election_enable:
            change.election = Election.UNCLEAN
        return change

    def _leave(self, broker_id: int, topic_id: Uuid, number: int, state: PartitionState, records: list[Any]) -> None:
        """Take a replica in a directory that is not online out of the ISR; it may not lead."""
        topic = self._cluster.topic_with(topic_id)
        assert topic is not None, f"law: {topic_id!r} was assigned just now"
        change = self._election(topic, number, state)
        change.isr = [member for member in state.isr if member != broker_id]
        _carried_out(change, records)


def _carried_out(change: PartitionChange, records: list[Any]) -> PartitionState:
    """The state after the change, whose record, if it has one, goes to `records`."""
    record = change.record()
    if record is None:
        return change.state
    records.append(record)
    return change.state.changed_by(record)


def _wanted_isr(requested: AlterPartitionRequest.PartitionData, api_version: int) -> list[tuple[int, int]]:
    """(broker id, broker epoch) of each member; epoch -1 if the leader does not name it."""
    if api_version >= 3:
        return [(member.broker_id, member.broker_epoch) for member in requested.new_isr_with_epochs]
    return [(broker_id, -1) for broker_id in requested.new_isr]


def _refusal(number: int, error: ErrorCode) -> PartitionAnswer:
    return AlterPartitionResponse.PartitionData(partition_index=number, error_code=error)
