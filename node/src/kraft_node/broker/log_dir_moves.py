"""Moves of replicas between the log directories of this broker (KIP-113, and KIP-858 for the reports to the
controller).

A move copies the log, batch by batch, into a future log in the other directory. Requests are handled between steps, and
the log is written meanwhile. When the copy has caught up, it is made durable, and the new directory is reported to the
controller. When committed metadata names the new directory and the copy is complete, it replaces the log within one
step. After a crash the next start continues the move. Kafka: ReplicaAlterLogDirsThread.

Called by `handlers.alter_replica_log_dirs` and by the broker when it starts.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final

from kraft_node.base.calls import call_each
from kraft_node.broker.replication.taking import ROLLS_MAX, STEP, next_part
from kraft_node.broker.replication.throttle import EVERYTHING, ReplicationQuota
from kraft_node.log.errors import CutLater, is_shortage
from kraft_node.log.manager.futures import check_name
from kraft_node.log.recovery.background import LogIsRecovering
from kraft_node.log.segments.files import SHORTAGE_PAUSE_MS
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import Uuid

if TYPE_CHECKING:
    from kraft_node.base.config.dynamic import BrokerConfig
    from kraft_node.base.env import Env
    from kraft_node.broker.directories import DirectoryAssignments
    from kraft_node.log.log import Log
    from kraft_node.log.manager.directory import Directory
    from kraft_node.log.manager.log_manager import LogManager
    from kraft_node.partition.manager import ReplicaManager
    from kraft_node.partition.partition import Partition

log = logging.getLogger(__name__)

READ_MAX: Final = 1 << 20
"""Bytes read for a step: a millisecond or two, then requests get their turn."""
READ_MIN: Final = 1 << 16
"""Bytes read for a step if batches are small, so that it takes only a part of them."""
LAST_STEPS: Final = 8
"""Steps done at once when all other conditions hold: otherwise a busy producer could stay ahead of the copy
forever."""
PAUSE_MS: Final = 50
"""Pause between two checks: for the controller's answer, an fsync, the rate's window."""
PREFERRED_MAX: Final = 100_000
"""Maximum of requested directories for replicas that this broker does not have yet; Kafka has no limit."""


class Move:
    """One replica that moves to `target`. `copy` is None until the future log could be created."""

    __slots__ = ("copy", "flushed", "flushing", "partition", "read_bytes", "target")

    def __init__(self, partition: Partition, target: Directory) -> None:
        self.partition = partition
        self.target = target
        self.copy: Log | None = None
        self.flushing = False
        self.read_bytes = READ_MAX
        """For the next step: twice of what the last one took."""
        self.flushed = False
        """Whether a flush of the copy has ended since the controller accepted the move, so that little is left."""


class LogDirMoves:
    """All moves of a broker, in steps one after the other."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        logs: LogManager,
        replicas: ReplicaManager,
        report: DirectoryAssignments,
        config: BrokerConfig,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._logs = logs
        self._replicas = replicas
        self._report = report
        self._config = config
        self._quota = ReplicationQuota(env.clock, node_id, lambda _topic: EVERYTHING)
        self.config_changed()
        self._moves: dict[tuple[str, int], Move] = {}
        self._ready: deque[Move] = deque()
        self._scheduled = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._moves)

    def config_changed(self) -> None:
        """The rate is dynamic."""
        self._quota.limit = self._config.int("replica.alter.log.dirs.io.max.bytes.per.second")

    # --- requests ---

    def request(self, topic: str, index: int, path: str) -> None:
        """Move the log of a replica to the directory `path`.

        Raises INVALID_TOPIC_EXCEPTION (the name is too long), LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR (a directory is
        not online), INVALID_REPLICA_ASSIGNMENT (it is cordoned), UNKNOWN_TOPIC_OR_PARTITION, REPLICA_NOT_AVAILABLE (the
        replica is not here; the request is stored in case it comes here).
        """
        check_name(topic, index)
        target = self._directory(path)
        state = self._replicas.image.topics.by_name(topic)
        known = None if state is None else state.partition(index)
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"unknown partition {topic}-{index}")
        if self._node_id not in known.replicas:
            if len(self._logs.preferred) < PREFERRED_MAX:
                self._logs.preferred[topic, index] = path
            raise KafkaError(
                ErrorCode.REPLICA_NOT_AVAILABLE, f"broker {self._node_id} is not a replica of {topic}-{index}"
            )
        partition = self._replicas.hosted(topic, index)
        self._resume_one(topic, index)
        move = self._moves.get((topic, index))
        if move is not None:
            if move.target is target:
                return
            self._give_up(move)
        if partition.log.dir is target:
            return
        for directory in self._logs.directories:
            directory.check()
        self._begin(Move(partition, target))

    def _directory(self, path: str) -> Directory:
        for directory in self._logs.directories:
            if directory.path == path:
                directory.check()
                if directory.cordoned:
                    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Log directory {path} is cordoned")
                return directory
        raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config.")

    def resume(self) -> None:
        """Continue unfinished moves after a start, one an event: after a kill, each copy is recovered when it is
        opened. Remove copies that are no longer needed."""
        self._resume_next(deque(self._logs.futures.partitions()))

    def _resume_next(self, todo: deque[tuple[str, int]]) -> None:
        if todo and not self._closed:
            self._resume_one(*todo.popleft())
            self._env.scheduler.call_soon(self._resume_next, todo)

    def _resume_one(self, topic: str, index: int) -> None:
        """Continue the move of a copy, if there is one that does not move already."""
        futures = self._logs.futures
        target = futures.directory_of(topic, index)
        if target is None or not target.online or (topic, index) in self._moves:
            return
        try:
            partition = self._resumable(topic, index)
            if partition is None or partition.log.dir is target:
                futures.delete(topic, index)
            elif futures.directory_of(topic, index) is not None:
                self._begin(Move(partition, target))
        except LogIsRecovering:
            pass  # `recovered` follows
        except KafkaError as error:
            if is_shortage(error.__cause__):
                self._env.scheduler.call_later(SHORTAGE_PAUSE_MS, self._resume_next, deque([(topic, index)]))
            else:
                log.warning("move was not continued partition=%s-%d error=%s", topic, index, error)

    def recovered(self, topic: str, index: int) -> None:
        """A log that was being recovered is open now: continue its move, if it has one."""
        self._resume_one(topic, index)

    def _resumable(self, topic: str, index: int) -> Partition | None:
        """The replica of a copy; None if this broker has no replica of the topic."""
        view = self._replicas.image.topics.by_name(topic)
        state = None if view is None else view.partition(index)
        if view is None or state is None or self._node_id not in state.replicas:
            return None
        if self._logs.futures.topic_id(topic, index) != view.id:
            return None
        return self._replicas.hosted(topic, index)  # which may complete the move

    def close(self) -> None:
        """Stop copying; the next start continues."""
        self._closed = True
        self._ready.clear()

    # --- a move's life ---

    def _begin(self, move: Move) -> None:
        partition = move.partition
        self._moves[partition.topic, partition.index] = move
        log.info(
            "log is moving partition=%s-%d from=%s to=%s",
            partition.topic,
            partition.index,
            partition.log.dir.path,
            move.target.path,
        )
        self._prepare(move)
        self._soon(move)

    def _prepare(self, move: Move) -> None:
        """Find or create the copy, and let it follow truncations of the log. Raises KafkaError KAFKA_STORAGE_ERROR."""
        partition = move.partition
        try:
            copy = self._logs.futures.get(partition.topic, partition.index)
            if copy is None:
                copy = self._logs.futures.create(partition.topic, partition.index, partition.topic_id, move.target)
            else:
                cut_what_differs(partition.log, copy)
        except KafkaError as error:
            # With this error, a truncation continues, or an older log with this name is being forgotten.
            if error.code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._end(move)
                raise
            return
        move.copy = partition.log.twin = copy

    def _soon(self, move: Move) -> None:
        self._ready.append(move)
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._env.scheduler.call_soon(self._step)

    def _later(self, move: Move) -> None:
        self._env.scheduler.call_later(PAUSE_MS, self._again, move)

    def _again(self, move: Move) -> None:
        if self._moves.get((move.partition.topic, move.partition.index)) is move:
            self._soon(move)

    def _step(self) -> None:
        self._scheduled = False
        if not self._ready or self._closed:
            return
        move = self._ready.popleft()
        if self._moves.get((move.partition.topic, move.partition.index)) is move:
            try:
                if self._advance(move):
                    self._ready.append(move)
            except CutLater as later:
                if later.is_soon:
                    self._ready.append(move)
                else:
                    self._later(move)
            except KafkaError as error:
                log.warning("move failed partition=%s-%d error=%s", move.partition.topic, move.partition.index, error)
                self._give_up(move)
            finally:  # the other moves continue even if one raises
                self._go_on()
        else:
            self._go_on()

    def _go_on(self) -> None:
        if self._ready and not self._scheduled:
            self._scheduled = True
            self._env.scheduler.call_soon(self._step)

    def _advance(self, move: Move) -> bool:
        """Do the next step. Returns whether more work is due at once. Raises KafkaError."""
        partition = move.partition
        if self._replicas.peek((partition.topic_id, partition.index)) is not partition:
            self._end(move)  # deleted, moved to another broker, its directory is dead, or it is opened anew
            self._resume_one(partition.topic, partition.index)
            return False
        if move.copy is not None and move.copy.closed:  # no descriptor was free: it is opened and truncated anew
            if partition.log.twin is move.copy:
                partition.log.twin = None
            move.copy, move.flushing, move.flushed = None, False, False
        if move.copy is None:
            self._prepare(move)
            if move.copy is None:
                self._later(move)
                return False
        if self._logs.futures.directory_of(partition.topic, partition.index) is not move.target:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the copy in {move.target.path} is lost")
        is_fast = self._quota.is_active and self._quota.rate() > self._quota.limit
        if is_fast or move.target.budget.must_wait():
            self._later(move)
            return False
        source, copy = partition.log, move.copy
        is_accepted = self._is_accepted(move)
        is_ready = is_accepted and not move.flushing and (move.flushed or not self._lags_in_flush(move))
        segments_max = len(copy.segments) + ROLLS_MAX
        for _ in range(LAST_STEPS if is_ready else 1):
            size = copy_some(source, copy, move.read_bytes)
            move.read_bytes = min(max(READ_MIN, 2 * size), READ_MAX)
            self._quota.record(partition.topic, partition.index, size)
            if copy.end_offset == source.end_offset:
                break
            if len(copy.segments) >= segments_max:
                return True
        else:
            return True
        if is_ready:
            if self._lags_in_flush(move) or source.unsettled is not None or move.copy.unsettled is not None:
                copy.flush()  # records that arrived since the flush in the background
            self._complete(move)
        else:
            self._prepare_completion(move, is_accepted=is_accepted)
            self._later(move)
        return False

    def _lags_in_flush(self, move: Move) -> bool:
        """Whether the log has promised to keep records that the copy might still lose."""
        assert move.copy is not None, "law: only what has been copied is completed"
        return move.copy.recovery_point < move.partition.log.recovery_point

    def _is_accepted(self, move: Move) -> bool:
        partition = move.partition
        state = self._replicas.image.topics.partition(partition.topic_id, partition.index)
        return state is not None and state.directory(self._node_id) == Uuid(move.target.id)

    def _prepare_completion(self, move: Move, *, is_accepted: bool) -> None:
        """The copy has caught up: make it durable, and report to the controller."""
        partition, copy = move.partition, move.copy
        assert copy is not None, "law: only what has been copied is completed"
        if not move.flushing and copy.unflushed:
            move.flushing = True

            def flushed() -> None:
                move.flushing = False
                move.flushed = is_accepted

            copy.flush_in_background(flushed)
        if not is_accepted:
            self._report.note(partition.topic_id, partition.index, Uuid(move.target.id))

    def _complete(self, move: Move) -> None:
        partition, copy = move.partition, move.copy
        assert copy is not None, "law: only what has been copied is completed"
        source = partition.log
        for epoch, start in source.leader_epochs.entries():
            if epoch > copy.leader_epochs.latest_epoch:
                copy.leader_epochs.assign(epoch, start)
        copy.producers.take_over(source.producers)
        copy.high_watermark = max(source.high_watermark, copy.start_offset)
        source.twin = None
        unsettled, source.unsettled = source.unsettled, None
        code = ErrorCode.KAFKA_STORAGE_ERROR
        try:
            log = self._logs.futures.promote(partition.topic, partition.index)
            code = ErrorCode.NONE  # the copy has been flushed
            partition.moved(log)
            self._report.correct(partition.topic_id, partition.index, Uuid(log.dir.id))
        finally:
            if unsettled is not None:
                call_each(unsettled.take(None, code))
        del self._moves[partition.topic, partition.index]

    def _end(self, move: Move) -> None:
        """The move has ended; its copy stays as it is."""
        key = (move.partition.topic, move.partition.index)
        if self._moves.get(key) is move:
            del self._moves[key]
        if move.partition.log.twin is move.copy:
            move.partition.log.twin = None

    def _give_up(self, move: Move) -> None:
        """Keep the log where it is. Raises KafkaError."""
        self._end(move)
        partition = move.partition
        self._logs.futures.delete(partition.topic, partition.index)
        # The report to the controller may be done already, or be under way.
        self._report.note(partition.topic_id, partition.index, Uuid(partition.log.dir.id))


