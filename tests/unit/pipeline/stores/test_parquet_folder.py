"""Engines read all files in the folder of a Parquet table: each row is there once, also after replacements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.replay import Replayed, replay
from kraft_pipeline.tables.runner import Runner
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.stores.parquet import ParquetTable
from tests.documents import table_document
from tests.feed import Feed


def given(path: Path, **value: Any) -> table_spec.TableSpec:
    value = {"format": "json", "schema": {"n": "long"}, **value}
    sections = {"engine": {"mode": "inline"}, "value": value, "table": {"path": str(path), "format": "parquet"}}
    return table_spec.parse(table_document(**sections))


def column(path: str, name: str) -> list[int]:
    """The values of a column, as an engine reads them."""
    return [row[0] for row in duckdb.read_parquet(f"{path}/*.parquet").order(name).project(name).fetchall()]


def merge(table: table_spec.TableSpec, *, beside: bool) -> None:
    maintenance.care(table, InlineEngine()) if beside else maintenance.compact(table)


@pytest.mark.parametrize("beside", [False, True])
def test_merged_rows_are_there_once(tmp_path: Path, beside: bool) -> None:
    """Replaced files stayed for `vacuumAfter`, seven days, so engines read each merged row twice."""
    table = given(tmp_path / "t")
    feed = Feed(table)
    for n in range(3):
        feed.values(b'{"n": %d}' % n)
    merge(table, beside=beside)
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 1
    assert column(table.path, "n") == [0, 1, 2]


@pytest.mark.parametrize("next_step", ["maintenance", "start"])
@pytest.mark.parametrize("beside", [False, True])
def test_replaced_files_of_a_killed_writer_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool, next_step: str
) -> None:
    table = given(tmp_path / "t")
    feed = Feed(table)
    for n in range(3):
        feed.values(b'{"n": %d}' % n)

    def killed(_: ParquetTable) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ParquetTable, "_remove_replaced", killed)
        with pytest.raises(KeyboardInterrupt):
            merge(table, beside=beside)
    if next_step == "start":
        Runner(table, InlineEngine()).begin()
    else:
        maintenance.care(table, InlineEngine())
    assert column(table.path, "n") == [0, 1, 2]


def test_dead_letters_are_there_once_after_a_replay(tmp_path: Path) -> None:
    table = given(tmp_path / "t")
    Feed(table).values(b'{"n": 0}', b'{"n": 1, "more": 1}', b"dead")
    assert column(table.dead_letter_path, '"offset"') == [1, 2]
    assert replay(given(tmp_path / "t", evolve="additive")) == Replayed(1, 1)
    assert column(table.dead_letter_path, '"offset"') == [2]
