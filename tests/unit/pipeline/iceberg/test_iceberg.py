"""Iceberg tables without a cluster: commits, conflicts, new columns, partitions, expiry; PyIceberg reads them."""

from __future__ import annotations

import datetime
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.snapshots import Operation

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables import schemas
from kraft_pipeline.tables.errors import ConflictError
from kraft_pipeline.tables.iceberg import IcebergTable
from kraft_pipeline.tables.iceberg import table as iceberg
from kraft_pipeline.tables.iceberg.commits import tag
from kraft_pipeline.tables.iceberg.path import PathCatalog
from kraft_pipeline.tables.specs import partitions
from kraft_pipeline.tables.specs.table_spec import SpecError
from kraft_pipeline.tables.stores import intents
from kraft_pipeline.tables.stores.committer import Added, State
from kraft_pipeline.tables.stores.datafiles import encoded
from kraft_pipeline.tables.stores.storage import Folder

UTC_US = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("n", pa.int64()), ("c", pa.string()), ("_timestamp", UTC_US), ("_headers", pa.list_(pa.string()))])


def opened(path: Path, app: str = "a", **catalog: str) -> IcebergTable:
    return IcebergTable(Folder(path), app, catalog)


def position(offset: int) -> Position:
    return Position({("t", 0): offset}, "c", {"t": "00"})


def put(path: Path, rows: pa.Table, by: tuple[str, ...] = ()) -> list[Added]:
    """Write files as tasks do."""
    files = []
    for values, part in partitions.split(rows, partitions.parse(by, rows.schema), whole=True):
        made = encoded(part)
        name = f"{partitions.folder(values)}/f{len(list(path.rglob('*.parquet')))}.parquet".lstrip("/")
        Folder(path).write(name, made.data)
        files.append(made.at(name, values))
    return files


def table(*ns: int, **columns: Any) -> pa.Table:
    when = [datetime.datetime(2024, 1, 31, 23, tzinfo=datetime.UTC) + datetime.timedelta(hours=n) for n in ns]
    given = {"n": ns, "c": [f"c{n % 2}" for n in ns], "_timestamp": when, "_headers": [["h"]] * len(ns)}
    rows = pa.table(given, schema=SCHEMA)
    for name, values in columns.items():
        rows = rows.append_column(name, values)
    return rows


def read(path: Path) -> Table:
    return StaticTable.from_metadata(str(path))


def test_each_batch_is_a_snapshot(tmp_path: Path) -> None:
    one, other = opened(tmp_path), opened(tmp_path)
    assert one.schema() is None
    assert one.state() == State()
    assert one.files() == set()
    one.create(SCHEMA, [])
    assert one.state() == State()
    one.commit(0, position(5), put(tmp_path, table(0, 1, 2)), after=-1)
    one.commit(1, position(7), [], after=0)
    assert other.state() == State(1, position(7))
    with pytest.raises(ConflictError, match=r"batch 1 follows 0, but the last one of .* is 1"):
        other.commit(1, position(9), put(tmp_path, table(9)), after=0)
    # Another application's batches are its own.
    opened(tmp_path, "b").commit(0, position(1), put(tmp_path, table(3)), after=-1)
    assert (one.state().batch, opened(tmp_path, "b").state().batch) == (1, 0)
    one.commit(2, position(8), put(tmp_path, table(4)), after=1)
    found = read(tmp_path)
    assert sorted(found.scan().to_arrow().column("n").to_pylist()) == [0, 1, 2, 3, 4]
    assert found.scan(row_filter="n > 3").to_arrow().to_pylist() == table(4).to_pylist()
    last = found.current_snapshot()
    assert last is not None
    assert last.summary is not None
    reported = {k: v for k, v in last.summary.additional_properties.items() if k.startswith("kraft")}
    where = reported.pop("kraft.position-at")
    assert reported == {"kraft.app": "a", "kraft.batch": "2"}
    assert (tmp_path / where).read_text() == '{"t": {"0": 8}, "@ids": {"cluster": "c", "topics": {"t": "00"}}}'
    schema = one.schema()
    assert schema is not None
    assert schema.equals(SCHEMA)


