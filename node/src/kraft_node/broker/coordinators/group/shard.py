"""The state machine of `__consumer_offsets`: the groups of one partition, and their offsets.

`coordinators.runtime` loads it, appends its records, and answers when they are committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.calls import call_each
from kraft_node.broker.coordinators.group import answers, expiry, records
from kraft_node.broker.coordinators.group.classic import ClassicGroup, ClassicState
from kraft_node.broker.coordinators.group.consumer.changes import ConsumerChange, EpochChange, MemberChange
from kraft_node.broker.coordinators.group.consumer.group import ConsumerGroup
from kraft_node.broker.coordinators.group.consumer.membership import ConsumerMembership
from kraft_node.broker.coordinators.group.member import ClassicGroupMember
from kraft_node.broker.coordinators.group.membership import Membership
from kraft_node.broker.coordinators.group.offsets import OffsetTable
from kraft_node.broker.coordinators.group.rebalance import Rebalancer
from kraft_node.broker.coordinators.group.records import Change, ForeignChange, GroupChange, OffsetChange
from kraft_node.broker.coordinators.group.shard_state import MAX_SWEEP_BATCH_RECORDS, ForeignGroup, ShardState
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.env import Rng
    from kraft_node.broker.coordinators.group.config import GroupConfig
    from kraft_node.broker.coordinators.group.consumer.services import ConsumerServices
    from kraft_node.broker.coordinators.runtime.machine import StoredRecord
    from kraft_node.broker.coordinators.runtime.shard import Phase, RuntimeShard
    from kraft_protocol.buffers import Buffer

log = logging.getLogger(__name__)

SWEEP_STEPS_A_TURN: Final = 500
"""Groups per step, before other work gets its turn on the loop."""
EXPIRY: Final = "expiry"


class Shard(ShardState):
    """The groups of one partition, a `StateMachine` of `engine`."""

    __slots__ = ("consumer_membership", "membership")

    def __init__(
        self, engine: RuntimeShard[Shard], *, config: GroupConfig, rng: Rng, services: ConsumerServices
    ) -> None:
        super().__init__(engine, config, rng)
        rebalancer = Rebalancer(self)
        self.consumer_membership = ConsumerMembership(self, services, rebalancer)
        """The membership requests of consumer groups."""
        self.membership = Membership(self, rebalancer, self.consumer_membership.classic)
        """The membership requests of classic groups."""

    @property
    def epoch(self) -> int:
        """The leader epoch of the partition in which this state was loaded."""
        return self.engine.epoch

    @property
    def phase(self) -> Phase:
        """The phase between election and resignation; only an ACTIVE shard answers requests."""
        return self.engine.phase

    # -- the state machine

    def encode(self, record: Change, /) -> StoredRecord:
        """The stored form of a change, by `records.encode_change`."""
        return records.encode_change(record)

    def decode(self, key: Buffer, value: Buffer | None, /) -> Change:
        """The change in a record, by `records.decode_change`; groups of other types become ForeignChange."""
        return records.decode_change(key, value)

    def replay(self, offset: int, producer_id: int, _producer_epoch: int, record: Change, /) -> None:
        """Apply a change; offsets of a transaction stay pending until it ends. An offset creates its group."""
        if isinstance(record, OffsetChange):
            value = record.value
            if value is not None:
                value = value._replace(record_offset=offset)
                if not self.exists(record.group):
                    self.groups[record.group] = ClassicGroup(record.group, self.clock.wall_ms())
            self.offsets.replay(offset, producer_id, (record.group, record.topic, record.partition), value)
        elif isinstance(record, GroupChange):
            self.drop_group(record.group)
            if record.value is not None:
                self._drop_consumer_group(record.group)
                self.groups[record.group] = loaded_group(record.group, record.value)
        elif isinstance(record, ForeignChange):
            self._replay_foreign(record)
        else:
            self._replay_consumer(record)

    def _replay_consumer(self, change: ConsumerChange) -> None:
        """A group may begin with any of its records: compaction may have removed the others."""
        group = self.consumers.get(change.group)
        if group is None:
            if change.value is None:
                return
            self.drop_group(change.group)
            self.foreign.pop(change.group, None)
            group = self.consumers[change.group] = ConsumerGroup(change.group)
        if change.value is None:
            if isinstance(change, EpochChange):
                self._drop_consumer_group(change.group)
                return
            if isinstance(change, MemberChange):
                self.consumer_membership.gone(change.group, change.member_id)
        group.apply(change)

    def _drop_consumer_group(self, group_id: str) -> None:
        group = self.consumers.pop(group_id, None)
        if group is not None:
            self.consumer_membership.resolver.forget(group_id)
            for member_id in group.members:
                self.consumer_membership.gone(group_id, member_id)

    def _replay_foreign(self, change: ForeignChange) -> None:
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

    def end_transaction(self, offset: int, producer_id: int, _producer_epoch: int, /, *, commit: bool) -> None:
        """Commit or drop the producer's pending offsets: only offsets are written in transactions."""
        self.offsets.end_transaction(offset, producer_id, commit=commit)

    def complete_load(self) -> Iterator[None]:
        """Nothing: `replay` has done all."""
        return iter(())

    def committed_to(self, high_watermark: int, /) -> None:
        """Show readers of committed offsets all writes below `high_watermark`."""
        self.offsets.committed_to(high_watermark)

    def loaded(self) -> None:
        """Start the timers of members and rebalances, and the periodic expiry of offsets."""
        self.membership.rebalancer.resume()
        self.consumer_membership.resume()
        self._schedule_expiry()

    def unloaded(self) -> None:
        """Drop groups and offsets; waiting requests of classic groups get NOT_COORDINATOR."""
        groups, self.groups = self.groups, {}
        self.consumers.clear()
        self.foreign.clear()
        self.offsets = OffsetTable()
        call_each([partial(self._send_away, group) for group in groups.values()])

    def _send_away(self, group: ClassicGroup) -> None:
        group.stop_timers()
        group.move_to(ClassicState.DEAD, self.clock.wall_ms())
        answers.answer_all(group, ErrorCode.NOT_COORDINATOR)

    def _schedule_expiry(self) -> None:
        self.scheduler.schedule(EXPIRY, self.config.offsets_retention_check_interval_ms, self._expire)

    def _expire(self) -> None:
        self.sweep(partial(expiry.expired, self))
        self._schedule_expiry()

    # -- sweeping

    def sweep(self, plan: Callable[[str], list[Change]]) -> None:
        """Write the changes of `plan(group_id)` for every group, a few groups per turn of the loop."""
        ids = [*self.groups, *self.consumers, *self.foreign]
        self._sweep_turn(iter(ids), plan)

    def _sweep_turn(self, ids: Iterator[str], plan: Callable[[str], list[Change]]) -> None:
        changes: list[Change] = []
        seen = 0
        for group_id in islice(ids, SWEEP_STEPS_A_TURN):
            seen += 1
            if not self.exists(group_id):
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
            log.warning("offsets were not removed partition=__consumer_offsets-%d error=%s", self.partition, error)


def loaded_group(group_id: str, value: Any) -> ClassicGroup:
    """A group as in its GroupMetadataValue: Stable with members, Empty without."""
    since = value.current_state_timestamp
    group = ClassicGroup(
        group_id,
        None if since == -1 else since,
        state=ClassicState.STABLE if value.members else ClassicState.EMPTY,
        generation=value.generation,
        protocol_type=value.protocol_type or None,
        protocol=value.protocol,
        leader=value.leader,
    )
    for m in value.members:
        group.add(
            ClassicGroupMember(
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
