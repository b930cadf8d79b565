"""Constraints on configuration values, in the notation of `kraft_protocol.configs.kafka`.

`compile_constraint` compiles the notation to a function that raises ConfigError. Messages follow Kafka's validators.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from kraft_node.base.config.errors import ConfigError, invalid
from kraft_node.base.config.value_types import ConfigValue, value_text

Check: TypeAlias = Callable[[str, ConfigValue], None]


def compile_constraint(notation: str, kind: str) -> Check | None:
    """Compile `notation` to a check of values of type `kind`. Returns None if every value is valid."""
    if notation == "-":
        return None
    rule, _, rest = notation.partition(":")
    if rule == "range":
        return _range(rest, kind)
    if rule == "in":
        return _one_of(rest.split(","))
    if rule == "ci":
        return _one_of_any_case(rest.split(","))
    if rule.startswith("list"):
        options = rule.removeprefix("list")
        return _list(rest.split(",") if rest else [], may_be_empty="e" in options, may_be_null="n" in options)
    return _NAMED[rule]


def _range(bounds: str, kind: str) -> Check:
    low_text, _, high_text = bounds.partition("..")
    convert: Callable[[str], float] = float if kind == "double" else int
    low = convert(low_text) if low_text else None
    high = convert(high_text) if high_text else None

    def check(name: str, value: ConfigValue) -> None:
        if value is None:
            raise invalid(name, None, "Value must be non-null")
        assert isinstance(value, int | float)
        if low is not None and value < low:
            raise invalid(name, value_text(value), f"Value must be at least {low_text}")
        if high is not None and value > high:
            raise invalid(name, value_text(value), f"Value must be no more than {high_text}")

    return check


def _one_of(allowed: list[str]) -> Check:
    def check(name: str, value: ConfigValue) -> None:
        if value not in allowed:
            raise invalid(name, value, f"String must be one of: {', '.join(allowed)}")

    return check


def _one_of_any_case(allowed: list[str]) -> Check:
    def check(name: str, value: ConfigValue) -> None:
        if not isinstance(value, str) or value.upper() not in allowed:
            raise invalid(name, value, f"String must be one of (case insensitive): {', '.join(allowed)}")

    return check


def _list(allowed: list[str], *, may_be_empty: bool, may_be_null: bool) -> Check:
    def check(name: str, value: ConfigValue) -> None:
        if value is None:
            if may_be_null:
                return
            raise ConfigError(f"Configuration '{name}' values must not be null.", name)
        assert isinstance(value, list)
        if not value and not may_be_empty:
            choice = f"[{', '.join(allowed)}]" if allowed else "any non-empty value"
            raise ConfigError(f"Configuration '{name}' must not be empty. Valid values include: {choice}", name)
        if len(set(value)) != len(value):
            raise ConfigError(f"Configuration '{name}' values must not be duplicated.", name)
        for entry in value:
            if not entry:
                raise ConfigError(f"Configuration '{name}' values must not be empty.", name)
            if allowed and entry not in allowed:
                raise invalid(name, entry, f"String must be one of: {', '.join(allowed)}")

    return check


def _non_empty(name: str, value: ConfigValue) -> None:
    if value == "":
        raise invalid(name, value, "String must be non-empty")


def _non_null(name: str, value: ConfigValue) -> None:
    if value is None:
        raise invalid(name, None, "entry must be non null")


def _gzip_level(name: str, value: ConfigValue) -> None:
    if value is None or not (value == -1 or (isinstance(value, int) and 1 <= value <= 9)):
        raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")


_REPLICA: Final = re.compile(r"(?:[0-9]+:[0-9]+)?")


def _throttled_replicas(name: str, value: ConfigValue) -> None:
    if value is None:
        raise invalid(name, None)
    assert isinstance(value, list)
    entries = [entry.strip() for entry in value]
    if "".join(entries) != "*" and not all(_REPLICA.fullmatch(entry) for entry in entries):
        raise invalid(
            name, ",".join(value), "a list of [partitionId]:[brokerId] pairs, or *, is expected for throttled replicas"
        )


_DURATION: Final = re.compile(
    r"[+-]?P(?=.)(?:[+-]?[0-9]+D)?(?:T(?=.)(?:[+-]?[0-9]+H)?(?:[+-]?[0-9]+M)?(?:[+-]?[0-9]+(?:[.,][0-9]{0,9})?S)?)?",
    re.IGNORECASE,
)


def _offset_reset(name: str, value: ConfigValue) -> None:
    text = value if isinstance(value, str) else ""
    if text in ("latest", "earliest"):
        return
    duration = text.removeprefix("by_duration:")
    if duration == text or not _DURATION.fullmatch(duration) or duration.upper().endswith("T") or "-" in duration:
        why = (
            f"Invalid value `{text}` for configuration {name}. The value must be either 'earliest', 'latest' or of the "
            "format 'by_duration:<PnDTnHnMn.nS>'."
        )
        raise invalid(name, value, why)


def _voters(name: str, value: ConfigValue) -> None:
    from kraft_node.base.config.listeners import parse_voters  # noqa: PLC0415  (a cycle otherwise)

    if value is None:
        raise invalid(name, None)
    assert isinstance(value, list)
    parse_voters(value)


def _bootstrap_servers(name: str, value: ConfigValue) -> None:
    from kraft_node.base.config.listeners import parse_bootstrap_servers  # noqa: PLC0415

    if value is None:
        raise invalid(name, None)
    assert isinstance(value, list)
    parse_bootstrap_servers(value)


_NAMED: Final[dict[str, Check]] = {
    "bootstrap-servers": _bootstrap_servers,
    "voters": _voters,
    "non-empty": _non_empty,
    "non-null": _non_null,
    "gzip-level": _gzip_level,
    "throttled-replicas": _throttled_replicas,
    "offset-reset": _offset_reset,
}
