"""Configurations: every key of Apache Kafka 4.3.1 with its type, default, range and synonyms, and the values in force.

Who calls it: the command line and the composition root read the file (`NodeConfig.parse`), the broker and the log read
values (`BrokerConfig`, `TopicConfig`), the controller validates what clients alter (`validate_topic_config` and the
`check_*` functions), DescribeConfigs is answered from `describe`.

It must not read files: it is given texts. It must not know what a key does: `effects` states which keys act here, as
data for the documentation, and nothing decides by it.

- `tables`       the facts, written by `tools/import_configs` from the release's jars
- `definitions`  the facts as objects
- `types`, `validators`  text to value and back; what a value must fulfil
- `properties`   the file's syntax (java.util.Properties)
- `node`, `listeners`, `validation`  one node's static configuration, KIP-500/KIP-631 keys included
- `dynamic`      broker values that change at run time (KIP-226), the layers over the file
- `topic`, `group`, `client_metrics`  the other resources (KIP-848, KIP-932, KIP-714)
- `describe`     values with sources and synonyms

Everything raises `ConfigError`, which names key and value. What only some callers need (`dynamic`, `group`, `describe`,
`client_metrics`) is imported from its module.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraft_node.base.config.definitions import BROKER, CLIENT_METRICS, GROUP, TOPIC, ConfigDef, ConfigKey
from kraft_node.base.config.errors import ConfigError
from kraft_node.base.config.listeners import Endpoint, Voter
from kraft_node.base.config.node import NodeConfig
from kraft_node.base.config.properties import format_properties, parse_properties
from kraft_node.base.config.topic import TopicConfig, TopicConfigs, check_topic_overrides, check_topic_value
from kraft_node.base.config.types import Password
from kraft_node.base.config.view import ConfigView

__all__ = [
    "BROKER",
    "CLIENT_METRICS",
    "GROUP",
    "TOPIC",
    "ConfigDef",
    "ConfigError",
    "ConfigKey",
    "ConfigView",
    "Endpoint",
    "NodeConfig",
    "Password",
    "TopicConfig",
    "TopicConfigs",
    "Voter",
    "check_topic_overrides",
    "check_topic_value",
    "format_properties",
    "parse_properties",
    "resolve_topic",
    "validate_topic_config",
]


def resolve_topic(broker: ConfigView, overrides: Mapping[str, str]) -> TopicConfig:
    """The configuration of a topic with `overrides`; `TopicConfigs` caches it."""
    return TopicConfig.resolve(broker, overrides)


def validate_topic_config(name: str, value: str) -> None:
    """Raise KafkaError INVALID_CONFIG unless a topic may have this override on its own."""
    from kraft_node.base.errors import ErrorCode, KafkaError  # noqa: PLC0415  (start-up does not need it)

    try:
        check_topic_value(name, value)
    except ConfigError as e:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(e)) from None
