"""Future logs: unfinished copies from one log directory of a broker to another (`topic-partition.<unique>-future`).

`LogManager.futures` finds them at start, creates, opens and removes them, and replaces the original log by its copy.
`broker.log_dir_moves` decides which logs are copied and when a copy is complete. A partition has at most one future
log, in another directory than its log.

A copy is served only if it is proven: created by this process, closed cleanly, or truncated to the offset that the
checkpoints promise. Above that offset a loss of power may have left holes, which look like the holes of compaction. A
flush would make a hole durable, and no check would find it later. So no caller gets an unproven copy.

Compaction spares a log that moves, because its copy would keep deleted records without their tombstones. A copy in an
offline directory is not known, so its log may be compacted meanwhile. A copy of a compacted log therefore continues
only if both directories were closed cleanly by the same process; otherwise the log is copied anew.

A promotion renames the log to `-delete` with the unique part of its copy's name. After a crash, this name proves that
the copy is complete. A log that is merely out of sight, because its directory is offline, leaves no such name.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kraft_node.log import names
from kraft_node.log.checkpoints import partition_metadata
from kraft_node.log.checkpoints.offsets import column_of, offset_in
from kraft_node.log.errors import LogDirDamaged
from kraft_node.log.manager.directory import NO_BROKER_EPOCH, Directory
from kraft_node.log.manager.names_sync import NEW_NAMES_SYNC_MS
from kraft_node.log.manager.seams import LogTable
from kraft_node.log.producers.replay import keep_producers
from kraft_node.log.recovery.background import OnLoop, ScanStopped, scan_bytes
from kraft_node.log.recovery.opening import NEVER_COMPACTED, new_log, open_log
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from kraft_node.log.log import Log
    from kraft_node.log.log_dir import LogDir, ReportedLog
    from kraft_node.log.recovery.background import Opening, Recovery

logger = logging.getLogger("kraft_node.log")


class MovedLogs(LogTable, Protocol):
    """The logs of a broker, which are replaced by their copies."""

    @property
    def recovery(self) -> Recovery:
        """Opens logs in lanes."""
        ...

    def check_not_retired(self, directory: Directory, topic: str, partition: int) -> None:
        """Raise NOT_LEADER_OR_FOLLOWER while the checkpoints may still name an older log with the same name."""

    def forget_offsets(self, directory: Directory, topic: str, partition: int) -> None:
        """A log was removed: remove its offsets from the checkpoints soon."""

    def take_away(self, topic: str, partition: int, suffix: str, unique: str = "") -> tuple[Directory, str] | None:
        """Rename a log and forget it. Returns its directory and new path; None without a log. Raises KafkaError."""
        ...

    def put(self, log: Log) -> None:
        """A copy has become the log of its partition."""


class _Future:
    __slots__ = ("apart", "directory", "in_lane", "is_long", "log", "path", "proven", "replaced")

    def __init__(self, directory: Directory, path: str, *, proven: bool) -> None:
        self.directory = directory
        self.path = path
        self.proven = proven
        """Whether everything in it may be trusted; false after an unclean stop, until it was truncated."""
        self.apart = False
        """Whether its log may have been compacted while the copy was out of sight."""
        self.replaced: tuple[Directory, str] | None = None
        """The renamed log, with its directory, if a crash came between the two renames of the promotion."""
        self.log: Log | None = None
        """The open copy; if it is not proven, its truncation goes on."""
        self.in_lane = False
        """Whether a lane is opening it."""
        self.is_long: bool | None = None
        """Whether a lane must open it; None: not looked yet. Those who wait ask often, and a look lists its files."""


class Futures:
    """The future logs of a broker, by topic and partition."""

    def __init__(self, manager: MovedLogs) -> None:
        self._manager = manager
        self._found: dict[tuple[str, int], _Future] = {}

    def __len__(self) -> int:
        return len(self._found)

    def load(self, directory: Directory) -> None:
        """Take over the copies in the directory. A second copy of a partition is useless and removed."""
        for key, path in directory.futures:
            if key in self._found:
                logger.warning("second copy of a log removed path=%s other=%s", path, self._found[key].path)
                directory.remove_later(path, 0)
            else:
                is_listed = key in directory.unrecovered
                self._found[key] = _Future(directory, path, proven=directory.clean and not is_listed)
                directory.recovered(*key)
                directory.count += 1

    def all_loaded(self) -> None:
        """All directories are loaded: compare the copies with their logs; remove logs that an earlier run deleted.

        While a directory is offline, these stay: one may prove that a copy in that directory is complete.
        """
        manager = self._manager
        deleted = {names.unique_of(path): (each, path) for each in manager.directories for path in each.deleted}
        for key, found in self._found.items():
            source, target = manager.directory_of(*key), found.directory
            found.apart = not (
                source is not None
                and found.proven
                and source.clean
                and source.broker_epoch == target.broker_epoch != NO_BROKER_EPOCH
            )
            if source is None:
                found.replaced = deleted.pop(names.unique_of(found.path), None)
        if all(directory.online for directory in manager.directories):
            for directory, path in deleted.values():
                directory.remove_later(path, 0)

    def partitions(self) -> list[tuple[str, int]]:
        """The partitions that are being copied, or were when the node stopped."""
        return list(self._found)

    def logs(self) -> Iterator[Log]:
        """The open copies that are proven."""
        return (future.log for future in list(self._found.values()) if future.log is not None and future.proven)

    def unproven(self, directory: Directory) -> list[tuple[str, int]]:
        """The copies in a directory that the next start must not trust either, though the node stops cleanly."""
        return [
            key
            for key, found in self._found.items()
            if found.directory is directory and (found.apart or not found.proven)
        ]

    def directory_of(self, topic: str, partition: int) -> Directory | None:
        """The directory of the copy; None without a copy."""
        found = self._found.get((topic, partition))
        return None if found is None else found.directory

    def topic_id(self, topic: str, partition: int) -> Uuid | None:
        """The topic id of a copy; ZERO_UUID for a copy without a topic id, None without a copy. Raises KafkaError."""
        found = self._found.get((topic, partition))
        if found is None:
            return None
        try:
            return partition_metadata.read(self._manager.env.disk, found.path) or ZERO_UUID
        except OSError as e:
            raise found.directory.fail(e) from e

    def is_complete(self, topic: str, partition: int, topic_id: Uuid) -> bool:
        """Whether a copy can become the log: a crash came between the two renames of its promotion."""
        found = self._found.get((topic, partition))
        if found is None or found.replaced is None or not found.directory.online:
            return False
        return self.topic_id(topic, partition) == topic_id

    def sizes(self, directory: Directory) -> Iterator[tuple[str, int, int, int]]:
        """(topic, partition, bytes, end offset) of the open copies in a directory."""
        for (topic, partition), found in list(self._found.items()):
            if found.directory is directory and found.log is not None:
                yield topic, partition, found.log.size_bytes, found.log.end_offset

    def get(self, topic: str, partition: int) -> Log | None:
        """The copy, opened (and truncated to the proven offset) if necessary; None if the partition has no copy, or
        the log must be copied anew.

        Raises NOT_LEADER_OR_FOLLOWER while a lane must open it, CutLater while the truncation waits or has more to do:
        try again. KafkaError KAFKA_STORAGE_ERROR.
        """
        found = self._found.get((topic, partition))
        if found is None:
            return None
        if found.apart and self._is_compacted(topic, partition):
            logger.warning(
                "log is copied anew topic=%s partition=%d reason=the copy may have missed a compaction",
                topic,
                partition,
            )
            self.delete(topic, partition)
            return None
        found.apart = False
        if found.log is None and self._needs_lane(found, topic, partition):
            self._open_in_lane(found, topic, partition)
        log = self._open(found, topic, partition)
        if not found.proven:
            _cut_to_promise(log)
            log.set_config(self._manager.topic_config(topic))  # it may have changed since the truncation began
            found.proven = True
        return log

    def _open(self, found: _Future, topic: str, partition: int) -> Log:
        """The copy, proven or not. Raises KafkaError KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER."""
        if found.log is not None:
            return found.log
        if found.in_lane:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the copy of {topic}-{partition} is being opened; retry"
            )
        found.directory.check()
        try:
            log = self._opening(found, topic, partition)(found.directory)
        except (OSError, LogDirDamaged) as e:
            raise self._not_opened(found, topic, partition, e) from e
        return self._take_over(found, log)

    def _opening(self, found: _Future, topic: str, partition: int) -> Opening:
        """A function that opens the copy with the current values of the checkpoints; any thread may call it."""
        path, directory = found.path, found.directory
        opened = partial(
            open_log,
            path=path,
            topic=topic,
            partition=partition,
            config=self._manager.topic_config(topic),
            clean=found.proven,
            recovery_point=directory.promised(topic, partition),
            start_offset=offset_in(directory.start_offsets, topic, partition),
            high_watermark=offset_in(directory.high_watermarks, topic, partition),
            compacted_below=self._compacted_below(topic, partition),
        )

        def opening(log_dir: LogDir) -> Log:
            log = opened(log_dir)
            log.topic_id = partition_metadata.read(log_dir.env.disk, path)
            return log

        return opening

    def _take_over(self, found: _Future, log: Log) -> Log:
        if log.dir is not found.directory:
            log.dir = found.directory
            log.set_config(self._manager.topic_config(log.topic))  # it may have changed since the opening began
        log.held = True
        found.log = log
        return log

    def _not_opened(self, found: _Future, topic: str, partition: int, error: BaseException) -> KafkaError:
        """Remove a damaged copy, or take its directory offline. Returns the error for the caller."""
        if not isinstance(error, LogDirDamaged):
            return found.directory.fail(error)
        logger.error("copy removed topic=%s partition=%d reason=%s", topic, partition, error)
        self.delete(topic, partition)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))

    def _needs_lane(self, found: _Future, topic: str, partition: int) -> bool:
        """Whether the copy has too many files to list here, or too much must be scanned. Raises KafkaError."""
        if found.is_long is None:
            found.directory.check()
            recovery, disk = self._manager.recovery, self._manager.env.disk
            point = found.directory.promised(topic, partition)
            try:
                found.is_long = disk.size(found.path) > recovery.inline_names_bytes or (
                    not found.proven and scan_bytes(disk, found.path, point) > recovery.inline_bytes_max
                )
            except OSError as e:
                raise found.directory.fail(e) from e
        return found.is_long

    def _open_in_lane(self, found: _Future, topic: str, partition: int) -> None:
        """Have a lane open the copy, unless it is busy: the caller tries again, and then `_open` finds the log."""

        def done(result: Log | BaseException) -> None:
            found.in_lane = False
            if self._found.get((topic, partition)) is not found or not found.directory.online:
                return
            if isinstance(result, BaseException):
                if isinstance(result, OnLoop):
                    found.is_long = False
                elif not isinstance(result, ScanStopped):
                    with contextlib.suppress(KafkaError):  # its directory has failed, which was reported
                        self._not_opened(found, topic, partition, result)
            else:
                self._take_over(found, result)

        if not found.in_lane:
            opening = self._opening(found, topic, partition)
            found.in_lane = True
            if not self._manager.recovery.open_copy(found.directory, (topic, partition), opening, done):
                found.in_lane = False
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the copy of {topic}-{partition} waits to be opened; retry"
                )

    def _is_compacted(self, topic: str, partition: int) -> bool:
        return self._manager.topic_config(topic).compact or self._compacted_below(topic, partition) != NEVER_COMPACTED

    def _compacted_below(self, topic: str, partition: int) -> int:
        """The offset up to which the copied log was compacted."""
        source = self._manager.directory_of(topic, partition)
        if source is None:
            return NEVER_COMPACTED
        return offset_in(source.cleaner_offsets, topic, partition, NEVER_COMPACTED)

    def create(self, topic: str, partition: int, topic_id: Uuid, directory: Directory) -> Log:
        """Create an empty copy in `directory`.

        Raises KafkaError KAFKA_STORAGE_ERROR; NOT_LEADER_OR_FOLLOWER while the checkpoints there may still name an
        older log with the same name.
        """
        assert (topic, partition) not in self._found, "law: a partition has at most one future log"
        directory.check()
        manager = self._manager
        manager.check_not_retired(directory, topic, partition)
        disk = manager.env.disk
        unique = manager.env.rng.random_bytes(16).hex()
        path = f"{directory.path}/{names.future_dir(topic, partition, unique)}"
        try:
            disk.mkdir(path, new=True)
            log = new_log(directory, path, topic, partition, manager.topic_config(topic))
            log.topic_id = topic_id
            partition_metadata.make(directory.originals, path, Uuid(topic_id))
        except (OSError, LogDirDamaged) as e:
            raise directory.fail(e) from e
        log.held = True
        found = self._found[topic, partition] = _Future(directory, path, proven=True)
        found.log = log
        directory.count += 1
        directory.names_sync.begin(NEW_NAMES_SYNC_MS)
        source = manager.directory_of(topic, partition)
        if source is not None:
            # A power loss must not leave the copy without a log: the copy would not be known as complete.
            source.names_sync.begin(0)
        return log

    def delete(self, topic: str, partition: int) -> None:
        """Remove the copy; allowed without a copy, or if its directory has failed. Raises KafkaError."""
        found = self._found.pop((topic, partition), None)
        if found is None or not found.directory.online:
            return
        directory = found.directory
        if found.replaced is not None:
            found.replaced[0].remove_later(found.replaced[1], 0)
        if found.log is not None:
            found.log.close()
        try:
            path = directory.rename_aside(found.path, topic, partition, names.DELETE_DIR)
        except OSError as e:
            raise directory.fail(e) from e
        if found.log is not None:
            found.log.path = path
        directory.count -= 1
        self._manager.forget_offsets(directory, topic, partition)
        directory.remove_later(path, self._manager.topic_config(topic).file_delete_delay_ms)

    def promote(self, topic: str, partition: int) -> Log:
        """Replace the partition's log by its copy (like Kafka's replaceCurrentLog…).

        First the old name is removed durably, then the new name is created. A crash in between leaves a complete copy
        without a log, which is promoted when the partition is opened (`Storage.open`). There are never two logs. The
        fsyncs are waited for here, as in Kafka: the next append may only be promised in the place where it will be
        found.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        manager = self._manager
        found = self._found[topic, partition]
        log = self._open(found, topic, partition)
        # Without its log a copy is the log: it was complete and durable before its log was removed.
        assert found.proven or manager.directory_of(topic, partition) is None, "law: only proven copies replace logs"
        with contextlib.suppress(OSError):  # a dead disk refuses the renames, too
            keep_producers(log)  # no file of the copy knows producers without a batch: a kill would forget them
        directory, disk = found.directory, manager.env.disk
        compacted_below = self._compacted_below(topic, partition)
        unique = names.unique_of(found.path)
        before = manager.take_away(topic, partition, names.DELETE_DIR, unique) or found.replaced
        path = f"{directory.path}/{names.partition_dir(topic, partition)}"
        if before is not None:
            try:
                disk.fsync_dir(before[0].path)
            except OSError as e:
                before[0].fail(e)
        try:
            disk.rename(found.path, path)
            directory.originals.forget()
            disk.fsync_dir(directory.path)
        except OSError as e:
            raise directory.fail(e) from e
        log.path = found.path = path
        log.segments.release()  # lanes read cold data by the paths of open files
        del self._found[topic, partition]
        manager.put(log)
        if compacted_below >= 0:
            column_of(directory.cleaner_offsets, topic)[partition] = compacted_below
            directory.changed(topic)
        if before is not None:
            before[0].remove_later(before[1], manager.topic_config(topic).file_delete_delay_ms)
            logger.info("log has moved partition=%s-%d from=%s to=%s", topic, partition, before[0].path, directory.path)
        else:
            logger.info("log has moved partition=%s-%d to=%s", topic, partition, directory.path)
        return log

    def forget(self, failed: LogDir) -> None:
        """Close and drop the copies in a directory that has failed."""
        for key, found in list(self._found.items()):
            if found.directory is failed:
                if found.log is not None:
                    found.log.close()
                del self._found[key]

    def withdrawn(self, log: ReportedLog, damage: LogDirDamaged | None) -> None:
        """An open copy is damaged: remove it, which ends the move. Or (None) it must be opened again."""
        found = self._found.get((log.topic, log.partition))
        if found is None or found.log is None or found.log is not log:
            return
        if damage is not None:
            logger.error("copy removed topic=%s partition=%d reason=%s", log.topic, log.partition, damage)
            with contextlib.suppress(KafkaError):  # its directory has failed, which was reported
                self.delete(log.topic, log.partition)
            return
        found.log.close()
        found.log, found.proven, found.is_long = None, False, None


def _cut_to_promise(copy: Log) -> None:
    """Truncate a copy that was just recovered to its recovery point. Raises CutLater, KafkaError."""
    if copy.recovery_point > copy.start_offset:
        copy.truncate_to(copy.recovery_point)
    elif copy.end_offset > copy.start_offset:
        copy.reset_to(copy.start_offset)


def check_name(topic: str, partition: int) -> None:
    """Raise INVALID_TOPIC_EXCEPTION if the name of a copy would be too long for file systems."""
    if len(names.future_dir(topic, partition, "0" * 32)) > names.DIR_NAME_MAX:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
