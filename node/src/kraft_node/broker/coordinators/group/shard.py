"""One partition of `__consumer_offsets` that this broker leads: its groups, their offsets, and its unfinished writes.

Writes follow the rule of the package: append, apply, answer when committed. `write` may call back before it returns
(the append failed, or a single replica commits at once), so callers must update their state first.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kraft_node.base.calls import call_each
from kraft_node.broker.coordinators.group import answers, records
from kraft_node.broker.coordinators.group.classic import ClassicGroup, State
from kraft_node.broker.coordinators.group.member import Member
from kraft_node.broker.coordinators.group.offsets import NO_PRODUCER_ID, OffsetTable
from kraft_node.broker.coordinators.group.records import Change, ForeignChange, GroupChange, OffsetChange
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.env import Clock, Rng, Scheduler, Timer
    from kraft_node.broker.coordinators.group.config import GroupConfig
    from kraft_node.broker.coordinators.group.seams import GroupStore

log = logging.getLogger(__name__)

MAX_SWEEP_BATCH_RECORDS: Final = 1_000
"""Tombstones of expiry and topic deletion are written in batches of this size: far below any max.message.bytes."""
SWEEP_STEPS_A_TURN: Final = 500
"""Groups per step, before other work gets its turn on the loop."""

Done: TypeAlias = Callable[[KafkaError | None], None]
"""Called with None when a write is committed, or with the error."""


class Phase(Enum):
    """The phase of the partition between election and resignation."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


class ForeignGroup:
    """A group of another type found in the log: its type and the keys of its records."""

    __slots__ = ("keys", "kind")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.keys: set[bytes] = set()


class _Write:
    __slots__ = ("deadline_ms", "done", "end_offset")

    def __init__(self, end_offset: int, deadline_ms: int, done: Done) -> None:
        self.end_offset = end_offset
        self.deadline_ms = deadline_ms
        self.done = done


