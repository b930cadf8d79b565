"""The settings of consumer groups that may change while the broker runs: features, and each group's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.base.config.group import resolve_group
from kraft_node.base.config.resources import GROUP_RESOURCE
from kraft_node.broker.coordinators.group.consumer.services import GroupTimes
from kraft_node.metadata.features import GROUP_VERSION

if TYPE_CHECKING:
    from kraft_node.base.config.dynamic import BrokerConfig
    from kraft_node.metadata.image import MetadataImage

PROTOCOLS_KEY: Final = "group.coordinator.rebalance.protocols"
CONSUMER_PROTOCOL: Final = "consumer"
LEAST_HEARTBEAT_KEY: Final = "group.consumer.min.heartbeat.interval.ms"
FIRST_GROUP_VERSION: Final = 1
"""The first level of group.version with consumer groups."""
_TIMES: Final = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "consumer.assignment.interval.ms")


class GroupSettings:
    """Reads configurations and features; the times of each group are computed once until something changes."""

    __slots__ = ("_config", "_image", "_times")

    def __init__(self, config: BrokerConfig, image: MetadataImage) -> None:
        self._config = config
        self._image = image
        self._times: dict[str, GroupTimes] = {}

    def times(self, group_id: str) -> GroupTimes:
        """The group's own times within the broker's bounds, or the broker's."""
        times = self._times.get(group_id)
        if times is None:
            values = resolve_group(self._image.configs.get((GROUP_RESOURCE, group_id)) or {}, self._config)
            numbers = [values[name] for name in _TIMES]
            least_ms = self._config.int(LEAST_HEARTBEAT_KEY) if LEAST_HEARTBEAT_KEY in self._config.static.texts else 0
            times = self._times[group_id] = GroupTimes(*(n for n in [*numbers, least_ms] if isinstance(n, int)))
        return times

    def has_consumer_groups(self) -> bool:
        """Whether the feature is on, and this broker's configuration allows the protocol."""
        is_on = self._image.feature_level(GROUP_VERSION) >= FIRST_GROUP_VERSION
        return is_on and CONSUMER_PROTOCOL in self._config.list(PROTOCOLS_KEY)

    def changed(self) -> None:
        """Configurations have changed."""
        self._times.clear()
