"""Tables without a cluster: the YAML, JSON values, partitions, and the transactions of Parquet tables."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables import schemas, values
from kraft_pipeline.tables.errors import Bad, ConflictError
from kraft_pipeline.tables.formats import jsonvalues
from kraft_pipeline.tables.formats.jsonvalues import parse
from kraft_pipeline.tables.specs import partitions, table_spec
from kraft_pipeline.tables.specs.fieldtypes import type_of
from kraft_pipeline.tables.stores import parquet
from kraft_pipeline.tables.stores.committer import Added
from kraft_pipeline.tables.stores.opening import open_table
from kraft_pipeline.tables.stores.parquet import ParquetTable
from kraft_pipeline.tables.stores.storage import Folder
from tests.documents import table_document as document


def test_defaults_of_a_table() -> None:
    found = table_spec.parse(document())
    assert (found.format, found.value.format, found.mode, found.max_rows) == ("delta", "raw", "append", 5_000_000)
    assert (found.max_delay_s, found.compact_to, found.vacuum_after_s) == (60.0, 128 << 20, 7 * 86400.0)
    assert found.committed and found.fail_on_data_loss and found.dead_letters
    assert found.dead_letter_path == "/t_dead_letters"


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"bootstrapServers": None}, "KafkaTable.spec.bootstrapServers: is missing"),
        ({"bootstrapServers": None, "clusterRef": "prod"}, "spec.clusterRef: only the operator"),
        ({"topics": {}}, "spec.topics: give either names or pattern"),
        ({"topics": {"names": ["a"], "pattern": "b"}}, "spec.topics: give either names or pattern"),
        ({"topics": {"pattern": 5}}, "KafkaTable.spec.topics.pattern: 5 is not a string"),
        ({"topics": {"pattern": "a["}}, "KafkaTable.spec.topics.pattern: 'a[' is not a regular expression"),
        ({"groupId": 5}, "KafkaTable.spec.groupId: 5 is not a string"),
        ({"value": {"format": "xml"}}, "spec.value.format: 'xml' is not one of raw, json"),
        ({"commit": {"maxDelay": "soon"}}, "spec.commit.maxDelay: 'soon' is not valid; an example is 60s"),
        ({"commit": {"maxRows": 0}}, "spec.commit.maxRows: 0 is not an integer of at least 1"),
        ({"table": {"path": "/t", "colour": "red"}}, "spec.table.colour: unknown field"),
        ({"table": {}}, "spec.table.path: is missing"),
        (
            {"table": {"path": "/t", "partitionBy": ["date", "date"]}},
            "spec.table.partitionBy: date, date names a partition column twice",
        ),
        (
            {"table": {"path": "/t", "catalog": {"type": "rest"}}},
            "spec.table.catalog: a table of format delta has no catalog",
        ),
        ({"bootstrapServers": "a"}, "spec.bootstrapServers: 'a' is not host:port"),
        ({"speed": 1}, "spec.speed: unknown field"),
    ],
)
def test_wrong_specifications_of_a_table_are_refused(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(table_spec.SpecError, match=re.escape(message)):
        table_spec.parse(document(**sections))


def test_names_too_long_for_files_are_refused() -> None:
    with pytest.raises(table_spec.SpecError, match=r"metadata.name: 'x+' has more than 180 characters"):
        table_spec.parse({**document(), "metadata": {"name": "x" * 181}})


@pytest.mark.parametrize("kind", table_spec.FORMATS)
@pytest.mark.parametrize("path", ["ftp://lake/t", "hdfs://x/t", "s3://"])
def test_unknown_stores_are_refused(kind: str, path: str) -> None:
    given = table_spec.parse(document(table={"path": path, "format": kind}))
    with pytest.raises(table_spec.SpecError, match=r"spec.table.path: '.*' is neither a folder nor s3://bucket/"):
        open_table(given)


def test_paths_that_deltalake_misreads_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It wrote the first version of the log to the folder, and read it from `aAb`."""
    given = table_spec.parse(document(table={"path": f"{tmp_path}/a%41b/t", "format": "delta"}))
    with pytest.raises(table_spec.SpecError, match=r"a%41b/t: deltalake takes %41 for an escape; give another path"):
        open_table(given)
    (tmp_path / "a%41b").mkdir()
    monkeypatch.chdir(tmp_path / "a%41b")
    with pytest.raises(table_spec.SpecError, match=r"a%41b/t: deltalake takes %41 for an escape; give another path"):
        open_table(table_spec.parse(document(table={"path": "t", "format": "delta"})))
    for path, kind in (("100%/t", "delta"), ("a%41b/t", "iceberg"), ("a%41b/t", "parquet")):
        given = table_spec.parse(document(table={"path": f"{tmp_path}/{path}", "format": kind}))
        assert open_table(given).schema() is None


