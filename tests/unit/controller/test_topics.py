"""Topics are created, grown and deleted, and every wrong request has its error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kraft_node.controller.partitions.topics import PARTITIONS_PER_BATCH_MAX
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import ZERO_UUID
from kraft_protocol.wire.messages import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from tests.unit.controller.harness import Quorum, uuid


@pytest.fixture
def quorum() -> Quorum:
    quorum = Quorum(num_partitions="4", default_replication_factor="2")
    quorum.start(1, 2, 3)
    return quorum


def topic(name: str, **fields: Any) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(name=name, **{"num_partitions": 1, "replication_factor": 1, **fields})


# Creating


def test_a_topic_gets_an_id_partitions_and_leaders(quorum: Quorum) -> None:
    since = quorum.log.next_offset
    result = quorum.create("foo", partitions=3, factor=3)
    assert result.error_code == ErrorCode.NONE
    assert (result.num_partitions, result.replication_factor) == (3, 3)
    assert result.topic_id == quorum.topic_id("foo")
    written = quorum.written(since=since)
    assert [type(record).__name__ for record in written] == ["TopicRecord"] + ["PartitionRecord"] * 3
    for number in range(3):
        state = quorum.partition("foo", number)
        assert sorted(state.replicas) == [1, 2, 3]
        assert state.isr == state.replicas
        assert (state.leader, state.leader_epoch, state.partition_epoch) == (state.replicas[0], 0, 0)
    assert {quorum.partition("foo", number).leader for number in range(3)} == {1, 2, 3}


def test_a_broker_in_shutdown_gets_replicas_only_if_there_is_no_alternative(quorum: Quorum) -> None:
    quorum.create("led", assignments=[[1, 2]])
    assert not quorum.heartbeat(1, want_shut_down=True).should_shut_down
    assert quorum.create("foo", partitions=12, factor=2).error_code == 0
    assert all(set(quorum.partition("foo", number).replicas) == {2, 3} for number in range(12))
    assert quorum.create("bar", partitions=3, factor=3).error_code == 0
    assert all(set(quorum.partition("bar", number).isr) == {2, 3} for number in range(3))


def test_minus_one_selects_the_defaults_of_the_cluster(quorum: Quorum) -> None:
    result = quorum.create("foo")
    assert (result.num_partitions, result.replication_factor) == (4, 2)


def test_the_answer_describes_the_topics_configuration(quorum: Quorum) -> None:
    result = quorum.create("foo", configs={"retention.ms": "1000", "cleanup.policy": "compact"})
    assert result.configs is not None
    shown = {config.name: config for config in result.configs}
    assert (shown["retention.ms"].value, shown["retention.ms"].config_source) == ("1000", 1)
    assert (shown["segment.bytes"].value, shown["segment.bytes"].config_source) == ("1073741824", 5)
    assert list(shown) == sorted(shown)
    assert quorum.image.configs.get((2, "foo")) == {"retention.ms": "1000", "cleanup.policy": "compact"}


def test_a_topic_is_recorded_before_its_configs_and_partitions(quorum: Quorum) -> None:
    since = quorum.log.next_offset
    quorum.create("foo", partitions=1, factor=1, configs={"retention.ms": "1"})
    kinds = [type(record).__name__ for record in quorum.written(since=since)]
    assert kinds == ["TopicRecord", "ConfigRecord", "PartitionRecord"]


def test_validate_only_checks_and_writes_nothing(quorum: Quorum) -> None:
    since = quorum.log.next_offset
    assert quorum.create("foo", partitions=2, factor=1, validate_only=True).error_code == ErrorCode.NONE
    assert quorum.create("no/", partitions=2, factor=1, validate_only=True).error_code != ErrorCode.NONE
    assert quorum.written(since=since) == []
    assert quorum.image.topics.by_name("foo") is None


def test_a_manual_assignment_is_used_unchanged(quorum: Quorum) -> None:
    quorum.create("foo", [[3, 1], [2, 3]])
    assert quorum.partition("foo", 0).replicas == (3, 1)
    assert quorum.partition("foo", 1).replicas == (2, 3)


def test_fenced_replicas_of_a_manual_assignment_are_not_in_sync(quorum: Quorum) -> None:
    quorum.register(4)
    quorum.create("foo", [[4, 1]])
    state = quorum.partition("foo")
    assert (state.replicas, state.isr, state.leader) == ((4, 1), (1,), 1)


INVALID = ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("assignments", "code", "words"),
    [
        ([[]], INVALID, "empty replica list"),
        ([[1, 9]], INVALID, "includes broker 9, but no such broker"),
        ([[1, 1]], INVALID, "the broker 1 more than once"),
        ([[1, 2], [1]], INVALID, "1 replica(s), but this is not consistent with previous partitions, which have 2"),
        ([[4]], INVALID, "All brokers specified in the manual partition assignment for partition 0 are fenced"),
    ],
)
def test_wrong_manual_assignments_are_refused(
    quorum: Quorum, assignments: list[list[int]], code: ErrorCode, words: str
) -> None:
    quorum.register(4)
    result = quorum.create("foo", assignments)
    assert result.error_code == code
    assert result.error_message is not None
    assert words in result.error_message


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS, "non-positive"),
        ({"num_partitions": -2}, ErrorCode.INVALID_PARTITIONS, "non-positive"),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0"),
        ({"replication_factor": -2}, ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0"),
        ({"replication_factor": 4}, ErrorCode.INVALID_REPLICATION_FACTOR, "only 3 broker(s) are registered"),
        ({"replication_factor": 1, "assignments": "one"}, ErrorCode.INVALID_REQUEST, "replication factor was not"),
        ({"replication_factor": -1, "assignments": "one"}, ErrorCode.INVALID_REQUEST, "numPartitions was not set"),
        ({"num_partitions": -1, "replication_factor": -1, "assignments": "gap"}, INVALID, "consecutive 0-based"),
        ({"num_partitions": -1, "replication_factor": -1, "assignments": "twice"}, INVALID, "for partition 0"),
    ],
)
def test_wrong_numbers_of_partitions_and_replicas_are_refused(
    quorum: Quorum, fields: dict[str, Any], code: ErrorCode, words: str
) -> None:
    indexes = {"one": [0], "gap": [0, 2], "twice": [0, 0]}
    if "assignments" in fields:
        fields["assignments"] = [
            CreateTopicsRequest.CreatableReplicaAssignment(partition_index=number, broker_ids=[1])
            for number in indexes[fields["assignments"]]
        ]
    result = quorum.respond(CreateTopicsRequest(topics=[topic("foo", **fields)])).topics[0]
    assert result.error_code == code
    assert words in result.error_message


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a/b", "other than ASCII alphanumerics"),
        ("größe", "other than ASCII alphanumerics"),
        ("x" * 250, "longer than the max allowed length 249"),
    ],
)
def test_illegal_names_are_refused(quorum: Quorum, name: str, words: str) -> None:
    result = quorum.create(name, partitions=1, factor=1)
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error_message is not None
    assert words in result.error_message


def test_the_longest_name_is_fine(quorum: Quorum) -> None:
    assert quorum.create("x" * 249, partitions=1, factor=1).error_code == ErrorCode.NONE


def test_names_that_collide_in_metrics_are_refused(quorum: Quorum) -> None:
    assert quorum.create("a.b", partitions=1, factor=1).error_code == ErrorCode.NONE
    result = quorum.create("a_b", partitions=1, factor=1)
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error_message == "Topic 'a_b' collides with existing topic: a.b"
    assert quorum.create("a.b", partitions=1, factor=1).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    both = quorum.ask(CreateTopicsRequest(topics=[topic("c.d"), topic("c_d")])).response
    assert [result.error_code for result in both.topics] == [ErrorCode.NONE, ErrorCode.NONE]  # as in Kafka
    assert quorum.create("c_d", partitions=1, factor=1).error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    delete(quorum, names=["a.b"])
    assert quorum.create("a_b", partitions=1, factor=1).error_code == ErrorCode.NONE


def test_collisions_are_still_known_after_a_change_of_leader(quorum: Quorum) -> None:
    quorum.create("a.b", partitions=1, factor=1)
    quorum.lose()
    quorum.lead()
    assert quorum.create("a_b", partitions=1, factor=1).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_bad_topic_fails_alone(quorum: Quorum) -> None:
    request = CreateTopicsRequest(topics=[topic("good"), topic("bad", num_partitions=0), topic("better")])
    response = quorum.respond(request)
    codes = {result.name: result.error_code for result in response.topics}
    assert codes == {"good": 0, "bad": ErrorCode.INVALID_PARTITIONS, "better": 0}


def test_a_repeated_name_in_a_request_is_refused_once(quorum: Quorum) -> None:
    response = quorum.respond(CreateTopicsRequest(topics=[topic("foo"), topic("foo"), topic("bar")]))
    assert [(r.name, r.error_code) for r in response.topics] == [("foo", ErrorCode.INVALID_REQUEST), ("bar", 0)]


def test_the_metadata_topic_cannot_be_created(quorum: Quorum) -> None:
    assert quorum.create("__cluster_metadata", partitions=1, factor=1).error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_with_an_invalid_config_is_refused(quorum: Quorum) -> None:
    for configs, words in (
        ({"retention.ms": "soon"}, "retention.ms"),
        ({"no.such.key": "1"}, "no.such.key"),
        ({"retention.ms": None}, "Null value not supported for topic configs: retention.ms"),
    ):
        result = quorum.create("foo", partitions=1, factor=1, configs=configs)  # type: ignore[arg-type]
        assert result.error_code == ErrorCode.INVALID_CONFIG
        assert result.error_message is not None
        assert words in result.error_message


def test_too_many_partitions_in_one_request_are_refused(quorum: Quorum) -> None:
    topics = [topic("foo", num_partitions=PARTITIONS_PER_BATCH_MAX), topic("bar")]
    with pytest.raises(KafkaError) as refused:
        quorum.respond(CreateTopicsRequest(topics=topics))
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    assert refused.value.message == "Excessively large number of partitions per request."


def test_partitions_of_a_request_are_bounded_by_an_atomic_batch(quorum: Quorum) -> None:
    topics = [topic("foo", num_partitions=PARTITIONS_PER_BATCH_MAX)]
    with pytest.raises(KafkaError) as refused:
        quorum.respond(CreateTopicsRequest(topics=topics))
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    assert quorum.create("foo", partitions=PARTITIONS_PER_BATCH_MAX - 1, factor=1).error_code == 0


def test_without_an_unfenced_broker_no_topic_can_be_created() -> None:
    quorum = Quorum()
    quorum.register(1)
    result = quorum.create("foo", partitions=1, factor=1)
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert result.error_message is not None
    assert result.error_message.startswith("Unable to replicate the partition 1 time(s): All brokers are currently")


def test_below_the_level_of_directories_partitions_have_no_directory() -> None:
    from kraft_protocol.wire.stored import FeatureLevelRecord

    quorum = Quorum(bootstrap=[FeatureLevelRecord(name="metadata.version", feature_level=16)])
    quorum.start(1)
    quorum.create("foo", [[1]])
    assert quorum.written("PartitionRecord")[0].directories == []


# Deleting


def delete(quorum: Quorum, names: Sequence[str] = (), ids: Sequence[Any] = (), version: int = 6) -> Any:
    if version < 6:
        return quorum.respond(DeleteTopicsRequest(topic_names=list(names)), version).responses
    states = [DeleteTopicsRequest.DeleteTopicState(name=name) for name in names]
    states += [DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids]
    return quorum.respond(DeleteTopicsRequest(topics=states), version).responses


def test_one_record_removes_a_topic_and_its_configs(quorum: Quorum) -> None:
    quorum.create("foo", partitions=3, factor=1, configs={"retention.ms": "1"})
    topic_id = quorum.topic_id("foo")
    since = quorum.log.next_offset
    (result,) = delete(quorum, ["foo"])
    assert (result.name, result.topic_id, result.error_code) == ("foo", topic_id, 0)
    assert [type(record).__name__ for record in quorum.written(since=since)] == ["RemoveTopicRecord"]
    assert quorum.image.topics.by_name("foo") is None
    assert quorum.image.configs.get((2, "foo")) is None


def test_topics_are_deleted_by_name_before_version_6_and_by_id_since(quorum: Quorum) -> None:
    quorum.create("foo", partitions=1, factor=1)
    quorum.create("bar", partitions=1, factor=1)
    assert delete(quorum, ["foo"], version=4)[0].error_code == 0
    (result,) = delete(quorum, ids=[quorum.topic_id("bar")])
    assert (result.name, result.error_code) == ("bar", 0)


def test_deleting_an_unknown_topic_is_refused(quorum: Quorum) -> None:
    by_name, by_id = delete(quorum, ["foo"], [uuid(77)])
    assert by_name.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert by_id.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_deleting_with_an_ambiguous_name_is_refused(quorum: Quorum) -> None:
    quorum.create("foo", partitions=1, factor=1)
    topic_id = quorum.topic_id("foo")
    state = DeleteTopicsRequest.DeleteTopicState
    for states, words in (
        ([state(name="foo", topic_id=topic_id)], "You may not specify both topic name and topic id."),
        ([state(name=None, topic_id=ZERO_UUID)], "Neither topic name nor id were specified."),
        ([state(name="foo"), state(name="foo")], "Duplicate topic name."),
        ([state(name=None, topic_id=topic_id), state(name=None, topic_id=topic_id)], "Duplicate topic id."),
    ):
        (result,) = quorum.respond(DeleteTopicsRequest(topics=states)).responses
        assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, words)


def test_a_topic_named_twice_by_name_and_id_is_kept(quorum: Quorum) -> None:
    quorum.create("foo", partitions=1, factor=1)
    topic_id = quorum.topic_id("foo")
    state = DeleteTopicsRequest.DeleteTopicState
    both = [state(name="foo"), state(name=None, topic_id=topic_id)]
    for states in (both, both[::-1]):
        response: DeleteTopicsResponse = quorum.respond(DeleteTopicsRequest(topics=states))
        (result,) = response.responses
        assert (result.name, result.topic_id, result.error_code) == ("foo", topic_id, ErrorCode.INVALID_REQUEST)
    assert quorum.topic_id("foo") == topic_id


def test_deletion_can_be_forbidden() -> None:
    quorum = Quorum(delete_topic_enable="false")
    for version, code in ((6, ErrorCode.TOPIC_DELETION_DISABLED), (2, ErrorCode.INVALID_REQUEST)):
        with pytest.raises(KafkaError) as refused:
            delete(quorum, ["foo"], version=version)
        assert refused.value.code == code


def test_partitions_of_a_deleted_topic_get_no_changes(quorum: Quorum) -> None:
    quorum.create("foo", [[1, 2]])
    delete(quorum, ["foo"])
    since = quorum.log.next_offset
    quorum.heartbeat(1, want_fence=True)
    assert quorum.written("PartitionChangeRecord", since) == []


# Growing


def grow(
    quorum: Quorum, name: str, count: int, assignments: list[list[int]] | None = None, **fields: Any
) -> CreatePartitionsResponse.CreatePartitionsTopicResult:
    asked = CreatePartitionsRequest.CreatePartitionsTopic(
        name=name,
        count=count,
        assignments=None
        if assignments is None
        else [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=replicas) for replicas in assignments],
    )
    result: CreatePartitionsResponse.CreatePartitionsTopicResult = quorum.respond(
        CreatePartitionsRequest(topics=[asked], **fields)
    ).results[0]
    return result


def test_a_topic_grows_with_its_replication_factor(quorum: Quorum) -> None:
    quorum.create("foo", [[1, 2]])
    assert grow(quorum, "foo", 4).error_code == 0
    assert len(quorum.image.topics.by_name("foo") or ()) == 4
    assert all(len(quorum.partition("foo", number).replicas) == 2 for number in range(4))


def test_partitions_are_added_by_manual_assignment(quorum: Quorum) -> None:
    quorum.create("foo", [[1, 2]])
    assert grow(quorum, "foo", 2, [[3, 1]]).error_code == 0
    assert quorum.partition("foo", 1).replicas == (3, 1)


def test_validate_only_adds_no_partition(quorum: Quorum) -> None:
    quorum.create("foo", [[1, 2]])
    assert grow(quorum, "foo", 4, validate_only=True).error_code == 0
    assert len(quorum.image.topics.by_name("foo") or ()) == 1


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code", "words"),
    [
        ("bar", 2, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        ("foo", 2, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        ("foo", 1, None, ErrorCode.INVALID_PARTITIONS, "currently has 2 partition(s); 1 would not be an increase."),
        ("foo", 3, [[1, 2], [2, 1]], INVALID, "add 1 additional partition(s), but only 2 assignment(s)"),
        ("foo", 3, [[1]], INVALID, "1 replica(s), but this is not consistent"),
        ("foo", 3, [[4, 5]], INVALID, "assignment for partition 2 are fenced or in controlled shutdown"),
        ("foo", 20_000, None, ErrorCode.POLICY_VIOLATION, "excessively large"),
    ],
)
def test_wrong_additions_of_partitions_are_refused(
    quorum: Quorum, name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode, words: str
) -> None:
    quorum.register(4)
    quorum.register(5)
    quorum.create("foo", [[1, 2], [1, 2]])
    result = grow(quorum, name, count, assignments)
    assert result.error_code == code
    assert words in (result.error_message or "")
