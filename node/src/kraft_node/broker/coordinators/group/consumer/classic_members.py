"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members that use the classic protocol in a consumer group.

The coordinator assigns for them, too. The generation is the member's epoch. A heartbeat makes the member join again if
it must give up partitions, may have more, or if a newer target exists. Each join takes it a step towards the target.
So no member waits for another: JoinGroup and SyncGroup are answered at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kraft_node.broker.coordinators.group.answers import join_error
from kraft_node.broker.coordinators.group.classic import CONSUMER_PROTOCOL
from kraft_node.broker.coordinators.group.consumer import embedded
from kraft_node.broker.coordinators.group.consumer.heartbeat import HeartbeatPlan, check_room, check_static
from kraft_node.broker.coordinators.group.consumer.member import JOINING, Current, MemberData, MemberState
from kraft_node.broker.coordinators.group.consumer.migration import assignment_of, classic_side
from kraft_node.broker.coordinators.group.consumer.targets import NOTHING
from kraft_node.broker.coordinators.runtime.failures import client_error
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import random_uuid, uuid_text
from kraft_protocol.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.coordinators.group.consumer.group import ConsumerGroup
    from kraft_node.broker.coordinators.group.consumer.own_targets import OwnTargets
    from kraft_node.broker.coordinators.group.consumer.services import ConsumerServices
    from kraft_node.broker.coordinators.group.shard_state import ShardState

FIRST_JOIN_VERSION_REQUIRING_MEMBER_ID: Final = 4


class MemberTracker(Protocol):
    """The time-outs and the removal of members; `membership.ConsumerMembership` implements it."""

    def touch(self, group_id: str, member_id: str) -> None:
        """Restart the time after which the member counts as dead."""

    def joined(self, group_id: str, member_id: str) -> None:
        """A classic member has joined: it must fetch its assignment."""

    def synced(self, group_id: str, member_id: str) -> None:
        """A classic member has fetched its assignment."""

    def expect_join(self, group: ConsumerGroup, member: MemberData) -> None:
        """A classic member must join again; the time runs from the first request."""

    def remove(self, group: ConsumerGroup, members: list[MemberData], reason: str) -> None:
        """Remove members; no request waits for it."""


