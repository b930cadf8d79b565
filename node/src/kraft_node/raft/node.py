"""`RaftNode`: takes one event, lets the current role act, returns one `Ready`."""

from __future__ import annotations

from kraft_node.raft import events, replication
from kraft_node.raft.dispatch import HANDLERS
from kraft_node.raft.membership.quorum import NO_NODE
from kraft_node.raft.ready import LeaderChanged, Ready
from kraft_node.raft.replica_state import NotLeader
from kraft_node.raft.roles.leader import Leader
from kraft_node.raft.roles.resigned import Resigned
from kraft_node.raft.roles.states import Role
from kraft_node.raft.roles.transitions import RaftReplica


class RaftNode(RaftReplica):
    """One replica of the metadata log. Give it `Started` first, then each event as it happens; carry out what `step`
    returns.
    """

    _announced = (NO_NODE, -1)

    def step(self, event: events.Event, now_ms: int) -> Ready:
        """Process `event`, which happened at `now_ms` (monotonic). Returns the work for `ready.carry_out`.

        Raises NotLeader for `Propose` and `Resign` if this node does not lead that epoch, BatchTooLarge if records can
        never fit into one batch. Then nothing has changed.
        """
        assert now_ms >= self.now_ms, "law: monotonic time does not go back"
        assert self._started or isinstance(event, events.Started), "law: Started comes first"
        if type(event) is events.Propose and self._waits_for_flush(now_ms):
            HANDLERS[events.Propose](self, event)
            given, self.ready = self.ready, Ready()
            return given
        self.now_ms = now_ms
        self._transitions = 0
        HANDLERS[type(event)](self, event)
        if self.is_shutting_down and not isinstance(self.role, Leader | Resigned):
            self.finish_shutdown()  # another node leads already, or the epoch is over
        if not self._is_shut_down:
            self.requests.expire(now_ms)
            self._remove_stale_snapshots()
            self._act()
            replication.release_waiting(self)
            self._announce_leader()
            self._set_timer()
        given, self.ready = self.ready, Ready()
        return given

    def _waits_for_flush(self, now_ms: int) -> bool:
        """Whether a proposal only joins others that wait for the running flush.

        They have set the timer, and nothing else is due: no time has passed since the last step. Under load most
        proposals come like this, so they cost no step of the role.
        """
        role = self.role
        return now_ms == self.now_ms and isinstance(role, Leader) and not role.accumulator.is_empty

    def _remove_stale_snapshots(self) -> None:
        if self.log.stale:
            self.ready.stale = tuple(self.log.stale)
            self.log.stale.clear()

    def _act(self) -> None:
        """Let the role act. If the role changes, let the new role act, until it stays the same."""
        role = None
        while role is not self.role:
            role = self.role
            role.act(self)

    def _announce_leader(self) -> None:
        leader = NO_NODE if self.role.role is Role.RESIGNED else self.leader_id
        if (leader, self.epoch) != self._announced:
            self._announced = (leader, self.epoch)
            self.ready.leader_changed = LeaderChanged(leader, self.epoch)

    def _set_timer(self) -> None:
        now_ms = self.now_ms
        times = self.role.deadlines_ms(self)
        times += self.requests.deadlines_ms(now_ms)
        if self.waiting:
            times += [waiting.deadline_ms for waiting in self.waiting.values()]
        # A deadline that has passed but was not handled waits for an answer, a flush or a free connection.
        at_ms: int | None = None
        for time_ms in times:
            if time_ms > now_ms and (at_ms is None or time_ms < at_ms):
                at_ms = time_ms
        if at_ms != self.timer_ms:
            self.timer_ms = self.ready.timer_ms = at_ms


__all__ = ["NotLeader", "RaftNode"]
