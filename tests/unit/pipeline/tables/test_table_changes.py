"""Rows by key, growing schemas, and a run's waits: the parts of a KafkaTable that need no cluster."""

from __future__ import annotations

import errno
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraft_pipeline.codec.decode import TYPES
from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables import maintenance, schemas, values
from kraft_pipeline.tables.bykey import changes
from kraft_pipeline.tables.bykey.ordering import Order, newer
from kraft_pipeline.tables.bykey.upserts import Gather
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.engines.plans import _begun
from kraft_pipeline.tables.engines.tasks import FILE_BYTES
from kraft_pipeline.tables.errors import ConflictError, FencedError, RefusedError, TaskError, failure_of
from kraft_pipeline.tables.formats import jsonvalues
from kraft_pipeline.tables.formats.jsonvalues import parse
from kraft_pipeline.tables.runner import may_pass
from kraft_pipeline.tables.specs import partitions, table_spec
from kraft_pipeline.tables.stores import intents
from kraft_pipeline.tables.stores import parquet as parquettable
from kraft_pipeline.tables.stores.committer import DELETED, Added, Changes, State
from kraft_pipeline.tables.stores.datafiles import encoded, parquet
from kraft_pipeline.tables.stores.delta import DeltaTableOf
from kraft_pipeline.tables.stores.deltapositions import EXPIRY, StoredPositions
from kraft_pipeline.tables.stores.parquet import ParquetTable
from kraft_pipeline.tables.stores.storage import Folder
from kraft_protocol.client.errors import BrokerError, ClientError, DataLossError
from tests.documents import table_document


def parsed(value: Any = None, **table: Any) -> table_spec.TableSpec:
    return table_spec.parse(table_document(name="t", table={"path": "/t", **table}, value=value))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"key": ["key"]}, "spec.table.key: only mode upsert has keys"),
        ({"mode": "upsert"}, "spec.table.key: mode upsert needs the columns"),
        ({"mode": "upsert", "key": ["key"], "format": "parquet"}, "spec.table.mode: parquet has no upsert"),
    ],
)
def test_wrong_keys_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(table_spec.SpecError, match=message):
        parsed(**table)


def records(*rows: tuple[bytes | None, bytes | None]) -> pa.RecordBatch:
    count = len(rows)
    columns = {
        "key": [key for key, _ in rows],
        "value": [value for _, value in rows],
        "topic": ["t"] * count,
        "partition": [0] * count,
        "offset": list(range(count)),
        "timestamp": [0] * count,
        "headers": [None] * count,
    }
    return pa.RecordBatch.from_pydict(columns, pa.schema([(name, TYPES[name]) for name in values.RAW]))


def test_records_without_a_key_are_dead_letters() -> None:
    by_key = parsed(mode="upsert", key=["key"])
    some = records((b"a", b"1"), (None, b"2"), (b"a", None), (None, None))
    found = values.decode(some, by_key, pa.schema([]), 7, additive=True, parse=jsonvalues.parse)
    assert found.rows.column("offset").to_pylist() == [0, 2]
    assert found.rows.column(DELETED).to_pylist() == [False, True]
    letters = [(row["offset"], row["stage"], row["reason"], row["batch"]) for row in found.dead.to_pylist()]
    assert letters == [(1, "key", "the record has no key", 7), (3, "key", "a tombstone has no key", 7)]


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_records_without_a_valid_folder_name_are_dead_letters(mode: str) -> None:
    """A table stopped at a name that was too long, and ended at a name that was not a string."""
    given = parsed(partitionBy=["key", "date"], mode=mode, **({"key": ["key"]} if mode == "upsert" else {}))
    keys = [b"a", b"\xff", b"x" * 251, "ü".encode() * 42, b"", None, b"x" * 252]
    some = records(*((key, b"1") for key in keys))
    found = values.decode(some, given, pa.schema([]), 7, additive=True, parse=jsonvalues.parse)
    assert found.rows.column("offset").to_pylist() == ([0, 2, 4, 5] if mode == "append" else [0, 2, 4])
    letters = {row["offset"]: (row["stage"], row["reason"]) for row in found.dead.to_pylist()}
    expected = {
        1: ("partition", "key is not a string, so it cannot name a folder"),
        3: ("partition", "key is too long for the name of a folder"),
        6: ("partition", "key is too long for the name of a folder"),
    }
    assert letters == (expected if mode == "append" else expected | {5: ("key", "the record has no key")})


