"""Writes a snapshot while the node works: a slice of records per loop turn, the fsync in the background (KIP-630)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kraft_node.base.env import Env
from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.log_batches import (
    SNAPSHOT_BATCH_BYTES,
    data_batch,
    snapshot_footer_batch,
    snapshot_header_batch,
)
from kraft_node.metadata.snapshot import SnapshotCursor
from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.storage import MetadataStorage

LANE: Final = "metadata-snapshot"

SLICE_RECORDS: Final = 150
"""Records encoded and written in one turn of the event loop: about 0.2 ms. A commit that arrives meanwhile waits for
two or three slices (for its request, its fsync and its response)."""

SLICES_A_PAUSE: Final = 2
PAUSE_MS: Final = 1
"""The pause after `SLICES_A_PAUSE` slices. The thread that fsyncs a commit briefly needs the interpreter, and a busy
machine delays threads that never pause. A million partitions take about 6 s, two thirds of it pauses.
"""


class SnapshotWriting:
    """One snapshot that is being written. Calls `done(id, None)` when it is durable, `done(id, error)` if it fails."""

    __slots__ = (
        "_cursor",
        "_done",
        "_env",
        "_epoch",
        "_id",
        "_offset",
        "_opening",
        "_pending",
        "_size",
        "_slices",
        "_writer",
    )

    def __init__(
        self,
        env: Env,
        storage: MetadataStorage,
        image: MetadataImage,
        snapshot: SnapshotId,
        done: Callable[[SnapshotId, BaseException | None], None],
        opening: Sequence[tuple[int, bytes]] = (),
    ) -> None:
        """`opening`: control records for the first batch, after the header."""
        assert snapshot.end_offset == image.offset + 1, "law: a snapshot's name is its content's end"
        self._env = env
        self._id = snapshot
        self._done = done
        self._epoch = snapshot.epoch
        self._cursor: SnapshotCursor | None = SnapshotCursor(image)
        self._writer = storage.create_snapshot(snapshot)
        self._opening = opening
        self._offset = 0
        self._pending: list[bytes] = []
        self._size = 0
        self._slices = 0

    def start(self) -> None:
        """Write the header of the snapshot and the first slice. Call it once."""
        assert self._cursor is not None, "law: a snapshot is written once"
        now = self._env.clock.wall_ms()
        self._writer.append(snapshot_header_batch(self._epoch, self._cursor.timestamp_ms, now, self._opening))
        self._offset = 1 + len(self._opening)
        self._slice()

    def abandon(self) -> bool:
        """Remove a half-written file. Returns False if the snapshot's fsync has started. Raises OSError."""
        if self._cursor is None:
            return False
        self._cursor.close()
        self._cursor = None
        self._writer.abandon()
        return True

    def _slice(self) -> None:
        cursor = self._cursor
        if cursor is None:
            return
        try:
            values = cursor.next_values(SLICE_RECORDS)
            for value in values:
                self._pending.append(value)
                self._size += len(value)
                if self._size >= SNAPSHOT_BATCH_BYTES:
                    self._write_batch()
            if values:
                self._slices += 1
                self._env.scheduler.call_later(0 if self._slices % SLICES_A_PAUSE else PAUSE_MS, self._slice)
                return
            self._write_batch()
            self._writer.append(snapshot_footer_batch(self._offset, self._epoch, self._env.clock.wall_ms()))
            work = self._writer.begin_finish()
        except Exception as e:
            self._end(e)  # the owner of the snapshot handles the error
            return
        cursor.close()
        self._cursor = None
        self._env.background.submit(LANE, work, self._finished)

    def _write_batch(self) -> None:
        if self._pending:
            batch = data_batch(self._pending, self._offset, self._epoch, self._env.clock.wall_ms())
            self._offset += len(self._pending)
            self._pending = []
            self._size = 0
            self._writer.append(batch)

    def _finished(self, result: object) -> None:
        self._end(result if isinstance(result, BaseException) else None)

    def _end(self, error: BaseException | None) -> None:
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None
        self._done(self._id, error)