def test_new_columns_are_added_to_an_iceberg_table(tmp_path: Path) -> None:
    one = opened(tmp_path)
    one.create(SCHEMA, [])
    one.commit(0, position(1), put(tmp_path, table(0)), after=-1)
    deep = pa.array([{"x": 1, "y": "z"}])
    wider = table(1, deep=deep)
    one.create(wider.schema, [])
    one.commit(1, position(2), put(tmp_path, wider), after=0)
    one.create(SCHEMA, [])  # by a writer with an older schema
    rows = sorted(read(tmp_path).scan().to_arrow().to_pylist(), key=lambda row: row["n"])
    assert [row["deep"] for row in rows] == [None, {"x": 1, "y": "z"}]
    deeper = table(2, deep=pa.array([{"x": 1, "y": "z", "w": [1.5]}]))
    opened(tmp_path).create(deeper.schema, [])
    opened(tmp_path).commit(2, position(3), put(tmp_path, deeper), after=1)
    rows = sorted(read(tmp_path).scan().to_arrow().to_pylist(), key=lambda row: row["n"])
    assert [row["deep"] and row["deep"]["w"] for row in rows] == [None, None, [1.5]]


BY = ("date", "hour(_timestamp)", "month", "year", "c", "n")


def test_partitions_use_transforms(tmp_path: Path) -> None:
    one = opened(tmp_path)
    levels = partitions.parse(BY, SCHEMA)
    one.create(SCHEMA, levels)
    schema = one.schema()
    assert schema is not None
    assert schema.names == SCHEMA.names
    files = put(tmp_path, table(0, 1, 2), BY)
    one.commit(0, position(3), files, after=-1)
    assert {f.path: (f.values, f.rows, f.size) for f in one.live()} == {
        f.path: (f.values, f.rows, f.size) for f in files
    }
    found = read(tmp_path)
    assert found.spec().fields[0].name == "_date"
    planned = list(found.scan(row_filter="_timestamp >= '2024-02-01T00:00:00+00:00'").plan_files())
    assert len(planned) == 2
    assert [task.file.partition[0] for task in planned] == [datetime.date(2024, 2, 1).toordinal() - 719163] * 2
    assert [task.file.partition[3] for task in planned] == [54] * 2
    assert len(list(found.scan(row_filter="c = 'c1'").plan_files())) == 1
    assert sorted(found.scan().to_arrow().to_pylist(), key=str) == sorted(table(0, 1, 2).to_pylist(), key=str)
    with pytest.raises(ValueError, match=r"is partitioned by .*, not by"):
        opened(tmp_path).create(SCHEMA, [])
    assert opened(tmp_path / "none").live() == []


