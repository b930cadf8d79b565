"""Group configurations (consumer, share and streams groups; KIP-848, KIP-932, KIP-1071) and their bounds on the broker.

A broker key holds the default of each group key. For most group keys, two more broker keys hold the bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from kraft_node.base.config.definitions import GROUP, GROUP_SYNONYMS
from kraft_node.base.config.errors import ConfigError
from kraft_node.base.config.value_types import ConfigValue
from kraft_node.base.config.view import ConfigView

_FAMILIES: Final = ("consumer", "share", "streams")
_BOUNDED: Final = {
    "consumer": ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"),
    "share": (
        "heartbeat.interval.ms",
        "session.timeout.ms",
        "record.lock.duration.ms",
        "delivery.count.limit",
        "partition.max.record.locks",
        "assignment.interval.ms",
    ),
    "streams": ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"),
}
_STANDBYS: Final = ("streams.num.standby.replicas", "group.streams.max.standby.replicas")


def bounds() -> Iterator[tuple[str, str, str]]:
    """Every bounded group key with the broker keys of its minimum and maximum."""
    for family in _FAMILIES:
        for stem in _BOUNDED[family]:
            yield f"{family}.{stem}", f"group.{family}.min.{stem}", f"group.{family}.max.{stem}"


def validate_broker_group_bounds(broker: ConfigView) -> None:
    """Raise ConfigError unless the broker's group defaults lie within the broker's own bounds."""

    def at_most(lower: str, upper: str) -> None:
        if broker.int(lower) > broker.int(upper):
            raise ConfigError(
                f"{upper} ({broker.int(upper)}) must be greater than or equal to {lower} ({broker.int(lower)})", upper
            )

    for key, least, most in bounds():
        at_most(least, most)
        at_most(least, f"group.{key}")
        at_most(f"group.{key}", most)
    at_most("group.streams.num.standby.replicas", "group.streams.max.standby.replicas")
    at_most("group.share.max.size", "group.share.max.share.sessions")
    for family in _FAMILIES:
        heartbeat, session = f"group.{family}.heartbeat.interval.ms", f"group.{family}.session.timeout.ms"
        if broker.int(heartbeat) >= broker.int(session):
            raise ConfigError(
                f"{heartbeat} ({broker.int(heartbeat)}) must be less than {session} ({broker.int(session)})", heartbeat
            )
    assignors = broker.list("group.share.assignors")
    if len(assignors) != 1:
        raise ConfigError(
            f"group.share.assignors must contain exactly one assignor, but found {len(assignors)}",
            "group.share.assignors",
        )


def group_default(name: str, broker: ConfigView) -> ConfigValue:
    """Return the value of `name` for a group without an override."""
    synonym = GROUP_SYNONYMS.get(name)
    return GROUP[name].default if synonym is None else broker.value(synonym)


def check_group_value(name: str, text: str) -> ConfigValue:
    """Parse an override. Raises ConfigError if the key is unknown or the value is invalid."""
    key = GROUP.get(name)
    if key is None:
        raise ConfigError(f"Unknown group config name: {name}", name)
    return key.parse(text)


def check_group_overrides(overrides: Mapping[str, str], broker: ConfigView) -> None:
    """Raise ConfigError unless `overrides` is a valid configuration of a group within the broker's bounds."""
    values = {name: check_group_value(name, text) for name, text in overrides.items()}

    def number(name: str) -> int:
        value = values[name] if name in values else group_default(name, broker)
        assert isinstance(value, int)
        return value

    for name, least, most in bounds():
        if number(name) < broker.int(least):
            raise ConfigError(f"{name} must be greater than or equal to {least}", name)
        if number(name) > broker.int(most):
            raise ConfigError(f"{name} must be less than or equal to {most}", name)
    name, most = _STANDBYS
    if number(name) > broker.int(most):
        raise ConfigError(f"{name} must be less than or equal to {most}", name)
    for family in _FAMILIES:
        heartbeat, session = f"{family}.heartbeat.interval.ms", f"{family}.session.timeout.ms"
        if number(session) <= number(heartbeat):
            raise ConfigError(f"{session} must be greater than {heartbeat}", session)


def resolve_group(overrides: Mapping[str, str], broker: ConfigView) -> dict[str, ConfigValue]:
    """Return the values in force of all group keys. Overrides out of the broker's bounds are clamped to them."""
    values: dict[str, ConfigValue] = {name: group_default(name, broker) for name in GROUP}
    for name, text in overrides.items():
        try:
            values[name] = check_group_value(name, text)
        except ConfigError:
            continue  # written by a release with another definition of the key
    for name, least, most in bounds():
        value = values[name]
        assert isinstance(value, int)
        values[name] = min(max(value, broker.int(least)), broker.int(most))
    return values