def jsons(*texts: bytes | None) -> pa.Array:
    return pa.array(texts, pa.binary())


def test_json_objects_are_rows_and_other_values_dead_letters() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    good = [b'{"a":1,"b":"x"}', b' {"b":"y",\n"a":2} ', b"{}"]
    bad = [
        b"",
        b"[1]",
        b"null",
        b'"text"',
        b"no json",
        b'{"a":1',
        b"}",
        b'{"a":"text"}',
        b'{"a":1}{"a":2}',
        b'{"a":1},"w":{"b":1}',
        b'{"a":1},"i":0,"w":{}',
        b'{"a":1}}\n{"i":1,"v":{"a":2}',
        b'{"b":"\xff"}',
        b'{"c":1}',
    ]
    mixed: list[bytes | None] = [*good[:1], *bad, None, *good[1:]]
    found = parse(jsons(*mixed), schema, additive=False)
    assert found.table.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": None, "b": None}]
    assert found.good.tolist() == [0, len(bad) + 2, len(bad) + 3]
    assert sorted(found.bad) == list(range(1, len(bad) + 1))
    assert all(found.bad.values())


def test_a_topic_of_other_values_is_recognized_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader fails at each value that it cannot read, and starts again with half of the values."""
    reads, read = [], jsonvalues._read
    monkeypatch.setattr(jsonvalues, "_read", lambda *a, **b: reads.append(a) or read(*a, **b))
    texts = [b'{"a":%d}' % n if n % 3 == 0 else b"[%d]" % n if n % 3 == 1 else b"{%d" % n for n in range(3000)]
    found = parse(jsons(*texts), pa.schema([("a", pa.int64())]), additive=True)
    assert len(reads) == 7
    assert found.table.column("a").to_pylist() == list(range(0, 3000, 3))
    assert len(found.bad) == 2000
    assert found.bad[1] == Bad("json.object", "the value is an array, not an object")
    assert found.bad[2].code == "json.syntax"
    assert found.bad[2].reason.startswith("JSON parse error: Expecting property name")


def test_new_json_fields_become_columns() -> None:
    schema = pa.schema([("a", pa.int64())])
    texts = [b'{"a":1,"when":"2024-01-01","n":1}', b'{"a":2,"deep":{"x":[1.5]},"none":null}']
    found = parse(jsons(*texts), schema, additive=True)
    assert found.table.schema.names == ["a", "when", "n", "deep"]
    assert found.table.schema.field("when").type == pa.string()
    assert found.table.column("when").to_pylist() == ["2024-01-01", None]
    assert found.table.column("deep").to_pylist() == [None, {"x": [1.5]}]
    clash = parse(jsons(b'{"A":1}', b'{"_offset":1}', b'{"a":3}'), schema, additive=True, reserved=values.RESERVED)
    assert clash.good.tolist() == [2]
    assert sorted(clash.bad) == [0, 1]
    # Columns from the first half of the rows apply to the second, which a bad row makes a separate read.
    torn = parse(jsons(b'{"k":1}', b"bad", b'{"k":"text"}', b'{"k":2}'), schema, additive=True)
    assert torn.table.column("k").to_pylist() == [1, 2]
    assert sorted(torn.bad) == [1, 2]


def test_deeply_nested_values_are_dead_letters() -> None:
    """They crash Arrow's reader (a memory fault, at every start); a schema with them crashes Delta's."""

    def nested(opens: bytes, closes: bytes, depth: int) -> bytes:
        return b'{"a":' + opens * (depth - 1) + b"1" + closes * (depth - 1) + b"}"

    good = [
        nested(b"[", b"]", 32),
        nested(b'{"a":', b"}", 32).replace(b'"a"', b'"b"', 1),
        b'{"c":"%s"}' % (b'[{\\"' * 100),
        b'{"d":[%s]}' % b",".join([b'{"e":[]}'] * 100),
    ]
    bad = [nested(b"[", b"]", 33), nested(b'{"a":', b"}", 33), nested(b"[", b"]", 200_000), b"[" * 200_000]
    found = parse(jsons(None, *good, *bad), pa.schema([]), additive=True)
    assert found.good.tolist() == [1, 2, 3, 4]
    assert found.bad == dict.fromkeys(range(5, 9), Bad("json.depth", "the value is nested more than 32 deep"))
    cut = parse(jsons(good[3][:-9]), pa.schema([]), additive=True)
    assert cut.bad[0].reason.startswith("JSON parse error: ")


def test_names_of_nested_fields_are_checked() -> None:
    """Delta refuses names that differ in case alone, Iceberg two paths with one text: no batch was ever written."""
    known = pa.schema([("s", pa.struct([("Known", pa.int64())])), ("x.y", pa.int64()), ("X.Y", pa.int64())])
    bad = [
        b'{"s":{"known":1}}',
        b'{"s":{"new":1,"NEW":2}}',
        b'{"l":[{"q":1,"Q":2}]}',
        b'{"s":{"":1}}',
        b'{"x":{"y":1}}',
    ]
    found = parse(jsons(*bad, b'{"s":{"Known":1,"more":2},"x":{"z":3}}'), known, additive=True)
    assert found.good.tolist() == [5]
    assert found.bad[0] == Bad("field.name", "the field 's.known' has the name of another column")
    assert found.bad[3] == Bad("field.name", "the name of a field is empty: 's.'")
    one, two = (pa.schema([(name, pa.int64()), ("m" + name, pa.int64())]) for name in ("n", "N"))
    assert schemas.merged(known, [one, two]) == pa.schema([*known, *one])  # the second learns again from the first


def test_reserved_names_are_refused() -> None:
    """This includes the names of Iceberg's own columns, in an Iceberg table."""
    for kind, name in (
        ("delta", "_offset"),
        ("delta", "_Partition_ID"),
        ("iceberg", "_partition"),
        ("iceberg", "_pos"),
    ):
        given = document(value={"format": "json", "schema": {name: "long"}}, table={"path": "/t", "format": kind})
        with pytest.raises(
            table_spec.SpecError, match=f"spec.value.schema: the field '{name}' has the name of another column"
        ):
            values.first_fields(table_spec.parse(given))
    given = document(value={"format": "json", "schema": {"_pos": "long"}}, table={"path": "/t", "format": "delta"})
    assert values.first_fields(table_spec.parse(given)).names == ["_pos"]


