"""The cost of a start and a stop with many logs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kraft_node.log.checkpoints import meta_properties
from kraft_node.log.checkpoints.meta_properties import MetaProperties
from kraft_node.log.config import make_config
from kraft_node.log.manager import closing
from kraft_node.log.manager.closing import SYNC_WHOLE_MIN
from kraft_node.log.manager.log_manager import LogManager
from kraft_node.testing.disk import SimDisk
from tests.unit.log.node import CLUSTER, ID, Node
from tests.unit.log.world import NOW, batch, values


def _counted(calls: list[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        calls.append(name)
        return function(*args, **options)

    return call


def test_a_clean_start_costs_no_disk_call_for_each_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 partitions on the real file system: as many disk calls as with one, and no object for any."""
    from kraft_node.runtime.env import RealEnv

    real = RealEnv()
    try:
        path = str(tmp_path)
        meta_properties.write(real.env.disk, path, MetaProperties(1, CLUSTER, 1, ID))
        for number in range(10_000):
            (tmp_path / f"topic-{number % 100}-{number // 100}").mkdir()
        (tmp_path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
        manager = LogManager(real.env, [path], node_id=1)
        calls: list[str] = []
        for name in ("open", "exists", "is_dir", "size", "mtime_ms", "listdir"):
            monkeypatch.setattr(real.env.disk, name, _counted(calls, name, getattr(real.env.disk, name)), raising=True)
        manager.start()
        assert len(manager) == 10_000
        assert list(manager.open_logs()) == []
        assert len(calls) < 20, calls
        manager.release()
    finally:
        real.close()


def many_logs(node: Node) -> None:
    manager = node.start()
    for partition in range(SYNC_WHOLE_MIN + 5):
        log = manager.create("t", partition, ID)
        log.append_as_leader(batch(b"x", producer_id=1, producer_epoch=0, base_sequence=0), 0, NOW)
        log.high_watermark = 1


def test_a_stop_makes_no_files_on_the_loop() -> None:
    """Each file costs a millisecond on a busy disk: with 10,000 logs a controller in the same process would stall."""
    node = Node()
    manager = node.start()
    log = manager.create("t", 0, ID)
    log.append_as_leader(batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0), 0, NOW)
    before = node.disk.listdir(log.path)
    manager.shutdown(lambda: None)
    assert node.disk.listdir(log.path) == before
    node.rest()
    made = set(node.disk.listdir(log.path)) - set(before)
    assert made == {f"{0:020d}.index", f"{0:020d}.timeindex", f"{1:020d}.snapshot", "leader-epoch-checkpoint"}
    manager.release()
    node.host.end_life()


def test_a_stop_with_many_new_logs_syncs_the_file_system_once() -> None:
    """It made four fsyncs for each log: 10,000 new partitions delayed a stop by seconds, on a busy disk by minutes."""
    node = Node()
    many_logs(node)
    node.rest(1000)
    seen: list[str] = []
    node.disk.fail = lambda operation, path: seen.append(f"{operation} {path}")
    node.stop()
    node.disk.fail = None
    assert seen.count("syncfs /d1") == 1
    assert len([one for one in seen if one.startswith("fsync")]) < 20
    node.disk.lose_power()
    manager = node.start()
    assert not manager.directories[0].unrecovered
    for partition in range(SYNC_WHOLE_MIN + 5):
        log = manager.get("t", partition)
        assert log is not None
        assert values(log) == [b"x"]
        assert log.producers.get(1) is not None


def test_a_failed_sync_of_the_file_system_leaves_no_clean_mark() -> None:
    node = Node()
    many_logs(node)
    node.disk.fail = lambda operation, path: OSError(5, "I/O error", path) if operation == "syncfs" else None
    node.stop()
    assert [path for path, _, _ in node.failures] == ["/d1"]
    node.disk.fail = None
    assert not node.disk.exists("/d1/.kafka_cleanshutdown")


def test_without_a_file_system_sync_each_file_is_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimDisk, "file_system", lambda _disk, _path: None)
    node = Node()
    many_logs(node)
    node.stop()
    node.disk.lose_power()
    manager = node.start()
    assert not manager.directories[0].unrecovered
    for partition in range(SYNC_WHOLE_MIN + 5):
        log = manager.get("t", partition)
        assert log is not None
        assert values(log) == [b"x"]


@pytest.mark.parametrize("seed", range(10))
def test_indexes_survive_a_clean_stop_and_a_power_loss(seed: int) -> None:
    """The clean mark was durable, the time index was not: a look-up by time missed the oldest records."""
    node = Node(seed=seed)
    config = make_config({"index.interval.bytes": "0"})
    manager = node.start(lambda _: config)
    manager.directories[0].pending_index_bytes = 0
    log = manager.create("t", 0, ID)
    for late_ms in (30, 0, 0):
        log.append_as_leader(batch(b"x", timestamp=NOW + late_ms), 0, NOW)
    log.flush()
    node.stop()
    node.disk.lose_power()
    again = node.start(lambda _: config).get("t", 0)
    assert again is not None
    assert again.offset_for_timestamp(NOW + 1) == (NOW + 30, 0)


def test_a_clean_stop_yields_the_loop_between_logs() -> None:
    """A stop gathered the offsets of all logs at once: 100,000 logs stalled a controller for seconds."""
    node = Node()
    manager = node.start()
    for partition in range(40 * closing.CLOSE_STEP):
        manager.create("t", partition, ID)
    logs = list(manager.open_logs())
    closed = [0]

    def look() -> None:
        closed.append(sum(log.closed for log in logs))
        if closed[-1] < len(logs) and len(closed) < 1000:
            manager.env.scheduler.call_soon(look)

    look()
    node.stop()
    assert closed[-1] == len(logs)
    assert max(after - before for before, after in pairwise(closed)) <= 16 * closing.CLOSE_STEP
    manager = node.start()
    assert len(manager) == len(logs)
    assert not manager.directories[0].unrecovered


def test_a_log_opened_during_a_stop_is_closed_as_well() -> None:
    node = Node()
    manager = node.start()
    for partition in range(40 * closing.CLOSE_STEP):
        manager.create("t", partition, ID)
    done: list[int] = []
    manager.shutdown(lambda: done.append(1))
    manager.create("t", 100_000, ID).append_as_leader(batch(b"x"), 0, NOW)
    node.world.rest(10_000)
    assert done == [1]
    manager.release()
    node.host.end_life()
    node.disk.lose_power()
    again = node.start().get("t", 100_000)
    assert again is not None
    assert values(again) == [b"x"]
