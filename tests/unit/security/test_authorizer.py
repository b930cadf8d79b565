"""The authorizer: single rules, and many random ones against a simple slow twin."""

from __future__ import annotations

import itertools
import logging
import random
from typing import Any

import pytest

from kraft_node.base.config import NodeConfig
from kraft_node.base.request import RequestContext
from kraft_node.metadata.image import MetadataImage
from kraft_node.security.authorizer import STANDARD, Authorizer, authorizer_of
from kraft_node.security.names import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType, type_title
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.stored import AccessControlEntryRecord, RemoveAccessControlEntryRecord

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ALICE = "User:alice"


class Rules:
    """An authorizer that follows an image, and requests to it."""

    def __init__(self, *super_users: str, allows_without_acls: bool = False) -> None:
        self.image = MetadataImage()
        self.authorizer = Authorizer(super_users, allows_without_acls=allows_without_acls)
        self.authorizer.completed()
        self._ids = itertools.count(1)

    def add(
        self,
        operation: Operation,
        name: str = CLUSTER_NAME,
        kind: ResourceType = TOPIC,
        *,
        pattern: PatternType = LITERAL,
        who: str = ALICE,
        host: str = "*",
        permission: Permission = ALLOW,
    ) -> Uuid:
        acl_id = Uuid(next(self._ids).to_bytes(16, "big"))
        self.image.replay(AccessControlEntryRecord(acl_id, kind, name, pattern, who, host, operation, permission))
        self.follow()
        return acl_id

    def remove(self, acl_id: Uuid) -> None:
        self.image.replay(RemoveAccessControlEntryRecord(acl_id))
        self.follow()

    def follow(self, *, is_snapshot: bool = False) -> None:
        delta = self.image.take_delta()
        delta.is_snapshot = is_snapshot
        self.authorizer.follow(delta, self.image)

    def may(
        self, operation: Operation, name: str, kind: ResourceType = TOPIC, who: str = ALICE, host: str = "10.0.0.1"
    ) -> bool:
        return self.authorizer.allows(client_of(who, host), operation, kind, name)


def client_of(who: str = ALICE, host: str = "10.0.0.1", api: ApiKey = ApiKey.PRODUCE) -> RequestContext:
    return RequestContext(api, 3, 1, "c", host, "PLAINTEXT", who, None, 0, lambda *_: None)


def test_literal_prefixed_and_wildcard_entries_permit() -> None:
    rules = Rules()
    rules.add(Operation.READ, "orders")
    rules.add(Operation.READ, "log-", pattern=PREFIXED)
    rules.add(Operation.WRITE, "*")
    assert rules.may(Operation.READ, "orders")
    assert not rules.may(Operation.READ, "orders2")
    assert rules.may(Operation.READ, "log-")
    assert rules.may(Operation.READ, "log-1")
    assert not rules.may(Operation.READ, "log")
    assert rules.may(Operation.WRITE, "anything")
    assert not rules.may(Operation.WRITE, "anything", GROUP)
    assert not rules.may(Operation.READ, "orders", who="User:bob")


def test_a_denial_beats_every_permission() -> None:
    rules = Rules()
    rules.add(Operation.ALL, "*")
    denial = rules.add(Operation.READ, "log-", pattern=PREFIXED, who="User:*", permission=DENY)
    assert not rules.may(Operation.READ, "log-1")
    assert rules.may(Operation.WRITE, "log-1")
    assert rules.may(Operation.DESCRIBE, "log-1"), "a denied READ does not deny what it would have implied"
    rules.remove(denial)
    assert rules.may(Operation.READ, "log-1")


def test_ipv6_addresses_are_written_like_java() -> None:
    rules = Rules()
    rules.add(Operation.READ, "orders", host="2001:db8:0:0:0:0:0:1")
    rules.add(Operation.READ, "orders", host="10.0.0.7")
    assert rules.may(Operation.READ, "orders", host="2001:db8::1")
    assert rules.may(Operation.READ, "orders", host="2001:0db8:0000:0000:0000:0000:0000:0001")
    assert rules.may(Operation.READ, "orders", host="::ffff:10.0.0.7")
    assert not rules.may(Operation.READ, "orders", host="2001:db8::2")


def test_entries_apply_to_their_hosts() -> None:
    rules = Rules()
    rules.add(Operation.READ, "orders", host="10.0.0.1")
    assert rules.may(Operation.READ, "orders")
    assert not rules.may(Operation.READ, "orders", host="10.0.0.2")


