"""Which topic names are allowed: legal characters, and no collision of metric names.

Metric names replace `.` by `_`, so `a.b` and `a_b` would collide. Kafka refuses the second of them.
"""

from __future__ import annotations

import re
from typing import Final

from kraft_protocol.errors import ErrorCode, KafkaError

NAME_LENGTH_MAX: Final = 249
"""A log directory is named `topic-partition`, and file systems allow 255 bytes."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION with the reason unless the name is allowed for a topic."""
    why: str | None = None
    if not name:
        why = "the empty string is not allowed"
    elif name in {".", ".."}:
        why = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        why = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif not _LEGAL.fullmatch(name):
        why = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if why is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")


def has_collision_characters(name: str) -> bool:
    """Whether the name contains `.` or `_`. Other names cannot collide."""
    return "." in name or "_" in name


def unified(name: str) -> str:
    """The name as it appears in metrics."""
    return name.replace(".", "_")


class TopicNames:
    """The existing names that could collide, by their form in metrics. The kinds of records add and remove them."""

    __slots__ = ("_by_unified",)

    def __init__(self) -> None:
        self._by_unified: dict[str, list[str]] = {}

    def colliding(self, name: str) -> str | None:
        """The alphabetically first other topic with a name that collides with `name`; None without a collision."""
        if not has_collision_characters(name):
            return None
        others = [other for other in self._by_unified.get(unified(name), ()) if other != name]
        return min(others, default=None)

    def add(self, name: str) -> None:
        """Note that a topic with this name exists."""
        if has_collision_characters(name):
            self._by_unified.setdefault(unified(name), []).append(name)

    def remove(self, name: str) -> None:
        """Note that no topic with this name exists."""
        names = self._by_unified.get(unified(name), [])
        if name in names:
            names.remove(name)
            if not names:
                del self._by_unified[unified(name)]
