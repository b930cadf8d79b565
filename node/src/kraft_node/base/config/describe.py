"""Entries of DescribeConfigs responses: every key of a resource with its value, source and synonyms.

Sources and their order follow Kafka's ConfigHelper (KIP-226). The synonyms of a key run from the value in force to the
value that would remain if all others were removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kraft_node.base.config.definitions import (
    BROKER,
    BROKER_DYNAMIC_ONLY,
    BROKER_SYNONYMS,
    CLIENT_METRICS,
    GROUP,
    GROUP_SYNONYMS,
    READ_ONLY,
    TOPIC,
    TOPIC_SYNONYMS,
    TYPE_IDS,
    ConfigKey,
)
from kraft_node.base.config.dynamic import BrokerConfig, definition
from kraft_node.base.config.errors import ConfigError
from kraft_node.base.config.group import group_default
from kraft_node.base.config.resources import BROKER_RESOURCE
from kraft_node.base.config.topic import TopicConfig, attribute
from kraft_node.base.config.value_types import ConfigValue, parse_type, value_text

DYNAMIC_TOPIC_CONFIG: Final = 1
DYNAMIC_BROKER_CONFIG: Final = 2
DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5
DYNAMIC_BROKER_LOGGER_CONFIG: Final = 6
CLIENT_METRICS_CONFIG: Final = 7
GROUP_CONFIG: Final = 8

REDACTED: Final = "[redacted]"


class Synonym:
    """A value of a key in one layer of configuration, with its source."""

    __slots__ = ("name", "source", "value")

    def __init__(self, name: str, value: str | None, source: int) -> None:
        self.name = name
        self.value = value
        self.source = source

    def __repr__(self) -> str:
        return f"Synonym({self.name}={self.value}, source {self.source})"


class ConfigEntry:
    """One key of a described resource, in the terms of DescribeConfigsResponse."""

    __slots__ = ("name", "read_only", "sensitive", "source", "synonyms", "type_id", "value")

    def __init__(
        self,
        name: str,
        value: str | None,
        *,
        source: int,
        read_only: bool,
        sensitive: bool,
        type_id: int,
        synonyms: list[Synonym],
    ) -> None:
        self.name = name
        self.value = value
        self.source = source
        self.read_only = read_only
        self.sensitive = sensitive
        self.type_id = type_id
        self.synonyms = synonyms

    def __repr__(self) -> str:
        return f"ConfigEntry({self.name}={self.value}, source {self.source}, {self.synonyms})"


def _entry(
    name: str, key: ConfigKey | None, value: str | None, synonyms: list[Synonym], *, read_only: bool
) -> ConfigEntry:
    sensitive = key is None or key.sensitive
    return ConfigEntry(
        name,
        None if sensitive else value,
        source=synonyms[0].source if synonyms else DEFAULT_CONFIG,
        read_only=read_only,
        sensitive=sensitive,
        type_id=0 if key is None else TYPE_IDS[key.kind],
        synonyms=synonyms,
    )


def _normal(key: ConfigKey | None, text: str) -> str | None:
    """Return `text` as the parsed value prints. Text that cannot be parsed is returned unchanged."""
    if key is None:
        return text
    try:
        return value_text(parse_type(key.name, text, key.kind))
    except ConfigError:
        return text


def redacted(resource_type: int, name: str, value: str | None) -> str | None:
    """A stored value as tools may print it: without passwords, and without values of unknown keys of brokers."""
    if value is None or resource_type != BROKER_RESOURCE:
        return value
    key = definition(name)
    return REDACTED if key is None or key.sensitive else value


def broker_synonyms(name: str, broker: BrokerConfig) -> list[Synonym]:
    """Values of a broker key in all layers; the value in force comes first."""
    names = _names(name)
    found: list[Synonym] = []
    texts = (
        (broker.per_broker, DYNAMIC_BROKER_CONFIG),
        (broker.cluster, DYNAMIC_DEFAULT_BROKER_CONFIG),
        (broker.static.texts, STATIC_BROKER_CONFIG),
    )
    for layer, source in texts:
        for synonym in names:
            text = layer.get(synonym)
            if text is not None:
                key = definition(synonym)
                hidden = key is None or key.sensitive
                found.append(Synonym(synonym, None if hidden else text, source))
    for synonym in names:
        key = BROKER.get(synonym)
        if key is not None and key.default_text is not None:
            found.append(Synonym(synonym, None if key.sensitive else key.default_text, DEFAULT_CONFIG))
    # A synonym with another name counts only behind a synonym with the requested name.
    while found and found[0].name != name:
        del found[0]
    return found


def _names(name: str) -> tuple[str, ...]:
    if name.startswith("listener.name."):
        key = definition(name)
        return (name, key.name) if key is not None and key.name != name else (name,)
    return BROKER_SYNONYMS.get(name) or (name,)


def describe_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """All keys of a topic that has `overrides`."""
    resolved = TopicConfig.resolve(broker, overrides)
    entries: list[ConfigEntry] = []
    for name, key in TOPIC.items():
        if key.internal and name not in overrides:
            continue
        value = value_text(getattr(resolved, attribute(name)))
        synonyms = broker_synonyms(TOPIC_SYNONYMS[name][0][0], broker) if name in TOPIC_SYNONYMS else []
        if name in overrides:
            synonyms.insert(0, Synonym(name, value, DYNAMIC_TOPIC_CONFIG))
        entries.append(_entry(name, key, value, synonyms, read_only=False))
    return entries


def describe_broker(broker: BrokerConfig) -> list[ConfigEntry]:
    """All keys of one broker: Kafka's keys, and further keys from its file or its dynamic values."""
    given = {**broker.static.texts, **broker.cluster, **broker.per_broker}
    names = [name for name, key in BROKER.items() if not key.internal or name in given]
    names += [name for name in given if name not in BROKER]
    entries: list[ConfigEntry] = []
    for name in names:
        key = definition(name)
        value = value_text(broker.value(name)) if name in BROKER else given[name]
        entries.append(_entry(name, key, value, broker_synonyms(name, broker), read_only=_is_read_only(name)))
    return entries


