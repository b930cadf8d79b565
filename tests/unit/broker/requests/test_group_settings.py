"""The times of groups: their own configuration, or the broker's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft_node.base.config.dynamic import BrokerConfig
from kraft_node.base.config.node import NodeConfig
from kraft_node.base.config.resources import GROUP_RESOURCE
from kraft_node.broker.coordinators.group_settings import GroupSettings
from tests.unit.log.node import COMBINED


def settings(configs: dict[Any, Any]) -> GroupSettings:
    image: Any = SimpleNamespace(configs=configs)
    return GroupSettings(BrokerConfig(NodeConfig.parse(COMBINED)), image)


def test_groups_without_a_configuration_leave_nothing_in_memory() -> None:
    """Clients make up group ids: the console consumer takes a new one at each start."""
    held = settings({})
    times = {held.times(f"console-consumer-{number}") for number in range(100)}
    assert len(times) == 1
    assert not held._times


def test_a_group_has_its_own_times_until_they_change() -> None:
    configs = {(GROUP_RESOURCE, "g"): {"consumer.session.timeout.ms": "50000"}}
    held = settings(configs)
    assert (held.times("g").session_timeout_ms, held.times("other").session_timeout_ms) == (50_000, 45_000)
    configs.clear()
    held.changed()
    assert held.times("g") == held.times("other")
