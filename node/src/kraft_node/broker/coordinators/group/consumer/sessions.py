"""The time-outs of the members of one shard: sessions, and what members must do in time.

A session uses one lazy timer: a heartbeat moves the deadline, and the timer checks it when it fires.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kraft_node.base.env import Clock, Scheduler, Timer

Key: TypeAlias = tuple[str, str]
"""Group id and member id."""


class Duty(Enum):
    """What a member must do within its rebalance time-out."""

    REVOKE = "give up its partitions"
    JOIN = "join again"
    SYNC = "fetch its assignment"


class _Session:
    __slots__ = ("deadline_ms", "due_ms", "timer")

    def __init__(self) -> None:
        self.deadline_ms = 0
        self.due_ms = 0
        self.timer: Timer | None = None


class MemberSessions:
    """Calls `expired(group_id, member_id)` for silent members, `overdue(group_id, member_id, duty, epoch)` for members
    that have not done their duty in time.
    """

    __slots__ = ("_clock", "_duties", "_expired", "_overdue", "_scheduler", "_sessions")

    def __init__(
        self,
        clock: Clock,
        scheduler: Scheduler,
        expired: Callable[[str, str], None],
        overdue: Callable[[str, str, Duty, int], None],
    ) -> None:
        self._clock = clock
        self._scheduler = scheduler
        self._expired = expired
        self._overdue = overdue
        self._sessions: dict[Key, _Session] = {}
        self._duties: dict[Key, dict[Duty, Timer]] = {}

    def touch(self, group_id: str, member_id: str, timeout_ms: int) -> None:
        """The member is alive: its session ends `timeout_ms` from now."""
        key = (group_id, member_id)
        session = self._sessions.get(key)
        if session is None:
            session = self._sessions[key] = _Session()
        session.deadline_ms = self._clock.monotonic_ms() + timeout_ms
        if session.timer is not None:
            if session.due_ms <= session.deadline_ms:
                return
            session.timer.cancel()
        self._arm(key, session, timeout_ms)

    def _arm(self, key: Key, session: _Session, delay_ms: int) -> None:
        session.due_ms = self._clock.monotonic_ms() + delay_ms
        session.timer = self._scheduler.call_later(delay_ms, self._fired, key, session)

    def _fired(self, key: Key, session: _Session) -> None:
        session.timer = None
        left = session.deadline_ms - self._clock.monotonic_ms()
        if left > 0:
            self._arm(key, session, left)
            return
        del self._sessions[key]
        self._expired(*key)

    def expect(self, duty: Duty, group_id: str, member_id: str, epoch: int, timeout_ms: int) -> None:
        """The member must do something within the time, which begins anew."""
        self.done(duty, group_id, member_id)
        key = (group_id, member_id)
        timer = self._scheduler.call_later(timeout_ms, self._late, duty, key, epoch)
        self._duties.setdefault(key, {})[duty] = timer

    def expects(self, duty: Duty, group_id: str, member_id: str) -> bool:
        """Whether the time is running."""
        return duty in self._duties.get((group_id, member_id), ())

    def _late(self, duty: Duty, key: Key, epoch: int) -> None:
        self._forget(duty, key)
        self._overdue(*key, duty, epoch)

    def done(self, duty: Duty, group_id: str, member_id: str) -> None:
        """The member has done it, or no longer needs to."""
        timer = self._forget(duty, (group_id, member_id))
        if timer is not None:
            timer.cancel()

    def _forget(self, duty: Duty, key: Key) -> Timer | None:
        duties = self._duties.get(key)
        if duties is None:
            return None
        timer = duties.pop(duty, None)
        if not duties:
            del self._duties[key]
        return timer

    def drop(self, group_id: str, member_id: str) -> None:
        """The member is gone."""
        for duty in Duty:
            self.done(duty, group_id, member_id)
        session = self._sessions.pop((group_id, member_id), None)
        if session is not None and session.timer is not None:
            session.timer.cancel()
