"""The slow path of appends, everything but one plain batch of a client; and batches of this broker itself.

`Log.append_as_leader` uses a fast path if possible; `Log.append_as_follower` comes here at once. All data to append is
checked first, then written with `Log.write_batch`. This file also applies a producer's batch or a marker to the state
of producers and transactions. Recovery applies markers by it, too.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

from kraft_node.log import names
from kraft_node.log.config import LONG_MAX
from kraft_node.log.errors import LogDirDamaged
from kraft_node.log.producers.recall import recall
from kraft_node.log.producers.verification import VERIFIED, Guard
from kraft_node.log.results import AppendInfo
from kraft_node.log.runs import fitting, write_run
from kraft_node.log.segments import txn_index
from kraft_node.log.validate import (
    Checked,
    check_records,
    looks_sound,
    output_limit,
    recode,
    recode_at_once,
    rewrite,
    target_codec,
)
from kraft_node.log.waiting import policy_flush
from kraft_protocol.buffers import Buffer
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import (
    COMPRESSION_MASK,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    check_batch,
    iter_records,
    whole_batches,
)
from kraft_protocol.records.control import ControlType, built_marker, parse_control_key, parse_marker
from kraft_protocol.records.errors import BatchError, InvalidBatch, UnsupportedMagic

if TYPE_CHECKING:
    from kraft_node.log.seams import AppendedLog, TransactionalLog

Marker: TypeAlias = tuple[ControlType, int]
"""Type and coordinator epoch of a control batch."""
HEAD: Final = Struct(">qii")
"""The fields that the leader sets in front of a batch: base offset, length, leader epoch."""


def append_as_leader(
    log: AppendedLog,
    records: Buffer,
    leader_epoch: int,
    now_ms: int,
    *,
    internal: bool,
    checked: Checked | None = None,
    guard: Guard | None = VERIFIED,
) -> AppendInfo:
    """See `Log.append_as_leader`.

    Raises LongCheck, LongRecode, Unverified, or KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, INVALID_TIMESTAMP (with
    `record_errors`), MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_FOR_MESSAGE_FORMAT,
    OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, KAFKA_STORAGE_ERROR.
    """
    headers = _checked(log, records)
    restated = [
        _check_as_leader(log, records, header, now_ms, internal=internal, checked=checked) for header in headers
    ]
    first_base = log.end_offset
    for header, anew in zip(headers, restated, strict=True):
        known = marker = None
        if header.producer_id >= 0:
            if header.is_control:
                marker = _marker(log, records, header)
                log.producers.check_marker(header.producer_id, header.producer_epoch, marker[1])
            else:
                known = check_producer(log, header, guard, internal=internal)
        if known is not None:
            return known
        payload = _recoded(log, records, header, checked, internal=internal)
        _store(log, records, header, leader_epoch, now_ms, payload, marker, anew=anew)
    last = log.end_offset - 1
    policy_flush.after_append(log, first_base)
    return AppendInfo(first_base, last, now_ms if log.config.log_append_time else NO_TIMESTAMP, log.start_offset)


def append_own(
    log: AppendedLog, batch: Buffer, leader_epoch: int, now_ms: int, guard: Guard | None = VERIFIED
) -> AppendInfo:
    """Append a batch that this broker has just built for itself: a coordinator's records, or a marker.

    Its CRC and numbers are right by construction. So only its size and its producer are checked, unless the topic
    stores something else: another codec, or the time of the append. Raises like `append_as_leader`.
    """
    config = log.config
    header = BatchHeader(HEADER.unpack_from(batch))
    codec = header.attributes & COMPRESSION_MASK
    if config.log_append_time or (target_codec(config, codec) != codec and not header.is_control):
        return append_as_leader(log, batch, leader_epoch, now_ms, internal=True, guard=guard)
    base, size = log.end_offset, header.length
    if size > config.max_message_bytes or size > config.segment_bytes:
        _check_size(log, size)
    marker = None
    if header.producer_id >= 0:
        if header.is_control:
            marker = built_marker(batch)
            log.producers.check_marker(header.producer_id, header.producer_epoch, marker[1])
        else:
            check_producer(log, header, guard, internal=True)
    last = base + header.last_offset_delta
    buffers = (HEAD.pack(base, size - LOG_OVERHEAD, leader_epoch), memoryview(batch)[HEAD.size :])
    log.write_batch(buffers, size, base, last, header.max_timestamp, leader_epoch, now_ms)
    if header.producer_id >= 0:
        _note_producer(log, header, base, marker)
    policy_flush.after_append(log, base)
    return AppendInfo(base, last, NO_TIMESTAMP, log.start_offset)


def append_as_follower(
    log: AppendedLog, records: Buffer, leader_epoch: int | None, rolls_max: int | None = None
) -> int:
    """See `Log.append_as_follower`."""
    first_base = log.end_offset
    now_ms = log.dir.env.clock.wall_ms()
    headers = _checked(log, whole_batches(records, with_junk=True))
    view = memoryview(records)
    done = size = 0
    segments_max = None if rolls_max is None else len(log.segments) + rolls_max
    while done < len(headers) and (segments_max is None or len(log.segments) < segments_max):
        header = headers[done]
        base, start, epoch = header.base_offset, header.position, header.partition_leader_epoch
        if base < log.end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{log.name}: the batch at offset {base} does not continue at the end, {log.end_offset}",
            )
        if leader_epoch is not None and epoch > leader_epoch:
            break
        written = fitting(log, records, headers, done, now_ms) if done + 1 < len(headers) else []
        if len(written) > 1:
            write_run(log, view[start : written[-1].position + written[-1].length], written)
        else:
            written = [header]
            data = view[start : start + header.length]
            log.write_batch((data,), header.length, base, header.last_offset, header.max_timestamp, epoch, now_ms)
        for header in written:
            if header.producer_id >= 0:
                marker = _marker(log, records, header) if header.is_control else None
                _note_producer(log, header, header.base_offset, marker)
        done += len(written)
        size = written[-1].position + written[-1].length
    policy_flush.after_append(log, first_base)
    return size


def check_producer(
    log: AppendedLog, header: BatchHeader, guard: Guard | None = VERIFIED, *, internal: bool = False
) -> AppendInfo | None:
    """Where a batch is stored that its producer has sent before; None for a new batch.

    Raises KafkaError like `Producers.check`, INVALID_RECORD for an invalid sequence number.
    """
    if header.base_sequence < 0 and not internal:
        _refuse_sequence(header)
    try:
        known = log.producers.check(header, guard, internal=internal)
    except KafkaError as e:
        if e.code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER or not _is_recalled(log, header):
            raise
        known = log.producers.check(header, guard, internal=internal)
    if known is None:
        return None
    return AppendInfo(known.first_offset, known.last_offset, known.timestamp_ms, log.start_offset, is_duplicate=True)


def _refuse_sequence(header: BatchHeader) -> NoReturn:
    raise KafkaError(
        ErrorCode.INVALID_RECORD,
        f"Invalid sequence number {header.base_sequence} in record batch with producerId {header.producer_id}",
    )


def _is_recalled(log: AppendedLog, header: BatchHeader) -> bool:
    """Whether earlier batches of the producer, which its snapshot did not have, were found in the log."""
    try:
        return recall(log, header)
    except (OSError, LogDirDamaged) as e:
        raise log.unreadable(e) from e


# --- checks ---


def _checked(log: AppendedLog, records: Buffer) -> list[BatchHeader]:
    headers = []
    position = 0
    try:
        while position < len(records):
            header = check_batch(records, position)
            headers.append(header)
            position += header.length
    except UnsupportedMagic as e:
        raise KafkaError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"{log.name}: {e}") from None
    except InvalidBatch as e:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{log.name}: {e}") from None
    except BatchError as e:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{log.name}: {e}") from None
    if not headers:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{log.name}: no record batch to append")
    return headers


def _check_size(log: AppendedLog, size: int) -> None:
    config = log.config
    if size > config.max_message_bytes:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The record batch size in the append to {log.name} is {size} bytes which exceeds the maximum configured "
            f"value of {config.max_message_bytes}.",
        )
    if size > config.segment_bytes:  # not the internal key, which makes tiny segments for tests
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The record batch for {log.name} has {size} bytes, a segment only {config.segment_bytes}",
        )


def _check_as_leader(
    log: AppendedLog, records: Buffer, header: BatchHeader, now_ms: int, *, internal: bool, checked: Checked | None
) -> bool:
    """Raise KafkaError unless the batch may be stored. Returns whether its header must be rewritten."""
    name, config = log.name, log.config
    _check_size(log, header.length)
    if internal:
        return False
    if header.is_control:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{name}: Clients are not allowed to write control records.")
    if header.base_offset != 0:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"The baseOffset of the record batch in the append to {name} should be 0"
        )
    if header.count != header.last_offset_delta + 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{name}: {header.count} records do not fill the offsets up to {header.last_offset}",
        )
    if header.producer_id >= 0 and header.base_sequence < 0:
        _refuse_sequence(header)
    section = memoryview(records)[header.position + HEADER_SIZE : header.position + header.length]
    if (
        config.compact
        or header.timestamp_type
        or (not config.log_append_time and _may_be_out_of_time(log, header, now_ms))
        or not looks_sound(section, header.compression, header.count, header.base_timestamp, header.max_timestamp)
    ):
        latest = None if checked is None else checked.latest
        if latest is None:
            latest = check_records(records, header, config, now_ms, name)
        if latest != header.max_timestamp or header.timestamp_type:
            header.max_timestamp = latest
            return True
    return False


def _recoded(
    log: AppendedLog, records: Buffer, header: BatchHeader, checked: Checked | None, *, internal: bool
) -> bytes | None:
    """The records in the topic's codec, if the batch has another codec. Raises LongRecode, KafkaError."""
    codec = target_codec(log.config, header.compression)
    if header.is_control or codec == header.compression:
        return None
    if internal:
        return recode(records, header, log.config, output_limit(log.config))
    _check_rebuilt(log, header)
    if checked is None or checked.payload is None or checked.codec != codec:
        checked = recode_at_once(records, header, log.config, checked)
    return checked.payload


