"""The periods of `LogManager`'s work, from the node's configuration; some may change while the node runs."""

from __future__ import annotations

from typing import Final

from kraft_node.base.config.view import ConfigView
from kraft_node.log.compaction.key_map import KEY_BYTES
from kraft_node.log.config import LONG_MAX

INITIAL_DELAY_MS: Final = 30_000
DEDUPE_BYTES: Final = 128 << 20
LOAD_FACTOR: Final = 0.9

STRAY_DELAY_MS: Final = 86_400_000
"""How long an administrator has to save a log without an owner."""


def keys_in(dedupe_bytes: int, threads: int, load_factor: float) -> int:
    """How many keys each of `threads` compactions may store, with `dedupe_bytes` of memory in total."""
    return max(int(dedupe_bytes * load_factor / max(threads, 1)) // KEY_BYTES, 1)


class Timing:
    """Periods in milliseconds; Kafka's defaults."""

    __slots__ = (
        "checkpoint_ms",
        "cleaner_backoff_ms",
        "cleaner_bytes_per_second",
        "cleaner_threads",
        "high_watermark_checkpoint_ms",
        "initial_delay_ms",
        "keys_max",
        "producer_check_ms",
        "producer_expiration_ms",
        "retention_check_ms",
        "stray_delay_ms",
    )

    def __init__(self, config: ConfigView | None = None) -> None:
        self.retention_check_ms = 300_000
        self.checkpoint_ms = 60_000
        self.high_watermark_checkpoint_ms = 5_000
        self.producer_expiration_ms = 86_400_000
        self.producer_check_ms = 600_000
        self.initial_delay_ms = INITIAL_DELAY_MS
        self.cleaner_backoff_ms = 15_000
        self.cleaner_threads = 1
        """Maximum of concurrent compactions."""
        self.cleaner_bytes_per_second = float("inf")
        self.keys_max = keys_in(DEDUPE_BYTES, 1, LOAD_FACTOR)
        """Maximum of keys that a compaction may store."""
        self.stray_delay_ms = STRAY_DELAY_MS
        if config is not None:
            self.retention_check_ms = config.int("log.retention.check.interval.ms")
            self.checkpoint_ms = config.int("log.flush.offset.checkpoint.interval.ms")
            self.high_watermark_checkpoint_ms = config.int("replica.high.watermark.checkpoint.interval.ms")
            self.producer_check_ms = config.int("producer.id.expiration.check.interval.ms")
            self.initial_delay_ms = config.int("log.initial.task.delay.ms")
            self.update(config)

    def update(self, config: ConfigView) -> bool:
        """Take the values that may change at run time. Returns whether the cleaner's period has changed."""
        self.producer_expiration_ms = config.int("producer.id.expiration.ms")
        self.cleaner_threads = config.int("log.cleaner.threads")
        self.cleaner_bytes_per_second = config.double("log.cleaner.io.max.bytes.per.second")
        self.keys_max = keys_in(
            config.int("log.cleaner.dedupe.buffer.size"),
            self.cleaner_threads,
            config.double("log.cleaner.io.buffer.load.factor"),
        )
        before = self.cleaner_backoff_ms
        self.cleaner_backoff_ms = (
            config.int("log.cleaner.backoff.ms") if config.boolean("log.cleaner.enable") else LONG_MAX
        )
        return self.cleaner_backoff_ms != before
