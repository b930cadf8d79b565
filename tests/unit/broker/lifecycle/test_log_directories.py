"""A broker and its log directories: reports, cordoned, dead and replaced ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from kraft_protocol.wire import stored
from kraft_protocol.wire.api import ApiKey
from tests.unit.broker.lifecycle.rig import Rig, config
from tests.unit.broker.world import (
    topic_id,
    topic_records,
)


def test_with_several_directories_the_directory_of_a_new_log_is_reported(tmp_path: Path) -> None:
    rig = Rig(tmp_path, dirs=2)
    rig.run_up()
    rig.commit(topic_records("a", 1, 4))
    for index in range(4):
        rig.produce("a", index)
    assert sorted(len(rig.names(number)) for number in (0, 1)) == [2, 2]
    rig.loop.run(100)
    request = rig.controller.take(m.AssignReplicasToDirsRequest).request
    reported = {
        (directory.id, partition.partition_index)
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    }
    assert reported == {
        (topic_id(800 + number), int(name.rpartition("-")[2])) for number in (0, 1) for name in rig.names(number)
    }


def test_log_directories_are_described(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.commit(topic_records("a", 1, 2))
    rig.produce("a", 1)
    everything = rig.call(ApiKey.DESCRIBE_LOG_DIRS, 4, m.DescribeLogDirsRequest(topics=None)).results[0]
    assert (everything.error_code, everything.log_dir) == (0, rig.dirs[0])
    assert everything.total_bytes >= everything.usable_bytes > 0
    sizes = {p.partition_index: p.partition_size for t in everything.topics for p in t.partitions}
    assert sizes[0] == 0
    assert sizes[1] == (Path(rig.dirs[0]) / "a-1" / f"{0:020d}.log").stat().st_size > 0
    asked = m.DescribeLogDirsRequest.DescribableLogDirTopic(topic="a", partitions=[1])
    some = rig.call(ApiKey.DESCRIBE_LOG_DIRS, 4, m.DescribeLogDirsRequest(topics=[asked])).results[0]
    assert [(t.name, [p.partition_index for p in t.partitions]) for t in some.topics] == [("a", [1])]


def test_cordoned_directories_are_reported_and_get_no_new_logs(tmp_path: Path) -> None:
    first, second = (str(tmp_path / name) for name in ("d0", "d1"))
    rig = Rig(tmp_path, dirs=2, **{"cordoned.log.dirs": first})
    rig.commit([stored.FeatureLevelRecord(name="metadata.version", feature_level=30), *topic_records("a", 1, 6)])
    rig.run_up()
    for index in range(2):
        assert rig.produce("a", index).error_code == 0
    assert [len(rig.names(number)) for number in (0, 1)] == [0, 2]
    assert _cordoned(rig, 5) == {first: True, second: False}
    assert _cordoned(rig, 4) == {first: False, second: False}

    rig.commit([config(4, "1", "cordoned.log.dirs", second)])
    assert _heartbeat(rig).cordoned_log_dirs == [topic_id(801)]
    for index in (2, 3):
        assert rig.produce("a", index).error_code == 0
    assert [len(rig.names(number)) for number in (0, 1)] == [2, 2]
    assert rig.consume("a", 0) == [0]  # existing records are served as before

    rig.commit([config(4, "1", "cordoned.log.dirs", "*")])
    assert sorted(_heartbeat(rig).cordoned_log_dirs) == [topic_id(800), topic_id(801)]
    assert rig.produce("a", 4).error_code == 0  # the replica needs some directory

    rig.commit([config(4, "1", "cordoned.log.dirs", "")])
    assert _heartbeat(rig).cordoned_log_dirs == []


def test_an_older_metadata_version_is_sent_no_cordoned_directories(tmp_path: Path) -> None:
    rig = Rig(tmp_path, **{"cordoned.log.dirs": "*"})
    rig.commit([stored.FeatureLevelRecord(name="metadata.version", feature_level=29)])
    rig.run_up()
    rig.loop.run(2000)
    assert _heartbeat(rig).cordoned_log_dirs is None
    assert _cordoned(rig, 5) == {rig.dirs[0]: False}


def _cordoned(rig: Rig, version: int) -> dict[str, bool]:
    rows = rig.call(ApiKey.DESCRIBE_LOG_DIRS, version, m.DescribeLogDirsRequest(topics=None)).results
    return {row.log_dir: row.is_cordoned for row in rows}


def _heartbeat(rig: Rig) -> Any:
    sent = rig.controller.take(m.BrokerHeartbeatRequest)
    sent.answer(m.BrokerHeartbeatResponse(is_fenced=False))
    return sent.request


def test_a_dead_directory_answers_storage_errors_and_is_reported(tmp_path: Path) -> None:
    rig = Rig(tmp_path, dirs=2)
    rig.run_up()
    rig.commit(topic_records("a", 1, 2))
    rig.produce("a", 0)
    rig.produce("a", 1)
    rig.logs.on_failure = lambda _path, partitions, _error: rig.broker.directory_failed(partitions)
    directory = rig.logs.directory_of("a", 0)
    assert directory is not None
    directory.fail(OSError("gone"))
    codes = [rig.produce("a", index).error_code for index in (0, 1)]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, 0]  # never an empty log in place of the lost one
    rig.loop.run()
    beats = [sent for sent in rig.controller.sent if isinstance(sent.request, m.BrokerHeartbeatRequest)]
    assert beats[0].request.offline_log_dirs == [directory.id]


def test_no_empty_log_replaces_one_in_a_missing_directory(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    records = topic_records("a", 1)
    records[1].directories = [topic_id(999)]
    rig.commit(records)
    assert rig.produce("a").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert rig.names() == []


def _rig_on_a_replaced_disk(tmp_path: Path, isr: tuple[int, ...]) -> Rig:
    """Broker 1 replicates from 2; the metadata places its log in a directory that it does not have."""
    rig = Rig(tmp_path)
    rig.run_up()
    records = topic_records("a", 1, leader=2, isr=(1, 2))
    records[1].directories = [topic_id(999), topic_id(998)]
    records[1].isr = list(isr)
    rig.commit(records)
    rig.loop.run(1_000)
    return rig


def test_a_replaced_disk_gets_its_replicas_and_reports_them(tmp_path: Path) -> None:
    rig = _rig_on_a_replaced_disk(tmp_path, isr=(2,))
    assert rig.names() == ["a-0"]
    sent = rig.controller.take(m.AssignReplicasToDirsRequest).request
    assert [directory.id for directory in sent.directories] == [topic_id(800)]


def test_a_replaced_disk_gets_no_replica_in_the_isr(tmp_path: Path) -> None:
    rig = _rig_on_a_replaced_disk(tmp_path, isr=(1, 2))
    assert rig.names() == []
