"""The storage of `__cluster_metadata-0` for the raft driver (implements `raft.storage.MetadataStorage`).

Log, snapshots and quorum-state of one voter or observer, in Kafka's files. A commit costs one fsync of the log file. A
small file of our own, `flushed-offset` (offset i64, CRC-32C u32; Kafka ignores it), holds the fsynced offset. With it,
opening can distinguish a torn tail, which is truncated, from damage to records that may have been acknowledged, which
is refused.

Disk failures raise OSError, which ends the voter.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Final, TypeVar

from fastcrc.crc32 import iscsi as crc32c

from kraft_node.base.env import DiskLock, Env, File, read_file, write_atomic
from kraft_node.log import flushing, names
from kraft_node.log.checkpoints import bootstrap, partition_metadata, quorum_state
from kraft_node.log.config import LogConfig, make_config
from kraft_node.log.errors import LogDirDamaged
from kraft_node.log.log import Log
from kraft_node.log.log_dir import LogDir
from kraft_node.log.manager.directory import lock_directory
from kraft_node.log.recovery.opening import open_log
from kraft_node.log.segments import segment_list
from kraft_node.log.segments.files import FileCache
from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.membership.quorum import QuorumState
from kraft_node.raft.storage import SnapshotFile, Work
from kraft_protocol.buffers import Buffer, FileSlice
from kraft_protocol.errors import KafkaError
from kraft_protocol.ids import METADATA_TOPIC_ID, METADATA_TOPIC_NAME
from kraft_protocol.records.batch import check_crc, iter_headers, whole_batches
from kraft_protocol.records.errors import BatchError

T = TypeVar("T")

CHECKPOINT: Final = ".checkpoint"
PART: Final = ".part"
FLUSHED: Final = "flushed-offset"
OPEN_FILES: Final = 16
"""The metadata log has few segments and one reader at a time."""
SNAPSHOT_DELETE_DELAY_MS: Final = 60_000
_MARK: Final = Struct(">qI")


def snapshot_name(snapshot: SnapshotId) -> str:
    """The file name, as in Kafka: end offset (excluded) in 20 digits, epoch in 10, `.checkpoint`."""
    return f"{snapshot.end_offset:020d}-{snapshot.epoch:010d}{CHECKPOINT}"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    """The id in a complete snapshot's file name; None for other names."""
    if not name.endswith(CHECKPOINT):
        return None
    offset, dash, epoch = name[: -len(CHECKPOINT)].partition("-")
    if not dash or not (offset.isascii() and offset.isdigit() and epoch.isascii() and epoch.isdigit()):
        return None
    return SnapshotId(int(offset), int(epoch))