def test_a_lost_commit_is_checked_and_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another application's commit came between, the commit is repeated; one of the same is refused. No row is
    repeated.
    """
    one, files = opened(tmp_path), put(tmp_path, table(0))
    one.create(SCHEMA, [])
    inner, others = Folder.create, [("b", 0, -1), ("a", 0, -1)]

    def overtaken(self: Folder, path: str, data: bytes) -> bool:
        if len(others) == 2 and self is not theirs:
            app, batch, after = others.pop(0)
            IcebergTable(theirs, app, {}).commit(batch, position(1), put(tmp_path, table(5)), after=after)
        return inner(self, path, data)

    theirs = Folder(tmp_path)
    monkeypatch.setattr(Folder, "create", overtaken)
    one.commit(0, position(1), files, after=-1)
    assert sorted(read(tmp_path).scan().to_arrow().column("n").to_pylist()) == [0, 5]
    others[:] = [("a", 1, 0), ("", 0, 0)]
    with pytest.raises(ConflictError, match=r"batch 1 follows 0, but the last one of .* is 1"):
        one.commit(1, position(2), put(tmp_path, table(1)), after=0)
    assert sorted(read(tmp_path).scan().to_arrow().column("n").to_pylist()) == [0, 5, 5]


def test_files_are_replaced_and_snapshots_expire(tmp_path: Path) -> None:
    one = opened(tmp_path)
    one.create(SCHEMA, [])
    for batch in range(4):
        one.commit(batch, position(batch), put(tmp_path, table(batch)), after=batch - 1)
    old = sorted(file.path for file in one.live())
    one.replace(old, put(tmp_path, table(0, 1, 2, 3)))
    with pytest.raises(ConflictError, match=r"f0.parquet is no longer a file of"):
        one.replace(old[:1], [])
    assert len(one.live()) == 1
    assert len(one.files()) == 5
    assert one.state() == State(3, position(3))
    assert one.vacuum(3600) == 0
    assert one.vacuum(0) == 4
    assert len(one.files()) == 1
    assert len(read(tmp_path).metadata.snapshots) == 1
    assert read(tmp_path).scan().to_arrow().num_rows == 4
    assert opened(tmp_path).state() == State(3, position(3))
    assert opened(tmp_path, "other").state() == State()
    there = {path.name for path in (tmp_path / "metadata").glob("*.avro")}
    assert len(there) == 3  # the list, the manifest with the file, and the manifest of removed files
    # Names identify what interrupted commits left.
    work = one._work("b00000004")
    named, foreign = str(tag(work)), str(tag(opened(tmp_path, "other")._work("b00000004")))
    draft = tmp_path / "metadata" / ".v9.metadata.json.00"
    for name in (f"{named}-m0.avro", f"snap-1-0-{named}.avro", draft.name, f"{foreign}-m0.avro"):
        (tmp_path / "metadata" / name).touch()
    os.utime(draft, (0, 0))
    assert one.sweep() == 0
    work.intend(())
    assert opened(tmp_path, "other").sweep() == 0
    assert one.sweep() == 3
    assert list(intents.unsettled(Folder(tmp_path), "app")) == []
    assert {path.name for path in (tmp_path / "metadata").glob("*.avro")} == there | {f"{foreign}-m0.avro"}
    assert read(tmp_path).scan().to_arrow().num_rows == 4


def test_a_table_rolled_back_continues_from_there(tmp_path: Path) -> None:
    one = opened(tmp_path)
    one.create(SCHEMA, [])
    for batch in range(3):
        one.commit(batch, position(batch), put(tmp_path, table(batch)), after=batch - 1)
    table_of = one._table
    assert table_of is not None
    first = table_of.metadata.snapshots[0].snapshot_id
    table_of.manage_snapshots().set_current_snapshot(first).commit()
    assert opened(tmp_path).state() == State(0, position(0))


def test_the_newest_version_is_found_with_any_hint(tmp_path: Path) -> None:
    one, hint = opened(tmp_path), tmp_path / "metadata" / "version-hint.text"
    one.create(SCHEMA, [])
    one.commit(0, position(1), put(tmp_path, table(0)), after=-1)
    one.commit(1, position(2), put(tmp_path, table(1)), after=0)
    for text in ("1", "", "99", "no number"):
        hint.write_text(text)
        assert opened(tmp_path).state().batch == 1
    hint.unlink()
    assert opened(tmp_path).state().batch == 1


def test_a_stale_writer_finds_the_newest_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The versions that it knows, and the later ones, have been removed since: no version is written twice."""
    monkeypatch.setitem(iceberg.PROPERTIES, "write.metadata.previous-versions-max", "1")
    one = opened(tmp_path)
    one.create(SCHEMA, [])
    idle, other = opened(tmp_path), opened(tmp_path, "b")
    for batch in range(4):
        other.commit(batch, position(1), put(tmp_path, table(batch)), after=batch - 1)
    assert {path.name for path in (tmp_path / "metadata").glob("v*.json")} == {"v4.metadata.json", "v5.metadata.json"}
    idle.commit(0, position(9), put(tmp_path, table(9)), after=-1)
    assert sorted(read(tmp_path).scan().to_arrow().column("n").to_pylist()) == [0, 1, 2, 3, 9]
    for path in (tmp_path / "metadata").glob("v*.json"):
        path.unlink()
    assert idle.state() == State()
    assert idle.schema() is None


