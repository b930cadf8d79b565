"""Leaders and ISRs: leaders' requests, elections, reassignments, and automatic changes."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import DIRECTORY_LOST, DIRECTORY_UNASSIGNED, Uuid
from kraft_protocol.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AssignReplicasToDirsRequest,
    ElectLeadersRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
)
from tests.unit.controller.harness import Quorum, directory, uuid

Reassign = AlterPartitionReassignmentsRequest


@pytest.fixture
def quorum() -> Quorum:
    quorum = Quorum()
    quorum.start(1, 2, 3, 4)
    quorum.create("foo", [[1, 2, 3]])
    return quorum


def alter(
    quorum: Quorum,
    isr: list[int],
    *,
    sender: int = 1,
    version: int = 3,
    epochs: dict[int, int] | None = None,
    **over: Any,
) -> AlterPartitionResponse.PartitionData:
    """Request an ISR as the leader of foo-0; `over` replaces fields of the partition."""
    state = quorum.partition("foo")
    members = [
        AlterPartitionRequest.BrokerState(
            broker_id=member, broker_epoch=(epochs or {}).get(member, quorum.epoch_of(member))
        )
        for member in isr
        if quorum.image.brokers.get(member) or epochs
    ]
    fields = {
        "partition_index": 0,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "new_isr_with_epochs": members if version >= 3 else [],
        "new_isr": isr if version < 3 else [],
        **over,
    }
    topic = AlterPartitionRequest.TopicData(
        topic_id=fields.pop("topic_id", None) or quorum.topic_id("foo"),
        partitions=[AlterPartitionRequest.PartitionData(**fields)],
    )
    request = AlterPartitionRequest(broker_id=sender, broker_epoch=quorum.epoch_of(sender), topics=[topic])
    data: AlterPartitionResponse.PartitionData = quorum.respond(request, version).topics[0].partitions[0]
    return data


# AlterPartition


@pytest.mark.parametrize("version", [2, 3])
def test_a_leader_shrinks_and_expands_its_isr(quorum: Quorum, version: int) -> None:
    shrunk = alter(quorum, [1, 2], version=version)
    assert (shrunk.error_code, shrunk.isr, shrunk.partition_epoch) == (0, [1, 2], 1)
    assert (shrunk.leader_id, shrunk.leader_epoch) == (1, 0), "an ISR change alone starts no leader epoch"
    assert quorum.partition("foo").isr == (1, 2)
    expanded = alter(quorum, [1, 2, 3], version=version)
    assert (expanded.error_code, expanded.isr, expanded.partition_epoch) == (0, [1, 2, 3], 2)


def test_setting_the_same_isr_writes_nothing(quorum: Quorum) -> None:
    since = quorum.log.next_offset
    data = alter(quorum, [1, 2, 3])
    assert (data.error_code, data.partition_epoch) == (0, 0)
    assert quorum.written(since=since) == []


@pytest.mark.parametrize(
    ("isr", "over", "code"),
    [
        ([1], {"topic_id": uuid(9)}, ErrorCode.UNKNOWN_TOPIC_ID),
        ([1], {"partition_index": 5}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1], {"leader_epoch": 7}, ErrorCode.NOT_CONTROLLER),
        ([1], {"partition_epoch": 7}, ErrorCode.NOT_CONTROLLER),
        ([1], {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1], {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ([2], {"sender": 2}, ErrorCode.INVALID_REQUEST),
        ([1, 4], {}, ErrorCode.INVALID_REQUEST),
        ([1, 1], {}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([2, 3], {}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"epochs": {1: -1, 2: 9_999}}, ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_wrong_isrs_are_refused(quorum: Quorum, isr: list[int], over: dict[str, Any], code: ErrorCode) -> None:
    assert alter(quorum, isr, **over).error_code == code


def test_a_fenced_or_leaving_replica_may_not_join_an_isr(quorum: Quorum) -> None:
    quorum.heartbeat(3, want_fence=True)
    assert alter(quorum, [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA
    assert quorum.partition("foo").isr == (1, 2)


def test_only_the_registered_incarnation_may_change_the_isr(quorum: Quorum) -> None:
    request = AlterPartitionRequest(broker_id=1, broker_epoch=quorum.epoch_of(1) + 1)
    with pytest.raises(KafkaError) as refused:
        quorum.respond(request)
    assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH


# Elections


def test_when_the_leader_is_fenced_the_next_in_sync_replica_leads(quorum: Quorum) -> None:
    quorum.heartbeat(1, want_fence=True)
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.leader_epoch) == (2, (2, 3), 1)


def test_the_last_in_sync_replica_keeps_the_isr_and_leads_again(quorum: Quorum) -> None:
    for broker in (1, 2, 3):
        quorum.heartbeat(broker, want_fence=True)
    state = quorum.partition("foo")
    assert (state.leader, state.isr) == (-1, (3,))
    quorum.heartbeat(2)
    assert quorum.partition("foo").leader == -1, "2 is not in sync"
    quorum.heartbeat(3)
    assert quorum.partition("foo").leader == 3


def elect(quorum: Quorum, kind: int, topics: dict[str, list[int]] | None) -> Any:
    partitions = (
        None
        if topics is None
        else [ElectLeadersRequest.TopicPartitions(topic=name, partitions=numbers) for name, numbers in topics.items()]
    )
    response = quorum.respond(ElectLeadersRequest(election_type=kind, topic_partitions=partitions))
    return [
        (result.topic, partition.partition_id, partition.error_code)
        for result in response.replica_election_results
        for partition in result.partition_result
    ]


def test_a_preferred_election_gives_leadership_back(quorum: Quorum) -> None:
    quorum.heartbeat(1, want_fence=True)
    assert elect(quorum, 0, {"foo": [0]}) == [("foo", 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
    quorum.heartbeat(1)
    alter(quorum, [2, 3, 1], sender=2)
    assert elect(quorum, 0, {"foo": [0]}) == [("foo", 0, 0)]
    assert quorum.partition("foo").leader == 1
    assert elect(quorum, 0, {"foo": [0, 7], "bar": [0]}) == [
        ("foo", 0, ErrorCode.ELECTION_NOT_NEEDED),
        ("foo", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bar", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_an_election_of_all_partitions_returns_only_those_that_changed(quorum: Quorum) -> None:
    quorum.create("bar", [[4, 1]])
    quorum.heartbeat(1, want_fence=True)
    quorum.heartbeat(1)
    alter(quorum, [2, 3, 1], sender=2)
    assert elect(quorum, 0, None) == [("foo", 0, 0)]


def test_an_unclean_election_takes_an_active_replica_and_marks_it_recovering(quorum: Quorum) -> None:
    assert elect(quorum, 1, {"foo": [0]}) == [("foo", 0, ErrorCode.ELECTION_NOT_NEEDED)]
    for broker in (1, 2, 3):
        quorum.heartbeat(broker, want_fence=True)
    assert elect(quorum, 1, {"foo": [0]}) == [("foo", 0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)]
    quorum.heartbeat(2)
    assert elect(quorum, 1, {"foo": [0]}) == [("foo", 0, 0)]
    state = quorum.partition("foo")
    assert (state.leader, state.isr, state.leader_recovering) == (2, (2,), 1)
    still = alter(quorum, [2], sender=2, leader_recovery_state=1)
    assert still.error_code == 0
    done = alter(quorum, [2], sender=2, leader_recovery_state=0)
    assert (done.error_code, done.leader_recovery_state) == (0, 0)
    assert quorum.partition("foo").leader_recovering == 0


def test_an_unknown_kind_of_election_is_refused(quorum: Quorum) -> None:
    with pytest.raises(KafkaError, match="Unknown election type 5"):
        elect(quorum, 5, None)


def set_config(quorum: Quorum, kind: int, name: str, key: str, value: str) -> None:
    request = IncrementalAlterConfigsRequest(
        resources=[
            IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)],
            )
        ]
    )
    assert quorum.respond(request).responses[0].error_code == 0


def test_topics_that_allow_unclean_leaders_elect_them_automatically(quorum: Quorum) -> None:
    quorum.create("bar", [[1, 2, 3]])
    for broker in (1, 2, 3):
        quorum.heartbeat(broker, want_fence=True)
    quorum.heartbeat(2)
    set_config(quorum, 2, "foo", "unclean.leader.election.enable", "true")
    for _ in range(200):
        quorum.pass_time(2_000)
        for broker in (2, 4):
            quorum.heartbeat(broker)
    assert (quorum.partition("foo").leader, quorum.partition("foo").leader_recovering) == (2, 1)
    assert quorum.partition("bar").leader == -1


def test_preferred_leaders_are_elected_automatically_every_five_minutes(quorum: Quorum) -> None:
    quorum.heartbeat(1, want_fence=True)
    quorum.heartbeat(1)
    alter(quorum, [2, 3, 1], sender=2)
    for _ in range(149):
        quorum.pass_time(2_000)
        for broker in (1, 2, 3, 4):
            quorum.heartbeat(broker)
    assert quorum.partition("foo").leader == 2
    quorum.pass_time(2_000)
    assert quorum.partition("foo").leader == 1


# Reassignments


def reassign(quorum: Quorum, replicas: list[int] | None, number: int = 0, *, may_change_factor: bool = True) -> Any:
    request = Reassign(
        allow_replication_factor_change=may_change_factor,
        topics=[
            Reassign.ReassignableTopic(
                name="foo", partitions=[Reassign.ReassignablePartition(partition_index=number, replicas=replicas)]
            )
        ],
    )
    return quorum.respond(request).responses[0].partitions[0]


def test_a_reassignment_adds_replicas_first_and_removes_when_they_are_in_sync(quorum: Quorum) -> None:
    assert reassign(quorum, [3, 4]).error_code == 0
    state = quorum.partition("foo")
    assert (state.replicas, state.adding, state.removing) == ((3, 4, 1, 2), (4,), (1, 2))
    listed = quorum.respond(ListPartitionReassignmentsRequest()).topics
    assert [(topic.name, p.partition_index, p.adding_replicas) for topic in listed for p in topic.partitions] == [
        ("foo", 0, [4])
    ]
    data = alter(quorum, [1, 2, 3, 4])
    assert data.error_code == ErrorCode.NEW_LEADER_ELECTED, "the leader 1 is moved away by its own success"
    state = quorum.partition("foo")
    assert (state.replicas, state.isr, state.leader) == ((3, 4), (3, 4), 3)
    assert not state.is_reassigning
    assert quorum.respond(ListPartitionReassignmentsRequest()).topics == []


def test_a_completing_isr_change_returns_the_resulting_isr(quorum: Quorum) -> None:
    reassign(quorum, [1, 4, 3])
    data = alter(quorum, [1, 2, 3, 4])
    assert (data.error_code, sorted(data.isr), data.leader_id) == (0, [1, 3, 4], 1)
    assert quorum.partition("foo").replicas == (1, 4, 3)


def test_a_reassignment_that_only_removes_replicas_completes_at_once(quorum: Quorum) -> None:
    assert reassign(quorum, [2, 1]).error_code == 0
    state = quorum.partition("foo")
    assert (state.replicas, state.isr, state.is_reassigning) == ((2, 1), (1, 2), False)
    assert state.leader_epoch == 1, "the leader has to learn of it"


def test_a_reassignment_can_be_cancelled(quorum: Quorum) -> None:
    assert reassign(quorum, None).error_code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    reassign(quorum, [3, 4])
    assert reassign(quorum, None).error_code == 0
    state = quorum.partition("foo")
    assert (sorted(state.replicas), state.is_reassigning) == ([1, 2, 3], False)


def test_a_new_reassignment_drops_the_changes_of_the_former(quorum: Quorum) -> None:
    """Simulator (cluster seed 51): a replica that was added was also to be removed, for ever."""
    reassign(quorum, [3, 4])
    assert reassign(quorum, [1, 2, 3]).error_code == 0
    state = quorum.partition("foo")
    assert (state.replicas, state.adding, state.removing) == ((1, 2, 3), (), ())
    reassign(quorum, [3, 4])
    assert reassign(quorum, [2, 4]).error_code == 0
    state = quorum.partition("foo")
    assert (state.replicas, state.adding, state.removing) == ((2, 4, 1, 3), (4,), (1, 3))


def test_wrong_reassignments_are_refused(quorum: Quorum) -> None:
    assert reassign(quorum, [1], 9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert reassign(quorum, []).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(quorum, [1, 9]).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    refused = reassign(quorum, [1, 2], may_change_factor=False)
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "The replication factor is changed from 3 to 2",
    )


# Directories


def assign(quorum: Quorum, broker: int, to: Uuid) -> None:
    """The broker says that its replica of foo-0 is in the directory `to`."""
    Request = AssignReplicasToDirsRequest  # noqa: N806
    topics = [Request.TopicData(topic_id=quorum.topic_id("foo"), partitions=[Request.PartitionData(partition_index=0)])]
    directories = [Request.DirectoryData(id=to, topics=topics)]
    quorum.respond(Request(broker_id=broker, broker_epoch=quorum.epoch_of(broker), directories=directories))


def test_replicas_get_their_directories(quorum: Quorum) -> None:
    Request = AssignReplicasToDirsRequest  # noqa: N806
    parts = [Request.PartitionData(partition_index=number) for number in (0, 8)]
    request = Request(
        broker_id=4,
        broker_epoch=quorum.epoch_of(4),
        directories=[
            Request.DirectoryData(
                id=directory(4),
                topics=[
                    Request.TopicData(topic_id=quorum.topic_id("foo"), partitions=parts),
                    Request.TopicData(topic_id=uuid(5), partitions=parts[:1]),
                ],
            )
        ],
    )
    known, unknown = quorum.respond(request).directories[0].topics
    assert [p.error_code for p in known.partitions] == [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [p.error_code for p in unknown.partitions] == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_lost_replica_may_not_join_an_isr(quorum: Quorum) -> None:
    """Its leader still knows it as caught up, but it begins with an empty log."""
    assert alter(quorum, [1, 2]).error_code == 0
    assign(quorum, 3, DIRECTORY_LOST)
    assert alter(quorum, [1, 2, 3]).error_code == ErrorCode.INELIGIBLE_REPLICA
    assign(quorum, 3, directory(3))
    assert alter(quorum, [1, 2, 3]).error_code == 0


def test_a_log_that_is_whole_again_leads_at_once(quorum: Quorum) -> None:
    """Its replica counted as begun anew, and lost its place among the eligible replicas."""
    assert alter(quorum, [1]).error_code == 0
    assign(quorum, 1, DIRECTORY_LOST)
    assert quorum.partition("foo", 0).leader == -1
    assign(quorum, 1, DIRECTORY_UNASSIGNED)
    assign(quorum, 1, directory(1))
    state = quorum.partition("foo", 0)
    assert (state.leader, state.isr, state.leader_recovering) == (1, (1,), 0)
    assert state.directory(1) == directory(1)


def test_a_log_that_begins_anew_leads_only_if_no_other_replica_can_have_records(quorum: Quorum) -> None:
    assert alter(quorum, [1]).error_code == 0
    assign(quorum, 1, DIRECTORY_LOST)
    assign(quorum, 1, directory(1))
    state = quorum.partition("foo", 0)
    assert 1 not in state.elr
    assert state.leader != 1
