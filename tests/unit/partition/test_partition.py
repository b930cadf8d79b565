"""One replica over a real log: how far readers may read, offsets for timestamps, epochs, deleted records."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kraft_node.log.config import make_config
from kraft_node.log.log_dir import LogDir
from kraft_node.log.producers.verification import VERIFIED
from kraft_node.log.recovery.opening import open_log
from kraft_node.log.segments.files import FileCache
from kraft_node.metadata.partitions import PartitionState
from kraft_node.partition.isolation import READ_COMMITTED, READ_LOG_END, READ_UNCOMMITTED
from kraft_node.partition.listed_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    offset_for,
)
from kraft_node.partition.partition import Partition, ReplicaEpochEnd
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import NewRecord, build_batch
from kraft_protocol.records.control import build_marker
from tests.batches import iter_all_records
from tests.unit.broker.world import Loop, make_env, topic_id

NOW_MS = 1_700_000_000_000


def state(leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = (1,)) -> PartitionState:
    return PartitionState(isr if leader in isr else (leader, *isr), isr, leader, epoch, 0)


class Rig:
    def __init__(self, path: Path, isr: tuple[int, ...] = (1,), **overrides: str) -> None:
        env = make_env(Loop())
        (path / "t-0").mkdir(exist_ok=True)
        self.directory = LogDir(env, str(path), FileCache(env.disk))
        config = make_config({name.replace("_", "."): value for name, value in overrides.items()})
        self.log = open_log(self.directory, str(path / "t-0"), "t", 0, config)
        self.partition = Partition(1, "t", topic_id(1), 0, self.log)  # type: ignore[arg-type]
        self.partition.follow(state(isr=isr))

    def append(self, *timestamps: int, **fields: Any) -> Any:
        batch = build_batch([NewRecord(b"k", b"v", timestamp) for timestamp in timestamps], **fields)
        return self.partition.append(batch, -1, NOW_MS, guard=VERIFIED)

    def read(self, offset: int, isolation: int = READ_UNCOMMITTED) -> list[int]:
        found = self.partition.read(offset, 1 << 20, isolation, min_one=True).records
        data = found if isinstance(found, bytes) else found.read()
        return [record.offset for record in iter_all_records(data)]


def test_an_append_to_a_sole_replica_is_replicated_and_readable_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    info = rig.append(NOW_MS, NOW_MS)
    assert (info.base_offset, info.last_offset) == (0, 1)
    assert rig.partition.is_replicated(2)
    assert rig.log.high_watermark == 2
    assert rig.read(0) == [0, 1]


def test_followers_limit_the_high_watermark(tmp_path: Path) -> None:
    rig = Rig(tmp_path, isr=(1, 2, 3))
    rig.append(NOW_MS)
    rig.append(NOW_MS)
    assert (rig.read(0), rig.read(0, READ_LOG_END)) == ([], [0, 1])
    rig.partition.follower_fetched(2, -1, 2, 0)
    assert rig.log.high_watermark == 0
    rig.partition.follower_fetched(3, -1, 1, 0)
    assert rig.log.high_watermark == 1
    rig.partition.follow(state(isr=(1, 2)))
    assert rig.log.high_watermark == 2


def test_the_high_watermark_never_decreases(tmp_path: Path) -> None:
    rig = Rig(tmp_path, isr=(1, 2))
    rig.append(NOW_MS)
    rig.partition.follower_fetched(2, -1, 1, 0)
    rig.partition.follow(state(isr=(1, 2, 3)))
    assert rig.log.high_watermark == 1


def test_an_open_transaction_limits_the_last_stable_offset(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.append(NOW_MS)
    rig.append(NOW_MS, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    rig.append(NOW_MS)
    assert rig.read(0) == [0, 1, 2]
    assert rig.read(0, READ_COMMITTED) == [0]
    assert offset_for(rig.partition, LATEST, READ_COMMITTED).offset == 1
    assert offset_for(rig.partition, LATEST, READ_UNCOMMITTED).offset == 3
    marker = build_marker(commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=1, timestamp=NOW_MS)
    rig.partition.append(marker, -1, NOW_MS, internal=True)
    assert rig.read(0, READ_COMMITTED) == [0, 1, 2]  # the client filters aborted records
    assert rig.log.aborted_transactions(0, 4) == [(7, 1)]


def test_offsets_are_found_by_timestamp(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for timestamp in (NOW_MS - 30, NOW_MS - 10, NOW_MS - 20):
        rig.append(timestamp)
    find = partial(offset_for, rig.partition)
    assert find(NOW_MS - 100, READ_UNCOMMITTED) == (NOW_MS - 30, 0, 0)
    assert find(NOW_MS - 25, READ_UNCOMMITTED) == (NOW_MS - 10, 1, 0)
    assert find(NOW_MS, READ_UNCOMMITTED) == (-1, -1, -1)
    assert find(MAX_TIMESTAMP, READ_UNCOMMITTED) == (NOW_MS - 10, 1, 0)
    assert find(LATEST, READ_UNCOMMITTED) == (-1, 3, 0)
    assert find(EARLIEST, READ_UNCOMMITTED) == find(EARLIEST_LOCAL, READ_UNCOMMITTED) == (-1, 0, 0)
    assert find(LATEST_TIERED, READ_UNCOMMITTED) == (-1, -1, -1)


def test_an_empty_log_has_ends_but_no_largest_timestamp(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    find = partial(offset_for, rig.partition)
    assert find(LATEST, READ_UNCOMMITTED) == (-1, 0, 0)
    assert find(EARLIEST, READ_UNCOMMITTED).offset == 0
    assert find(MAX_TIMESTAMP, READ_UNCOMMITTED) == (-1, -1, -1)
    assert find(5, READ_UNCOMMITTED) == (-1, -1, -1)


def test_a_new_leader_refuses_offsets_that_it_does_not_know_yet(tmp_path: Path) -> None:
    rig = Rig(tmp_path, isr=(1, 2))
    rig.append(NOW_MS)
    rig.partition.follow(state(epoch=3, isr=(1, 2)))
    for timestamp in (LATEST, NOW_MS):
        with pytest.raises(KafkaError) as error:
            offset_for(rig.partition, timestamp, READ_UNCOMMITTED)
        assert error.value.code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert offset_for(rig.partition, LATEST, READ_LOG_END).offset == 1
    assert offset_for(rig.partition, EARLIEST, READ_UNCOMMITTED).offset == 0
    rig.partition.follower_fetched(2, -1, 1, 0)
    assert offset_for(rig.partition, LATEST, READ_UNCOMMITTED).offset == 1


def test_ends_of_epochs_are_found(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.append(NOW_MS, NOW_MS)
    rig.partition.follow(state(epoch=4))
    rig.append(NOW_MS)
    assert rig.partition.epoch_end(0) == ReplicaEpochEnd(0, 2)
    assert rig.partition.epoch_end(3) == ReplicaEpochEnd(0, 2)
    assert rig.partition.epoch_end(4) == ReplicaEpochEnd(4, 3)
    assert rig.partition.epoch_end(5) == ReplicaEpochEnd(-1, -1)
    assert rig.partition.diverging(2, 0) is None
    assert rig.partition.diverging(3, 0) == ReplicaEpochEnd(0, 2)
    assert rig.partition.diverging(3, 2) == ReplicaEpochEnd(0, 2)
    with pytest.raises(KafkaError) as error:
        rig.partition.diverging(3, 9)
    assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_deleted_records_raise_the_log_start(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    for _ in range(3):
        rig.append(NOW_MS)
    assert rig.partition.delete_records(2) == 2
    assert rig.partition.delete_records(1) == 2
    assert offset_for(rig.partition, EARLIEST, READ_UNCOMMITTED).offset == 2
    for offset in (4, -2):
        with pytest.raises(KafkaError) as error:
            rig.partition.delete_records(offset)
        assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert rig.partition.delete_records(-1) == 3
    with pytest.raises(KafkaError) as error:
        rig.read(1)
    assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_compacted_topic_keeps_its_records(tmp_path: Path) -> None:
    rig = Rig(tmp_path, cleanup_policy="compact")
    rig.append(NOW_MS)
    with pytest.raises(KafkaError) as error:
        rig.partition.delete_records(-1)
    assert error.value.code == ErrorCode.POLICY_VIOLATION


def test_a_follower_serves_no_clients(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.partition.follow(state(leader=2, isr=(2, 1)))
    for attempt in (lambda: rig.append(NOW_MS), rig.partition.check_leader, lambda: rig.partition.delete_records(-1)):
        with pytest.raises(KafkaError) as error:
            attempt()
        assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