def test_the_last_change_of_each_key_counts(tmp_path: Path) -> None:
    """The offset decides within a partition, the time between partitions."""
    schema = pa.schema(
        [
            ("k", pa.string()),
            ("n", pa.int64()),
            ("_topic", pa.string()),
            ("_partition_id", pa.int32()),
            ("_offset", pa.int64()),
            ("_timestamp", pa.timestamp("us", "UTC")),
        ]
    )
    staged, files, storage = schema.append(pa.field(DELETED, pa.bool_())), [], Folder(tmp_path)
    parts = [
        [("a", 1, 0, 5, 90), ("b", 2, 0, 6, 1), ("a", 3, 0, 7, 10)],
        [("a", 4, 0, 3, 99), ("c", 5, 0, 4, 1)],
        [("b", 6, 1, 0, 2), ("c", 7, 1, 1, 0), ("a", 8, 1, 2, 9)],
    ]
    for part in parts:
        rows = [(k, n, "t", p, offset, time, n == 6) for k, n, p, offset, time in part]
        table = pa.Table.from_pylist([dict(zip(staged.names, row, strict=True)) for row in rows], staged)
        data = parquet(table)
        storage.write(f"{len(files)}.parquet", data)
        files.append(Added(f"{len(files)}.parquet", data.size, len(part)))
    levels = partitions.parse(["hour"], schema)
    whole = partitions.with_columns(schema, levels)
    order = changes.order_of(schema)
    work = intents.batch(storage, "app", 0, 0)

    def gathered(order: Order, size: int) -> pa.Table:
        some = tuple(file.path for file in files)
        gather = Gather(work, some, ("k",), whole, tuple(levels), order, 60.0)
        return gather.changes(size, InlineEngine().map).read(storage)

    for size in (0, 10 * FILE_BYTES):  # in one part, and in as many parts as there are keys
        found = gathered(order, size)
        assert found.column_names == [*whole.names, DELETED]
        kept = {(row["k"], row["n"], row[DELETED], row["_hour"]) for row in found.to_pylist()}
        assert kept == {
            ("a", 3, False, "1970-01-01-00"),
            ("b", 6, True, "1970-01-01-00"),
            ("c", 5, False, "1970-01-01-00"),
        }
        found = gathered(changes.order_of(schema, "n"), size)
        assert {row["k"]: row["n"] for row in found.to_pylist()} == {"a": 8, "b": 6, "c": 7}
    nothing = Gather(work, (), ("k",), whole, tuple(levels), order, 60.0).changes(0, InlineEngine().map).read(storage)
    assert nothing.num_rows == 0
    with pytest.raises(table_spec.SpecError, match=r"spec.table.orderBy: column 'x' does not exist"):
        changes.order_of(schema, "x")
    with pytest.raises(table_spec.SpecError, match="column 'x' does not exist"):
        changes.check(["x"], schema)
    with pytest.raises(table_spec.SpecError, match="'f' is double, which cannot be a key"):
        changes.check(["f"], pa.schema([("f", pa.float64())]))


@pytest.mark.parametrize("first", [0, 1])
def test_a_batch_and_a_merge_order_nan_alike(first: int) -> None:
    """NaN is no value: the later offset is newer. A batch took it for the greatest value, and merges for none."""
    nan = float("nan")
    times = pa.array([10**6, 2 * 10**6], pa.timestamp("us"))
    columns = {"k": ["a", "a"], "topic": ["t"] * 2, "partition": [0] * 2, "offset": [4, 5], "timestamp": times}
    rows = pa.table({**columns, "f": [nan, 1.0] if first else [1.0, nan]})
    order = changes.order_of(rows.schema, "f")
    assert changes.newest(rows, ["k"], order)["offset"].to_pylist() == [5]
    assert newer(rows.slice(1), rows.slice(0, 1), order).tolist() == [True]
    assert newer(rows.slice(0, 1), rows.slice(1), order).tolist() == [False]


def position(offset: int) -> Position:
    return Position({("t", 0): offset}, "c", {"t": "00"}, {("t", 0): 0}, {("t", 0): 99})


