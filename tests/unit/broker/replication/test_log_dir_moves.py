"""Replicas move between the log directories of a broker, amid other events."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kraft_node.broker import log_dir_moves
from kraft_node.log.log import Log
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import build_batch
from kraft_protocol.records.control import build_marker
from kraft_protocol.wire import messages as m
from kraft_protocol.wire import stored
from kraft_protocol.wire.api import ApiKey
from tests.unit.broker.lifecycle.rig import Rig, config
from tests.unit.broker.world import topic_id, topic_records

DELETE_DELAY_MS = 60_000


def alter(rig: Rig, path: str, topic: str = "t", *indexes: int) -> list[ErrorCode]:
    asked = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=list(indexes or (0,)))
    request = m.AlterReplicaLogDirsRequest(
        dirs=[m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[asked])]
    )
    (topic_row,) = rig.call(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, request).results
    return [ErrorCode(row.error_code) for row in topic_row.partitions]


def described(rig: Rig) -> dict[int, list[tuple[int, bool, int]]]:
    """By number of the directory: (partition, is future, lag)."""
    answer = rig.call(ApiKey.DESCRIBE_LOG_DIRS, 4, m.DescribeLogDirsRequest(topics=None))
    return {
        rig.dirs.index(row.log_dir): sorted(
            (p.partition_index, p.is_future_key, p.offset_lag) for topic in row.topics for p in topic.partitions
        )
        for row in answer.results
    }


def accept(rig: Rig, number: int, partitions: int = 1) -> None:
    """Commit that the replicas are in directory `number`."""
    rig.commit(
        [
            stored.PartitionChangeRecord(partition_id=index, topic_id=topic_id(1), directories=[topic_id(800 + number)])
            for index in range(partitions)
        ]
    )


def make(tmp_path: Path, partitions: int = 1, **how: Any) -> Rig:
    rig = Rig(tmp_path, dirs=2, **how)
    if how.get("image") is None:
        rig.commit(topic_records("t", 1, partitions))
    return rig


def where(rig: Rig, index: int = 0) -> int:
    return rig.dirs.index(rig.broker.replicas.hosted("t", index).log.dir.path)


def whole(log: Log) -> bytes:
    """All bytes from the log's start on."""
    data = b""
    offset = log.start_offset
    while offset < log.end_offset:
        found = log.read(offset, 1 << 20)
        piece = found.records if isinstance(found.records, bytes) else found.records.read()
        if not piece:
            break
        data += piece
        offset = _end_of(piece)
    return data


def aborted(log: Log) -> list[tuple[int, int]]:
    """The aborted transactions, without the start of a transaction that began before the log's start."""
    found = log.aborted_transactions(log.start_offset, log.end_offset)
    return [(producer, max(first, log.start_offset)) for producer, first in found]


def _end_of(piece: bytes) -> int:
    end = position = 0
    while position < len(piece):
        base = int.from_bytes(piece[position : position + 8], "big")
        end = base + int.from_bytes(piece[position + 23 : position + 27], "big") + 1
        position += int.from_bytes(piece[position + 8 : position + 12], "big") + 12
    return end


def test_a_log_moves_during_appends(tmp_path: Path) -> None:
    rig = make(tmp_path)
    for _ in range(5):
        assert rig.produce("t").error_code == 0
    origin = where(rig)
    target = 1 - origin
    assert alter(rig, rig.dirs[target]) == [ErrorCode.NONE]
    assert described(rig) == {origin: [(0, False, 0)], target: [(0, True, 5)]}
    rig.loop.run(10)
    assert described(rig) == {origin: [(0, False, 0)], target: [(0, True, 0)]}
    rig.produce("t")
    assert described(rig)[target] == [(0, True, 1)]
    rig.loop.run(500)
    assert where(rig) == origin, "moved before the controller knew"
    sent = [s.request for s in rig.controller.sent if isinstance(s.request, m.AssignReplicasToDirsRequest)]
    assert [d.id for d in sent[-1].directories] == [topic_id(800 + target)]
    accept(rig, target)
    rig.produce("t")
    rig.loop.run(500)
    assert where(rig) == target
    assert described(rig) == {origin: [], target: [(0, False, 0)]}
    assert rig.names(target) == ["t-0"]
    assert [name.endswith("-delete") for name in rig.names(origin)] == [True]
    assert rig.consume("t") == list(range(7))
    assert rig.produce("t").base_offset == 7
    rig.loop.run(DELETE_DELAY_MS)
    assert rig.names(origin) == []
    rig.stop()
    again = make(tmp_path, image=rig.image)
    assert again.consume("t") == list(range(8))


