"""One of the node's log directories: lock, identity, clean-shutdown mark, checkpoints, and its partition directories.

Opening a directory reads one listing and four small files, for any number of partitions.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kraft_node.base.env import Disk, DiskLock, Env, FileSystem, read_file, write_atomic
from kraft_node.log import names, trimming
from kraft_node.log.checkpoints import meta_properties
from kraft_node.log.checkpoints.offsets import CheckpointError, CheckpointText, column_of, offset_in, read_offsets
from kraft_node.log.errors import CutLater, LogDirDamaged, LogDirInvalid
from kraft_node.log.log_dir import LogDir, ReportedLog
from kraft_node.log.manager.names_sync import NAMES_SYNC_MS, NamesSync
from kraft_node.log.manager.suspects import take_list, write_list
from kraft_node.log.recovery.page_cache import BootMark
from kraft_node.log.segments.files import FileCache, Originals
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import METADATA_TOPIC_NAME, ZERO_UUID, Uuid, random_uuid

if TYPE_CHECKING:
    from kraft_node.log.checkpoints.offsets import OffsetMap
    from kraft_node.log.log import Log

logger = logging.getLogger("kraft_node.log")

NO_BROKER_EPOCH: Final = -1

LOWERED_MS: Final = 60_000
"""After this time, a truncation that was not retried counts as abandoned."""


class _Lowered(NamedTuple):
    """A log that waits for its truncation to `offset`, until the checkpoint write with this number is durable."""

    offset: int
    write: int
    since_ms: int


def lock_directory(disk: Disk, path: str) -> DiskLock:
    """The lock of a log directory. Raises LogDirInvalid if another process (also Apache Kafka's) holds it."""
    try:
        return disk.lock(f"{path}/{names.LOCK}")
    except BlockingIOError:
        raise LogDirInvalid(path, "another process is using it (it holds .lock)") from None


class Directory(LogDir):
    """A log directory, and the data of its files about the logs in it."""

    __slots__ = (
        "_boot_mark",
        "_changed",
        "_disk_lock",
        "_file_system",
        "_lowered",
        "_text",
        "_writing",
        "broker_epoch",
        "clean",
        "cleaner_offsets",
        "cordoned",
        "count",
        "deleted",
        "futures",
        "high_watermarks",
        "names_sync",
        "offsets_dirty",
        "on_withdrawn",
        "originals",
        "quarantined",
        "recovery_points",
        "retired",
        "same_boot",
        "start_offsets",
        "strays",
        "suspects",
        "unrecovered",
        "writes",
        "written",
    )

    def __init__(self, env: Env, path: str, files: FileCache) -> None:
        super().__init__(env, path, files)
        self.cut_step = trimming.CUT_STEP
        self._disk_lock: DiskLock | None = None
        self._file_system: FileSystem | None = None
        self.names_sync = NamesSync(self)
        self._boot_mark = BootMark(env.disk, path, env.boot_id)
        self.same_boot = False
        """Whether all logs here were known to be undamaged since the machine's last boot."""
        self.originals = Originals(env.disk)
        """For the files of new logs."""
        self.broker_epoch = NO_BROKER_EPOCH
        """Epoch of the incarnation that stopped cleanly last; -1 after an unclean stop."""
        self.clean = False
        self.cordoned = False
        """Whether new logs go to other directories, if another directory exists (cordoned.log.dirs)."""
        self.count = 0
        """Number of logs in the directory."""
        self.recovery_points: OffsetMap = {}
        self.start_offsets: OffsetMap = {}
        self.high_watermarks: OffsetMap = {}
        self.cleaner_offsets: OffsetMap = {}
        """The offset up to which each log was compacted."""
        self.deleted: list[str] = []
        """Paths of logs whose deletion an earlier run has not completed."""
        self.strays: list[str] = []
        """Paths of logs that an earlier run has set aside."""
        self.futures: list[tuple[tuple[str, int], str]] = []
        """Copies of logs from other directories that an earlier run has not completed: partition and path."""
        self.quarantined: dict[tuple[str, int], LogDirDamaged] = {}
        """Damaged logs, with their damage: they are never opened. Their files stay unchanged."""
        self.suspects: dict[tuple[str, int], int] = {}
        """Logs that were found damaged, now or before the last clean stop, until `Withdrawals.settle` is called: with
        the end offset of the whole log. They are opened only if all of it can be read."""
        self.on_withdrawn: Callable[[ReportedLog, LogDirDamaged | None], None] | None = None
        """Called with an open log that must no longer be used: it is damaged, or (None) must be opened again."""
        self.unrecovered: dict[tuple[str, int], None] = {}
        """Logs that were open at an unclean stop and are not recovered yet; ordered by name."""
        self.offsets_dirty = False
        self.writes = 0
        """Number of calls of `write_offsets`."""
        self.written = 0
        """The latest of these writes that is durable."""
        self._changed: dict[str, None] = {}
        """Topics with changed offsets since the last write."""
        self._text = CheckpointText(len(self._tables))
        """Belongs to the directory's thread."""
        self._lowered: dict[tuple[str, int], _Lowered] = {}
        """Logs with a truncation that waits until the checkpoints promise less."""
        self._writing = False
        """Whether a write for them is about to begin."""
        self.retired: dict[tuple[str, int], int] = {}
        """Removed partitions that the checkpoints may still name, with the first write that does not.

        Their offsets must not apply to a new partition with the same name: its log would then count as damaged.
        """

    @property
    def _tables(self) -> tuple[OffsetMap, ...]:
        return self.recovery_points, self.start_offsets, self.high_watermarks, self.cleaner_offsets

    @property
    def online(self) -> bool:
        """Whether no disk failure has taken the directory offline."""
        return self.failed is None

    # --- failures ---

    def fail(self, error: BaseException) -> KafkaError:
        """As `LogDir.fail`. The next start does not trust the page cache: it may lack what the disk has lost."""
        was_online, refused = self.online, super().fail(error)
        if was_online and not self.online:
            self.env.background.submit(self.lane, self._boot_mark.remove, lambda _: None)
        return refused

    def damaged(self, log: ReportedLog, error: LogDirDamaged) -> KafkaError:
        """Quarantine the replica; the directory and its other logs continue."""
        if self.on_withdrawn is not None and not log.closed:
            self.on_withdrawn(log, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def unsettled(self, log: ReportedLog) -> None:
        """Have the log opened again, with the recovery of a killed process, before it is used."""
        if self.on_withdrawn is not None and not log.closed:
            self.on_withdrawn(log, None)

    # --- sizes ---

    def volume_bytes(self) -> tuple[int, int]:
        """(total, usable) bytes of the file system. Raises OSError."""
        disk = self.env.disk
        return disk.total_bytes(self.path), disk.free_bytes(self.path)

    # --- start ---

    def take(self, cluster_id: str | None, node_id: int, *, locked: bool = False) -> str:
        """Lock the directory and check that it belongs to this node.

        Returns its cluster id. Raises OSError, LogDirInvalid.
        """
        disk = self.env.disk
        if not disk.is_dir(self.path):
            raise LogDirInvalid(self.path, "the directory does not exist (see kafka-storage format)")
        if not locked:
            self._disk_lock = lock_directory(disk, self.path)
        found = meta_properties.check(self.path, meta_properties.read(disk, self.path), cluster_id, node_id)
        directory_id = found.directory_id
        if found.version == 0 or directory_id is None:
            directory_id = random_uuid(self.env.rng) if directory_id is None else directory_id
            meta_properties.write(disk, self.path, found._replace(version=1, directory_id=directory_id))
        self.id = directory_id
        self._file_system = disk.file_system(self.path)
        assert found.cluster_id is not None, "law: a checked file names its cluster"
        return found.cluster_id

    def load(self) -> Iterator[tuple[str, int]]:
        """Read mark, checkpoints and names. Yields the partitions here.

        Raises OSError, LogDirInvalid.
        """
        disk = self.env.disk
        listed = disk.listdir(self.path)
        self._read_mark()
        self.recovery_points = self._read_offsets(names.RECOVERY_POINT_CHECKPOINT)
        self.start_offsets = self._read_offsets(names.LOG_START_CHECKPOINT)
        self.high_watermarks = self._read_offsets(names.REPLICATION_CHECKPOINT)
        self.cleaner_offsets = self._read_offsets(names.CLEANER_CHECKPOINT)
        here: set[tuple[str, int]] = set()
        for name in listed:
            if name.endswith(names.DELETE_DIR) and names.parse_suffixed_dir(name, names.DELETE_DIR) is not None:
                self.deleted.append(f"{self.path}/{name}")
                continue
            if names.parse_suffixed_dir(name, names.STRAY_DIR) is not None:
                self.strays.append(f"{self.path}/{name}")
                continue
            future = names.parse_suffixed_dir(name, names.FUTURE_DIR)
            if future is not None:
                here.add(future)
                self.futures.append((future, f"{self.path}/{name}"))
                continue
            if "-" not in name or name.endswith((names.STRAY_DIR, names.FUTURE_DIR)):
                continue
            found = names.parse_partition_dir(name)
            if found is None or found[0] == METADATA_TOPIC_NAME:
                continue
            here.add(found)
            self.count += 1
            if not self.clean:
                self.unrecovered[found] = None
            yield found
        for gone in self.unrecovered.keys() - here:
            del self.unrecovered[gone]
            self.suspects.pop(gone, None)
        self._forget_all_but(here)
        for offsets in self._tables:
            self._changed.update(dict.fromkeys(offsets))
        self.same_boot = self._boot_mark.is_current()
        if not self.same_boot:
            self._boot_mark.remove()
            self._mark_sound()

    def recovered(self, topic: str, partition: int) -> None:
        """A log was recovered, or removed."""
        if self.unrecovered.pop((topic, partition), self) is None:
            self._mark_sound()

    def _mark_sound(self) -> None:
        if not self.unrecovered and not self.same_boot and self.online:
            try:
                self._boot_mark.write()
            except OSError as e:
                self.fail(e)

    def _read_mark(self) -> None:
        disk = self.env.disk
        path = f"{self.path}/{names.CLEAN_SHUTDOWN}"
        try:
            data = read_file(disk, path)
        except FileNotFoundError:
            return
        self.clean = True
        with contextlib.suppress(ValueError, AttributeError, TypeError):
            self.broker_epoch = int(json.loads(data).get("brokerEpoch", NO_BROKER_EPOCH)) if data else NO_BROKER_EPOCH
        disk.remove(path)
        disk.fsync_dir(self.path)
        # The mark is gone by now: if the node dies here, the next start trusts no log.
        for key, end in take_list(disk, self.path).items():
            self.unrecovered[key] = None
            if end is not None:
                self.suspects[key] = end

    def _read_offsets(self, name: str) -> OffsetMap:
        try:
            return read_offsets(self.env.disk, f"{self.path}/{name}")
        except CheckpointError as e:
            # Low values are always safe: recovery scans more, and the high watermark is learned again.
            logger.warning("damaged checkpoint ignored error=%s", e)
            return {}

    # --- while running ---

    def sync_file_system(self) -> bool:
        """Make all writes to this file system durable at once; False if this is impossible. Raises OSError.

        The file system is held open since the start, so it reports all failed writes since then. These include
        failures that another process has seen before.
        """
        if self._file_system is None:
            return False
        self._file_system.sync()
        return True

    def note(self, log: Log) -> None:
        """Note the offsets of an open log for the checkpoints, which the next `write_offsets` writes."""
        changed, partition = False, log.partition
        values = (log.recovery_point, log.start_offset, trimming.promised_high_watermark(log))
        if self._lowered:
            values = self._capped(log, values)
        for offsets, value in zip(self._tables, values, strict=False):
            of_topic = column_of(offsets, log.topic)
            if of_topic.get(partition) != value:
                if offsets is self.recovery_points:
                    self._drop_old_snapshots(log, of_topic.get(partition) or 0)
                of_topic[partition] = value
                changed = True
        if changed:
            self.changed(log.topic)

    def changed(self, topic: str) -> None:
        """Note that offsets of the topic have changed: the next write includes them."""
        self._changed[topic] = None
        self.offsets_dirty = True

    def _capped(self, log: Log, values: tuple[int, int, int]) -> tuple[int, int, int]:
        """The checkpoint values of a log that waits for its truncation; it waits no longer than `LOWERED_MS`."""
        lowered = self._lowered.get((log.topic, log.partition))
        if lowered is None:
            return values
        if self.env.clock.monotonic_ms() - lowered.since_ms > LOWERED_MS:
            del self._lowered[log.topic, log.partition]
            return values
        recovery_point, start, high_watermark = values
        return min(recovery_point, lowered.offset), min(start, lowered.offset), min(high_watermark, lowered.offset)

    def _drop_old_snapshots(self, log: Log, recovery_point: int) -> None:
        try:
            trimming.drop_old_snapshots(log, recovery_point)
        except OSError as e:
            self.fail(e)

    def forget_offsets(self, topic: str, partition: int) -> None:
        """A partition was removed: the next write drops its offsets from the checkpoints."""
        for offsets in (self.recovery_points, self.start_offsets, self.high_watermarks, self.cleaner_offsets):
            of_topic = offsets.get(topic)
            if of_topic is not None and of_topic.pop(partition, None) is not None:
                self.retired[topic, partition] = self.writes + 1
            if offsets is not self.cleaner_offsets and topic in offsets and not offsets[topic]:
                del offsets[topic]  # the other file is written only while it has content
        self._lowered.pop((topic, partition), None)
        self.changed(topic)

    def _forget_all_but(self, here: set[tuple[str, int]]) -> None:
        """Forget partitions that a kill or an administrator removed: a new log of that name has not lost records."""
        for offsets in (self.recovery_points, self.start_offsets, self.high_watermarks, self.cleaner_offsets):
            for topic, of_topic in list(offsets.items()):
                for partition in [partition for partition in of_topic if (topic, partition) not in here]:
                    self.forget_offsets(topic, partition)

    def offsets_written(self, number: int) -> None:
        """The write with this number is done, and all earlier writes."""
        self.written = max(self.written, number)
        if self.retired:
            self.retired = {partition: at for partition, at in self.retired.items() if at > number}

    def promised(self, topic: str, partition: int) -> int:
        """Below this offset a log is as durable as it was when the checkpoints were written.

        A follower truncates records that its leader does not have, which can be durable, and writes others. Only
        records below the high watermark are unchanged since.
        """
        return min(offset_in(of, topic, partition) for of in (self.recovery_points, self.high_watermarks))

    def promise_less(self, topic: str, partition: int, offset: int) -> None:
        """Before a log is truncated to `offset`: the checkpoints on disk must not promise more.

        Only an uncleanly elected leader makes a follower truncate below the high watermark of its last checkpoint. A
        kill before the next checkpoint would leave a log that ends before the promised offset: damage, for the next
        start. So the directory's thread writes the checkpoints first. Raises CutLater until that is done: try again.
        """
        key = (topic, partition)
        others = (offset_in(of, topic, partition) for of in (self.start_offsets, self.cleaner_offsets))
        if max(self.promised(topic, partition), *others) > offset:
            for offsets in self._tables:
                of_topic = offsets.get(topic)
                if of_topic is not None and partition in of_topic:
                    of_topic[partition] = min(offset, of_topic[partition])
            self.changed(topic)
            self._lowered[key] = _Lowered(offset, self.writes + 1, self.env.clock.monotonic_ms())
        lowered = self._lowered.get(key)
        if lowered is None:
            return
        if self.written < lowered.write:
            if not self._writing:
                self._writing = True
                self.env.scheduler.call_soon(self._write_lowered)
            raise CutLater(topic, partition, offset)
        del self._lowered[key]

    def _write_lowered(self) -> None:
        self._writing = False
        if self.online and self.offsets_dirty:
            self.write_in_background()

    def write_in_background(self) -> None:
        """Write the checkpoints in the directory's thread; an error takes the directory offline."""
        self.offsets_dirty = False
        work = self.write_offsets()
        done = partial(self.offsets_written, self.writes)
        self.run(work, done, done)

    def write_offsets(self) -> Callable[[], None]:
        """Work for the directory's thread that writes the current checkpoints; then call `offsets_written`.

        The cost on the loop is proportional to the topics that have changed since the last call.
        """
        self.writes += 1
        disk, text = self.env.disk, self._text
        changes = {topic: self._offsets_of(topic) for topic in self._changed}
        self._changed.clear()
        files = [names.RECOVERY_POINT_CHECKPOINT, names.LOG_START_CHECKPOINT, names.REPLICATION_CHECKPOINT]
        if self.cleaner_offsets:
            files.append(names.CLEANER_CHECKPOINT)

        def work() -> None:
            text.update(changes)
            changes.clear()  # a retry, after later writes perhaps, must not bring these offsets back
            for number, name in enumerate(files):
                write_atomic(disk, f"{self.path}/{name}", text.data(number))

        return work

    def _offsets_of(self, topic: str) -> list[dict[int, int]]:
        found = [offsets[topic].to_dict() if topic in offsets else {} for offsets in self._tables]
        # As in Kafka, log start offsets are written only if they are not the beginning.
        found[1] = {partition: at for partition, at in found[1].items() if at > 0}
        return found

    def write_mark(self, broker_epoch: int, unproven: Sequence[tuple[str, int]]) -> None:
        """Mark all logs here as closed and durable, except damaged logs and `unproven` copies. Raises OSError."""
        damaged = {
            key: end
            if key in self.quarantined or key in self.unrecovered
            else offset_in(self.recovery_points, *key)  # it was whole again, and is closed
            for key, end in self.suspects.items()
        }
        write_list(self.env.disk, self.path, damaged, unproven)
        mark = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        write_atomic(self.env.disk, f"{self.path}/{names.CLEAN_SHUTDOWN}", mark.encode())

    def rename_partition(self, topic: str, partition: int, suffix: str, unique: str = "") -> str:
        """Rename a partition's directory to a unique name. Returns its new path. Raises OSError."""
        path = f"{self.path}/{names.partition_dir(topic, partition)}"
        return self.rename_aside(path, topic, partition, suffix, unique)

    def rename_aside(self, directory: str, topic: str, partition: int, suffix: str, unique: str = "") -> str:
        """The same for a directory of any name."""
        unique = unique or self.env.rng.random_bytes(16).hex()
        name = names.suffixed_dir(topic, partition, unique, suffix)
        path = f"{self.path}/{name}"
        self.env.disk.rename(directory, path)
        self.originals.forget()
        self.names_sync.begin(NAMES_SYNC_MS)
        return path

    def remove_later(self, path: str, delay_ms: int) -> None:
        """Remove a directory in the background after `delay_ms`; after a failure, the next start removes it."""
        env = self.env

        def work() -> None:
            with contextlib.suppress(FileNotFoundError):
                env.disk.rmtree(path)

        def done(result: BaseException | None) -> None:
            if isinstance(result, BaseException):
                logger.warning("cannot remove directory path=%s error=%s", path, result)

        # Not before the new name is durable: a crash must not restore half a log under its old name.
        delay_ms = max(delay_ms, 2 * NAMES_SYNC_MS)
        env.scheduler.call_later(delay_ms, lambda: env.background.submit(self.lane, work, done))

    def release(self) -> None:
        """Release the lock."""
        if self._file_system is not None:
            self._file_system.close()
            self._file_system = None
        if self._disk_lock is not None:
            self._disk_lock.release()
            self._disk_lock = None

    @property
    def directory_id(self) -> Uuid:
        """The directory.id of meta.properties (KIP-858); ZERO_UUID until `take` has read it."""
        return Uuid(self.id) if self.id else ZERO_UUID


def directory_of(entry: Log | Directory) -> Directory:
    """The directory of an open log, or of a log that is known by its directory only."""
    directory = entry if isinstance(entry, Directory) else entry.dir
    assert isinstance(directory, Directory), "law: the manager's logs lie in its directories"
    return directory
