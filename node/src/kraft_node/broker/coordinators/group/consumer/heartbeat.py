"""Plans one heartbeat of a member: the records to write and the response. Changes nothing.

The order of the steps is that of KIP-848: the member's subscription, the group's epoch, the target, the member's own
assignment. Each step sees the results of the earlier steps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kraft_node.broker.coordinators.group.consumer.assignors import ASSIGNORS
from kraft_node.broker.coordinators.group.consumer.assignors.spec import Target
from kraft_node.broker.coordinators.group.consumer.changes import (
    ConsumerChange,
    CurrentChange,
    EpochChange,
    GroupEpoch,
    MemberChange,
    PatternChange,
    TargetChange,
    TargetEpoch,
    TargetEpochChange,
    member_removal,
)
from kraft_node.broker.coordinators.group.consumer.group import ConsumerGroup
from kraft_node.broker.coordinators.group.consumer.member import (
    JOINING,
    LEAVING_FOR_A_WHILE,
    NEW,
    NO_TIMEOUT,
    ClassicSide,
    Current,
    Held,
    MemberData,
    MemberState,
)
from kraft_node.broker.coordinators.group.consumer.reconcile import Aim, Owned, is_within, reconcile
from kraft_node.broker.coordinators.group.consumer.rules import GroupTopicsView, Rules, check_pattern
from kraft_node.broker.coordinators.group.consumer.targets import (
    NOTHING,
    compute_target,
    own_task,
    preferred_assignor,
    votes_of,
)
from kraft_node.broker.coordinators.group.consumer.topic_hashes import group_hash
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from kraft_node.broker.coordinators.group.consumer.assignors.own import AssignorTask
    from kraft_protocol.ids import Uuid
    from kraft_protocol.wire.messages import ConsumerGroupHeartbeatRequest

log = logging.getLogger(__name__)

Assignment = ConsumerGroupHeartbeatResponse.Assignment
TopicPartitions = ConsumerGroupHeartbeatResponse.TopicPartitions

CHANGING_INTERVAL_MS: Final = 500
MEMBER_INTERVAL_MS: Final = 2
"""The interval of heartbeats while a group changes: the first value, or the second value times the number of members if
that is more. So a group of any size sends at most 500 heartbeats a second."""
CHANGES_FOR_MS: Final = 60_000
"""A member that reaches no target for so long, because another member keeps its partitions, has the usual interval."""


class HeartbeatPlan:
    """One heartbeat. After `run`: `changes`, `member`, `current` (before: `old_current`), and the response.

    `own_task`: the next run of an own assignor, or None.
    """

    __slots__ = (
        "_base",
        "_classic",
        "_epoch",
        "_group",
        "_is_new",
        "_now_ms",
        "_owned",
        "_replaced",
        "_request",
        "_rules",
        "_target",
        "_target_epoch",
        "_target_since_ms",
        "changes",
        "current",
        "member",
        "old_current",
        "own_task",
    )

    def __init__(
        self,
        group: ConsumerGroup,
        request: ConsumerGroupHeartbeatRequest,
        rules: Rules,
        now_ms: int,
        *,
        is_new: bool,
        classic: ClassicSide | None = None,
    ) -> None:
        """`is_new`: the group is made by this request. `classic`: of a member that uses the classic protocol."""
        self._group = group
        self._request = request
        self._rules = rules
        self._now_ms = now_ms
        self._is_new = is_new
        self._classic = classic
        self._epoch = group.epoch
        self._target_epoch, self._target_since_ms = group.target_epoch
        self._target: Target = NOTHING
        self._replaced: MemberData | None = None
        self._base: MemberData | None = None
        self._owned = owned_of(request)
        self.changes: list[ConsumerChange] = []
        self.own_task: AssignorTask | None = None
        self.member = MemberData("")
        self.current = self.old_current = NEW

    def run(self, client_id: str, client_host: str) -> ConsumerGroupHeartbeatResponse:
        """Plan everything. Raises KafkaError."""
        group, request = self._group, self._request
        check_room(group, request.member_id, self._rules.max_size)
        base = self._find_member()
        self.member = _updated(base, request)._replace(
            client_id=client_id, client_host=client_host, classic=self._classic
        )
        return self._go_on(base)

    def _go_on(self, base: MemberData) -> ConsumerGroupHeartbeatResponse:
        member = self.member
        if member != base or self._base is None:
            self.changes.append(MemberChange(self._group.group_id, member.member_id, member))
        names_changed = member.names != base.names
        pattern_changed = member.pattern != base.pattern
        bump = names_changed or (pattern_changed and self._change_pattern(base))
        self._move_epoch(bump=bump)
        self._move_target()
        self._reconcile(subscription_changed=names_changed or pattern_changed)
        return self._response()

    @property
    def moves_epoch(self) -> bool:
        """Whether the group gets another epoch."""
        return self._epoch > self._group.epoch

    # -- the member

    def _find_member(self) -> MemberData:
        """The member as it is, made if it joins. Raises KafkaError."""
        group, request = self._group, self._request
        joins = request.member_epoch == JOINING
        member_id, instance_id = request.member_id, request.instance_id
        if instance_id is not None:
            holder = group.static_member(instance_id)
            if not joins:
                check_static(holder, member_id, instance_id)
            elif holder is not None and holder.member_id != member_id:
                return self._take_over(holder, member_id, instance_id)
        if joins and member_id not in group.members:
            return MemberData(member_id)
        self._base = group.member(member_id)
        self.current = self.old_current = group.holds(member_id)
        self._target = group.targets.get(member_id, NOTHING)
        check_epoch(self.current, request.member_epoch, self._owned)
        return self._base

    def _take_over(self, holder: MemberData, member_id: str, instance_id: str) -> MemberData:
        """A static member is back with a new id: it gets the place of the earlier one.

        Members of the classic protocol do not say that they leave for a while, so these need not have left.
        """
        group = self._group
        held = group.holds(holder.member_id)
        if held.epoch != LEAVING_FOR_A_WHILE and self._classic is None and holder.classic is None:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {holder.member_id} member.",
            )
        log.info(
            "static member has a new id group=%s instance=%s member=%s former=%s",
            group.group_id,
            instance_id,
            member_id,
            holder.member_id,
        )
        self._replaced = holder
        self._target = group.targets.get(holder.member_id, NOTHING)
        self.current = held._replace(epoch=JOINING, previous_epoch=JOINING)
        self.changes += member_removal(group.group_id, holder.member_id)
        return holder._replace(member_id=member_id)

    def _change_pattern(self, base: MemberData) -> bool:
        """The member has another regular expression. Returns whether its topics are known, so that the epoch moves."""
        group = self._group
        old, new = base.pattern, self.member.pattern
        if old and group.patterns[old] <= 1 and old in group.resolved:
            self.changes.append(PatternChange(group.group_id, old, None))
        if not new:
            return True
        if not group.patterns[new]:
            check_pattern(new)
        return new in group.resolved

    # -- the group

    def _move_epoch(self, *, bump: bool) -> None:
        group = self._group
        hashed = group.metadata_hash
        if bump or group.needs_refresh:
            before = [member for member in (self._replaced or self._base,) if member is not None]
            hashed = hash_of(group.topics_after(before, self.member), self._rules.topics)
            bump = bump or hashed != group.metadata_hash
            group.needs_refresh = bump
        if bump:
            self._epoch += 1
        if bump or self._is_new:
            self.changes.append(EpochChange(group.group_id, GroupEpoch(self._epoch, hashed)))

    def _move_target(self) -> None:
        """Compute the target if the group has moved on, at most once in an assignment interval."""
        group = self._group
        targets = self._computed() if self._epoch > self._target_epoch and self._is_due() else None
        moved = targets is not None
        if targets is not None:
            for member_id, target in targets.items():
                earlier = group.targets.get(member_id)
                if target is not earlier and target != earlier:
                    self.changes.append(TargetChange(group.group_id, member_id, target))
            self._target = targets[self.member.member_id]
            self._target_epoch = self._epoch
        elif self._replaced is not None:
            self.changes.append(TargetChange(group.group_id, self.member.member_id, self._target))
        if moved or self._is_new:
            self._target_since_ms = self._now_ms if moved else 0
            target_epoch = TargetEpoch(self._target_epoch, self._target_since_ms)
            self.changes.append(TargetEpochChange(group.group_id, target_epoch))

    def _computed(self) -> dict[str, Target] | None:
        """The target of each member; None if an own assignor must compute it (`own_task`) or is computing it."""
        if self._group.is_assigning:
            return None
        group, rules, members = self._group, self._rules, list(self._members())
        name = preferred_assignor(votes_of(members), rules.assignors)
        own = rules.own_assignors.get(name)
        if own is None:
            return compute_target(group, members, rules.topics, ASSIGNORS[name])
        self.own_task = own_task(group, self._epoch, members, rules.topics, own)
        return None

    def _is_due(self) -> bool:
        since, interval = self._group.target_epoch.timestamp_ms, self._rules.assignment_interval_ms
        return since == 0 or not 0 <= self._now_ms - since < interval

    def _members(self) -> Iterator[tuple[MemberData, Target]]:
        """The members from now on, with their earlier targets."""
        targets, own = self._group.targets, self.member.member_id
        replaced = None if self._replaced is None else self._replaced.member_id
        for member_id, member in self._group.members.items():
            if member_id not in (own, replaced):
                yield member, targets.get(member_id, NOTHING)
        yield self.member, self._target

    # -- the assignment

    def _reconcile(self, *, subscription_changed: bool) -> None:
        group, member, topics = self._group, self.member, self._rules.topics
        subscribed = group.topics_of(member)
        own = (None, member.member_id, None if self._replaced is None else self._replaced.member_id)

        def is_subscribed(topic: Uuid) -> bool:
            name = topics.topic_name(topic)
            return name is not None and name in subscribed

        def is_free(topic: Uuid, number: int) -> bool:
            return group.owners.get(topic, {}).get(number) in own

        aim = Aim(self._target_epoch, self._target, is_subscribed, is_free)
        before = self.current
        self.current = reconcile(before, aim, self._owned, subscription_changed=subscription_changed)
        if self._base is None or self.current is not before:
            self.changes.append(CurrentChange(group.group_id, member.member_id, self.current))

    def _response(self) -> ConsumerGroupHeartbeatResponse:
        """The assignment is in it if the member joins, has sent everything, or must learn of a change."""
        request = self._request
        is_full = (
            request.rebalance_timeout_ms != NO_TIMEOUT
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        changed = self.current.assigned != self.old_current.assigned
        shows = request.member_epoch == JOINING or is_full or changed
        return ConsumerGroupHeartbeatResponse(
            member_id=self.member.member_id,
            member_epoch=self.current.epoch,
            heartbeat_interval_ms=self._interval_ms(),
            assignment=Assignment(topic_partitions=rows_of(self.current.assigned)) if shows else None,
        )

    def _interval_ms(self) -> int:
        """When the member is to send its next heartbeat.

        Only a heartbeat brings a new target, or partitions that others have released. So while the group changes, the
        interval is short. A member at its target waits for one usual interval, in case others join.
        """
        usual_ms = self._rules.heartbeat_interval_ms
        is_there = self.current.state is MemberState.STABLE and self.current.epoch == self._epoch
        changes_for_ms = usual_ms if is_there else CHANGES_FOR_MS
        if not 0 <= self._now_ms - self._target_since_ms < changes_for_ms:
            return usual_ms
        count = len(self._group.members) + 1
        least_ms = max(CHANGING_INTERVAL_MS, MEMBER_INTERVAL_MS * count, self._rules.least_heartbeat_interval_ms)
        return min(usual_ms, least_ms)


def owned_of(request: ConsumerGroupHeartbeatRequest) -> Owned | None:
    """The partitions that the member reports; topics without partitions are left out, rows of one topic united."""
    if request.topic_partitions is None:
        return None
    owned: dict[Uuid, set[int]] = {}
    for row in request.topic_partitions:
        if row.partitions:
            owned.setdefault(row.topic_id, set()).update(row.partitions)
    return owned


def rows_of(held: Held) -> list[TopicPartitions]:
    """The rows of a response."""
    return [TopicPartitions(topic_id=topic, partitions=sorted(held[topic])) for topic in sorted(held)]


def hash_of(names: set[str], topics: GroupTopicsView) -> int:
    """The hash of the topics that exist."""
    hashes = ((name, topics.topic_hash(name)) for name in names)
    return group_hash((name, hashed) for name, hashed in hashes if hashed is not None)


def _updated(base: MemberData, request: ConsumerGroupHeartbeatRequest) -> MemberData:
    """The member with the fields of the heartbeat; null fields have not changed."""
    names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
    return base._replace(
        instance_id=base.instance_id if request.instance_id is None else request.instance_id,
        rack_id=base.rack_id if request.rack_id is None else request.rack_id,
        names=base.names if names is None or base.names == set(names) else frozenset(names),
        pattern=base.pattern if pattern is None else pattern,
        rebalance_timeout_ms=(
            base.rebalance_timeout_ms if request.rebalance_timeout_ms == NO_TIMEOUT else request.rebalance_timeout_ms
        ),
        assignor=base.assignor if request.server_assignor is None else request.server_assignor,
    )


# -- checks


def check_room(group: ConsumerGroup, member_id: str, limit: int) -> None:
    """Raise KafkaError GROUP_MAX_SIZE_REACHED for a new member of a full group."""
    if len(group.members) >= limit and member_id not in group.members:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"The consumer group has reached its maximum capacity of {limit} members."
        )


def check_static(holder: MemberData | None, member_id: str, instance_id: str) -> MemberData:
    """The holder of an instance id, if it is this member. Raises KafkaError."""
    if holder is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder.member_id}.",
        )
    return holder


def check_epoch(current: Current, epoch: int, owned: Owned | None) -> None:
    """Raise KafkaError FENCED_MEMBER_EPOCH unless the member may go on with its epoch.

    The previous epoch is valid if the member owns nothing but what it was assigned: the response with the new epoch may
    have been lost.
    """
    if epoch in (JOINING, current.epoch):
        return
    if epoch < current.epoch and epoch == current.previous_epoch and is_within(owned, current.assigned):
        return
    comparison = "greater" if epoch > current.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {comparison} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({current.epoch}). The member must abandon all its partitions and rejoin.",
    )
