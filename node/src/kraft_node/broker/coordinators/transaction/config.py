"""The settings of the transaction coordinator, with Kafka 4.3.1's names and defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class ReadableConfig(Protocol):
    """The part of `base.config.NodeConfig` that is used here."""

    def int(self, name: str, /) -> int:
        """The value in force. Raises KeyError for an unknown name, TypeError for a key of another type."""
        ...

    def boolean(self, name: str, /) -> bool:
        """The value in force. Raises like `int`."""
        ...


@dataclass(slots=True)
class TransactionConfig:
    """Durations in milliseconds; each field names its configuration key."""

    max_timeout_ms: int = 900_000
    """transaction.max.timeout.ms"""
    id_expiration_ms: int = 604_800_000
    """transactional.id.expiration.ms"""
    abort_interval_ms: int = 10_000
    """transaction.abort.timed.out.transaction.cleanup.interval.ms"""
    removal_interval_ms: int = 3_600_000
    """transaction.remove.expired.transaction.cleanup.interval.ms"""
    two_phase_commit: bool = False
    """transaction.two.phase.commit.enable"""
    request_timeout_ms: int = 30_000
    """request.timeout.ms: for requests with markers."""
    topic_partitions: int = 50
    """transaction.state.log.num.partitions; used while the topic does not exist yet."""

    @classmethod
    def from_config(cls, config: ReadableConfig) -> TransactionConfig:
        """The settings of a parsed server.properties."""
        return cls(
            max_timeout_ms=config.int("transaction.max.timeout.ms"),
            id_expiration_ms=config.int("transactional.id.expiration.ms"),
            abort_interval_ms=config.int("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            removal_interval_ms=config.int("transaction.remove.expired.transaction.cleanup.interval.ms"),
            two_phase_commit=config.boolean("transaction.two.phase.commit.enable"),
            request_timeout_ms=config.int("request.timeout.ms"),
            topic_partitions=config.int("transaction.state.log.num.partitions"),
        )
