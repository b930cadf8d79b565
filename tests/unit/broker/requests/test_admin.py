"""Requests of administrators: configurations, quotas, SCRAM users, and forwarding to the controller."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kraft_node.base.config import NodeConfig
from kraft_node.base.config.dynamic import BrokerConfig
from kraft_node.base.config.errors import ConfigError
from kraft_node.base.turns import Turns
from kraft_node.broker.forward import WAITING_MAX, Forwarder
from kraft_node.broker.handlers.acls import describe_acls
from kraft_node.broker.handlers.alter_configs import AlterConfigsHandler
from kraft_node.broker.handlers.describe_client_quotas import describe_client_quotas
from kraft_node.broker.handlers.describe_configs import describe_configs
from kraft_node.broker.handlers.describe_user_scram_credentials import describe_user_scram_credentials
from kraft_node.broker.metadata_cache import MetadataCache
from kraft_node.broker.producer_ids import ProducerIds
from kraft_node.metadata.image import MetadataImage
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire import codec, stored
from kraft_protocol.wire import messages as m
from tests.unit.broker.fetching.test_fetching import CONFIG
from tests.unit.broker.world import AtOnce, Client, Controller, Loop, broker_records, make_env, replay, topic_records

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
APPEND, SUBTRACT = 2, 3


class Rig:
    def __init__(self) -> None:
        self.client = Client()
        self.controller = Controller()
        self.image = MetadataImage()
        self.loop = Loop()
        self.metadata = MetadataCache(self.image)
        self.config = BrokerConfig(NodeConfig.parse(CONFIG, {"log.retention.ms": "5000"}))
        self.turns = Turns(make_env(self.loop))
        self.producer_ids = ProducerIds(1, lambda: 3, self.controller, self.loop)
        self.forward = Forwarder(self.controller, 30_000)
        self.background = AtOnce(self.loop)
        self.alter = AlterConfigsHandler(self.background, 1, self.config, self.metadata, self.forward)
        replay(self.image, [*broker_records(1), *topic_records("a", 1)])

    def describe(self, kind: int, name: str, keys: list[str] | None = None, **fields: Any) -> Any:
        resource = m.DescribeConfigsRequest.DescribeConfigsResource(kind, name, keys)
        request = m.DescribeConfigsRequest(resources=[resource], **fields)
        return self.describe_configs(self.client.context(32, 4), request).results[0]

    def describe_configs(self, ctx: Any, request: Any) -> Any:
        return describe_configs(self.turns, self.metadata, self.config, 1, ctx, request)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def config(kind: int, name: str, key: str, value: str | None) -> Any:
    return stored.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


def test_a_topics_configuration_is_described_with_its_synonyms(rig: Rig) -> None:
    replay(rig.image, [config(TOPIC, "a", "retention.ms", "1234")])
    got = rig.describe(TOPIC, "a", ["retention.ms", "cleanup.policy"], include_synonyms=True)
    rows = {row.name: row for row in got.configs}
    assert set(rows) == {"retention.ms", "cleanup.policy"}
    retention = rows["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only, retention.is_sensitive) == (
        "1234", 1, False, False,
    )  # fmt: skip
    assert [s.source for s in retention.synonyms] == [1, 4, 5]
    assert rows["cleanup.policy"].config_source == 5
    assert rig.describe(TOPIC, "a", ["retention.ms"]).configs[0].synonyms == []


def test_without_named_keys_all_are_described(rig: Rig) -> None:
    assert len(rig.describe(TOPIC, "a").configs) > 25
    assert len(rig.describe(TOPIC, "a", []).configs) > 25
    assert len(rig.describe(BROKER, "1").configs) > 200
    assert rig.describe(BROKER, "").configs == []
    assert rig.describe(GROUP, "g").configs
    assert {row.name for row in rig.describe(METRICS, "m").configs} == {"interval.ms", "match", "metrics"}


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "not good", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (LOGGER, "", ErrorCode.INVALID_REQUEST),
        (METRICS, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_unknown_resources_cannot_be_described(rig: Rig, kind: int, name: str, code: ErrorCode) -> None:
    got = rig.describe(kind, name)
    assert (got.error_code, got.configs, got.resource_name) == (code, [], name)


def test_a_resource_without_configurations_refuses_the_request(rig: Rig) -> None:
    with pytest.raises(KafkaError) as caught:
        rig.describe(99, "x")
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def alter(resources: list[tuple[int, str, list[tuple[str, int, str | None]]]], *, validate_only: bool = False) -> Any:
    request = m.IncrementalAlterConfigsRequest
    return request(
        resources=[
            request.AlterConfigsResource(
                kind, name, [request.AlterableConfig(key, operation, value) for key, operation, value in configs]
            )
            for kind, name, configs in resources
        ],
        validate_only=validate_only,
    )


def test_loggers_are_described_and_set_here(rig: Rig) -> None:
    logger = logging.getLogger("kraft_node.tests.of.loggers")
    assert "root" in {row.name for row in rig.describe(LOGGER, "1").configs}
    name = logger.name
    ctx = rig.client.context(44, 1)
    got = rig.alter.incremental(ctx, alter([(LOGGER, "1", [(name, 0, "DEBUG")])], validate_only=True))
    assert got.responses[0].error_code == 0
    assert logger.level == logging.NOTSET
    rig.alter.incremental(ctx, alter([(LOGGER, "1", [(name, 0, "DEBUG")])]))
    assert logger.level == logging.DEBUG
    assert [(r.value, r.config_source) for r in rig.describe(LOGGER, "1", [name]).configs] == [("DEBUG", 6)]
    rig.alter.incremental(ctx, alter([(LOGGER, "1", [(name, 1, None)])]))
    assert logger.level == logging.NOTSET
    assert rig.controller.sent == []


def test_loggers_and_other_resources_of_a_decoded_request_are_split(rig: Rig) -> None:
    """A decoded message has no constructor, but the handler called one to make the forwarded rest."""
    sent = alter([(LOGGER, "1", [("root", 0, "INFO")]), (TOPIC, "a", [])], validate_only=True)
    received = codec.decode(m.IncrementalAlterConfigsRequest, codec.encode(sent, 1), 1)
    assert rig.alter.incremental(rig.client.context(44, 1), received) is None
    rest = rig.controller.take(m.IncrementalAlterConfigsRequest).request
    assert [(r.resource_type, r.resource_name) for r in rest.resources] == [(TOPIC, "a")]
    assert rest.validate_only


@pytest.mark.parametrize(
    ("broker", "change", "code"),
    [
        ("2", ("root", 0, "INFO"), ErrorCode.INVALID_REQUEST),
        ("1", ("no.such.logger", 0, "INFO"), ErrorCode.INVALID_CONFIG),
        ("1", ("root", 0, "LOUD"), ErrorCode.INVALID_CONFIG),
        ("1", ("root", 1, None), ErrorCode.INVALID_REQUEST),
        ("1", ("root", 2, "INFO"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_wrong_changes_of_loggers_are_refused(rig: Rig, broker: str, change: Any, code: ErrorCode) -> None:
    got = rig.alter.incremental(rig.client.context(44, 1), alter([(LOGGER, broker, [change])]))
    assert got.responses[0].error_code == code


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("1", "node.id", "4", "Cannot update these configs dynamically: [node.id]"),
        ("", "log.retention.ms", "x", "Invalid value x for configuration log.retention.ms: Not a number of type LONG"),
        ("1", "max.connections.per.ip.overrides", "abc", "max.connections.per.ip.overrides"),
        (
            "",
            "listener.name.plaintext.ssl.keystore.location",
            "x",
            "Cannot update these configs at default cluster level, broker id must be specified: "
            "[listener.name.plaintext.ssl.keystore.location]",
        ),
        ("1", "log.cleaner.threads", "3", "cannot be increased to more than double the current value 1"),
        ("1", "remote.log.reader.threads", "4", "value should be at least half the current value 10"),
        ("1", "max.connections", "0", "Invalid max.connections 0"),
        ("", "listener.name.plaintext.max.connection.creation.rate", "0", "Invalid max.connection.creation.rate 0"),
        ("1", "log.local.retention.ms", "5001", "Value must not be more than log.retention.ms property value: 5000"),
        ("1", "log.local.retention.ms", "-1", "Value must not be -1 as log.retention.ms value is set as 5000"),
    ],
)
def test_an_unsafe_value_is_refused_by_the_broker(rig: Rig, name: str, key: str, value: str, message: str) -> None:
    got = rig.alter.incremental(rig.client.context(44, 1), alter([(BROKER, name, [(key, 0, value)])]))
    assert got.responses[0].error_code == ErrorCode.INVALID_REQUEST
    assert message in got.responses[0].error_message
    assert rig.controller.sent == []


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_an_unsafe_result_of_a_list_operation_is_refused_by_the_broker(rig: Rig, operation: int) -> None:
    replay(rig.image, [config(BROKER, "1", "cordoned.log.dirs", "/gone")])
    request = alter([(BROKER, "1", [("cordoned.log.dirs", operation, "/other")])])
    answer = rig.alter.incremental(rig.client.context(44, 1), request).responses[0]
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message.endswith("Missing entries : /gone" + (", /other" if operation == APPEND else ""))


def test_a_safe_change_is_forwarded_to_the_controller(rig: Rig) -> None:
    replay(rig.image, [config(BROKER, "1", "log.retention.ms", "x")])  # an older release may have accepted it
    good = [(BROKER, "1", [("log.retention.ms", 1, None), ("log.cleaner.threads", 0, "2")])]
    assert rig.alter.incremental(rig.client.context(44, 1), alter(good)) is None  # type: ignore[arg-type]
    rig.controller.take(m.IncrementalAlterConfigsRequest)


class Slow:
    """A check of a part of the node that takes long; a test decides when its lane runs, and what the check finds."""

    def __init__(self, rig: Rig) -> None:
        self.error: Exception | None = None
        self.jobs: list[Any] = []
        rig.config.checks.append(self.check)
        rig.background.submit = lambda lane, work, done: self.jobs.append((work, done))  # type: ignore[method-assign]

    def check(self, values: Any) -> Any:
        return self.remain if values.int("log.cleaner.threads") == 2 else None

    def remain(self) -> None:
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        work, done = self.jobs.pop()
        try:
            result = work()
        except Exception as error:
            result = error
        done(result)


def test_an_alteration_waits_for_a_check_off_the_loop(rig: Rig) -> None:
    slow = Slow(rig)
    change = alter([(BROKER, "1", [("log.cleaner.threads", 0, "2")]), (TOPIC, "a", [("retention.ms", 0, "1")])])
    assert rig.alter.incremental(rig.client.context(44, 1), change) is None
    assert rig.controller.sent == []
    slow.run()
    sent = rig.controller.take(m.IncrementalAlterConfigsRequest)
    assert [r.resource_type for r in sent.request.resources] == [BROKER, TOPIC]


def test_a_check_off_the_loop_refuses_its_resource_only(rig: Rig) -> None:
    slow = Slow(rig)
    slow.error = ConfigError("cannot read the store", "ssl.keystore.location")
    change = alter([(BROKER, "1", [("log.cleaner.threads", 0, "2")]), (TOPIC, "a", [("retention.ms", 0, "1")])])
    assert rig.alter.incremental(rig.client.context(44, 1), change) is None
    slow.run()
    sent = rig.controller.take(m.IncrementalAlterConfigsRequest)
    assert [r.resource_type for r in sent.request.resources] == [TOPIC]
    result = m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(0, None, TOPIC, "a")
    sent.answer(m.IncrementalAlterConfigsResponse(responses=[result]))
    (answer,) = rig.client.answers
    assert [(r.resource_type, r.error_code) for r in answer.responses] == [(BROKER, 42), (TOPIC, 0)]
    assert "cannot read the store" in answer.responses[0].error_message


def test_an_alteration_is_answered_though_its_check_has_a_defect(rig: Rig) -> None:
    slow = Slow(rig)
    slow.error = ZeroDivisionError()
    change = alter([(BROKER, "1", [("log.cleaner.threads", 0, "2")])])
    assert rig.alter.incremental(rig.client.context(44, 1), change) is None
    slow.run()
    assert [r.error_code for r in rig.client.answers[0].responses] == [ErrorCode.UNKNOWN_SERVER_ERROR]


def test_a_mixed_change_is_split_and_put_together(rig: Rig) -> None:
    request = alter([(LOGGER, "1", [("root", 0, "LOUD")]), (TOPIC, "a", [("retention.ms", 0, "1")])])
    assert rig.alter.incremental(rig.client.context(44, 1), request) is None
    sent = rig.controller.take(m.IncrementalAlterConfigsRequest)
    assert [r.resource_type for r in sent.request.resources] == [TOPIC]
    result = m.IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(0, None, TOPIC, "a")
    sent.answer(m.IncrementalAlterConfigsResponse(responses=[result]))
    assert [(r.resource_type, r.error_code) for r in rig.client.answers[0].responses] == [
        (LOGGER, ErrorCode.INVALID_CONFIG),
        (TOPIC, 0),
    ]


def test_the_controller_decides_in_the_name_of_the_client(rig: Rig) -> None:
    ctx = rig.client.context(19, 5, client_id="somebody")
    request = m.CreateTopicsRequest(topics=[m.CreateTopicsRequest.CreatableTopic(name="t")])
    assert rig.forward(ctx, request) is None
    sent = rig.controller.take(m.CreateTopicsRequest)
    assert sent.request is request
    assert (sent.version, sent.client) == (5, ctx)
    answer = m.CreateTopicsResponse()
    sent.answer(answer)
    assert rig.client.answers == [answer]


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (TimeoutError("late"), ErrorCode.REQUEST_TIMED_OUT),
        (KafkaError(ErrorCode.NOT_CONTROLLER, "no"), ErrorCode.NOT_CONTROLLER),
    ],
)
def test_a_controller_that_does_not_answer(rig: Rig, failure: Exception, code: ErrorCode) -> None:
    request = m.CreateTopicsRequest(topics=[m.CreateTopicsRequest.CreatableTopic(name="t")])
    rig.forward(rig.client.context(19, 5), request)
    rig.controller.take(m.CreateTopicsRequest).answer(failure)
    assert [(t.name, t.error_code) for t in rig.client.answers[0].topics] == [("t", code)]
    assert rig.forward.waiting == 0


def test_forwarded_requests_are_bounded(rig: Rig) -> None:
    rig.forward.waiting = WAITING_MAX
    with pytest.raises(KafkaError) as error:
        rig.forward(rig.client.context(19, 5), m.CreateTopicsRequest())
    assert error.value.code == ErrorCode.REQUEST_TIMED_OUT


def quota(*entity: tuple[str, str | None], key: str = "producer_byte_rate", value: float = 10.0) -> Any:
    data = stored.ClientQuotaRecord.EntityData
    return stored.ClientQuotaRecord(entity=[data(kind, name) for kind, name in entity], key=key, value=value)


def quotas(rig: Rig, *components: tuple[str, int, str | None], strict: bool = False) -> list[Any]:
    request = m.DescribeClientQuotasRequest(
        components=[m.DescribeClientQuotasRequest.ComponentData(*component) for component in components], strict=strict
    )
    got = describe_client_quotas(rig.turns, rig.image, rig.client.context(48, 1), request)
    return sorted(
        ([(e.entity_type, e.entity_name) for e in entry.entity] for entry in got.entries),
        key=lambda e: (len(e), str(e)),
    )


def test_quotas_are_found_by_their_entities(rig: Rig) -> None:
    ann, nobody, app = ("user", "ann"), ("user", None), ("client-id", "app")
    replay(rig.image, [quota(ann), quota(nobody), quota(app, ann), quota(("ip", "1.2.3.4"))])
    both = sorted([app, ann])
    assert quotas(rig, ("user", 0, "ann")) == [[ann], both]
    assert quotas(rig, ("user", 0, "ann"), strict=True) == [[ann]]
    assert quotas(rig, ("user", 1, None)) == [[nobody]]
    assert quotas(rig, ("user", 2, None)) == [[ann], [nobody], both]
    assert quotas(rig, ("user", 2, None), ("client-id", 2, None)) == [both]
    assert len(quotas(rig)) == 4
    assert quotas(rig, strict=True) == []
    for wrong in (
        [("group", 2, None)],
        [("user", 2, None), ("user", 2, None)],
        [("user", 0, None)],
        [("user", 7, None)],
        [("ip", 2, None), ("user", 2, None)],
    ):
        with pytest.raises(KafkaError):
            quotas(rig, *wrong)


def test_scram_users_without_their_secrets(rig: Rig) -> None:
    replay(
        rig.image,
        [
            stored.UserScramCredentialRecord(name="ann", mechanism=mechanism, iterations=4096 * mechanism)
            for mechanism in (1, 2)
        ],
    )

    def users(*names: str) -> list[Any]:
        request = m.DescribeUserScramCredentialsRequest(
            users=[m.DescribeUserScramCredentialsRequest.UserName(name) for name in names]
        )
        got = describe_user_scram_credentials(rig.turns, rig.image, rig.client.context(50, 0), request)
        return [(r.user, r.error_code, [(c.mechanism, c.iterations) for c in r.credential_infos]) for r in got.results]

    ann = ("ann", 0, [(1, 4096), (2, 8192)])
    assert users() == [ann]
    assert users("ann") == [ann]
    assert users("bob") == [("bob", ErrorCode.RESOURCE_NOT_FOUND, [])]
    assert users("ann", "ann") == [("ann", ErrorCode.DUPLICATE_RESOURCE, [])]


def test_without_an_authorizer_acl_requests_are_refused(rig: Rig) -> None:
    with pytest.raises(KafkaError) as error:
        describe_acls(rig.client.context(29, 3), m.DescribeAclsRequest())
    assert error.value.code == ErrorCode.SECURITY_DISABLED
