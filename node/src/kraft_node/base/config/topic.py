"""Topic configurations: the values in force, and the checks of overrides.

The value of a topic key is its override, else the broker's synonym in the broker's layers, else the default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kraft_node.base.config.definitions import TOPIC
from kraft_node.base.config.errors import ConfigError
from kraft_node.base.config.value_types import ConfigValue
from kraft_node.base.config.view import ConfigView


def attribute(name: str) -> str:
    """Return the name of a topic key's attribute in `TopicConfig`."""
    return name.replace(".", "_")


class TopicConfig:
    """Typed values of all topic keys. Attributes are named as the keys, with underscores for dots.

    Topics with equal overrides share an instance: see `TopicConfigs`.
    """

    __slots__ = (
        "cleanup_policy",
        "compression_gzip_level",
        "compression_lz4_level",
        "compression_type",
        "compression_zstd_level",
        "delete_retention_ms",
        "file_delete_delay_ms",
        "flush_messages",
        "flush_ms",
        "follower_replication_throttled_replicas",
        "index_interval_bytes",
        "internal_segment_bytes",
        "leader_replication_throttled_replicas",
        "local_retention_bytes",
        "local_retention_ms",
        "max_compaction_lag_ms",
        "max_message_bytes",
        "message_timestamp_after_max_ms",
        "message_timestamp_before_max_ms",
        "message_timestamp_type",
        "min_cleanable_dirty_ratio",
        "min_compaction_lag_ms",
        "min_insync_replicas",
        "preallocate",
        "remote_log_copy_disable",
        "remote_log_delete_on_disable",
        "remote_storage_enable",
        "retention_bytes",
        "retention_ms",
        "segment_bytes",
        "segment_index_bytes",
        "segment_jitter_ms",
        "segment_ms",
        "unclean_leader_election_enable",
    )

    cleanup_policy: list[str]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    follower_replication_throttled_replicas: list[str]
    index_interval_bytes: int
    internal_segment_bytes: int | None
    leader_replication_throttled_replicas: list[str]
    local_retention_bytes: int
    local_retention_ms: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    remote_storage_enable: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    @classmethod
    def resolve(cls, broker: ConfigView, overrides: Mapping[str, str]) -> TopicConfig:
        """Return the configuration of a topic with `overrides` on a broker.

        An invalid override (written by an older or newer release) is ignored.
        """
        config = cls()
        for name, key in TOPIC.items():
            value: ConfigValue = None
            text = overrides.get(name)
            if text is not None:
                try:
                    value = key.parse(text)
                except ConfigError:
                    text = None
            if text is None:
                value = broker.topic_default(name)
                if value is None:
                    value = key.default
            setattr(config, attribute(name), value)
        return config

    @property
    def compact(self) -> bool:
        """Whether `cleanup.policy` contains `compact`. A topic may have both policies, or none."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Whether `cleanup.policy` contains `delete`: then the limits of time and size apply."""
        return "delete" in self.cleanup_policy

    @property
    def segment_ms_max(self) -> int:
        """The age in ms at which a segment is rolled.

        At most `max.compaction.lag.ms` if the topic is compacted, because the active segment is not compacted.
        """
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    @property
    def log_append_time(self) -> bool:
        """Whether the broker sets the timestamps of batches (`message.timestamp.type=LogAppendTime`)."""
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def segment_size(self) -> int:
        """The size in bytes at which a segment is rolled."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes


class TopicConfigs:
    """Resolves topic configurations of a broker; returns the same object for equal overrides."""

    __slots__ = ("_broker", "_cache")

    CACHE_SIZE_MAX: Final = 1024
    """Distinct sets of overrides in the cache; a cluster has a few dozen. A full cache is cleared."""

    def __init__(self, broker: ConfigView) -> None:
        self._broker = broker
        self._cache: dict[tuple[tuple[str, str], ...], TopicConfig] = {}

    def resolve(self, overrides: Mapping[str, str]) -> TopicConfig:
        """Return the configuration of a topic with `overrides`."""
        key = tuple(sorted(overrides.items())) if overrides else ()
        config = self._cache.get(key)
        if config is None:
            if len(self._cache) >= self.CACHE_SIZE_MAX:
                self._cache.clear()
            config = self._cache[key] = TopicConfig.resolve(self._broker, overrides)
        return config

    def broker_changed(self) -> None:
        """Clear the cache, because a dynamic broker configuration has changed."""
        self._cache.clear()


def check_topic_value(name: str, text: str) -> ConfigValue:
    """Parse an override. Raises ConfigError if the key is unknown or the value is invalid."""
    key = TOPIC.get(name)
    if key is None:
        raise ConfigError(f"Unknown topic config name: {name}", name)
    return key.parse(text)


def check_topic_overrides(
    overrides: Mapping[str, str],
    broker: ConfigView,
    previous: Mapping[str, str] | None = None,
) -> None:
    """Raise ConfigError unless `overrides` is a valid configuration of a topic.

    `broker` provides the values of the other keys. `previous` holds the present overrides of the topic; it is None when
    the topic is created.
    """
    values: dict[str, ConfigValue] = {}
    for name, text in overrides.items():
        values[name] = check_topic_value(name, text)

    def value(name: str) -> ConfigValue:
        if name in values:
            return values[name]
        default = broker.topic_default(name)
        return TOPIC[name].default if default is None else default

    least, most = value("min.compaction.lag.ms"), value("max.compaction.lag.ms")
    assert isinstance(least, int)
    assert isinstance(most, int)
    if least > most:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})",
            "min.compaction.lag.ms",
        )
    if value("remote.storage.enable"):
        if not broker.boolean("remote.log.storage.system.enable"):
            raise ConfigError(
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
                "storage.",
                "remote.storage.enable",
            )
        _check_tiered(value)
    elif _was_tiered(previous) and not values.get("remote.log.delete.on.disable"):
        raise ConfigError(
            "remote.storage.enable cannot become false while remote data is to be kept: set "
            "remote.log.delete.on.disable=true to delete it, or keep remote.storage.enable=true with "
            "remote.log.copy.disable=true to stop copying.",
            "remote.storage.enable",
        )


def _was_tiered(previous: Mapping[str, str] | None) -> bool:
    return previous is not None and previous.get("remote.storage.enable", "").strip().lower() == "true"


def _check_tiered(value: Callable[[str], ConfigValue]) -> None:
    """The rules between the keys of a tiered topic (KIP-405)."""
    policy = value("cleanup.policy")
    if isinstance(policy, list) and "compact" in policy:
        raise ConfigError(
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list.",
            "cleanup.policy",
        )
    stopped = value("remote.log.copy.disable")
    for local, total in (("local.retention.bytes", "retention.bytes"), ("local.retention.ms", "retention.ms")):
        limit, whole = value(local), value(total)
        assert isinstance(limit, int)
        assert isinstance(whole, int)
        if stopped and limit not in (-2, whole):
            raise ConfigError(
                f"With remote.log.copy.disable nothing more is copied to remote storage, so {local} ({limit}) must be "
                f"the same as {total} ({whole})",
                local,
            )
        if whole != -1 and limit != -2 and (limit == -1 or limit > whole):
            raise ConfigError(
                f"Invalid value {limit} for configuration {local}: Value must not be more than {total} property value: "
                f"{whole}",
                local,
            )
