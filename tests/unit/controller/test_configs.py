"""Dynamic configurations, quotas, SCRAM users, access control entries and features."""

from __future__ import annotations

import hashlib
import hmac
import logging
from typing import Any

import pytest

from kraft_node.metadata.features import METADATA_VERSION
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import (
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreateDelegationTokenRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    UpdateFeaturesRequest,
)
from kraft_protocol.wire.stored import FeatureLevelRecord
from tests.unit.controller.harness import CONTROLLER_ID, Quorum

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def quorum() -> Quorum:
    quorum = Quorum()
    quorum.start(1)
    quorum.create("foo", [[1]])
    return quorum


def resource(kind: int, name: str, *configs: tuple[str, int, str | None]) -> Any:
    return IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in configs
        ],
    )


def alter(quorum: Quorum, *resources: Any, **fields: Any) -> list[tuple[int, str | None]]:
    response = quorum.respond(IncrementalAlterConfigsRequest(resources=list(resources), **fields))
    return [(result.error_code, result.error_message) for result in response.responses]


def configs(quorum: Quorum, kind: int, name: str) -> dict[str, str]:
    return dict(quorum.image.configs.get((kind, name)) or {})


# Configs


def test_configurations_are_set_and_deleted(quorum: Quorum) -> None:
    assert alter(quorum, resource(TOPIC, "foo", ("retention.ms", SET, "5"), ("segment.ms", SET, "7"))) == [(0, None)]
    assert configs(quorum, TOPIC, "foo") == {"retention.ms": "5", "segment.ms": "7"}
    assert alter(quorum, resource(TOPIC, "foo", ("retention.ms", DELETE, None))) == [(0, None)]
    assert configs(quorum, TOPIC, "foo") == {"segment.ms": "7"}


def test_append_and_subtract_start_from_the_default_of_a_list(quorum: Quorum) -> None:
    alter(quorum, resource(TOPIC, "foo", ("cleanup.policy", APPEND, "compact")))
    assert configs(quorum, TOPIC, "foo") == {"cleanup.policy": "delete,compact"}
    alter(quorum, resource(TOPIC, "foo", ("cleanup.policy", SUBTRACT, "delete")))
    assert configs(quorum, TOPIC, "foo") == {"cleanup.policy": "compact"}
    ((code, message),) = alter(quorum, resource(TOPIC, "foo", ("retention.ms", APPEND, "1")))
    assert (code, message) == (
        ErrorCode.INVALID_CONFIG,
        "Can't APPEND to key retention.ms because its type is not LIST.",
    )


def test_setting_the_same_value_again_writes_nothing_for_topics(quorum: Quorum) -> None:
    alter(quorum, resource(TOPIC, "foo", ("retention.ms", SET, "5")))
    since = quorum.log.next_offset
    alter(quorum, resource(TOPIC, "foo", ("retention.ms", SET, "5")))
    assert quorum.written(since=since) == []


def test_validate_only_writes_nothing(quorum: Quorum) -> None:
    assert alter(quorum, resource(TOPIC, "foo", ("retention.ms", SET, "5")), validate_only=True) == [(0, None)]
    assert configs(quorum, TOPIC, "foo") == {}