def test_a_writer_that_was_stopped_in_a_commit_writes_no_version_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version had been removed as old, so its late commit took the number again, and readers went back to it."""
    monkeypatch.setitem(iceberg.PROPERTIES, "write.metadata.previous-versions-max", "1")
    one = opened(tmp_path)
    one.create(SCHEMA, [])
    idle, other = opened(tmp_path), opened(tmp_path, "b")
    put_version = PathCatalog._put

    def late(catalog: PathCatalog, version: int, metadata: Any) -> None:
        monkeypatch.setattr(PathCatalog, "_put", put_version)
        for batch in range(4):
            other.commit(batch, position(1), put(tmp_path, table(batch)), after=batch - 1)
        put_version(catalog, version, metadata)

    monkeypatch.setattr(PathCatalog, "_put", late)
    idle.commit(0, position(9), put(tmp_path, table(9)), after=-1)
    for found in (opened(tmp_path), opened(tmp_path, "b"), idle):
        assert found.state().batch == (3 if found._app == "b" else 0)
    assert sorted(read(tmp_path).scan().to_arrow().column("n").to_pylist()) == [0, 1, 2, 3, 9]


def test_a_hint_that_comes_late_does_not_name_an_old_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer was stopped before its hint, and others removed its version: the hint led nowhere until a commit."""
    monkeypatch.setitem(iceberg.PROPERTIES, "write.metadata.previous-versions-max", "1")
    one, other = opened(tmp_path), opened(tmp_path, "b")
    one.create(SCHEMA, [])
    write = Folder.write

    def late(folder: Folder, path: str, data: Any) -> None:
        if path.endswith("version-hint.text"):
            monkeypatch.setattr(Folder, "write", write)
            for batch in range(commits):
                other.commit(batch + done, position(1), put(tmp_path, table(batch)), after=batch + done - 1)
        write(folder, path, data)

    done = 0
    for number, commits in enumerate((1, 4)):
        monkeypatch.setattr(Folder, "write", late)
        one.commit(number, position(9), put(tmp_path, table(9)), after=number - 1)
        done += commits
        newest = max(int(path.name[1:].split(".")[0]) for path in (tmp_path / "metadata").glob("v*.json"))
        assert (tmp_path / "metadata" / "version-hint.text").read_text() == str(newest)
        assert read(tmp_path).scan().to_arrow().num_rows == number + 1 + done


def test_tables_in_a_catalog_are_written(tmp_path: Path) -> None:
    given = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "name": "lake.orders"}
    one = opened(tmp_path / "t", **given)
    one.create(SCHEMA, [])
    one.commit(0, position(1), put(tmp_path / "t", table(0, 1)), after=-1)
    catalog = SqlCatalog("kraft", uri=given["uri"])
    found = catalog.load_table("lake.orders")
    assert found.scan().to_arrow().num_rows == 2
    assert opened(tmp_path / "t", **given).state() == State(0, position(1))
    with pytest.raises(ValueError, match=r"lake.orders lies at .*/t by its catalog, not at .*/u"):
        opened(tmp_path / "u", **given)
    one.replace([file.path for file in one.live()], put(tmp_path / "t", table(0, 1)))
    assert one.vacuum(0) == 1
    one.forget()
    assert not catalog.table_exists("lake.orders")
    catalog.close()


def test_a_wrong_catalog_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"spec.table.catalog.name: 'orders' is not of the form namespace.table"):
        opened(tmp_path, name="orders")
    with pytest.raises(SpecError, match=r"spec.table.catalog: "):
        opened(tmp_path, name="a.b", type="kiosk")


def test_types_widen_as_iceberg_can(tmp_path: Path) -> None:
    """Values of a new schema's wider type remained dead letters for ever."""
    narrow = pa.schema([("n", pa.int32()), ("f", pa.float32()), ("d", pa.decimal128(5, 2)), ("s", pa.string())])
    wide = pa.schema([("n", pa.int64()), ("f", pa.float64()), ("d", pa.decimal128(9, 2)), ("s", pa.int64())])
    promoted = schemas.promoted(narrow, wide)
    assert promoted == pa.schema([*list(wide)[:3], narrow.field("s")])
    assert schemas.promoted(wide, narrow) == wide
    one = opened(tmp_path)
    one.create(narrow, [])
    old = {"n": [1], "f": [0.5], "d": [Decimal("1.25")], "s": ["x"]}
    new = {"n": [1 << 40], "f": [0.1], "d": [Decimal("1234567.25")], "s": ["y"]}
    one.commit(0, position(1), put(tmp_path, pa.table(old, schema=narrow)), after=-1)
    one.create(promoted, [])
    one.commit(1, position(2), put(tmp_path, pa.table(new, schema=promoted)), after=0)
    rows = sorted(read(tmp_path).scan().to_arrow().to_pylist(), key=lambda row: row["n"])
    assert rows == [{name: values[0] for name, values in part.items()} for part in (old, new)]


