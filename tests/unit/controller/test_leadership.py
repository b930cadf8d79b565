"""Becoming and ceasing to be active: activation, answers that wait for commit, and the end of leadership."""

from __future__ import annotations

import pytest

from kraft_node.controller.deferred import DEFERRED_MAX, Deferred
from kraft_node.metadata.features import ELR_VERSION, METADATA_VERSION
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import (
    AllocateProducerIdsRequest,
    CreateTopicsRequest,
    DescribeClusterRequest,
    ListPartitionReassignmentsRequest,
)
from kraft_protocol.wire.stored import BeginTransactionRecord, ConfigRecord, FeatureLevelRecord
from tests.unit.controller.harness import CLUSTER_ID, CONTROLLER_ID, Quorum


def names(records: list[object]) -> list[str]:
    return [type(record).__name__ for record in records]


def create_request(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    )


def test_an_empty_log_starts_with_the_releases_metadata_version_in_a_transaction() -> None:
    quorum = Quorum()
    assert names(quorum.written()) == ["BeginTransactionRecord", "FeatureLevelRecord", "EndTransactionRecord"]
    assert quorum.written()[0].name == "Bootstrap records"
    assert quorum.image.metadata_level == 30


def test_bootstrap_records_of_the_storage_tool_start_the_log() -> None:
    bootstrap = [
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=29),
        FeatureLevelRecord(name=ELR_VERSION, feature_level=1),
    ]
    quorum = Quorum(bootstrap=bootstrap, min_insync_replicas="2")
    assert quorum.image.metadata_level == 29
    assert quorum.image.feature_level(ELR_VERSION) == 1
    assert quorum.image.configs.get((4, "")) == {"min.insync.replicas": "2"}


def test_a_level_without_transactions_gets_its_bootstrap_records_bare() -> None:
    quorum = Quorum(bootstrap=[FeatureLevelRecord(name=METADATA_VERSION, feature_level=12)])
    assert names(quorum.written()) == ["FeatureLevelRecord"]


def test_a_log_with_records_gets_no_bootstrap_records() -> None:
    quorum = Quorum()
    before = len(quorum.written())
    quorum.lose()
    quorum.lead()
    assert len(quorum.written()) == before


def test_a_transaction_that_a_predecessor_left_open_is_aborted() -> None:
    quorum = Quorum()
    quorum.log.append(BeginTransactionRecord(name="migration"))
    quorum.log.append(ConfigRecord(resource_type=4, resource_name="", name="a", value="b"))
    quorum.commit()
    quorum.lose()
    quorum.lead()
    assert names(quorum.written())[-1] == "AbortTransactionRecord"
    assert quorum.written()[-1].reason == "Controller failover"
    assert quorum.image.configs.get((4, "")) is None


def test_an_answer_waits_until_its_records_are_committed() -> None:
    quorum = Quorum()
    quorum.start(1)
    answer = quorum.ask(create_request("foo"), commit=False)
    assert not answer.given
    assert quorum.image.topics.by_name("foo") is None
    quorum.commit()
    assert answer.response.topics[0].error_code == ErrorCode.NONE
    assert quorum.image.topics.by_name("foo") is not None


def test_plans_include_uncommitted_records() -> None:
    quorum = Quorum()
    quorum.start(1)
    first = quorum.ask(create_request("foo"), commit=False)
    second = quorum.ask(create_request("foo"), commit=False)
    assert not second.given, "an answer that rests on what is not committed waits for it"
    quorum.commit()
    assert first.response.topics[0].error_code == ErrorCode.NONE
    assert second.response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_read_is_answered_at_once_if_nothing_is_in_flight() -> None:
    quorum = Quorum()
    answer = quorum.ask(ListPartitionReassignmentsRequest(), commit=False)
    assert answer.response.topics == []


def test_lost_leadership_refuses_pending_requests_and_drops_their_plans() -> None:
    quorum = Quorum()
    quorum.start(1)
    answer = quorum.ask(create_request("foo"), commit=False)
    quorum.lose(leader_id=3001)
    assert answer.response.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    assert quorum.controller.cluster.view.topics.by_name("foo") is None
    quorum.lead()
    again = quorum.ask(create_request("foo"))
    assert again.response.topics[0].error_code == ErrorCode.NONE


def test_a_standby_names_the_active_controller() -> None:
    quorum = Quorum()
    quorum.lose(leader_id=3001)
    with pytest.raises(KafkaError, match="node 3001") as refused:
        quorum.respond(create_request("foo"))
    assert refused.value.code == ErrorCode.NOT_CONTROLLER


def test_an_append_after_lost_leadership_is_refused_as_not_controller() -> None:
    quorum = Quorum()
    quorum.start(1)
    quorum.log.lost = True
    with pytest.raises(KafkaError) as refused:
        quorum.respond(create_request("foo"))
    assert refused.value.code == ErrorCode.NOT_CONTROLLER
    assert quorum.controller.cluster.view.topics.by_name("foo") is None


def test_brokers_keep_their_whole_lease_under_a_new_leader() -> None:
    quorum = Quorum()
    quorum.start(1)
    quorum.lose()
    quorum.time.advance(60_000)
    quorum.lead()
    quorum.pass_time(8_000)
    assert not quorum.heartbeat(1).is_fenced


def test_an_idle_log_gets_a_no_op_every_half_second() -> None:
    quorum = Quorum()
    quorum.pass_time(5_000)
    count = len(quorum.written("NoOpRecord"))
    assert 9 <= count <= 10
    quorum.lose()
    quorum.pass_time(5_000)
    assert len(quorum.written("NoOpRecord")) == count


def test_no_ops_can_be_switched_off() -> None:
    quorum = Quorum(metadata_max_idle_interval_ms="0")
    quorum.pass_time(5_000)
    assert quorum.written("NoOpRecord") == []


def test_producer_ids_come_in_blocks_of_a_thousand_for_registered_brokers() -> None:
    quorum = Quorum()
    quorum.start(1)
    epoch = quorum.epoch_of(1)
    first = quorum.respond(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))
    second = quorum.respond(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))
    assert (first.producer_id_start, first.producer_id_len) == (0, 1000)
    assert (second.producer_id_start, second.producer_id_len) == (1000, 1000)
    with pytest.raises(KafkaError) as refused:
        quorum.respond(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch + 1))
    assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_describe_cluster_on_the_controller_listener_is_about_controllers() -> None:
    quorum = Quorum()
    response = quorum.respond(DescribeClusterRequest(endpoint_type=2))
    assert (response.cluster_id, response.controller_id) == (CLUSTER_ID, CONTROLLER_ID)
    assert response.cluster_authorized_operations == -(2**31)
    all_of_them = quorum.respond(DescribeClusterRequest(endpoint_type=2, include_cluster_authorized_operations=True))
    assert all_of_them.cluster_authorized_operations == 8096, "as Apache Kafka's without an authorizer"
    with pytest.raises(KafkaError) as refused:
        quorum.respond(DescribeClusterRequest(), 0)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    for endpoint_type, code in ((1, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        with pytest.raises(KafkaError) as refused:
            quorum.respond(DescribeClusterRequest(endpoint_type=endpoint_type))
        assert refused.value.code == code


def test_waiting_answers_are_bounded() -> None:
    deferred = Deferred()
    context: object = None
    for offset in range(DEFERRED_MAX):
        deferred.add(offset, context, None, None)  # type: ignore[arg-type]
    with pytest.raises(KafkaError) as refused:
        deferred.check_room()
    assert refused.value.code == ErrorCode.REQUEST_TIMED_OUT
