"""Definitions of configuration keys: type, default, constraint, update mode and synonyms.

The text of the definitions is in `kraft_protocol.configs.kafka`. A table is parsed into objects at its first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kraft_node.base.config.errors import ConfigError
from kraft_node.base.config.validators import Check, compile_constraint
from kraft_node.base.config.value_types import ConfigValue, parse_type
from kraft_protocol.configs import kafka as tables

PER_BROKER: Final = "per-broker"
CLUSTER_WIDE: Final = "cluster-wide"
READ_ONLY: Final = "read-only"

# DescribeConfigs' type numbers (org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigType).
TYPE_IDS: Final = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}


def _LATER(name: str, value: ConfigValue) -> None:  # noqa: N802
    """Placeholder for the check or default of a key that is not parsed yet; for most keys it is never needed."""
    raise AssertionError(f"{name}={value}: the check of this key was never made")


class ConfigKey:
    """Definition of a configuration key, from one line of a table."""

    __slots__ = ("_check", "_constraint", "_default", "_default_text", "_flags", "kind", "name")

    def __init__(self, line: str) -> None:
        self.name, self.kind, self._default_text, self._constraint, self._flags = line.split(" ")
        self._check: Check | None = _LATER
        self._default: Any = _LATER

    def __repr__(self) -> str:
        return f"ConfigKey({self.name}: {self.kind} {self._default_text} {self._constraint} {self._flags})"

    @property
    def required(self) -> bool:
        """Whether the key has no default and must be given."""
        return self._default_text == "!"

    @property
    def default_text(self) -> str | None:
        """The default as Kafka prints it. None for null and for a required key."""
        return self._default_text[1:] if self._default_text[0] == "=" else None

    @property
    def default(self) -> ConfigValue:
        """The default, parsed; None for null and for a required key."""
        if self._default is _LATER:
            text = self.default_text
            self._default = None if text is None else parse_type(self.name, text, self.kind)
        value: ConfigValue = self._default
        return value

    @property
    def sensitive(self) -> bool:
        """Whether the value is a secret, which must never be shown."""
        return self.kind == "password"

    @property
    def internal(self) -> bool:
        """Whether DescribeConfigs omits the key."""
        return "i" in self._flags

    @property
    def importance(self) -> str:
        """Kafka's importance of the key: `high`, `medium` or `low`. It has no effect."""
        return {"h": "high", "m": "medium", "l": "low"}[self._flags[0]]

    @property
    def update_mode(self) -> str:
        """How a broker key may change at run time: PER_BROKER, CLUSTER_WIDE or READ_ONLY."""
        return PER_BROKER if "p" in self._flags else CLUSTER_WIDE if "c" in self._flags else READ_ONLY

    @property
    def constraint(self) -> str:
        """The constraint in the notation of `tables`."""
        return self._constraint

    def parse(self, text: str) -> ConfigValue:
        """Parse and check `text`. Raises ConfigError if the type is wrong or the constraint forbids the value."""
        value = parse_type(self.name, text, self.kind)
        if isinstance(value, list) and self._constraint.startswith("list"):
            value = list(dict.fromkeys(value))  # a repeated entry counts once
        self.check(value)
        return value

    def check(self, value: ConfigValue) -> None:
        """Raise ConfigError unless the constraint allows `value`."""
        if self._check is _LATER:
            self._check = compile_constraint(self._constraint, self.kind)
        if self._check is not None:
            self._check(self.name, value)


class ConfigDef(Mapping[str, ConfigKey]):
    """The keys of one kind of resource, by name."""

    __slots__ = ("_keys", "_lines")

    def __init__(self, lines: str) -> None:
        self._lines = lines
        self._keys: dict[str, ConfigKey] | None = None

    def _load(self) -> dict[str, ConfigKey]:
        if self._keys is None:
            keys = map(ConfigKey, self._lines.splitlines())
            self._keys = {key.name: key for key in keys}
        return self._keys

    def __getitem__(self, name: str) -> ConfigKey:
        return self._load()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def __len__(self) -> int:
        return len(self._load())

    def __contains__(self, name: object) -> bool:
        return name in self._load()

    def parse(self, texts: Mapping[str, str | None]) -> dict[str, ConfigValue]:
        """Parse and check the `texts` with a known key; a null text means the default.

        Raises ConfigError for the first bad value, and when a required key is missing.
        """
        values: dict[str, ConfigValue] = {}
        for name, key in self._load().items():
            text = texts.get(name)
            if text is not None:
                values[name] = key.parse(text)
            elif key.required:
                raise ConfigError(f'Missing required configuration "{name}" which has no default value.', name)
        return values


BROKER: Final = ConfigDef(tables.BROKER)
BROKER_DYNAMIC_ONLY: Final = ConfigDef(tables.BROKER_DYNAMIC_ONLY)
TOPIC: Final = ConfigDef(tables.TOPIC)
GROUP: Final = ConfigDef(tables.GROUP)
CLIENT_METRICS: Final = ConfigDef(tables.CLIENT_METRICS)
CLIENT_QUOTA: Final = ConfigDef(tables.CLIENT_QUOTA)
IP_QUOTA: Final = ConfigDef(tables.IP_QUOTA)


def _synonym_table(text: str) -> dict[str, tuple[str, ...]]:
    rows = (line.split(" ") for line in text.splitlines())
    return {row[0]: tuple(row[1:]) for row in rows}


def _topic_synonyms() -> dict[str, tuple[tuple[str, int], ...]]:
    out: dict[str, tuple[tuple[str, int], ...]] = {}
    for name, synonyms in _synonym_table(tables.TOPIC_SYNONYMS).items():
        pairs = (synonym.split("*") for synonym in synonyms)
        out[name] = tuple((broker, int(factor)) for broker, factor in pairs)
    return out


TOPIC_SYNONYMS: Final = _topic_synonyms()
"""Topic key -> (broker key, factor), in order of precedence."""

GROUP_SYNONYMS: Final = {group: names[0] for group, names in _synonym_table(tables.GROUP_SYNONYMS).items()}
"""Group key -> broker key."""

BROKER_SYNONYMS: Final = _synonym_table(tables.BROKER_SYNONYMS)
"""Broker key -> its spellings, in order of precedence. Holds only keys with several spellings."""
