"""Maintenance: dead letters of a table with keys, and ages without end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.stores.opening import open_table
from tests.feed import Feed
from tests.unit.pipeline.tables.test_table_changes import parsed


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("beside", [False, True])
def test_dead_letters_of_a_table_with_keys_are_merged(tmp_path: Path, kind: str, beside: bool) -> None:
    """Their files lack the columns of the key: from the second file on, each pass of maintenance failed."""
    given = parsed(
        {"format": "json"}, path=str(tmp_path / "t"), format=kind, mode="upsert", key=["id"], tombstones="0s"
    )
    feed = Feed(given)
    for number in range(3):
        feed.values(b'{"id": %d}' % number, b"no JSON")
    letters = open_table(given, dead_letters=True)
    assert len(letters.live()) == 3
    if beside:
        assert "dead letters: 3 files merged into 1" in maintenance.care(given, InlineEngine())
    else:
        assert maintenance.compact(given, dead_letters=True) == (3, 1)
    (file,) = open_table(given, dead_letters=True).live()
    assert file.rows == 3


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_files_may_stay_longer_than_any_engine_can_count(tmp_path: Path, kind: str) -> None:
    """delta-rs panicked, which ended the thread of maintenance without a word."""
    given = parsed({"format": "json"}, path=str(tmp_path / "t"), format=kind)
    given = replace(given, vacuum_after_s=86_400 * 1e15)
    feed = Feed(given)
    for number in range(2):
        feed.values(b'{"id": %d}' % number)
    assert "2 files merged into 1" in maintenance.care(given, InlineEngine())