class ClassicMembers:
    """The classic members of one shard's consumer groups."""

    __slots__ = ("_members", "_own_targets", "_services", "_shard")

    def __init__(
        self, shard: ShardState, services: ConsumerServices, own_targets: OwnTargets, members: MemberTracker
    ) -> None:
        self._shard = shard
        self._services = services
        self._own_targets = own_targets
        self._members = members

    # -- JoinGroup

    def join(self, ctx: RequestContext, request: JoinGroupRequest, group: ConsumerGroup) -> JoinGroupResponse | None:
        """A member joins, or takes its next step. None: answered once the records are committed."""
        protocols = {p.name: bytes(p.metadata) for p in request.protocols}
        try:
            check_room(group, request.member_id, self._services.config.consumer_max_size)
            _check_protocols(group, request, protocols)
        except KafkaError as error:
            return join_error(ctx.api_version, error.code, request.member_id)
        is_unknown = not request.member_id
        member_id = request.member_id or uuid_text(random_uuid(self._shard.rng))
        needs_id = ctx.api_version >= FIRST_JOIN_VERSION_REQUIRING_MEMBER_ID and request.group_instance_id is None
        if is_unknown and needs_id:
            return join_error(ctx.api_version, ErrorCode.MEMBER_ID_REQUIRED, member_id)
        try:
            if request.group_instance_id is not None and not is_unknown:
                check_static(group.static_member(request.group_instance_id), member_id, request.group_instance_id)
            plan = self._plan(request, member_id, group, protocols)
            plan.run(ctx.client_id or "", f"/{ctx.client_host}")
        except KafkaError as error:
            return join_error(ctx.api_version, error.code, request.member_id)
        except ValueError:  # the subscription cannot be read
            return join_error(ctx.api_version, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        response = JoinGroupResponse(
            generation_id=plan.current.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=request.protocols[0].name,
            member_id=member_id,
        )

        def done(error: KafkaError | None) -> None:
            ctx.respond(response if error is None else join_error(ctx.api_version, client_error(error), member_id))

        if self._shard.write(plan.changes, done):
            if plan.own_task is not None:
                self._own_targets.begin(group, plan.own_task)
            self._members.joined(request.group_id, member_id)
        return None

    def _plan(
        self, request: JoinGroupRequest, member_id: str, group: ConsumerGroup, protocols: dict[str, bytes]
    ) -> HeartbeatPlan:
        """The same steps as of a heartbeat of the consumer protocol. Raises ValueError for a bad subscription."""
        subscription = embedded.read_subscription(next(iter(protocols.values())))
        topics, row = self._services.topics, ConsumerGroupHeartbeatRequest.TopicPartitions
        owned = ((topics.topic_id(name), numbers) for name, numbers in subscription.owned.items())
        beat = ConsumerGroupHeartbeatRequest(
            group_id=group.group_id,
            member_id=member_id,
            member_epoch=JOINING,
            instance_id=request.group_instance_id,
            rack_id=subscription.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            subscribed_topic_names=sorted(subscription.topics),
            subscribed_topic_regex="",
            topic_partitions=[row(topic, sorted(numbers)) for topic, numbers in owned if topic is not None],
        )
        return HeartbeatPlan(
            group,
            beat,
            self._services.rules(group.group_id),
            self._shard.clock.wall_ms(),
            is_new=False,
            classic=classic_side(request.session_timeout_ms, protocols),
        )

    # -- SyncGroup and Heartbeat

    def sync(self, request: SyncGroupRequest, group: ConsumerGroup) -> SyncGroupResponse:
        """The member's assignment."""
        member, current = self._member(group, request.member_id, request.group_instance_id, request.generation_id)
        assert member.classic is not None, "law: checked by _member"
        names = (None, *(protocol.name for protocol in member.classic.protocols[:1]))
        if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in names:
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if current.epoch < group.target_epoch.epoch and current.state is not MemberState.UNREVOKED:
            self._members.expect_join(group, member)
            return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        self._members.synced(group.group_id, member.member_id)
        self._members.touch(group.group_id, member.member_id)
        return SyncGroupResponse(
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=member.classic.protocols[0].name,
            assignment=assignment_of(group, member, self._services.topics),
        )

    def heartbeat(self, request: HeartbeatRequest, group: ConsumerGroup) -> HeartbeatResponse:
        """Whether the member must join again."""
        member, current = self._member(group, request.member_id, request.group_instance_id, request.generation_id)
        self._members.touch(group.group_id, member.member_id)
        state = current.state
        if (
            current.epoch < group.target_epoch.epoch
            or state is MemberState.UNREVOKED
            or (state is MemberState.UNRELEASED and not _waits(group, member, current))
        ):
            self._members.expect_join(group, member)
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    @staticmethod
    def _member(
        group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[MemberData, Current]:
        """A classic member at its generation. Raises KafkaError."""
        if instance_id is not None:
            check_static(group.static_member(instance_id), member_id, instance_id)
        member = _classic_member(group, member_id)
        current = group.holds(member_id)
        if generation != current.epoch:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"member {member_id} is at {current.epoch}")
        return member, current

    # -- LeaveGroup

    def leave(
        self, identities: list[LeaveGroupRequest.MemberIdentity], group: ConsumerGroup
    ) -> list[LeaveGroupResponse.MemberResponse]:
        """Remove classic members, and static members of both protocols by their instance id alone."""
        results, gone = [], {}
        for identity in identities:
            code = ErrorCode.NONE
            try:
                member = _leaving(group, identity)
                gone[member.member_id] = member
            except KafkaError as error:
                code = error.code
            results.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        if gone:
            self._members.remove(group, list(gone.values()), "LeaveGroup")
        return results


def _check_protocols(group: ConsumerGroup, request: JoinGroupRequest, protocols: dict[str, bytes]) -> None:
    """Raise KafkaError unless the member has a protocol in common with the other classic members."""
    others = [m.classic for i, m in group.members.items() if m.classic is not None and i != request.member_id]
    common = [name for name in protocols if all(any(p.name == name for p in one.protocols) for one in others)]
    if request.protocol_type != CONSUMER_PROTOCOL or not common:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"group {group.group_id} has other protocols")


def _classic_member(group: ConsumerGroup, member_id: str) -> MemberData:
    member = group.member(member_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    return member


def _waits(group: ConsumerGroup, member: MemberData, current: Current) -> bool:
    """Whether others hold a partition of the member's target."""
    for topic, numbers in group.targets.get(member.member_id, NOTHING).items():
        have, owners = current.assigned.get(topic, {}), group.owners.get(topic, {})
        if any(number not in have and number in owners for number in numbers):
            return True
    return False


def _leaving(group: ConsumerGroup, identity: LeaveGroupRequest.MemberIdentity) -> MemberData:
    if identity.group_instance_id is None:
        return _classic_member(group, identity.member_id)
    holder = group.static_member(identity.group_instance_id)
    if identity.member_id:
        return check_static(holder, identity.member_id, identity.group_instance_id)
    if holder is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {identity.group_instance_id} is unknown.")
    return holder
