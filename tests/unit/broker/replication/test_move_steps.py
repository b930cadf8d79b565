"""Steps of a replica's move between log directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_node.broker import log_dir_moves
from kraft_node.broker.log_dir_moves import READ_MAX, READ_MIN
from kraft_node.log.log import Log
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch
from tests.unit.broker.replication.test_log_dir_moves import accept, alter, make, where


def test_steps_of_a_copy_read_little_while_batches_are_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step takes a bounded number of batches, so what it has read beyond them is read again by the next one."""
    rig = make(tmp_path)
    log = rig.broker.replicas.hosted("t", 0).log
    for size in [10] * 1000 + [50_000] * 40:
        log.append_as_leader(build_batch([(b"k", bytes(size))], timestamp=1), 0, rig.loop.wall_ms())
    read: list[int] = []
    copy_some = log_dir_moves.copy_some

    def copy_and_note(source: Log, copy: Log, read_bytes: int) -> int:
        read.append(read_bytes)
        return copy_some(source, copy, read_bytes)

    monkeypatch.setattr(log_dir_moves, "copy_some", copy_and_note)
    alter(rig, rig.dirs[1 - where(rig)])
    rig.loop.run(1000)
    assert read[:4] == [READ_MAX, READ_MIN, READ_MIN, READ_MIN]
    assert max(read[4:]) == READ_MAX


def test_a_move_continues_when_its_log_is_opened_anew(tmp_path: Path) -> None:
    """Without a free descriptor a change of the log is abandoned half-way, and the log is opened anew. Its move ended
    then: the copy stayed, unfinished, and kept the log from being compacted until the next start."""
    rig = make(tmp_path)
    rig.logs.on_withdrawn = rig.broker.replica_withdrawn
    for _ in range(5):
        rig.produce("t")
    target = 1 - where(rig)
    alter(rig, rig.dirs[target])
    rig.loop.run(10)
    source = rig.broker.replicas.hosted("t", 0).log
    assert source.twin is not None
    source.dir.unsettled(source)
    assert source.closed
    rig.loop.run(100)
    accept(rig, target)
    rig.loop.run(500)
    assert where(rig) == target
    assert not (rig.broker.moves or rig.logs.futures.partitions())
    assert rig.consume("t") == list(range(5))
    assert rig.produce("t").base_offset == 5


def test_a_refused_batch_is_awaited_after_a_move(tmp_path: Path) -> None:
    """The first batch of a producer was refused while its log was recovered. After a move the producer's second batch
    was appended first, and the first batch, sent again, was out of order forever."""
    rig = make(tmp_path)
    rig.produce("t")
    rig.broker.replicas.hosted("t", 0).log.producers.awaited = {7: (0, 0)}  # as the lane that recovers a log does
    target = 1 - where(rig)
    alter(rig, rig.dirs[target])
    accept(rig, target)
    rig.loop.run(500)
    assert where(rig) == target

    def produce(sequence: int) -> ErrorCode:
        row = rig.produce("t", producer_id=7, producer_epoch=0, base_sequence=sequence)
        return ErrorCode(row.error_code)

    assert produce(1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [produce(0), produce(1)] == [ErrorCode.NONE] * 2
