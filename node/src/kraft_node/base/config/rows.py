"""The rows of a DescribeConfigs response (32) for one resource; brokers and controllers answer alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kraft_node.base.config.resources import BROKER_LOGGER_RESOURCE
from kraft_protocol.wire.messages import DescribeConfigsResponse as Response

if TYPE_CHECKING:
    from kraft_node.base.config.describe import ConfigEntry


def rows(entries: Iterable[ConfigEntry], resource: Any, request: Any) -> list[Any]:
    """The requested keys among `entries`; without keys in the request, all."""
    keys = set(resource.configuration_keys or ())
    about = _documented(resource.resource_type, request)
    return [
        Response.DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
            synonyms=(
                [Response.DescribeConfigsSynonym(one.name, one.value, one.source) for one in entry.synonyms]
                if request.include_synonyms
                else []
            ),
            config_type=entry.type_id,
            documentation=about(entry.name),
        )
        for entry in entries
        if not keys or entry.name in keys
    ]


def _documented(kind: int, request: Any) -> Callable[[str], str | None]:
    if kind == BROKER_LOGGER_RESOURCE:
        return lambda _name: ""
    if not request.include_documentation:
        return lambda _name: None
    from kraft_node.base.config.documentation import documentation  # noqa: PLC0415

    return documentation
