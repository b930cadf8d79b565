"""One member of a classic group: its protocols, its assignment, and its waiting requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kraft_node.base.env import Timer
    from kraft_node.base.request import RequestContext

Protocols: TypeAlias = dict[str, bytes]
"""Protocol name -> the member's metadata for it, in the member's order of preference."""


class ClassicGroupMember:
    """A member with an id. It may hold one unanswered JoinGroup and one unanswered SyncGroup."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "protocol_type",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync",
        "timer",
        "timer_due_ms",
    )

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.protocols = protocols
        self.assignment = assignment
        self.is_new = False
        self.join: RequestContext | None = None
        self.sync: RequestContext | None = None
        self.timer: Timer | None = None
        self.timer_due_ms = 0
        self.deadline_ms = 0

    @property
    def is_static(self) -> bool:
        """Whether the member keeps its place by an instance id (KIP-345)."""
        return self.instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """Whether its unanswered request proves it alive; a first join does not, so that it can time out."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def supports_exactly(self, protocols: Protocols) -> bool:
        """Whether `protocols` equals the member's protocols, in the same order: then a rejoin changes nothing."""
        return list(self.protocols.items()) == list(protocols.items())

    def vote(self, candidates: set[str]) -> str:
        """The protocol that it prefers among the protocols that all members support."""
        return next(name for name in self.protocols if name in candidates)