def keyed(kind: str, path: Path) -> Any:
    if kind == "delta":
        return DeltaTableOf(str(path), "app", {})
    from kraft_pipeline.tables.iceberg import IcebergTable

    return IcebergTable(Folder(path), "app", {})


def seen(kind: str, path: Path) -> list[dict[str, Any]]:
    """The rows that another reader finds."""
    if kind == "delta":
        from deltalake import DeltaTable

        return pa.table(DeltaTable(str(path)).to_pyarrow_table()).to_pylist()
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(str(path)).scan().to_arrow().to_pylist()


KEYED = ["delta", "iceberg"]
each = InlineEngine().map


@pytest.mark.parametrize("kind", KEYED)
def test_each_batch_of_changes_is_committed(tmp_path: Path, kind: str) -> None:
    """This includes changes without effect; column names may be anything."""
    table = keyed(kind, tmp_path)
    schema = pa.schema([("Der `Key`", pa.binary()), ("n", pa.int64())])
    staged = schema.append(pa.field(DELETED, pa.bool_()))
    table.create(schema, [])
    steps: list[list[tuple[bytes, int | None, bool]]] = [
        [(b"a", 1, False), (b"b\xff", 2, False)],
        [(b"a", 3, False), (b"b\xff", None, True)],
        [(b"never", None, True)],
        [],
    ]
    for batch, rows in enumerate(steps):
        found = pa.Table.from_pylist([dict(zip(staged.names, row, strict=True)) for row in rows], staged)
        given = Changes(found, ("Der `Key`",))
        table.upsert(batch, position(batch), given, after=batch - 1, each=each)
        other = keyed(kind, tmp_path)
        assert other.state() == State(batch, position(batch))
        with pytest.raises(ConflictError, match=f"batch {batch} follows {batch - 1}"):
            other.upsert(batch, position(batch), given, after=batch - 1, each=each)
    assert seen(kind, tmp_path) == [{"Der `Key`": b"a", "n": 3}]


@pytest.mark.parametrize("kind", KEYED)
def test_rows_by_key_equal_those_of_a_dictionary(tmp_path: Path, kind: str) -> None:
    """Keys of two columns, rows that move between partitions, columns that are added later, merged files."""
    chance, expected = random.Random(kind), dict[tuple[str, int], dict[str, Any]]()
    narrow = pa.schema([("a", pa.string()), ("b", pa.int32()), ("c", pa.string()), ("n", pa.int64())])
    wide = narrow.append(pa.field("deep", pa.struct([("x", pa.list_(pa.int64()))])))
    table, batches = keyed(kind, tmp_path), 12
    given = parsed(path=str(tmp_path), format=kind, mode="upsert", key=["a", "b"], partitionBy=["c"])
    for batch in range(batches):
        schema = narrow if batch < batches // 2 else wide
        levels = partitions.parse(["c"], schema)
        table.create(schema, levels)
        changed = {}
        for _ in range(chance.randrange(1, 40)):
            key = (chance.choice(["", "x" * chance.randrange(90), "é"]), chance.randrange(5))
            row = {"a": key[0], "b": key[1], "c": chance.choice(["p", "q/=", None]), "n": chance.randrange(9)}
            more = {"deep": {"x": [batch]}} if schema is wide else {}
            changed[key] = {**row, **more, DELETED: chance.random() < 0.3}
        for key, row in changed.items():
            expected.pop(key, None)
            if not row[DELETED]:
                expected[key] = {"deep": None, **{name: value for name, value in row.items() if name != DELETED}}
        found = pa.Table.from_pylist(list(changed.values()), schema.append(pa.field(DELETED, pa.bool_())))
        table.upsert(batch, position(batch), Changes(found, ("a", "b")), after=batch - 1, each=each)
        if batch % 4 == 3:
            maintenance.compact(given)
        rows = [{"deep": None, **row} for row in seen(kind, tmp_path)]
        assert sorted(rows, key=repr) == sorted(({k: r[k] for k in rows[0]} for r in expected.values()), key=repr)


