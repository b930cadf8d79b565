"""All logs of a broker in its log directories (Kafka's LogManager): found by name, opened when first used.

Starting costs a listing and four small files a directory. A partition nobody has asked for is one entry in a
dictionary; after an unclean stop it is recovered when first used, or by a walk in small steps while the node serves.
The clean-shutdown mark is written only when every log has been looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, TypeAlias

from kraft_node.base.config.view import ConfigView
from kraft_node.base.env import Buffer, Env, Timer
from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.base.ids import ZERO_UUID, Uuid, uuid_text
from kraft_node.log import flushing, names, partition_metadata, trimming
from kraft_node.log.cleaner import Cleaner
from kraft_node.log.config import LONG_MAX, LogConfig, make_config
from kraft_node.log.directory import NEW_NAMES_SYNC_MS, NO_BROKER_EPOCH, Directory
from kraft_node.log.errors import LogDirDamaged, LogDirError, LogDirInvalid
from kraft_node.log.files import OPEN_FILES_MAX, FileCache, LogDir, Originals, Put, write_file
from kraft_node.log.futures import Futures
from kraft_node.log.log import Log
from kraft_node.log.opening import new_log, open_log
from kraft_node.log.timing import Timing

logger = logging.getLogger("kraft_node.log")

Work: TypeAlias = Callable[[], None]
"""For any thread; may raise OSError."""
Entry: TypeAlias = Log | Directory
"""An open log, or the directory of one that is not open."""
OnFailure: TypeAlias = Callable[[str, list[tuple[str, int]], BaseException], None]
"""Hears of a dead directory: path, the partitions in it, why."""

WALK_PAUSE_MS: Final = 10
"""Between the steps of a walk over all logs: requests go first."""
WALK_STEP: Final = 8
"""Logs looked at in a step: a few milliseconds when each has to be listed."""
PRODUCER_STEP: Final = 512
"""Open logs looked at in a step for producers that are old: well under a millisecond when there are none."""
SYNC_WHOLE_MIN: Final = 64
"""Logs to be closed from which on the whole file system is synced instead of their files one by one: each log has about
four. Fewer are not worth waiting for what other users of the file system have written."""
FLUSH_TICK_MS: Final = 1000
"""How often logs with a `flush.ms` are looked at."""
RETIRED_PAUSE_MS: Final = 10
"""Until the checkpoints are written after a deletion: a bulk of deletions shares one write."""


class LogManager:
    """The logs of one broker. Make it, `start`, use it, `shutdown`."""

    def __init__(
        self,
        env: Env,
        dirs: Sequence[str],
        *,
        node_id: int,
        cluster_id: str | None = None,
        topic_config: Callable[[str], LogConfig] | None = None,
        timing: Timing | None = None,
        on_failure: OnFailure | None = None,
        open_files_max: int = OPEN_FILES_MAX,
        locked: Sequence[str] = (),
    ) -> None:
        """`topic_config` gives a topic's configuration; `locked` are directories whose lock somebody else holds."""
        self.env = env
        self.files = FileCache(env.disk, open_files_max)
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.topic_config = topic_config or (lambda _: make_config())
        self.timing = timing or Timing()
        self.on_failure = on_failure
        self.directories = [Directory(env, path, self.files) for path in dirs]
        self._locked = frozenset(locked)
        self._logs: dict[str, dict[int, Entry]] = {}
        self._timers: dict[str, Timer] = {}
        self._stopping = False
        self.futures = Futures(self)
        """Copies on their way from one directory to another."""
        self.preferred: dict[tuple[str, int], str] = {}
        """Where logs are to be made that are not there yet, as an administrator has asked; by paths of directories."""
        self._cleaner = Cleaner(lambda function: self._later("cleaner-step", WALK_PAUSE_MS, function), self._cleaned)

    # --- start ---

    def start(self) -> None:
        """Take the directories and learn which logs are there.

        A directory that cannot be read is dead from the start, as long as there is another one. Raises LogDirInvalid
        for one that is not this node's, LogDirFailure when none is left.
        """
        for directory in self.directories:
            directory.on_failure = self._failed
            try:
                self.cluster_id = directory.take(self.cluster_id, self.node_id, locked=directory.path in self._locked)
                self._load(directory)
            except OSError as e:
                directory.fail(e)
        self._check_ids()
        if not any(directory.online for directory in self.directories):
            failed = self.directories[0].failed
            assert failed is not None, "law: a directory is dead for a reason"
            raise failed
        timing = self.timing
        delay = timing.initial_delay_ms
        self._every("retention", timing.retention_check_ms, self._check_retention, delay)
        self._every("checkpoints", timing.checkpoint_ms, self.checkpoint_all, delay)
        self._every("high-watermarks", timing.high_watermark_checkpoint_ms, self._checkpoint_changed)
        self._every("producers", timing.producer_check_ms, self._check_producers)
        self._every("cleaner", timing.cleaner_backoff_ms, self._clean)
        self._every("flush", FLUSH_TICK_MS, self._flush_by_time)
        if any(directory.unrecovered for directory in self.directories):
            self._later("recovery", WALK_PAUSE_MS, self._recover_some)

    def _check_ids(self) -> None:
        """What a copied directory says of itself is true of another one: nobody could tell the two apart."""
        seen: dict[bytes, str] = {}
        for directory in self.directories:
            if directory.online and directory.id in seen:
                raise LogDirInvalid(
                    directory.path, f"it has the directory.id of {seen[directory.id]}, {uuid_text(Uuid(directory.id))}"
                )
            seen[directory.id] = directory.path

    def _load(self, directory: Directory) -> None:
        for topic, partition in directory.load():
            entries = self._logs.setdefault(topic, {})
            other = entries.get(partition)
            if other is not None:
                raise LogDirError(
                    directory.path, f"{names.partition_dir(topic, partition)} is also in {_dir_of(other).path}"
                )
            entries[partition] = directory
        self.futures.load(directory)
        for path in directory.strays:
            # Those of an earlier run get the whole delay anew.
            self._remove_stray(directory, path)

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch under which the broker stopped cleanly, -1 when any directory was not closed so."""
        epochs = {directory.broker_epoch for directory in self.directories if directory.online}
        return epochs.pop() if len(epochs) == 1 else NO_BROKER_EPOCH

    def _every(self, name: str, period_ms: int, work: Callable[[], None], first_ms: int | None = None) -> None:
        if period_ms >= LONG_MAX:
            return

        def run() -> None:
            self._later(name, period_ms, run)
            work()

        self._later(name, period_ms if first_ms is None else first_ms, run)

    def reconfigure(self, config: ConfigView) -> None:
        """The node's configuration has changed: what may change at run time is in force from now on."""
        if self.timing.update(config):
            timer = self._timers.pop("cleaner", None)
            if timer is not None:
                timer.cancel()
            self._every("cleaner", self.timing.cleaner_backoff_ms, self._clean)

    def _later(self, name: str, delay_ms: int, work: Callable[[], None]) -> None:
        if not self._stopping:
            self._timers[name] = self.env.scheduler.call_later(delay_ms, work)

    # --- logs ---

    def __len__(self) -> int:
        return sum(map(len, self._logs.values()))

    def partitions(self) -> Iterator[tuple[str, int]]:
        """All logs on live directories, open or not."""
        for topic, entries in list(self._logs.items()):
            for partition in list(entries):
                yield topic, partition

    def open_logs(self) -> Iterator[Log]:
        """Those that are open."""
        for entries in list(self._logs.values()):
            for entry in list(entries.values()):
                if isinstance(entry, Log):
                    yield entry

    def get(self, topic: str, partition: int) -> Log | None:
        """The log, opened (and recovered) if need be; None when there is none.

        Raises KafkaError KAFKA_STORAGE_ERROR when its directory is dead or cannot be trusted.
        """
        entry = self._logs.get(topic, {}).get(partition)
        if entry is None:
            return None
        log = entry if isinstance(entry, Log) else self._open(entry, topic, partition)
        log.held = True
        return log

    def _open(self, directory: Directory, topic: str, partition: int) -> Log:
        directory.check()
        path = f"{directory.path}/{names.partition_dir(topic, partition)}"
        key = (topic, partition)
        clean = key not in directory.unrecovered
        recovery_point = directory.recovery_points.get(topic, {}).get(partition, 0)
        high_watermark = directory.high_watermarks.get(topic, {}).get(partition, 0)
        if not clean:
            # A follower cuts off what its leader does not have, which can be durable, and writes anew: since the
            # checkpoint was written only what is below the high watermark has stayed as it was.
            recovery_point = min(recovery_point, high_watermark)
        try:
            log = open_log(
                directory,
                path,
                topic,
                partition,
                self.topic_config(topic),
                clean=clean,
                recovery_point=recovery_point,
                start_offset=directory.start_offsets.get(topic, {}).get(partition, 0),
                high_watermark=high_watermark,
            )
            log.topic_id = partition_metadata.read(self.env.disk, path)
        except (OSError, LogDirDamaged) as e:
            raise directory.fail(e) from e
        directory.unrecovered.pop(key, None)
        self._logs[topic][partition] = log
        return log

    def topic_id(self, topic: str, partition: int) -> Uuid | None:
        """The topic id of a log without opening it; ZERO_UUID when the log carries none, None when there is no log.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        entry = self._logs.get(topic, {}).get(partition)
        if entry is None:
            return None
        if isinstance(entry, Log):
            return Uuid(entry.topic_id) if entry.topic_id is not None else ZERO_UUID
        entry.check()
        try:
            return partition_metadata.read(self.env.disk, self._path(entry, topic, partition)) or ZERO_UUID
        except OSError as e:
            raise entry.fail(e) from e

    def _path(self, directory: LogDir, topic: str, partition: int) -> str:
        return f"{directory.path}/{names.partition_dir(topic, partition)}"

    def create(
        self,
        topic: str,
        partition: int,
        topic_id: Uuid | None,
        config: LogConfig | None = None,
        *,
        directory_id: Uuid | None = None,
    ) -> Log:
        """Make an empty log, in the directory with that id or else in the one not cordoned that has the fewest logs.

        Raises KafkaError KAFKA_STORAGE_ERROR, INVALID_REQUEST when it is there already, NOT_LEADER_OR_FOLLOWER while
        the checkpoints may still speak of an older partition of that name.
        """
        entries = self._logs.setdefault(topic, {})
        if partition in entries:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the log of {topic}-{partition} exists already")
        directory = self._choose(topic, partition, directory_id)
        self.check_not_retired(directory, topic, partition)
        path = self._path(directory, topic, partition)
        try:
            self.env.disk.mkdir(path, new=True)
            log = new_log(directory, path, topic, partition, config or self.topic_config(topic))
            if topic_id is not None:
                log.topic_id = topic_id
                partition_metadata.make(directory.originals, path, topic_id)
        except (OSError, LogDirDamaged) as e:
            raise directory.fail(e) from e
        log.held = True
        directory.count += 1
        directory.sync_names(NEW_NAMES_SYNC_MS)
        entries[partition] = log
        self.preferred.pop((topic, partition), None)
        return log

    def check_not_retired(self, directory: Directory, topic: str, partition: int) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER while the checkpoints may still speak of an older log of that name."""
        if (topic, partition) in directory.retired:
            if directory.offsets_dirty:
                self.checkpoint_all()
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the log of {topic}-{partition} is made in a moment: an older one of that name is being forgotten",
            )

    def put(self, log: Log) -> None:
        """A copy has become the log of its partition."""
        self._logs.setdefault(log.topic, {})[log.partition] = log

    def _choose(self, topic: str, partition: int, directory_id: Uuid | None) -> Directory:
        alive = [directory for directory in self.directories if directory.online]
        if not alive:
            raise self.directories[0].storage_error()
        preferred = self.preferred.get((topic, partition))
        for directory in alive:
            if directory.path == preferred:
                return directory
        for directory in alive:
            if directory.id == directory_id:
                return directory
        open_to_all = [directory for directory in alive if not directory.cordoned]
        # As in Kafka: where all are cordoned somebody has asked for the log nevertheless, and it must be somewhere.
        return min(open_to_all, key=lambda directory: directory.count) if open_to_all else alive[0]

    def delete(self, topic: str, partition: int) -> None:
        """Delete a log: gone from here at once, its files after `file.delete.delay.ms`. Fine when there is none.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        config = self.topic_config(topic)
        self.futures.delete(topic, partition)
        found = self.take_away(topic, partition, names.DELETE_DIR)
        if found is not None:
            found[0].remove_later(found[1], config.file_delete_delay_ms)

    def set_aside(self, topic: str, partition: int) -> None:
        """Rename a log that nobody owns to `-stray` and forget it. Raises KafkaError.

        One whose topic id is known is removed after the delay for strays (KIP-516), -1 for never, as in Apache Kafka.
        Whose id is not, of that nobody can say whether it is stale: an operator decides about it.
        """
        self.futures.delete(topic, partition)
        found = self.take_away(topic, partition, names.STRAY_DIR)
        if found is not None:
            logger.warning("%s-%d is no partition of this broker: set aside as %s", topic, partition, found[1])
            self._remove_stray(*found)

    def _remove_stray(self, directory: Directory, path: str) -> None:
        if self.timing.stray_delay_ms < 0:
            return
        try:
            is_known = partition_metadata.read(self.env.disk, path) is not None
        except OSError as e:
            directory.fail(e)
            return
        if is_known:
            directory.remove_later(path, self.timing.stray_delay_ms)

    def take_away(self, topic: str, partition: int, suffix: str) -> tuple[Directory, str] | None:
        """Rename a log and forget it: its directory and its new path, None when there is none. Raises KafkaError."""
        entries = self._logs.get(topic)
        entry = None if entries is None else entries.get(partition)
        if entry is None or entries is None:
            return None
        directory = _dir_of(entry)
        directory.check()
        if isinstance(entry, Log):
            entry.closed = True
            entry.release()
        try:
            path = directory.rename_partition(topic, partition, suffix)
        except OSError as e:
            raise directory.fail(e) from e
        if isinstance(entry, Log):
            entry.path = path
        del entries[partition]
        if not entries:
            del self._logs[topic]
        directory.count -= 1
        directory.unrecovered.pop((topic, partition), None)
        self.forget_offsets(directory, topic, partition)
        return directory, path

    def forget_offsets(self, directory: Directory, topic: str, partition: int) -> None:
        """A log is gone: so are its offsets, from the checkpoints as well, soon."""
        is_first = not directory.retired
        directory.forget_offsets(topic, partition)
        if is_first and directory.retired:
            self._later("retired", RETIRED_PAUSE_MS, self.checkpoint_all)

    def configure(self, topic: str, config: LogConfig) -> None:
        """A topic's configuration has changed: its open logs use it from now on."""
        for entry in self._logs.get(topic, {}).values():
            if isinstance(entry, Log):
                entry.set_config(config)
        for log in self.futures.logs():
            if log.topic == topic:
                log.set_config(config)

    def directory_of(self, topic: str, partition: int) -> Directory | None:
        """Where the log is."""
        entry = self._logs.get(topic, {}).get(partition)
        return None if entry is None else _dir_of(entry)

    def sizes(self, directory: Directory) -> Iterator[tuple[str, int, int]]:
        """(topic, partition, bytes) of the logs in a directory; logs that are not open are measured by their files.

        Raises OSError.
        """
        disk = self.env.disk
        for topic, entries in list(self._logs.items()):
            for partition, entry in list(entries.items()):
                if _dir_of(entry) is not directory:
                    continue
                if isinstance(entry, Log):
                    yield topic, partition, entry.size_bytes
                else:
                    path = self._path(entry, topic, partition)
                    files = [name for name in disk.listdir(path) if name.endswith(names.LOG)]
                    yield topic, partition, sum(disk.size(f"{path}/{name}") for name in files)

    # --- failure ---

    def _failed(self, failed: LogDir) -> None:
        """A directory is dead: forget its logs, tell who must know."""
        self.futures.forget(failed)
        lost: list[tuple[str, int]] = []
        for topic, entries in list(self._logs.items()):
            for partition, entry in list(entries.items()):
                if (entry.dir if isinstance(entry, Log) else entry) is failed:
                    lost.append((topic, partition))
                    if isinstance(entry, Log):
                        entry.release()
                        entries[partition] = _dir_of(entry)
        assert failed.failed is not None, "law: a directory is dead for a reason"
        logger.error("Log directory %s is dead, with %d logs: %s", failed.path, len(lost), failed.failed)
        if self.on_failure is not None:
            self.env.scheduler.call_soon(self.on_failure, failed.path, lost, failed.failed)

    # --- what is done from time to time ---

    def _recover_some(self) -> None:
        """Recover a few of the logs that nobody has asked for since an unclean stop, and close them again."""
        for directory in self.directories:
            for topic, partition in list(islice(directory.unrecovered, WALK_STEP)):
                if directory.failed is not None:
                    break
                self._visit(directory, topic, partition)
        if any(directory.unrecovered and directory.online for directory in self.directories):
            self._later("recovery", WALK_PAUSE_MS, self._recover_some)
        else:
            logger.info("All logs have been recovered")

    def _visit(self, directory: Directory, topic: str, partition: int) -> None:
        """Recover a log, make it durable and forget it again unless somebody has asked for it meanwhile."""
        try:
            log = self._open(directory, topic, partition)
            is_new = _keep_producers(log)
        except KafkaError:
            return  # the directory is dead, which has been said
        except OSError as e:
            directory.fail(e)
            return
        if log.recovery_point >= log.end_offset and not is_new:
            self._close_again(log)
        elif not self._stopping:
            flushing.schedule(log, lambda: self._close_again(log))

    def _close_again(self, log: Log) -> None:
        """Forget an open log that nobody else holds and that is durable."""
        directory = _dir_of(log)
        if log.held or log.closed or self._logs.get(log.topic, {}).get(log.partition) is not log:
            return
        log.release()
        self._note_offsets(directory, log)
        self._logs[log.topic][log.partition] = directory

    def _check_retention(self) -> None:
        self._walk_retention(self.partitions())

    def _walk_retention(self, todo: Iterator[tuple[str, int]]) -> None:
        now = self.env.clock.wall_ms()
        for _ in range(WALK_STEP):
            found = next(todo, None)
            if found is None:
                return
            try:
                self._retain(*found, now)
            except KafkaError:
                continue  # the directory is dead, which has been said
            except OSError as e:
                directory = self.directory_of(*found)
                if directory is not None:
                    directory.fail(e)
        self._later("retention-walk", WALK_PAUSE_MS, lambda: self._walk_retention(todo))

    def _retain(self, topic: str, partition: int, now: int) -> None:
        entry = self._logs.get(topic, {}).get(partition)
        if entry is None or not _dir_of(entry).online:
            return
        if isinstance(entry, Log):
            entry.retain(now)
        elif (topic, partition) not in entry.unrecovered and self._may_expire(entry, topic, partition, now):
            log = self._open(entry, topic, partition)
            if log.retain(now):
                flushing.schedule(log, lambda: self._close_again(log))
            elif log.unflushed == 0:
                self._close_again(log)

    def _check_producers(self) -> None:
        """Forget producers whose records are old, but in no log that has been open for less than the period.

        Kafka has a timer a log. The age is that of the records: sent late or in the past they would go at once.
        """
        self._walk_producers(self.open_logs(), self.env.clock.monotonic_ms() - self.timing.producer_check_ms)

    def _walk_producers(self, todo: Iterator[Log], opened_before_ms: int) -> None:
        now = self.env.clock.wall_ms()
        some = list(islice(todo, PRODUCER_STEP))
        for log in some:
            if log.opened_ms <= opened_before_ms and len(log.producers):
                log.producers.expire(now, self.timing.producer_expiration_ms)
        if some:
            self._later("producer-walk", WALK_PAUSE_MS, lambda: self._walk_producers(todo, opened_before_ms))

    def _may_expire(self, directory: Directory, topic: str, partition: int, now: int) -> bool:
        """Whether retention could find something in a log that is not open, by names, sizes and dates of its files."""
        config = self.topic_config(topic)
        if not config.delete or (config.retention_ms < 0 and config.retention_bytes < 0):
            return False
        disk, path = self.env.disk, self._path(directory, topic, partition)
        logs = [f"{path}/{name}" for name in disk.listdir(path) if name.endswith(names.LOG)]
        if not logs:
            return False
        if 0 <= config.retention_bytes < sum(map(disk.size, logs)):
            return True
        return (
            config.retention_ms >= 0 and disk.size(logs[0]) > 0 and now - disk.mtime_ms(logs[0]) > config.retention_ms
        )

    def _clean(self) -> None:
        """Compact the dirtiest log, if one is dirty enough and none is being compacted."""
        candidates: list[tuple[Log, int]] = []
        for log in self.open_logs():
            if log.config.compact and log.segment_bases[0] < log.active.base and log.twin is None:
                first = _dir_of(log).cleaner_offsets.get(log.topic, {}).get(log.partition, 0)
                candidates.append((log, first if first <= log.active.base else log.start_offset))
        if candidates:
            self._cleaner.start(candidates, self.env.clock.wall_ms())

    def _cleaned(self, log: Log, offset: int) -> None:
        if log.closed:
            return
        directory = _dir_of(log)
        of_topic = directory.cleaner_offsets.setdefault(log.topic, {})
        progress = of_topic.get(log.partition, 0) < offset
        of_topic[log.partition] = offset
        directory.offsets_dirty = True
        if progress:
            self._clean()

    def _flush_by_time(self) -> None:
        """flush.ms of the topics that have one."""
        now = self.env.clock.wall_ms()
        for log in (*self.open_logs(), *self.futures.logs()):
            every = log.config.flush_ms
            if every < LONG_MAX and log.unflushed and now - log.last_flush_ms >= every and log.dir.failed is None:
                flushing.schedule(log, _nothing)

    def _note_offsets(self, directory: Directory, log: Log) -> None:
        changed = False
        for offsets, value in (
            (directory.recovery_points, log.recovery_point),
            (directory.start_offsets, log.start_offset),
            (directory.high_watermarks, log.high_watermark),
        ):
            of_topic = offsets.get(log.topic)
            if of_topic is None:
                of_topic = offsets[log.topic] = {}
            if of_topic.get(log.partition) != value:
                if offsets is directory.recovery_points:
                    self._drop_old_snapshots(directory, log, of_topic.get(log.partition, 0))
                of_topic[log.partition] = value
                changed = True
        if changed:
            directory.offsets_dirty = True

    def _drop_old_snapshots(self, directory: Directory, log: Log, recovery_point: int) -> None:
        try:
            trimming.drop_old_snapshots(log, recovery_point)
        except OSError as e:
            directory.fail(e)

    def _note_all(self) -> None:
        for log in (*self.open_logs(), *self.futures.logs()):
            self._note_offsets(_dir_of(log), log)

    def _checkpoint_changed(self) -> None:
        self.checkpoint_all()

    def checkpoint_all(self) -> None:
        """Write the offset checkpoints of the directories where one has changed, in the background."""
        self._note_all()
        for directory in self.directories:
            if directory.online and directory.offsets_dirty:
                directory.offsets_dirty = False
                work = directory.write_offsets()
                self._submit(directory, work, partial(directory.offsets_written, directory.writes))

    def _submit(self, directory: Directory, work: Callable[[], None], done: Callable[[], None]) -> None:
        def finished(result: BaseException | None) -> None:
            if isinstance(result, BaseException):
                directory.fail(result)
            done()

        self.env.background.submit(directory.lane, work, finished)

    # --- stop ---

    def shutdown(self, done: Callable[[], None], *, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Close all logs: everything durable, snapshots and checkpoints written, the clean mark last; then `done()`.

        A directory with a log that cannot be closed gets no mark.
        """
        self._stopping = True
        for timer in self._timers.values():
            timer.cancel()
        waiting = [directory for directory in self.directories if directory.online]
        left = len(waiting)

        def one_done() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done()

        if not waiting:
            done()
        for directory in waiting:
            self._close_directory(directory, broker_epoch, one_done)

    def _close_directory(self, directory: Directory, broker_epoch: int, done: Callable[[], None]) -> None:
        try:
            for topic, partition in list(directory.unrecovered):
                self._visit(directory, topic, partition)
            self.futures.open_unproven(directory)
            logs = [log for log in (*self.open_logs(), *self.futures.logs()) if log.dir is directory]
            originals = Originals(self.env.disk)
            work = [job for log in logs if (job := self._close_log(log, originals)) is not None]
        except (OSError, LogDirError, KafkaError) as e:
            if directory.failed is None:
                directory.fail(e)
            done()
            return
        if directory.failed is not None:
            done()
            return
        self._note_all()
        write_offsets = directory.write_offsets()

        def close() -> None:  # writing the mark fsyncs the directory
            for writes, _ in work:
                for write in writes:
                    write()
            if len(work) < SYNC_WHOLE_MIN or not directory.sync_file_system():
                for _, sync in work:
                    sync()
            write_offsets()
            directory.write_mark(broker_epoch)

        self._submit(directory, close, done)

    def _close_log(self, log: Log, originals: Originals) -> tuple[list[Work], Work] | None:
        """Complete a log's files: the writes and the fsyncs that are left, None when nothing has changed.

        Both are for the directory's thread: making a file can take a millisecond, and there may be 10,000 logs. Raises
        OSError.
        """
        log.closed = True
        writes: list[Work] = []

        def later(path: str, position: int, data: Buffer) -> None:
            writes.append(partial(write_file, self.env.disk, path, position, data))

        is_new = _keep_producers(log, later)
        if log.unflushed == 0 and not log.leader_epochs.dirty and not is_new:
            log.release()
            return None
        log.active.finish(later)
        if log.leader_epochs.dirty:
            writes.append(flushing.epochs_writer(log, originals))
        flush = flushing.Flush(log, log.end_offset, parent=False)
        log.recovery_point = log.end_offset
        log.release()
        return writes, flush.work

    def release(self) -> None:
        """Give up the locks. Call last."""
        for directory in self.directories:
            directory.release()


def _dir_of(entry: Entry) -> Directory:
    directory = entry.dir if isinstance(entry, Log) else entry
    assert isinstance(directory, Directory), "law: the manager's logs lie in its directories"
    return directory


def _keep_producers(log: Log, put: Put | None = None) -> bool:
    """Before a log is closed: a snapshot of its producers, for clean logs are opened by snapshots alone; if it is new.

    Raises OSError.
    """
    producers = log.producers
    if log.end_offset in producers.snapshots or not (producers.snapshots or len(producers)):
        return False
    log.take_snapshot(log.end_offset, put)
    return True


def _nothing() -> None:
    """Nobody waits."""
