"""One replica on this broker: leadership, ISR, high watermark, and the reads and appends that these allow.

The handlers call it through `ReplicaManager`. It does not know requests: results are values, failures are `KafkaError`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kraft_node.base.calls import call_each
from kraft_node.log.appending import append_own
from kraft_node.log.trimming import DROP_STEP
from kraft_node.partition.acks import ACKS_ALL, Acks, Waiter
from kraft_node.partition.deleting import delete_records
from kraft_node.partition.isolation import READ_COMMITTED, READ_LOG_END, READ_UNCOMMITTED
from kraft_node.partition.leadership import Leadership
from kraft_node.partition.surroundings import Alone, Proposal, Surroundings
from kraft_node.partition.watching import Crowd, Watcher, Watchers, added, removed
from kraft_protocol.buffers import Buffer
from kraft_protocol.errors import ErrorCode, KafkaError, error_name
from kraft_protocol.ids import Uuid

if TYPE_CHECKING:
    from kraft_node.base.turns import Turns
    from kraft_node.log.log import Log
    from kraft_node.log.producers.verification import Guard
    from kraft_node.log.results import AppendInfo, FetchSlice
    from kraft_node.log.validate import Checked
    from kraft_node.metadata.partitions import PartitionState

log = logging.getLogger(__name__)

UNKNOWN_OFFSET: Final = -1
UNKNOWN_EPOCH: Final = -1


_ALONE: Final = Alone()


class ReplicaEpochEnd(NamedTuple):
    """The end of the largest epoch at or below the requested epoch; both -1 without an epoch there."""

    epoch: int
    end_offset: int


class Partition:
    """A replica. The manager that creates it opens `log`."""

    __slots__ = (
        "_acks",
        "_deletes",
        "_turns",
        "bytes_in",
        "bytes_out",
        "end_watchers",
        "index",
        "is_leader",
        "isr",
        "lead",
        "leader_epoch",
        "leader_id",
        "leader_start_offset",
        "log",
        "messages_in",
        "node_id",
        "partition_epoch",
        "replicas",
        "surroundings",
        "topic",
        "topic_id",
        "watchers",
    )

    def __init__(
        self,
        node_id: int,
        topic: str,
        topic_id: Uuid,
        index: int,
        log: Log,
        surroundings: Surroundings = _ALONE,
        turns: Turns | None = None,
    ) -> None:
        """`turns`: where very many watchers are notified. Without it, all are notified at once."""
        self.node_id = node_id
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.surroundings = surroundings
        self._turns = turns
        self.is_leader = False
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.leader_start_offset = 0
        """The end of the log when this broker became leader in `leader_epoch`."""
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.lead: Leadership | None = None
        """The followers, while this broker leads and the partition has other replicas."""
        self.watchers: Watchers = None
        """Readers of committed records, below the high watermark."""
        self.end_watchers: Watchers = None
        """Readers of the log's end (followers); they are also notified when the high watermark moves."""
        self._acks: Acks | None = None
        """Callbacks that wait for the high watermark, by offset."""
        self._deletes: list[Waiter] | None = None
        """Callbacks that wait for the low watermark."""
        self.messages_in = 0
        self.bytes_in = 0
        """Records and bytes that producers have appended since this replica was opened; for metrics."""
        self.bytes_out = 0
        """Bytes read for consumers."""

    def __repr__(self) -> str:
        return f"Partition({self.topic}-{self.index}, leader {self.leader_id} epoch {self.leader_epoch})"

    # --- decisions of the controller ---

    def follow(self, state: PartitionState) -> None:
        """Apply the committed state. A new leader epoch is written into the log before the first append in it.

        A state that is older than the controller's answer to a proposal is ignored.
        """
        if state.partition_epoch < self.partition_epoch and state.leader_epoch <= self.leader_epoch:
            return
        led_epoch = self.leader_epoch if self.is_leader else -1
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = state.replicas
        self.isr = state.isr
        self.is_leader = state.leader == self.node_id
        try:
            if self.is_leader:
                self._lead(state, is_new_epoch=led_epoch != state.leader_epoch)
            else:
                self._lead_no_more()
                if not self.decides_alone:
                    self._finish_waiting(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        finally:
            self._notify_all(0)

    def _lead(self, state: PartitionState, *, is_new_epoch: bool) -> None:
        if is_new_epoch:
            self.leader_start_offset = self.log.end_offset
            self.log.leader_epochs.assign(state.leader_epoch, self.leader_start_offset)
            self._lead_no_more()
        if len(state.replicas) == 1:
            self._lead_no_more()
        elif self.lead is None:
            self.lead = Leadership(self, self.surroundings)
            self.lead.begin_epoch(state)
        else:
            self.lead.assigned(state)
        self._advance(0)
        if self.lead is not None:
            self.lead.consider_all()
            self._settle_deletes()

    def _lead_no_more(self) -> None:
        if self.lead is not None:
            self.lead.end()
            self.lead = None

    def close(self, error: ErrorCode) -> None:
        """Close the replica: pending acknowledgements fail with `error`, and watchers are notified."""
        self.is_leader = False
        self._lead_no_more()
        call_each((partial(self._finish_waiting, error), partial(self._notify_all, 0)))

    # --- checks ---

    def check_epoch(self, epoch: int) -> None:
        """Raise FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH unless `epoch` is the current epoch or -1."""
        if epoch in (UNKNOWN_EPOCH, self.leader_epoch):
            return
        if epoch < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self.topic}-{self.index}: leader epoch {epoch} is older than {self.leader_epoch}",
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self.topic}-{self.index}: leader epoch {epoch} is newer than {self.leader_epoch}",
        )

    def check_leader(self) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER unless this broker leads."""
        if not self.is_leader:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self.node_id} is not the leader of {self.topic}-{self.index}, broker {self.leader_id} is",
            )

    @property
    def min_isr(self) -> int:
        """min.insync.replicas, limited to the number of replicas."""
        return min(self.log.config.min_insync_replicas, len(self.replicas))

    # --- appending ---

    def append(
        self,
        records: Buffer,
        acks: int,
        now_ms: int,
        *,
        internal: bool = False,
        checked: Checked | None = None,
        guard: Guard | None = None,
    ) -> AppendInfo:
        """Append one producer's batches as leader. The high watermark has moved when this returns.

        `guard`: the proof that a transaction may begin here. Raises NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS
        (acks=all, too small an ISR), or like `Log.append_as_leader`.
        """
        if not self.is_leader:
            self.check_leader()
        if acks == ACKS_ALL and len(self.isr) < len(self.replicas) and len(self.isr) < self.min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic}-{self.index} has {len(self.isr)} in-sync replicas, needs {self.min_isr}",
            )
        log = self.log
        epoch = self.leader_epoch
        if internal:
            info = append_own(log, records, epoch, now_ms, guard)
        else:
            info = log.append_as_leader(records, epoch, now_ms, checked=checked, guard=guard)
        size = len(records)
        self.messages_in += info.last_offset - info.base_offset + 1
        self.bytes_in += size
        lead = self.lead
        try:
            if lead is None and log.unsettled is None:
                log.high_watermark = log.end_offset
                if self.watchers is not None:
                    self._notify(size)
            elif lead is None:
                self._advance(size)
            else:
                if lead.any_at_end:
                    lead.left_behind()
                if len(self.isr) == 1:
                    self._advance(size)
        finally:  # followers must get the records even if a watcher fails
            if self.end_watchers is not None:
                self._notify_end(size)
        return info

    def settled_end(self) -> int:
        """The offset up to which the own log counts for the high watermark. A flush that raises it moves both."""
        unsettled = self.log.unsettled
        if unsettled is not None:
            unsettled.moved = self._settled
        return self.log.settled_end

    def _settled(self) -> None:
        if self.is_leader or self.decides_alone:
            self._advance(0)

    @property
    def decides_alone(self) -> bool:
        """Whether this broker is the only replica, without a leader: a flush that ends after its leadership counts."""
        return self.leader_id < 0 and self.replicas == (self.node_id,)

    def moved(self, log: Log) -> None:
        """From now on the replica is in `log`, the copy of its log in another directory."""
        self.log = log
        self._settled()

    def is_replicated(self, offset: int) -> bool:
        """Whether every record below `offset` is below the high watermark."""
        return self.log.high_watermark >= offset

    def acks_enough(self) -> bool:
        """Whether the ISR is still large enough to acknowledge the records that were just replicated."""
        isr = self.isr if self.lead is None else self.lead.maximal_isr
        return len(isr) >= self.min_isr

    def when_replicated(self, offset: int, done: Callable[[ErrorCode], None]) -> None:
        """Call `done` once every record below `offset` is below the high watermark, or with an error code.

        The code is NOT_ENOUGH_REPLICAS_AFTER_APPEND if the ISR has become too small, NOT_LEADER_OR_FOLLOWER if this
        broker lost the leadership. The caller limits the number and the duration of waits.
        """
        if self._acks is None:
            self._acks = Acks()
        self._acks.add(offset, done)

    def forget_ack(self, done: Callable[[ErrorCode], None]) -> None:
        """Undo `when_replicated`. Allowed if `done` was called already."""
        acks = self._acks
        if acks is not None:
            acks.forget(done)
            if not acks:
                self._acks = None

    def _advance(self, appended_bytes: int) -> bool:
        """Move the high watermark as far as the relevant replicas allow. Returns whether it moved."""
        log = self.log
        high_watermark = self.settled_end() if self.lead is None else self.lead.replicated_end()
        if high_watermark <= log.high_watermark:
            return False
        log.high_watermark = high_watermark
        try:
            if self._acks is not None:
                self._settle_acks(high_watermark)
        finally:
            self._notify(appended_bytes)
        return True

    def _settle_acks(self, high_watermark: int) -> None:
        acks = self._acks
        assert acks is not None
        due = acks.take(high_watermark)
        if not acks:
            self._acks = None
        code = ErrorCode.NONE if self.acks_enough() else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        call_each(due, code)

    def _finish_waiting(self, error: ErrorCode) -> None:
        waiting = [] if self._acks is None else self._acks.take_all()
        waiting += [done for _, done in self._deletes or ()]
        self._acks = self._deletes = None
        call_each(waiting, error)

    # --- followers of this leader ---

    def follower_fetched(
        self, broker_id: int, broker_epoch: int, offset: int, start_offset: int, *, names_epoch: bool = True
    ) -> None:
        """Note that a follower fetches from `offset`, in its incarnation `broker_epoch` (-1: unknown).

        It has all earlier records: the high watermark may move, and the follower may join the ISR. Raises
        UNKNOWN_LEADER_EPOCH for a broker that is not a known replica and names the leader's epoch (`names_epoch`).
        Raises NOT_LEADER_OR_FOLLOWER if it does not name the epoch, or if a newer incarnation has fetched before.
        """
        lead = self.lead
        follower = None if lead is None else lead.followers.get(broker_id)
        if lead is None or follower is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH if names_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {broker_id} is not a replica of {self.topic}-{self.index} in partition epoch "
                f"{self.partition_epoch}",
            )
        end_before = follower.end_offset
        if not follower.fetched(offset, start_offset, broker_epoch, self.log.end_offset):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.topic}-{self.index}: an older incarnation of broker {broker_id} fetches",
            )
        if follower.at_end:
            lead.any_at_end = True
        if broker_id not in self.isr:
            lead.consider_joining(follower)
        if follower.end_offset != end_before:
            self._advance(0)
        if self._deletes is not None:
            self._settle_deletes()

    @property
    def proposal(self) -> Proposal | None:
        """The ISR that the controller has not answered yet; None without one, or if this broker does not lead."""
        return None if self.lead is None else self.lead.proposal

    def isr_answered(self, proposal: Proposal, row: Any) -> bool:
        """Handle the controller's row of an AlterPartitionResponse for `proposal`. Returns whether to propose again."""
        lead = self.lead
        if lead is None or proposal.leader_epoch != self.leader_epoch:
            return False
        if row.error_code:
            again = lead.refused(proposal, ErrorCode(row.error_code))
            if not again:
                log.info(
                    "ISR was refused partition=%s-%d isr=%s error=%s",
                    self.topic, self.index, proposal.isr, error_name(row.error_code),
                )  # fmt: skip
                self._advance(0)
            return again
        if row.leader_epoch != self.leader_epoch or row.partition_epoch < self.partition_epoch:
            return False  # committed metadata has overtaken the answer
        if lead.proposal is proposal:
            lead.proposal = None
        log.debug("ISR changed partition=%s-%d isr=%s former=%s", self.topic, self.index, row.isr, self.isr)
        self.isr = tuple(row.isr)
        self.partition_epoch = row.partition_epoch
        self._advance(0)
        lead.consider_all()
        return False

    @property
    def low_watermark(self) -> int:
        """The offset from which on all live replicas keep their records."""
        return self.log.start_offset if self.lead is None else self.lead.low_watermark()

    def when_deleted(self, offset: int, done: Callable[[ErrorCode], None]) -> None:
        """Call `done` once no live replica keeps records before `offset`, or with an error code."""
        if self._deletes is None:
            self._deletes = []
        self._deletes.append((offset, done))

    def _settle_deletes(self) -> None:
        if self._deletes is not None:
            low = self.low_watermark
            due = [done for offset, done in self._deletes if offset <= low]
            self._deletes = [entry for entry in self._deletes if entry[0] > low] or None
            call_each(due, ErrorCode.NONE)

    def look_at_followers(self) -> None:
        """Periodic check: lagging followers leave the ISR, caught-up followers join."""
        if self.lead is not None:
            self.lead.drop_laggards()
            self.lead.consider_all()
            self._advance(0)
            self._settle_deletes()

    # --- following ---

    def append_fetched(self, records: Buffer, rolls_max: int | None = None) -> int:
        """Append the batches of the current epoch's leader unchanged. Returns their size in bytes.

        `rolls_max` and errors: see `Log.append_as_follower`.
        """
        size = self.log.append_as_follower(records, self.leader_epoch, rolls_max)
        if size and self.end_watchers is not None:
            self._notify_end(size)
        return size

    def follow_leader(self, high_watermark: int, start_offset: int, appended_bytes: int) -> None:
        """Apply the leader's high watermark and log start, as far as this replica's log reaches."""
        log = self.log
        high_watermark = min(high_watermark, log.end_offset)
        if high_watermark > log.high_watermark:
            log.high_watermark = high_watermark
            if self.watchers is not None:
                self._notify(appended_bytes)
        if start_offset > log.start_offset:
            log.delete_records(start_offset, DROP_STEP)

    # --- watching ---

    def watch(self, watcher: Watcher, isolation: int = READ_UNCOMMITTED, missing_bytes: int = 1) -> None:
        """Notify `watcher` once, soon after the next change that is visible to readers with this isolation.

        Appends of less than `missing_bytes` may be left out.
        """
        if isolation == READ_LOG_END:
            self.end_watchers = added(self.end_watchers, watcher, self._turns, missing_bytes)
        else:
            self.watchers = added(self.watchers, watcher, self._turns, missing_bytes)

    def unwatch(self, watcher: Watcher) -> None:
        """Do not notify `watcher`. Allowed if it was notified or was never watching."""
        if self.watchers is not None:
            self.watchers = removed(self.watchers, watcher)
        if self.end_watchers is not None:
            self.end_watchers = removed(self.end_watchers, watcher)

    def _notify(self, appended_bytes: int) -> None:
        """Notify all watchers, even if some raise; then raise the first exception."""
        watchers, ends = self.watchers, self.end_watchers
        try:
            if isinstance(watchers, Crowd):
                watchers.notify(appended_bytes)
            elif watchers is not None:
                self.watchers = None
                call_each([watcher.partition_changed for watcher in watchers], appended_bytes)
        finally:
            if isinstance(ends, Crowd):
                ends.notify(0)
            elif ends is not None:
                call_each([watcher.high_watermark_moved for watcher in ends])

    def _notify_end(self, appended_bytes: int) -> None:
        watchers = self.end_watchers
        if isinstance(watchers, Crowd):
            watchers.notify(appended_bytes)
        elif watchers is not None:
            self.end_watchers = None
            call_each([watcher.partition_changed for watcher in watchers], appended_bytes)

    def _notify_all(self, appended_bytes: int) -> None:
        try:
            self._notify(appended_bytes)
        finally:
            self._notify_end(appended_bytes)

    # --- reading ---

    def readable_end(self, isolation: int) -> int:
        """The offset before which readers with this isolation may see records."""
        if isolation == READ_UNCOMMITTED:
            return self.log.high_watermark
        if isolation == READ_COMMITTED:
            return self.log.last_stable_offset
        return self.log.end_offset

    def read(self, offset: int, max_bytes: int, isolation: int, *, min_one: bool, waits: bool = True) -> FetchSlice:
        """Records from the batch that holds `offset` on, up to `max_bytes` (a first whole batch if `min_one`).

        Raises OFFSET_OUT_OF_RANGE if `offset` is before the log's start or after its end; ColdRead like `Log.read`.
        """
        return self.log.read(offset, max_bytes, min_one=min_one, limit_offset=self.readable_end(isolation), waits=waits)

    def diverging(self, offset: int, last_fetched_epoch: int) -> ReplicaEpochEnd | None:
        """Where the reader's log and this log diverge; None if the reader's record before `offset` can be in this log.

        Raises OFFSET_OUT_OF_RANGE if this log has neither that epoch nor an earlier epoch.
        """
        if last_fetched_epoch == UNKNOWN_EPOCH:
            return None
        end = self.epoch_end(last_fetched_epoch)
        if end.epoch == UNKNOWN_EPOCH or end.end_offset == UNKNOWN_OFFSET:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic}-{self.index}: no end offset is known for epoch {last_fetched_epoch}",
            )
        if end.epoch < last_fetched_epoch or end.end_offset < offset:
            return end
        return None

    def epoch_end(self, epoch: int) -> ReplicaEpochEnd:
        """The end offset of the largest epoch at or below `epoch`."""
        if epoch == self.log.leader_epochs.latest_epoch:
            return ReplicaEpochEnd(epoch, self.log.end_offset)
        found_epoch, end_offset = self.log.leader_epochs.end_offset_for(epoch, self.log.end_offset)
        return ReplicaEpochEnd(found_epoch, end_offset)

    def delete_records(self, before_offset: int) -> int:
        """Make `before_offset` (-1: the high watermark) the log's start. Raises like `deleting.delete_records`."""
        self.check_leader()
        start = delete_records(self.log, before_offset)
        self._notify_all(0)
        return start
