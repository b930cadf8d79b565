"""Moves a group from one generation to the next, and removes silent members.

All time-outs are here: sessions, the initial delay in which a new group's members gather, the time for rejoining, the
time for fetching assignments. Each session uses one lazy timer: a heartbeat moves the deadline, and the timer checks it
when it fires.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kraft_node.broker.coordinators.group.answers import answer_join, answer_sync, join_error, joined
from kraft_node.broker.coordinators.group.classic import ClassicState
from kraft_node.broker.coordinators.group.records import group_snapshot
from kraft_node.broker.coordinators.runtime.failures import client_error
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import SyncGroupResponse

if TYPE_CHECKING:
    from kraft_node.broker.coordinators.group.classic import ClassicGroup
    from kraft_node.broker.coordinators.group.member import ClassicGroupMember
    from kraft_node.broker.coordinators.group.shard_state import ShardState
    from kraft_node.broker.coordinators.runtime.shard import Done

log = logging.getLogger(__name__)


def stored_or_logged(group: ClassicGroup) -> Done:
    """For writes without a waiting request: a failure is logged, and the next write of the group repairs it."""

    def done(error: KafkaError | None) -> None:
        if error is not None:
            log.warning("group was not written group=%s state=%s error=%s", group.group_id, group.state.value, error)

    return done


class Rebalancer:
    """Drives the groups of one shard."""

    __slots__ = ("shard",)

    def __init__(self, shard: ShardState) -> None:
        self.shard = shard

    # -- rebalancing

    def begin_or_complete(self, group: ClassicGroup, reason: str) -> None:
        """After a change: begin a rebalance, or complete the rebalance that is being prepared."""
        if group.can_rebalance:
            self.begin(group, reason)
        else:
            self.complete_if_gathered(group)

    def begin(self, group: ClassicGroup, reason: str) -> None:
        """Make all members join again. The first rebalance of a group waits for more members."""
        if group.state is ClassicState.COMPLETING:
            self.reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS)
        self.forget_syncs(group)
        initial = group.state is ClassicState.EMPTY
        group.move_to(ClassicState.PREPARING, self.shard.clock.wall_ms())
        log.info("rebalance begins group=%s generation=%d reason=%s", group.group_id, group.generation, reason)
        if initial:
            delay = self.shard.config.initial_rebalance_delay_ms
            remaining = max(group.rebalance_timeout_ms - delay, 0)
            self._set_join_timer(group, delay, delay, remaining)
        elif group.all_joined:
            self.complete_join(group)
        else:
            self._set_join_timer(group, group.rebalance_timeout_ms)

    def _set_join_timer(self, group: ClassicGroup, delay_ms: int, *initial: int) -> None:
        self._stop_join_timer(group)
        function = self._initial_delay_over if initial else self.complete_join
        group.join_timer = self.shard.scheduler.call_later(delay_ms, function, group, *initial)

    @staticmethod
    def _stop_join_timer(group: ClassicGroup) -> None:
        if group.join_timer is not None:
            group.join_timer.cancel()
            group.join_timer = None

    def _initial_delay_over(self, group: ClassicGroup, delay_ms: int, remaining_ms: int) -> None:
        """Wait again as long as members keep joining, at most one rebalance time-out in total."""
        group.join_timer = None
        if not group.new_member_added or remaining_ms == 0:
            self.complete_join(group)
            return
        group.new_member_added = False
        delay = min(self.shard.config.initial_rebalance_delay_ms, remaining_ms)
        self._set_join_timer(group, delay, delay, max(remaining_ms - delay_ms, 0))

    def complete_if_gathered(self, group: ClassicGroup) -> None:
        """Complete the join phase if all have joined; the initial rebalance only ends by its timer."""
        if (
            group.state is ClassicState.PREPARING
            and group.previous_state is not ClassicState.EMPTY
            and group.all_joined
        ):
            self.complete_join(group)

    def complete_join(self, group: ClassicGroup) -> None:
        """Start the next generation with the joined members; static members keep their place even without joining."""
        self._stop_join_timer(group)
        late = [m for m in group.members.values() if m.join is None and not m.is_static]
        for member in late:
            group.remove(member.member_id)
        if late:
            names = [m.member_id for m in late]
            log.info("members did not rejoin in time and are removed group=%s members=%s", group.group_id, names)
        if group.state is ClassicState.DEAD:
            return
        if not group.elect_joined_leader() and group.members:
            log.warning("no member rejoined, the static members are awaited group=%s", group.group_id)
            self._set_join_timer(group, group.rebalance_timeout_ms)
            return
        group.next_generation(self.shard.clock.wall_ms())
        if group.state is ClassicState.EMPTY:
            log.info("group is empty group=%s generation=%d", group.group_id, group.generation)
            self.shard.write([group_snapshot(group, {})], stored_or_logged(group), apply=False)
            return
        log.info(
            "rebalance is complete group=%s generation=%d members=%d",
            group.group_id,
            group.generation,
            len(group.members),
        )
        group.sync_timer = self.shard.scheduler.call_later(
            group.rebalance_timeout_ms, self._sync_timed_out, group, group.generation
        )
        for member in group.members.values():
            group.pending_syncs.add(member.member_id)
            member.is_new = False
        for member in list(group.members.values()):
            if member.join is not None:
                answer_join(group, member, joined(group, member, member.join.api_version))
            self.touch(group, member)

    # -- assignments

    def propagate(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        """Give every member its part of the leader's assignment."""
        for member in list(group.members.values()):
            member.assignment = assignments.get(member.member_id, b"")
            response = SyncGroupResponse(
                protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
            )
            if answer_sync(member, response):
                self.touch(group, member)

    def reset_assignments(self, group: ClassicGroup, code: ErrorCode) -> None:
        """Drop the pending assignment; waiting members get the error."""
        for member in list(group.members.values()):
            member.assignment = b""
            if answer_sync(member, SyncGroupResponse(error_code=code)):
                self.touch(group, member)

    def forget_syncs(self, group: ClassicGroup) -> None:
        """No member is expected to fetch an assignment from now on."""
        group.pending_syncs.clear()
        self._stop_sync_timer(group)

    @staticmethod
    def _stop_sync_timer(group: ClassicGroup) -> None:
        if group.sync_timer is not None:
            group.sync_timer.cancel()
            group.sync_timer = None

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        """The member has requested its assignment."""
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            self._stop_sync_timer(group)

    def _sync_timed_out(self, group: ClassicGroup, generation: int) -> None:
        group.sync_timer = None
        if generation != group.generation or group.state not in {ClassicState.COMPLETING, ClassicState.STABLE}:
            return
        missing = [member_id for member_id in group.members if member_id in group.pending_syncs]
        if missing:
            for member_id in missing:
                group.remove(member_id)
            self.begin(group, f"members {missing} did not fetch their assignment")

    # -- sessions

    def touch(self, group: ClassicGroup, member: ClassicGroupMember, timeout_ms: int | None = None) -> None:
        """The member is alive: its session ends one session time-out from now."""
        timeout = member.session_timeout_ms if timeout_ms is None else timeout_ms
        now = self.shard.clock.monotonic_ms()
        member.deadline_ms = now + timeout
        if member.timer is not None:
            if member.timer_due_ms <= member.deadline_ms:
                return
            member.timer.cancel()
        self._arm(group, member, timeout)

    def _arm(self, group: ClassicGroup, member: ClassicGroupMember, delay_ms: int) -> None:
        member.timer_due_ms = self.shard.clock.monotonic_ms() + delay_ms
        member.timer = self.shard.scheduler.call_later(delay_ms, self._session_timer, group, member)

    def _session_timer(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        member.timer = None
        left = member.deadline_ms - self.shard.clock.monotonic_ms()
        if left > 0:
            self._arm(group, member, left)
            return
        if group.members.get(member.member_id) is not member or member.is_waiting:
            return  # gone, or its unanswered request shows that it is alive: the answer starts a new session
        log.info("session of a member expired group=%s member=%s", group.group_id, member.member_id)
        self.remove(group, member, f"session of member {member.member_id} expired")

    def remove(self, group: ClassicGroup, member: ClassicGroupMember, reason: str) -> None:
        """Remove a lost member, and rebalance."""
        self.dismiss(group, member)
        if group.state in {ClassicState.STABLE, ClassicState.COMPLETING}:
            self.begin_or_complete(group, reason)
        elif group.state is ClassicState.PREPARING and group.all_joined:
            self.complete_join(group)

    @staticmethod
    def dismiss(group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Remove the member; its waiting requests get UNKNOWN_MEMBER_ID."""
        if member.join is not None:
            answer_join(group, member, join_error(member.join.api_version, ErrorCode.UNKNOWN_MEMBER_ID))
        answer_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        group.remove(member.member_id)

    def expect(self, group: ClassicGroup, member_id: str, timeout_ms: int) -> None:
        """A member id was assigned (KIP-394): the client has one session time-out to join with it."""
        group.pending_members[member_id] = self.shard.scheduler.call_later(
            timeout_ms, self._expected_in_vain, group, member_id
        )

    def _expected_in_vain(self, group: ClassicGroup, member_id: str) -> None:
        group.remove(member_id)
        log.info("no client joined with its member id group=%s member=%s", group.group_id, member_id)
        if group.state is ClassicState.PREPARING and group.all_joined:
            self.complete_join(group)

    # -- after loading

    def resume(self) -> None:
        """Start the sessions of loaded members; rebalance a group that now exceeds group.max.size."""
        for group in list(self.shard.groups.values()):
            for member in group.members.values():
                self.touch(group, member)
            if len(group.members) > self.shard.config.max_size:
                self.begin(group, f"{len(group.members)} members are more than group.max.size allows")

    def failed_assignment(self, group: ClassicGroup, error: KafkaError) -> None:
        """The assignment could not be stored: notify the waiting members and rebalance."""
        self.reset_assignments(group, client_error(error))
        self.begin_or_complete(group, f"the assignment could not be stored: {error}")
