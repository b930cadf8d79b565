"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of classic groups, on the shard that has the group.

Versions: JoinGroup 0-9 (rebalance timeout from 1, member id required from 4, static members from 5, reason from 8,
skipped assignment from 9), SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5 (several members from 3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kraft_node.broker.coordinators.group.answers import (
    answer_join,
    answer_sync,
    hold_join,
    hold_sync,
    join_error,
    joined,
)
from kraft_node.broker.coordinators.group.classic import ClassicGroup, ClassicState
from kraft_node.broker.coordinators.group.member import ClassicGroupMember, Protocols
from kraft_node.broker.coordinators.group.records import SHARE, group_snapshot, new_group
from kraft_node.broker.coordinators.runtime.failures import client_error
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kraft_protocol.wire.runtime import MAX_STRING_BYTES

if TYPE_CHECKING:
    from kraft_node.base.env import Rng
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.coordinators.group.consumer.classic_members import ClassicMembers
    from kraft_node.broker.coordinators.group.rebalance import Rebalancer
    from kraft_node.broker.coordinators.group.shard_state import ShardState
    from kraft_node.broker.coordinators.runtime.shard import Done

log = logging.getLogger(__name__)

FIRST_JOIN_VERSION_WITH_REBALANCE_TIMEOUT: Final = 1
FIRST_JOIN_VERSION_REQUIRING_MEMBER_ID: Final = 4
FIRST_JOIN_VERSION_SKIPPING_ASSIGNMENT: Final = 9
NO_REASON: Final = "not provided"
MAX_NAME_BYTES: Final = MAX_STRING_BYTES - len("-00000000-0000-4000-8000-000000000000")
"""Limit of the name of a client or an instance. A member's id is the name and a UUID, and must fit into a protocol
string.
"""
MAX_REASON_CHARS: Final = 255
"""Clients' reasons are logged; Java clients truncate them at this length, too."""


class Membership:
    """The membership requests of one shard's groups."""

    __slots__ = ("_consumer_group_members", "rebalancer", "shard")

    def __init__(self, shard: ShardState, rebalancer: Rebalancer, consumer_group_members: ClassicMembers) -> None:
        """`consumer_group_members`: serves members that use the classic protocol in consumer groups."""
        self.shard = shard
        self.rebalancer = rebalancer
        self._consumer_group_members = consumer_group_members

    # -- JoinGroup

    def join(self, ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse | None:
        """A member joins or rejoins. Returns None: the answer comes when the rebalance completes."""
        if ctx.api_version < FIRST_JOIN_VERSION_WITH_REBALANCE_TIMEOUT:
            request.rebalance_timeout_ms = request.session_timeout_ms
        member_id = request.member_id
        if not member_id and len(_name(ctx, request).encode()) > MAX_NAME_BYTES:
            return join_error(ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR)
        foreign = self.shard.foreign.get(request.group_id)
        if foreign is not None:
            if foreign.kind == SHARE:
                return join_error(ctx.api_version, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            self.shard.write(self.shard.removal_of(request.group_id), _log_failure(request.group_id))
        consumer_group = self.shard.consumers.get(request.group_id)
        if consumer_group is not None:
            if consumer_group.members:
                return self._consumer_group_members.join(ctx, request, consumer_group)
            self.shard.write(self.shard.removal_of(request.group_id), _log_failure(request.group_id))
        group = self.shard.groups.get(request.group_id)
        if group is not None:
            return self._join(ctx, request, group)
        if member_id:
            return join_error(ctx.api_version, ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        return self._join_new_group(ctx, request)

    def _join_new_group(self, ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse | None:
        """Create the group with its first member; the new group is written, so that it is listed."""
        group = self.shard.create_group(request.group_id)
        response = self._join(ctx, request, group)

        def done(error: KafkaError | None) -> None:
            if error is None:
                return
            log.warning("new group was not written group=%s error=%s", group.group_id, error)
            for member in group.members.values():
                if member.join is ctx:
                    code = client_error(error)
                    answer_join(group, member, join_error(ctx.api_version, code, member.member_id))

        if not self.shard.write([new_group(group)], done, apply=False):
            self.shard.drop_group(group.group_id)
        return response

    def _join(self, ctx: RequestContext, request: JoinGroupRequest, group: ClassicGroup) -> JoinGroupResponse | None:
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            return join_error(ctx.api_version, ErrorCode.GROUP_MAX_SIZE_REACHED)
        protocols = {p.name: bytes(p.metadata) for p in request.protocols}
        if not group.supports(request.protocol_type, protocols):
            return join_error(ctx.api_version, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
        if not request.member_id:
            return self._join_without_id(ctx, request, group, protocols)
        return self._join_with_id(ctx, request, group, protocols)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        limit = self.shard.config.max_size
        member = group.members.get(member_id)
        if group.state is ClassicState.EMPTY:
            return True
        if group.state is ClassicState.PREPARING:
            return (member is not None and member.join is not None) or group.members_joining < limit
        return member is not None or len(group.members) < limit

    def _join_without_id(
        self, ctx: RequestContext, request: JoinGroupRequest, group: ClassicGroup, protocols: Protocols
    ) -> JoinGroupResponse | None:
        instance_id = request.group_instance_id
        new_id = f"{_name(ctx, request)}-{_random_uuid_text(self.shard.rng)}"
        if instance_id is not None:
            if instance_id in group.static_members:
                return self._replace_static(ctx, request, group, protocols, new_id)
            self._add(ctx, request, group, protocols, new_id)
            return None
        if ctx.api_version >= FIRST_JOIN_VERSION_REQUIRING_MEMBER_ID:
            self.rebalancer.expect(group, new_id, request.session_timeout_ms)
            return join_error(ctx.api_version, ErrorCode.MEMBER_ID_REQUIRED, new_id)
        self._add(ctx, request, group, protocols, new_id)
        return None

    def _add(
        self, ctx: RequestContext, request: JoinGroupRequest, group: ClassicGroup, protocols: Protocols, member_id: str
    ) -> None:
        member = ClassicGroupMember(
            member_id,
            instance_id=request.group_instance_id,
            client_id=ctx.client_id or "",
            client_host=f"/{ctx.client_host}",
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            session_timeout_ms=request.session_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=protocols,
        )
        member.is_new = True
        if group.state is ClassicState.PREPARING and group.previous_state is ClassicState.EMPTY:
            group.new_member_added = True
        group.add(member)
        hold_join(group, member, ctx)
        self.rebalancer.touch(group, member, self.shard.config.new_member_join_timeout_ms)
        self.rebalancer.begin_or_complete(group, f"member {member_id} joins; reason: {_reason(request.reason)}")

    def _join_with_id(
        self, ctx: RequestContext, request: JoinGroupRequest, group: ClassicGroup, protocols: Protocols
    ) -> JoinGroupResponse | None:
        member_id, version = request.member_id, ctx.api_version
        if member_id in group.pending_members and request.group_instance_id is None:
            self._add(ctx, request, group, protocols, member_id)
            return None
        try:
            group.validate_member(member_id, request.group_instance_id)
        except KafkaError as error:
            return join_error(version, error.code, member_id)
        member = group.members[member_id]
        if group.state is ClassicState.PREPARING:
            self._rejoin(ctx, request, group, member, protocols)
            return None
        unchanged = member.supports_exactly(protocols)
        if group.state is ClassicState.COMPLETING and unchanged:
            return joined(group, member, version)  # it missed the answer to its join
        if group.state is ClassicState.STABLE and unchanged and group.leader != member_id:
            return joined(group, member, version)
        if group.state is ClassicState.EMPTY:
            return join_error(version, ErrorCode.UNKNOWN_MEMBER_ID, member_id)
        self._rejoin(ctx, request, group, member, protocols)
        return None

    def _rejoin(
        self,
        ctx: RequestContext,
        request: JoinGroupRequest,
        group: ClassicGroup,
        member: ClassicGroupMember,
        protocols: Protocols,
    ) -> None:
        group.update(member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        hold_join(group, member, ctx)
        reason = f"member {member.member_id} rejoins; reason: {_reason(request.reason)}"
        self.rebalancer.begin_or_complete(group, reason)

    def _replace_static(
        self, ctx: RequestContext, request: JoinGroupRequest, group: ClassicGroup, protocols: Protocols, new_id: str
    ) -> JoinGroupResponse | None:
        """A static member returned without its member id: it takes over its place and fences the earlier holder."""
        instance_id = request.group_instance_id
        assert instance_id is not None
        old_id, old_leader = group.static_members[instance_id], group.leader
        holder = group.members[old_id]
        if holder.join is not None:
            fenced = join_error(holder.join.api_version, ErrorCode.FENCED_INSTANCE_ID, old_id)
            answer_join(group, holder, fenced)
        answer_sync(holder, SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
        member = group.rename(instance_id, new_id)
        log.info(
            "static member has a new id group=%s instance=%s member=%s former=%s",
            group.group_id,
            instance_id,
            new_id,
            old_id,
        )
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        group.update(member, protocols, request.rebalance_timeout_ms, request.session_timeout_ms)
        hold_join(group, member, ctx)
        self.rebalancer.touch(group, member)
        reason = f"static member {instance_id} rejoins as {new_id}; reason: {_reason(request.reason)}"
        if group.state is not ClassicState.STABLE or group.select_protocol() != group.protocol:
            self.rebalancer.begin_or_complete(group, reason)
            return None

        def done(error: KafkaError | None) -> None:
            if group.static_members.get(instance_id) != new_id or member.join is not ctx:
                return  # a later request of the same instance has taken over
            if error is None:
                answer_join(group, member, _static_joined(group, member, ctx.api_version, old_leader))
                return
            group.update(member, *before)
            response = join_error(ctx.api_version, client_error(error))
            answer_join(group, member, response)
            group.rename(instance_id, old_id)
            self.rebalancer.touch(group, member)

        assignments = {m.member_id: m.assignment for m in group.members.values()}
        self.shard.write([group_snapshot(group, assignments)], done, apply=False)
        return None

    # -- SyncGroup

    def sync(self, ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse | None:
        """A member requests its assignment; the leader sends all assignments. None: answered once the leader has."""
        consumer_group = self.shard.consumers.get(request.group_id)
        if consumer_group is not None:
            return self._consumer_group_members.sync(request, consumer_group)
        group = self.shard.groups.get(request.group_id)
        if group is None or group.state is ClassicState.EMPTY:
            return SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            return SyncGroupResponse(error_code=ErrorCode.ILLEGAL_GENERATION)
        if request.protocol_type not in {None, group.protocol_type} or request.protocol_name not in {
            None,
            group.protocol,
        }:
            return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state is ClassicState.PREPARING:
            return SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        member = group.members[request.member_id]
        self.rebalancer.synced(group, member.member_id)
        if group.state is ClassicState.STABLE:
            return SyncGroupResponse(
                protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
            )
        hold_sync(member, ctx)
        if group.leader == member.member_id:
            self._assign(group, request)
        return None

    def _assign(self, group: ClassicGroup, request: SyncGroupRequest) -> None:
        assignments = {a.member_id: bytes(a.assignment) for a in request.assignments}
        missing = [member_id for member_id in group.members if member_id not in assignments]
        if missing:
            log.warning("leader left members without an assignment group=%s members=%s", group.group_id, missing)

        def done(error: KafkaError | None) -> None:
            if group.state is not ClassicState.COMPLETING or group.generation != request.generation_id:
                return  # a new rebalance began meanwhile
            if error is not None:
                self.rebalancer.failed_assignment(group, error)
                return
            self.rebalancer.propagate(group, assignments)
            group.move_to(ClassicState.STABLE, self.shard.clock.wall_ms())

        self.shard.write([group_snapshot(group, assignments)], done, apply=False)

    # -- Heartbeat

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """A member reports that it is alive, and learns whether it must rejoin."""
        consumer_group = self.shard.consumers.get(request.group_id)
        if consumer_group is not None:
            return self._consumer_group_members.heartbeat(request, consumer_group)
        group = self.shard.groups.get(request.group_id)
        if group is None:
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        group.validate_member(request.member_id, request.group_instance_id)
        if request.generation_id != group.generation:
            return HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION)
        self.rebalancer.touch(group, group.members[request.member_id])
        if group.state is ClassicState.PREPARING:
            return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        return HeartbeatResponse()

    # -- LeaveGroup

    def leave(
        self, group_id: str, members: list[LeaveGroupRequest.MemberIdentity]
    ) -> list[LeaveGroupResponse.MemberResponse]:
        """Remove members (by member id, or a static one by instance id alone). Returns one result each."""
        consumer_group = self.shard.consumers.get(group_id)
        if consumer_group is not None:
            return self._consumer_group_members.leave(members, consumer_group)
        group = self.shard.groups.get(group_id)
        results = []
        gone = []
        for identity in members:
            code = ErrorCode.UNKNOWN_MEMBER_ID if group is None else self._leave_one(group, identity)
            if code is ErrorCode.NONE:
                gone.append(identity.member_id or identity.group_instance_id)
            results.append(
                LeaveGroupResponse.MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        if gone and group is not None:
            if group.state in {ClassicState.STABLE, ClassicState.COMPLETING}:
                self.rebalancer.begin_or_complete(group, f"members {gone} left")
            else:
                self.rebalancer.complete_if_gathered(group)
        return results

    def _leave_one(self, group: ClassicGroup, identity: LeaveGroupRequest.MemberIdentity) -> ErrorCode:
        member_id, instance_id = identity.member_id, identity.group_instance_id
        if not member_id:
            member_id = group.static_members.get(instance_id or "", "")
            if not member_id:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id in group.pending_members:
            group.remove(member_id)
            return ErrorCode.NONE
        else:
            try:
                group.validate_member(member_id, instance_id)
            except KafkaError as error:
                return error.code
        log.info("member left group=%s member=%s reason=%s", group.group_id, member_id, _reason(identity.reason))
        self.rebalancer.dismiss(group, group.members[member_id])
        return ErrorCode.NONE


def _static_joined(
    group: ClassicGroup, member: ClassicGroupMember, version: int, old_leader: str | None
) -> JoinGroupResponse:
    """The answer if a static member's return changes nothing: the leader need not assign again (KIP-814)."""
    if version >= FIRST_JOIN_VERSION_SKIPPING_ASSIGNMENT:
        return joined(group, member, version, skip_assignment=group.leader == member.member_id)
    return joined(group, member, version, leader=old_leader)


def _reason(text: str | None) -> str:
    return text[:MAX_REASON_CHARS] if text else NO_REASON


def _log_failure(group_id: str) -> Done:
    def done(error: KafkaError | None) -> None:
        if error is not None:
            log.warning("old records were not removed group=%s error=%s", group_id, error)

    return done


def _name(ctx: RequestContext, request: JoinGroupRequest) -> str:
    """The beginning of a new member's id."""
    return (ctx.client_id or "") if request.group_instance_id is None else request.group_instance_id


def _random_uuid_text(rng: Rng) -> str:
    """A version-4 UUID in the dashed form of Java's UUID.toString."""
    raw = bytearray(rng.random_bytes(16))
    raw[6] = (raw[6] & 0x0F) | 0x40
    raw[8] = (raw[8] & 0x3F) | 0x80
    digits = raw.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