def copy_some(source: Log, copy: Log, read_bytes: int = READ_MAX) -> int:
    """Append the next batches to the copy, as many as a follower appends in a step. Reads about `read_bytes` for it.

    Returns the appended bytes. Raises KafkaError.
    """
    if copy.end_offset < source.start_offset:
        copy.reset_to(source.start_offset)
    size = 0
    if copy.end_offset < source.end_offset:
        found = source.read(copy.end_offset, read_bytes).records
        records = found if isinstance(found, bytes) else found.read()
        if not records:
            copy.skip_to(source.end_offset)
        else:
            first = int.from_bytes(records[:8], "big")
            if first < copy.end_offset:
                copy.truncate_to(first)  # the log starts within the batch, or the copy has a gap where it ends
                if copy.end_offset < first:
                    return 0  # it continues from there
            part, _ = next_part(memoryview(records), STEP)
            size = copy.append_as_follower(part, rolls_max=ROLLS_MAX)
    copy.high_watermark = min(max(source.high_watermark, copy.start_offset), copy.end_offset)
    if source.start_offset > copy.start_offset:
        copy.delete_records(min(source.start_offset, copy.high_watermark))
    return size


def cut_what_differs(source: Log, copy: Log) -> None:
    """Truncate the copy to its common part with the log, which may have been truncated since. Raises KafkaError."""
    keep = copy.end_offset
    for epoch, start in reversed(copy.leader_epochs.entries()):
        found, end = source.leader_epochs.end_offset_for(epoch, source.end_offset)
        if found == epoch:
            keep = min(keep, end)
            break
        keep = start
    keep = min(max(keep, copy.start_offset), source.end_offset)
    if keep < copy.end_offset:
        copy.truncate_to(keep)
