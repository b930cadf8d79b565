"""A member of a consumer group, as values: what it wants, what it holds, and resolved regular expressions."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from kraft_protocol.ids import Uuid

JOINING: Final = 0
"""The epoch with which a member joins or joins again."""
LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2
"""A static member leaves and will be back before its session ends; its partitions wait for it."""

NO_TIMEOUT: Final = -1

Held: TypeAlias = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic, each with the epoch of the assignment that gave it (KIP-1251)."""


class MemberState(IntEnum):
    """How far a member is on its way to the target; the numbers of the stored records."""

    STABLE = 0
    UNREVOKED = 1
    """It must give up partitions before its epoch moves on."""
    UNRELEASED = 2
    """It is at the target's epoch, but waits for partitions that others still hold."""
    UNKNOWN = 127
    """A state of a later release."""


class ClassicProtocol(NamedTuple):
    """A protocol of a classic member, with its metadata."""

    name: str
    metadata: bytes


class ClassicSide(NamedTuple):
    """What a member has that uses the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocol, ...]


class MemberData(NamedTuple):
    """The data that a member has sent about itself."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: frozenset[str] = frozenset()
    """Subscribed topics, by name."""
    pattern: str = ""
    """A regular expression of topics; empty without a pattern."""
    rebalance_timeout_ms: int = NO_TIMEOUT
    assignor: str | None = None
    classic: ClassicSide | None = None


class Current(NamedTuple):
    """What a member holds, and its epoch."""

    epoch: int = JOINING
    previous_epoch: int = JOINING
    state: MemberState = MemberState.STABLE
    assigned: Held = {}
    revoking: Held = {}
    """Partitions that it must give up and may still use."""


NEW: Final = Current()


class Resolved(NamedTuple):
    """The topics of a regular expression, at an offset of the metadata log and at a time."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int
