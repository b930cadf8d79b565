"""One partition that this broker leads: its state machine, its phase, and its writes that are not committed yet.

`write` may call `done` before it returns: the log refuses the records, or a single replica commits at once. So callers
must update their own state first.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from kraft_node.base import rare
from kraft_node.base.calls import call_each
from kraft_node.broker.coordinators.runtime.batch import OpenBatch, size_of
from kraft_node.broker.coordinators.runtime.machine import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    PlannedWrite,
    StateMachine,
    StoredRecord,
    TransactionalProducer,
)
from kraft_node.broker.coordinators.runtime.timers import ShardTimers
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.env import Clock, Scheduler, Timer
    from kraft_node.broker.coordinators.runtime.measures import RuntimeMeasures
    from kraft_node.broker.coordinators.runtime.seams import PartitionLogs

log = logging.getLogger(__name__)

NO_LINGER: Final = 0
LINGER_FOR_THE_TURN: Final = -1
TIMED_OUT_PAUSE_MS: Final = 50
"""Between two searches for timed-out responses: the cost of a search is proportional to the waiting responses."""

Done: TypeAlias = Callable[[KafkaError | None], None]
"""Called with None when a write is committed, or with the error of the log or of the shard (`failures` translates)."""

MachineT = TypeVar("MachineT", bound=StateMachine[Any])


class Phase(Enum):
    """The phase of the partition between election and resignation."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


@dataclass(slots=True)
class RuntimeConfig:
    """The settings of one coordinator's runtime; durations in milliseconds."""

    topic: str
    """The internal topic."""
    commit_timeout_ms: int = 5_000
    """How long a response may wait for the commit; then it is REQUEST_TIMED_OUT."""
    append_linger_ms: int = LINGER_FOR_THE_TURN
    """How long a batch collects operations. -1: until the end of the present turn of the loop; 0: each operation has
    its own batch."""


class _Waiting:
    """A response that waits until everything below `end_offset` is committed."""

    __slots__ = ("begun_ms", "deadline_ms", "done", "end_offset")

    def __init__(self, end_offset: int, begun_ms: int, deadline_ms: int, done: Done) -> None:
        self.end_offset = end_offset
        self.begun_ms = begun_ms
        self.deadline_ms = deadline_ms
        self.done = done


