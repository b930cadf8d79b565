"""A partition's idempotent producers survive every way to close and open the log."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kraft_node.log.config import LogConfig, make_config
from kraft_node.log.manager.log_manager import LogManager
from kraft_node.log.producers import recall
from kraft_node.log.results import AppendInfo
from kraft_node.log.segments.scan import batches
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import Uuid
from tests.unit.log.node import Node
from tests.unit.log.world import NOW, batch, refused

EVERY_APPEND: Mapping[str, str] = {"flush.messages": "1"}


def config(overrides: Mapping[str, str]) -> LogConfig:
    return make_config(overrides)


def write(manager: LogManager, sequence: int) -> bool:
    """Write the batch; returns whether it counts as a duplicate."""
    log = manager.get("t", 0) or manager.create("t", 0, Uuid(bytes(16)))
    raw = batch(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=sequence)
    return log.append_as_leader(raw, 0, NOW).is_duplicate


def test_a_clean_stop_of_a_flushed_log_keeps_its_producers() -> None:
    node = Node()
    manager = node.start(lambda _: config(EVERY_APPEND))
    assert not write(manager, 0)
    assert not write(manager, 2)
    node.stop()
    assert write(node.start(lambda _: config(EVERY_APPEND)), 2)


def test_recovery_in_the_background_keeps_producers() -> None:
    for overrides in ({}, EVERY_APPEND):
        node = Node()
        manager = node.start(lambda _, o=overrides: config(o))  # type: ignore[misc]
        assert not write(manager, 0)
        node.kill()
        manager = node.start()
        node.rest()
        assert not list(manager.open_logs()), "the walk closes what nobody has asked for"
        assert write(manager, 0)


def test_logs_closed_by_the_recovery_are_durable_after_a_clean_stop() -> None:
    node = Node()
    assert not write(node.start(), 0)
    node.kill()
    node.start()
    node.rest()
    node.stop()
    node.disk.lose_power()
    assert write(node.start(), 0)


def test_a_stop_during_recovery_keeps_producers() -> None:
    node = Node()
    assert not write(node.start(), 0)
    node.kill()
    node.start()
    node.stop()
    node.disk.lose_power()
    assert write(node.start(), 0)


def produce(manager: LogManager, producer_id: int, sequence: int) -> AppendInfo:
    log = manager.get("t", 0) or manager.create("t", 0, Uuid(bytes(16)))
    raw = batch(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return log.append_as_leader(raw, 0, NOW)


def written(segment_bytes: int = 1 << 30) -> Node:
    """A node after a clean stop, with 20 batches each of the producers 7 and 8, which take turns."""
    node = Node()
    manager = node.start(lambda _: config({"internal.segment.bytes": str(segment_bytes)}))
    for sequence in range(20):
        for producer_id in (7, 8):
            assert not produce(manager, producer_id, sequence).is_duplicate
    node.stop()
    return node


@pytest.mark.parametrize("segment_bytes", [1 << 30, 200])
def test_a_batch_before_the_last_is_known_after_a_clean_stop(segment_bytes: int) -> None:
    """A snapshot has the last batch of each producer. librdkafka sent two again after all brokers had been restarted
    at the same time, and ended at OUT_OF_ORDER_SEQUENCE_NUMBER for the first (an hour of chaos, seed 41)."""
    manager = written(segment_bytes).start()
    for sequence in (17, 15, 18, 16, 19):
        again = produce(manager, 7, sequence)
        assert (again.is_duplicate, again.base_offset, again.last_offset) == (True, 2 * sequence, 2 * sequence)
    assert produce(manager, 8, 18).base_offset == 37
    assert not produce(manager, 7, 20).is_duplicate


def test_a_batch_before_the_last_five_is_out_of_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a log that stayed open. The log is searched once for each producer, however often it repeats."""
    node = written()
    manager = node.start()
    searched: list[int] = []
    monkeypatch.setattr(recall, "batches", lambda *what: searched.append(what[1]) or batches(*what))
    for sequence in (14, 0, 14, 25):
        with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            produce(manager, 7, sequence)
    assert len(searched) == 1
    with refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        produce(manager, 8, 21)
    assert len(searched) == 1, "this batch is not one that was sent before"


def test_batches_of_another_epoch_are_not_taken_for_repeated_ones() -> None:
    node = written()
    manager = node.start()
    log = manager.get("t", 0)
    assert log is not None
    for sequence in (0, 1, 2):
        log.append_as_leader(batch(b"b", producer_id=7, producer_epoch=1, base_sequence=sequence), 0, NOW)
    node.stop()
    log = node.start().get("t", 0)
    assert log is not None
    again = log.append_as_leader(batch(b"b", producer_id=7, producer_epoch=1, base_sequence=0), 0, NOW)
    assert (again.is_duplicate, again.base_offset) == (True, 40)
