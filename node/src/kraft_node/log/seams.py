"""What the parts of a log need of it: `log.Log` implements all of these, and no part knows more.

`timestamps.TimedLog` and `lookup.ReadableLog` are for readers, those in `waiting` for waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from kraft_node.log.waiting.policy_flush import SettlingLog
from kraft_node.log.waiting.write_budget import WrittenLog

if TYPE_CHECKING:
    from kraft_node.log.checkpoints.leader_epochs import LeaderEpochs
    from kraft_node.log.errors import LogDirDamaged
    from kraft_node.log.log_dir import LogDir
    from kraft_node.log.producers.producer_state import Producers
    from kraft_node.log.segments.files import Put
    from kraft_node.log.segments.segment import Segment
    from kraft_node.log.segments.segment_list import SegmentList
    from kraft_protocol.buffers import Buffer
    from kraft_protocol.errors import KafkaError
    from kraft_protocol.ids import Uuid

LogT = TypeVar("LogT")


class StoredLog(Protocol):
    """The place and the files of a log. Offsets: `start_offset` (first readable), `end_offset` (next to write)."""

    dir: LogDir
    segments: SegmentList
    start_offset: int
    end_offset: int
    names_changed: int
    """Count of changes of the directory's names."""
    txn_bases: tuple[int, ...]
    """Base offsets of the segments that have a .txnindex, ascending."""

    @property
    def name(self) -> str:
        """The partition as `topic-number`, for messages."""
        ...

    @property
    def path(self) -> str:
        """The directory with the log's files."""
        ...

    def segment_number(self, offset: int) -> int:
        """The number of the segment that holds `offset`; 0 for offsets before all segments."""
        ...


class TransactionalLog(StoredLog, Protocol):
    """For the ends of transactions (`appending.end_transaction`)."""

    high_watermark: int

    @property
    def producers(self) -> Producers:
        """The state of the producers; made on first use."""
        ...


class SnapshotLog(Protocol):
    """For what writes snapshots of producers."""

    @property
    def producer_snapshots(self) -> tuple[int, ...]:
        """Offsets of the producers' snapshot files, ascending."""
        ...

    def take_snapshot(self, offset: int, put: Put | None = None) -> None:
        """Write the producers as of `offset` (or have `put` do so); needs an fsync to last. Raises OSError."""


class ReplayedLog(TransactionalLog, SnapshotLog, Protocol):
    """For the state of producers: after an opening or a truncation, and before a stop (`producers.replay`)."""

    @property
    def known_producers(self) -> Producers | None:
        """The state of the producers; None until it is first used."""
        ...


class AppendedLog(TransactionalLog, SettlingLog, WrittenLog, Protocol):
    """For appends (`appending`, `runs`)."""

    closed: bool
    dir: LogDir
    end_offset: int
    leader_epochs: LeaderEpochs
    segment_bytes: int
    """Size at which a segment is full."""

    def roll_due(self, segment: Segment, last: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether the segment is too old, its index is full, or `last` is too far from its base."""
        ...

    def write_batch(
        self,
        buffers: tuple[Buffer, ...],
        size: int,
        base: int,
        last: int,
        max_timestamp: int,
        leader_epoch: int,
        now_ms: int,
    ) -> None:
        """Write one checked batch, and move the end. Raises KafkaError KAFKA_STORAGE_ERROR."""

    def fail_half_done(self, error: OSError | LogDirDamaged) -> KafkaError:
        """Report a write that failed. Returns the error for the caller."""
        ...

    def unreadable(self, error: OSError | LogDirDamaged) -> KafkaError:
        """Report a read that failed. Returns the error for the caller."""
        ...


class FlushedLog(StoredLog, SnapshotLog, Protocol):
    """For fsyncs (`flushing`). The meaning of each attribute is in `log.Log`."""

    closed: bool
    cuts_synced: int
    flush_scheduled: bool
    last_flush_ms: int
    leader_epochs: LeaderEpochs
    names_synced: int
    recovery_point: int
    snapshot_position: int
    topic_id: Uuid | None
    truncations: int

    @property
    def is_durable(self) -> bool:
        """Whether a power loss removes nothing, and restores nothing that was truncated."""
        ...


class TrimmedLog(ReplayedLog, FlushedLog, SettlingLog, Protocol):
    """For retention, deleted records and truncations (`trimming`)."""

    closed: bool
    dir: LogDir
    partition: int
    recovery_point: int
    topic: str

    def forget_times(self) -> None:
        """Records are gone: what is known about the largest timestamp may be wrong."""

    def segment_end(self, number: int) -> int:
        """The offset where the segment ends and the next segment begins."""
        ...

    def roll(self, base: int) -> Segment:
        """Begin a new segment at `base`. Raises OSError."""
        ...

    def drop_before_start(self, most: int | None = None) -> int:
        """Drop up to `most` segments before the start. Returns the freed bytes. Raises KAFKA_STORAGE_ERROR."""
        ...


class CopiedLog(Protocol[LogT]):
    """A log that may have a copy of its kind in another directory."""

    twin: LogT | None
