"""Responses that several operations build."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.messages import JoinGroupResponse, SyncGroupResponse

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.coordinators.group.classic import ClassicGroup
    from kraft_node.broker.coordinators.group.member import ClassicGroupMember

FIRST_JOIN_VERSION_WITH_NULL_PROTOCOL: Final = 7


def join_error(version: int, code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """A JoinGroup answer with an error only (MEMBER_ID_REQUIRED carries the id for the next join)."""
    return JoinGroupResponse(
        error_code=code,
        member_id=member_id,
        protocol_name=None if version >= FIRST_JOIN_VERSION_WITH_NULL_PROTOCOL else "",
    )


def joined(
    group: ClassicGroup,
    member: ClassicGroupMember,
    version: int,
    *,
    leader: str | None = None,
    skip_assignment: bool = False,
) -> JoinGroupResponse:
    """The answer after a rebalance: the generation, and for the leader all members with their metadata.

    `leader` overrides the leader in the answer. A static leader that returned to an unchanged assignment gets its
    earlier id. So it does not compute a new assignment, which would not be applied.
    """
    shown = leader if leader is not None else group.leader
    members = []
    if group.leader == member.member_id and shown == member.member_id:
        protocol = group.protocol or ""
        members = [
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=m.member_id, group_instance_id=m.instance_id, metadata=m.protocols.get(protocol, b"")
            )
            for m in group.members.values()
        ]
    name = group.protocol
    if name is None and version < FIRST_JOIN_VERSION_WITH_NULL_PROTOCOL:
        name = ""
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=name,
        leader=shown or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=members,
    )


def answer_join(group: ClassicGroup, member: ClassicGroupMember, response: JoinGroupResponse) -> None:
    """Answer the member's waiting JoinGroup, if it has one."""
    context = member.join
    if context is not None:
        member.join = None
        group.members_joining -= 1
        context.respond(response)


def hold_join(group: ClassicGroup, member: ClassicGroupMember, context: RequestContext) -> None:
    """Let the member's JoinGroup wait for the rebalance; an older JoinGroup, of a lost connection, is refused."""
    if member.join is not None:
        old = member.join
        answer_join(group, member, join_error(old.api_version, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    member.join = context
    group.members_joining += 1


def answer_sync(member: ClassicGroupMember, response: SyncGroupResponse) -> bool:
    """Answer the member's waiting SyncGroup. Returns False if no answer waits."""
    context = member.sync
    if context is None:
        return False
    member.sync = None
    context.respond(response)
    return True


def hold_sync(member: ClassicGroupMember, context: RequestContext) -> None:
    """Let the member's SyncGroup wait for the leader's assignment; an older SyncGroup is refused."""
    answer_sync(member, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    member.sync = context


def answer_all(group: ClassicGroup, code: ErrorCode) -> None:
    """Answer every waiting JoinGroup and SyncGroup of a removed group."""
    for member in group.members.values():
        if member.join is not None:
            answer_join(group, member, join_error(member.join.api_version, code, member.member_id))
        answer_sync(member, SyncGroupResponse(error_code=code))
