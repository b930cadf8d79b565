"""The static configuration of one node: `server.properties` and the command line's overrides.

`NodeConfig.parse` accepts exactly what Apache Kafka's KafkaConfig accepts in KRaft mode. For other keys or values it
raises `ConfigError`, which names key and value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kraft_node.base.config.errors import ConfigError
from kraft_node.base.config.node_values import NodeValues
from kraft_node.base.config.properties import parse_properties
from kraft_node.base.config.validation import validate_node
from kraft_protocol.configs.own import OWN_DEFAULTS


class NodeConfig(NodeValues):
    """The configuration from the file and the overrides, checked as a whole."""

    @classmethod
    def parse(
        cls, source: str | Mapping[str, str], overrides: Mapping[str, str] | Iterable[str] | None = None
    ) -> NodeConfig:
        """Parse `source` (a file's text or its entries); `overrides` (`k=v` texts or entries) take precedence.

        Raises ConfigError.
        """
        texts = parse_properties(source) if isinstance(source, str) else dict(source)
        if overrides:
            texts.update(overrides if isinstance(overrides, Mapping) else parse_overrides(overrides))
        config = cls(texts)
        config.warnings += [f"Unknown configuration {name}: it has no effect" for name in config.unknown]
        validate_node(config)
        return config


def parse_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """Parse `--override k=v` arguments. Raises ConfigError if an argument has no `=`."""
    entries: dict[str, str] = {}
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"--override expects key=value, not {override!r}")
        entries[name.strip()] = value
    return entries


def own_boolean(config: NodeConfig, key: str) -> bool:
    """Return the value of a boolean key of OWN_DEFAULTS. Raises ValueError if it is neither true nor false."""
    text = config.texts.get(key, OWN_DEFAULTS[key]).strip().lower()
    if text not in ("true", "false"):
        raise ValueError(f"Invalid value {text} for configuration {key}: Expected value to be either true or false")
    return text == "true"
