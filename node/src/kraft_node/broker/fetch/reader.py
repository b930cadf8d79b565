"""The present answers of partitions to a fetch: rows of a FetchResponse, with records as file slices.

The fetch handler calls it, and again when a waiting fetch is answered. Reading costs an index look-up per batch, never
per record; nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kraft_node.base.env import ColdRead
from kraft_node.broker.fetch.session import UNKNOWN, FetchPartition, FetchSession, topic_fields
from kraft_node.partition.isolation import READ_COMMITTED, READ_UNCOMMITTED
from kraft_node.partition.manager import ReplicaManager
from kraft_node.partition.partition import Partition
from kraft_protocol.buffers import FileSlice
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import FetchResponse

if TYPE_CHECKING:
    from kraft_node.base.env import Disk
    from kraft_node.broker.replication.throttle import ReplicationQuota

NO_RECORDS: Final = b""
SMALL_SLICE: Final = 16 * 1024
SMALL_SLICES: Final = 48 * 1024
"""Records up to this size, per slice and per answer, are read and sent together with the rest in one call. A file
slice costs a send before it, a sendfile, and a send after it."""
HEAD_BYTES: Final = 18
ROW_BYTES: Final = 41
"""Sizes of an answer without its topics and records, and of a partition's fields."""
UNKNOWN_TOPIC: Final = frozenset((ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
UNANSWERABLE: Final = UNKNOWN_TOPIC | {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
"""A fetch for these partitions waits like one for an empty partition, so that a reader of a deleted topic does not
spin. If it has only partitions of this kind, it is answered at once."""
WRONG_LEADER: Final = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))

Row = tuple[FetchPartition, Any]
Prefer: TypeAlias = Callable[[Partition, int, str], int]
"""The replica that a consumer in a rack should read from, from an offset on; -1: the leader."""


class Collected:
    """The rows read for one fetch, and the facts that decide whether they are answered now."""

    __slots__ = ("cold", "filled", "immediate", "put_off", "rows", "size_bytes", "unanswerable", "wrong_leader")

    def __init__(self) -> None:
        self.cold: list[ColdRead] = []
        """The data that lanes must read first. While there is any, rows are missing, and all are read again."""
        self.put_off: list[FetchPartition] = []
        """The partitions that need it."""
        self.rows: list[Row] = []
        self.filled = 0
        """Rows with records."""
        self.size_bytes = 0
        self.immediate = False
        """There is an error, a divergence or a better replica, which the reader should learn without waiting."""
        self.unanswerable = 0
        self.wrong_leader = False


def collect(
    replicas: ReplicaManager,
    session: FetchSession,
    partitions: Iterable[FetchPartition],
    max_bytes: int,
    isolation: int,
    *,
    all_rows: bool,
    prefer: Prefer | None = None,
    quota: ReplicationQuota | None = None,
    before: Collected | None = None,
    waits: bool = False,
) -> Collected:
    """Read `partitions` in order until `max_bytes` are collected; the first batch found may exceed that.

    `before`: rows read earlier for the same fetch, which are extended and returned. `all_rows`: further partitions are
    answered without records instead of being left out. Followers' progress is noted, and they get what `quota` allows.
    Consumers that name a rack may read from followers, or be sent to one by `prefer`. Unless it `waits` for the disk,
    look-ups that are not in memory are left for lanes, in `Collected.cold`.
    """
    found = Collected() if before is None else before
    remaining = max(max_bytes - found.size_bytes, 0) if found.rows else max_bytes
    is_follower = session.replica_id >= 0
    denied = session.denied
    find = replicas.leader_in if session.rack is None else replicas.hosted_in
    for wanted in partitions:
        if remaining <= 0 and (found.size_bytes or found.cold) and not all_rows and not is_follower:
            break
        try:
            if denied is not None and wanted.key[0] in denied:
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            partition = find(wanted.key, wanted.leader_epoch)
            wanted.topic = partition.topic
            if prefer is not None and partition.lead is not None:
                preferred = prefer(partition, wanted.offset, session.rack or "")
                if preferred >= 0:
                    found.rows.append((wanted, _elsewhere(wanted, partition, preferred)))
                    found.immediate = True
                    continue
            room, min_one = min(wanted.max_bytes, remaining), found.size_bytes == 0
            limit = None if quota is None or not _is_limited(quota, session, partition) else quota
            if limit is not None and limit.holds(partition.topic, partition.index):
                room, min_one = 0, False
            row = _read(wanted, partition, room, isolation, session, min_one=min_one, waits=waits)
            if limit is not None:
                limit.record(partition.topic, partition.index, _length(row.records))
        except ColdRead as cold:
            found.cold.append(cold.with_traceback(None))  # its frames would keep the file open if it is deleted
            found.put_off.append(wanted)
            remaining = max(remaining - room, 0)
            continue
        except KafkaError as error:
            row = _refused(wanted, error.code, replicas, found, is_follower=is_follower)
        else:
            size = 0 if row.records is NO_RECORDS else _length(row.records)
            if size:
                found.size_bytes += size
                found.filled += 1
                remaining -= size
            elif row.diverging_epoch is not None or (
                is_follower and -1 < wanted.sent_start_offset < row.log_start_offset
            ):
                found.immediate = True
        remaining = max(remaining, 0)
        found.rows.append((wanted, row))
    return found


def _refused(
    wanted: FetchPartition, code: ErrorCode, replicas: ReplicaManager, found: Collected, *, is_follower: bool
) -> Any:
    """The row of a partition that cannot be read, noted in `found`."""
    if code == ErrorCode.UNKNOWN_TOPIC_ID and wanted.topic is not None:
        code = _what_became_of(wanted.topic, wanted.index, replicas)
    if code in UNANSWERABLE and not is_follower:
        found.unanswerable += 1
    else:
        found.immediate = True
        found.wrong_leader |= code in WRONG_LEADER
    return _failed(wanted, code)


def _is_limited(quota: ReplicationQuota, session: FetchSession, partition: Partition) -> bool:
    """Whether the reader is a follower that catches up, and limited."""
    return quota.is_active and session.replica_id not in partition.isr


def take_back(
    session: FetchSession, found: Collected, replicas: ReplicaManager, quota: ReplicationQuota | None
) -> None:
    """Subtract what `collect` has counted for the rows of `found`, which will be read again."""
    for wanted, row in found.rows:
        size = _length(row.records)
        partition = replicas.peek(wanted.key) if size else None
        if partition is not None:
            partition.bytes_out -= size
            if quota is not None and _is_limited(quota, session, partition):
                quota.record(partition.topic, partition.index, -size)


def refuse(partitions: Iterable[FetchPartition], code: ErrorCode, before: Collected | None = None) -> Collected:
    """Answer each of the partitions with `code`, after the rows in `before`."""
    found = Collected() if before is None else before
    found.immediate = True
    found.rows += [(wanted, _failed(wanted, code)) for wanted in partitions]
    return found


def size_of(found: Collected) -> int:
    """The approximate size of the answer in bytes, for quotas."""
    return found.size_bytes + HEAD_BYTES + ROW_BYTES * found.filled


def _length(records: Any) -> int:
    return records.length if type(records) is FileSlice else len(records)


def _elsewhere(wanted: FetchPartition, partition: Partition, replica: int) -> Any:
    """A row that only names the replica to read from."""
    row = _empty(wanted, partition, READ_UNCOMMITTED)
    row.preferred_read_replica = replica
    return row


def _read(
    wanted: FetchPartition,
    partition: Partition,
    max_bytes: int,
    isolation: int,
    session: FetchSession,
    *,
    min_one: bool,
    waits: bool,
) -> Any:
    log = partition.log
    offset = wanted.offset
    parted = None
    if wanted.last_fetched_epoch != UNKNOWN:
        parted = partition.diverging(offset, wanted.last_fetched_epoch)
    if session.replica_id >= 0 and parted is None and log.start_offset <= offset <= log.end_offset:
        partition.follower_fetched(
            session.replica_id,
            session.replica_epoch,
            offset,
            wanted.log_start_offset,
            names_epoch=wanted.leader_epoch != UNKNOWN,
        )
    row = _empty(wanted, partition, isolation)
    if parted is not None:
        row.diverging_epoch = FetchResponse.EpochEndOffset(parted.epoch, parted.end_offset)
        row.aborted_transactions = None
        return row
    if log.start_offset <= offset and offset >= partition.readable_end(isolation) and offset <= log.end_offset:
        return row
    if max_bytes < 0 and log.start_offset <= offset <= log.end_offset:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{max_bytes} bytes of {wanted.key} are requested")
    found = partition.read(offset, max_bytes, isolation, min_one=min_one, waits=waits)
    size = _length(found.records)
    if size:
        row.records = found.records
        if isolation == READ_COMMITTED:
            transaction = FetchResponse.AbortedTransaction
            row.aborted_transactions = [
                transaction(producer_id, first_offset)
                for producer_id, first_offset in log.aborted_within(found, waits=waits)
            ]
        partition.bytes_out += size
    elif found.first_batch_incomplete and max_bytes:
        row.aborted_transactions = None
    return row


def _empty(wanted: FetchPartition, partition: Partition, isolation: int) -> Any:
    """A row without records."""
    log = partition.log
    return FetchResponse.PartitionData(
        partition_index=wanted.index,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start_offset,
        aborted_transactions=[] if isolation == READ_COMMITTED else None,
        records=NO_RECORDS,
    )


def add_put_off(found: Collected, replicas: ReplicaManager, isolation: int) -> None:
    """Add rows without records for the partitions that lanes still read: some answers must name each partition."""
    for wanted in found.put_off:
        partition = replicas.peek(wanted.key)
        if partition is not None:
            found.rows.append((wanted, _empty(wanted, partition, isolation)))


def _what_became_of(topic: str, index: int, replicas: ReplicaManager) -> ErrorCode:
    """The error for a topic id that no longer exists, from the state of the partition that has its name now."""
    try:
        replicas.hosted(topic, index)
    except KafkaError as error:
        return error.code
    return ErrorCode.INCONSISTENT_TOPIC_ID


def _failed(wanted: FetchPartition, code: ErrorCode) -> Any:
    return FetchResponse.PartitionData(
        partition_index=wanted.index,
        error_code=code,
        high_watermark=UNKNOWN,
        aborted_transactions=[] if code in UNANSWERABLE else None,
        records=NO_RECORDS,
    )


def settle(
    session: FetchSession, rows: list[Row], replicas: ReplicaManager, isolation: int, *, all_rows: bool
) -> list[Row]:
    """Note in `session` the rows of the answer. Returns the rows that belong in the answer.

    An incremental answer leaves out rows without news. Partitions read to their end are watched from now on; others
    stay ready, after the partitions that had no turn.
    """
    answered = []
    ready = session.ready
    for wanted, row in rows:
        if row.error_code:
            wanted.sent_high_watermark = UNKNOWN
            answered.append((wanted, row))
            continue
        has_records = row.records is not NO_RECORDS
        if (
            all_rows
            or has_records
            or row.high_watermark != wanted.sent_high_watermark
            or row.log_start_offset != wanted.sent_start_offset
            or row.diverging_epoch is not None
            or row.preferred_read_replica >= 0
        ):
            answered.append((wanted, row))
        # A reader that must truncate first does not apply the high watermark: it is sent again.
        wanted.sent_high_watermark = UNKNOWN if row.diverging_epoch is not None else row.high_watermark
        wanted.sent_start_offset = row.log_start_offset
        if has_records:
            ready.pop(wanted.key, None)
            ready[wanted.key] = wanted
        else:
            _rest(session, wanted, replicas, isolation)
    return answered


def _rest(
    session: FetchSession, wanted: FetchPartition, replicas: ReplicaManager, isolation: int, missing_bytes: int = 1
) -> None:
    """Watch a partition that was read to its end. Leave it ready otherwise: the answer had no room for it."""
    partition = replicas.peek(wanted.key)
    if partition is not None and partition.readable_end(isolation) <= wanted.offset:
        session.ready.pop(wanted.key, None)
        wanted.watch(partition, isolation, missing_bytes)


def watch(
    session: FetchSession, rows: list[Row], replicas: ReplicaManager, isolation: int, missing_bytes: int = 1
) -> None:
    """Before waiting, without an answer yet: watch every partition that was read; `missing_bytes` as in
    `FetchPartition.watch`.

    A partition with news that do not cause an answer (the high watermark, for a follower) stays ready and is reported
    later.
    """
    for wanted, row in rows:
        if not row.error_code:
            if (row.high_watermark, row.log_start_offset) == (wanted.sent_high_watermark, wanted.sent_start_offset):
                _rest(session, wanted, replicas, isolation, missing_bytes)
            partition = replicas.peek(wanted.key)
            if partition is not None:
                wanted.watch(partition, isolation, missing_bytes)


def _in_memory(records: FileSlice, disk: Disk) -> Any:
    """The bytes of a slice; the slice itself if they are not in memory, or cannot be read: the sender copes with it."""
    try:
        with disk.no_wait:
            data = records.read()
    except (ColdRead, OSError):
        return records
    return data if len(data) == records.length else records


class Answer:
    """A response that is built row by row; consecutive rows of one topic share its heading."""

    __slots__ = ("_disk", "_last", "_partitions", "_room", "response")

    def __init__(self, session_id: int, disk: Disk) -> None:
        self._disk = disk
        self.response = FetchResponse(session_id=session_id, responses=[])
        self._last: object = None
        self._partitions: list[Any] = []
        self._room = SMALL_SLICES

    def add(self, rows: list[Row]) -> None:
        """Append `rows`."""
        room, last, partitions = self._room, self._last, self._partitions
        for wanted, row in rows:
            records = row.records
            if records.__class__ is FileSlice and records.length <= SMALL_SLICE and records.length <= room:
                room -= records.length
                row.records = _in_memory(records, self._disk)
            topic = wanted.key[0]
            if topic != last:
                name, topic_id = topic_fields(wanted.key)
                partitions = []
                self.response.responses.append(
                    FetchResponse.FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=partitions)
                )
                last = topic
            partitions.append(row)
        self._room, self._last, self._partitions = room, last, partitions
