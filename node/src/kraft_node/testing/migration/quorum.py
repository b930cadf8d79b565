"""A model of the metadata quorum: a committed log, leaders that the scenario elects, lost appends of former leaders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kraft_node.metadata.loader import MetadataLoader
from kraft_node.testing.migration.loop import SimTime
from kraft_protocol.wire.stored import AbortTransactionRecord

COMMIT_MS_MAX: Final = 15
NOTICE_MS_MAX: Final = 2_000
"""How long a former leader may believe that it still leads."""


class QuorumModel:
    """The committed records. `members` are notified of leaderships and commits."""

    def __init__(self, time: SimTime, first: Sequence[Any]) -> None:
        self._time = time
        self.committed: list[tuple[int, Any]] = [(0, record) for record in first]
        self.epoch = 0
        self.leader: QuorumMember | None = None
        self.members: list[QuorumMember] = []
        self.on_commit: Callable[[], None] = lambda: None

    def elect(self, member: QuorumMember) -> None:
        """Make a member the leader of a new epoch; the former leader learns of it later."""
        former, self.leader = self.leader, member
        self.epoch += 1
        if former is not None and former is not member:
            self._time.at(self._time.rng.uniform(0, NOTICE_MS_MAX), former.deposed, self.epoch)
        member.catch_up()
        if member.loader.in_transaction:
            self._commit(member, self.epoch, [AbortTransactionRecord("the leader changed")], lambda: None)
        member.elected(self.epoch)

    def append(self, member: QuorumMember, epoch: int, records: Sequence[Any], committed: Callable[[], None]) -> None:
        """Commit later, in order, unless the leadership is lost before."""
        delay_ms = max(member.busy_until_ms, self._time.now_ms + self._time.rng.uniform(0.1, COMMIT_MS_MAX))
        member.busy_until_ms = delay_ms
        self._time.at(delay_ms - self._time.now_ms, self._commit, member, epoch, records, committed)

    def _commit(self, member: QuorumMember, epoch: int, records: Sequence[Any], committed: Callable[[], None]) -> None:
        if self.leader is not member or epoch != self.epoch or member.is_dead:
            return
        self.committed += [(epoch, record) for record in records]
        member.catch_up()
        for other in self.members:
            if other is not member:
                self._time.at(self._time.rng.uniform(1, 500), other.catch_up)
        self.on_commit()
        committed()


class QuorumMember:
    """One controller's copy of the log and its image. `publish`, `elected`, `deposed` are for its driver."""

    def __init__(self, quorum: QuorumModel) -> None:
        self._quorum = quorum
        self.loader = MetadataLoader()
        self.applied = 0
        self.busy_until_ms = 0.0
        self.is_dead = False
        self.elected: Callable[[int], None] = lambda _: None
        self.deposed: Callable[[int], None] = lambda _: None
        quorum.members.append(self)

    def catch_up(self) -> None:
        """Apply everything committed."""
        if self.is_dead:
            return
        while self.applied < len(self._quorum.committed):
            epoch, record = self._quorum.committed[self.applied]
            self.loader.apply([(self.applied, record)], epoch, 0)
            self.applied += 1
        self.loader.publish()