class SnapshotFileWriter:
    """A snapshot that is being written to a `.part` file."""

    __slots__ = ("_env", "_file", "_path", "_size")

    def __init__(self, env: Env, path: str) -> None:
        self._env = env
        self._path = path
        self._size = 0
        self._file: File | None = env.disk.open(path + PART, create=True)
        self._file.truncate(0)

    def append(self, data: Buffer) -> None:
        """Add bytes at the end. Raises OSError."""
        assert self._file is not None, "law: a finished snapshot never changes"
        self._file.pwrite(self._size, [data])
        self._size += len(data)

    def begin_finish(self) -> Work:
        """The work that makes the snapshot durable and gives it its name."""
        file, self._file = self._file, None
        assert file is not None, "law: a snapshot is finished once"
        disk, path = self._env.disk, self._path

        def work() -> None:
            file.fsync()
            file.close()
            disk.rename(path + PART, path)
            disk.fsync_dir(path.rpartition("/")[0])

        return work

    def abandon(self) -> None:
        """Delete the file. Raises OSError."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._env.disk.remove(self._path + PART)


class MetadataLog:
    """The metadata log of this node. Create it (this opens and recovers it), use it, `close`."""

    def __init__(
        self,
        env: Env,
        directory: str,
        *,
        config: LogConfig | None = None,
        lock: bool = True,
    ) -> None:
        """`directory` is the metadata log directory; `lock`: no other part of this process holds its lock.

        Raises OSError, LogDirInvalid (in use), LogDirDamaged, ValueError (quorum-state).
        """
        self._env = env
        self._directory = directory
        self._path = f"{directory}/{METADATA_TOPIC_NAME}-0"
        self._lock: DiskLock | None = lock_directory(env.disk, directory) if lock else None
        self._flushed: flushing.Flush | None = None
        """The last finished flush, until it is noted; set by the background thread."""
        try:
            self._log = self._open(config or make_config({"cleanup.policy": "delete", "retention.ms": "-1"}))
        except BaseException:
            self._release_lock()
            raise

    def _open(self, config: LogConfig) -> Log:
        disk = self._env.disk
        is_new = not disk.is_dir(self._path)
        disk.mkdir(self._path)
        if is_new:
            disk.fsync_dir(self._directory)
        for name in disk.listdir(self._path):
            if name.endswith((CHECKPOINT + PART, CHECKPOINT + names.DELETED)):
                disk.remove(f"{self._path}/{name}")
        self._log_dir = LogDir(self._env, self._directory, FileCache(disk, OPEN_FILES))
        log = open_log(
            self._log_dir,
            self._path,
            METADATA_TOPIC_NAME,
            0,
            config,
            clean=False,
            recovery_point=self._read_mark(),
        )
        if partition_metadata.read(disk, self._path) is None:
            partition_metadata.write(disk, self._path, METADATA_TOPIC_ID)
        log.topic_id = METADATA_TOPIC_ID
        self._log = log
        found = [file.id for file in self.snapshots() if not file.id.is_bootstrap]
        epochs = log.leader_epochs.entries()
        end = (epochs[-1][0] if epochs else -1, log.end_offset)
        if found and (found[-1].epoch, found[-1].end_offset) > end:
            # The snapshot contains the records that the log lacks: it was downloaded, or it outlived them. A log that
            # continues in older epochs is not the quorum's: its replacement by the snapshot was not durable yet.
            self._lower_mark(found[-1].end_offset)
            log.reset_to(found[-1].end_offset)
        else:
            self._start_at_snapshot(log, found)
        # Records above the mark are only in the page cache: make them durable before they count (contract 1).
        self._flush_all(log)
        return log

    def _start_at_snapshot(self, log: Log, found: Sequence[SnapshotId]) -> None:
        """The log begins at its oldest snapshot.

        Snapshots that end before are leftovers of a crash: the core has them deleted.
        """
        first = next((snapshot for snapshot in found if snapshot.end_offset >= log.start_offset), None)
        if first is None and log.start_offset > 0:
            end = found[-1].end_offset if found else 0
            reason = f"the log starts at {log.start_offset}, the newest snapshot ends at {end}: there is a gap"
            raise LogDirDamaged(self._directory, self._path, end, reason)
        if first is not None and first.end_offset > log.start_offset:
            log.start_offset = first.end_offset
            log.leader_epochs.truncate_from_start(log.start_offset)

    def _flush_all(self, log: Log) -> None:
        flush = flushing.Flush(log, log.end_offset)
        flush.work()
        flush.done()
        self._write_mark(log.end_offset)

    def _io(self, work: Callable[[], T]) -> T:
        """Convert the log's errors: it reports errors for clients of partitions, but a voter needs the disk failure."""
        try:
            return work()
        except KafkaError as e:
            failed = self._log_dir.failed
            raise OSError(str(failed if failed is not None else e)) from e

    # --- the log ---

    @property
    def start_offset(self) -> int:
        """The first offset of the log; snapshots contain all earlier records."""
        return self._log.start_offset

    @property
    def end_offset(self) -> int:
        """The offset of the next append; records below it may not be fsynced yet."""
        return self._log.end_offset

    @property
    def size_bytes(self) -> int:
        """The size of all segments."""
        return self._log.size_bytes

    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) pairs, ascending."""
        return self._log.leader_epochs.entries()

    def append(self, batches: Sequence[Buffer]) -> None:
        """Write batches into the page cache; their offsets continue at the end. Raises OSError."""
        for batch in batches:
            self._io(lambda data=batch: self._log.append_as_follower(data))  # type: ignore[misc]

    def read(self, offset: int, max_bytes: int) -> memoryview:
        """Whole batches from the batch that holds `offset` on: at least one, then as many as fit; each checked by its
        CRC, as Kafka does. Raises OSError, which names a damaged batch: no node may replay or send it.
        """
        found = self._io(lambda: self._log.read(offset, max_bytes, min_one=True)).records
        batches = whole_batches(found.read() if isinstance(found, FileSlice) else found, with_junk=True)
        try:
            for header in iter_headers(batches):
                check_crc(batches, header)
        except BatchError as e:
            raise OSError(errno.EIO, f"{self._path} is damaged at or after offset {offset}: {e}") from None
        return batches

    def truncate(self, offset: int) -> None:
        """Remove everything from `offset` on. Raises OSError."""
        if offset < self._log.end_offset:
            self._lower_mark(offset)
            self._io(lambda: self._log.truncate_to(offset))

    def begin_flush(self) -> Work:
        """The work that fsyncs the data written so far."""
        self._note_flushed()
        flush = flushing.Flush(self._log, self._log.end_offset)

        def work() -> None:
            flush.work()
            self._flushed = flush

        return work

    def _note_flushed(self) -> None:
        """Move the recovery point to the offset of the last flush, on the loop."""
        flush, self._flushed = self._flushed, None
        if flush is not None:
            before = self._log.recovery_point
            flush.done()
            if self._log.recovery_point > before:
                self._write_mark(self._log.recovery_point)

    def delete_before(self, offset: int) -> int:
        """Raise the start to `offset` and delete whole segments below it. Returns the new start. Raises OSError."""
        log = self._log
        log.high_watermark = max(log.high_watermark, min(offset, log.end_offset))
        self._io(lambda: log.delete_records(min(offset, log.end_offset)))
        return log.start_offset

    def reset_to(self, offset: int) -> None:
        """Empty the log; it continues at `offset`. Raises OSError."""
        self._lower_mark(min(offset, self._log.recovery_point))
        self._io(lambda: self._log.reset_to(offset))

    # --- the mark ---

    def _read_mark(self) -> int:
        try:
            data = read_file(self._env.disk, f"{self._path}/{FLUSHED}")
        except FileNotFoundError:
            return 0
        if len(data) != _MARK.size:
            return 0
        offset, crc = _MARK.unpack(data)
        return offset if crc == crc32c(data[:8]) and offset >= 0 else 0

    def _write_mark(self, offset: int, *, durable: bool = False) -> None:
        head = offset.to_bytes(8, "big")
        file = self._env.disk.open(f"{self._path}/{FLUSHED}", create=True)
        try:
            file.pwrite(0, [head, crc32c(head).to_bytes(4, "big")])
            if durable:
                file.fsync()
        finally:
            file.close()

    def _lower_mark(self, offset: int) -> None:
        """Durably lower the mark before the log is truncated."""
        if offset < self._read_mark() or offset < self._log.recovery_point:
            self._write_mark(offset, durable=True)

    # --- quorum state ---

    @property
    def has_quorum_state(self) -> bool:
        """Whether this voter has ever sent a vote or epoch: both are stored before."""
        return self._env.disk.exists(f"{self._path}/{quorum_state.FILE}")

    def load_quorum_state(self) -> QuorumState:
        """The stored vote and epoch. Raises OSError, ValueError."""
        return quorum_state.read(self._env.disk, f"{self._path}/{quorum_state.FILE}")

    def begin_save_quorum_state(self, state: QuorumState, kraft_version: int, voter_ids: Sequence[int]) -> Work:
        """The work that makes `state` durable, in the file format of the finalized kraft.version."""
        disk, path = self._env.disk, f"{self._path}/{quorum_state.FILE}"
        data = quorum_state.render(state, version=min(kraft_version, 1), voter_ids=voter_ids)
        return lambda: write_atomic(disk, path, data)

    # --- snapshots ---

    def _snapshot_path(self, snapshot: SnapshotId) -> str:
        return f"{self._path}/{snapshot_name(snapshot)}"

    def snapshots(self) -> list[SnapshotFile]:
        """Complete snapshots, oldest first. Raises OSError."""
        disk = self._env.disk
        found = []
        for name in disk.listdir(self._path):
            snapshot = parse_snapshot_name(name)
            if snapshot is not None:
                path = f"{self._path}/{name}"
                found.append(SnapshotFile(snapshot, disk.size(path), disk.mtime_ms(path)))
        return sorted(found)

    def snapshot_batches(self, snapshot: SnapshotId) -> Iterator[memoryview]:
        """The batches of a snapshot, each checked by its CRC. Raises OSError; ValueError, which names file and
        position.
        """
        path = self._snapshot_path(snapshot)
        yield from bootstrap.checked_batches(read_file(self._env.disk, path), path)

    def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> FileSlice:
        """Up to `max_bytes` of a snapshot from `position` on. Raises OSError."""
        file = self._env.disk.open(self._snapshot_path(snapshot), read_only=True)
        return FileSlice(file, position, max(0, min(max_bytes, file.size() - position)))

    def create_snapshot(self, snapshot: SnapshotId) -> SnapshotFileWriter:
        """Begin a snapshot; it replaces a leftover `.part`. Raises OSError."""
        return SnapshotFileWriter(self._env, self._snapshot_path(snapshot))

    def remove_snapshot(self, snapshot: SnapshotId) -> None:
        """Set a snapshot aside; its file is deleted a minute later, when no reader uses it. Raises OSError."""
        path = self._snapshot_path(snapshot)
        env = self._env
        env.disk.rename(path, path + names.DELETED)
        doomed = [path + names.DELETED]
        lane = self._log_dir.lane
        env.scheduler.call_later(
            SNAPSHOT_DELETE_DELAY_MS,
            lambda: env.background.submit(lane, lambda: segment_list.remove_files(env.disk, doomed), lambda _: None),
        )

    def bootstrap_records(self) -> list[bytes]:
        """The record values in bootstrap.checkpoint; empty if the file is missing. Raises OSError, ValueError."""
        return bootstrap.read_records(self._env.disk, self._directory)

    # --- stop ---

    def close(self) -> None:
        """Complete the files, fsync, release the lock. Raises OSError."""
        log = self._log
        try:
            if self._log_dir.failed is None and not log.closed:
                log.closed = True
                log.active.finish()
                log.names_changed += 1
                self._flush_all(log)
        finally:
            log.close()
            self._release_lock()

    def _release_lock(self) -> None:
        with contextlib.suppress(OSError):
            if self._lock is not None:
                self._lock.release()
        self._lock = None
