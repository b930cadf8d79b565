"""Keys and headers as columns: written by Confluent's serializers, read by deltalake, DuckDB and PyIceberg."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import IntegerSerializer, MessageField, SerializationContext, StringSerializer
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from kraft_pipeline.tables.formats import recordmeta, registry
from kraft_pipeline.tables.formats.recordmeta import MetaReader
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.stores.opening import open_table
from kraft_protocol.client.errors import ClientError
from kraft_protocol.records.batch import NewRecord, build_batch
from tests.feed import Feed
from tests.registry import RegistryServer
from tests.unit.pipeline.test_tables import document

CONTEXT = SerializationContext("t", MessageField.KEY)
VALUE = {"format": "json", "schema": {"n": "long"}}
SCHEMA = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": "string"}]}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(registry, "_KNOWN", {})
    with RegistryServer().serving() as found:
        yield found


def parsed(path: Path, kind: str, **sections: Any) -> table_spec.TableSpec:
    more = dict(sections)
    table = {"path": str(path / "t"), "format": kind, **more.pop("table", {})}
    return table_spec.parse(document(**{"table": table, "value": VALUE, **more}))


def put(feed: Feed, at: int, *records: tuple[bytes | None, tuple[tuple[str, bytes | None], ...]]) -> None:
    batch = [NewRecord(key, b'{"n": %d}' % n, 1_000_000 + n, headers) for n, (key, headers) in enumerate(records, at)]
    feed.put(at, at + len(records), build_batch(batch, base_offset=at))


def rows(given: table_spec.TableSpec) -> list[dict[str, Any]]:
    """The rows by a reader that no one here wrote."""
    if given.format == "delta":
        found = pa.table(DeltaTable(given.path).to_pyarrow_table())
    elif given.format == "iceberg":
        newest = max(
            Path(given.path).glob("metadata/v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0])
        )
        found = StaticTable.from_metadata(str(newest)).scan().to_arrow()
    else:
        return (
            duckdb.sql(f"SELECT * FROM read_parquet('{given.path}/*.parquet') ORDER BY n")
            .arrow()
            .read_all()
            .to_pylist()
        )
    return found.sort_by("n").to_pylist()


def letters(given: table_spec.TableSpec) -> list[tuple[str, str, bytes]]:
    dead = open_table(given, dead_letters=True)
    found = [f"{given.dead_letter_path}/{file.path}" for file in dead.live()]
    if not found:
        return []
    query = duckdb.sql(f'SELECT code, reason, "key" FROM read_parquet({found}) ORDER BY "offset"')
    return [tuple(row) for row in query.fetchall()]


@pytest.mark.parametrize("kind", table_spec.FORMATS)
def test_texts_and_a_map_of_headers(tmp_path: Path, kind: str) -> None:
    given = parsed(tmp_path, kind, key={"format": "string"}, headers={"format": "map", "values": "string"})
    feed = Feed(given)
    text = StringSerializer("utf_8")
    headers = (("a", b"1"), ("b", None), ("a", "ü".encode()), ("", b""))
    put(
        feed,
        0,
        (text("käse", CONTEXT), headers),
        (None, ()),
        (b"\xff", ()),
        (b"", (("a", b"\xff"),)),
        (b"", (("z", b""),)),
    )
    put(feed, 5, (b"k", ()))
    found = rows(given)
    assert [row["_key"] for row in found] == ["käse", None, "", "k"]
    assert [dict(row["_headers"] or ()) for row in found] == [{"a": "ü", "b": None, "": ""}, {}, {"z": ""}, {}]
    assert letters(given) == [
        ("key.value", "key: it is not UTF-8", b"\xff"),
        ("headers.value", "a header's value is not UTF-8", b""),
    ]


@pytest.mark.parametrize("kind", table_spec.FORMATS)
def test_numbers_by_kafkas_serializers(tmp_path: Path, kind: str) -> None:
    given = parsed(tmp_path, kind, key={"format": "int"}, headers={"format": "map"})
    feed = Feed(given)
    number = IntegerSerializer()
    put(
        feed,
        0,
        (number(-5, CONTEXT), (("h", b"\xff"),)),
        (None, ()),
        (b"abc", ()),
        (number((1 << 31) - 1, CONTEXT), ()),
    )
    assert [row["_key"] for row in rows(given)] == [-5, None, (1 << 31) - 1]
    assert dict(rows(given)[0]["_headers"]) == {"h": b"\xff"}
    assert letters(given) == [("key.value", "key: it has 3 bytes, and a number has 4", b"abc")]


def test_longs_of_a_slice() -> None:
    """Records before the slice are not read, and nulls take no bytes."""
    keys = pa.array([b"x", None, (-(1 << 63)).to_bytes(8, signed=True), (7).to_bytes(8), b""], pa.binary()).slice(1)
    records = pa.record_batch({"key": keys, "headers": pa.nulls(4, recordmeta.TYPES["headers"])})
    found, bad = MetaReader(table_spec.KeySpec("long"), table_spec.HeaderSpec("map"))(records)
    assert found["key"].to_pylist() == [None, -(1 << 63), 7, None]
    assert found["headers"].to_pylist() == [None] * 4
    assert bad == {3: ("key.value", "key: it has 0 bytes, and a number has 8")}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_keys_of_json_are_structs_and_texts_identify_rows(tmp_path: Path, kind: str) -> None:
    key = {"format": "json", "schema": {"id": "long", "at": "string"}}
    given = parsed(tmp_path, kind, key=key)
    feed = Feed(given)
    put(feed, 0, (b'{"id": 1, "at": "x"}', ()), (b'{"id": "one"}', ()), (None, ()), (b'{"at": "y"}', ()))
    assert [row["_key"] for row in rows(given)] == [{"id": 1, "at": "x"}, None, {"id": None, "at": "y"}]
    assert [code for code, _, _ in letters(given)] == ["key.value"]
    by_key = parsed(tmp_path / "k", kind, key={"format": "string"}, table={"mode": "upsert", "key": ["_key"]})
    feed = Feed(by_key)
    put(feed, 0, (b"a", ()), (b"b", ()))
    put(feed, 2, (b"a", ()))
    feed.put(3, 4, build_batch([(b"b", None)], base_offset=3, timestamp=2_000_000))
    assert [(row["_key"], row["n"]) for row in rows(by_key)] == [("a", 2)]


def test_keys_of_avro_by_the_registry(tmp_path: Path, server: RegistryServer) -> None:
    given = parsed(
        tmp_path,
        "delta",
        key={"format": "avro", "schema": SCHEMA},
        value={**VALUE, "registry": {"url": server.url}, "schema": {}},
    )
    client = SchemaRegistryClient({"url": server.url})
    write = AvroSerializer(client, json.dumps(SCHEMA))
    keys = pa.array([write({"id": 1, "at": "x"}, CONTEXT), b"\0\0\0\0\x63", None], pa.binary())
    records = pa.record_batch({"key": keys, "headers": pa.nulls(3, recordmeta.TYPES["headers"])})
    found, bad = MetaReader(given.key, given.headers, retry_s=0)(records)
    assert found["key"].to_pylist() == [{"id": 1, "at": "x"}, None, None]
    assert bad[1].code == "key.value"
    assert re.match(r"key: schema 99 .* does not exist", bad[1].reason)
    server.away = True
    monkeypatched = MetaReader(given.key, given.headers, retry_s=0)
    registry._KNOWN.clear()
    with pytest.raises(ClientError, match="503"):
        monkeypatched(records)


@pytest.mark.parametrize("kind", table_spec.FORMATS)
def test_a_table_with_other_keys_is_refused(tmp_path: Path, kind: str) -> None:
    feed = Feed(parsed(tmp_path, kind))
    put(feed, 0, (b"k", ()))
    for sections, text in (
        ({"key": {"format": "string"}}, "_key is binary"),
        ({"headers": {"format": "map"}}, "_headers"),
    ):
        given = parsed(tmp_path, kind, **sections)
        with pytest.raises(table_spec.SpecError, match=f"format: the table's column {text}"):
            other = Feed(given)
            other.begin()
            put(other, 1, (b"k", ()))
    again = Feed(parsed(tmp_path, kind))
    again.begin()
    put(again, 1, (b"k", ()))
    assert len(rows(parsed(tmp_path, kind))) == 2


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"key": {"format": "text"}}, "spec.key.format: 'text' is not one of raw, string"),
        ({"key": {"format": "json"}}, "spec.key.schema: is missing"),
        ({"key": {"format": "avro"}}, "spec.key.schema: is missing"),
        ({"key": {"schema": {"a": "long"}}}, "spec.key.schema: raw keys have none"),
        ({"key": {"format": "json", "schemaFile": "x"}}, "spec.key.schemaFile: json keys have none"),
        ({"headers": {"values": "string"}}, "spec.headers.values: only a map has texts"),
        ({"headers": {"format": "map", "colour": 1}}, "spec.headers.colour: unknown field"),
    ],
)
def test_what_is_wrong_with_keys_and_headers(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(table_spec.SpecError, match=re.escape(message)):
        table_spec.parse(document(**sections))


def test_types_of_keys_are_checked_before_the_first_record(tmp_path: Path) -> None:
    with pytest.raises(table_spec.SpecError, match=r"spec.key.schema: 'number' is not one of"):
        Feed(parsed(tmp_path, "delta", key={"format": "json", "schema": {"a": "number"}}))
