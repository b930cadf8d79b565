"""The settings of the group coordinator, with Kafka 4.3.1's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class IntConfig(Protocol):
    """The part of `base.config.NodeConfig` that is used here."""

    def int(self, name: str, /) -> int: ...


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
    offsets_topic_partitions: int = 50
    """offsets.topic.num.partitions; used while the topic does not exist yet."""

    @classmethod
    def from_config(cls, config: IntConfig) -> GroupConfig:
        """The settings of a parsed server.properties."""
        return cls(
            min_session_timeout_ms=config.int("group.min.session.timeout.ms"),
            max_session_timeout_ms=config.int("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=config.int("group.initial.rebalance.delay.ms"),
            max_size=config.int("group.max.size"),
            offset_metadata_max_bytes=config.int("offset.metadata.max.bytes"),
            offsets_retention_ms=config.int("offsets.retention.minutes") * 60_000,
            offsets_retention_check_interval_ms=config.int("offsets.retention.check.interval.ms"),
            commit_timeout_ms=config.int("offsets.commit.timeout.ms"),
            offsets_topic_partitions=config.int("offsets.topic.num.partitions"),
        )