def _is_read_only(name: str) -> bool:
    """As in Kafka, keys of a listener count as read-only, though many of them can be altered."""
    key = BROKER.get(name)
    return name not in BROKER_DYNAMIC_ONLY if key is None else key.update_mode == READ_ONLY


def describe_broker_defaults(broker: BrokerConfig) -> list[ConfigEntry]:
    """The dynamic values for all brokers (resource name "")."""
    entries: list[ConfigEntry] = []
    for name, text in broker.cluster.items():
        key = definition(name)
        synonyms = [s for s in broker_synonyms(name, broker) if s.source == DYNAMIC_DEFAULT_BROKER_CONFIG]
        entries.append(_entry(name, key, text, synonyms, read_only=_is_read_only(name)))
    return entries


def describe_group(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """All keys of a group that has `overrides`."""
    entries: list[ConfigEntry] = []
    for name, key in GROUP.items():
        value: ConfigValue = group_default(name, broker)
        shown = value_text(value)
        synonym = GROUP_SYNONYMS.get(name)
        synonyms = broker_synonyms(synonym, broker) if synonym else [Synonym(name, shown, DEFAULT_CONFIG)]
        if name in overrides:
            shown = _normal(key, overrides[name])
            synonyms.insert(0, Synonym(name, shown, GROUP_CONFIG))
        entries.append(_entry(name, key, shown, synonyms, read_only=False))
    return entries


def describe_client_metrics(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """All keys of a client metrics subscription that has `overrides`."""
    entries: list[ConfigEntry] = []
    for name, key in CLIENT_METRICS.items():
        shown = key.default_text
        synonyms: list[Synonym] = []
        if name in overrides:
            shown = _normal(key, overrides[name])
            synonyms = [Synonym(name, shown, CLIENT_METRICS_CONFIG)]
        entries.append(_entry(name, key, shown, synonyms, read_only=False))
    return entries
