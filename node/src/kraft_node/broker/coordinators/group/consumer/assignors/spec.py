"""What an assignor gets and returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple, TypeAlias

from kraft_protocol.ids import Uuid

Target: TypeAlias = Mapping[Uuid, AbstractSet[int]]
"""The partitions of one member, by topic; no topic is empty."""


class Subscriber(NamedTuple):
    """One member for an assignor."""

    member_id: str
    instance_id: str | None
    topics: frozenset[Uuid]
    """The subscribed topics that exist. Members with equal subscriptions should share one object."""
    earlier: Target
    """Its part of the latest target assignment."""


Assignor: TypeAlias = Callable[[list[Subscriber], Mapping[Uuid, int]], dict[str, Target]]
"""Takes the members and the number of partitions of each subscribed topic; returns the target of each member."""


def is_homogeneous(members: list[Subscriber]) -> bool:
    """Whether all members subscribe to the same topics."""
    return all(member.topics is members[0].topics or member.topics == members[0].topics for member in members)
