"""The groups of one partition of `__consumer_offsets` as data, and the writes that change them.

The parts of a shard take this: requests of members, time-outs, expiry. `shard.Shard` puts them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kraft_node.broker.coordinators.group import answers, records
from kraft_node.broker.coordinators.group.classic import ClassicGroup, ClassicState
from kraft_node.broker.coordinators.group.consumer import leaving
from kraft_node.broker.coordinators.group.offsets import OffsetTable
from kraft_node.broker.coordinators.group.records import Change, GroupChange
from kraft_node.broker.coordinators.runtime.machine import PlannedWrite
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.env import Rng
    from kraft_node.broker.coordinators.group.config import GroupConfig
    from kraft_node.broker.coordinators.group.consumer.group import ConsumerGroup
    from kraft_node.broker.coordinators.runtime.shard import Done, RuntimeShard

MAX_SWEEP_BATCH_RECORDS: Final = 1_000
"""Tombstones of expiry and topic deletion are written in batches of this size: far below any max.message.bytes."""


class ForeignGroup:
    """A group of another type found in the log: its type and the keys of its records."""

    __slots__ = ("keys", "kind")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.keys: set[bytes] = set()


class ShardState:
    """The groups of one partition and their offsets; `engine` writes the changes.

    `write` may call back before it returns (the append failed, or a single replica commits at once), so callers must
    update their state first.
    """

    __slots__ = ("clock", "config", "consumers", "engine", "foreign", "groups", "offsets", "rng", "scheduler")

    def __init__(self, engine: RuntimeShard[Any], config: GroupConfig, rng: Rng) -> None:
        self.engine = engine
        self.config = config
        self.clock = engine.clock
        self.scheduler = engine.scheduler
        self.rng = rng
        self.groups: dict[str, ClassicGroup] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        self.foreign: dict[str, ForeignGroup] = {}
        self.offsets = OffsetTable()

    @property
    def partition(self) -> int:
        """The number of the partition of `__consumer_offsets`."""
        return self.engine.partition

    # -- writing

    def write(self, changes: Sequence[Change], done: Done, *, apply: bool = True) -> bool:
        """Append `changes` as one operation and call `done` with None when committed, or with the error.

        `apply=False` is for snapshots of a group with members that are in memory already. Returns False if nothing was
        appended (then `done` was called with the reason).
        """
        return self.engine.write(PlannedWrite(changes, None, replay=apply), done)

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
        """Call `done` when all present records of the log are committed; at once if they are."""
        self.engine.after_writes(done)

    # -- groups

    def exists(self, group_id: str) -> bool:
        """Whether a group of any type with the id exists."""
        return group_id in self.groups or group_id in self.consumers or group_id in self.foreign

    def drop_group(self, group_id: str) -> None:
        """Forget a classic group. Its waiting requests get UNKNOWN_MEMBER_ID."""
        group = self.groups.pop(group_id, None)
        if group is not None:
            group.stop_timers()
            group.move_to(ClassicState.DEAD, self.clock.wall_ms())
            answers.answer_all(group, ErrorCode.UNKNOWN_MEMBER_ID)

    def create_group(self, group_id: str) -> ClassicGroup:
        """Add an empty classic group in memory; nothing is written. The id must not be in use."""
        group = self.groups[group_id] = ClassicGroup(group_id, self.clock.wall_ms())
        return group

    def removal_of(self, group_id: str) -> list[Change]:
        """The tombstones that remove the group itself, not its offsets."""
        foreign = self.foreign.get(group_id)
        if foreign is not None:
            return list(records.foreign_removals(group_id, foreign.kind, foreign.keys))
        consumer = self.consumers.get(group_id)
        if consumer is not None:
            return list(leaving.removal(consumer))
        return [GroupChange(group_id, None)]