def test_a_move_continues_with_a_reopened_copy(tmp_path: Path) -> None:
    """Without a free descriptor a truncation of the copy was abandoned half-way; the move wrote to the closed copy."""
    rig = make(tmp_path)
    for _ in range(5):
        rig.produce("t")
    target = 1 - where(rig)
    alter(rig, rig.dirs[target])
    rig.loop.run(10)
    source = rig.broker.replicas.hosted("t", 0).log
    copy = source.twin
    assert copy is not None
    copy.dir.unsettled(copy)
    assert copy.closed
    source.twin = None  # as `trimming.with_twin` does
    source.truncate_to(3)
    rig.loop.run(100)
    accept(rig, target)
    rig.loop.run(500)
    assert where(rig) == target
    assert rig.consume("t") == list(range(3))
    assert rig.produce("t").base_offset == 3


def test_an_impossible_move_is_refused(tmp_path: Path) -> None:
    rig = make(tmp_path)
    rig.commit(topic_records("elsewhere", 2, leader=2, isr=(2,)) + topic_records("x" * 220, 3))
    origin = where(rig)
    target = rig.dirs[1 - origin]
    assert alter(rig, "/nowhere") == [ErrorCode.LOG_DIR_NOT_FOUND]
    assert alter(rig, target, "none") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert alter(rig, target, "t", 0, 7) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert alter(rig, target, "elsewhere") == [ErrorCode.REPLICA_NOT_AVAILABLE]
    assert alter(rig, target, "x" * 220) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    rig.broker.storage.cordon([target])
    assert alter(rig, target) == [ErrorCode.INVALID_REPLICA_ASSIGNMENT]
    rig.broker.storage.cordon([])
    rig.logs.directories[1 - origin].fail(OSError("gone"))
    assert alter(rig, target) == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_later_replica_is_created_in_the_requested_directory(tmp_path: Path) -> None:
    for number in (0, 1):
        rig = make(tmp_path / str(number))
        rig.commit(topic_records("elsewhere", 2, leader=2, isr=(2,)))
        assert alter(rig, rig.dirs[number], "elsewhere") == [ErrorCode.REPLICA_NOT_AVAILABLE]
        rig.commit([stored.PartitionChangeRecord(0, topic_id(2), replicas=[1], isr=[1], leader=1)])
        assert rig.produce("elsewhere").error_code == 0
        assert "elsewhere-0" in rig.names(number)
        rig.stop()


def test_requesting_the_present_directory_cancels_the_move(tmp_path: Path) -> None:
    rig = make(tmp_path)
    rig.produce("t")
    origin = where(rig)
    alter(rig, rig.dirs[1 - origin])
    rig.loop.run(1)
    assert alter(rig, rig.dirs[origin]) == [ErrorCode.NONE]
    rig.loop.run(200)
    assert described(rig) == {origin: [(0, False, 0)], 1 - origin: []}
    assert rig.broker.replicas.hosted("t", 0).log.twin is None
    rig.loop.run(DELETE_DELAY_MS)
    assert rig.names(1 - origin) == []
    # And once more: the first copy's checkpoints do not condemn the second copy.
    assert alter(rig, rig.dirs[1 - origin]) == [ErrorCode.NONE]
    accept(rig, 1 - origin)
    rig.loop.run(500)
    assert where(rig) == 1 - origin
    assert rig.consume("t") == [0]


def test_deleting_a_topic_deletes_the_copy(tmp_path: Path) -> None:
    rig = make(tmp_path)
    rig.run_up()
    rig.produce("t")
    origin = where(rig)
    alter(rig, rig.dirs[1 - origin])
    rig.loop.run(1)
    rig.commit([stored.RemoveTopicRecord(topic_id=topic_id(1))])
    rig.loop.run(DELETE_DELAY_MS + 200)
    assert rig.names(0) == rig.names(1) == []
    assert len(rig.broker.moves) == 0


