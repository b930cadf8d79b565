"""What is wrong with a configuration, named by key and value."""

from __future__ import annotations


class ConfigError(ValueError):
    """A configuration value, or a combination of them, that cannot be accepted.

    `key` is the configuration's name ("" when several are to blame); `str()` is the whole sentence, in the shape that
    Kafka gives it so that tools which print it look alike.
    """

    __slots__ = ("key",)

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


def invalid(key: str, value: object, reason: str | None = None) -> ConfigError:
    """The error for one bad value."""
    shown = "null" if value is None else str(value)
    return ConfigError(f"Invalid value {shown} for configuration {key}" + (f": {reason}" if reason else ""), key)