def _check_rebuilt(log: AppendedLog, header: BatchHeader) -> None:
    """Raise UNKNOWN_SERVER_ERROR, as Kafka does, for a client's batch that can be stored but not built anew."""
    if header.base_timestamp < NO_TIMESTAMP:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{log.name}: Invalid negative timestamp")
    if header.producer_id != NO_PRODUCER_ID and header.producer_epoch == NO_PRODUCER_EPOCH:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{log.name}: Invalid negative producer epoch")


def _may_be_out_of_time(log: AppendedLog, header: BatchHeader, now_ms: int) -> bool:
    """Whether a record may be too old or too new; the header has only the latest timestamp."""
    config = log.config
    latest = now_ms + config.message_timestamp_after_max_ms
    return config.message_timestamp_before_max_ms != LONG_MAX or header.max_timestamp > latest


# --- storing ---


def _store(
    log: AppendedLog,
    records: Buffer,
    header: BatchHeader,
    leader_epoch: int,
    now_ms: int,
    payload: bytes | None,
    marker: Marker | None,
    *,
    anew: bool,
) -> None:
    config = log.config
    base = log.end_offset
    max_timestamp = header.max_timestamp
    buffers: tuple[Buffer, ...]
    if not header.is_control and (config.log_append_time or anew or payload is not None):
        data = rewrite(records, header, config, now_ms, base, leader_epoch, payload)
        buffers, size = (data,), len(data)
        if size > config.max_message_bytes and size > header.length:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{log.name}: the batch has {size} bytes under the topic's codec, more than {config.max_message_bytes}",
            )
        if config.log_append_time:
            max_timestamp = now_ms
    else:
        size = header.length
        view = memoryview(records)[header.position + HEAD.size : header.position + size]
        buffers = (HEAD.pack(base, size - LOG_OVERHEAD, leader_epoch), view)
    last = base + header.last_offset_delta
    log.write_batch(buffers, size, base, last, max_timestamp, leader_epoch, now_ms)
    if header.producer_id >= 0:
        header.max_timestamp = max_timestamp
        _note_producer(log, header, base, marker)