def test_if_the_target_fails_the_log_stays_in_its_directory(tmp_path: Path) -> None:
    rig = make(tmp_path)
    rig.produce("t")
    origin = where(rig)
    alter(rig, rig.dirs[1 - origin])
    rig.loop.run(1)
    accept(rig, 1 - origin)
    rig.logs.directories[1 - origin].fail(OSError("gone"))
    assert rig.produce("t").error_code == 0
    rig.loop.run(300)
    assert where(rig) == origin
    assert len(rig.broker.moves) == 0
    assert rig.broker.replicas.hosted("t", 0).log.twin is None
    sent = [s.request for s in rig.controller.sent if isinstance(s.request, m.AssignReplicasToDirsRequest)]
    assert sent
    assert rig.broker.assignments.pending == {(topic_id(1), 0): topic_id(800 + origin)}
    assert rig.consume("t") == [0, 1]


@pytest.mark.parametrize("accepted", [False, True])
@pytest.mark.parametrize("clean", [False, True])
def test_a_move_continues_after_a_restart(tmp_path: Path, accepted: bool, clean: bool) -> None:
    rig = make(tmp_path)
    for _ in range(3):
        rig.produce("t")
    origin = where(rig)
    alter(rig, rig.dirs[1 - origin])
    rig.loop.run(1)
    rig.produce("t")
    if accepted:
        accept(rig, 1 - origin)
    rig.stop() if clean else rig.logs.release()
    again = make(tmp_path, image=rig.image)
    assert again.consume("t") == [0, 1, 2, 3]
    again.run_up()
    again.produce("t")
    accept(again, 1 - origin)
    again.loop.run(500)
    assert where(again) == 1 - origin
    assert again.consume("t") == list(range(5))


def test_a_start_opens_the_copies_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated clusters (seed 60004 of `whole` with rare paths): one event recovered all copies after a kill."""
    rig = make(tmp_path, partitions=20)
    for index in range(20):
        rig.produce("t", index)
    alter(rig, rig.dirs[0], "t", *range(20))
    rig.loop.run(1)
    rig.logs.release()
    again = make(tmp_path, image=rig.image)
    begun: list[int] = []
    resume = log_dir_moves.LogDirMoves.resume

    def counted(moves: log_dir_moves.LogDirMoves) -> None:
        before = len(moves)
        resume(moves)
        begun.append(len(moves) - before)

    monkeypatch.setattr(log_dir_moves.LogDirMoves, "resume", counted)
    again.run_up()
    assert begun
    assert max(begun) <= 1
    accept(again, 0, 20)
    again.loop.run(2000)
    assert [where(again, index) for index in range(20)] == [0] * 20
    assert [again.consume("t", index) for index in range(20)] == [[0]] * 20


def test_a_request_for_a_copy_that_a_start_has_not_reached_continues_its_move(tmp_path: Path) -> None:
    rig = make(tmp_path, partitions=3)
    origins = [where(rig, index) for index in range(3)]
    for index, origin in enumerate(origins):
        rig.produce("t", index)
        alter(rig, rig.dirs[1 - origin], "t", index)
    rig.logs.release()
    again = make(tmp_path, image=rig.image)
    for index, origin in enumerate(origins):
        assert alter(again, again.dirs[origin], "t", index) == [ErrorCode.NONE], "which ends the move"
    again.run_up()
    again.loop.run(2000)
    assert [where(again, index) for index in range(3)] == origins
    assert not (again.broker.moves or again.logs.futures.partitions())


@pytest.mark.parametrize("clean", [False, True])
def test_a_move_that_ends_at_a_start_is_reported_where_it_ended(tmp_path: Path, clean: bool) -> None:
    """The start noted the old directory. It was reported after the move, and stayed in the metadata."""
    rig = make(tmp_path)
    rig.produce("t")
    target = 1 - where(rig)
    alter(rig, rig.dirs[target])
    rig.loop.run(1)
    accept(rig, target)
    rig.stop() if clean else rig.logs.release()
    again = make(tmp_path, image=rig.image)
    again.run_up()
    again.loop.run(500)
    assert where(again) == target
    sent = [s.request for s in again.controller.sent if isinstance(s.request, m.AssignReplicasToDirsRequest)]
    assert [each.id for request in sent[-1:] for each in request.directories] in ([], [topic_id(800 + target)])


@pytest.mark.parametrize("known", [False, True])
def test_a_crash_between_the_two_renames_loses_nothing(
    tmp_path: Path, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds whether or not the start's image has the new directory already."""
    rig = make(tmp_path)
    accept(rig, origin := where(rig))
    for _ in range(3):
        rig.produce("t")
    alter(rig, rig.dirs[1 - origin])
    rig.loop.run(200)
    disk, rename = rig.logs.env.disk, type(rig.logs.env.disk).rename

    def dies(self: Any, source: str, target: str) -> None:
        if source.endswith("-future"):
            raise OSError("the machine has stopped")
        rename(self, source, target)

    with monkeypatch.context() as patch:
        patch.setattr(type(disk), "rename", dies)
        accept(rig, 1 - origin)
        rig.loop.run(200)
    assert [name.rpartition("-")[2] for name in rig.names(origin)] == ["delete"]
    assert [name.rpartition("-")[2] for name in rig.names(1 - origin)] == ["future"]
    rig.logs.release()
    if not known:
        accept(rig, origin)
    again = make(tmp_path, image=rig.image)
    assert again.consume("t") == [0, 1, 2]
    assert where(again) == 1 - origin
    again.run_up()
    assert again.produce("t").base_offset == 3


