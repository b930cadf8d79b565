"""Configurations: every key of Apache Kafka 4.3.1 with its type, default, range and synonyms, and the values in force.

Callers:

- The command line and the composition root parse the file (`NodeConfig.parse`).
- The broker and the log read values (`BrokerConfig`, `TopicConfig`).
- The controller validates alterations by clients (`validate_topic_config` and the `check_*` functions).
- DescribeConfigs is answered from `describe`.

The package reads no files; callers pass texts. It does not know the effect of a key. `effects` lists the keys that the
node reads, as data for the documentation and for the checks at start.

- `definitions`  definitions as objects
- `value_types`, `validators`  conversion between text and value; constraints on values
- `properties`   syntax of the file (java.util.Properties)
- `view`         typed access to values, and the layers of a broker's configuration
- `node`, `node_values`, `listeners`, `validation`  static configuration of one node, with the keys of KIP-500 and
  KIP-631
- `dynamic`      broker values that change at run time (KIP-226), layered over the file
- `topic`, `group`, `client_metrics`  the other resources (KIP-848, KIP-932, KIP-714)
- `describe`     values with sources and synonyms
- `documentation`  what each key does, in words
- `rows`         rows of DescribeConfigs
- `read_keys`    the keys that the node reads, generated
- `zookeeper`    the keys of a controller that migrates from ZooKeeper (KIP-866)

Every error is a `ConfigError` (`errors`), which names key and value. Import `dynamic`, `group`, `describe` and
`client_metrics` from their modules: only some callers need them.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraft_node.base.config.definitions import BROKER, CLIENT_METRICS, GROUP, TOPIC, ConfigDef, ConfigKey
from kraft_node.base.config.errors import ConfigError
from kraft_node.base.config.listeners import ConfiguredListener, ConfiguredVoter
from kraft_node.base.config.node import NodeConfig
from kraft_node.base.config.properties import format_properties, parse_properties
from kraft_node.base.config.topic import TopicConfig, TopicConfigs, check_topic_overrides, check_topic_value
from kraft_node.base.config.value_types import Password
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
    "ConfiguredListener",
    "ConfiguredVoter",
    "NodeConfig",
    "Password",
    "TopicConfig",
    "TopicConfigs",
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
    """Raise KafkaError INVALID_CONFIG unless the override is valid, regardless of the topic's other overrides."""
    from kraft_protocol.errors import ErrorCode, KafkaError  # noqa: PLC0415  (start-up does not need it)

    try:
        check_topic_value(name, value)
    except ConfigError as e:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(e)) from None