@pytest.mark.parametrize("given", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_describe_is_implied(given: Operation) -> None:
    rules = Rules()
    rules.add(given, "orders")
    assert rules.may(Operation.DESCRIBE, "orders")
    assert not rules.may(Operation.DESCRIBE_CONFIGS, "orders")


def test_describe_configs_is_implied_by_alter_configs_alone() -> None:
    rules = Rules()
    rules.add(Operation.ALTER_CONFIGS, "orders")
    assert rules.may(Operation.DESCRIBE_CONFIGS, "orders")
    assert not rules.may(Operation.DESCRIBE, "orders")


def test_without_entries_the_configuration_decides() -> None:
    for allows in (False, True):
        rules = Rules(allows_without_acls=allows)
        assert rules.may(Operation.READ, "orders") is allows
        rules.add(Operation.READ, "orders", who="User:bob")
        assert not rules.may(Operation.READ, "orders"), "another principal has an entry"
        assert rules.may(Operation.READ, "others") is allows


def test_super_users_may_do_everything_even_before_the_entries_are_known() -> None:
    authorizer = Authorizer(["User:root"])
    assert authorizer.allows(client_of("User:root"), Operation.ALTER, CLUSTER)
    with pytest.raises(KafkaError) as refused:
        authorizer.allows(client_of(), Operation.ALTER, CLUSTER)
    assert refused.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_snapshot_replaces_all_entries() -> None:
    rules = Rules()
    rules.add(Operation.READ, "orders")
    rules.image.clear()
    rules.follow(is_snapshot=True)
    assert len(rules.authorizer) == 0
    assert not rules.may(Operation.READ, "orders")


def test_a_writer_of_any_topic_may_be_idempotent() -> None:
    rules = Rules()
    some = rules.authorizer.allows_some
    assert not some(client_of(), Operation.WRITE, TOPIC)
    rules.add(Operation.WRITE, "log-1", permission=ALLOW)
    assert some(client_of(), Operation.WRITE, TOPIC)
    denial = rules.add(Operation.WRITE, "log", pattern=PREFIXED, permission=DENY)
    assert not some(client_of(), Operation.WRITE, TOPIC), "the prefix denies all there is"
    rules.remove(denial)
    denial = rules.add(Operation.ALL, "log-1", permission=DENY)
    assert not some(client_of(), Operation.WRITE, TOPIC)
    rules.add(Operation.ALL, "x", pattern=PREFIXED)
    assert some(client_of(), Operation.WRITE, TOPIC)
    rules.add(Operation.WRITE, "*", permission=DENY)
    assert not some(client_of(), Operation.WRITE, TOPIC)


def test_permitted_operations_are_returned_as_bits() -> None:
    rules = Rules()
    rules.add(Operation.WRITE, "orders")
    assert rules.authorizer.operations(client_of(), TOPIC, "orders") == 1 << Operation.WRITE | 1 << Operation.DESCRIBE
    rules.add(Operation.ALL, CLUSTER_NAME, CLUSTER)
    every = sum(1 << o for o in (5, 7, 8, 9, 10, 11, 12))
    assert rules.authorizer.operations(client_of(), CLUSTER) == every


def test_decisions_are_logged_in_kafkas_words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
    rules = Rules("User:root")
    rules.add(Operation.READ, "log-", pattern=PREFIXED)
    rules.add(Operation.READ, "log-1")
    rules.add(Operation.ALL, "*", who="User:*", permission=DENY, host="10.9.9.9")
    rules.may(Operation.WRITE, "orders")
    rules.may(Operation.DESCRIBE, "log-1")
    rules.may(Operation.READ, "log-1", host="10.9.9.9")
    rules.may(Operation.READ, "log-1", who="User:root")
    rules.authorizer.allows(client_of(), Operation.WRITE, TOPIC, "orders", log_denied=False)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "INFO",
            "Principal = User:alice is Denied operation = WRITE from host = 10.0.0.1 on resource = "
            "Topic:LITERAL:orders for request = Produce with resourceRefCount = 1 based on rule DefaultDeny",
        ),
        (
            "DEBUG",
            "Principal = User:alice is Allowed operation = DESCRIBE from host = 10.0.0.1 on resource = "
            "Topic:LITERAL:log-1 for request = Produce with resourceRefCount = 1 based on rule MatchingAcl("
            "acl=StandardAcl[resourceType=TOPIC, resourceName=log-, patternType=PREFIXED, principal=User:alice, "
            "host=*, operation=READ, permissionType=ALLOW])",
        ),
        (
            "INFO",
            "Principal = User:alice is Denied operation = READ from host = 10.9.9.9 on resource = Topic:LITERAL:log-1 "
            "for request = Produce with resourceRefCount = 1 based on rule MatchingAcl(acl=StandardAcl["
            "resourceType=TOPIC, resourceName=*, patternType=LITERAL, principal=User:*, host=10.9.9.9, operation=ALL, "
            "permissionType=DENY])",
        ),
        (
            "DEBUG",
            "Principal = User:root is Allowed operation = READ from host = 10.0.0.1 on resource = Topic:LITERAL:log-1 "
            "for request = Produce with resourceRefCount = 1 based on rule SuperUser",
        ),
    ]
    assert type_title(ResourceType.TRANSACTIONAL_ID) == "TransactionalId"