class Shard:
    """The state of one partition. `close` drops it; loading restores it from the log."""

    __slots__ = (
        "_commit_timer",
        "_expecting",
        "_high_watermark",
        "_writes",
        "_written_to",
        "clock",
        "config",
        "epoch",
        "foreign",
        "groups",
        "offsets",
        "partition",
        "phase",
        "rng",
        "scheduler",
        "store",
    )

    def __init__(
        self,
        partition: int,
        epoch: int,
        *,
        store: GroupStore,
        config: GroupConfig,
        clock: Clock,
        scheduler: Scheduler,
        rng: Rng,
    ) -> None:
        self.partition = partition
        self.epoch = epoch
        self.store = store
        self.config = config
        self.clock = clock
        self.scheduler = scheduler
        self.rng = rng
        self.phase = Phase.LOADING
        self.groups: dict[str, ClassicGroup] = {}
        self.foreign: dict[str, ForeignGroup] = {}
        self.offsets = OffsetTable()
        self._writes: deque[_Write] = deque()
        self._written_to = 0
        self._high_watermark = 0
        self._commit_timer: Timer | None = None
        self._expecting = False

    def activate(self) -> None:
        """The log was read to its end: requests are accepted."""
        self.phase = Phase.ACTIVE
        self._written_to = self.store.end_offset(self.partition)
        self.high_watermark_moved(self.store.high_watermark(self.partition))
        self._expect_commit()

    def check(self) -> None:
        """Raise the error for requests while the partition cannot be used."""
        if self.phase is Phase.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"partition {self.partition} is being loaded")
        if self.phase is not Phase.ACTIVE:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"partition {self.partition} is {self.phase.value} here")

    # -- writing

    def write(self, changes: Sequence[Change], done: Done, *, apply: bool = True) -> bool:
        """Append `changes` as one batch and call `done` with None when committed, or with the error.

        `apply=False` is for snapshots of a group whose members are in memory already. Returns False if nothing was
        appended (then `done` was called with the reason).
        """
        if not changes:
            self.after_writes(done)
            return True
        try:
            base = self.store.append(
                self.partition, self.epoch, [records.encode_change(c) for c in changes], self.clock.wall_ms()
            )
        except KafkaError as error:
            done(error)
            return False
        self._written_to = base + len(changes)
        if apply:
            for i, change in enumerate(changes):
                self.apply(base + i, NO_PRODUCER_ID, change)
        self._enqueue(done)
        self.high_watermark_moved(self.store.high_watermark(self.partition))
        self._expect_commit()
        return True

    def write_all(self, changes: Sequence[Change], done: Done) -> None:
        """Like `write`, for more changes than one batch may hold: in order but not atomic; `done` is for the last
        batch.
        """
        last = max(0, (len(changes) - 1) // MAX_SWEEP_BATCH_RECORDS * MAX_SWEEP_BATCH_RECORDS)
        failed: list[KafkaError] = []

        def note(error: KafkaError | None) -> None:
            if error is not None:
                failed.append(error)

        for start in range(0, last, MAX_SWEEP_BATCH_RECORDS):
            if not self.write(changes[start : start + MAX_SWEEP_BATCH_RECORDS], note):
                done(failed[0])
                return
        self.write(changes[last:], done)

    def after_writes(self, done: Done) -> None:
        """Call `done` when all present records of the log are committed; at once if they are.

        This includes loaded records: after a restart the checkpointed high watermark may be below records that an
        earlier leader acknowledged. It also includes writes that have timed out.
        """
        if self._high_watermark < self._written_to:
            self._enqueue(done)
        else:
            done(None)

    def _enqueue(self, done: Done) -> None:
        deadline = self.clock.monotonic_ms() + self.config.commit_timeout_ms
        self._writes.append(_Write(self._written_to, deadline, done))
        if self._commit_timer is None and self._high_watermark < self._written_to:
            self._commit_timer = self.scheduler.call_later(self.config.commit_timeout_ms, self._commit_timed_out)

    def _expect_commit(self) -> None:
        """Let the store call back when the last write is committed; at most one such call is pending."""
        if self._expecting or self._high_watermark >= self._written_to or self.phase is not Phase.ACTIVE:
            return
        self._expecting = True
        next_end = self._writes[0].end_offset if self._writes else self._written_to
        self.store.when_committed(self.partition, max(next_end, self._high_watermark + 1), self._committed)

    def _committed(self) -> None:
        self._expecting = False
        if self.phase is Phase.ACTIVE:
            try:
                self.high_watermark_moved(self.store.high_watermark(self.partition))
            finally:
                self._expect_commit()

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Everything below `high_watermark` is committed."""
        if high_watermark <= self._high_watermark:
            return
        self._high_watermark = high_watermark
        self.offsets.committed_to(high_watermark)
        writes = self._writes
        committed = []
        while writes and writes[0].end_offset <= self._high_watermark:
            committed.append(writes.popleft().done)
        if not writes and self._commit_timer is not None:
            self._commit_timer.cancel()
            self._commit_timer = None
        call_each(committed, None)

    def _commit_timed_out(self) -> None:
        self._commit_timer = None
        now = self.clock.monotonic_ms()
        writes = self._writes
        late = []
        while writes and writes[0].deadline_ms <= now:
            late.append(writes.popleft().done)
        if writes:
            self._commit_timer = self.scheduler.call_later(max(1, writes[0].deadline_ms - now), self._commit_timed_out)
        text = f"not committed within {self.config.commit_timeout_ms} ms (offsets.commit.timeout.ms)"
        call_each(late, KafkaError(ErrorCode.REQUEST_TIMED_OUT, text))

    def transaction_ended(self, offset: int, producer_id: int, *, commit: bool) -> None:
        """A transaction marker is at `offset` of the log."""
        self._written_to = max(self._written_to, offset + 1)
        self.offsets.end_transaction(offset, producer_id, commit=commit)
        self.high_watermark_moved(self.store.high_watermark(self.partition))
        self._expect_commit()

    # -- applying

    def apply(self, offset: int, producer_id: int, change: Change) -> None:
        """Apply one record that was just written or read back."""
        if isinstance(change, OffsetChange):
            value = change.value
            if value is not None:
                value = value._replace(record_offset=offset)
                if change.group not in self.groups and change.group not in self.foreign:
                    self.groups[change.group] = ClassicGroup(change.group, self.clock.wall_ms())
            self.offsets.replay(offset, producer_id, (change.group, change.topic, change.partition), value)
        elif isinstance(change, GroupChange):
            self.drop_group(change.group)
            if change.value is not None:
                self.groups[change.group] = loaded_group(change.group, change.value)
        else:
            self._apply_foreign(change)

    def _apply_foreign(self, change: ForeignChange) -> None:
        group = self.foreign.get(change.group)
        if change.removed:
            if group is not None:
                group.keys.discard(change.key)
                if not group.keys:
                    del self.foreign[change.group]
            return
        if group is None:
            self.drop_group(change.group)
            group = self.foreign[change.group] = ForeignGroup(change.kind)
        group.kind = change.kind
        group.keys.add(change.key)

    def drop_group(self, group_id: str) -> None:
        group = self.groups.pop(group_id, None)
        if group is not None:
            stop_timers(group)
            group.move_to(State.DEAD, self.clock.wall_ms())
            answers.answer_all(group, ErrorCode.UNKNOWN_MEMBER_ID)

    # -- groups

    def create_group(self, group_id: str) -> ClassicGroup:
        group = self.groups[group_id] = ClassicGroup(group_id, self.clock.wall_ms())
        return group

    def removal_of(self, group_id: str) -> list[Change]:
        """The tombstones that remove the group itself, not its offsets."""
        foreign = self.foreign.get(group_id)
        if foreign is not None:
            return list(records.foreign_removals(group_id, foreign.kind, foreign.keys))
        return [GroupChange(group_id, None)]

    # -- sweeping

    def sweep(self, plan: Callable[[str], list[Change]]) -> None:
        """Write the changes of `plan(group_id)` for every group, a few groups per turn of the loop."""
        ids = list(dict.fromkeys([*self.groups, *self.foreign]))
        self._sweep_turn(iter(ids), plan)

    def _sweep_turn(self, ids: Iterator[str], plan: Callable[[str], list[Change]]) -> None:
        if self.phase is not Phase.ACTIVE:
            return
        changes: list[Change] = []
        seen = 0
        for group_id in islice(ids, SWEEP_STEPS_A_TURN):
            seen += 1
            if group_id not in self.groups and group_id not in self.foreign:
                continue
            changes += plan(group_id)
            if len(changes) >= MAX_SWEEP_BATCH_RECORDS:
                self.write_all(changes, self._swept)
                changes = []
        if changes:
            self.write(changes, self._swept)
        if seen == SWEEP_STEPS_A_TURN:
            self.scheduler.call_soon(self._sweep_turn, ids, plan)

    def _swept(self, error: KafkaError | None) -> None:
        if error is not None:
            log.warning("partition %d of __consumer_offsets: dropping offsets failed: %s", self.partition, error)

    # -- ending

    def close(self, phase: Phase = Phase.CLOSED) -> None:
        """Drop all state, and answer waiting requests that this is no longer the coordinator."""
        self.phase = phase
        if self._commit_timer is not None:
            self._commit_timer.cancel()
            self._commit_timer = None
        writes, self._writes = self._writes, deque()
        groups, self.groups = self.groups, {}
        self.foreign.clear()
        self.offsets = OffsetTable()
        away = KafkaError(ErrorCode.NOT_COORDINATOR, f"partition {self.partition} moved away")
        ends = [partial(write.done, away) for write in writes]
        call_each([*ends, *(partial(self._send_away, group) for group in groups.values())])

    def _send_away(self, group: ClassicGroup) -> None:
        stop_timers(group)
        group.move_to(State.DEAD, self.clock.wall_ms())
        answers.answer_all(group, ErrorCode.NOT_COORDINATOR)


def loaded_group(group_id: str, value: Any) -> ClassicGroup:
    """A group as in its GroupMetadataValue: Stable with members, Empty without."""
    since = value.current_state_timestamp
    group = ClassicGroup(
        group_id,
        None if since == -1 else since,
        state=State.STABLE if value.members else State.EMPTY,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol=value.protocol,
        leader=value.leader,
    )
    for m in value.members:
        group.add(
            Member(
                m.member_id,
                instance_id=m.group_instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                rebalance_timeout_ms=m.session_timeout if m.rebalance_timeout == -1 else m.rebalance_timeout,
                session_timeout_ms=m.session_timeout,
                protocol_type=value.protocol_type,
                protocols={value.protocol or "": bytes(m.subscription)},
                assignment=bytes(m.assignment),
            )
        )
    group.refresh_subscriptions()
    return group


def stop_timers(group: ClassicGroup) -> None:
    """Cancel every timer of the group and its members."""
    for timer in (group.join_timer, group.sync_timer, *group.pending_members.values()):
        if timer is not None:
            timer.cancel()
    group.join_timer = group.sync_timer = None
    group.pending_members.clear()
    for member in group.members.values():
        if member.timer is not None:
            member.timer.cancel()
            member.timer = None