def test_a_partial_copy_does_not_replace_a_log_in_an_offline_directory(tmp_path: Path) -> None:
    rig = make(tmp_path)
    accept(rig, origin := where(rig))
    for _ in range(3):
        rig.produce("t")
    alter(rig, rig.dirs[1 - origin])
    rig.loop.run(1)
    rig.logs.release()
    disk = rig.logs.env.disk
    disk.rename(rig.dirs[origin], rig.dirs[origin] + ".away")
    again = make(tmp_path, image=rig.image)
    again.logs.directories[origin].fail(OSError("unreadable"))
    with pytest.raises(KafkaError, match="not online"):
        again.broker.replicas.hosted("t", 0)


def accepted_and_failed(rig: Rig) -> int:
    """A move that the controller has accepted; then the log's directory fails. Returns the number of that directory."""
    accept(rig, origin := where(rig))
    for _ in range(3):
        rig.produce("t")
    alter(rig, rig.dirs[1 - origin])
    rig.loop.run(1)
    accept(rig, 1 - origin)
    assert rig.produce("t").base_offset == 3
    rig.logs.directories[origin].fail(OSError("unreadable"))
    return origin


def test_an_accepted_copy_does_not_replace_a_log_in_an_offline_directory(tmp_path: Path) -> None:
    """Metadata named the new directory already, so the copy became the log without its last records."""
    rig = make(tmp_path)
    origin = accepted_and_failed(rig)
    rig.logs.release()
    disk, path = rig.logs.env.disk, rig.dirs[origin]
    disk.rename(path, path + ".away")
    again = make(tmp_path, image=rig.image)
    again.logs.directories[origin].fail(OSError("unreadable"))
    with pytest.raises(KafkaError, match="not complete"):
        again.broker.replicas.hosted("t", 0)
    again.logs.release()
    disk.rmtree(path)
    disk.rename(path + ".away", path)
    again = make(tmp_path, image=rig.image)
    assert again.consume("t") == [0, 1, 2, 3]


def test_the_failed_directory_of_a_moving_log_is_reported(tmp_path: Path) -> None:
    """The controller counted the replica to the new directory, and let this broker lead without the log."""
    rig = make(tmp_path)
    origin = accepted_and_failed(rig)
    rig.broker.directory_failed([("t", 0)])
    assert rig.broker.assignments.pending == {(topic_id(1), 0): topic_id(800 + origin)}


