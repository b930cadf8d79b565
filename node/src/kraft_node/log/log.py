"""The log of one partition (Kafka's UnifiedLog): appends, reads, start, end and last stable offset.

`opening.open_log` creates it; `LogManager` (partitions) or `MetadataLog` owns it. Everything runs
on the event loop; only fsyncs run in the log directory's background thread. A disk failure takes the log directory
offline, damage ends this log; both are reported as KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812
from typing import Final, TypeVar

from fastcrc.crc32 import iscsi as crc32c

from kraft_node.base import rare
from kraft_node.log import flushing, lookup, names, trimming
from kraft_node.log.appending import append_as_follower, check_producer
from kraft_node.log.appending import append_as_leader as append_slowly
from kraft_node.log.checkpoints.leader_epochs import LeaderEpochs
from kraft_node.log.config import LONG_MAX, LogConfig, draw_jitter
from kraft_node.log.errors import LogDirDamaged, is_shortage
from kraft_node.log.log_dir import LogDir
from kraft_node.log.producers.replay import take_snapshot
from kraft_node.log.producers.verification import VERIFIED, Guard
from kraft_node.log.resting.resting_log import RestingLog
from kraft_node.log.results import AppendInfo, FetchSlice
from kraft_node.log.segments.files import Put
from kraft_node.log.segments.segment import RELATIVE_OFFSET_MAX, Segment
from kraft_node.log.segments.segment_list import SegmentList
from kraft_node.log.timestamps import Partial
from kraft_node.log.validate import Checked, looks_sound
from kraft_node.log.waiting import policy_flush
from kraft_node.log.waiting.write_budget import AppendLater
from kraft_protocol.buffers import Buffer
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
)
from kraft_protocol.records.errors import BatchError

T = TypeVar("T")

_HEAD: Final = Struct(">qii")
_HEAD_SIZE: Final = _HEAD.size
_SPECIAL_BITS: Final = LOG_APPEND_TIME_BIT | CONTROL_BIT


class Log(RestingLog):
    """A partition's log. Offsets: `start_offset` (first readable), `end_offset` (next to write)."""

    __slots__ = (
        "_after_max_ms",
        "_max_message_bytes",
        "_plain",
        "_segment_ms",
        "closed",
        "config",
        "created_ms",
        "cuts_synced",
        "end_offset",
        "flush_scheduled",
        "held",
        "high_watermark",
        "jitter_ms",
        "last_flush_ms",
        "leader_epochs",
        "max_timestamp_cache",
        "names_changed",
        "names_synced",
        "partial_times",
        "recovery_point",
        "segment_bytes",
        "segments",
        "snapshot_position",
        "start_offset",
        "truncations",
        "twin",
        "txn_bases",
        "unsettled",
    )

    def __init__(self, log_dir: LogDir, path: str, topic: str, partition: int, config: LogConfig) -> None:
        super().__init__(log_dir, path, topic, partition)
        self.segments = SegmentList(self)
        self.start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        """Set by the partition; records below it are replicated."""
        self.recovery_point = 0
        """Everything below it is on stable storage."""
        self.snapshot_position = 0
        """The position in the active segment that the latest snapshot of the producers covers."""
        self.leader_epochs = LeaderEpochs()
        self.created_ms = 0
        """When the active segment was created; for segments with records without timestamps."""
        self.jitter_ms = 0
        self.closed = False
        self.held = False
        """Whether code outside the manager uses the log."""
        self.flush_scheduled = False
        self.last_flush_ms = 0
        self.max_timestamp_cache: tuple[tuple[int, int], tuple[int, int] | None] | None = None
        """((start, end), answer) of the last search for the largest timestamp."""
        self.partial_times: Partial | None = None
        """The largest timestamp of the readable part of the first segment."""
        self.truncations = 0
        """How often the log was truncated; an earlier fsync does not count for the recovery point."""
        self.cuts_synced = 0
        """How many of these truncations are durable."""
        self.names_changed = 1
        self.names_synced = 0
        """Counts of changes of the directory's names: made, and durable."""
        self.twin: Log | None = None
        """The copy of this log in another directory: it is truncated together with this log."""
        self.txn_bases: tuple[int, ...] = ()
        """Base offsets of the segments that have a .txnindex, ascending."""
        self.unsettled: policy_flush.Unsettled | None = None  # what `flush.messages` has a lane flush
        self.set_config(config)

    def __repr__(self) -> str:
        return f"Log({self.path}, {self.start_offset}..{self.end_offset}, high watermark {self.high_watermark})"

    def set_config(self, config: LogConfig) -> None:
        """Use another configuration from now on."""
        self.config = config
        self._plain = (
            config.compression_type == "producer"
            and not config.log_append_time
            and not config.compact
            and config.message_timestamp_before_max_ms == LONG_MAX
            and config.flush_messages == LONG_MAX
        )
        self._max_message_bytes = min(config.max_message_bytes, config.segment_bytes)
        self.segment_bytes = config.segment_size
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._segment_ms = config.segment_ms_max

    @property
    def index_interval_bytes(self) -> int:
        """The value of index.interval.bytes, for the segments."""
        return self.config.index_interval_bytes

    # --- segments ---

    @property
    def active(self) -> Segment:
        """The segment for appends."""
        return self.segments.active

    @property
    def segment_bases(self) -> list[int]:
        """Base offsets of all segments, ascending."""
        return self.segments.bases

    @property
    def size_bytes(self) -> int:
        """The size of all .log files."""
        return self.segments.size_bytes

    def segment_number(self, offset: int) -> int:
        """The number of the segment that holds `offset`; 0 for offsets before all segments."""
        return self.segments.number_of(offset)

    def segment_end(self, number: int) -> int:
        """The offset where the segment ends and the next segment begins."""
        end = self.segments.end_of(number)
        return self.end_offset if end is None else end

    # --- appending ---

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: int,
        now_ms: int,
        *,
        internal: bool = False,
        checked: Checked | None = None,
        guard: Guard | None = VERIFIED,
    ) -> AppendInfo:
        """Append a producer's batch (or a coordinator's batches, `internal`) and assign its offsets. A batch that an
        idempotent producer sent before is not stored again: the result names its offsets. `checked` holds known results
        about its records (`LongCheck.steps`, `LongRecode.work`). `guard`: see `Producers.check`. Raises AppendLater,
        LongCheck, LongRecode, Unverified, or KafkaError as `appending.append_as_leader`."""
        budget = self.dir.budget
        if budget.left <= 0 and not internal and checked is None and budget.must_wait():
            raise AppendLater(self.name, budget)
        try:
            fields = HEADER.unpack_from(records)
        except StructError:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"{self.name}: {len(records)} bytes are not a record batch"
            ) from None
        first, length, _, magic, crc, attributes, delta, base_time, max_timestamp, producer_id, _, _, count = fields
        size = length + LOG_OVERHEAD
        if (
            not self._plain
            or size != len(records)
            or magic != MAGIC
            or attributes & _SPECIAL_BITS
            or delta < 0
            or first
            or delta + 1 != count
            or attributes & COMPRESSION_MASK > 4
            or max_timestamp > now_ms + self._after_max_ms
            or size > self._max_message_bytes
        ):
            return append_slowly(self, records, leader_epoch, now_ms, internal=internal, checked=checked, guard=guard)
        view = memoryview(records)
        if crc32c(view[ATTRIBUTES_POSITION:]) != crc:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.name}: the CRC of the batch does not fit")
        codec = attributes & COMPRESSION_MASK
        if not looks_sound(view[HEADER_SIZE:], codec, count, base_time, max_timestamp):
            return append_slowly(self, records, leader_epoch, now_ms, internal=internal, checked=checked, guard=guard)
        header = None
        if producer_id >= 0:
            header = BatchHeader(fields)
            known = check_producer(self, header, guard, internal=internal)
            if known is not None:
                return known
        base = self.end_offset
        last = base + delta
        buffers = (_HEAD.pack(base, length, leader_epoch), view[_HEAD_SIZE:])
        self.write_batch(buffers, size, base, last, max_timestamp, leader_epoch, now_ms)
        if header is not None:
            self.producers.appended(header, base)
        return AppendInfo(base, last, NO_TIMESTAMP, self.start_offset)

    def append_as_follower(self, records: Buffer, leader_epoch: int | None = None, rolls_max: int | None = None) -> int:
        """Append the whole batches at the start of `records`, with the leader's offsets. Returns their size in bytes.

        Batches with an epoch above `leader_epoch` and all batches after them are left out: they are not from the
        leader that answered. So are batches after `rolls_max` segments were begun. Offsets must continue at
        the end (or above it, if the leader's log was compacted). An incomplete batch at the end of `records` is left
        out. Raises KafkaError CORRUPT_MESSAGE, INVALID_RECORD, OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        return append_as_follower(self, records, leader_epoch, rolls_max)

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
        """Write one checked batch to the active segment, after a roll if one is due, and move the end. For code that
        appends. Raises KafkaError KAFKA_STORAGE_ERROR."""
        log_dir = self.dir
        if log_dir.failed is not None:
            raise log_dir.storage_error()
        segment, epochs = self.segments.active, self.leader_epochs
        try:
            if segment.size:
                if segment.size + size > self.segment_bytes or self.roll_due(segment, last, max_timestamp, now_ms):
                    segment = self.roll(base)
            else:
                self.created_ms = now_ms
                self.names_changed += 1
                if last - segment.base > RELATIVE_OFFSET_MAX:
                    segment = self.roll(base)
            if leader_epoch >= 0 and leader_epoch != epochs.latest_epoch:
                epochs.assign(leader_epoch, base)
            segment.append(buffers, size, last, max_timestamp)
        except (OSError, LogDirDamaged) as e:
            raise self.fail_half_done(e) from e
        self.end_offset = last + 1
        budget = log_dir.budget
        budget.left -= size
        if budget.is_watched:
            budget.written[self] = None

    def roll_due(self, segment: Segment, last: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether the segment is too old, its index is full, or `last` is too far from its base."""
        if last - segment.base > RELATIVE_OFFSET_MAX or rare.takes("segment rolled"):
            return True
        if segment.first_timestamp >= 0 and max_timestamp >= 0:
            waited = max_timestamp - segment.first_timestamp
        else:
            waited = now_ms - self.created_ms
        if waited > self._segment_ms - self.jitter_ms:
            return True
        return segment.index_room(self.config.segment_index_bytes) <= 0

    def forget_times(self) -> None:
        """Records are gone: what is known about the largest timestamp may be wrong."""
        self.max_timestamp_cache = self.partial_times = None

    def roll(self, base: int) -> Segment:
        """Begin a new segment at `base`, and fsync the old segment in the background. Raises OSError. Creates the file
        at once: old segments may be deleted before the next append, and the end of the log must stay known."""
        old = self.segments.active
        if old.size == 0 and old.base == base:
            return old
        if old.size:
            old.finish()
            self.take_snapshot(base)
        active = self.segments.begin(base)
        self.names_changed += 1
        if old.size:
            self.snapshot_position = 0
            self.created_ms = self.dir.env.clock.wall_ms()
            self.jitter_ms = draw_jitter(self.config, self.dir.env.rng)
            flushing.schedule(self)
        return active

    # --- producers and transactions ---

    @property
    def last_stable_offset(self) -> int:
        """The end for read_committed: the first open transaction, within the start and the high watermark."""
        producers = self._producers
        unstable = None if producers is None else producers.first_unstable(self.high_watermark)
        return self.high_watermark if unstable is None else min(max(unstable, self.start_offset), self.high_watermark)

    def aborted_within(self, found: FetchSlice, *, waits: bool = True) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that overlap the records. Raises like `read`."""
        try:
            return lookup.aborted_within(self, found, waits=waits)
        except OSError as e:
            raise self.dir.fail(e) from e

    def aborted_transactions(self, start: int, end: int) -> list[tuple[int, int]]:
        """As `aborted_within`, for the offsets from `start` to `end` (excluded). Raises OSError."""
        return lookup.aborted_transactions(self, start, end)

    def take_snapshot(self, offset: int, put: Put | None = None) -> None:
        """Write the producers as of `offset` (or have `put` do so); needs an fsync to last. Raises OSError."""
        take_snapshot(self, offset, put)

    def indexed(self, position: int) -> None:
        """Take a snapshot now and then: after a kill only the tail is read for producers (`page_cache`)."""
        if position - self.snapshot_position >= flushing.SNAPSHOT_BYTES:
            self.snapshot_position = position
            self.take_snapshot(self.end_offset)

    # --- reading ---

    def read(
        self, offset: int, max_bytes: int, *, min_one: bool = True, limit_offset: int | None = None, waits: bool = True
    ) -> FetchSlice:
        """Records from the batch that holds `offset` on, of batches below `limit_offset` (default: the end). At most
        `max_bytes`, but with `min_one` at least the first batch. Raises KafkaError OFFSET_OUT_OF_RANGE,
        KAFKA_STORAGE_ERROR; ColdRead if it would have to wait for the disk, unless it `waits`."""
        end = self.end_offset
        if offset < self.start_offset or offset > end:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: offset {offset} is not within {self.start_offset} to {end}",
            )
        limit = end if limit_offset is None or limit_offset > end else limit_offset
        if offset >= limit:
            return FetchSlice(offset, b"", None, limit)
        if self.dir.failed is not None:
            raise self.dir.storage_error()
        try:
            return lookup.read(self, offset, max_bytes, limit, min_one=min_one, waits=waits)
        except (OSError, LogDirDamaged) as e:
            raise self.unreadable(e) from e

    def offset_for_timestamp(self, timestamp: int, unread_max: int | None = None) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record not older than `timestamp` (ms); None if all records are older.

        -3 means the record with the largest timestamp (KIP-734). Raises TimesUnread if the times of more than
        `unread_max` segments must be read first. Raises KafkaError KAFKA_STORAGE_ERROR; CORRUPT_MESSAGE for an intact
        batch with content that is not records.
        """
        self.dir.check()
        try:
            return lookup.offset_for_timestamp(self, timestamp, unread_max)
        except (OSError, LogDirDamaged) as e:
            raise self.unreadable(e) from e
        except BatchError as e:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self.name}: {e}") from e

    # --- truncation and deletion ---

    def delete_records(self, before_offset: int, at_once: int | None = None) -> None:
        """Make `before_offset` the start, unless the start is there or above already; whole segments below it are
        deleted. `at_once` of them now, the others in later turns of the loop. Raises KafkaError OFFSET_OUT_OF_RANGE
        above the high watermark, KAFKA_STORAGE_ERROR."""
        if before_offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: offset {before_offset} is beyond the high watermark {self.high_watermark}",
            )
        if before_offset > self.start_offset:
            self.start_offset = before_offset
            self.leader_epochs.truncate_from_start(before_offset)
            self.drop_before_start(at_once)
            trimming.drop_later(self)

    def drop_before_start(self, most: int | None = None) -> int:
        """Drop up to `most` segments before the start. Returns the freed bytes. Raises KAFKA_STORAGE_ERROR."""
        return self._guard(lambda: trimming.drop_before_start(self, most))

    def retain(self, now_ms: int, most: int | None = None) -> int:
        """Drop up to `most` segments that retention no longer keeps. Returns the freed bytes. Raises
        KAFKA_STORAGE_ERROR."""
        return self._guard(lambda: trimming.retain(self, now_ms, most))

    def truncate_to(self, offset: int) -> bool:
        """Remove everything from `offset` on (rounded down to a batch). Returns whether there was anything to remove.

        Raises CutLater if checkpoints or many other segments come first, KafkaError KAFKA_STORAGE_ERROR.
        """
        trimming.with_twin(self, lambda twin: twin.truncate_to(offset))
        return self._guard(lambda: trimming.truncate_to(self, offset))

    def reset_to(self, offset: int, *, in_steps: bool = True) -> None:
        """Empty the log; it continues at `offset`. Raises like `truncate_to`; in one go if not `in_steps`."""
        trimming.with_twin(self, lambda twin: twin.reset_to(offset))
        self._guard(lambda: trimming.reset_to(self, offset, in_steps=in_steps))

    def skip_to(self, offset: int) -> None:
        """Continue at `offset`, above the end: compaction has removed everything between. Raises KafkaError."""
        self._guard(lambda: self.roll(offset))
        self.end_offset = offset

    def _guard(self, work: Callable[[], T]) -> T:
        self.dir.check()
        try:
            return work()
        except (OSError, LogDirDamaged) as e:
            raise self.fail_half_done(e) from e

    def fail_half_done(self, error: OSError | LogDirDamaged) -> KafkaError:
        """Like `unreadable`, for changes: without a free descriptor the change is abandoned half-way."""
        if is_shortage(error):
            self.dir.unsettled(self)
        return self.unreadable(error)

    def unreadable(self, error: OSError | LogDirDamaged) -> KafkaError:
        """Take the directory offline (I/O error) or end this replica (damage). Returns the error for the caller."""
        return self.dir.damaged(self, error) if isinstance(error, LogDirDamaged) else self.dir.fail(error)

    # --- durability ---

    @property
    def unflushed(self) -> int:
        """The number of offsets above the recovery point."""
        return self.end_offset - self.recovery_point

    @property
    def is_durable(self) -> bool:
        """Whether a power loss removes nothing, and restores nothing that was truncated."""
        return not self.unflushed and not self.leader_epochs.dirty and self.cuts_synced == self.truncations

    @property
    def settled_end(self) -> int:
        """Up to where records may count as stored by this replica: the end, unless `flush.messages` awaits a flush."""
        unsettled = self.unsettled
        return self.end_offset if unsettled is None else min(unsettled.end, self.end_offset)

    def when_settled(self, offset: int, done: Callable[[ErrorCode], None]) -> None:
        """Call `done` with NONE once `settled_end` has reached `offset`, or with an error; see `policy_flush.wait`."""
        policy_flush.wait(self, offset, done)

    def flush(self) -> None:
        """Fsync everything now, on the caller's thread. Raises KafkaError KAFKA_STORAGE_ERROR."""
        self._guard(lambda: flushing.flush_now(self))
        policy_flush.abandon(self, ErrorCode.NONE)

    def begin_flush(self) -> flushing.Flush:
        """Prepare to make everything durable; the caller has it done in a lane. Raises OSError."""
        return flushing.Flush(self, self.end_offset)

    def unflushed_files(self) -> list[str]:
        """The files of records that no flush covers: also of closed segments, whose flush may wait in its lane."""
        bases = self.segments.bases[self.segment_number(self.recovery_point) :]
        return [f"{self.path}/{base:020d}{names.LOG}" for base in bases]

    def flush_in_background(self, done: Callable[[], None] | None = None) -> None:
        """Fsync the data written so far in the directory's thread, then move the recovery point."""
        flushing.schedule(self, done)

    def close(self) -> None:
        """Drop the references to all open files for good. Writes nothing."""
        self.closed = True
        self.dir.budget.written.pop(self, None)
        self.segments.retire()
        policy_flush.closed(self)
