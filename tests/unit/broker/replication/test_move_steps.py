"""Steps of a replica's move between log directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_node.broker import log_dir_moves
from kraft_node.broker.log_dir_moves import READ_MAX, READ_MIN
from kraft_node.log.log import Log
from kraft_protocol.records.batch import build_batch
from tests.unit.broker.replication.test_log_dir_moves import alter, make, where


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
