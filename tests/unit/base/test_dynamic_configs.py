"""Every supported broker key that may change at run time takes effect at run time, or is listed as read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_node.base.config import NodeConfig
from kraft_node.base.config.definitions import BROKER, READ_ONLY, TOPIC_SYNONYMS, ConfigKey
from kraft_node.base.config.dynamic import BrokerConfig
from kraft_node.base.config.effects import READ_ONCE
from kraft_node.base.config.read_keys import READ_KEYS
from kraft_node.base.config.topic import TopicConfigs, attribute

ROOT = Path(__file__).resolve().parents[3]
DYNAMIC = sorted(name for name in READ_KEYS if BROKER[name].update_mode != READ_ONLY)
TOPIC_KEY = {broker: topic for topic, synonyms in TOPIC_SYNONYMS.items() for broker, _ in synonyms}
CONFIG = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
}
TLS = "tests/unit/tls/test_node_tls.py"
ELSEWHERE = {
    "num.replica.fetchers": "tests/compat/clusters/test_administration.py",
    "cordoned.log.dirs": "tests/unit/broker/lifecycle/test_log_directories.py",
    "group.consumer.assignment.interval.ms": "tests/unit/broker/lifecycle/test_dynamic_values.py",
    "log.cleaner.backoff.ms": "tests/unit/log/manager/test_manager_timers.py",
    "log.cleaner.dedupe.buffer.size": "tests/unit/log/manager/test_manager_timers.py",
    "log.cleaner.io.buffer.load.factor": "tests/unit/log/manager/test_manager_timers.py",
    "log.cleaner.io.max.bytes.per.second": "tests/unit/log/manager/test_manager_timers.py",
    "log.cleaner.threads": "tests/unit/log/manager/test_manager_timers.py",
    "max.connection.creation.rate": "tests/unit/broker/requests/test_client_quotas.py",
    "max.connections": "tests/compat/rough/test_rough_configs.py",
    "max.connections.per.ip": "tests/compat/rough/test_rough_configs.py",
    "max.connections.per.ip.overrides": "tests/compat/rough/test_rough_configs.py",
    "producer.id.expiration.ms": "tests/unit/log/manager/test_manager_timers.py",
    "ssl.cipher.suites": TLS,
    "ssl.client.auth": TLS,
    "ssl.enabled.protocols": TLS,
    "ssl.endpoint.identification.algorithm": TLS,
    "ssl.engine.factory.class": TLS,
    "ssl.key.password": TLS,
    "ssl.keymanager.algorithm": TLS,
    "ssl.keystore.certificate.chain": TLS,
    "ssl.keystore.key": TLS,
    "ssl.keystore.location": TLS,
    "ssl.keystore.password": TLS,
    "ssl.keystore.type": TLS,
    "ssl.protocol": TLS,
    "ssl.provider": TLS,
    "ssl.secure.random.implementation": TLS,
    "ssl.trustmanager.algorithm": TLS,
    "ssl.truststore.certificates": TLS,
    "ssl.truststore.location": TLS,
    "ssl.truststore.password": TLS,
    "ssl.truststore.type": TLS,
    "transaction.partition.verification.enable": "tests/unit/broker/lifecycle/test_dynamic_values.py",
}
"""Keys that are no default of a topic key: the test that alters them and sees the effect."""
TEXTS = {"log.cleanup.policy": "compact", "log.message.timestamp.type": "LogAppendTime", "compression.type": "zstd"}


def other_value(key: ConfigKey) -> str:
    """An allowed text that is not the default."""
    if key.name in TEXTS:
        return TEXTS[key.name]
    if key.kind == "boolean":
        return "false" if key.default else "true"
    if key.kind == "double":
        return "0.25"
    if key.name.startswith("compression."):
        return "5"
    return str(2_000_000)


@pytest.mark.parametrize("name", DYNAMIC)
def test_a_change_at_run_time_takes_effect(name: str) -> None:
    if name in READ_ONCE:
        row = next(r for r in (ROOT / "docs/configuration.md").read_text().splitlines() if r.startswith(f"| `{name}` "))
        assert "at the next start" in row
        return
    topic = TOPIC_KEY.get(name)
    if topic is None:
        assert f'"{name}"' in (ROOT / ELSEWHERE[name]).read_text()
        return
    config = BrokerConfig(NodeConfig.parse(CONFIG))
    topics = TopicConfigs(config)
    before = getattr(topics.resolve({}), attribute(topic))
    text = other_value(BROKER[name])
    for own, cluster in (({name: text}, {}), ({}, {name: text})):
        assert name in config.update(own, cluster)
        topics.broker_changed()
        assert getattr(topics.resolve({}), attribute(topic)) != before
        config.update({}, {})
        topics.broker_changed()
        assert getattr(topics.resolve({}), attribute(topic)) == before


def test_a_dynamic_value_does_not_hide_another_spelling_in_the_file() -> None:
    """`log.retention.hours` was shown as its default as soon as any key had a dynamic value."""
    config = BrokerConfig(NodeConfig.parse({**CONFIG, "log.retention.ms": "1000", "log.retention.hours": "24"}))
    config.update({"log.cleaner.threads": "2"}, {})
    assert config.int("log.retention.hours") == 24
    config.update({"log.retention.ms": "5000"}, {})
    assert config.int("log.retention.hours") == 168, "hidden by the higher layer"
