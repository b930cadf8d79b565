"""Levels of metadata.version by name, as of Kafka 4.3.1.

A copy of the node's table, which the operator does not import; a test compares the two. The controller has the last
word: it refuses to finalize a level that some node does not support.
"""

from __future__ import annotations

from typing import Final

FIRST: Final = 7
UNKNOWN: Final = 0
"""The level that stands for an unknown name."""
NAMES: Final = (
    "3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2",
    "3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0",
    "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0",
)  # fmt: skip
"""Names of the levels from FIRST on."""


def level_of(name: str) -> int | None:
    """The level of a name such as `4.3-IV0`, or the last level of a release such as `4.3`; None if unknown."""
    found = [number for number, one in enumerate(NAMES, FIRST) if one == name or one.partition("-")[0] == name]
    return found[-1] if found else None


def name_of(level: int) -> str:
    """The name of a level, such as `4.3-IV0`; the number if the level is unknown."""
    place = level - FIRST
    return NAMES[place] if 0 <= place < len(NAMES) else str(level)
