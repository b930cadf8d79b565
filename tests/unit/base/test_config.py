"""Configurations without a peer: the file's syntax, refusals, layers and readers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_node.base.config import (
    BROKER,
    ConfigError,
    NodeConfig,
    TopicConfigs,
    check_topic_value,
    format_properties,
    parse_properties,
    validate_topic_config,
)
from kraft_node.base.config.describe import describe_broker, describe_topic
from kraft_node.base.config.dynamic import BrokerConfig
from kraft_node.base.config.effects import EFFECTS, refusals
from kraft_node.base.config.group import resolve_group
from kraft_node.base.config.zookeeper import ZooKeeperSettings, zookeeper_settings
from kraft_protocol.errors import ErrorCode, KafkaError

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
}


def node(**texts: str) -> NodeConfig:
    return NodeConfig.parse({**COMBINED, **{name.replace("_", "."): text for name, text in texts.items()}})


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=12), max_size=6))
def test_properties_survive_a_round_trip(entries: dict[str, str]) -> None:
    plain = {k: v for k, v in entries.items() if not any(0xD800 <= ord(c) < 0xE000 for c in k + v)}
    assert parse_properties(format_properties(plain, comment="a comment")) == plain


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(ConfigError, match=r"line 2: .*hexadecimal digits, not 'zz'"):
        parse_properties("a=1\nb=\\uzz\n")


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        ({"log.segment.bytes": "x"}, "Invalid value x for configuration log.segment.bytes: Not a number of type INT"),
        ({"num.partitions": "0"}, "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ({"process.roles": "zookeeper"}, "Invalid value zookeeper for configuration process.roles"),
        ({"controller.quorum.voters": "2@localhost:9093"}, "the node id 1 must be included"),
        ({"listeners": "PLAINTEXT:9092"}, "cannot parse PLAINTEXT:9092"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "nonroutable"),
        # The system takes the last 16 bits of a port: the node listened at another one.
        (
            {"listeners": "PLAINTEXT://:75000,CONTROLLER://:9093"},
            "PLAINTEXT://:75000: a port is a number from 0 to 65535",
        ),
        ({"advertised.listeners": "PLAINTEXT://h:-1"}, "PLAINTEXT://h:-1: a port is a number from 0 to 65535"),
        (
            {"controller.quorum.voters": "1@localhost:75000"},
            "Failed to parse host and port from entry 1@localhost:75000",
        ),
    ],
)
def test_a_wrong_value_names_key_and_value(texts: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        NodeConfig.parse({**COMBINED, **texts})
    assert says in str(refused.value)
    assert refused.value.key


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ConfigError, match=r'Missing required configuration "node\.id"'):
        NodeConfig.parse({k: v for k, v in COMBINED.items() if k != "node.id"})


def test_each_unknown_key_is_reported_once() -> None:
    config = NodeConfig.parse({**COMBINED, "a.b": "1", "zookeeper.root": "x", "listener.name.x.y": "2"})
    assert config.unknown == ["a.b", "zookeeper.root"]
    assert [w for w in config.warnings if w.startswith("Unknown")] == [
        "Unknown configuration a.b: it has no effect",
        "Unknown configuration zookeeper.root: it has no effect",
    ]


@pytest.mark.parametrize(
    ("given", "key", "message"),
    [
        ({}, "zookeeper.connect", "zookeeper.connect is missing"),
        ({"zookeeper.connect": "z:2181"}, "zookeeper.metadata.migration.enable", "process.roles=controller"),
        ({"zookeeper.connect": "z", "zookeeper.session.timeout.ms": "0"}, "zookeeper.session.timeout.ms", "at least 1"),
        (
            {
                "zookeeper.connect": "z",
                "zookeeper.ssl.truststore.location": "/t",
                "zookeeper.ssl.truststore.type": "JKS",
            },
            "zookeeper.ssl.truststore.location",
            "only PEM",
        ),
    ],
)
def test_wrong_keys_of_a_migration_are_refused(given: dict[str, str], key: str, message: str) -> None:
    texts = {**COMBINED, "zookeeper.metadata.migration.enable": "true", **given}
    with pytest.raises(ConfigError, match=message) as refused:
        NodeConfig.parse(texts)
    assert refused.value.key == key
    assert NodeConfig.parse({**texts, "zookeeper.metadata.migration.enable": "false"}).node_id == 1


def test_a_migration_has_the_defaults_of_kafka() -> None:
    texts = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.voters": "1@h:1",
        "listeners": "CONTROLLER://h:1",
        "controller.listener.names": "CONTROLLER",
        "zookeeper.metadata.migration.enable": "true",
        "zookeeper.connect": "z:2181/kafka",
    }
    settings = zookeeper_settings(NodeConfig.parse(texts))
    assert settings == ZooKeeperSettings("z:2181/kafka", 18_000, 18_000, False, None, None, None, False)
    assert (
        zookeeper_settings(
            NodeConfig.parse(
                {**texts, "process.roles": "controller"} | {"zookeeper.metadata.migration.enable": "false"}
            )
        )
        is None
    )


def test_overrides_beat_the_file() -> None:
    text = format_properties(COMBINED) + "num.partitions=3\n"
    assert NodeConfig.parse(text, ["num.partitions=5", "log.dirs=/x=y"]).int("num.partitions") == 5
    with pytest.raises(ConfigError, match="expects key=value"):
        NodeConfig.parse(text, ["num.partitions"])


def test_readers_refuse_the_wrong_type_and_unknown_names() -> None:
    config = node()
    assert config.int("num.partitions") == 1
    assert config.string_or_none("broker.rack") is None
    with pytest.raises(KeyError):
        config.int("no.such.key")
    with pytest.raises(TypeError):
        config.string("num.partitions")


def retention_ms(**texts: str) -> int:
    return TopicConfigs(node(**texts)).resolve({}).retention_ms


def test_retention_accepts_three_keys() -> None:
    assert retention_ms() == 7 * 24 * 3_600_000
    assert retention_ms(log_retention_hours="2") == 7_200_000
    assert retention_ms(log_retention_hours="2", log_retention_minutes="1") == 60_000
    assert retention_ms(log_retention_hours="2", log_retention_ms="-5") == -1


def test_dynamic_values_override_the_file_and_a_brokers_override_the_default() -> None:
    broker = BrokerConfig(node(log_cleaner_threads="3", log_retention_hours="1"))
    assert broker.int("log.cleaner.threads") == 3
    assert broker.update({}, {"log.cleaner.threads": "4", "log.retention.ms": "9"}) >= {"log.cleaner.threads"}
    assert (broker.int("log.cleaner.threads"), broker.topic_default("retention.ms")) == (4, 9)
    assert broker.update({"log.cleaner.threads": "5"}, {"log.cleaner.threads": "4"}) >= {"log.cleaner.threads"}
    assert (broker.int("log.cleaner.threads"), broker.topic_default("retention.ms")) == (5, 3_600_000)
    assert "log.cleaner.threads" not in broker.update({"log.cleaner.threads": "5"}, {"log.cleaner.threads": "9"})
    # A value that cannot be parsed and a key that cannot change are ignored.
    broker.update({"log.cleaner.threads": "x", "node.id": "9"}, {})
    assert (broker.int("log.cleaner.threads"), broker.int("node.id")) == (3, 1)


def test_topics_with_equal_overrides_share_a_configuration() -> None:
    broker = BrokerConfig(node())
    topics = TopicConfigs(broker)
    first = topics.resolve({})
    assert first is topics.resolve({})
    assert topics.resolve({"retention.ms": "5"}).retention_ms == 5
    assert first.retention_ms == 7 * 24 * 3_600_000
    broker.update({}, {"log.retention.ms": "77"})
    topics.broker_changed()
    assert topics.resolve({}).retention_ms == 77
    for number in range(TopicConfigs.CACHE_SIZE_MAX + 10):
        topics.resolve({"retention.ms": str(number)})
    assert len(topics._cache) <= TopicConfigs.CACHE_SIZE_MAX


def test_an_override_of_another_release_is_ignored() -> None:
    config = TopicConfigs(node()).resolve({"retention.ms": "soon", "no.such.key": "1"})
    assert config.retention_ms == 7 * 24 * 3_600_000


def test_topic_values_are_validated_with_the_protocols_error() -> None:
    validate_topic_config("retention.ms", "5")
    with pytest.raises(KafkaError) as refused:
        validate_topic_config("retention.ms", "five")
    assert refused.value.code == ErrorCode.INVALID_CONFIG
    with pytest.raises(ConfigError, match="Unknown topic config name: nope"):
        check_topic_value("nope", "1")


def test_group_values_are_clamped_to_the_brokers_bounds() -> None:
    broker = node(group_consumer_max_session_timeout_ms="50000")
    assert resolve_group({"consumer.session.timeout.ms": "60000"}, broker)["consumer.session.timeout.ms"] == 50_000
    assert resolve_group({}, broker)["consumer.session.timeout.ms"] == 45_000


def test_secrets_are_never_shown() -> None:
    broker = BrokerConfig(node(ssl_keystore_password="hunter2"))
    entries = {entry.name: entry for entry in describe_broker(broker)}
    entry = entries["ssl.keystore.password"]
    assert (entry.sensitive, entry.value, entry.synonyms[0].value) == (True, None, None)
    assert "hunter2" not in repr(list(entries.values()))
    assert "hunter2" not in repr(broker.static.password("ssl.keystore.password"))


def test_a_described_topic_names_the_source_of_each_value() -> None:
    broker = BrokerConfig(node(log_retention_ms="100"))
    broker.update({}, {"log.retention.ms": "50"})
    entries = {entry.name: entry for entry in describe_topic({"retention.ms": "7"}, broker)}
    assert [(s.name, s.value, s.source) for s in entries["retention.ms"].synonyms] == [
        ("retention.ms", "7", 1),
        ("log.retention.ms", "50", 3),
        ("log.retention.ms", "100", 4),
        ("log.retention.hours", "168", 5),
    ]


def test_effects_name_only_known_keys() -> None:
    assert set(EFFECTS) <= set(BROKER)


def test_a_policy_class_is_refused() -> None:
    assert refusals(node()) == []
    found = refusals(node(create_topic_policy_class_name="com.example.Policy"))
    assert len(found) == 1
    assert "create.topic.policy.class.name" in found[0]


@pytest.mark.parametrize("key", ["node.id", "broker.id"])
def test_an_error_about_the_node_id_names_the_key_in_the_file(key: str) -> None:
    with pytest.raises(ConfigError, match=f"for configuration {key}: "):
        NodeConfig.parse({"process.roles": "broker", key: "x"})
