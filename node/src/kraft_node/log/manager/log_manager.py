"""All logs of a broker in its log directories (Kafka's LogManager): found by name, opened on first use.

A start costs a listing and four small files per directory. An unused partition is one dictionary entry. After an
unclean stop it is recovered on first use, or by a walk in small steps while the node serves. The clean-shutdown mark is
written only if every log was recovered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kraft_node.base.config.view import ConfigView
from kraft_node.base.env import Disk, Env
from kraft_node.log import names
from kraft_node.log.checkpoints import partition_metadata
from kraft_node.log.checkpoints.offsets import offset_in
from kraft_node.log.config import LogConfig, make_config
from kraft_node.log.errors import LogDirDamaged, LogDirError, LogDirFailure, is_shortage
from kraft_node.log.log import Log
from kraft_node.log.log_dir import LogDir
from kraft_node.log.manager.closing import close_directory
from kraft_node.log.manager.directory import NO_BROKER_EPOCH, Directory, directory_of
from kraft_node.log.manager.futures import Futures
from kraft_node.log.manager.housekeeping import Housekeeping
from kraft_node.log.manager.names_sync import NEW_NAMES_SYNC_MS
from kraft_node.log.manager.offset_notes import Noting
from kraft_node.log.manager.placement import check_ids, chosen
from kraft_node.log.manager.seams import Entry
from kraft_node.log.manager.timing import Timing
from kraft_node.log.manager.withdrawals import OnFailure, OnWithdrawn, Withdrawals
from kraft_node.log.recovery.background import LogIsRecovering, Recovery
from kraft_node.log.recovery.opening import NEVER_COMPACTED, new_log, open_log
from kraft_node.log.segments.files import OPEN_FILES_MAX, FileCache
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import ZERO_UUID, Uuid

logger = logging.getLogger("kraft_node.log")

UNMEASURED: Final = -1
"""The size of a log with files that only a lane may list."""


class LogManager:
    """The logs of one broker. Create it, `start`, use it, `shutdown`."""

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
        on_withdrawn: OnWithdrawn | None = None,
        open_files_max: int = OPEN_FILES_MAX,
        locked: Sequence[str] = (),
    ) -> None:
        """`topic_config` returns a topic's configuration; `locked` are directories with a lock that the caller
        holds."""
        self.env = env
        self.files = FileCache(env.disk, min(open_files_max, env.disk.open_max))
        env.disk.relief = self.files.shed
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.topic_config = topic_config or (lambda _: make_config())
        self.timing = timing or Timing()
        self.on_failure = on_failure
        self.on_withdrawn = on_withdrawn
        self.directories = [Directory(env, path, self.files) for path in dirs]
        self._locked = frozenset(locked)
        self._logs: dict[str, dict[int, Entry]] = {}
        self.futures = Futures(self)
        """Unfinished copies from one directory to another."""
        self.preferred: dict[tuple[str, int], str] = {}
        """The directories that an administrator has requested for logs that do not exist yet; by paths."""
        self.housekeeping = Housekeeping(self)
        self.recovery = Recovery(self)
        self._noting = Noting(self)
        self.withdrawals = Withdrawals(self)
        self.on_recovered: Callable[[str, int], None] = lambda _topic, _partition: None
        """Called when a log that `get` refused with LogIsRecovering is open."""

    # --- start ---

    def start(self) -> None:
        """Take the directories and learn which logs are there.

        A directory that cannot be read is dead from the start, if another directory exists. Raises LogDirInvalid for a
        directory of another node, LogDirFailure if no directory is left.
        """
        for directory in self.directories:
            directory.on_failure, directory.on_withdrawn = self.withdrawals.failed, self.withdrawals.withdrawn
            try:
                self.cluster_id = directory.take(self.cluster_id, self.node_id, locked=directory.path in self._locked)
                self._load(directory)
            except OSError as e:
                directory.fail(e)
                if directory.online:  # descriptors are short before anything is served: the limit is too low
                    raise LogDirFailure(directory.path, e) from e
        check_ids(self.directories)
        self.futures.all_loaded()
        if not any(directory.online for directory in self.directories):
            failed = self.directories[0].failed
            assert failed is not None, "law: a directory is dead for a reason"
            raise failed
        self.housekeeping.start()

    def topics_known(self) -> None:
        """From now on `topic_config` returns the effective values: logs may be recovered, and retention may delete."""
        self.housekeeping.topics_known()

    def _load(self, directory: Directory) -> None:
        for topic, partition in directory.load():
            entries = self._logs.setdefault(topic, {})
            other = entries.get(partition)
            if other is not None:
                raise LogDirError(
                    directory.path, f"{names.partition_dir(topic, partition)} is also in {directory_of(other).path}"
                )
            entries[partition] = directory
        self.futures.load(directory)
        for path in directory.strays:
            # Strays of an earlier run get the full delay again.
            self._remove_stray(directory, path)

    @property
    def previous_broker_epoch(self) -> int:
        """The epoch under which the broker stopped cleanly; -1 if any directory was not closed cleanly."""
        epochs = {directory.broker_epoch for directory in self.directories if directory.online}
        return epochs.pop() if len(epochs) == 1 else NO_BROKER_EPOCH

    def reconfigure(self, config: ConfigView) -> None:
        """The node's configuration has changed: apply the values that may change at run time."""
        if self.timing.update(config):
            self.housekeeping.timing_changed()

    # --- logs ---

    def __len__(self) -> int:
        return sum(map(len, self._logs.values()))

    def partitions(self) -> Iterator[tuple[str, int]]:
        """All logs in online directories, open or not."""
        for topic, entries in list(self._logs.items()):
            for partition in list(entries):
                yield topic, partition

    def open_logs(self) -> Iterator[Log]:
        """The open logs."""
        for entries in list(self._logs.values()):
            for entry in list(entries.values()):
                if isinstance(entry, Log):
                    yield entry

    def get(self, topic: str, partition: int) -> Log | None:
        """The log, opened (and recovered) if necessary; None if the partition has no log here.

        Raises LogIsRecovering while its recovery lane scans it, KafkaError KAFKA_STORAGE_ERROR if its directory has
        failed or the log is damaged.
        """
        entry = self._logs.get(topic, {}).get(partition)
        if entry is None:
            return None
        if isinstance(entry, Log):
            log = entry
        else:
            self._check_not_recovering(entry, topic, partition)
            log = self.open(entry, topic, partition)
        log.held = True
        return log

    def entry(self, topic: str, partition: int) -> Entry | None:
        """The open log, or the directory of a log that is not open; None without a log."""
        return self._logs.get(topic, {}).get(partition)

    def has(self, topic: str, partition: int) -> bool:
        """Whether a log or an unfinished copy exists."""
        return partition in self._logs.get(topic, ()) or self.futures.directory_of(topic, partition) is not None

    def forget_open(self, log: Log) -> None:
        """Replace an open log, which is closed and durable, by its directory."""
        self._logs[log.topic][log.partition] = directory_of(log)

    def _check_not_recovering(self, directory: Directory, topic: str, partition: int) -> None:
        directory.check()
        try:
            is_long = self.recovery.takes(directory, topic, partition, first=True)
        except OSError as e:
            raise directory.fail(e) from e
        if is_long:
            raise LogIsRecovering(topic, partition, self.recovery.refused(topic, partition))

    def open(self, directory: Directory, topic: str, partition: int) -> Log:
        """Open a log on the loop, with recovery if necessary. Raises KafkaError KAFKA_STORAGE_ERROR."""
        directory.check()
        damage = directory.quarantined.get((topic, partition))
        if damage is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(damage))
        try:
            log = self.opening(directory, topic, partition)(directory)
        except (OSError, LogDirDamaged) as e:
            raise self.not_opened(directory, topic, partition, e) from e
        return self.take_over(directory, log)

    def opening(self, directory: Directory, topic: str, partition: int) -> Callable[[LogDir], Log]:
        """A function that opens the log with the current values of the checkpoints; any thread may call it.

        Its argument is the log directory through which files are opened. Raises OSError, LogDirDamaged.
        """
        path = self.path(directory, topic, partition)
        config = self.topic_config(topic)
        clean = (topic, partition) not in directory.unrecovered
        same_boot = directory.same_boot
        must_reach = directory.suspects.get((topic, partition))
        recovery_point = directory.promised(topic, partition)
        start_offset = offset_in(directory.start_offsets, topic, partition)
        high_watermark = offset_in(directory.high_watermarks, topic, partition)
        compacted_below = offset_in(directory.cleaner_offsets, topic, partition, NEVER_COMPACTED)

        def opened(log_dir: LogDir) -> Log:
            log = open_log(
                log_dir,
                path,
                topic,
                partition,
                config,
                clean=clean,
                recovery_point=recovery_point,
                start_offset=start_offset,
                high_watermark=high_watermark,
                compacted_below=compacted_below,
                same_boot=same_boot,
                must_reach=must_reach,
            )
            log.topic_id = partition_metadata.read(log_dir.env.disk, path)
            return log

        return opened

    def take_over(self, directory: Directory, log: Log) -> Log:
        """Take a log that was just opened as the log of its partition."""
        if log.dir is not directory:
            log.dir = directory
            log.set_config(self.topic_config(log.topic))  # it may have changed since the opening began
        directory.recovered(log.topic, log.partition)
        self.recovery.forget(log.topic, log.partition)
        self._logs[log.topic][log.partition] = log
        return log

    def settle(self, log: Log) -> None:
        """Make a recovered log durable; close it unless a request has opened it meanwhile."""
        self.housekeeping.settle(log)

    def not_opened(self, directory: Directory, topic: str, partition: int, error: BaseException) -> KafkaError:
        """A log could not be opened: quarantine it, or take its directory offline. Returns the error for the caller."""
        if isinstance(error, LogDirDamaged):
            return self.withdrawals.quarantine(directory, topic, partition, error)
        return directory.fail(error)

    def topic_id(self, topic: str, partition: int) -> Uuid | None:
        """The topic id of a log without opening it; ZERO_UUID for a log without a topic id, None without a log.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        entry = self._logs.get(topic, {}).get(partition)
        if entry is None:
            return None
        if isinstance(entry, Log):
            return Uuid(entry.topic_id) if entry.topic_id is not None else ZERO_UUID
        entry.check()
        try:
            return partition_metadata.read(self.env.disk, self.path(entry, topic, partition)) or ZERO_UUID
        except OSError as e:
            raise entry.fail(e) from e

    def path(self, directory: LogDir, topic: str, partition: int) -> str:
        """The path of a log's files."""
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
        """Create an empty log in the directory with that id, else in the directory with the fewest logs that is not
        cordoned.

        Raises KafkaError KAFKA_STORAGE_ERROR, INVALID_REQUEST if it exists already, NOT_LEADER_OR_FOLLOWER while the
        checkpoints may still name an older partition with the same name.
        """
        entries = self._logs.setdefault(topic, {})
        if partition in entries:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the log of {topic}-{partition} exists already")
        directory = chosen(self.directories, self.preferred.get((topic, partition)), directory_id)
        self.check_not_retired(directory, topic, partition)
        path = self.path(directory, topic, partition)
        try:
            self.env.disk.mkdir(path, new=True)
            log = new_log(directory, path, topic, partition, config or self.topic_config(topic))
            if topic_id is not None:
                log.topic_id = topic_id
                partition_metadata.make(directory.originals, path, topic_id)
        except (OSError, LogDirDamaged) as e:
            if is_shortage(e) and self.env.disk.exists(path):  # else the next try finds half a log in its place
                directory.remove_later(directory.rename_partition(topic, partition, names.DELETE_DIR), 0)
            raise directory.fail(e) from e
        log.held = True
        directory.count += 1
        directory.names_sync.begin(NEW_NAMES_SYNC_MS)
        entries[partition] = log
        self.preferred.pop((topic, partition), None)
        return log

    def check_not_retired(self, directory: Directory, topic: str, partition: int) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER while the checkpoints may still name an older log with the same name."""
        if (topic, partition) in directory.retired:
            if directory.offsets_dirty:
                self.checkpoint_all()
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the log of {topic}-{partition} is created once no checkpoint names an older log; retry",
            )
        if self.recovery.is_busy_with(topic, partition):
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"the log of {topic}-{partition} will be created once the recovery of an older log has ended; retry",
            )

    def put(self, log: Log) -> None:
        """A copy has become the log of its partition."""
        self._logs.setdefault(log.topic, {})[log.partition] = log
        self.housekeeping.checkpoint_soon()  # its start offset was checkpointed in the old directory

    def delete(self, topic: str, partition: int) -> None:
        """Delete a log: it is gone at once, its files after `file.delete.delay.ms`. Allowed without a log.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        config = self.topic_config(topic)
        self.futures.delete(topic, partition)
        found = self.take_away(topic, partition, names.DELETE_DIR)
        if found is not None:
            found[0].remove_later(found[1], config.file_delete_delay_ms)

    def set_aside(self, topic: str, partition: int) -> None:
        """Rename a log without an owner to `-stray` and forget it. Raises KafkaError.

        A stray with a topic id is removed after the delay for strays (KIP-516; -1: never), as in Apache Kafka. Without
        a topic id it is unknown whether the log is stale: an administrator must decide.
        """
        self.futures.delete(topic, partition)
        found = self.take_away(topic, partition, names.STRAY_DIR)
        if found is not None:
            logger.warning("stray log set aside partition=%s-%d path=%s", topic, partition, found[1])
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

    def take_away(self, topic: str, partition: int, suffix: str, unique: str = "") -> tuple[Directory, str] | None:
        """Rename a log and forget it. Returns its directory and new path; None without a log. Raises KafkaError."""
        entries = self._logs.get(topic)
        entry = None if entries is None else entries.get(partition)
        if entry is None or entries is None:
            return None
        directory = directory_of(entry)
        directory.check()
        if isinstance(entry, Log):
            entry.close()
        try:
            path = directory.rename_partition(topic, partition, suffix, unique)
        except OSError as e:
            raise directory.fail(e) from e
        if isinstance(entry, Log):
            entry.path = path
        del entries[partition]
        if not entries:
            del self._logs[topic]
        directory.count -= 1
        directory.recovered(topic, partition)
        self.recovery.forget(topic, partition)
        directory.quarantined.pop((topic, partition), None)
        directory.suspects.pop((topic, partition), None)
        self.forget_offsets(directory, topic, partition)
        return directory, path

    def forget_offsets(self, directory: Directory, topic: str, partition: int) -> None:
        """A log was removed: remove its offsets from the checkpoints soon."""
        is_first = not directory.retired
        directory.forget_offsets(topic, partition)
        if is_first and directory.retired:
            self.housekeeping.checkpoint_soon()

    def configure(self, topic: str, config: LogConfig) -> None:
        """A topic's configuration has changed: its open logs use it from now on."""
        for entry in self._logs.get(topic, {}).values():
            if isinstance(entry, Log):
                entry.set_config(config)
        for log in self.futures.logs():
            if log.topic == topic:
                log.set_config(config)

    def directory_of(self, topic: str, partition: int) -> Directory | None:
        """The directory of the log."""
        entry = self._logs.get(topic, {}).get(partition)
        return None if entry is None else directory_of(entry)

    def sizes(self, directory: Directory) -> Iterator[tuple[str, int, int]]:
        """(topic, partition, bytes) of the logs in a directory; logs that are not open are measured by their files.

        The size is `UNMEASURED` if a lane must call `measured`: there are too many files, or another lane changes them
        at this moment. Raises OSError.
        """
        for topic, entries in list(self._logs.items()):
            for partition in list(entries):
                entry = entries.get(partition)  # read again, because callers may pause between two logs
                if entry is None or directory_of(entry) is not directory:
                    continue
                if isinstance(entry, Log):
                    yield topic, partition, entry.size_bytes
                elif self.recovery.is_busy_with(topic, partition) or self.recovery.is_wide(entry, topic, partition):
                    yield topic, partition, UNMEASURED
                else:
                    yield topic, partition, measured(self.env.disk, self.path(entry, topic, partition))

    # --- checkpoints ---

    def note_all(self) -> None:
        """Note the offsets of all open logs for the checkpoints."""
        for log in (*self.open_logs(), *self.futures.logs()):
            directory_of(log).note(log)

    def checkpoint_all(self) -> None:
        """Write the changed offset checkpoints of all directories, in the background."""
        self._noting.begin()

    # --- stop ---

    def shutdown(self, done: Callable[[], None], *, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Close all logs: data durable, snapshots and checkpoints written, the clean mark last; then call `done()`.

        A directory gets no mark if a log in it cannot be closed, or cannot be recovered because topics are not known
        yet.
        """
        self.housekeeping.stop()
        self.recovery.stop(lambda: self._close_all(done, broker_epoch))

    def _close_all(self, done: Callable[[], None], broker_epoch: int) -> None:
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
            close_directory(self, directory, broker_epoch, one_done)

    def release(self) -> None:
        """Release the locks. Call it last."""
        for directory in self.directories:
            directory.release()


def measured(disk: Disk, path: str) -> int:
    """Bytes of the segments in the directory of a log, from any thread. Raises OSError."""
    return sum(disk.size(f"{path}/{name}") for name in disk.listdir(path) if name.endswith(names.LOG))
