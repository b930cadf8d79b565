"""Periodic work on all logs of a node: recovery, retention, compaction, flushes by time, checkpoints.

`log_manager.LogManager` creates and starts it. Each kind of work has a timer with a name. Work on all logs is done in
steps with pauses in between, because requests have priority. After `stop` no work begins.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from kraft_node.base import rare
from kraft_node.base.env import Timer
from kraft_node.log import flushing, names
from kraft_node.log.checkpoints.offsets import column_of, offset_in
from kraft_node.log.compaction.choice import first_dirty_offset
from kraft_node.log.compaction.cleaner import Cleaner
from kraft_node.log.config import LONG_MAX
from kraft_node.log.log import Log
from kraft_node.log.manager.directory import Directory, directory_of
from kraft_node.log.manager.seams import LogTable
from kraft_node.log.producers.replay import keep_producers
from kraft_protocol.errors import KafkaError

if TYPE_CHECKING:
    from kraft_node.log.manager.futures import Futures
    from kraft_node.log.manager.timing import Timing
    from kraft_node.log.recovery.background import Recovery

logger = logging.getLogger("kraft_node.log")

WALK_PAUSE_MS: Final = 10
"""Pause between the steps of a walk over all logs, because requests have priority."""
LANE_PAUSE_MS: Final = 100
"""How often retention looks whether a lane has opened a log of very many files."""
EXPIRED_STEP: Final = 2
EXPIRED_PAUSE_MS: Final = 1
"""Expired segments that are dropped at once, and the pause before the next ones. A segment takes up to five renames.
They wait while the lane removes files of the same folder, or a program lists it."""
WALK_STEP: Final = 8
"""Logs per step: a few milliseconds if each must be listed."""
PRODUCER_STEP: Final = 512
"""Open logs per step of the search for old producers: well under a millisecond without old producers."""
FLUSH_TICK_MS: Final = 1000
"""How often logs with a `flush.ms` are checked."""
CHECKPOINT_PAUSE_MS: Final = 10
"""Delay of a checkpoint write after a deletion or a compaction: several share one write."""


class KeptLogs(LogTable, Protocol):
    """The logs of a broker, with what works on them besides."""

    futures: Futures
    recovery: Recovery
    timing: Timing

    def get(self, topic: str, partition: int) -> Log | None:
        """The log, opened if necessary, and held from now on. Raises KafkaError."""
        ...

    def checkpoint_all(self) -> None:
        """Write the changed offset checkpoints of all directories, in the background."""


class Housekeeping:
    """The timers of one `LogManager`, and their work."""

    def __init__(self, manager: KeptLogs) -> None:
        self._manager = manager
        self._timers: dict[str, Timer] = {}
        self._stopped = False
        self.knows_topics = False
        """Whether the configurations of topics are known: before, compacted logs look damaged and kept logs look too
        old.
        """
        self.cleaner = Cleaner(manager.env, self._cleaned)
        self._visited: Log | None = None
        """The log that retention has opened to check it."""
        self._awaited: tuple[str, int] | None = None
        """The log of very many files that a lane opens for retention."""

    def start(self) -> None:
        """Start the work that needs no topic configuration."""
        timing = self._manager.timing
        self._every("checkpoints", timing.checkpoint_ms, self._checkpoint, timing.initial_delay_ms)
        self._every("high-watermarks", timing.high_watermark_checkpoint_ms, self._checkpoint)
        self._every("producers", timing.producer_check_ms, self._check_producers)
        self._every("cleaner", max(1, timing.cleaner_backoff_ms), self._clean)
        self._every("flush", FLUSH_TICK_MS, self._flush_by_time)

    def topics_known(self) -> None:
        """Start the remaining work; recovery after an unclean stop comes first."""
        if self.knows_topics:
            return
        self.knows_topics = True
        manager, timing = self._manager, self._manager.timing
        self._every("retention", timing.retention_check_ms, self._check_retention, timing.initial_delay_ms)
        if any(directory.unrecovered for directory in manager.directories):
            self._later("recovery", WALK_PAUSE_MS, self._recover_some)

    def stop(self) -> None:
        """Start no more work."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()

    def timing_changed(self) -> None:
        """The period of compaction has changed."""
        timer = self._timers.pop("cleaner", None)
        if timer is not None:
            timer.cancel()
        self._every("cleaner", max(1, self._manager.timing.cleaner_backoff_ms), self._clean)

    def _checkpoint(self) -> None:
        if not rare.takes("checkpoint late"):
            self._manager.checkpoint_all()

    def checkpoint_soon(self) -> None:
        """A log was removed: write the checkpoints without it."""
        self._later("retired", CHECKPOINT_PAUSE_MS, self._manager.checkpoint_all)

    def _every(self, name: str, period_ms: int, work: Callable[[], None], first_ms: int | None = None) -> None:
        """Without a period (0 or less) the work is done once, as by Kafka's scheduler."""
        if period_ms >= LONG_MAX:
            return

        def run() -> None:
            if period_ms > 0:
                self._later(name, period_ms, run)
            work()

        self._later(name, period_ms if first_ms is None else first_ms, run)

    def _later(self, name: str, delay_ms: int, work: Callable[[], None]) -> None:
        if not self._stopped:
            self._timers[name] = self._manager.env.scheduler.call_later(delay_ms, self._run, name, work)

    def _run(self, _name: str, work: Callable[[], None]) -> None:
        """Do the work of a timer; the name is for the log line of a slow callback."""
        work()

    # --- recovery ---

    def _recover_some(self) -> None:
        """Recover some of the logs that were not used since an unclean stop, and close them again.

        A long log is opened by the directory's recovery lane; the walk waits for it.
        """
        left = self._manager.recovery.inline_bytes_max
        for directory in self._manager.directories:
            for topic, partition in list(islice(directory.unrecovered, WALK_STEP)):
                if left < 0 or directory.failed is not None or self._is_in_lane(directory, topic, partition):
                    break
                left -= self._manager.recovery.cost(directory, topic, partition)
                self.visit(directory, topic, partition)
        if any(directory.unrecovered and directory.online for directory in self._manager.directories):
            self._later("recovery", WALK_PAUSE_MS, self._recover_some)
        else:
            logger.info("all logs have been recovered")

    def _is_in_lane(self, directory: Directory, topic: str, partition: int) -> bool:
        try:
            return self._manager.recovery.takes(directory, topic, partition)
        except OSError as e:
            directory.fail(e)
            return True

    def visit(self, directory: Directory, topic: str, partition: int) -> None:
        """Recover a log on the loop, make it durable, and close it unless a request has opened it meanwhile."""
        try:
            log = self._manager.open(directory, topic, partition)
        except KafkaError:
            return  # the directory is dead, which has been reported
        self.settle(log)

    def settle(self, log: Log) -> None:
        """Make a recovered log durable; close it unless a request has opened it meanwhile."""
        try:
            is_new = keep_producers(log)
        except OSError as e:
            log.dir.fail(e)
            return
        if log.is_durable and not is_new:
            self._close_again(log)
        elif not self._stopped:
            flushing.schedule(log, lambda: self._close_again(log))

    def _close_again(self, log: Log) -> None:
        """Forget an open log that is durable and not used by others."""
        directory = directory_of(log)
        if log.held or log.closed or self._manager.entry(log.topic, log.partition) is not log:
            return
        if self._awaited == (log.topic, log.partition):
            return
        if log.active.index_written:
            flushing.schedule(log, lambda: self._close_again(log), indexes=True)
            return
        log.close()
        directory.note(log)
        self._manager.forget_open(log)

    # --- retention ---

    def _check_retention(self) -> None:
        self._walk_retention(self._manager.partitions())

    def _walk_retention(self, todo: Iterator[tuple[str, int]], again: tuple[str, int] | None = None) -> None:
        """Check some logs. If a log has many expired segments, `again` continues with the rest."""
        now = self._manager.env.clock.wall_ms()
        pause_ms = WALK_PAUSE_MS
        for _ in range(WALK_STEP):
            found = again or next(todo, None)
            again = None
            if found is None:
                return
            try:
                if self._retain(*found, now):
                    again, pause_ms = found, EXPIRED_PAUSE_MS if self._awaited is None else LANE_PAUSE_MS
                    break
            except KafkaError:
                continue  # the directory has failed, which was reported
            except OSError as e:
                directory = self._manager.directory_of(*found)
                if directory is not None:
                    directory.fail(e)
        self._later("retention-walk", pause_ms, lambda: self._walk_retention(todo, again))

    def _retain(self, topic: str, partition: int, now: int) -> bool:
        """Drop some segments of a log. Returns whether there may be more to drop."""
        awaited, self._awaited = self._awaited, None
        recovery = self._manager.recovery
        entry = self._manager.entry(topic, partition)
        if entry is None or not directory_of(entry).online:
            return False
        if isinstance(entry, Log):
            log = entry
            if awaited == (topic, partition) and not log.held:
                if _is_dirty(log):
                    log.held = True  # so `_clean` sees it
                    return False
                self._visited = log
        elif (topic, partition) in entry.unrecovered or (topic, partition) in entry.quarantined:
            return False
        elif recovery.is_busy_with(topic, partition) or self._is_wide(entry, topic, partition):
            self._awaited = (topic, partition)
            recovery.takes(entry, topic, partition)
            return True
        elif self._may_be_dirty(entry, topic, partition):
            self._manager.get(topic, partition)  # held from now on, so `_clean` sees it
            return False
        elif not self._may_expire(entry, topic, partition, now):
            return False
        else:
            log = self._visited = self._manager.open(entry, topic, partition)
        before = len(log.segments)
        is_shorter = log.retain(now, EXPIRED_STEP) > 0
        if before - len(log.segments) >= EXPIRED_STEP - 1:
            return True
        if log is self._visited:
            self._visited = None
            if is_shorter or log.unflushed:
                flushing.schedule(log, lambda: self._close_again(log))
            else:
                self._close_again(log)
        return False

    def _is_wide(self, directory: Directory, topic: str, partition: int) -> bool:
        """Whether a log that is not open has too many files to list here, and work may be due in it."""
        config = self._manager.topic_config(topic)
        is_due = config.compact or (config.delete and (config.retention_ms >= 0 or config.retention_bytes >= 0))
        return is_due and self._manager.recovery.is_wide(directory, topic, partition)

    def _may_be_dirty(self, directory: Directory, topic: str, partition: int) -> bool:
        """Whether a compacted log that is not open has closed segments above the cleaner's checkpoint."""
        if not self._manager.topic_config(topic).compact:
            return False
        path = self._manager.path(directory, topic, partition)
        found = (names.parse_offset(name) for name in self._manager.env.disk.listdir(path) if name.endswith(names.LOG))
        active = max((base for base in found if base is not None), default=0)
        return active > offset_in(directory.cleaner_offsets, topic, partition)

    def _may_expire(self, directory: Directory, topic: str, partition: int, now: int) -> bool:
        """Whether retention could apply to a log that is not open, by names, sizes and dates of its files."""
        config = self._manager.topic_config(topic)
        if not config.delete or (config.retention_ms < 0 and config.retention_bytes < 0):
            return False
        disk, path = self._manager.env.disk, self._manager.path(directory, topic, partition)
        logs = [f"{path}/{name}" for name in disk.listdir(path) if name.endswith(names.LOG)]
        if not logs:
            return False
        if 0 <= config.retention_bytes < sum(map(disk.size, logs)):
            return True
        return (
            config.retention_ms >= 0 and disk.size(logs[0]) > 0 and now - disk.mtime_ms(logs[0]) > config.retention_ms
        )

    # --- producers ---

    def _check_producers(self) -> None:
        """Forget producers with old records only, but only in logs that have known producers for the whole period.

        Kafka has a timer per log. The age is the age of the records: late or backdated records would expire at once.
        """
        self._walk_producers(
            self._manager.open_logs(), self._manager.env.clock.monotonic_ms() - self._manager.timing.producer_check_ms
        )

    def _walk_producers(self, todo: Iterator[Log], known_before_ms: int) -> None:
        now = self._manager.env.clock.wall_ms()
        some = list(islice(todo, PRODUCER_STEP))
        for log in some:
            producers = log.known_producers
            if producers is not None and producers.since_ms <= known_before_ms:
                producers.expire(now, self._manager.timing.producer_expiration_ms)
        if some:
            self._later("producer-walk", WALK_PAUSE_MS, lambda: self._walk_producers(todo, known_before_ms))

    # --- compaction ---

    def _clean(self) -> None:
        """Compact the dirtiest log, if it is dirty enough and no log is being compacted.

        Only logs in use are compacted: the others may be closed and opened again at any moment. A log that moves is not
        compacted: its copy would keep deleted records without the tombstones.
        """
        timing, cleaner = self._manager.timing, self.cleaner
        cleaner.threads, cleaner.bytes_per_second = timing.cleaner_threads, timing.cleaner_bytes_per_second
        cleaner.keys_max = timing.keys_max
        logs = [log for log in self._manager.open_logs() if self._may_be_compacted(log)]
        cleaner.start([(log, self._first_dirty(log)) for log in logs], self._manager.env.clock.wall_ms())

    def _may_be_compacted(self, log: Log) -> bool:
        if not log.config.compact:
            self.cleaner.forget(log)
            return False
        return log.held and log.segment_bases[0] < log.active.base and not self._moves(log)

    def _first_dirty(self, log: Log) -> int:
        """Where the dirty part begins; a checkpoint that cannot be right is corrected."""
        directory = directory_of(log)
        column = directory.cleaner_offsets.get(log.topic)
        known = None if column is None else column.get(log.partition)
        first = first_dirty_offset(log, known)
        if known is not None and known != first:
            directory.cleaner_offsets[log.topic][log.partition] = first
            directory.offsets_dirty = True
        return first

    def _moves(self, log: Log) -> bool:
        return self._manager.futures.directory_of(log.topic, log.partition) is not None

    def _cleaned(self, log: Log, offset: int) -> None:
        if log.closed:
            return
        directory = directory_of(log)
        of_topic = column_of(directory.cleaner_offsets, log.topic)
        if (of_topic.get(log.partition) or 0) < offset:
            of_topic[log.partition] = offset
            directory.changed(log.topic)
            self._later("compacted", CHECKPOINT_PAUSE_MS, self._manager.checkpoint_all)
            self._clean()

    # --- flush.ms ---

    def _flush_by_time(self) -> None:
        """Apply flush.ms to the topics that set it."""
        now = self._manager.env.clock.wall_ms()
        for log in (*self._manager.open_logs(), *self._manager.futures.logs()):
            every = log.config.flush_ms
            if every < LONG_MAX and log.unflushed and now - log.last_flush_ms >= every and log.dir.failed is None:
                flushing.schedule(log, _nothing)


def _is_dirty(log: Log) -> bool:
    """Whether a compacted log has closed segments above the cleaner's checkpoint."""
    known = offset_in(directory_of(log).cleaner_offsets, log.topic, log.partition)
    return log.config.compact and log.active.base > known


def _nothing() -> None:
    """Do nothing."""