def test_files_with_rows_deleted_by_others_are_left_alone(tmp_path: Path) -> None:
    """Another writer uses deletion vectors in a Delta table."""
    from deltalake import DeltaTable, TableFeatures

    table = keyed("delta", tmp_path)
    schema = pa.schema([("k", pa.binary()), ("n", pa.int64()), (DELETED, pa.bool_())])
    rows = pa.table({"k": [b"a"], "n": [1], DELETED: [False]}, schema)
    table.create(schema.remove(2), [])
    table.upsert(0, position(0), Changes(rows, ("k",)), after=-1, each=each)
    assert [file.whole for file in table.live()] == [True]
    DeltaTable(str(tmp_path)).alter.add_feature(TableFeatures.DeletionVectors, allow_protocol_versions_increase=True)
    table = keyed("delta", tmp_path)
    assert [file.whole for file in table.live()] == [False]
    with pytest.raises(ConflictError, match="has deletion vectors: its files are another writer's to merge"):
        table.replace([file.path for file in table.live()], [])
    with pytest.raises(ValueError, match="has deletion vectors of another writer: it takes no rows by key"):
        table.upsert(1, position(1), Changes(rows, ("k",)), after=0, each=each)
    more = encoded(rows.drop_columns([DELETED]))
    Folder(tmp_path).write("more.parquet", more.data)
    table.commit(1, position(1), [more.at("more.parquet", {})], after=0)
    assert table.state().batch == 1


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_delta_table_continues_after_its_log_was_trimmed(tmp_path: Path, mode: str) -> None:
    """After a pause longer than delta.logRetentionDuration, no commit shows where the last batch ended."""
    from deltalake import DeltaTable

    table = keyed("delta", tmp_path)
    schema = pa.schema([("k", pa.string()), (DELETED, pa.bool_())])
    table.create(schema.remove(1), [])
    table.claim(7)
    for batch in range(3):
        if mode == "append":
            table.commit(batch, position(batch), [], after=batch - 1)
        else:
            rows = pa.table({"k": ["a"], DELETED: [False]}, schema)
            table.upsert(batch, position(batch), Changes(rows, ("k",)), after=batch - 1, each=each)
    DeltaTable(str(tmp_path)).alter.set_table_properties({"delta.appendOnly": "false"})  # by another program
    DeltaTable(str(tmp_path)).create_checkpoint()
    last = DeltaTable(str(tmp_path)).version()
    for file in (tmp_path / "_delta_log").glob("*.json"):
        if int(file.name.split(".")[0]) < last:
            file.unlink()
    other = keyed("delta", tmp_path)
    assert other.state() == State(2, position(2), epoch=7)
    other.claim(8)
    other.commit(3, position(3), [], after=2)
    assert keyed("delta", tmp_path).state() == State(3, position(3), epoch=8)
    assert len(list((tmp_path / "_kraft_positions").rglob("*.json"))) == 1


def test_a_delta_table_whose_batch_numbers_expire_is_refused(tmp_path: Path) -> None:
    """Delta's writers drop the number of a table that was paused for longer, and its rows would be written again."""
    from deltalake import DeltaTable

    table, schema, expiry = keyed("delta", tmp_path), pa.schema([("k", pa.string())]), EXPIRY
    table.create(schema, [])
    table.claim(7)
    table.commit(0, position(0), [], after=-1)
    DeltaTable(str(tmp_path)).alter.set_table_properties({expiry: "interval 7 days"})
    refused = rf"{expiry} is 'interval 7 days'.* unset it: ALTER TABLE .* UNSET TBLPROPERTIES \('{expiry}'\)"
    with pytest.raises(ValueError, match=refused):
        table.commit(1, position(1), [], after=0)
    with pytest.raises(ValueError, match=refused):
        keyed("delta", tmp_path).claim(8)


@pytest.mark.parametrize("last", [0, 2])
def test_a_delta_table_that_lost_its_batch_number_is_not_written_again(tmp_path: Path, last: int) -> None:
    table = keyed("delta", tmp_path)
    table.create(pa.schema([("k", pa.string())]), [])
    table.claim(7)
    for batch in range(last + 1):
        table.commit(batch, position(batch), [], after=batch - 1)
    for file in (tmp_path / "_delta_log").glob("*.json"):  # as a checkpoint of a writer that lets numbers expire
        file.write_text("".join(f"{line}\n" for line in file.read_text().splitlines() if '"txn"' not in line))
    with pytest.raises(ValueError, match=rf"has lost the number .*\(its last one is -1, batch {last} has a file"):
        keyed("delta", tmp_path).state()