class RuntimeShard(Generic[MachineT]):
    """A partition between election and resignation. `close` drops its state; loading restores it from the log."""

    __slots__ = (
        "_appending",
        "_batch",
        "_commit_timer",
        "_commit_timer_due_ms",
        "_expecting",
        "_high_watermark",
        "_lost",
        "_soonest_ms",
        "_waiting",
        "_written_to",
        "clock",
        "config",
        "epoch",
        "machine",
        "measures",
        "partition",
        "phase",
        "store",
        "timers",
    )

    def __init__(
        self,
        partition: int,
        epoch: int,
        *,
        store: PartitionLogs,
        config: RuntimeConfig,
        measures: RuntimeMeasures,
        clock: Clock,
        scheduler: Scheduler,
        make: Callable[[RuntimeShard[MachineT]], MachineT],
        lost: Callable[[RuntimeShard[MachineT]], None],
    ) -> None:
        """`make` makes the state machine. `lost(shard)`: its state is ahead of its log, so it must be loaded again."""
        self.partition = partition
        self.epoch = epoch
        self.store = store
        self.config = config
        self.measures = measures
        self.clock = clock
        self.timers = ShardTimers(scheduler)
        self.phase = Phase.LOADING
        self._lost = lost
        self._waiting: deque[_Waiting] = deque()
        self._written_to = 0
        """The end of the replayed records; below the log's end only if others wrote, above it by the open batch."""
        self._high_watermark = 0
        self._commit_timer: Timer | None = None
        self._commit_timer_due_ms = 0
        self._soonest_ms = 0
        """No waiting response times out before."""
        self._expecting = False
        self._appending = False
        self._batch: OpenBatch | None = None
        self.machine = make(self)

    def __repr__(self) -> str:
        return f"{self.config.topic}-{self.partition} ({self.phase.value}, epoch {self.epoch})"

    @property
    def scheduler(self) -> ShardTimers:
        """Schedules calls that end with the shard."""
        return self.timers

    @property
    def high_watermark(self) -> int:
        """Everything below it is committed, as far as the state machine knows."""
        return self._high_watermark

    @property
    def written_to(self) -> int:
        """The end of what the state machine has replayed."""
        return self._written_to

    @property
    def has_open_batch(self) -> bool:
        """Whether replayed records are not in the log yet."""
        return self._batch is not None

    def activate(self) -> None:
        """The log was read to its end: requests are accepted."""
        self.phase = Phase.ACTIVE
        self._written_to = self.store.end_offset(self.partition)
        self._settle()
        self.machine.loaded()

    def check(self) -> None:
        """Raise the error for requests while the partition cannot be used."""
        if self.phase is Phase.ACTIVE:
            return
        if self.phase is Phase.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"partition {self.partition} is being loaded")
        raise KafkaError(ErrorCode.NOT_COORDINATOR, f"partition {self.partition} is {self.phase.value} here")

    # -- writing

    def write(self, planned: PlannedWrite[Any, Any], done: Done) -> bool:
        """Append and replay the records, and call `done` with None when they are committed, or with the error.

        Returns False if nothing was changed (then `done` was called with the reason).
        """
        if not planned.records:
            self.after_writes(done, planned.timeout_ms)
            return True
        lingers = planned.producer is None and self.config.append_linger_ms != NO_LINGER
        try:
            self.check()
            room = self.store.room(self.partition, self.epoch) if lingers else 0
        except KafkaError as error:
            done(error)
            return False
        encode = self.machine.encode
        encoded = [encode(record) for record in planned.records]
        size = size_of(encoded) if lingers else 0
        if not lingers or size > room:
            return self._write_now(planned, encoded, done)
        if self._batch is None or (self._batch.size + size <= room and not rare.takes("coordinator batch full")):
            return self._collect(planned, encoded, size, done)
        if not self._append_batch():
            done(_away(self))
            return False
        is_changed = self._collect(planned, encoded, size, done)
        self._settle()
        return is_changed

    def _write_now(self, planned: PlannedWrite[Any, Any], encoded: list[StoredRecord], done: Done) -> bool:
        """Append as a batch of its own, then replay."""
        if not self._append_batch():
            done(_away(self))
            return False
        now_ms, producer = self.clock.wall_ms(), planned.producer
        append = partial(self.store.append, self.partition, self.epoch, encoded, now_ms, producer)
        base = self._append(append, done)
        if base is None:
            return False
        self.measures.batches += 1
        self._written_to = base + len(encoded)
        if not self._replay(base, planned):
            done(_failed_to_replay(self))
            self._lost(self)
            return True
        if not self._commits_at_once():
            self._wait(done, planned.timeout_ms)
            self._settle()
            return True
        self.measures.purgatory_ms.observe(0)
        done(None)
        return True

    def _commits_at_once(self) -> bool:
        """Whether everything is committed already and no response waits: with a single replica, nearly always."""
        if self._waiting or self.phase is not Phase.ACTIVE:
            return False
        try:
            high_watermark = self.store.high_watermark(self.partition)
        except KafkaError:
            return False
        if high_watermark < self._written_to:
            return False
        self._high_watermark = high_watermark
        self.machine.committed_to(high_watermark)
        return True

    def _append(self, append: Callable[[], int], done: Done) -> int | None:
        """The offset of what `append` appends. None if it fails: then `done` was called with the error."""
        self._appending = True
        try:
            return append()
        except KafkaError as error:
            refusal = error
        finally:
            self._appending = False
        if refusal.code == ErrorCode.KAFKA_STORAGE_ERROR:  # when the log is opened again, it may have the records
            call_each([partial(self._lost, self), partial(done, refusal)])
        else:
            done(refusal)
            self._settle()
        return None

    def _collect(self, planned: PlannedWrite[Any, Any], encoded: list[StoredRecord], size: int, done: Done) -> bool:
        """Replay now, and append with others."""
        batch = self._batch
        if batch is None:
            batch = self._batch = OpenBatch(self.store.end_offset(self.partition), self.clock.monotonic_ms())
            linger_ms = self.config.append_linger_ms
            if linger_ms == LINGER_FOR_THE_TURN:
                self.timers.call_soon(self._linger_over, batch)
            else:
                self.timers.call_later(linger_ms, self._linger_over, batch)
        if not self._replay(batch.end, planned):
            done(_failed_to_replay(self))
            if self._append_batch():
                self._lost(self)
            return True
        batch.add(encoded, size)
        self._written_to = batch.end
        self._wait(done, planned.timeout_ms)
        return True

    def _linger_over(self, batch: OpenBatch) -> None:
        if self._batch is batch and self._append_batch():
            self._settle()

    def _append_batch(self) -> bool:
        """Append the open batch. Returns False if the append failed: then its operations have failed, and the shard is
        lost.

        Responses of committed writes wait for `_settle`, because they may write.
        """
        batch, self._batch = self._batch, None
        if batch is None or not batch.records:
            return True
        self._appending = True
        try:
            base = self.store.append(self.partition, self.epoch, batch.records, self.clock.wall_ms())
        except KafkaError as error:
            log.warning("records were not appended shard=%r count=%d error=%s", self, len(batch.records), error)
            self._fail_from(batch.base, error)
            return False
        finally:
            self._appending = False
        self.measures.batches += 1
        self.measures.linger_ms.observe(self.clock.monotonic_ms() - batch.begun_ms)
        if base != batch.base:
            log.error(
                "batch was appended at another offset, loading again shard=%r expected=%d offset=%d",
                self,
                batch.base,
                base,
            )
            self._lost(self)
            return False
        return True

    def _fail_from(self, base: int, error: KafkaError) -> None:
        """The records from `base` on are not in the log, but were replayed."""
        failed = [one.done for one in self._waiting if one.end_offset > base]
        self._waiting = deque(one for one in self._waiting if one.end_offset <= base)
        try:
            self._lost(self)
        finally:
            call_each(failed, error)

    def _replay(self, base: int, planned: PlannedWrite[Any, Any]) -> bool:
        """Apply new records. Returns False if the state machine cannot: its state is then unreliable."""
        if not planned.replay:
            return True
        producer = planned.producer
        producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
        producer_epoch = NO_PRODUCER_EPOCH if producer is None else producer.epoch
        replay = self.machine.replay
        try:
            for i, record in enumerate(planned.records):
                replay(base + i, producer_id, producer_epoch, record)
        except Exception:  # a defect of one operation must not leave half of its changes to all others
            log.exception("records of an operation cannot be replayed shard=%r", self)
            return False
        return True

    def end_transaction(
        self, producer: TransactionalProducer, done: Done, *, commit: bool, coordinator_epoch: int
    ) -> None:
        """Append the marker that ends the producer's transaction here; `done` as in `write`."""
        try:
            self.check()
        except KafkaError as error:
            done(error)
            return
        if not self._append_batch():
            done(_away(self))
            return
        append = partial(self.store.append_marker, self.partition, self.epoch, producer, self.clock.wall_ms())
        offset = self._append(partial(append, commit=commit, coordinator_epoch=coordinator_epoch), done)
        if offset is None:
            return
        self.marker_appended(offset, producer, commit=commit)
        self._wait(done, None)
        self._settle()

    def marker_appended(self, offset: int, producer: TransactionalProducer, *, commit: bool) -> None:
        """A transaction marker is at `offset` of the log."""
        self._written_to = max(self._written_to, offset + 1)
        self.machine.end_transaction(offset, producer.producer_id, producer.epoch, commit=commit)

    # -- commits

    def after_writes(self, done: Done, timeout_ms: int | None = None) -> None:
        """Call `done` when all present records of the log are committed; at once if they are.

        This includes loaded records: after a restart the checkpointed high watermark may be below records that an
        earlier leader acknowledged. It also includes writes that have timed out.
        """
        try:
            self.check()
        except KafkaError as error:
            done(error)
            return
        if self._high_watermark < self._written_to:
            self._wait(done, timeout_ms)
            self._await_commit()
        else:
            done(None)

    def _wait(self, done: Done, timeout_ms: int | None) -> None:
        """Let `done` wait until everything that is written by now is committed."""
        now_ms = self.clock.monotonic_ms()
        due_ms = now_ms + (self.config.commit_timeout_ms if timeout_ms is None else timeout_ms)
        if not self._waiting or due_ms < self._soonest_ms:
            self._soonest_ms = due_ms
        self._waiting.append(_Waiting(self._written_to, now_ms, due_ms, done))

    def _settle(self) -> None:
        """Look how far the log is committed, and have the log call back when more of it is."""
        if self.phase is not Phase.ACTIVE:
            return
        try:
            high_watermark = self.store.high_watermark(self.partition)
        except KafkaError:
            return  # the leadership is lost: the shard must resign
        try:
            self.high_watermark_moved(high_watermark)
        finally:
            self._await_commit()

    def _await_commit(self) -> None:
        """Have the log call back at the next commit (at most one call is expected), and time out responses."""
        if self._waiting and (self._commit_timer is None or self._soonest_ms < self._commit_timer_due_ms):
            self._set_commit_timer()
        if self._expecting or self._high_watermark >= self._written_to or self.phase is not Phase.ACTIVE:
            return
        self._expecting = True
        next_end = self._waiting[0].end_offset if self._waiting else self._written_to
        self.store.when_committed(
            self.partition, max(next_end, self._high_watermark + 1), self._committed, self._closed
        )

    def _set_commit_timer(self) -> None:
        if self._commit_timer is not None:
            self._commit_timer.cancel()
        self._commit_timer_due_ms = self._soonest_ms
        delay_ms = max(0, self._soonest_ms - self.clock.monotonic_ms())
        self._commit_timer = self.timers.call_later(delay_ms, self._commit_timed_out)

    def _committed(self) -> None:
        self._expecting = False
        if not self._appending:  # else: once the records that are being appended have been replayed
            self._settle()

    def _closed(self) -> None:
        """The log was closed, so its commits are no longer reported. Opened again, it may have another end."""
        self._lost(self)

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Everything below `high_watermark` is committed."""
        if high_watermark <= self._high_watermark:
            return
        self._high_watermark = high_watermark
        self.machine.committed_to(high_watermark)
        waiting = self._waiting
        if not waiting or waiting[0].end_offset > high_watermark:
            return
        now_ms, observe = self.clock.monotonic_ms(), self.measures.purgatory_ms.observe
        committed = []
        while waiting and waiting[0].end_offset <= high_watermark:
            one = waiting.popleft()
            committed.append(one.done)
            observe(now_ms - one.begun_ms)
        call_each(committed, None)

    def _commit_timed_out(self) -> None:
        self._commit_timer = None
        if not self._waiting:
            return
        now_ms = self.clock.monotonic_ms()
        late = [one.done for one in self._waiting if one.deadline_ms <= now_ms]
        if late:
            self._waiting = deque(one for one in self._waiting if one.deadline_ms > now_ms)
        if self._waiting:
            self._soonest_ms = max(now_ms + TIMED_OUT_PAUSE_MS, min(one.deadline_ms for one in self._waiting))
            self._set_commit_timer()
        call_each(late, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the records were not committed in time"))

    # -- ending

    def close(self, phase: Phase = Phase.CLOSED) -> None:
        """Drop all state, and answer waiting requests that this is no longer the coordinator."""
        self.phase = phase
        self.timers.cancel_all()
        self._commit_timer = self._batch = None
        waiting, self._waiting = self._waiting, deque()
        away = _away(self)
        call_each([*(partial(one.done, away) for one in waiting), self.machine.unloaded])


def _away(shard: RuntimeShard[Any]) -> KafkaError:
    return KafkaError(ErrorCode.NOT_COORDINATOR, f"partition {shard.partition} moved away")


def _failed_to_replay(shard: RuntimeShard[Any]) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{shard.config.topic}-{shard.partition}: see the broker's log")
