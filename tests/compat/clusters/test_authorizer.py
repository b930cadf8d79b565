"""ACLs made with Kafka's own tool, enforced by a controller of ours and brokers of both kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.messages import CreateTopicsRequest, MetadataRequest
from tests.compat.members import Members, wait_for
from tests.compat.tools import run_tool
from tests.golden.controller.authorization import SETTINGS, Client

CLIENT = "A cluster with an authorizer"
pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("mixed")]

STRANGER = "127.0.0.2"
"""Everything else on this machine, the members among it, is 127.0.0.1."""


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    made = Members(tmp_path, ("kraftcluster",), ("kraftcluster", "apache"), overrides=dict(SETTINGS))
    try:
        yield made.start()
    finally:
        made.stop()


def acls(members: Members, *args: str) -> str:
    return run_tool("org.apache.kafka.tools.AclCommand", "--bootstrap-server", members.bootstrap, *args).text


def asked_by_a_stranger(members: Members, broker_id: int, request: Any, version: int) -> Any:
    node = members.nodes[broker_id]
    client = Client("stranger", node, node.port)
    client.come_from(STRANGER)
    try:
        return client.ask(request, version)
    finally:
        client.close()


def creation(members: Members, broker_id: int, name: str) -> int:
    """The error that the unprivileged client gets for a topic; the request goes to the controller in an envelope."""
    topic = CreateTopicsRequest.CreatableTopic(name, 1, 2)
    request = CreateTopicsRequest([topic], 30_000)
    return int(asked_by_a_stranger(members, broker_id, request, 7).topics[0].error_code)


def is_visible(members: Members, broker_id: int, topic: str) -> bool:
    request = MetadataRequest([MetadataRequest.MetadataRequestTopic(name=topic)], False)
    answer = asked_by_a_stranger(members, broker_id, request, 12)
    return int(answer.topics[0].error_code) != ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_acls_of_kafkas_tool_hold_on_every_member(members: Members) -> None:
    anonymous = ("--allow-principal", "User:ANONYMOUS", "--allow-host", "127.0.0.1", "--operation", "All")
    for resource in (("--cluster",), ("--topic", "*"), ("--group", "*")):
        acls(members, "--add", *anonymous, *resource)
    read = ("--allow-principal", "User:ANONYMOUS", "--allow-host", STRANGER, "--operation", "Describe")
    acls(members, "--add", *read, "--topic", "open-", "--resource-pattern-type", "prefixed")
    listed = acls(members, "--list")
    assert "host=127.0.0.2, operation=DESCRIBE, permissionType=ALLOW" in listed
    assert listed.count("host=127.0.0.1, operation=ALL, permissionType=ALLOW") == 3

    for name in ("open-1", "hidden"):
        members.create(name, replicas=2)
        producer = Producer({"bootstrap.servers": members.bootstrap, "acks": "all", "enable.idempotence": True})
        producer.produce(name, b"replicated under CLUSTER_ACTION")
        assert producer.flush(60) == 0
    for broker_id in members.broker_ids:
        assert creation(members, broker_id, "never") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        wait_for("the broker knows the topic", lambda b=broker_id: is_visible(members, b, "open-1"))
        assert not is_visible(members, broker_id, "hidden")
        assert not is_visible(members, broker_id, "missing")

    members.nodes[1].kill()
    members.nodes[1].launch()
    wait_for("the controller leads again", members.quorum)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for broker_id in members.broker_ids:
        wait_for("denied after a restart as well", lambda b=broker_id: creation(members, b, "never") == code)
    members.create("after", replicas=2)

    acls(members, "--remove", "--force", *read, "--topic", "open-", "--resource-pattern-type", "prefixed")
    for broker_id in members.broker_ids:
        wait_for("hidden again", lambda b=broker_id: not is_visible(members, b, "open-1"))
