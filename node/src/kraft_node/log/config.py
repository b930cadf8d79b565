"""The topic configuration of a log: `base.config.topic.TopicConfig`, one object for all equal overrides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kraft_node.base.config.definitions import TOPIC
from kraft_node.base.config.topic import TopicConfig, attribute

if TYPE_CHECKING:
    from kraft_node.base.env import Rng

LogConfig = TopicConfig

LONG_MAX = 2**63 - 1
"""Kafka's `Long.MaxValue`: never for times, no limit for sizes."""


def make_config(overrides: Mapping[str, str] | None = None) -> LogConfig:
    """Kafka's defaults with `overrides` (topic configuration names). Raises ConfigError for an invalid value."""
    config = LogConfig()
    for name, key in TOPIC.items():
        text = None if overrides is None else overrides.get(name)
        setattr(config, attribute(name), key.default if text is None else key.parse(text))
    return config


def draw_jitter(config: LogConfig, rng: Rng) -> int:
    """How much earlier the next roll by time happens (`segment.jitter.ms`), in milliseconds."""
    bound = min(config.segment_jitter_ms, config.segment_ms)
    return rng.randrange(bound) if bound > 0 else 0
