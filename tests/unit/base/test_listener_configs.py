"""Dynamic keys of listeners: which values Kafka's brokers store, and how they are described."""

from __future__ import annotations

import pytest

from kraft_node.base.config import NodeConfig
from kraft_node.base.config.describe import describe_broker
from kraft_node.base.config.dynamic import BrokerConfig, check_broker_overrides, check_change
from kraft_node.base.config.errors import ConfigError

CONFIG = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,OTHER://:9094,CONTROLLER://:9093",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "num.network.threads": "3",
}
OTHER, UNKNOWN = "listener.name.other.", "listener.name.nowhere."


@pytest.fixture
def broker() -> BrokerConfig:
    return BrokerConfig(NodeConfig.parse(CONFIG))


def check(broker: BrokerConfig, overrides: dict[str, str]) -> None:
    check_broker_overrides(overrides, per_broker=True)
    check_change(broker, overrides, per_broker=True)


@pytest.mark.parametrize(
    "name",
    [
        f"{OTHER}sasl.server.max.receive.size",
        f"{OTHER}plain.connections.max.reauth.ms",
        f"{OTHER}node.id",
        f"{UNKNOWN}sasl.server.max.receive.size",
    ],
)
def test_keys_that_cannot_change_are_stored_for_a_listener(broker: BrokerConfig, name: str) -> None:
    check(broker, {name: "1000"})
    with pytest.raises(ConfigError, match=r"^Cannot update these configs dynamically: \[node.id\]"):
        check(broker, {"node.id": "1000"})


def test_a_value_of_an_existing_listeners_key_must_have_the_keys_type(broker: BrokerConfig) -> None:
    for name in ("connections.max.reauth.ms", "plain.connections.max.reauth.ms"):
        with pytest.raises(ConfigError, match=r"Invalid value x for configuration connections\.max\.reauth\.ms"):
            check(broker, {OTHER + name: "x"})
        check(broker, {UNKNOWN + name: "x"})


@pytest.mark.parametrize(
    "name", ["principal.builder.class", f"{OTHER}sasl.login.class", f"{OTHER}plain.sasl.login.class"]
)
def test_a_class_that_is_not_kafkas_own_is_refused(broker: BrokerConfig, name: str) -> None:
    with pytest.raises(ConfigError, match=r"Class example\.Other could not be found"):
        check(broker, {name: "example.Other"})
    check(broker, {name: "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"})


def test_network_threads_of_a_listener_change_by_a_factor_of_two_at_most(broker: BrokerConfig) -> None:
    check(broker, {f"{OTHER}num.network.threads": "6"})
    with pytest.raises(ConfigError, match=r"num\.network\.threads=7, value should not be greater than double"):
        check(broker, {f"{OTHER}num.network.threads": "7"})
    check(broker, {f"{UNKNOWN}num.network.threads": "7"})
    broker.update({f"{OTHER}num.network.threads": "6"}, {})
    check(broker, {f"{OTHER}num.network.threads": "12"})


def test_fixed_keys_of_an_open_listener_do_not_change_together_with_limits(broker: BrokerConfig) -> None:
    entry = {f"{OTHER}plain.sasl.jaas.config": "x.Y required;"}
    check(broker, entry)
    check(broker, entry | {f"{OTHER}max.connections": "10"})
    check(broker, {UNKNOWN + "plain.sasl.jaas.config": "x", "max.connections": "10"})
    with pytest.raises(ConfigError, match=r"for existing listener ListenerName\(OTHER\), restart broker"):
        check(broker, entry | {"max.connections": "10"})
    broker.update(entry, {})
    check(broker, entry | {"max.connections": "10"})


def test_keys_of_listeners_are_described_as_read_only_and_as_they_were_written(broker: BrokerConfig) -> None:
    name = f"{OTHER}sasl.kerberos.ticket.renew.window.factor"
    broker.update({name: "9", "max.connections": "10"}, {})
    found = {entry.name: (entry.value, entry.read_only) for entry in describe_broker(broker)}
    assert (found[name], found["max.connections"]) == (("9", True), ("10", False))