@pytest.mark.parametrize(
    ("kind", "name", "change", "code"),
    [
        (TOPIC, "foo", ("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "foo", ("no.such.key", SET, "1"), ErrorCode.INVALID_CONFIG),
        (TOPIC, "foo", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (TOPIC, "foo", ("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (TOPIC, "bar", ("retention.ms", SET, "1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "", ("retention.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, "7", ("log.cleaner.threads", SET, "2"), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "one", ("log.cleaner.threads", SET, "2"), ErrorCode.INVALID_REQUEST),
        (BROKER, "-1", ("log.cleaner.threads", SET, "2"), ErrorCode.INVALID_REQUEST),
        (BROKER, "", ("log.retention.ms", SET, "soon"), ErrorCode.INVALID_REQUEST),
        (BROKER, "1", ("node.id", SET, "2"), ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "1", ("root", SET, "DEBUG"), ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "3000", ("no.such", SET, "DEBUG"), ErrorCode.INVALID_CONFIG),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), ErrorCode.INVALID_REQUEST),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "1"), ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "", ("interval.ms", SET, "1000"), ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "1"), ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "-1"), ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "m", ("interval.ms", SET, "2147483648"), ErrorCode.INVALID_CONFIG),
        (CLIENT_METRICS, "m", ("metrics", APPEND, "a"), ErrorCode.INVALID_CONFIG),
        (99, "x", ("a", SET, "1"), ErrorCode.UNSUPPORTED_VERSION),
        (TOPIC, "foo", ("compression.type", SET, "x" * 40_000), ErrorCode.INVALID_CONFIG),
    ],
)
def test_wrong_alterations_are_refused(
    quorum: Quorum, kind: int, name: str, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    assert [found for found, _ in alter(quorum, resource(kind, name, change))] == [code]
    assert configs(quorum, kind, name) == {}


def test_a_controllers_loggers_are_set_even_on_a_standby(quorum: Quorum) -> None:
    logger, own = logging.getLogger("kraft_node.tests.of.controllers"), str(CONTROLLER_ID)
    louder = resource(BROKER_LOGGER, own, (logger.name, SET, "DEBUG"))
    assert alter(quorum, louder, validate_only=True) == [(0, None)]
    assert logger.level == logging.NOTSET
    assert alter(quorum, louder, resource(TOPIC, "foo", ("retention.ms", SET, "1"))) == [(0, None)] * 2
    assert logger.level == logging.DEBUG
    assert configs(quorum, TOPIC, "foo") == {"retention.ms": "1"}
    quorum.lose()
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER_LOGGER, resource_name=own, configuration_keys=[logger.name]
    )
    (reported,) = quorum.respond(DescribeConfigsRequest(resources=[asked])).results
    assert [(row.value, row.config_source) for row in reported.configs] == [("DEBUG", 6)]
    assert alter(quorum, resource(BROKER_LOGGER, own, (logger.name, DELETE, None))) == [(0, None)]
    assert logger.level == logging.NOTSET


def test_every_kind_of_resource_can_be_altered(quorum: Quorum) -> None:
    asked = [
        resource(BROKER, "", ("log.cleaner.threads", SET, "2")),
        resource(BROKER, "1", ("log.cleaner.threads", SET, "3")),
        resource(BROKER, str(CONTROLLER_ID), ("log.cleaner.threads", SET, "4")),
        resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")),
        resource(CLIENT_METRICS, "m", ("interval.ms", SET, "1000")),
    ]
    assert alter(quorum, *asked) == [(0, None)] * 5
    assert configs(quorum, GROUP, "g") == {"consumer.session.timeout.ms": "50000"}
    assert quorum.controller.cluster.config.int("log.cleaner.threads") == 4


