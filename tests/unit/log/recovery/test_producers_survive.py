"""A partition's idempotent producers survive every way to close and open the log."""

from __future__ import annotations

from collections.abc import Mapping

from kraft_node.log.config import LogConfig, make_config
from kraft_node.log.manager.log_manager import LogManager
from kraft_protocol.ids import Uuid
from tests.unit.log.node import Node
from tests.unit.log.world import NOW, batch

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
