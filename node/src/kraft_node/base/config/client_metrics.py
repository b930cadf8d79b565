"""Configurations of client metrics subscriptions (KIP-714): which clients push which metrics, and at what interval."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kraft_node.base.config.definitions import CLIENT_METRICS
from kraft_node.base.config.errors import ConfigError
from kraft_node.base.config.value_types import java_split

INTERVAL_MS_MIN: Final = 100
INTERVAL_MS_MAX: Final = 3_600_000

MATCH_KEYS: Final = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


class IntervalError(ConfigError):
    """`interval.ms` is out of its bounds."""

    __slots__ = ()


def check_client_metrics_overrides(subscription: str, overrides: Mapping[str, str]) -> None:
    """Raise ConfigError unless `overrides` is a valid, complete configuration of the subscription."""
    if not subscription:
        raise ConfigError("Subscription name can't be empty")
    for name in overrides:
        if name not in CLIENT_METRICS:
            raise ConfigError(f"Unknown client metrics configuration: {name}", name)
    values = {name: CLIENT_METRICS[name].parse(text) for name, text in overrides.items()}
    interval = values.get("interval.ms")
    if isinstance(interval, int) and not INTERVAL_MS_MIN <= interval <= INTERVAL_MS_MAX:
        raise IntervalError(
            f"Invalid value {interval} for interval.ms, interval must be between {INTERVAL_MS_MIN} and "
            f"{INTERVAL_MS_MAX} (1 hour)",
            "interval.ms",
        )
    match = values.get("match")
    if isinstance(match, list):
        parse_match(match)


def parse_match(patterns: list[str]) -> dict[str, re.Pattern[str]]:
    """Return the regular expressions of `match` by client property. Raises ConfigError for an invalid pattern."""
    parsed: dict[str, re.Pattern[str]] = {}
    for pattern in patterns:
        parts = [part.strip() for part in java_split(pattern, "=")]
        name, expression = parts if len(parts) == 2 else ("", "")
        if name not in MATCH_KEYS:
            raise ConfigError(f"Illegal client matching pattern: {pattern}", "match")
        try:
            parsed[name] = re.compile(expression)
        except re.error as e:
            raise ConfigError(f"Illegal client matching pattern: {pattern} ({e})", "match") from None
    return parsed