def test_a_delta_table_begins_after_a_first_batch_that_was_not_committed(tmp_path: Path) -> None:
    table = keyed("delta", tmp_path)
    table.create(pa.schema([("k", pa.string())]), [])
    table.claim(7)
    with pytest.raises(KeyboardInterrupt), StoredPositions(Folder(tmp_path), "app").kept(State(0, position(0))):
        raise KeyboardInterrupt
    assert keyed("delta", tmp_path).state() == State(epoch=7)


def struct(**fields: pa.DataType) -> pa.DataType:
    return pa.struct(list(fields.items()))


def test_schemas_grow_within_columns() -> None:
    there = pa.schema([("a", pa.int64()), ("s", struct(x=pa.int64())), ("l", pa.list_(struct(x=pa.int64())))])
    more = pa.schema(
        [
            ("l", pa.list_(struct(y=pa.string(), x=pa.float64()))),
            ("s", struct(z=pa.map_(pa.string(), struct(q=pa.int64())))),
            ("a", pa.float64()),
            ("b", pa.bool_()),
        ]
    )
    wide = schemas.widened(there, more)
    assert wide.names == ["a", "s", "l", "b"]
    assert wide.field("a").type == pa.int64()
    assert wide.field("l").type == pa.list_(struct(x=pa.int64(), y=pa.string()))
    learnt = schemas.merged(there, [more, pa.schema([("b", pa.string())])])
    assert learnt.field("a").type == pa.float64()
    assert learnt.field("l").type == pa.list_(struct(x=pa.float64(), y=pa.string()))
    assert learnt.field("b").type == pa.bool_()  # no type holds both: later ones are dead letters
    assert schemas.misfit(more, wide) == "the field l[].x is double, its column int64"
    assert schemas.misfit(there, learnt) == ""
    rows = pa.Table.from_pylist(
        [{"a": 1, "s": {"x": 1}, "l": [{"x": 1}, None]}, {"a": None, "s": None, "l": None}, {"l": []}], there
    )
    inner = pa.Table.from_pylist([{"s": {"z": [("k", {"q": 1})]}}], pa.schema([more.field("s")]))
    for table in (rows, rows.slice(1)):
        found = schemas.aligned(table, learnt).to_pylist()
        expected = [
            {"a": 1.0, "s": {"x": 1, "z": None}, "l": [{"x": 1.0, "y": None}, None], "b": None},
            {"a": None, "s": None, "l": None, "b": None},
            {"a": None, "s": None, "l": [], "b": None},
        ]
        assert found == expected[-table.num_rows :]
    grown = schemas.aligned(
        inner, pa.schema([("s", struct(z=pa.map_(pa.string(), struct(q=pa.int64(), r=pa.int64()))))])
    )
    assert grown.to_pylist() == [{"s": {"z": [("k", {"q": 1, "r": None})]}}]
    with pytest.raises(pa.ArrowInvalid):
        schemas.aligned(pa.table({"a": [(1 << 53) + 1]}), pa.schema([("a", pa.float64())]))


def jsons(*texts: bytes) -> pa.Array:
    return pa.array(texts, pa.binary())


def test_nested_json_fields_are_added() -> None:
    """A bad row splits the batch; the parts after it have the fields of the others, also nested ones."""
    texts = (
        b'{"s":{"x":1},"l":[{"a":1}]}',
        b"bad",
        b'{"s":{"x":2,"y":"t"},"l":[{"a":2,"b":true}]}',
        b'{"s":{"x":"t"}}',
    )
    found = parse(jsons(*texts), pa.schema([]), additive=True)
    assert found.table.to_pylist() == [
        {"s": {"x": 1, "y": None}, "l": [{"a": 1, "b": None}]},
        {"s": {"x": 2, "y": "t"}, "l": [{"a": 2, "b": True}]},
    ]
    assert sorted(found.bad) == [1, 3]
    fixed = pa.schema([("s", struct(x=pa.int64()))])
    strict = parse(jsons(b'{"s":{"x":1}}', b'{"s":{"y":1}}', b'{"s":[1]}', b'{"s":null}'), fixed, additive=False)
    assert strict.good.tolist() == [0, 3]
    assert sorted(strict.bad) == [1, 2]


