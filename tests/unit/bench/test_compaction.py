"""The measurement of the cleaner on one core (`bench.measurements.compaction`)."""

from __future__ import annotations

from pathlib import Path

from bench.measurements import compaction


def test_a_measured_log_is_filled_and_compacted(tmp_path: Path) -> None:
    log = compaction.make_log(tmp_path)
    compaction.fill(log, compaction.SHAPES[0]._replace(keys=10), 1 << 20)
    before = log.size_bytes
    figures = compaction.compact(log)
    assert log.size_bytes < before / 100
    assert 0 < figures.noting + figures.copying <= figures.seconds * 1.001