def test_the_metadata_of_a_commit_does_not_grow_with_partitions(tmp_path: Path) -> None:
    """The summary of every snapshot had the offsets of a thousand partitions, and every version had all summaries."""
    many = Position({("t", n): n for n in range(1000)}, "c", {"t": "00"})
    one = opened(tmp_path)
    one.create(SCHEMA, [])
    sizes = []
    for batch in range(6):
        one.commit(batch, many, put(tmp_path, table(batch)), after=batch - 1)
        assert one._table is not None
        sizes.append(Path(one._table.metadata_location).stat().st_size)
    assert sizes[-1] - sizes[1] < 4 * 2000
    assert opened(tmp_path).state() == State(5, many)
    kept = tmp_path / "_kraft_positions" / "a"
    assert len(list(kept.iterdir())) == 6
    one.claim(9)  # returns the last batch again
    assert len(list(kept.iterdir())) == 6
    for file in kept.iterdir():
        os.utime(file, (0, 0))
    assert one.vacuum(0) == 0
    assert len(list(kept.iterdir())) == 1
    assert opened(tmp_path).state() == State(5, many, epoch=9)


def test_position_files_of_all_writers_are_removed(tmp_path: Path) -> None:
    """Only those of the stream's writer were removed: backfills and replays left a file for each batch."""
    one, other = opened(tmp_path), opened(tmp_path, "a-backfill")
    one.create(SCHEMA, [])
    for batch in range(3):
        one.commit(batch, position(batch), put(tmp_path, table(batch)), after=batch - 1)
        other.commit(batch, position(batch), put(tmp_path, table(batch)), after=batch - 1)
    folder = tmp_path / "_kraft_positions" / "a-backfill"
    for file in folder.iterdir():
        os.utime(file, (0, 0))
    one.vacuum(3600)
    assert len(list(folder.iterdir())) == 3
    one.vacuum(0)
    assert len(list(folder.iterdir())) == 1, "of the current snapshot"
    assert opened(tmp_path, "a-backfill").state() == State(2, position(2))


@pytest.mark.parametrize("transform", ["year", "month", "date", "hour"])
def test_files_of_early_years_are_read_and_replaced(tmp_path: Path, transform: str) -> None:
    """Their partition had the text `1-01-01`, which no parser took: each compaction of the table ended."""
    one = opened(tmp_path)
    levels = partitions.parse((transform,), SCHEMA)
    one.create(SCHEMA, levels)
    for number, year in enumerate((1, 999, 1969, 9999)):
        when = pa.array([datetime.datetime(year, 12, 31, 23, tzinfo=datetime.UTC)], UTC_US)
        rows = table(number).set_column(2, "_timestamp", when)
        one.commit(number, position(1), put(tmp_path, rows, (transform,)), after=number - 1)
    live = one.live()
    before = read(tmp_path).scan().to_arrow().sort_by("n")
    assert sorted(file.values[f"_{transform}"][:4] for file in live) == ["0001", "0999", "1969", "9999"]
    one.replace([file.path for file in live], live)
    assert read(tmp_path).scan().to_arrow().sort_by("n") == before
    assert [file.values for file in one.live()] == [file.values for file in live]


def test_a_snapshot_of_an_earlier_version_has_its_end_offsets(tmp_path: Path) -> None:
    """Its summary contains the position itself."""
    one = opened(tmp_path)
    one.create(SCHEMA, [])
    inner = one._table
    assert inner is not None
    reported = {iceberg.APP: "a", iceberg.BATCH: "3", iceberg.POSITION: json.dumps(position(4).to_json())}
    with inner.transaction() as tx, tx.update_snapshot(reported).merge_append():
        pass
    assert opened(tmp_path).state() == State(3, position(4))
    opened(tmp_path).claim(5)
    opened(tmp_path).join()
    assert opened(tmp_path).state() == State(3, position(4), epoch=5)


def test_files_with_the_same_rows_are_a_replacement(tmp_path: Path) -> None:
    """Streaming readers fail at an overwrite."""
    one = opened(tmp_path)
    one.create(SCHEMA, [])
    for batch in range(2):
        one.commit(batch, position(batch), put(tmp_path, table(batch)), after=batch - 1)
    one.replace([file.path for file in one.live()], put(tmp_path, table(0, 1)))
    snapshot = read(tmp_path).current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    assert snapshot.summary.operation == Operation.REPLACE
    assert snapshot.summary["total-records"] == "2"
    assert snapshot.summary["deleted-data-files"] == "2"