@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_tables_grow_within_columns(tmp_path: Path, kind: str) -> None:
    def table() -> Any:
        return DeltaTableOf(str(tmp_path), "a", {}) if kind == "delta" else ParquetTable(Folder(tmp_path), "a")

    first = pa.schema([("s", struct(x=pa.int64())), ("n", pa.int64())])
    table().create(first, [])
    stale = table()
    table().create(pa.schema([("s", struct(y=pa.string())), ("m", pa.int64())]), [])
    stale.create(first, [])  # an older schema removes nothing
    names = {f.name: str(f.type) for f in table().schema()}
    assert names == {"s": "struct<x: int64, y: string>", "n": "int64", "m": "int64"}


def test_each_writer_of_a_parquet_table_has_its_own_state(tmp_path: Path) -> None:
    one, two = ParquetTable(Folder(tmp_path), "one"), ParquetTable(Folder(tmp_path), "two")
    one.create(pa.schema([("n", pa.int64())]), [])
    for batch in range(60):
        one.commit(batch, position(batch), [], after=batch - 1)
        two.commit(batch, position(100 + batch), [], after=batch - 1)
    for app, offset in (("one", 59), ("two", 159), ("three", None)):  # from the checkpoint and the later commits
        state = ParquetTable(Folder(tmp_path), app).state()
        assert state == (State() if offset is None else State(59, position(offset)))


def test_the_log_of_a_parquet_table_is_trimmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It spans two checkpoints; a reader that paused for longer begins at the newest checkpoint."""
    monkeypatch.setattr(parquettable, "CHECKPOINT_EVERY", 5)
    table, late = ParquetTable(Folder(tmp_path), "a"), ParquetTable(Folder(tmp_path), "b")
    table.create(pa.schema([("n", pa.int64())]), [])
    late.state()
    for batch in range(40):
        table.commit(batch, position(batch), [Added(f"{batch}.parquet", 1, 1)], after=batch - 1)
    log = tmp_path / "_kraft"
    assert len(list(log.glob("*.json"))) == 41 + 8  # an hour has not passed
    monkeypatch.setattr(parquettable, "TRIM_S", -60.0)
    for batch in range(40, 44):
        table.commit(batch, position(batch), [Added(f"{batch}.parquet", 1, 1)], after=batch - 1)
    assert len(list(log.glob("*.json"))) == 2 + 6
    for reader in (late, ParquetTable(Folder(tmp_path), "a")):
        assert len(reader.live()) == 44
    assert ParquetTable(Folder(tmp_path), "a").state() == State(43, position(43))
    late.commit(0, position(7), [], after=-1)
    assert table.live() == late.live()
    for file in log.glob("*.json"):
        file.unlink()
    with pytest.raises(FencedError, match="was removed or recreated"):
        table.state()


def test_the_first_offset_is_kept() -> None:
    a, b, c = (("t", n) for n in range(3))
    assert _begun(None, {a: 3}, []) == {a: 3}
    then = Position({a: 9, b: 4, c: 7}, begun={a: 3, b: 4})
    # a continues, b belongs to another topic, c is from before this was recorded; one is new.
    assert _begun(then, {a: 9, b: 0, c: 7, ("t", 3): 2}, [b, ("t", 3)]) == {a: 3, b: 0, ("t", 3): 2}
    assert _begun(then, {a: 2, b: 6}, []) == {a: 2, b: 4}  # truncated below the start of reading, and above it
    whole = Position({a: 9}, "c", {"t": "00"}, {a: 3}, {a: 12})
    assert Position.from_json(json.dumps(whole.to_json())) == whole


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (ConnectionRefusedError(), True),
        (PermissionError(), False),
        (ClientError("metadata: nobody (tried for 120 s)"), True),
        (BrokerError(3, "topic t"), True),
        (BrokerError(29, "topic t"), False),
        (DataLossError("gone"), False),
        (RefusedError("401"), False),
        (TaskError(failure_of(OSError(errno.ENOSPC, "No space left on device"))), True),
        (TaskError(failure_of(ClientError("away"))), True),
        (TaskError(failure_of(DataLossError("gone"))), False),
        (TaskError(failure_of(ValueError("OSError: what?"))), False),
        (ConflictError("another"), False),
    ],
)
def test_a_run_waits_only_for_transient_errors(error: Exception, passes: bool) -> None:
    assert may_pass(error) is passes
