"""The core's settings, under Kafka's names (`controller.quorum.` in front of each), all in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class RaftConfig:
    """Settings of the core. The defaults are the same as in Apache Kafka 4.3.1."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    append_linger_ms: int = 25
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 1024 * 1024
    fetch_snapshot_max_bytes: int = 1024 * 1024
    fetch_max_wait_ms: int = 500
    auto_join: bool = False
    """controller.quorum.auto.join.enable: an observer requests to become a voter. It replaces the voter that had its
    id on another disk.
    """

    @property
    def check_quorum_timeout_ms(self) -> int:
        """A leader resigns if a majority has not fetched from it for this long."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_quorum_epoch_interval_ms(self) -> int:
        """If a voter has not fetched for this long, the leader sends BeginQuorumEpoch again."""
        return self.fetch_timeout_ms // 2
