"""Texts of java.util.Properties as configurations of a node (see `kraft_protocol.configs.properties`)."""

from __future__ import annotations

from kraft_node.base.config.errors import ConfigError
from kraft_protocol.configs import properties
from kraft_protocol.configs.properties import format_properties


def parse_properties(text: str) -> dict[str, str]:
    """Parse `text` to its entries. Raises ConfigError, with the line's number."""
    try:
        return properties.parse_properties(text)
    except ValueError as error:
        raise ConfigError(str(error)) from None


__all__ = ["format_properties", "parse_properties"]
