"""Requests on a controller listener are answered from committed metadata (KIP-631, "Persistence and Visibility")."""

from __future__ import annotations

import pytest

from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.messages import (
    AlterConfigsRequest,
    ControllerRegistrationRequest,
    CreateAclsRequest,
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
)
from tests.unit.controller.harness import CONTROLLER_ID, Quorum, uuid

BROKER, TOPIC = 4, 2


@pytest.fixture
def quorum() -> Quorum:
    quorum = Quorum(authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer")
    quorum.start(1)
    return quorum


def described(quorum: Quorum, kind: int, name: str, key: str) -> str | int:
    """The value of a key, or the error code of its resource."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[key]
    )
    answer = quorum.ask(DescribeConfigsRequest(resources=[resource]), commit=False)
    (result,) = answer.response.results
    return result.error_code or result.configs[0].value


def test_acls_are_visible_after_their_commit(quorum: Quorum) -> None:
    creation = CreateAclsRequest.AclCreation(
        resource_type=2,
        resource_name="foo",
        resource_pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    everything = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1)
    everything.resource_name_filter = everything.principal_filter = everything.host_filter = None
    created = quorum.ask(CreateAclsRequest(creations=[creation]), commit=False)
    assert quorum.ask(everything, commit=False).response.resources == []
    quorum.commit()
    assert created.given
    assert len(quorum.ask(everything, commit=False).response.resources) == 1


@pytest.mark.parametrize("name", ["", str(CONTROLLER_ID)])
def test_configurations_of_nodes_are_visible_after_their_commit(quorum: Quorum, name: str) -> None:
    before = described(quorum, BROKER, str(CONTROLLER_ID), "message.max.bytes")
    config = AlterConfigsRequest.AlterableConfig(name="message.max.bytes", value="2000000")
    resource = AlterConfigsRequest.AlterConfigsResource(resource_type=BROKER, resource_name=name, configs=[config])
    altered = quorum.ask(AlterConfigsRequest(resources=[resource]), commit=False)
    assert described(quorum, BROKER, str(CONTROLLER_ID), "message.max.bytes") == before
    quorum.commit()
    assert altered.given
    assert described(quorum, BROKER, str(CONTROLLER_ID), "message.max.bytes") == "2000000"


def test_topics_and_configurations_are_described_after_their_commit(quorum: Quorum) -> None:
    quorum.create("foo", [[1]], configs={"retention.ms": "5000"})
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC,
        resource_name="foo",
        configs=[AlterConfigsRequest.AlterableConfig(name="retention.ms", value="7000")],
    )
    quorum.ask(AlterConfigsRequest(resources=[resource]), commit=False)
    assert described(quorum, TOPIC, "foo", "retention.ms") == "5000"
    quorum.commit()
    assert described(quorum, TOPIC, "foo", "retention.ms") == "7000"
    assert described(quorum, TOPIC, "bar", "retention.ms") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_controllers_are_visible_after_the_commit_of_their_registration(quorum: Quorum) -> None:
    listener = ControllerRegistrationRequest.Listener(name="CONTROLLER", host="far", port=9093, security_protocol=0)
    request = ControllerRegistrationRequest(
        controller_id=3001, incarnation_id=uuid(3001), zk_migration_ready=False, listeners=[listener]
    )
    registered = quorum.ask(request, commit=False)
    asked = DescribeClusterRequest(endpoint_type=2)
    assert quorum.ask(asked, commit=False).response.brokers == []
    quorum.commit()
    assert registered.given
    assert [one.broker_id for one in quorum.ask(asked, commit=False).response.brokers] == [3001]
