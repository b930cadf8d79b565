"""Errors in configurations."""

from __future__ import annotations


class ConfigError(ValueError):
    """A configuration value, or a combination of values, is invalid.

    `key` is the name of the configuration, or "" if several are wrong. `str()` is the whole message, worded like
    Kafka's so that tools print the same for both servers.
    """

    __slots__ = ("key",)

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


def invalid(key: str, value: object, reason: str | None = None) -> ConfigError:
    """Return the error for an invalid value."""
    shown = "null" if value is None else str(value)
    return ConfigError(f"Invalid value {shown} for configuration {key}" + (f": {reason}" if reason else ""), key)
