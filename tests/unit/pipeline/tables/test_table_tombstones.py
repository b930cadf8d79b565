"""Files of tombstones are merged while batches read them: no deleted row returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kraft_pipeline.tables.bykey import tombstones
from kraft_pipeline.tables.bykey.changes import order_of
from kraft_pipeline.tables.bykey.ordering import Within
from kraft_pipeline.tables.bykey.tombstones import FOLDER, Tombstones
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.stores.committer import DELETED, Changes
from kraft_pipeline.tables.stores.opening import open_table
from kraft_pipeline.tables.stores.storage import File, Folder
from kraft_protocol.records.batch import build_batch
from tests.documents import table_document
from tests.feed import Feed

KEPT_S = 3600.0


def changes(second: int, *keys: int, deleted: bool, kind: pa.DataType = pa.int64()) -> Changes:  # noqa: B008
    """Changes of these keys at a time, at the offset of the same number."""
    count = len(keys)
    rows = pa.table(
        {
            "k": pa.array(keys, kind),
            "_topic": ["t"] * count,
            "_partition_id": pa.array([0] * count, pa.int32()),
            "_offset": pa.array([second] * count, pa.int64()),
            "_timestamp": pa.array([second * 10**6] * count, pa.timestamp("us", "UTC")),
            DELETED: [deleted] * count,
        }
    )
    return Changes(rows, ("k",), order_of(rows.schema))


def stays(found: Tombstones, *keys: int) -> list[int]:
    """The keys whose rows of second 50 are newer than all their tombstones."""
    fresh = found.fresh(changes(50, *keys, deleted=False))
    assert fresh.rows is not None
    return list(fresh.rows.column("k").to_pylist())


def files(path: Path) -> int:
    return len(list((path / FOLDER).iterdir()))


class Slow(Folder):
    """Reads the names of a folder, then calls `then`, and lists the files that are still there, as `Folder` does."""

    def __init__(self, root: Path, then: Callable[[], None]) -> None:
        super().__init__(root)
        self._then = then

    def list(self, path: str = "") -> Iterator[File]:
        before = [*super().list(path)]
        self._then()
        yield from (file for file in before if self.exists(file.path))


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tombstones, "MERGE_FROM", 3)


def test_a_batch_misses_no_tombstone_that_is_merged_meanwhile(tmp_path: Path) -> None:
    """It had listed the parts, which were gone when it came to them, so rows older than their tombstones came back."""
    found = Tombstones(Folder(tmp_path), KEPT_S)
    for key in range(3):
        found.remember(changes(100 + key, key, deleted=True))
    reader = Tombstones(Slow(tmp_path, found.care), KEPT_S)
    assert stays(reader, 0, 1, 2, 3) == [3]
    assert stays(found, 0, 1, 2, 3) == [3]


def test_parts_of_merged_files_are_removed_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Tombstones(Folder(tmp_path), KEPT_S)
    for key in range(3):
        found.remember(changes(100 + key, key, deleted=True))
    found.care()
    found.care()
    assert files(tmp_path) == 4, "the parts stay for a while, and are not merged again"
    monkeypatch.setattr(tombstones, "PARTS_S", -60.0)
    found.care()
    assert files(tmp_path) == 1
    for key in range(3, 6):
        found.remember(changes(100 + key, key, deleted=True))
    found.care()
    found.care()
    assert files(tmp_path) == 1
    assert stays(found, *range(7)) == [6]
    monkeypatch.setattr(tombstones, "_now_ms", lambda: 10**15)
    found.care()
    assert files(tmp_path) == 0


def test_tombstones_from_before_a_key_was_widened_are_merged(tmp_path: Path) -> None:
    """Iceberg widens an int to a long. Each pass of maintenance failed from then on."""
    found = Tombstones(Folder(tmp_path), KEPT_S)
    for key in range(4):
        found.remember(changes(100, key, deleted=True, kind=pa.int32() if key < 2 else pa.int64()))
    found.care()
    assert files(tmp_path) == 5
    assert stays(found, 0, 3, 4) == [4]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize(
    ("tombstone", "insert"),
    [((7, 60), (8, 0)), ((7, 0), (3, 60)), ((7, 0), (8, 0))],
    ids=["a clock that goes back", "a topic made anew", "one time"],
)
def test_a_row_after_its_tombstone_is_inserted(
    tmp_path: Path, kind: str, tombstone: tuple[int, int], insert: tuple[int, int]
) -> None:
    """It was left out for `tombstones` if the tombstone had a later time, or a greater offset of a former topic."""
    sections = {"value": {"format": "json", "schema": {"n": "long"}}, "engine": {"mode": "inline"}}
    by_key = {"path": str(tmp_path / "t"), "format": kind, "mode": "upsert", "key": ["_key"]}
    feed, now = Feed(table_spec.parse(table_document(**sections, table=by_key))), 1_700_000_000_000
    for value, (offset, second) in ((b'{"n": 1}', (0, 0)), (None, tombstone), (b'{"n": 2}', insert)):
        log = build_batch([(b"k", value)], base_offset=offset, timestamp=now + 1000 * second)
        log += build_batch([(b"old", b'{"n": 0}')], base_offset=offset + 1, timestamp=now - 1000)
        feed.put(offset, offset + 2, log)
    live = open_table(feed._given).live()
    found = [pq.read_table(tmp_path / "t" / file.path)["n"].to_pylist() for file in live]
    assert sorted(n for rows in found for n in rows) == [0, 2]


@pytest.mark.parametrize(("offset", "second", "rows"), [(7, 40, [1]), (7, 60, [1]), (3, 60, []), (3, 40, [])])
def test_a_replayed_row_is_compared_by_its_offset(tmp_path: Path, offset: int, second: int, rows: list[int]) -> None:
    found = Tombstones(Folder(tmp_path), KEPT_S)
    gone = changes(50, 1, deleted=True)
    assert gone.rows is not None and gone.order is not None
    at = gone.rows.schema.get_field_index("_offset")
    found.remember(replace(gone, rows=gone.rows.set_column(at, "_offset", pa.array([5], pa.int64()))))
    given = changes(second, 1, deleted=False)
    assert given.rows is not None
    letter = given.rows.set_column(at, "_offset", pa.array([offset], pa.int64()))
    fresh = found.fresh(Changes(letter, ("k",), gone.order._replace(within=Within.OFFSET)))
    assert fresh.rows is not None
    assert fresh.rows.column("k").to_pylist() == rows
