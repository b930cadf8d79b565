"""The settings of the group coordinator, with Kafka 4.3.1's names and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from kraft_node.base.config.errors import ConfigError
from kraft_node.broker.coordinators.group.consumer.assignors import ASSIGNORS
from kraft_node.broker.coordinators.group.consumer.assignors.own import SEPARATOR, AssignorError, OwnAssignor, load

ASSIGNORS_KEY: Final = "group.consumer.assignors"
_KAFKAS_CLASSES: Final = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


class SettingsView(Protocol):
    """The part of `base.config.NodeConfig` that is used here."""

    def int(self, name: str, /) -> int:
        """The value in force. Raises KeyError for an unknown name, TypeError for a key of another type."""
        ...

    def list(self, name: str, /) -> list[str]:
        """The entries of a comma-separated key, in order. Raises like `int`."""
        ...

    def string(self, name: str, /) -> str:
        """The text of a key that is never null. Raises like `int`."""
        ...


@dataclass(slots=True)
class GroupConfig:
    """Durations in milliseconds, sizes in bytes; each field names its configuration key."""

    min_session_timeout_ms: int = 6_000
    """group.min.session.timeout.ms"""
    max_session_timeout_ms: int = 1_800_000
    """group.max.session.timeout.ms"""
    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms"""
    max_size: int = 2**31 - 1
    """group.max.size"""
    new_member_join_timeout_ms: int = 300_000
    """How long a member's first join may wait for the others (a constant in Kafka)."""
    offset_metadata_max_bytes: int = 4_096
    """offset.metadata.max.bytes"""
    offsets_retention_ms: int = 10_080 * 60_000
    """offsets.retention.minutes"""
    offsets_retention_check_interval_ms: int = 600_000
    """offsets.retention.check.interval.ms"""
    commit_timeout_ms: int = 5_000
    """offsets.commit.timeout.ms"""
    append_linger_ms: int = -1
    """group.coordinator.append.linger.ms"""
    offsets_topic_partitions: int = 50
    """offsets.topic.num.partitions; used while the topic does not exist yet."""
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """group.consumer.assignors"""
    own_assignors: Mapping[str, OwnAssignor] = field(default_factory=dict)
    """The own assignors among them (`module:Class`), by name."""
    consumer_max_size: int = 2**31 - 1
    """group.consumer.max.size"""
    consumer_times: tuple[int, ...] = (45_000, 5_000, 1_000)
    """group.consumer.session.timeout.ms, .heartbeat.interval.ms and .assignment.interval.ms; groups may have others."""
    migration_policy: str = "bidirectional"
    """group.consumer.migration.policy"""
    regex_refresh_interval_ms: int = 600_000
    """group.consumer.regex.refresh.interval.ms"""

    @classmethod
    def from_config(cls, config: SettingsView) -> GroupConfig:
        """The settings of a parsed server.properties; loads own assignors. Raises ConfigError."""
        assignors, own = _assignors(config.list(ASSIGNORS_KEY))
        return cls(
            min_session_timeout_ms=config.int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.int("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
            max_size=config.int("group.max.size"),
            offset_metadata_max_bytes=config.int("offset.metadata.max.bytes"),
            offsets_retention_ms=config.int("offsets.retention.minutes") * 60_000,
            offsets_retention_check_interval_ms=config.int("offsets.retention.check.interval.ms"),
            commit_timeout_ms=config.int("offsets.commit.timeout.ms"),
            append_linger_ms=config.int("group.coordinator.append.linger.ms"),
            offsets_topic_partitions=config.int("offsets.topic.num.partitions"),
            consumer_assignors=assignors,
            own_assignors=own,
            consumer_max_size=config.int("group.consumer.max.size"),
            consumer_times=(
                config.int("group.consumer.session.timeout.ms"),
                config.int("group.consumer.heartbeat.interval.ms"),
                config.int("group.consumer.assignment.interval.ms"),
            ),
            migration_policy=config.string("group.consumer.migration.policy").lower(),
            regex_refresh_interval_ms=config.int("group.consumer.regex.refresh.interval.ms"),
        )


def _assignors(names: list[str]) -> tuple[tuple[str, ...], dict[str, OwnAssignor]]:
    """The names of the assignors in order, and own assignors by name. Kafka's classes count as `uniform` and `range`.

    Raises ConfigError for an assignor that does not exist or cannot be loaded.
    """
    found: dict[str, OwnAssignor | None] = {}
    for text in dict.fromkeys(names):
        name, own = _KAFKAS_CLASSES.get(text, text), None
        if SEPARATOR in text:
            try:
                own = load(text)
            except AssignorError as error:
                raise ConfigError(f"{ASSIGNORS_KEY}: {error}", ASSIGNORS_KEY) from error
            name = own.name
            if name in ASSIGNORS or name in found:
                raise ConfigError(f"{ASSIGNORS_KEY}: {text} has the name {name}, which is taken", ASSIGNORS_KEY)
        elif name not in ASSIGNORS:
            raise ConfigError(
                f"{ASSIGNORS_KEY}: {text} cannot be used; name uniform, range, or an assignor of your own as "
                "module:Class",
                ASSIGNORS_KEY,
            )
        found[name] = own
    if not found:
        raise ConfigError(f"{ASSIGNORS_KEY} is empty; name uniform, range or both", ASSIGNORS_KEY)
    return tuple(found), {name: own for name, own in found.items() if own is not None}
