"""A manager's timers: retention, producer expiry, cleaning, flushes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kraft_node.base.config import NodeConfig
from kraft_node.base.config.dynamic import BrokerConfig
from kraft_node.log.compaction.key_map import KEY_BYTES
from kraft_node.log.config import make_config
from kraft_node.log.manager.housekeeping import Housekeeping
from kraft_node.log.manager.log_manager import LogManager
from kraft_node.log.manager.timing import Timing
from tests.unit.log.node import COMBINED, ID, Node
from tests.unit.log.world import NOW, batch, values


def test_retention_reaches_unopened_logs() -> None:
    node = Node()
    config = make_config({"internal.segment.bytes": "400", "retention.ms": "3600000"})
    manager = node.start(lambda _: config)
    for partition in range(3):
        log = manager.create("t", partition, ID)
        for _ in range(20):
            log.append_as_leader(batch(b"x"), 0, NOW)
        log.high_watermark = 20
    node.stop()
    manager = node.start(lambda _: config)
    node.rest(3_000_000)
    assert list(manager.open_logs()) == []
    node.rest(1_500_000)
    for partition in range(3):
        found = manager.get("t", partition)
        assert found is not None
        assert (found.start_offset, found.end_offset) == (20, 20)


def test_expired_segments_are_dropped_a_few_at_a_time() -> None:
    """Sixteen went at once, without a pause: requests waited for their renames."""
    node = Node()
    config = make_config({"internal.segment.bytes": "80", "retention.ms": "3600000"})
    log = node.start(lambda _: config).create("t", 0, ID)
    for _ in range(200):
        log.append_as_leader(batch(b"x"), 0, NOW)
    log.high_watermark = 200
    moments: Counter[float] = Counter()
    do = node.disk.about_to

    def about_to(what: str, path: str) -> None:
        moments[node.world.now_ms] += what == "rename" and ".log" in path
        do(what, path)

    node.disk.about_to = about_to  # type: ignore[method-assign]
    node.rest(4_500_000)
    assert (log.start_offset, len(log.segments)) == (200, 1)
    assert sum(moments.values()) == 200
    assert max(moments.values()) <= 2


def test_producers_of_old_records_expire_a_period_after_the_log_opens() -> None:
    """The first walk after the start forgot them, half a minute later; Kafka checks each log every ten minutes."""
    node = Node()
    manager = node.start()
    old = batch(b"x", timestamp=1_000, producer_id=1, producer_epoch=0, base_sequence=0)
    first = manager.create("t", 0, ID)
    first.append_as_leader(old, 0, NOW)
    node.rest(300_000)
    second = manager.create("t", 1, ID)
    second.append_as_leader(old, 0, NOW)
    node.rest(295_000)
    assert first.producers.get(1) is not None
    node.rest(10_000)
    assert first.producers.get(1) is None
    assert second.producers.get(1) is not None
    node.rest(600_000)
    assert second.producers.get(1) is None


def test_producers_expire_by_age_but_never_within_a_transaction() -> None:
    node = Node()
    timing = Timing()
    timing.producer_check_ms = 1_000
    log = node.start(timing=timing).create("t", 0, ID)
    log.append_as_leader(
        batch(b"x", timestamp=1_000, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True), 0, NOW
    )
    log.append_as_leader(batch(b"x", producer_id=2, producer_epoch=0, base_sequence=0), 0, NOW)
    node.rest(5_000)
    assert [producer.producer_id for producer in log.producers.active()] == [1, 2]
    config = BrokerConfig(NodeConfig.parse(COMBINED))
    config.update({}, {"producer.id.expiration.ms": "6000"})
    node.manager.reconfigure(config)
    node.rest(5_000)
    assert [producer.producer_id for producer in log.producers.active()] == [1]


@pytest.mark.parametrize("period_ms", [0, -1])
def test_periods_of_zero_do_not_occupy_the_loop(monkeypatch: pytest.MonkeyPatch, period_ms: int) -> None:
    """Checkpoints were written in each turn of the loop. In Kafka's scheduler, a task without a period runs once."""
    timing = Timing()
    timing.checkpoint_ms = timing.high_watermark_checkpoint_ms = timing.initial_delay_ms = period_ms
    timing.cleaner_backoff_ms = 0
    calls: Counter[str] = Counter()

    def counted(name: str, most: int) -> Callable[[Any], None]:
        def work(_: Any) -> None:
            calls[name] += 1
            assert calls[name] <= most, name

        return work

    monkeypatch.setattr(LogManager, "checkpoint_all", counted("checkpoints", 2))
    monkeypatch.setattr(Housekeeping, "_clean", counted("cleaner", 100))
    node = Node()
    node.start(None, timing)
    node.rest(90)
    assert calls["checkpoints"] == 2
    assert calls["cleaner"] >= 80, "a compaction may follow another without a pause"


