"""KRaftUsers on a running cluster, ours and Apache Kafka: what their clients may do, and what is left of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kraft_operator.apply.user_requests import look
from kraft_operator.apply.users import UserPass, declared
from kraft_operator.observe.source import MetadataSource
from kraft_operator.plan.model.record import UserClaim
from kraft_operator.plan.users import Credential, DesiredUser, UserState
from kraft_operator.protocol import new_client
from kraft_operator.specs.client_config import ClientAccess, java, librdkafka, python
from kraft_protocol.client.aio import Address
from tests.compat.security.secured import STANDARD_AUTHORIZER, Secured, lone
from tests.compat.tools import SERVER as TOOLS

CLIENT = "KRaftUser"
BOTH_EVERY_DAY = True
XDIST_GROUP = "users"
MECHANISM = "SCRAM-SHA-512"
OPTIONS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS;User:broker",
    "connections.max.reauth.ms": "2000",
}


@pytest.fixture(scope="module")
def server(server_name: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = lone(server_name, tmp_path_factory.mktemp("users"), ["PLAIN", MECHANISM], OPTIONS)
    secured.target.start()
    yield secured
    secured.target.stop()


class Complete(MetadataSource):
    """A source of one node: what its controller has committed, its broker shows."""

    async def is_complete(self, node: int) -> bool:
        return True


class Users:
    """The `UserKeeper` of a test: passwords and claims in memory."""

    def __init__(self, server: Secured) -> None:
        self.address = Address("127.0.0.1", server.target.port)
        self.bootstrap = server.bootstrap
        self.resources: dict[str, dict[str, Any]] = {}
        self.made: dict[str, tuple[str, str]] = {}
        """Id and password by resource."""
        self.claims: dict[str, UserClaim] = {}
        self.states: dict[str, UserState] = {}

    def declare(self, name: str, **spec: Any) -> None:
        found = {"cluster": "c", "authentication": {}, "acls": [], "quotas": {}, **spec}
        self.resources[name] = {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": found, "status": {}}
        self.made.setdefault(name, ("1", f"planted-{name}"))

    async def remember(self, claims: Mapping[str, UserClaim]) -> None:
        self.claims = dict(claims)

    async def credentials(self, desired_users: Collection[DesiredUser]) -> Mapping[str, Credential]:
        return {one.resource: Credential(self.made[one.resource][0]) for one in desired_users}

    async def passwords(self, resources: Collection[str]) -> Mapping[str, str]:
        return {name: self.made[name][1] for name in resources}

    async def report_states(self, states: Mapping[str, UserState]) -> None:
        self.states |= states
        for name, state in states.items():
            if state.sent is not None:
                self.resources[name]["status"]["credential"] = state.sent

    async def gone(self, claims: Collection[UserClaim]) -> set[str]:
        return {claim.user for claim in claims}

    async def ended(self, claims: Collection[UserClaim]) -> None:
        pass

    def settle(self) -> None:
        """Run passes until nothing changes."""
        asyncio.run(self._settle())

    async def _settle(self) -> None:
        async with new_client(20) as client:
            for _ in range(40):
                users, states = declared(self.resources.values(), "c", self.claims.values())
                assert not states
                due, _ = await UserPass(Complete(client, {1: self.address}), self).run(users, self.claims)
                if not due and all(state.reason != "Changing" for state in self.states.values()):
                    return
                await asyncio.sleep(0.2)
        raise AssertionError(self.states)

    def access(self, name: str) -> ClientAccess:
        return ClientAccess(self.bootstrap, name, MECHANISM, self.made[name][1])


@pytest.fixture
def users(server: Secured) -> Iterator[Users]:
    found = Users(server)
    yield found
    found.resources.clear()
    found.settle()


def topic_rights(topic: str, *operations: str, **more: Any) -> dict[str, Any]:
    return {"resource": {"type": "Topic", "name": topic}, "operations": list(operations), **more}


def configured(access: ClientAccess) -> dict[str, Any]:
    """The file for librdkafka as a dictionary.

    Debian's kcat is left out: SCRAM of librdkafka before 2.6.1 repeats the nonce, and brokers since Kafka 3.7.2 refuse.
    """
    return dict(line.split("=", 1) for line in librdkafka(access, "").splitlines())


def produced(access: ClientAccess, topic: str) -> str:
    """Produce a record. Returns the name of the error, empty if it was taken."""
    from confluent_kafka import Producer

    errors: list[Any] = []
    reported: list[Any] = []
    options = {"message.timeout.ms": 5000, "topic.metadata.refresh.interval.ms": 1000}
    producer = Producer({**configured(access), **options, "error_cb": errors.append})
    producer.produce(topic, b"one", on_delivery=lambda error, _: reported.append(error))
    for _ in range(100):
        producer.poll(0.1)
        wrong = [one.name() for one in errors if one.name() == "_AUTHENTICATION"]
        if reported or wrong:
            break
    producer.purge()
    return (
        wrong[0]
        if wrong
        else reported[0].name()
        if reported and reported[0] is not None
        else ""
        if reported
        else "NOTHING"
    )


def make_topic(server: Secured, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{server.target.port}"})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)


def wait_until_produced(access: ClientAccess, topic: str, expected: str = "") -> None:
    """Produce until it ends as expected: brokers apply changes of the metadata a moment later."""
    for _ in range(40):
        found = produced(access, topic)
        if found == expected:
            return
    raise AssertionError(found)


def test_a_user_produces_and_consumes_only_where_it_may(server: Secured, users: Users) -> None:
    from confluent_kafka import Consumer

    make_topic(server, "orders")
    make_topic(server, "secrets")
    groups = {"resource": {"type": "Group", "name": "shop-", "pattern": "Prefixed"}, "operations": ["Read"]}
    users.declare("shop", acls=[topic_rights("orders", "Write", "Describe", "Read"), groups])
    users.settle()
    assert users.states["shop"].ready
    access = users.access("shop")
    wait_until_produced(access, "orders")
    consumer = Consumer({**configured(access), "group.id": "shop-1", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None and message.value() == b"one"
    assert produced(access, "secrets") == "TOPIC_AUTHORIZATION_FAILED"


def test_confluent_kafka_takes_the_python_configuration_and_obeys_a_denial(server: Secured, users: Users) -> None:
    make_topic(server, "denied")
    users.declare(
        "ann2", acls=[topic_rights("*", "Write", "Describe"), topic_rights("denied", "Write", permission="Deny")]
    )
    users.settle()
    assert python(users.access("ann2")) == configured(users.access("ann2"))
    wait_until_produced(users.access("ann2"), "denied", "TOPIC_AUTHORIZATION_FAILED")


def test_javas_tools_take_the_properties_and_see_the_quotas(server: Secured, users: Users, tmp_path: Path) -> None:
    users.declare(
        "java-user",
        acls=[{"resource": {"type": "Cluster"}, "operations": ["DescribeConfigs", "Describe"]}],
        quotas={"producerByteRate": 1000, "requestPercentage": 50},
    )
    users.settle()
    file = tmp_path / "client.properties"
    file.write_text(java(users.access("java-user")))
    described = TOOLS.run(
        "kafka.admin.ConfigCommand",
        "--bootstrap-server",
        server.bootstrap,
        "--command-config",
        str(file),
        "--describe",
        "--entity-type",
        "users",
        "--entity-name",
        "java-user",
    ).text
    assert "producer_byte_rate=1000.0" in described
    assert "request_percentage=50.0" in described
    assert "SCRAM-SHA-512=iterations=8192" in described


def test_drift_is_corrected_and_foreign_acls_stay_unless_the_resource_is_exclusive(users: Users) -> None:
    foreign = topic_rights("foreign", "Read")
    users.declare("drifting", acls=[topic_rights("mine", "Read", "Write")], quotas={"consumerByteRate": 5})
    users.settle()
    meddler = Users.__new__(Users)
    meddler.__dict__.update(users.__dict__)
    seen = observed(users, "drifting")
    assert len(seen.acls["drifting"]) == 2
    # A user of another origin: its ACLs, without the first resource's claim.
    meddler.resources, meddler.claims, meddler.states = {}, {}, {}
    meddler.declare("drifting", acls=[foreign], adopt=True, exclusive=True, quotas={"producerByteRate": 7})
    meddler.settle()
    assert [acl.name for acl in observed(users, "drifting").acls["drifting"]] == ["foreign"]
    users.resources["drifting"]["status"]["credential"] = "another"
    users.settle()
    seen = observed(users, "drifting")
    assert sorted(acl.name for acl in seen.acls["drifting"]) == ["foreign", "mine", "mine"]
    assert seen.quotas["drifting"] == {"consumer_byte_rate": 5.0, "producer_byte_rate": 7.0}
    users.declare("drifting", acls=[topic_rights("mine", "Read")], exclusive=True)
    users.settle()
    seen = observed(users, "drifting")
    assert [(acl.name, acl.operation) for acl in seen.acls["drifting"]] == [("mine", 3)]
    assert "drifting" not in seen.quotas


def test_a_deleted_user_leaves_nothing_but_what_others_made(server: Secured, users: Users) -> None:
    make_topic(server, "left")
    users.declare("leaver", acls=[topic_rights("left", "Write", "Describe")], quotas={"producerByteRate": 9000})
    users.settle()
    access = users.access("leaver")
    wait_until_produced(access, "left")
    other = Users(server)
    other.declare("leaver", acls=[topic_rights("other", "Read")], adopt=True)
    other.made["leaver"] = ("2", "planted-other")
    other.settle()
    del users.resources["leaver"]
    users.settle()
    seen = observed(users, "leaver")
    assert seen.credentials.get("leaver") is None
    assert [acl.name for acl in seen.acls["leaver"]] == ["other"]
    assert "leaver" not in seen.quotas
    wait_until_produced(access, "left", "_AUTHENTICATION")
    other.resources.clear()
    other.settle()
    assert not observed(users, "leaver").acls


def test_a_user_of_another_origin_is_refused_and_taken_over_with_adopt(users: Users, server: Secured) -> None:
    foreign = Users(server)
    foreign.declare("there-before")
    foreign.settle()
    users.declare("there-before", acls=[topic_rights("a", "Read")])
    users.settle()
    assert users.states["there-before"].reason == "UserExists"
    assert not observed(users, "there-before").acls
    users.declare("there-before", acls=[topic_rights("a", "Read")], adopt=True)
    users.settle()
    assert users.states["there-before"].ready


def test_the_former_password_ends_with_a_rotation(server: Secured, users: Users) -> None:
    from confluent_kafka import Producer

    make_topic(server, "rotated")
    users.declare("rotating", acls=[topic_rights("rotated", "Write", "Describe")])
    users.settle()
    old = users.access("rotating")
    wait_until_produced(old, "rotated")
    refused: list[Any] = []
    still_open = Producer({**configured(old), "error_cb": refused.append})
    still_open.produce("rotated", b"kept")
    assert still_open.flush(20) == 0
    users.made["rotating"] = ("2", "planted-new")
    users.settle()
    wait_until_produced(users.access("rotating"), "rotated")
    # The connection stays open until connections.max.reauth.ms is over; then the former password is refused.
    for _ in range(100):
        still_open.poll(0.2)
        if any(one.name() == "_AUTHENTICATION" for one in refused):
            break
    assert any(one.name() == "_AUTHENTICATION" for one in refused)
    assert not any("planted" in one.str() for one in refused)
    assert produced(old, "rotated") == "_AUTHENTICATION"


def test_secrets_do_not_show_in_texts_of_an_access(users: Users) -> None:
    access = ClientAccess("b", "u", MECHANISM, "planted-secret", key="planted-key")
    assert "planted" not in repr(access)
    assert json.loads(json.dumps(python(access)))["sasl.password"] == "planted-secret"


def observed(users: Users, name: str) -> Any:
    async def seen() -> Any:
        async with new_client(20) as client:
            return await look(client, users.address, [name])

    return asyncio.run(seen())