def _slowly(records: list[Any], who: str, host: str, operation: int, kind: int, name: str) -> bool:
    """The rule as the documentation has it."""
    fitting = [
        r for r in records
        if r.resource_type == kind
        and (
            name.startswith(r.resource_name) if r.pattern_type == PREFIXED else r.resource_name in (name, "*")
        )
    ]  # fmt: skip
    mine = [r for r in fitting if r.principal in (who, "User:*") and r.host in (host, "*")]
    if any(r.permission_type == DENY and r.operation in (operation, Operation.ALL) for r in mine):
        return False
    implying = {operation, Operation.ALL}
    if operation == Operation.DESCRIBE:
        implying |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation == Operation.DESCRIBE_CONFIGS:
        implying |= {Operation.ALTER_CONFIGS}
    return any(r.permission_type == ALLOW and r.operation in implying for r in mine)


@pytest.mark.parametrize("seed", range(20))
def test_random_rules_give_the_decisions_of_a_slow_reference(seed: int) -> None:
    dice = random.Random(seed)
    rules = Rules()
    names = ["a", "ab", "abc", "b", "*", "a-b"]
    people = [ALICE, "User:bob", "User:*"]
    hosts = ["*", "10.0.0.1", "10.0.0.2"]
    kinds = [TOPIC, GROUP]
    ids: list[Uuid] = []
    for _ in range(60):
        if ids and dice.random() < 0.3:
            rules.remove(ids.pop(dice.randrange(len(ids))))
        else:
            ids.append(
                rules.add(
                    dice.choice(list(Operation)),
                    dice.choice(names),
                    dice.choice(kinds),
                    pattern=dice.choice([LITERAL, PREFIXED]),
                    who=dice.choice(people),
                    host=dice.choice(hosts),
                    permission=dice.choice([ALLOW, ALLOW, DENY]),
                )
            )
        records = [record for _, record in rules.image.acls.items()]
        for _ in range(20):
            operation = dice.choice([o for o in Operation if o != Operation.ALL])
            who, host = dice.choice(people[:2]), dice.choice(hosts[1:])
            kind, name = dice.choice(kinds), dice.choice(["a", "ab", "abcd", "b", "c", "a-b"])
            expected = _slowly(records, who, host, operation, kind, name)
            assert rules.may(operation, name, kind, who=who, host=host) is expected, (operation, kind, name, who, host)


def _config(**keys: str) -> NodeConfig:
    given = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
    }
    return NodeConfig.parse({**given, **{key.replace("_", "."): value for key, value in keys.items()}})


def test_the_configuration_names_the_authorizer() -> None:
    assert authorizer_of(_config()) is None
    keys = {"super_users": "User:a; User:b ;", "allow_everyone_if_no_acl_found": "TRUE"}
    config = _config(authorizer_class_name=STANDARD, **keys)
    assert config.unknown == []
    made = authorizer_of(config)
    assert made is not None
    made.completed()
    for who in ("User:a", "User:b", "User:c"):
        assert made.allows(client_of(who), Operation.ALTER, CLUSTER)
    assert made.allowed == 3


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"}, "authorizer.class.name"),
        ({"authorizer_class_name": STANDARD, "super_users": "User:a,root;bob"}, "super.users"),
    ],
)
def test_an_invalid_configuration_is_refused_with_the_reason(keys: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        authorizer_of(_config(**keys))
