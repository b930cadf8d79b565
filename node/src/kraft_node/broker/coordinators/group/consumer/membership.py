"""ConsumerGroupHeartbeat on the shard that has the group: runs plans, keeps sessions, removes lost members, and changes
the protocol of groups."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kraft_node.broker.coordinators.group.answers import answer_all
from kraft_node.broker.coordinators.group.classic import ClassicState
from kraft_node.broker.coordinators.group.consumer import leaving, migration
from kraft_node.broker.coordinators.group.consumer.classic_members import ClassicMembers
from kraft_node.broker.coordinators.group.consumer.group import ConsumerGroup
from kraft_node.broker.coordinators.group.consumer.heartbeat import HeartbeatPlan
from kraft_node.broker.coordinators.group.consumer.member import JOINING, LEAVING_FOR_A_WHILE, MemberData, MemberState
from kraft_node.broker.coordinators.group.consumer.own_targets import OwnTargets
from kraft_node.broker.coordinators.group.consumer.patterns import PatternResolver, Permitted
from kraft_node.broker.coordinators.group.consumer.sessions import Duty, MemberSessions
from kraft_node.broker.coordinators.group.records import Change, GroupChange
from kraft_node.broker.coordinators.runtime.failures import client_error
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import random_uuid, uuid_text
from kraft_protocol.wire.messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.coordinators.group.consumer.services import ConsumerServices
    from kraft_node.broker.coordinators.group.rebalance import Rebalancer
    from kraft_node.broker.coordinators.group.shard_state import ShardState
    from kraft_node.broker.coordinators.runtime.shard import Done

log = logging.getLogger(__name__)

Response: Final = ConsumerGroupHeartbeatResponse


class ConsumerMembership:
    """The members of one shard's consumer groups; `classic` are the members that use the classic protocol."""

    __slots__ = ("_rebalancer", "_services", "_sessions", "_shard", "classic", "own_targets", "resolver")

    def __init__(self, shard: ShardState, services: ConsumerServices, rebalancer: Rebalancer) -> None:
        self._shard = shard
        self._services = services
        self._rebalancer = rebalancer
        self._sessions = MemberSessions(shard.clock, shard.scheduler, self._expired, self._overdue)
        self.resolver = PatternResolver(shard, services)
        self.own_targets = OwnTargets(shard, services)
        self.classic = ClassicMembers(shard, services, self.own_targets, self)

    # -- requests

    def heartbeat(self, ctx: RequestContext, request: ConsumerGroupHeartbeatRequest, permitted: Permitted) -> None:
        """A member joins, continues, or leaves; it is answered once the records are committed. Raises KafkaError.

        The request has been checked (`check_request`).
        """
        if request.member_epoch < JOINING:
            self._leave(ctx, request)
        else:
            self._go_on(ctx, request, permitted)

    def _go_on(self, ctx: RequestContext, request: ConsumerGroupHeartbeatRequest, permitted: Permitted) -> None:
        shard, group_id = self._shard, request.group_id
        rules = self._services.rules(group_id)
        before: list[Change] = []
        group = shard.consumers.get(group_id)
        is_new = group is None
        if group is None:
            before, group = self._make_way(request)
            is_new = not group.members
        self.own_targets.check(group, request.member_id)
        if not request.member_id:
            request.member_id = uuid_text(random_uuid(shard.rng))
        plan = HeartbeatPlan(group, request, rules, shard.clock.wall_ms(), is_new=is_new)
        response = plan.run(ctx.client_id or "", f"/{ctx.client_host}")
        moves_epoch = plan.moves_epoch
        if before and (classic := shard.groups.get(group_id)) is not None:
            answer_all(classic, ErrorCode.REBALANCE_IN_PROGRESS)
        if not shard.write([*before, *plan.changes], _answer(ctx, response)):
            return
        self._services.rebalances += moves_epoch
        written = shard.consumers.get(group_id)
        if written is None:
            return  # the shard was lost while the records were written
        if before:
            self._resume(written)
        member_id = plan.member.member_id
        self.touch(group_id, member_id)
        if plan.current is not plan.old_current:
            self._watch_revocation(written, member_id)
        self.resolver.consider(written, permitted)
        if plan.own_task is not None:
            self.own_targets.begin(written, plan.own_task)

    def _make_way(self, request: ConsumerGroupHeartbeatRequest) -> tuple[list[Change], ConsumerGroup]:
        """A group for a member that joins, new or converted from a classic group, and the records for that.

        Raises KafkaError GROUP_ID_NOT_FOUND.
        """
        shard, group_id = self._shard, request.group_id
        classic = shard.groups.get(group_id)
        joins = request.member_epoch == JOINING
        if classic is None and group_id not in shard.foreign:
            if joins:
                return [], ConsumerGroup(group_id)
            raise not_found(group_id, "Consumer group")
        if classic is None or not joins:
            raise not_consumer(group_id)
        if classic.state is ClassicState.EMPTY:
            return [GroupChange(group_id, None)], ConsumerGroup(group_id)
        migration.check_upgrade(classic, self._services.config)
        changes = migration.upgraded(classic, self._services.topics)
        log.info("group becomes a consumer group group=%s classic_members=%d", group_id, len(classic.members))
        group = ConsumerGroup(group_id)
        for change in changes:
            group.apply(change)
        return [GroupChange(group_id, None), *changes], group

    def _leave(self, ctx: RequestContext, request: ConsumerGroupHeartbeatRequest) -> None:
        group = self.group(request.group_id)
        member = leaving.leaver(group, request)
        log.info("member leaves group=%s member=%s epoch=%d", group.group_id, request.member_id, request.member_epoch)
        done = _answer(ctx, Response(member_id=request.member_id, member_epoch=request.member_epoch))
        if request.member_epoch == LEAVING_FOR_A_WHILE:
            self._shard.write([leaving.away(group, member)], done)
        else:
            self._write_removal(group, [member], done)

    def group(self, group_id: str) -> ConsumerGroup:
        """The consumer group. Raises KafkaError GROUP_ID_NOT_FOUND, also for a group of another type."""
        group = self._shard.consumers.get(group_id)
        if group is not None:
            return group
        exists = group_id in self._shard.groups or group_id in self._shard.foreign
        raise not_consumer(group_id) if exists else not_found(group_id)

    # -- removal

    def remove(self, group: ConsumerGroup, members: list[MemberData], reason: str) -> None:
        """Remove members; no request waits for it."""
        group_id = group.group_id
        names = [member.member_id for member in members]
        log.info("members are removed group=%s members=%s reason=%s", group_id, names, reason)

        def done(error: KafkaError | None) -> None:
            if error is None or self._shard.consumers.get(group_id) is not group:
                return
            log.warning("members were not removed group=%s members=%s error=%s", group_id, names, error)
            for member_id in names:
                if member_id in group.members:
                    self.touch(group_id, member_id)

        self._write_removal(group, members, done)

    def _write_removal(self, group: ConsumerGroup, members: list[MemberData], done: Done) -> None:
        ids = [member.member_id for member in members]
        if not self._downgrade(group, ids, done):
            self._shard.write(leaving.fence(group, members, self._services.topics), done)

    def _downgrade(self, group: ConsumerGroup, without: list[str], done: Done) -> bool:
        """Continue as a classic group if only classic members stay. Returns False if the group stays as it is."""
        if not migration.may_downgrade(group, without, self._services.config):
            return False
        shard, group_id = self._shard, group.group_id
        try:
            changes = migration.downgraded(group, without, self._services.topics, shard.clock.wall_ms())
        except ValueError as error:
            log.warning("group cannot become a classic group group=%s error=%s", group_id, error)
            return False
        log.info("group becomes a classic group group=%s", group_id)
        shard.write(changes, done)
        classic = shard.groups.get(group_id)
        if classic is not None:
            for member in classic.members.values():
                self._rebalancer.touch(classic, member)
            self._rebalancer.begin(classic, "the last member of the consumer protocol has left")
        return True

    # -- time-outs

    def touch(self, group_id: str, member_id: str) -> None:
        """Restart the time after which the member counts as dead."""
        group = self._shard.consumers.get(group_id)
        member = None if group is None else group.members.get(member_id)
        classic = None if member is None else member.classic
        timeout = self._services.times(group_id).session_timeout_ms if classic is None else classic.session_timeout_ms
        self._sessions.touch(group_id, member_id, timeout)

    def joined(self, group_id: str, member_id: str) -> None:
        """A classic member has joined: it must fetch its assignment."""
        group = self._shard.consumers.get(group_id)
        if group is None:
            return
        self._sessions.done(Duty.JOIN, group_id, member_id)
        self.touch(group_id, member_id)
        self._watch_revocation(group, member_id)
        self._expect(Duty.SYNC, group, member_id)
        self._downgrade(group, [], stored_or_logged(group_id))

    def synced(self, group_id: str, member_id: str) -> None:
        """A classic member has fetched its assignment."""
        self._sessions.done(Duty.SYNC, group_id, member_id)

    def expect_join(self, group: ConsumerGroup, member: MemberData) -> None:
        """A classic member must join again; the time runs from the first request."""
        if not self._sessions.expects(Duty.JOIN, group.group_id, member.member_id):
            self._expect(Duty.JOIN, group, member.member_id)

    def _expect(self, duty: Duty, group: ConsumerGroup, member_id: str) -> None:
        epoch, timeout = group.holds(member_id).epoch, group.members[member_id].rebalance_timeout_ms
        self._sessions.expect(duty, group.group_id, member_id, epoch, timeout)

    def _watch_revocation(self, group: ConsumerGroup, member_id: str) -> None:
        if group.holds(member_id).state is MemberState.UNREVOKED:
            self._expect(Duty.REVOKE, group, member_id)
        else:
            self._sessions.done(Duty.REVOKE, group.group_id, member_id)

    def _expired(self, group_id: str, member_id: str) -> None:
        group = self._shard.consumers.get(group_id)
        if group is not None and member_id in group.members:
            self.remove(group, [group.members[member_id]], "the session expired")

    def _overdue(self, group_id: str, member_id: str, duty: Duty, epoch: int) -> None:
        group = self._shard.consumers.get(group_id)
        if group is None or member_id not in group.members:
            return
        if duty is not Duty.REVOKE or group.holds(member_id).epoch == epoch:
            self.remove(group, [group.members[member_id]], f"it did not {duty.value} in time")

    def gone(self, group_id: str, member_id: str) -> None:
        """The member was removed: its timers end."""
        self._sessions.drop(group_id, member_id)

    def resume(self) -> None:
        """The shard was loaded: every member gets a whole session, and every revocation its whole time."""
        for group in self._shard.consumers.values():
            group.needs_refresh = True
            self._resume(group)

    def _resume(self, group: ConsumerGroup) -> None:
        for member_id in group.members:
            self.touch(group.group_id, member_id)
            self._watch_revocation(group, member_id)


def stored_or_logged(group_id: str) -> Done:
    """A callback for a write that no client waits for: logs its error."""

    def done(error: KafkaError | None) -> None:
        if error is not None:
            log.warning("group was not written group=%s error=%s", group_id, error)

    return done


def _answer(ctx: RequestContext, response: ConsumerGroupHeartbeatResponse) -> Done:
    def done(error: KafkaError | None) -> None:
        if error is None:
            ctx.respond(response)
        else:
            ctx.respond(Response(error_code=client_error(error), error_message=error.message))

    return done


def not_found(group_id: str, what: str = "Group") -> KafkaError:
    """The GROUP_ID_NOT_FOUND for a group that does not exist, for the caller to raise; `what` begins its message."""
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} {group_id} not found.")


def not_consumer(group_id: str) -> KafkaError:
    """The GROUP_ID_NOT_FOUND for a group of another type, for the caller to raise."""
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
