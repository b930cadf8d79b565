"""The settings of consumer groups that may change while the broker runs: features, and each group's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.base.config.group import resolve_group
from kraft_node.base.config.resources import GROUP_RESOURCE
from kraft_node.broker.coordinators.group.consumer.services import GroupTimes
from kraft_node.metadata.features import GROUP_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kraft_node.base.config.dynamic import BrokerConfig
    from kraft_node.metadata.image import MetadataImage

PROTOCOLS_KEY: Final = "group.coordinator.rebalance.protocols"
CONSUMER_PROTOCOL: Final = "consumer"
LEAST_HEARTBEAT_KEY: Final = "group.consumer.min.heartbeat.interval.ms"
FIRST_GROUP_VERSION: Final = 1
"""The first level of group.version with consumer groups."""
_TIMES: Final = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "consumer.assignment.interval.ms")


class GroupSettings:
    """Reads configurations and features; times are computed once until something changes.

    Clients may use any number of group ids, so only groups with a configuration have an entry; the others share the
    broker's times.
    """

    __slots__ = ("_config", "_image", "_of_broker", "_times")

    def __init__(self, config: BrokerConfig, image: MetadataImage) -> None:
        self._config = config
        self._image = image
        self._of_broker: GroupTimes | None = None
        self._times: dict[str, GroupTimes] = {}

    def times(self, group_id: str) -> GroupTimes:
        """The group's own times within the broker's bounds, or the broker's."""
        times = self._times.get(group_id)
        if times is not None:
            return times
        overrides = self._image.configs.get((GROUP_RESOURCE, group_id))
        if overrides:
            times = self._times[group_id] = self._resolved(overrides)
            return times
        if self._of_broker is None:
            self._of_broker = self._resolved({})
        return self._of_broker

    def _resolved(self, overrides: Mapping[str, str]) -> GroupTimes:
        values = resolve_group(overrides, self._config)
        numbers = [values[name] for name in _TIMES]
        least_ms = self._config.int(LEAST_HEARTBEAT_KEY) if LEAST_HEARTBEAT_KEY in self._config.static.texts else 0
        return GroupTimes(*(n for n in [*numbers, least_ms] if isinstance(n, int)))

    def has_consumer_groups(self) -> bool:
        """Whether the feature is on, and this broker's configuration allows the protocol."""
        is_on = self._image.feature_level(GROUP_VERSION) >= FIRST_GROUP_VERSION
        return is_on and CONSUMER_PROTOCOL in self._config.list(PROTOCOLS_KEY)

    def changed(self) -> None:
        """Configurations have changed."""
        self._times.clear()
        self._of_broker = None
