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
from kraft_pipeline.tables.formats.protofiles import Files
from kraft_pipeline.tables.formats.recordmeta import MetaReader
from kraft_pipeline.tables.formats.registry import Registered
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.stores.opening import open_table
from kraft_protocol.client.errors import ClientError
from kraft_protocol.records.batch import NewRecord, build_batch
from tests.feed import Feed
from tests.registry import RegistryServer
from tests.unit.pipeline.tables.test_tables import document

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
        ({"key": {"schema": {"a": "long"}}}, "spec.key.schema: raw keys cannot have it"),
        ({"key": {"format": "json", "schemaFile": "x"}}, "spec.key.schemaFile: json keys cannot have it"),
        (
            {"key": {"format": "json", "schema": {"a": "long"}, "type": "long"}},
            "spec.key.schema: give either schema or",
        ),
        ({"key": {"format": "protobuf", "schema": {"a": "long"}}}, "spec.key.format: protobuf keys name their schema"),
        ({"key": {"format": "avro", "type": "long"}}, "spec.key.type: avro keys cannot have it; set format to json or"),
        (
            {"value": {"format": "raw", "registry": {"url": "http://r"}}, "key": {"format": "string"}},
            "spec.value.registry: neither raw values nor string keys have a registry",
        ),
        (
            {"key": {"format": "string", "registry": {"url": "http://r"}}},
            "spec.key.registry: string keys have no registry; set the format of the keys",
        ),
        (
            {"key": {"format": "protobuf", "registry": {"user": "u"}, "schema": {"a": "long"}}},
            "spec.key.registry.url: is missing",
        ),
        (
            {
                "value": {"format": "avro", "registry": {"url": "http://r"}},
                "key": {"format": "avro", "registry": {"url": ""}, "schema": {"type": "int"}},
            },
            "spec.key.registry.url: '' is not a string",
        ),
        ({"headers": {"values": "string"}}, "spec.headers.values: only a map has texts"),
        ({"headers": {"format": "map", "colour": 1}}, "spec.headers.colour: unknown field"),
    ],
)
def test_wrong_keys_and_headers_are_refused(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(table_spec.SpecError, match=re.escape(message)):
        table_spec.parse(document(**sections))


def decoded(key: dict[str, Any], *keys: bytes | None, registry: str = "") -> tuple[list[Any], dict[int, str]]:
    """The keys as values, and the reasons of bad ones."""
    value = {"format": "raw", **({"registry": {"url": registry}} if registry else {})}
    given = table_spec.parse(document(key=key, value=value))
    records = pa.record_batch(
        {"key": pa.array(keys, pa.binary()), "headers": pa.nulls(len(keys), recordmeta.TYPES["headers"])}
    )
    found, bad = MetaReader(given.key, given.headers, retry_s=0)(records)
    assert found["key"].type == recordmeta.key_type(given.key)
    assert {one.code for one in bad.values()} <= {"key.value"}
    return found["key"].to_pylist(), {place: one.reason for place, one in bad.items()}


def test_keys_of_json_that_are_single_values() -> None:
    good = [b'"k\xc3\xa4se"', b" 1 ", None, b'""', b"null"]
    texts, bad = decoded({"format": "json", "type": "string"}, good[0], None, good[3], good[4], b"1", b'{"key": "x"}')
    assert (texts, set(bad)) == (["k\u00e4se", None, "", None, None, None], {4, 5})
    numbers, bad = decoded(
        {"format": "json", "type": "long"}, b"9007199254740993", good[1], b"1.5", b"", b"tru", b"[1]"
    )
    assert (numbers, set(bad)) == ([9007199254740993, 1, None, None, None, None], {2, 3, 4, 5})


@pytest.mark.parametrize(
    "hostile",
    [b'1,"x":2', b'1,"key":2', b'1}{"key":2', b'1},{"key":2', b"1}", b'1}\n{"key":2', b'"a"}}{"v":{"key":"b"'],
)
def test_a_key_of_json_cannot_leave_its_field(hostile: bytes) -> None:
    """Keys without fields are read within an object."""
    found, bad = decoded({"format": "json", "type": "long"}, b"7", hostile, b"8")
    assert (found, set(bad)) == ([7, None, 8], {1})


def test_keys_of_avro_that_are_single_values(server: RegistryServer) -> None:
    client = SchemaRegistryClient({"url": server.url})
    text, number, nothing = (AvroSerializer(client, json.dumps(kind)) for kind in ("string", "int", ["null", "string"]))
    fields = AvroSerializer(client, json.dumps(SCHEMA))
    key = {"format": "avro", "schema": {"type": "string"}}
    keys = [text("k\u00e4se", CONTEXT), number(7, CONTEXT), nothing(None, CONTEXT), nothing("x", CONTEXT)]
    found, bad = decoded(key, *keys, fields({"id": 1, "at": "x"}, CONTEXT), None, registry=server.url)
    assert found == ["k\u00e4se", None, None, "x", None, None]
    assert set(bad) == {1, 4}, "their schemas are not texts"
    found, bad = decoded({"format": "avro", "schema": {"type": "long"}}, keys[1], registry=server.url)
    assert (found, bad) == ([7], {})
    at = {"type": "long", "logicalType": "timestamp-millis"}
    found, bad = decoded({"format": "avro", "schema": at}, b"\xd0\x0f", b"\xd0", b"\xd0\x0f\0")  # without a registry
    assert found[0].isoformat() == "1970-01-01T00:00:01+00:00"
    assert set(bad) == {1, 2}


PROTO = 'syntax = "proto3"; message Key { int64 id = 1; string at = 2; } message Other { double x = 1; }'


def test_keys_of_protobuf_by_the_registry(server: RegistryServer) -> None:
    number = server.add("t-key", PROTO, schemaType="PROTOBUF")
    files = Files(Registered(PROTO, (), ()))
    head = b"\0" + number.to_bytes(4)
    one = head + b"\0" + files.message((0,))(id=1 << 40, at="x").SerializeToString()
    other = head + b"\2\2" + files.message((1,))(x=0.5).SerializeToString()
    key = {"format": "protobuf", "schema": {"id": "long", "at": "string"}}
    found, bad = decoded(key, one, other, None, b"\0\0\0\0\x63\0", one[:-1], registry=server.url)
    assert found == [{"id": 1 << 40, "at": "x"}, None, None, None, None]
    assert set(bad) == {1, 3, 4}
    assert bad[1].startswith("key: schema 1 has fields that the table lacks: x")
    assert bad[3].startswith("key: schema 99 of http")
    assert bad[4].startswith("key: protobuf: ")


def test_keys_by_a_registry_apart_from_that_of_values(server: RegistryServer) -> None:
    """The same id names another schema in each registry."""
    with RegistryServer().serving() as other:
        values = AvroSerializer(SchemaRegistryClient({"url": server.url}), json.dumps("string"))
        keys = AvroSerializer(SchemaRegistryClient({"url": other.url}), json.dumps("int"))
        key, value = keys(7, CONTEXT), values("x", SerializationContext("t", MessageField.VALUE))
        assert key[:5] == value[:5]
        given = table_spec.parse(
            document(
                key={"format": "avro", "schema": {"type": "int"}, "registry": {"url": other.url, "user": "k"}},
                value={"format": "avro", "registry": {"url": server.url}},
            )
        )
        assert (given.key.fields.registry, given.key.fields.registry_auth) == (other.url, "k:")
        assert (given.value.registry, given.value.registry_auth) == (server.url, "")
        records = pa.record_batch(
            {"key": pa.array([key], pa.binary()), "headers": pa.nulls(1, recordmeta.TYPES["headers"])}
        )
        found, bad = MetaReader(given.key, given.headers, retry_s=0)(records)
        assert (found["key"].to_pylist(), bad) == ([7], {})
        found, bad = decoded({"format": "avro", "schema": {"type": "int"}, "registry": {"url": other.url}}, key)
        assert (found, bad) == ([7], {})


def test_keys_of_json_schema_by_the_registry(server: RegistryServer) -> None:
    whole = {"type": "object", "properties": {"id": {"type": "integer", "minimum": 1}}, "required": ["id"]}
    one, two = (server.add("t-key", schema, schemaType="JSON") for schema in (whole, {"type": "string"}))
    frame = [b"\0" + number.to_bytes(4) for number in (one, two)]
    key: dict[str, Any] = {"format": "jsonschema", "schema": {"id": "long"}}
    found, bad = decoded(key, frame[0] + b'{"id": 5}', frame[0] + b'{"id": 0}', b'{"id": 5}', None, registry=server.url)
    assert (found, set(bad)) == ([{"id": 5}, None, None, None], {1, 2})
    key = {"format": "jsonschema", "type": "string"}
    found, bad = decoded(key, frame[1] + b'"x"', frame[1] + b"1", frame[0] + b'{"id": 5}', None, registry=server.url)
    assert (found, set(bad)) == (["x", None, None, None], {1, 2})


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_are_found_by_single_keys(tmp_path: Path, kind: str) -> None:
    key = {"format": "json", "type": "long"}
    given = parsed(tmp_path, kind, key=key, table={"mode": "upsert", "key": ["_key"]})
    feed = Feed(given)
    put(feed, 0, (b"1", ()), (b"2", ()))
    put(feed, 2, (b" 1", ()))
    assert [(row["_key"], row["n"]) for row in rows(given)] == [(2, 1), (1, 2)]


def test_types_of_keys_are_checked_before_the_first_record(tmp_path: Path) -> None:
    with pytest.raises(table_spec.SpecError, match=r"spec.key.type: 'number' is not one of"):
        Feed(parsed(tmp_path, "delta", key={"format": "json", "type": "number"}))
    with pytest.raises(table_spec.SpecError, match=r"spec.key.schema: 'number' is not one of"):
        Feed(parsed(tmp_path, "delta", key={"format": "json", "schema": {"a": "number"}}))