def test_moves_keep_to_their_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_moves, "READ_MAX", 200)
    rig = make(tmp_path)
    for _ in range(100):
        rig.produce("t")
    log = rig.broker.replicas.hosted("t", 0).log
    rate = log.size_bytes / 30
    rig.commit([config(4, "1", "replica.alter.log.dirs.io.max.bytes.per.second", str(int(rate)))])
    origin = where(rig)
    alter(rig, rig.dirs[1 - origin])
    rig.loop.run(10_000)
    (lag,) = [row[2] for row in described(rig)[1 - origin]]
    assert 40 < lag < 90
    rig.commit([config(4, "1", "replica.alter.log.dirs.io.max.bytes.per.second", None)])
    rig.loop.run(1000)
    assert described(rig)[1 - origin] == [(0, True, 0)]


def test_many_logs_move_at_the_same_time(tmp_path: Path) -> None:
    rig = make(tmp_path, partitions=40)
    for index in range(40):
        rig.produce("t", index)
        rig.produce("t", index)
    assert set(alter(rig, rig.dirs[0], "t", *range(40))) == {ErrorCode.NONE}
    accept(rig, 0, 40)
    rig.loop.run(2000)
    assert len(rig.names(0)) == 40
    assert all(name.endswith("-delete") for name in rig.names(1))
    assert [rig.consume("t", index) for index in range(40)] == [[0, 1]] * 40


def assert_equal(copy: Any, log: Any) -> None:
    """Offsets, leader epochs, records and aborted transactions are equal."""
    assert (copy.start_offset, copy.end_offset, copy.high_watermark) == (
        log.start_offset, log.end_offset, log.high_watermark,
    )  # fmt: skip
    assert copy.leader_epochs.entries() == log.leader_epochs.entries()
    assert copy.last_stable_offset == log.last_stable_offset
    assert whole(copy) == whole(log)
    assert aborted(copy) == aborted(log)


@pytest.mark.parametrize("seed", range(12))
def test_the_copy_equals_its_log_after_any_changes(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between any two steps: appends, transactions, new epochs, truncations, deleted beginnings and resets."""
    monkeypatch.setattr(log_dir_moves, "READ_MAX", 300)
    dice = random.Random(seed)
    rig = make(tmp_path)
    rig.commit([config(2, "t", "index.interval.bytes", "0")])
    partition = rig.broker.replicas.hosted("t", 0)
    log: Any = partition.log
    epoch = sequence = 0
    producer = 1

    def append() -> None:
        nonlocal sequence
        how: dict[str, Any] = {}
        if dice.random() < 0.3:
            how = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
        count = dice.randrange(1, 4)
        batch = build_batch([(b"k", bytes([dice.randrange(256)]) * 20)] * count, timestamp=1, **how)
        log.append_as_leader(batch, epoch, rig.loop.wall_ms(), internal=True)
        sequence += count if how else 0

    for _ in range(20):
        append()
    origin = where(rig)
    alter(rig, rig.dirs[1 - origin])
    for _ in range(150):
        rig.loop.run(dice.randrange(2))
        what = dice.random()
        if what < 0.6:
            append()
        elif what < 0.7:
            marker = build_marker(
                commit=dice.random() < 0.5, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=1
            )
            log.append_as_leader(marker, epoch, rig.loop.wall_ms(), internal=True)
        elif what < 0.8:
            log.high_watermark = max(log.high_watermark, dice.randrange(log.start_offset, log.end_offset + 1))
        elif what < 0.84:
            log.roll(log.end_offset)
        elif what < 0.87:
            epoch += 1
            log.leader_epochs.assign(epoch, log.end_offset)
        elif what < 0.92:
            log.truncate_to(dice.randrange(log.start_offset, log.end_offset + 1))
            producer, sequence = producer + 1, 0
        elif what < 0.97:
            log.delete_records(dice.randrange(log.start_offset, max(log.start_offset, log.high_watermark) + 1))
        else:
            log.reset_to(log.end_offset + dice.randrange(10))
            producer, sequence = producer + 1, 0
    log.high_watermark = log.end_offset
    accept(rig, 1 - origin)
    rig.loop.run(1000)
    assert partition.log is not log
    assert_equal(partition.log, log)