def test_a_bad_resource_fails_alone_and_a_repeated_one_is_refused(quorum: Quorum) -> None:
    good = resource(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000"))
    bad = resource(TOPIC, "bar", ("retention.ms", SET, "1"))
    assert [code for code, _ in alter(quorum, good, bad)] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    twice = resource(TOPIC, "foo", ("retention.ms", SET, "1"))
    assert alter(quorum, twice, twice) == [(ErrorCode.INVALID_REQUEST, "Duplicate resource.")]
    assert configs(quorum, TOPIC, "foo") == {}


def test_the_legacy_request_replaces_all_configurations(quorum: Quorum) -> None:
    alter(quorum, resource(TOPIC, "foo", ("retention.ms", SET, "5"), ("segment.ms", SET, "7")))
    request = AlterConfigsRequest(
        resources=[
            AlterConfigsRequest.AlterConfigsResource(
                resource_type=TOPIC,
                resource_name="foo",
                configs=[AlterConfigsRequest.AlterableConfig(name="segment.ms", value="9")],
            )
        ]
    )
    assert quorum.respond(request).responses[0].error_code == 0
    assert configs(quorum, TOPIC, "foo") == {"segment.ms": "9"}


def test_a_cluster_wide_default_applies_to_new_topics(quorum: Quorum) -> None:
    alter(quorum, resource(BROKER, "", ("min.insync.replicas", SET, "3")))
    result = quorum.create("bar", [[1]])
    assert result.configs is not None
    shown = {config.name: config for config in result.configs}
    assert (shown["min.insync.replicas"].value, shown["min.insync.replicas"].config_source) == ("3", 3)


def test_configs_of_topics_and_of_the_controller_can_be_described(quorum: Quorum) -> None:
    alter(quorum, resource(TOPIC, "foo", ("retention.ms", SET, "5")))
    asked = [
        DescribeConfigsRequest.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name, keys in (
            (TOPIC, "foo", ["retention.ms"]),
            (BROKER, str(CONTROLLER_ID), ["node.id"]),
            (BROKER, "1", None),
            (TOPIC, "bar", None),
        )
    ]
    topic, own, other, unknown = quorum.respond(DescribeConfigsRequest(resources=asked, include_synonyms=True)).results
    assert [(c.name, c.value, [s.value for s in c.synonyms][:1]) for c in topic.configs] == [
        ("retention.ms", "5", ["5"])
    ]
    assert [(c.name, c.value, c.read_only) for c in own.configs] == [("node.id", str(CONTROLLER_ID), True)]
    assert other.error_code == ErrorCode.INVALID_REQUEST
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Quotas


def quota(entity: dict[str, str | None], ops: dict[str, float | None]) -> Any:
    Request = AlterClientQuotasRequest  # noqa: N806
    return Request.EntryData(
        entity=[Request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            Request.OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in ops.items()
        ],
    )


def alter_quotas(quorum: Quorum, *entries: Any, **fields: Any) -> list[tuple[int, str | None]]:
    response = quorum.respond(AlterClientQuotasRequest(entries=list(entries), **fields))
    return [(entry.error_code, entry.error_message) for entry in response.entries]


def test_quotas_are_set_read_and_removed(quorum: Quorum) -> None:
    user = {"user": "alice"}
    both: dict[str, str | None] = {"user": None, "client-id": "app"}
    assert (
        alter_quotas(
            quorum,
            quota(dict(user), {"producer_byte_rate": 1000.0, "request_percentage": 12.5}),
            quota(both, {"consumer_byte_rate": 5.0}),
            quota({"ip": "10.0.0.1"}, {"connection_creation_rate": 3.0}),
        )
        == [(0, None)] * 3
    )
    assert dict(quorum.image.quotas.get((("user", "alice"),)) or {}) == {
        "producer_byte_rate": 1000.0,
        "request_percentage": 12.5,
    }
    assert len(quorum.image.quotas) == 3
    alter_quotas(quorum, quota(dict(user), {"producer_byte_rate": None, "request_percentage": None}))
    assert len(quorum.image.quotas) == 2


@pytest.mark.parametrize(
    ("entity", "ops", "words"),
    [
        ({}, {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ({"group": "g"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "Empty user not supported"),
        ({"user": "a", "ip": "1.2.3.4"}, {"producer_byte_rate": 1.0}, "IP entity shouldnot be combined"),
        ({"ip": "1.2.3.400"}, {"connection_creation_rate": 1.0}, "1.2.3.400 is not a valid IP or resolvable host."),
        ({"ip": "1.2.3.²"}, {"connection_creation_rate": 1.0}, "1.2.3.² is not a valid IP or resolvable host."),
        ({"ip": f"1.2.3.{'9' * 5000}"}, {"connection_creation_rate": 1.0}, "is not a valid IP or resolvable host."),
        ({"ip": "1.2.3.4"}, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        ({"user": "a"}, {"no_such_key": 1.0}, "Invalid configuration key no_such_key"),
        ({"user": "a"}, {"producer_byte_rate": 0.0}, "Quota producer_byte_rate must be greater than 0"),
        ({"user": "a"}, {"producer_byte_rate": 1.5}, "producer_byte_rate cannot be a fractional value."),
        ({"ip": None}, {"connection_creation_rate": 3e9}, "too large for an INT"),
    ],
)
def test_wrong_quotas_are_refused(
    quorum: Quorum, entity: dict[str, str | None], ops: dict[str, float | None], words: str
) -> None:
    ((code, message),) = alter_quotas(quorum, quota(entity, ops))
    assert code == ErrorCode.INVALID_REQUEST
    assert words in (message or "")
    assert len(quorum.image.quotas) == 0


def test_the_largest_long_is_a_rate(quorum: Quorum) -> None:
    """As a double it is larger by one."""
    assert alter_quotas(quorum, quota({"user": "a"}, {"producer_byte_rate": float(2**63 - 1)})) == [(0, None)]
    ((code, message),) = alter_quotas(quorum, quota({"user": "a"}, {"producer_byte_rate": 9.3e18}))
    assert (code, message) == (
        ErrorCode.INVALID_REQUEST, "Proposed value for producer_byte_rate is too large for a LONG.",
    )  # fmt: skip


def test_a_repeated_entity_keeps_its_first_quota_and_gets_one_answer(quorum: Quorum) -> None:
    user: dict[str, str | None] = {"user": "alice"}
    twice = quota(user, {"producer_byte_rate": 1.0}), quota(user, {"producer_byte_rate": 2.0})
    message = "Ignoring duplicate entity ClientQuotaEntity(entries={user=alice})"
    assert alter_quotas(quorum, *twice) == [(ErrorCode.INVALID_REQUEST, message)]
    assert dict(quorum.image.quotas.get((("user", "alice"),)) or {}) == {"producer_byte_rate": 1.0}


# SCRAM


def test_scram_users_are_stored_as_derived_keys(quorum: Quorum) -> None:
    Request = AlterUserScramCredentialsRequest  # noqa: N806
    salted = hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", 4096)
    upsert = Request.ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=salted
    )
    assert quorum.respond(Request(upsertions=[upsert])).results[0].error_code == 0
    stored = quorum.image.scram.get((1, "alice"))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    assert stored.stored_key == hashlib.sha256(client_key).digest()
    assert stored.server_key == hmac.digest(salted, b"Server Key", "sha256")
    assert stored.iterations == 4096
    gone = Request.ScramCredentialDeletion(name="alice", mechanism=1)
    assert quorum.respond(Request(deletions=[gone])).results[0].error_code == 0
    assert quorum.respond(Request(deletions=[gone])).results[0].error_code == ErrorCode.RESOURCE_NOT_FOUND


def test_wrong_scram_users_are_refused(quorum: Quorum) -> None:
    Request = AlterUserScramCredentialsRequest  # noqa: N806

    def upsert(name: str, mechanism: int = 1, iterations: int = 8192, password: bytes = b"p") -> Any:
        return Request.ScramCredentialUpsertion(
            name=name, mechanism=mechanism, iterations=iterations, salt=b"s", salted_password=password
        )

    asked = [
        upsert("few", 1, 4095),
        upsert("many", 1, 16385),
        upsert("", 1),
        upsert("odd", 9),
        upsert("x"),
        upsert("x", 2),
        upsert("open", password=b""),
    ]
    results = {r.user: r.error_code for r in quorum.respond(Request(upsertions=asked)).results}
    assert results == {
        "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        "odd": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        "x": ErrorCode.DUPLICATE_RESOURCE,
        "open": ErrorCode.UNKNOWN_SERVER_ERROR,
    }
    assert len(quorum.image.scram) == 0


# Access control entries


def creation(name: str, pattern: int = 3, **fields: Any) -> Any:
    return CreateAclsRequest.AclCreation(
        **{
            "resource_type": 2,
            "resource_name": name,
            "resource_pattern_type": pattern,
            "principal": "User:alice",
            "host": "*",
            "operation": 3,
            "permission_type": 3,
            **fields,
        }
    )


def test_without_an_authorizer_acl_requests_are_refused(quorum: Quorum) -> None:
    for request in (CreateAclsRequest(), DeleteAclsRequest(), DescribeAclsRequest(pattern_type_filter=1)):
        with pytest.raises(KafkaError) as refused:
            quorum.respond(request)
        assert refused.value.code == ErrorCode.SECURITY_DISABLED


def test_acls_are_created_found_and_deleted() -> None:
    quorum = Quorum(authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer")
    request = CreateAclsRequest(
        creations=[creation("foo"), creation("fo", 4), creation("*"), creation("foo"), creation("x", principal="alice")]
    )
    results = quorum.respond(request).results
    assert [result.error_code for result in results] == [0, 0, 0, 0, ErrorCode.INVALID_REQUEST]
    assert len(quorum.image.acls) == 3
    quorum.respond(request)
    assert len(quorum.image.acls) == 3
    wanted = {
        "resource_type_filter": 2,
        "resource_name_filter": "foo",
        "operation": 1,
        "permission_type": 1,
        "principal_filter": None,
        "host_filter": None,
    }
    found = quorum.respond(DescribeAclsRequest(pattern_type_filter=2, **wanted)).resources
    assert sorted(resource.resource_name for resource in found) == ["*", "fo", "foo"]
    deleted = quorum.respond(
        DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(pattern_type_filter=3, **wanted)])
    )
    assert [acl.resource_name for acl in deleted.filter_results[0].matching_acls] == ["foo"]
    assert len(quorum.image.acls) == 2


def test_delegation_tokens_are_refused_without_a_secret(quorum: Quorum) -> None:
    assert quorum.respond(CreateDelegationTokenRequest()).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


# Features


def update(quorum: Quorum, name: str, level: int, kind: int = 1, version: int = 2, **fields: Any) -> Any:
    request = UpdateFeaturesRequest(
        feature_updates=[
            UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        ],
        **fields,
    )
    return quorum.respond(request, version)


def test_features_go_up_and_down() -> None:
    quorum = Quorum(bootstrap=[FeatureLevelRecord(name=METADATA_VERSION, feature_level=25)])
    quorum.start(1)
    assert update(quorum, METADATA_VERSION, 30, validate_only=True).error_code == 0
    assert quorum.image.metadata_level == 25
    assert update(quorum, METADATA_VERSION, 29).error_code == 0
    assert quorum.image.metadata_level == 29
    assert update(quorum, METADATA_VERSION, 27, kind=2).error_code == 0
    assert quorum.image.metadata_level == 27
    assert update(quorum, "group.version", 1).error_code == 0
    assert update(quorum, "group.version", 0, kind=2).error_code == 0
    assert quorum.image.feature_level("group.version") == 0


@pytest.mark.parametrize(
    ("name", "level", "kind", "words"),
    [
        (METADATA_VERSION, 29, 1, "without setting the upgrade type"),
        (METADATA_VERSION, 29, 2, "Refusing to perform the requested downgrade"),
        (METADATA_VERSION, 29, 3, "Unsafe metadata downgrade is not supported"),
        (METADATA_VERSION, 99, 1, "only supports versions 7-30"),
        ("no.such.feature", 1, 1, "does not support this feature"),
        ("group.version", 1, 2, "Can't downgrade to a newer version."),
        ("group.version", 1, 9, "does not support the given upgrade type"),
        ("group.version", -1, 2, "cannot be less than 0"),
        ("kraft.version", 1, 1, "kraft.version"),
    ],
)
def test_wrong_feature_updates_are_refused(quorum: Quorum, name: str, level: int, kind: int, words: str) -> None:
    response = update(quorum, name, level, kind)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert words in response.error_message
    assert response.error_message.startswith("The update failed for all features since the following feature had")


def test_a_dynamic_quorum_starts_at_its_kraft_version(quorum: Quorum) -> None:
    """kafka-features upgrade --release-version includes it among others, and failed."""
    features = quorum.controller.features
    features.kraft_version = lambda: 1
    assert update(quorum, "kraft.version", 1, 1).error_code == ErrorCode.NONE
    assert "without setting the upgrade type" in update(quorum, "kraft.version", 0, 1).error_message
    assert update(quorum, "kraft.version", 0, 2).error_message.endswith("Can't downgrade the version of this feature.")


def test_a_level_that_a_broker_does_not_support_is_refused() -> None:
    quorum = Quorum(bootstrap=[FeatureLevelRecord(name=METADATA_VERSION, feature_level=25)])
    quorum.register(1, features={METADATA_VERSION: (7, 27)})
    assert "Broker 1 only supports versions 7-27" in update(quorum, METADATA_VERSION, 29).error_message
    assert "Broker 1 does not support this feature" in update(quorum, "group.version", 1).error_message


def test_old_versions_return_an_error_for_each_feature() -> None:
    quorum = Quorum()
    quorum.start(1)
    response = update(quorum, "group.version", 1, version=1)
    assert [(result.feature, result.error_code) for result in response.results] == [("group.version", 0)]
