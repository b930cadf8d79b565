"""Guards of transactions (KIP-890): which transactional batch a leader appends, and when a guard is gone."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.log.producers.producer_state import Producers
from kraft_node.log.producers.verification import VERIFIED, Guard, Unverified
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import BatchHeader, build_batch, read_header
from kraft_protocol.records.control import build_marker

PID = 7


def header(sequence: int = 0, *, epoch: int = 0, transactional: bool = True, count: int = 1) -> BatchHeader:
    return read_header(
        build_batch(
            [(None, b"v")] * count,
            timestamp=5,
            producer_id=PID,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
    )


class Rig:
    """The producers of a log that only counts offsets."""

    def __init__(self) -> None:
        self.producers = Producers("t-0")
        self.end = 0

    def append(self, batch: BatchHeader, guard: Guard | None = None, **how: Any) -> Any:
        known = self.producers.check(batch, guard, **how)
        if known is None:
            self.producers.appended(batch, self.end)
            self.end += batch.last_offset_delta + 1
        return known

    def refused(self, batch: BatchHeader, guard: Guard | None = None) -> ErrorCode:
        with pytest.raises(KafkaError) as caught:
            self.append(batch, guard)
        return caught.value.code

    def verify(self, sequence: int = 0, epoch: int = 0, *, with_bumps: bool = False, now_ms: int = 0) -> Guard:
        return self.producers.begin_verification(PID, epoch, sequence, now_ms, with_bumps=with_bumps)

    def end_transaction(self, epoch: int = 0, coordinator_epoch: int = 0, *, version: int = 0) -> Any:
        self.producers.check_marker(PID, epoch, coordinator_epoch, version)
        marker = read_header(
            build_marker(
                commit=False,
                producer_id=PID,
                producer_epoch=epoch,
                coordinator_epoch=coordinator_epoch,
                timestamp=5,
            )
        )
        ended = self.producers.end_transaction(marker, self.end, coordinator_epoch, self.end, aborted=True)
        self.end += 1
        return ended


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_first_batch_of_a_transaction_without_a_guard_is_unverified(rig: Rig) -> None:
    with pytest.raises(Unverified) as caught:
        rig.append(header())
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE


def test_a_guard_admits_the_first_batch_and_later_batches_need_no_guard(rig: Rig) -> None:
    rig.append(header(0), rig.verify())
    assert rig.producers.has_open(PID, 0)
    rig.append(header(1))
    rig.append(header(2))
    assert rig.end == 3


def test_the_first_batch_uses_the_guard_up(rig: Rig) -> None:
    guard = rig.verify()
    rig.append(header(0), guard)
    rig.end_transaction()
    assert rig.refused(header(1), guard) is ErrorCode.INVALID_TXN_STATE


def test_marker_during_the_verification_refuses_the_batch(rig: Rig) -> None:
    guard = rig.verify()
    rig.end_transaction()
    assert rig.refused(header(), guard) is ErrorCode.INVALID_TXN_STATE
    rig.append(header(), rig.verify())


def test_next_epoch_needs_a_guard_even_if_the_last_transaction_is_open(rig: Rig) -> None:
    rig.append(header(0), rig.verify())
    with pytest.raises(Unverified):
        rig.append(header(0, epoch=1))
    rig.append(header(0, epoch=1), rig.verify(epoch=1))


def test_repeated_batch_is_recognized_after_its_transaction_without_a_guard(rig: Rig) -> None:
    rig.append(header(0, count=3), rig.verify())
    rig.end_transaction()
    known = rig.append(header(0, count=3))
    assert (known.first_offset, known.last_offset) == (0, 2)


def test_later_batches_do_not_overtake_the_first_unverified_batch(rig: Rig) -> None:
    guard = rig.verify(5)
    assert rig.verify(6) is guard
    assert rig.refused(header(6), guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    rig.append(header(5), guard)
    rig.append(header(6))


def test_lower_sequence_of_a_later_request_counts(rig: Rig) -> None:
    guard = rig.verify(6)
    rig.verify(5)
    assert rig.refused(header(6), guard) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_newer_epoch_resets_the_lowest_sequence(rig: Rig) -> None:
    guard = rig.verify(0, epoch=0)
    rig.verify(9, epoch=1)
    assert (guard.epoch, guard.lowest_sequence) == (1, 9)
    rig.verify(3, epoch=0)
    assert guard.lowest_sequence == 9


def test_next_batch_of_a_transaction_is_refused_behind_a_lower_number_of_a_newer_epoch(rig: Rig) -> None:
    rig.append(header(0), rig.verify())
    rig.append(header(1))
    rig.verify(0, epoch=1)
    assert rig.refused(header(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert rig.append(header(1)).first_offset == 1


def test_next_batch_of_a_transaction_goes_on_before_a_higher_number_of_a_newer_epoch(rig: Rig) -> None:
    rig.append(header(0), rig.verify())
    rig.verify(9, epoch=1)
    rig.append(header(1))
    rig.append(header(2))


def test_unknown_producer_begins_with_0_if_its_epoch_is_bumped_by_each_transaction(rig: Rig) -> None:
    assert rig.refused(header(4), rig.verify(4, with_bumps=True)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    other = Rig()
    other.append(header(4), other.verify(4))


def test_plain_batch_in_an_open_transaction_is_refused(rig: Rig) -> None:
    rig.append(header(0), rig.verify())
    assert rig.refused(header(1, transactional=False)) is ErrorCode.INVALID_TXN_STATE
    rig.end_transaction()
    rig.append(header(1, transactional=False))


def test_plain_batches_need_no_guard(rig: Rig) -> None:
    rig.append(header(0, transactional=False))
    rig.append(header(1, transactional=False))
    assert rig.producers._guards == {}


def test_marker_with_the_epoch_of_the_next_verification_leaves_its_guard(rig: Rig) -> None:
    """The transaction ends with epoch 1, and the producer is already verifying its next one in that epoch."""
    rig.append(header(0), rig.verify(with_bumps=True))
    guard = rig.verify(0, epoch=1, with_bumps=True)
    rig.end_transaction(1, version=2)
    rig.append(header(0, epoch=1), guard)


def test_marker_of_transaction_version_1_removes_every_guard(rig: Rig) -> None:
    rig.append(header(0), rig.verify())
    guard = rig.verify(0, epoch=1)
    rig.end_transaction(1)
    assert rig.refused(header(0, epoch=1), guard) is ErrorCode.INVALID_TXN_STATE


def test_guards_expire_like_producers(rig: Rig) -> None:
    guard = rig.verify(now_ms=1000)
    rig.producers.expire(1999, 1000)
    assert rig.verify(now_ms=1999) is guard
    rig.producers.expire(2000, 1000)
    assert rig.refused(header(), guard) is ErrorCode.INVALID_TXN_STATE


def test_truncation_removes_guards(rig: Rig) -> None:
    guard = rig.verify()
    rig.producers.clear()
    assert rig.refused(header(), guard) is ErrorCode.INVALID_TXN_STATE


def test_replay_needs_no_guard(rig: Rig) -> None:
    rig.append(header(0), VERIFIED)
    rig.append(header(0, epoch=3), VERIFIED)


def test_batches_of_a_coordinator_have_no_sequence_but_an_epoch_and_a_guard(rig: Rig) -> None:
    with pytest.raises(Unverified):
        rig.append(header(0, epoch=2), internal=True)
    rig.append(header(0, epoch=2), rig.verify(epoch=2), internal=True)
    for _ in range(7):
        assert rig.append(header(0, epoch=2), internal=True) is None, "it repeats nothing"
    with pytest.raises(KafkaError) as caught:
        rig.append(header(0, epoch=1), VERIFIED, internal=True)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_older_epoch_is_refused_without_a_verification(rig: Rig) -> None:
    rig.append(header(0, epoch=2), rig.verify(epoch=2))
    with pytest.raises(KafkaError) as caught:
        rig.verify(epoch=1)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", [0, 1, 2])
def test_marker_of_an_older_epoch_is_refused(rig: Rig, version: int) -> None:
    rig.append(header(0, epoch=3), rig.verify(epoch=3))
    with pytest.raises(KafkaError) as caught:
        rig.end_transaction(2, version=version)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(("version", "is_enough"), [(0, True), (1, True), (2, False)])
def test_marker_of_an_open_transaction_must_have_a_newer_epoch_from_version_2(
    rig: Rig, version: int, is_enough: bool
) -> None:
    rig.append(header(0, epoch=3), rig.verify(epoch=3))
    if is_enough:
        assert rig.end_transaction(3, version=version) is not None
        return
    with pytest.raises(KafkaError) as caught:
        rig.end_transaction(3, version=version)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert rig.end_transaction(4, version=version) is not None
    assert rig.end_transaction(4, version=version) is None, "a repetition"


def test_marker_of_an_older_coordinator_is_fenced(rig: Rig) -> None:
    rig.append(header(0), rig.verify())
    rig.end_transaction(coordinator_epoch=5)
    with pytest.raises(KafkaError) as caught:
        rig.end_transaction(coordinator_epoch=4)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
