"""DescribeLogDirs of logs of very many files that are not open: a lane measures them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey
from tests.unit.broker.lifecycle.rig import Rig
from tests.unit.broker.world import topic_records


def closed(path: Path) -> Rig:
    """A broker with one closed log. The loop must not list its files."""
    rig = Rig(path)
    rig.commit(topic_records("a", 1, 2))
    rig.produce("a", 1)
    log = rig.logs.get("a", 1)
    assert log is not None
    log.flush()
    log.close()
    rig.logs.forget_open(log)
    rig.logs.recovery.inline_names_bytes = -1
    return rig


def described(rig: Rig) -> dict[int, int]:
    assert rig.call(ApiKey.DESCRIBE_LOG_DIRS, 4, m.DescribeLogDirsRequest(topics=None)) is None, "a lane works"
    rig.loop.run()
    response: Any = rig.client.answers.pop()
    (result,) = response.results
    assert result.error_code == 0
    return {row.partition_index: row.partition_size for topic in result.topics for row in topic.partitions}


def test_a_lane_measures_logs_of_very_many_files(tmp_path: Path) -> None:
    rig = closed(tmp_path)
    size = (Path(rig.dirs[0]) / "a-1" / f"{0:020d}.log").stat().st_size
    assert described(rig) == {0: 0, 1: size}
    assert size > 0


def test_deleting_a_log_while_a_lane_measures_it_is_no_error(tmp_path: Path) -> None:
    rig = closed(tmp_path)
    disk = rig.broker.env.disk
    listed = disk.listdir

    def listdir(path: str) -> list[str]:
        raise FileNotFoundError(path)

    disk.listdir = listdir  # type: ignore[method-assign]
    assert described(rig) == {0: 0, 1: 0}
    disk.listdir = listed  # type: ignore[method-assign]