def test_the_cleaner_adapts_to_its_configuration_at_once() -> None:
    node = Node()
    timing = Timing()
    timing.cleaner_backoff_ms = 86_400_000
    compacted = make_config({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.ms": "1"})
    log = node.start(lambda _: compacted, timing).create("t", 0, ID)
    for number in range(5):
        log.append_as_leader(batch(b"%d" % number, timestamp=NOW + number * 10), 0, NOW)
        log.high_watermark = log.end_offset
    node.rest(60_000)
    assert len(values(log)) == 5
    config = BrokerConfig(NodeConfig.parse(COMBINED))
    config.update({}, {"log.cleaner.backoff.ms": "100"})
    node.manager.reconfigure(config)
    node.rest(5_000)
    assert len(values(log)) < 5


def test_the_cleaner_adapts_to_its_buffer_size() -> None:
    node = Node()
    compacted = make_config({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.ms": "1"})
    log = node.start(lambda _: compacted, Timing()).create("t", 0, ID)
    for number in range(5):
        log.append_as_leader(batch(b"%d" % number, timestamp=NOW + number * 10), 0, NOW)
        log.high_watermark = log.end_offset
    config = BrokerConfig(NodeConfig.parse(COMBINED))
    config.update({}, {"log.cleaner.dedupe.buffer.size": str(2 << 20)})
    node.manager.reconfigure(config)
    node.rest(60_000)
    assert node.manager.housekeeping.cleaner.keys_max == int((2 << 20) * 0.9) // KEY_BYTES


def test_the_cleaner_adapts_to_rate_load_factor_and_threads() -> None:
    node = Node()
    compacted = make_config({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": "1048576"})
    manager = node.start(lambda _: compacted, Timing())
    logs = [manager.create("t", number, ID) for number in range(3)]
    config = BrokerConfig(NodeConfig.parse(COMBINED))
    limits = {
        "log.cleaner.threads": "2",
        "log.cleaner.io.max.bytes.per.second": "20000",
        "log.cleaner.io.buffer.load.factor": "0.5",
    }
    config.update({}, limits)
    manager.reconfigure(config)
    for log in logs:
        for _ in range(40):
            log.append_as_leader(batch(b"v" * 10_000), 0, NOW)
        log.roll(log.end_offset)
        log.high_watermark = log.end_offset
    node.rest(15_500)
    cleaner = manager.housekeeping.cleaner
    assert sorted(cleaner.running.values()) == [0, 1], "two of three logs at a time, each in its lane"
    assert cleaner.keys_max == (128 << 20) // 2 // 2 // KEY_BYTES
    begun = manager.env.clock.monotonic_ms()
    while not cleaner.figures.passes:
        node.rest(500)
    took_ms = manager.env.clock.monotonic_ms() - begun
    assert took_ms >= 400_000 / 10_000 * 1000 * 0.9, "each of two passes has half of the rate"
    config.update({}, {"log.cleaner.threads": "2"})
    manager.reconfigure(config)
    node.rest(60_000)
    assert all(log.size_bytes < 20_000 for log in logs)


def test_flush_ms_moves_the_recovery_point() -> None:
    node = Node()
    config = make_config({"flush.ms": "2000"})
    log = node.start(lambda _: config).create("t", 0, ID)
    log.append_as_leader(batch(b"x"), 0, NOW)
    node.rest(5000)
    assert log.recovery_point == 1