def test_texts_become_dates() -> None:
    schema = pa.schema([("d", type_of("date")), ("all", type_of("array<date>")), ("n", pa.int64())])
    texts = [b'{"d":"2024-02-29","all":["1969-12-31",null]}', b'{"d":null}', b'{"n":1}']
    found = parse(jsons(*texts, b'{"d":"29.2.2024"}', b'{"d":19782}', b'{"d":"2023-02-29"}'), schema, additive=True)
    day = datetime.date(2024, 2, 29)
    assert found.table.schema == schema
    assert found.table.column("d").to_pylist() == [day, None, None]
    assert found.table.column("all").to_pylist() == [[datetime.date(1969, 12, 31), None], None, None]
    assert sorted(found.bad) == [3, 4, 5]


def test_names_of_partitions_are_reserved() -> None:
    """Before the table exists, a field of this name is a column to partition by; afterwards it is a dead letter."""
    given = table_spec.parse(document(table={"path": "/t", "partitionBy": ["date", "hour(Created)"]}))
    assert "date" not in values.reserved(given)
    there = pa.schema([("n", pa.int64())])
    assert values.reserved(given, there) - values.RESERVED == {"date", "_created_hour", "created_hour"}
    there = pa.schema([("Date", pa.string()), ("created_hour", pa.string())])
    assert values.reserved(given, there) - values.RESERVED == {"_created_hour"}


