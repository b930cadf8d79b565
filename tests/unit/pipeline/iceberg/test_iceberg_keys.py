"""Rows by key in Iceberg tables: files that are read and replaced, and concurrent commits of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.bykey import merging
from kraft_pipeline.tables.bykey.merging import Merge
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.errors import ConflictError, FencedError
from kraft_pipeline.tables.iceberg import IcebergTable
from kraft_pipeline.tables.iceberg import table as iceberg
from kraft_pipeline.tables.specs import partitions
from kraft_pipeline.tables.stores import intents
from kraft_pipeline.tables.stores.committer import DELETED, Changes, State
from kraft_pipeline.tables.stores.datafiles import BOUND_LENGTH
from kraft_pipeline.tables.stores.storage import Folder
from tests.unit.pipeline.iceberg.test_iceberg import opened, position

SCHEMA = pa.schema([("k", pa.binary()), ("n", pa.int64())])
each = InlineEngine().map


def put(table: IcebergTable, batch: int, *keys: bytes, n: int = 0, gone: bool = False, each: Any = each) -> None:
    changes = SCHEMA.append(pa.field(DELETED, pa.bool_()))
    rows = pa.table({"k": keys, "n": [n] * len(keys), DELETED: [gone] * len(keys)}, changes)
    table.upsert(batch, position(batch), Changes(rows, ("k",)), after=batch - 1, each=each)


def created(path: Path) -> IcebergTable:
    table = opened(path)
    table.create(SCHEMA, [])
    return table


def keys(path: Path) -> list[tuple[bytes, int]]:
    found = StaticTable.from_metadata(str(path)).scan().to_arrow()
    return sorted(zip(found.column("k").to_pylist(), found.column("n").to_pylist(), strict=True))


class Asked:
    """An `each` that records the files that it was asked to check."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def __call__(self, call: Callable[[Any], Any], work: Sequence[Any]) -> list[Any]:
        self.paths = [file.path for file in work]
        return each(call, work)


def test_files_without_the_keys_are_neither_read_nor_replaced(tmp_path: Path) -> None:
    table, asked = created(tmp_path), Asked()
    put(table, 0, b"a", b"c")
    put(table, 1, b"m", b"o")
    first, second = (file.path for file in sorted(table.live(), key=lambda file: "b00000001" in file.path))
    put(table, 2, b"b", each=asked)  # within the bounds of the first file, but not in it
    assert asked.paths == [first]
    assert {first, second} < {file.path for file in table.live()}
    put(table, 3, b"o", n=3, each=asked)
    assert asked.paths == [second]
    assert second not in {file.path for file in table.live()}
    put(table, 4, b"m", b"o", b"zz", gone=True)
    assert keys(tmp_path) == [(b"a", 0), (b"b", 0), (b"c", 0)]
    long = b"y" * (BOUND_LENGTH + 1)
    put(table, 5, long)
    put(table, 6, b"z", each=asked)  # behind the bounds, which are shorter than the key
    assert not asked.paths
    put(table, 7, long + b"y", each=asked)
    assert len(asked.paths) == 1
    put(table, 8, b"\xff" * (BOUND_LENGTH + 1))  # has no shorter maximum: this file is checked each time
    put(table, 9, b"\xff" * (BOUND_LENGTH + 2), each=asked)
    assert len(asked.paths) == 1


def test_manifests_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(iceberg.PROPERTIES, "commit.manifest.min-count-to-merge", "4")
    table = created(tmp_path)
    for batch in range(30):
        put(table, batch, b"k%d" % (batch % 3), b"only%d" % batch, n=batch)
    last = table._table
    assert last is not None
    snapshot = last.metadata.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(last.io)) <= 6
    assert len(keys(tmp_path)) == 33


def test_files_are_split_in_the_order_of_their_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "FILE_BYTES", 400)
    table = created(tmp_path)
    some = [b"%03d" % (n * 7 % 100) for n in range(100)]
    put(table, 0, *some)
    parts = [pq.read_table(tmp_path / file.path).column("k").to_pylist() for file in table.live()]
    assert len(parts) > 3
    assert [key for part in sorted(parts) for key in part] == sorted(some)


def test_commits_of_others_repeat_or_refuse_the_batch(tmp_path: Path) -> None:
    """A compaction removed a file: the batch is repeated. Another batch in our place, or a new writer: refused."""
    table = created(tmp_path)
    put(table, 0, b"a", b"b")
    put(table, 1, b"c")

    def between(what: Callable[[], Any]) -> Callable[[Any, Any], Any]:
        once = [what]

        def run(call: Callable[[Any], Any], work: Sequence[Any]) -> list[Any]:
            found = each(call, work)
            while once:
                once.pop()()
            return found

        return run

    def compacted() -> None:
        other = opened(tmp_path)
        old = other.live()
        rows = pa.concat_tables([pq.read_table(tmp_path / file.path) for file in old])
        work = intents.Work(Folder(tmp_path), "app", 0, "compact-1")
        files = Merge.of(work, Changes(rows, ("k",)), pa.schema([]), whole=True).added(rows, [])
        other.replace([file.path for file in old], files)

    put(table, 2, b"a", n=2, each=between(compacted))
    assert keys(tmp_path) == [(b"a", 2), (b"b", 0), (b"c", 0)]
    with pytest.raises(ConflictError, match=r"batch 3 follows 2, but the last one of .* is 3"):
        put(table, 3, b"a", n=9, each=between(lambda: put(opened(tmp_path), 3, b"b", b"d", n=3)))
    assert keys(tmp_path) == [(b"a", 2), (b"b", 3), (b"c", 0), (b"d", 3)]

    with pytest.raises(FencedError, match=r"writer 1 has taken over, writer 0 commits nothing more"):
        put(table, 4, b"b", n=4, each=between(lambda: opened(tmp_path).claim(1)))
    assert table.state() == State(3, position(3), epoch=1)


def test_files_with_other_partitions_are_left_alone(tmp_path: Path) -> None:
    table = created(tmp_path)
    put(table, 0, b"a", n=1)
    put(table, 1, b"b", n=1)
    inner = table._table
    assert inner is not None
    with inner.update_spec() as update:
        update.add_identity("n")
    table = opened(tmp_path)
    table.create(SCHEMA, partitions.parse(["n"], SCHEMA))
    put(table, 2, b"c", b"d", n=2)
    assert sorted(file.whole for file in table.live()) == [False, False, True]
    assert list(maintenance._groups(table.live(), 1 << 30)) == []
    with pytest.raises(ConflictError, match="filed rows otherwise; they are its to merge"):
        table.replace([file.path for file in table.live() if not file.whole], [])
    with pytest.raises(ValueError, match="filed rows otherwise; rows by key cannot be kept in it"):
        put(table, 3, b"a")
    put(table, 3, b"c", n=1)
    assert keys(tmp_path) == [(b"a", 1), (b"b", 1), (b"c", 1), (b"d", 2)]
