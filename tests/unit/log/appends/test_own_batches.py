"""Batches that the broker builds for itself: coordinators' records and transaction markers."""

from __future__ import annotations

from kraft_node.log.appending import append_own
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch, check_batch
from kraft_protocol.records.control import build_marker
from kraft_protocol.records.pairs import pair_batch
from tests.unit.log.world import NOW, LogWorld, read_bytes, refused, values, whole_headers

STATE = {"cleanup.policy": "compact", "compression.type": "uncompressed"}
"""As of `__transaction_state`."""


def offsets(epoch: int) -> bytes:
    """A batch of committed offsets in a transaction."""
    producer = {"producer_id": 7, "producer_epoch": epoch, "base_sequence": 0}
    return build_batch([(b"a", b"1")], timestamp=NOW, transactional=True, **producer)


def marker(epoch: int, coordinator_epoch: int) -> bytes:
    return build_marker(
        commit=True, producer_id=7, producer_epoch=epoch, coordinator_epoch=coordinator_epoch, timestamp=NOW
    )


def test_an_own_batch_gets_offset_and_epoch_and_keeps_its_bytes() -> None:
    log = LogWorld().open(STATE)
    append_own(log, pair_batch([(b"a", b"1"), (b"b", b"2")], NOW), 5, NOW)
    appended = append_own(log, pair_batch([(b"a", b"3")], NOW), 6, NOW)
    assert appended == (2, 2, -1, 0, False)
    data = read_bytes(log.read(0, 1000))
    headers = whole_headers(data)
    assert [(h.base_offset, h.partition_leader_epoch) for h in headers] == [(0, 5), (2, 6)]
    for header in headers:
        check_batch(data, header.position)
    assert values(log) == [b"1", b"2", b"3"]


def test_an_own_batch_is_compressed_if_the_topic_demands_it() -> None:
    log = LogWorld().open({**STATE, "compression.type": "gzip"})
    append_own(log, pair_batch([(b"a", b"1" * 500)], NOW), 0, NOW)
    (header,) = whole_headers(read_bytes(log.read(0, 1000)))
    assert header.compression == 1
    assert values(log) == [b"1" * 500]


def test_an_own_batch_gets_the_append_time_if_the_topic_demands_it() -> None:
    log = LogWorld().open({**STATE, "message.timestamp.type": "LogAppendTime"})
    assert append_own(log, pair_batch([(b"a", b"1")], 5), 0, NOW).log_append_time_ms == NOW
    (header,) = whole_headers(read_bytes(log.read(0, 1000)))
    assert header.max_timestamp == NOW


def test_the_size_and_the_producer_of_an_own_batch_are_checked() -> None:
    log = LogWorld().open({**STATE, "max.message.bytes": "200"})
    with refused(ErrorCode.MESSAGE_TOO_LARGE):
        append_own(log, pair_batch([(b"a", b"1" * 200)], NOW), 0, NOW)
    append_own(log, offsets(epoch=3), 0, NOW)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        append_own(log, marker(epoch=2, coordinator_epoch=9), 0, NOW)
    append_own(log, marker(epoch=3, coordinator_epoch=9), 0, NOW)
    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        append_own(log, marker(epoch=3, coordinator_epoch=8), 0, NOW)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        append_own(log, offsets(epoch=2), 0, NOW)
    assert log.end_offset == 2
    assert not log.producers.has_open(7, 3)
