"""A classic consumer group: its members, its generation and its state. Nothing here answers, waits or writes.

Empty ──join──> PreparingRebalance ──all joined──> CompletingRebalance ──leader's assignment──> Stable
  ^                    │      ^                            │                                      │
  └────no members──────┘      └─────────join, leave, timeout──────────────────────────────────────┘
any ──unloaded or deleted──> Dead
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, Final

from kraft_node.broker.coordinators.group.subscription import subscribed_topics
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kraft_node.base.env import Timer
    from kraft_node.broker.coordinators.group.member import ClassicGroupMember, Protocols

CONSUMER_PROTOCOL: Final = "consumer"


class ClassicState(Enum):
    """The states, with the names in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_FROM: Final[dict[ClassicState, frozenset[ClassicState]]] = {
    ClassicState.EMPTY: frozenset({ClassicState.PREPARING}),
    ClassicState.PREPARING: frozenset({ClassicState.STABLE, ClassicState.COMPLETING, ClassicState.EMPTY}),
    ClassicState.COMPLETING: frozenset({ClassicState.PREPARING}),
    ClassicState.STABLE: frozenset({ClassicState.COMPLETING}),
    ClassicState.DEAD: frozenset(ClassicState),
}


class ClassicGroup:
    """A classic group. `members` keeps the order in which members joined."""

    __slots__ = (
        "generation",
        "group_id",
        "join_timer",
        "leader",
        "members",
        "members_joining",
        "new_member_added",
        "pending_members",
        "pending_syncs",
        "previous_state",
        "protocol",
        "protocol_type",
        "state",
        "state_since_ms",
        "static_members",
        "subscribed",
        "supported",
        "sync_timer",
    )

    def __init__(
        self,
        group_id: str,
        now_ms: int | None,
        *,
        state: ClassicState = ClassicState.EMPTY,
        generation: int = 0,
        protocol_type: str | None = None,
        protocol: str | None = None,
        leader: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.state = state
        self.previous_state = ClassicState.DEAD
        self.state_since_ms = now_ms
        self.generation = generation
        self.protocol_type = protocol_type
        self.protocol = protocol
        self.leader = leader
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, Timer] = {}
        self.pending_syncs: set[str] = set()
        self.supported: Counter[str] = Counter()
        self.members_joining = 0
        self.new_member_added = False
        self.subscribed: frozenset[str] | None = None
        self.join_timer: Timer | None = None
        self.sync_timer: Timer | None = None

    # -- state

    def move_to(self, state: ClassicState, now_ms: int) -> None:
        """Change the state; the transition must be in the diagram above."""
        assert self.state in _FROM[state], f"group {self.group_id}: {self.state.value} may not become {state.value}"
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = now_ms

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin now, because no rebalance is being prepared."""
        return self.state in _FROM[ClassicState.PREPARING]

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the protocol type is "consumer", the type of Kafka's consumers; unrelated to KIP-848."""
        return self.protocol_type == CONSUMER_PROTOCOL

    # -- members

    def add(self, member: ClassicGroupMember) -> None:
        """Add the member; it must support a protocol that all others support."""
        assert member.member_id not in self.members, f"member {member.member_id} is already in {self.group_id}"
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, f"instance {member.instance_id} is already in"
            self.static_members[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        assert self.protocol_type == member.protocol_type, "members of one group share the protocol type"
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self.supported.update(member.protocols.keys())
        if member.join is not None:
            self.members_joining += 1
        self._forget_pending(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove the member (or the pending id); the leadership passes to the oldest remaining member."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self.supported.subtract(member.protocols.keys())
            if member.join is not None:
                self.members_joining -= 1
            if member.instance_id is not None:
                self.static_members.pop(member.instance_id, None)
            if member.timer is not None:
                member.timer.cancel()
                member.timer = None
        if self.leader == member_id:
            self.leader = next((m.member_id for m in self.succession()), None)
        self._forget_pending(member_id)
        self.pending_syncs.discard(member_id)

    def _forget_pending(self, member_id: str) -> None:
        timer = self.pending_members.pop(member_id, None)
        if timer is not None:
            timer.cancel()

    def update(
        self, member: ClassicGroupMember, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        """Replace the member's protocols and time-outs."""
        self.supported.subtract(member.protocols.keys())
        member.protocols = protocols
        self.supported.update(protocols.keys())
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def rename(self, instance_id: str, new_id: str) -> ClassicGroupMember:
        """Give the static member of `instance_id` a new member id (KIP-345); other members do not notice."""
        old_id = self.static_members[instance_id]
        members = {}
        for member_id, member in self.members.items():
            members[new_id if member_id == old_id else member_id] = member
        self.members = members
        renamed = members[new_id]
        renamed.member_id = new_id
        self.static_members[instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_syncs:
            self.pending_syncs.discard(old_id)
            self.pending_syncs.add(new_id)
        return renamed

    def validate_member(self, member_id: str, instance_id: str | None) -> None:
        """Raise UNKNOWN_MEMBER_ID; FENCED_INSTANCE_ID if another member has taken over the instance id."""
        if instance_id is not None:
            holder = self.static_members.get(instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no static member {instance_id} in {self.group_id}")
            if holder != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} in {self.group_id} is now {holder}, not {member_id}"
                )
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member {member_id} in {self.group_id}")

    @property
    def all_joined(self) -> bool:
        """Whether every member waits for the rebalance and no pending member is missing."""
        return self.members_joining == len(self.members) and not self.pending_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance time-out of all members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # -- protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with this protocol type and these protocols could join."""
        if self.state is ClassicState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        everyone = len(self.members)
        return self.protocol_type == protocol_type and any(self.supported[name] == everyone for name in protocols)

    def select_protocol(self) -> str:
        """The protocol with most votes among the protocols that all members support; the first voted protocol wins a
        tie."""
        everyone = len(self.members)
        candidates = {name for name, count in self.supported.items() if count == everyone}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return max(votes, key=votes.__getitem__)

    def next_generation(self, now_ms: int) -> None:
        """Begin the next generation: Empty without members, else CompletingRebalance with the selected protocol."""
        self.generation += 1
        self.protocol = self.select_protocol() if self.members else None
        self.refresh_subscriptions()
        self.move_to(ClassicState.COMPLETING if self.members else ClassicState.EMPTY, now_ms)
        self.pending_syncs.clear()

    def succession(self) -> Iterable[ClassicGroupMember]:
        """The members in order of succession to the leadership: the oldest first."""
        return self.members.values()

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader has joined; otherwise pass on the leadership.

        Returns False if no member has joined.
        """
        if self.leader is None:
            return False
        if self.members[self.leader].join is not None:
            return True
        for member in self.succession():
            if member.join is not None:
                self.leader = member.member_id
                return True
        return False

    def refresh_subscriptions(self) -> None:
        """Compute the topics that the members consume: offsets of these topics do not expire. None if they are
        unknown."""
        self.subscribed = None
        if not self.uses_consumer_protocol:
            return
        if not self.members:
            self.subscribed = frozenset()
            return
        if self.protocol is None:
            return
        topics: set[str] = set()
        for member in self.members.values():
            found = subscribed_topics(member.protocols.get(self.protocol, b""))
            if found is None:
                return
            topics.update(found)
        self.subscribed = frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member consumes the topic; assumed if the members' metadata could not be read."""
        if self.subscribed is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed

    def stop_timers(self) -> None:
        """Cancel every timer of the group and its members."""
        for timer in (self.join_timer, self.sync_timer, *self.pending_members.values()):
            if timer is not None:
                timer.cancel()
        self.join_timer = self.sync_timer = None
        self.pending_members.clear()
        for member in self.members.values():
            if member.timer is not None:
                member.timer.cancel()
                member.timer = None
