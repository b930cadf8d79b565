"""Typed reading of configuration values, and the layers that a broker's value can come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from kraft_node.base.config.definitions import BROKER, BROKER_DYNAMIC_ONLY, BROKER_SYNONYMS, TOPIC_SYNONYMS, ConfigKey
from kraft_node.base.config.types import ConfigValue, Password

T = TypeVar("T")


def broker_key(name: str) -> ConfigKey:
    """The definition of a broker key; KeyError when there is none."""
    key = BROKER.get(name)
    return BROKER_DYNAMIC_ONLY[name] if key is None else key


class ConfigView:
    """Reads broker keys by name; `value` of a subclass says where from.

    The typed readers raise KeyError for a name that Kafka does not have and TypeError for one of another type: both
    are mistakes of the program, not of the file. Readers ending in `_or_none` are for keys that may be unset.
    """

    __slots__ = ()

    def value(self, name: str) -> ConfigValue:
        """The value in force, the definition's default where nothing else is given."""
        raise AssertionError(f"{name}: a subclass says where values come from")

    def layers(self) -> Iterable[Mapping[str, ConfigValue]]:
        """The parsed values that were given, the strongest layer first; defaults are not among them."""
        raise AssertionError("a subclass says where values come from")

    def _typed(self, name: str, kind: type[T]) -> T:
        value = self.value(name)
        if not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r}, not {kind.__name__}")
        return value

    def int(self, name: str) -> int:
        return self._typed(name, int)

    def boolean(self, name: str) -> bool:
        return self._typed(name, bool)

    def double(self, name: str) -> float:
        return self._typed(name, float)

    def string(self, name: str) -> str:
        return self._typed(name, str)

    def string_or_none(self, name: str) -> str | None:
        return None if self.value(name) is None else self._typed(name, str)

    def list(self, name: str) -> list[str]:
        value: list[str] = self._typed(name, list)
        return value

    def password(self, name: str) -> Password | None:
        return None if self.value(name) is None else self._typed(name, Password)

    def topic_default(self, name: str) -> ConfigValue:
        """What topic key `name` is for a topic without an override; None when no broker key stands behind it.

        In each layer the synonyms are tried in order (`log.retention.ms` before `.minutes` before `.hours`), in the
        unit of the topic key.
        """
        synonyms = TOPIC_SYNONYMS.get(name, ())
        for layer in self.layers():
            for broker, factor in synonyms:
                value = layer.get(broker)
                if value is not None:
                    return _scaled(name, value, factor)
        for broker, factor in synonyms:
            value = BROKER[broker].default
            if value is not None:
                return _scaled(name, value, factor)
        return None


def _scaled(name: str, value: ConfigValue, factor: int) -> ConfigValue:
    if not isinstance(value, int) or isinstance(value, bool):
        return value
    if name == "retention.ms" and value < 0:
        return -1  # for ever, in every unit
    return value * factor


def synonyms(name: str) -> tuple[str, ...]:
    """All spellings of a broker key in the order of precedence, itself among them."""
    return BROKER_SYNONYMS.get(name) or (name,)