def test_types_are_parsed_by_name() -> None:
    assert type_of("array<long>") == pa.list_(pa.int64())
    with pytest.raises(ValueError, match="'money' is not one of"):
        type_of("money")


def test_rows_filed_by_time_and_value() -> None:
    when = [datetime.datetime(2024, 1, day, 23, 59, tzinfo=datetime.UTC) for day in (1, 2, 1)]
    rows = pa.table(
        {"c": ["x/y", None, "x/y"], "_timestamp": pa.array(when, pa.timestamp("us", tz="UTC")), "n": [1, 2, 3]}
    )
    levels = partitions.parse(["date", "c", "hour(_timestamp)"], rows.schema)
    assert [by.name for by in levels] == ["_date", "c", "_timestamp_hour"]
    found = {partitions.folder(texts): part.to_pydict()["n"] for texts, part in partitions.split(rows, levels)}
    assert found == {
        "date=2024-01-01/c=x%2Fy/timestamp_hour=2024-01-01-23": [1, 3],
        "date=2024-01-02/c=__HIVE_DEFAULT_PARTITION__/timestamp_hour=2024-01-02-23": [2],
    }
    assert partitions.folder({"_date": "d", "_n_hour": "h"}, ["date", "n"]) == "_date=d/n_hour=h"
    with pytest.raises(table_spec.SpecError, match="'colour' is neither a column"):
        partitions.parse(["colour"], rows.schema)
    with pytest.raises(table_spec.SpecError, match="'n' is not a timestamp"):
        partitions.parse(["date(n)"], rows.schema)


SCHEMA = pa.schema([("n", pa.int64())])


def position(offset: int) -> Position:
    return Position({("t", 0): offset}, "c", {"t": "00"})


def test_transactions_of_a_parquet_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "CHECKPOINT_EVERY", 3)
    table, other = ParquetTable(Folder(tmp_path), "a"), ParquetTable(Folder(tmp_path), "a")
    assert table.schema() is None
    assert table.state().batch == -1
    table.create(SCHEMA, [partitions.By("d", "d", None)])
    for batch in range(7):
        table.commit(batch, position(batch), [Added(f"d=1/{batch}.parquet", 10, 1, {"d": "1"})], after=batch - 1)
        if batch == 3:
            assert other.state().batch == 3  # a reader that has read some, and will read the rest
    with pytest.raises(ConflictError, match="batch 6 follows 5, but the last one of the table is 6"):
        other.commit(6, position(6), [], after=5)
    table.replace(["d=1/0.parquet", "d=1/1.parquet"], [Added("d=1/both.parquet", 20, 2, {"d": "1"})])
    with pytest.raises(ConflictError, match=r"d=1/0.parquet is no longer a file"):
        table.replace(["d=1/0.parquet"], [])
    for reader in (table, other, ParquetTable(Folder(tmp_path), "a")):
        assert reader.state().batch == 6
        assert reader.state().position == position(6)
        assert sorted(file.path for file in reader.live()) == [
            *(f"d=1/{b}.parquet" for b in range(2, 7)),
            "d=1/both.parquet",
        ]
        assert len(reader.files()) == 6  # engines read the folder, so replaced files are gone
        schema = reader.schema()
        assert schema is not None
        assert schema.equals(SCHEMA)
    with pytest.raises(ValueError, match="is partitioned by"):
        other.create(SCHEMA, [])
    assert table.vacuum(0) == 0
    assert len(ParquetTable(Folder(tmp_path), "a").files()) == 6
    (tmp_path / "_kraft" / "00000000000000000009.json").unlink(missing_ok=True)
    for point in (tmp_path / "_kraft").glob("*.checkpoint.json"):
        point.unlink()
    (tmp_path / "_kraft" / "00000000000000000004.json").unlink()
    with pytest.raises(ValueError, match="transaction 4 is missing"):
        ParquetTable(Folder(tmp_path), "a")


def test_a_file_is_created_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.create("a/b", b"first")
    assert not folder.create("a/b", b"second")
    assert folder.read("a/b") == b"first"
    assert [file.path for file in folder.list()] == ["a/b"]
    folder.delete("a/b")
    folder.delete("a/b")
