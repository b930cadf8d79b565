"""An archive as DataFrames of Spark equals what one process replays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraft_node.metadata.log_batches import snapshot_footer_batch, snapshot_header_batch
from kraft_pipeline.archive import frames
from kraft_pipeline.archive.errors import ArchiveError
from kraft_pipeline.archive.frames import MetadataFrames
from kraft_pipeline.archive.run import archive, archived, state_at
from kraft_pipeline.archive.spec import ArchiveSpec
from kraft_pipeline.archive.tables import state_tables
from kraft_pipeline.tables.specs.table_spec import SpecError
from tests.property.metadata.naive import Stories
from tests.spark import spark
from tests.unit.pipeline_archive.test_command import FIRST, NOW, SECOND, batch, log_folder

__all__ = ["spark"]
TABLES = ("partitions", "topics", "brokers", "configs", "features")
pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]


def history(folder: Path, kind: str, seed: int) -> ArchiveSpec:
    """An archive of four runs: random records, then a gap with a snapshot, then more records."""
    data, stories = folder / "data", Stories(seed)
    log = log_folder(data) / f"{0:020}.log"
    spec = ArchiveSpec(paths=(str(data),), format=kind, path=str(folder / "table"))
    log.write_bytes(b"")
    end = 0
    for count in (60, 20):
        with log.open("ab") as out:
            for record in stories.records(count):
                out.write(batch(end, record))
                end += 1
        archive(spec)
    log.unlink()
    end += 30
    late = NOW + 1000 * (end - 1)
    snapshot = log.parent / f"{end:020}-{3:010}.checkpoint"
    made = b"".join(batch(number, record) for number, record in enumerate(FIRST))
    snapshot.write_bytes(snapshot_header_batch(3, late, late) + made + snapshot_footer_batch(9, 3, late))
    (log.parent / f"{end:020}.log").write_bytes(batch(end, *SECOND))
    archive(spec)
    return spec


def rows_of(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


def read(frame: Any) -> list[str]:
    return rows_of([row.asDict(recursive=True) for row in frame.collect()])


@pytest.fixture
def zone(spark: Any) -> Iterator[None]:
    """A session whose time zone is not UTC."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("kind", ["parquet", pytest.param("delta", marks=pytest.mark.slow)])
def test_frames_equal_the_replay_of_one_process(
    spark: Any, zone: None, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "GROUP_ROWS", 40)
    monkeypatch.setattr(frames, "TASK_BYTES", 1)
    spec = history(tmp_path, kind, 7)
    found = MetadataFrames(spark, spec.path)
    changes = pa.Table.from_batches(list(archived(spec)))
    assert found.changes().count() == changes.num_rows
    some = found.changes(start=50, end=90).select("offset", "type", "topic_id", "isr", "fields")
    expected = changes.filter((pa.compute.field("offset") >= 50) & (pa.compute.field("offset") <= 90))
    assert read(some) == rows_of(expected.select(some.columns).to_pylist())
    assert found.changes().where("snapshot").agg({"timestamp": "max"}).first()[0] is not None
    for when in ({}, {"offset": 70}, {"time": NOW + 1000 * 45 + 3}):
        state = state_at(archived(spec), offset=when.get("offset"), time_ms=when.get("time"))
        then = found.at(**when)
        for name in TABLES if not when else TABLES[:1]:
            assert read(getattr(then, name)()) == rows_of(state_tables(state)[name].to_pylist()), (when, name)
        (row,) = then.cluster().selectExpr("offset", "epoch", "unix_millis(timestamp) AS at", "leader").collect()
        assert tuple(row) == (state.offset, state.epoch, state.timestamp_ms, state.small.leader)


def test_unknown_states_are_refused(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="is not an archive yet"):
        MetadataFrames(spark, str(tmp_path / "absent"))
    found = MetadataFrames(spark, history(tmp_path, "parquet", 3).path)
    for when in ({"offset": 85}, {"time": datetime.fromtimestamp((NOW + 90_000) / 1000, UTC)}):
        with pytest.raises(ArchiveError, match="the changes from offset 80 to 109 were trimmed"):
            found.at(**when)
    for when in ({"offset": -1}, {"time": "2001-01-01"}):
        with pytest.raises(ArchiveError, match="the archive begins later"):
            found.at(**when)
    with pytest.raises(SpecError, match="'soon' is neither ISO 8601"):
        found.at(time="soon")
    with pytest.raises(SpecError, match="not both"):
        found.at(time=1, offset=1)
