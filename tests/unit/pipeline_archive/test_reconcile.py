"""The end of a log may be archived before its commit: the archive drops records that were truncated since."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kraft_node.metadata.kinds import kind_of
from kraft_node.metadata.log_batches import data_batch, snapshot_footer_batch, snapshot_header_batch
from kraft_node.metadata.records import encode_record
from kraft_pipeline.archive import run as run_module
from kraft_pipeline.archive.errors import ArchiveError
from kraft_pipeline.archive.run import archive, archived, state_at
from kraft_pipeline.archive.spec import ArchiveSpec
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.specs.table_spec import EngineSpec
from tests.unit.pipeline_archive.test_command import FIRST, NOW, SECOND, batch, broker, log_folder, partition

KINDS = ["parquet", "delta"]


def of_epoch(offset: int, epoch: int, *records: Any) -> bytes:
    values = [encode_record(r, kind_of(r).version(30)) for r in records]
    return data_batch(values, offset, epoch, NOW + 1000 * offset)


class Case:
    """A log directory and its archive. The log starts with offsets 0 to 7 of epoch 3."""

    def __init__(self, folder: Path, kind: str = "parquet") -> None:
        self.log = log_folder(folder / "data") / f"{0:020}.log"
        self.spec = ArchiveSpec(paths=(str(folder / "data"),), format=kind, path=str(folder / "table"))

    def write(self, *batches: bytes) -> None:
        self.log.write_bytes(batch(0, *FIRST) + b"".join(batches))

    def rows(self) -> list[tuple[int, int]]:
        """Offsets and epochs, as the archive reads them, and as other readers of the folder do."""
        rows = pa.Table.from_batches(list(archived(self.spec))).to_pylist()
        return [(row["offset"], row["epoch"]) for row in rows]

    def partitions(self) -> dict[int, int]:
        """Leaders of the published state."""
        reported = json.loads((Path(self.spec.path) / "state.json").read_text())
        assert reported["published"]
        rows = ds.dataset(f"{self.spec.path}/{reported['tables']['partitions']}").to_table().to_pylist()
        return {row["partition"]: row["leader"] for row in rows}


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_end_leaves_the_archive(tmp_path: Path, kind: str) -> None:
    """Before, every later run failed, and the archive had to be recreated."""
    case = Case(tmp_path, kind)
    case.write(of_epoch(8, 3, broker(3)), of_epoch(9, 3, *SECOND))
    assert archive(case.spec).cut is None
    assert case.partitions() == {0: -1, 1: 1, 2: 2}
    case.write(of_epoch(8, 3, broker(3)), of_epoch(9, 4, partition(5, 1), partition(6, 1)), of_epoch(11, 5, broker(4)))
    done = archive(case.spec)
    assert (done.cut, done.rows, done.offset) == (9, 3, 11)
    assert case.rows() == [*((offset, 3) for offset in range(9)), (9, 4), (10, 4), (11, 5)]
    assert case.partitions() == {0: 1, 1: 1, 5: 1, 6: 1}
    assert (archive(case.spec).cut, archive(case.spec).rows) == (None, 0)
    state = state_at(archived(case.spec))
    assert sorted(state.small.brokers) == [1, 2, 3, 4]
    if kind == "parquet":  # a reader of the folder sees no repeated and no truncated record
        there = ds.dataset(tmp_path / "table" / "changes", exclude_invalid_files=True).to_table(["offset", "epoch"])
        assert sorted(zip(*there.to_pydict().values(), strict=True)) == case.rows()


def test_whole_files_of_several_runs_are_truncated(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.write()
    archive(case.spec)
    for number in range(3):
        case.write(*(of_epoch(8 + n, 4 + n, broker(3 + n)) for n in range(number + 1)))
        archive(case.spec)
    case.write(of_epoch(8, 7, partition(5, 1)))
    done = archive(case.spec)
    assert (done.cut, done.rows) == (8, 1)
    assert case.rows() == [*((offset, 3) for offset in range(8)), (8, 7)]


def test_tasks_continue_after_the_truncation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(tmp_path)
    case.write(of_epoch(8, 3, *SECOND))
    archive(case.spec)
    case.write(of_epoch(8, 4, partition(5, 1)))
    monkeypatch.setattr(run_module, "SPREAD_BYTES", 1)
    done = archive(case.spec, engine=InlineEngine)
    assert (done.cut, done.rows) == (8, 1)
    assert case.partitions() == {0: 1, 1: 1, 5: 1}


def test_executors_decode_files_of_any_size(tmp_path: Path) -> None:
    """The size counts only for Spark on this machine."""
    case, opened = Case(tmp_path), list[InlineEngine]()

    def engine() -> InlineEngine:
        opened.append(InlineEngine())
        return opened[-1]

    case.write(of_epoch(8, 3, *SECOND))
    assert archive(case.spec, engine=engine).rows == 10
    assert not opened
    case.write(of_epoch(8, 4, partition(5, 1)))
    done = archive(replace(case.spec, engine=EngineSpec("kubernetes")), engine=engine)
    assert (done.cut, done.rows, len(opened)) == (8, 1, 1)
    assert case.partitions() == {0: 1, 1: 1, 5: 1}


def test_a_log_that_ends_before_the_archive_is_refused(tmp_path: Path) -> None:
    """Its node may lag: missing records prove nothing about those in the archive."""
    case = Case(tmp_path)
    case.write(of_epoch(8, 3, *SECOND))
    archive(case.spec)
    case.write(of_epoch(8, 3, *SECOND[:1]))
    with pytest.raises(ArchiveError, match=r"the archive ends with record 9, the log with record 8: .* is behind"):
        archive(case.spec)
    case.write()
    with pytest.raises(ArchiveError, match=r"the archive ends with record 9, the log with record 7: .* is behind"):
        archive(case.spec)
    assert len(case.rows()) == 10


def test_the_log_of_a_former_leader_truncates_nothing(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.write(of_epoch(8, 5, *SECOND))
    archive(case.spec)
    case.write(of_epoch(8, 4, broker(3), broker(4), broker(5)))
    with pytest.raises(ArchiveError, match="record 8 of epoch 5, the log has record 8 of epoch 4, which is older"):
        archive(case.spec)
    assert case.rows()[8:] == [(8, 5), (9, 5)]


def test_a_log_without_a_cluster_id_truncates_nothing(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.write(of_epoch(8, 3, *SECOND))
    archive(case.spec)
    case.write(of_epoch(8, 4, *SECOND))
    (tmp_path / "data" / "meta.properties").unlink()
    with pytest.raises(ArchiveError, match=r"from offset 8 on. Without meta.properties beside the log"):
        archive(case.spec)
    assert case.rows()[8:] == [(8, 3), (9, 3)]


def test_an_unrelated_log_truncates_nothing(tmp_path: Path) -> None:
    case = Case(tmp_path)
    archive(case.spec)
    case.log.write_bytes(of_epoch(0, 9, *FIRST, *SECOND))
    with pytest.raises(ArchiveError, match="lacks the archive's records up to offset 7: it is another log"):
        archive(case.spec)
    assert len(case.rows()) == 8


def test_the_name_of_a_snapshot_shows_the_common_end(tmp_path: Path) -> None:
    """The log was trimmed up to a point within the archive."""
    case = Case(tmp_path)
    case.write(of_epoch(8, 3, *SECOND))
    archive(case.spec)
    shutil.move(case.log, case.log.with_name(f"{8:020}.log"))
    case.log = case.log.with_name(f"{8:020}.log")
    case.log.write_bytes(of_epoch(8, 4, partition(5, 1), partition(6, 1)))
    snapshot = case.log.with_name(f"{8:020}-{3:010}.checkpoint")
    snapshot.write_bytes(snapshot_header_batch(3, NOW, NOW) + batch(1, *FIRST) + snapshot_footer_batch(9, 3, NOW))
    done = archive(case.spec)
    assert (done.cut, done.rows, done.gaps) == (8, 2, [])
    assert case.partitions() == {0: 1, 1: 1, 5: 1, 6: 1}
