"""A consumer group as data: the state that its records define, and values derived from it.

All changes of the state are records: `apply` takes new records and records that are read back. Log compaction may have
removed any record that a later one replaces, so records may come in any order that this allows, and tombstones without
their record.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TypeAlias

from kraft_node.broker.coordinators.group.consumer.assignors.spec import Target
from kraft_node.broker.coordinators.group.consumer.changes import (
    ConsumerChange,
    CurrentChange,
    EpochChange,
    MemberChange,
    OldTopicsChange,
    PatternChange,
    TargetChange,
    TargetEpoch,
    TargetEpochChange,
)
from kraft_node.broker.coordinators.group.consumer.member import NEW, Current, MemberData, MemberState, Resolved
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import Uuid

FIRST_EPOCH = 1
"""A new group begins at this epoch, with an empty target of the same epoch."""

Owners: TypeAlias = dict[Uuid, dict[int, str]]


class GroupState(Enum):
    """The states, with the names in ListGroups and ConsumerGroupDescribe."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """A new target must be computed."""
    RECONCILING = "Reconciling"
    """Some member is not at the target yet."""
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup:
    """One group. Its mappings are by member id, and must not be changed by others."""

    __slots__ = (
        "_state",
        "_subscriptions",
        "assignor_failure",
        "assignors",
        "current",
        "epoch",
        "group_id",
        "has_old_topics",
        "is_assigning",
        "members",
        "metadata_hash",
        "needs_refresh",
        "owners",
        "patterns",
        "resolved",
        "static_members",
        "subscribed",
        "target_epoch",
        "targets",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.target_epoch = TargetEpoch(FIRST_EPOCH, 0)
        self.members: dict[str, MemberData] = {}
        self.current: dict[str, Current] = {}
        self.targets: dict[str, Target] = {}
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.subscribed: Counter[str] = Counter()
        """Topic name -> number of members that name it."""
        self.patterns: Counter[str] = Counter()
        """Regular expression -> number of members that use it."""
        self.resolved: dict[str, Resolved] = {}
        self.assignors: Counter[str] = Counter()
        self.owners: Owners = {}
        """The member that holds a partition, assigned or being revoked."""
        self.needs_refresh = True
        """A subscribed topic has changed, or may have before the group was loaded."""
        self.has_old_topics = False
        """The log has a record of type 4, which goes with the group."""
        self.is_assigning = False
        """An own assignor runs for the group, or has failed a moment ago (`own_targets`)."""
        self.assignor_failure = ""
        """Why it has failed."""
        self._state: GroupState | None = None
        self._subscriptions: dict[tuple[frozenset[str], str], frozenset[str]] = {}

    # -- records

    def apply(self, change: ConsumerChange) -> None:
        """Apply one record; one that removes the whole group has no effect here."""
        self._state = None
        if isinstance(change, CurrentChange):
            self._set_current(change.member_id, change.value)
        elif isinstance(change, TargetChange):
            if change.value is None:
                self.targets.pop(change.member_id, None)
            else:
                self.targets[change.member_id] = change.value
        elif isinstance(change, MemberChange):
            self._set_member(change.member_id, change.value)
        elif isinstance(change, EpochChange):
            if change.value is not None:
                self.epoch, self.metadata_hash = change.value
                self.needs_refresh = False
        elif isinstance(change, TargetEpochChange):
            self.target_epoch = TargetEpoch(FIRST_EPOCH, 0) if change.value is None else change.value
        elif isinstance(change, PatternChange):
            self._subscriptions.clear()
            if change.value is None:
                self.resolved.pop(change.pattern, None)
            else:
                self.resolved[change.pattern] = change.value
        elif isinstance(change, OldTopicsChange):
            self.has_old_topics = change.value is not None

    def _set_member(self, member_id: str, member: MemberData | None) -> None:
        old = self.members.get(member_id)
        if old is not None:
            _count(self.subscribed, old.names, -1)
            _count(self.patterns, (old.pattern,) if old.pattern else (), -1)
            _count(self.assignors, (old.assignor,) if old.assignor else (), -1)
            if old.instance_id is not None and self.static_members.get(old.instance_id) == member_id:
                del self.static_members[old.instance_id]
        if member is None:
            self.members.pop(member_id, None)
            return
        self.members[member_id] = member
        _count(self.subscribed, member.names, 1)
        _count(self.patterns, (member.pattern,) if member.pattern else (), 1)
        _count(self.assignors, (member.assignor,) if member.assignor else (), 1)
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member_id

    def _set_current(self, member_id: str, current: Current | None) -> None:
        owners = self.owners
        old = self.current.pop(member_id, None)
        if old is not None:
            for held in (old.assigned, old.revoking):
                for topic, numbers in held.items():
                    of_topic = owners.get(topic)
                    if of_topic is None:
                        continue
                    for number in numbers:
                        if of_topic.get(number) == member_id:
                            del of_topic[number]
                    if not of_topic:
                        del owners[topic]
        if current is None:
            return
        self.current[member_id] = current
        for held in (current.assigned, current.revoking):
            for topic, numbers in held.items():
                owners.setdefault(topic, {}).update(dict.fromkeys(numbers, member_id))

    # -- reading

    @property
    def state(self) -> GroupState:
        """The group's state in KIP-848, computed at the first read after a change."""
        if self._state is None:
            self._state = self._computed_state()
        return self._state

    def _computed_state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.target_epoch.epoch:
            return GroupState.ASSIGNING
        at = self.target_epoch.epoch
        for member_id in self.members:
            current = self.current.get(member_id, NEW)
            if current.epoch != at or current.state is not MemberState.STABLE:
                return GroupState.RECONCILING
        return GroupState.STABLE

    def member(self, member_id: str) -> MemberData:
        """The member. Raises KafkaError UNKNOWN_MEMBER_ID."""
        found = self.members.get(member_id)
        if found is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return found

    def static_member(self, instance_id: str) -> MemberData | None:
        """The member with the instance id."""
        member_id = self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def holds(self, member_id: str) -> Current:
        """What a member holds; a new member holds nothing."""
        return self.current.get(member_id, NEW)

    def is_free(self, topic: Uuid, number: int) -> bool:
        """Whether no member holds the partition."""
        return number not in self.owners.get(topic, ())

    def topics_of(self, member: MemberData) -> frozenset[str]:
        """The names to which a member subscribes; equal subscriptions give the same object.

        A regular expression that is not resolved yet has no topics.
        """
        if not member.pattern:
            return member.names
        key = (member.names, member.pattern)
        found = self._subscriptions.get(key)
        if found is None:
            resolved = self.resolved.get(member.pattern)
            found = member.names if resolved is None else member.names | resolved.topics
            self._subscriptions[key] = found
        return found

    def topics_after(self, gone: list[MemberData], new: MemberData | None) -> set[str]:
        """The names to which the group subscribes once the members `gone` have left and `new` has joined."""
        names, patterns = Counter(self.subscribed), Counter(self.patterns)
        for member, step in [*((one, -1) for one in gone), *([] if new is None else [(new, 1)])]:
            _count(names, member.names, step)
            _count(patterns, (member.pattern,) if member.pattern else (), step)
        topics = set(names)
        for pattern in patterns:
            found = self.resolved.get(pattern)
            if found is not None:
                topics |= found.topics
        return topics

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member consumes the topic."""
        if topic in self.subscribed:
            return True
        return any(topic in self.resolved[p].topics for p in self.patterns if p in self.resolved)


def _count(counter: Counter[str], keys: tuple[str, ...] | frozenset[str], step: int) -> None:
    for key in keys:
        counter[key] += step
        if counter[key] <= 0:
            del counter[key]
