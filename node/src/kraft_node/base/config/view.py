"""Typed access to configuration values, and the layers of a broker's configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from kraft_node.base.config.definitions import BROKER, BROKER_DYNAMIC_ONLY, BROKER_SYNONYMS, TOPIC_SYNONYMS, ConfigKey
from kraft_node.base.config.value_types import ConfigValue, Password

T = TypeVar("T")


def broker_key(name: str) -> ConfigKey:
    """Return the definition of a broker key. Raises KeyError if it does not exist."""
    key = BROKER.get(name)
    return BROKER_DYNAMIC_ONLY[name] if key is None else key


class ConfigView:
    """Typed access to broker keys by name. Subclasses implement `value` and `layers`.

    The typed readers raise KeyError for an unknown name and TypeError for a key of another type. Both are bugs of the
    program, not errors in the file. `string_or_none` and `password` return None if the key is unset.
    """

    __slots__ = ()

    def value(self, name: str) -> ConfigValue:
        """Return the value in force; the definition's default if no layer holds the key."""
        raise AssertionError(f"{name}: a subclass must implement value()")

    def layers(self) -> Iterable[Mapping[str, ConfigValue]]:
        """Return the given values, parsed, without defaults. The layer of highest precedence comes first."""
        raise AssertionError("a subclass must implement layers()")

    def _typed(self, name: str, kind: type[T]) -> T:
        value = self.value(name)
        if not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r}, not {kind.__name__}")
        return value

    def int(self, name: str) -> int:
        """The value of a key of type int, short or long."""
        return self._typed(name, int)

    def boolean(self, name: str) -> bool:
        """The value of a key of type boolean."""
        return self._typed(name, bool)

    def double(self, name: str) -> float:
        """The value of a key of type double."""
        return self._typed(name, float)

    def string(self, name: str) -> str:
        """The value of a key of type string or class. Raises TypeError if the key is unset and its default is null."""
        return self._typed(name, str)

    def string_or_none(self, name: str) -> str | None:
        """The value of a key of type string or class; None if the key is unset and its default is null."""
        return None if self.value(name) is None else self._typed(name, str)

    def list(self, name: str) -> list[str]:
        """The entries of a key of type list, without blanks around them. Raises TypeError for null, as in `string`."""
        value: list[str] = self._typed(name, list)
        return value

    def password(self, name: str) -> Password | None:
        """The value of a key of type password, which prints as `[hidden]`; None if the key is unset."""
        return None if self.value(name) is None else self._typed(name, Password)

    def topic_default(self, name: str) -> ConfigValue:
        """Return the value of topic key `name` for a topic without an override; None if no broker key is its synonym.

        In each layer, synonyms are tried in order (`log.retention.ms`, then `.minutes`, then `.hours`). The value is in
        the unit of the topic key.
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
        return -1  # always, in every unit
    return value * factor


def synonyms(name: str) -> tuple[str, ...]:
    """Return all spellings of a broker key in order of precedence, itself included."""
    return BROKER_SYNONYMS.get(name) or (name,)
