"""One log and its producers: sequences, epochs, transactions and their markers."""

from __future__ import annotations

from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.control import build_marker
from tests.unit.log.world import (
    NOW,
    LogWorld,
    batch,
    idempotent,
    refused,
)

# --- idempotence ---


def test_a_repeated_batch_is_recognized_among_the_last_five() -> None:
    log = LogWorld().open()
    for number in range(7):
        log.append_as_leader(idempotent(number), 0, NOW)
    again = log.append_as_leader(idempotent(2), 0, NOW)
    assert again == (2, 2, NOW, 0, True)
    assert log.end_offset == 7
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append_as_leader(idempotent(1), 0, NOW)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append_as_leader(idempotent(8), 0, NOW)


def test_epochs_fence_and_restart_sequences() -> None:
    log = LogWorld().open()
    log.append_as_leader(idempotent(0, epoch=3), 0, NOW)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.append_as_leader(idempotent(1, epoch=2), 0, NOW)
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        log.append_as_leader(idempotent(1, epoch=4), 0, NOW)
    log.append_as_leader(idempotent(0, epoch=4), 0, NOW)
    (producer,) = log.producers.active()
    assert (producer.producer_epoch, producer.last_sequence, producer.last_timestamp_ms) == (4, 0, NOW)


def test_an_unknown_producer_may_start_at_any_sequence_and_sequences_wrap() -> None:
    log = LogWorld().open()
    log.append_as_leader(idempotent(2**31 - 1), 0, NOW)
    log.append_as_leader(idempotent(0), 0, NOW)
    log.append_as_leader(idempotent(1), 0, NOW)
    assert log.end_offset == 3


def test_producers_expire_but_not_in_a_transaction() -> None:
    log = LogWorld().open()
    log.append_as_leader(idempotent(0, pid=1), 0, NOW)
    log.append_as_leader(idempotent(0, pid=2, transactional=True), 0, NOW)
    log.producers.expire(NOW + 1000, 1000)
    assert [producer.producer_id for producer in log.producers.active()] == [2]


# --- transactions ---


def marker(pid: int, *, commit: bool, epoch: int = 0) -> bytes:
    return build_marker(commit=commit, producer_id=pid, producer_epoch=epoch, coordinator_epoch=1, timestamp=NOW)


def test_open_transactions_hold_the_stable_offset_back() -> None:
    log = LogWorld().open()
    log.append_as_leader(batch(b"plain"), 0, NOW)
    log.append_as_leader(idempotent(0, pid=1, transactional=True), 0, NOW)
    log.append_as_leader(idempotent(0, pid=2, transactional=True), 0, NOW)
    log.high_watermark = log.end_offset
    assert log.last_stable_offset == 1
    log.append_as_leader(marker(1, commit=False), 0, NOW, internal=True)
    assert log.last_stable_offset == 1, "the marker is not replicated yet"
    log.high_watermark = log.end_offset
    assert log.last_stable_offset == 2
    log.append_as_leader(marker(2, commit=True), 0, NOW, internal=True)
    log.high_watermark = log.end_offset
    assert log.last_stable_offset == 5
    assert log.aborted_transactions(0, 5) == [(1, 1)]
    assert log.aborted_transactions(4, 5) == []
    assert log.aborted_transactions(0, 1) == []


def test_a_transaction_refuses_other_batches_of_its_producer() -> None:
    log = LogWorld().open()
    log.append_as_leader(idempotent(0, transactional=True), 0, NOW)
    with refused(ErrorCode.INVALID_TXN_STATE):
        log.append_as_leader(idempotent(1), 0, NOW)


def test_old_markers_are_fenced() -> None:
    log = LogWorld().open()
    log.append_as_leader(idempotent(0, epoch=5, transactional=True), 0, NOW)
    with refused(ErrorCode.INVALID_PRODUCER_EPOCH):
        log.append_as_leader(marker(7, commit=True, epoch=4), 0, NOW, internal=True)
    log.append_as_leader(marker(7, commit=True, epoch=5), 0, NOW, internal=True)
    old = build_marker(commit=True, producer_id=7, producer_epoch=5, coordinator_epoch=0, timestamp=NOW)
    with refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED):
        log.append_as_leader(old, 0, NOW, internal=True)
