"""What `migrate revert` reads of a controller's metadata log."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_node.cli.common import ToolError
from kraft_node.cli.migration_survey import _unwritten
from kraft_node.testing.machine import DIR
from tests.kip.cluster import Cluster


def _log(tmp_path: Path, more: bytes = b"") -> Path:
    cluster = Cluster(1, 1)
    cluster.create("foo", [1], retention_ms="1000")
    disk = cluster["c1"].disk
    for name in disk.listdir(f"{DIR}/__cluster_metadata-0"):
        if name.endswith(".log"):
            path = f"{DIR}/__cluster_metadata-0/{name}"
            (tmp_path / name).write_bytes(bytes(disk.open(path).pread(0, disk.size(path))) + more)
    return tmp_path


def test_the_log_of_a_killed_controller_is_read_up_to_its_torn_end(tmp_path: Path) -> None:
    """It could not be read, so the migration could not be reverted without its records."""
    whole = _unwritten(str(_log(tmp_path)), 0)
    assert any("TopicRecord" in each for each in whole[0])
    torn = tmp_path / "torn"
    torn.mkdir()
    assert _unwritten(str(_log(torn, bytes(8) + (100).to_bytes(4, "big") + b"torn")), 0) == whole


def test_a_log_that_begins_too_late_is_refused(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000009.log").write_bytes(b"")
    with pytest.raises(ToolError, match="records are unknown"):
        _unwritten(str(tmp_path), 3)
