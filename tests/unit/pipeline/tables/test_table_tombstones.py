"""Files of tombstones are merged while batches read them: no deleted row returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from kraft_pipeline.tables.bykey import tombstones
from kraft_pipeline.tables.bykey.changes import order_of
from kraft_pipeline.tables.bykey.tombstones import FOLDER, Tombstones
from kraft_pipeline.tables.stores.committer import DELETED, Changes
from kraft_pipeline.tables.stores.storage import File, Folder

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