def _marker(log: AppendedLog, records: Buffer, header: BatchHeader) -> Marker:
    """Type and coordinator epoch of a control batch of a producer."""
    try:
        record = next(iter(iter_records(records, header)))
        return parse_control_key(record.key), parse_marker(record.value)
    except (BatchError, StopIteration) as e:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{log.name}: {e}") from None


def _note_producer(log: AppendedLog, header: BatchHeader, base: int, marker: Marker | None) -> None:
    """Apply a producer's batch, or its marker, that is in the log at `base`. Raises KafkaError KAFKA_STORAGE_ERROR."""
    if marker is None:
        log.producers.appended(header, base)
        return
    kind, coordinator_epoch = marker
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return
    try:
        end_transaction(log, header, base, coordinator_epoch, aborted=kind == ControlType.ABORT)
    except OSError as e:
        raise log.fail_half_done(e) from e


def end_transaction(
    log: TransactionalLog,
    header: BatchHeader,
    offset: int,
    coordinator_epoch: int,
    *,
    aborted: bool,
    indexed: bool = False,
) -> None:
    """Apply the marker at `offset`: the transaction ends; an aborted transaction is added to the index unless it is
    `indexed`.

    Raises OSError.
    """
    txn = log.producers.end_transaction(header, offset, coordinator_epoch, log.high_watermark, aborted=aborted)
    if txn is not None and aborted and not indexed:
        entry = txn_index.AbortedTxn(txn.producer_id, txn.first_offset, offset, log.producers.stable_after(txn))
        segment = log.segments.at(log.segment_number(offset))
        txn_index.append(log.dir.env.disk, segment.path(names.TXN_INDEX), entry)
        if segment.base not in log.txn_bases:
            log.txn_bases += (segment.base,)
            log.names_changed += 1
