"""DescribeConfigs against a running Apache Kafka: entry by entry, with sources and synonyms."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from kraft_node.base.config import NodeConfig
from kraft_node.base.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from kraft_node.base.config.dynamic import BrokerConfig
from kraft_node.cli.client import NodeClient
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import CreateTopicsRequest, DescribeConfigsRequest, IncrementalAlterConfigsRequest
from tests.compat.targets import Apache

pytestmark = pytest.mark.peer

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET = 0

STATIC = {
    "log.retention.hours": "24",
    "log.roll.ms": "3600000",
    "log.segment.bytes": " 2000000 ",
    "log.cleanup.policy": "delete , compact",
    "num.partitions": "3",
    "ssl.keystore.password": "secret",
    "some.plugin.key": "7",
    "group.consumer.session.timeout.ms": "50000",
    "log.cleaner.min.cleanable.ratio": "0.70",
}
PER_BROKER = {"log.retention.ms": "5000000", "background.threads": "11"}
CLUSTER = {"log.cleaner.threads": "2", "background.threads": "12", "message.max.bytes": "2000000"}
TOPIC_OVERRIDES = {"retention.ms": "7", "min.cleanable.dirty.ratio": "0.25", "cleanup.policy": "compact"}
GROUP_OVERRIDES = {"consumer.session.timeout.ms": "55000", "share.auto.offset.reset": "earliest"}
METRICS_OVERRIDES = {"interval.ms": "5000", "metrics": "a.b,c"}


def alter(client: NodeClient, kind: int, name: str, values: dict[str, str]) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=SET, value=value)
            for key, value in values.items()
        ],
    )
    answer = client.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest(resources=[resource]))
    for response in answer.responses:
        assert response.error_code == 0, response


def described(client: NodeClient, kind: int, name: str) -> dict[str, tuple[Any, ...]]:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    result = client.request(ApiKey.DESCRIBE_CONFIGS, request).results[0]
    assert result.error_code == 0, result
    return {
        c.name: (
            c.value,
            c.config_source,
            c.read_only,
            c.is_sensitive,
            c.config_type,
            [(s.name, s.value, s.source) for s in c.synonyms],
        )
        for c in result.configs
    }


def shown(entries: list[ConfigEntry]) -> dict[str, tuple[Any, ...]]:
    return {
        e.name: (
            e.value,
            e.source,
            e.read_only,
            e.sensitive,
            e.type_id,
            [(s.name, s.value, s.source) for s in e.synonyms],
        )
        for e in entries
    }


def differing(theirs: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    return [
        f"{name}:\n  Kafka {theirs.get(name)}\n  ours  {ours.get(name)}"
        for name in sorted({*theirs, *ours})
        if theirs.get(name) != ours.get(name)
    ]


def test_every_entry_is_described_as_by_kafka(tmp_path: Path) -> None:
    kafka = Apache("kafka", tmp_path / "kafka", dict(STATIC))
    kafka.start()
    try:
        host, port = kafka.bootstrap.split(":")
        with NodeClient(host, int(port)) as client:
            topics = [
                CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in ("plain", "overridden")
            ]
            client.request(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=topics))
            alter(client, BROKER, "1", PER_BROKER)
            alter(client, BROKER, "", CLUSTER)
            alter(client, TOPIC, "overridden", TOPIC_OVERRIDES)
            alter(client, GROUP, "g", GROUP_OVERRIDES)
            alter(client, CLIENT_METRICS, "m", METRICS_OVERRIDES)
            ours = {key: shown(entries) for key, entries in described_here(tmp_path).items()}
            end = time.monotonic() + 60
            while True:  # a broker applies a new configuration some time after the change
                wrong = {key: differing(described(client, *key), entries) for key, entries in ours.items()}
                if not any(wrong.values()) or time.monotonic() > end:
                    break
                time.sleep(0.1)
    finally:
        kafka.stop()
    assert not any(wrong.values()), "\n".join(
        f"== {key}: {len(found)} differ\n" + "\n".join(found[:8]) for key, found in wrong.items() if found
    )


def described_here(tmp_path: Path) -> dict[tuple[int, str], list[ConfigEntry]]:
    broker = BrokerConfig(NodeConfig.parse((tmp_path / "kafka" / "server.properties").read_text()))
    broker.update(PER_BROKER, {**CLUSTER, "min.insync.replicas": "1"})  # Kafka's bootstrap of KIP-966 sets the last one
    return {
        (TOPIC, "plain"): describe_topic({}, broker),
        (TOPIC, "overridden"): describe_topic(TOPIC_OVERRIDES, broker),
        (BROKER, "1"): describe_broker(broker),
        (BROKER, ""): describe_broker_defaults(broker),
        (GROUP, "g"): describe_group(GROUP_OVERRIDES, broker),
        (CLIENT_METRICS, "m"): describe_client_metrics(METRICS_OVERRIDES),
    }
