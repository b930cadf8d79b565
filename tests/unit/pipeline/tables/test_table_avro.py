"""Avro values without a cluster: schemas as columns, malformed bytes, and a registry with changing answers."""

from __future__ import annotations

import datetime
import decimal
import io
import json
from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kraft_pipeline.tables.errors import Bad
from kraft_pipeline.tables.formats import registry
from kraft_pipeline.tables.formats.avrotypes import NoColumnError, written
from kraft_pipeline.tables.formats.avrovalues import AvroParser
from kraft_pipeline.tables.formats.byschema import KEPT
from kraft_pipeline.tables.formats.registry import Registered, Registry, UnknownSchemaError
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.specs.table_spec import SpecError, ValueSpec
from kraft_pipeline.tables.values import RESERVED
from kraft_protocol.client.errors import ClientError
from tests.documents import table_document
from tests.registry import RegistryServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(registry, "_KNOWN", {})
    with RegistryServer().serving() as found:
        yield found


def record(*fields: tuple[Any, ...], name: str = "R") -> dict[str, Any]:
    parts = [{"name": f[0], "type": f[1], **({"default": f[2]} if len(f) > 2 else {})} for f in fields]
    return {"type": "record", "name": name, "fields": parts}


def encoded(schema: Any, *rows: Any, number: int | None = None) -> list[bytes]:
    """A value encoded by fastavro, in Confluent's frame with a schema id."""
    parsed, found = fastavro.parse_schema(schema), []
    for row in rows:
        out = io.BytesIO(b"" if number is None else b"\0" + number.to_bytes(4))
        out.seek(0, io.SEEK_END)
        fastavro.schemaless_writer(out, parsed, row)
        found.append(out.getvalue())
    return found


def binaries(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


ALL = record(
    ("id", "long"),
    ("text", ["null", "string"]),
    ("kind", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}),
    ("day", ["null", {"type": "int", "logicalType": "date"}]),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    ("tags", {"type": "map", "values": "long"}),
    (
        "parts",
        {
            "type": "array",
            "items": record(("x", "int"), ("at", {"type": "long", "logicalType": "timestamp-micros"}), name="P"),
        },
    ),
    ("again", ["null", "P"]),
    ("number", ["int", "double", "null"]),
    ("raw", {"type": "fixed", "name": "F", "size": 3}),
    ("nothing", "null"),
    ("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
    ("clock", {"type": "int", "logicalType": "time-millis"}),
)
UTC = datetime.UTC
ROW = {
    "id": 1 << 40,
    "text": "ü",
    "kind": "B",
    "at": datetime.datetime(2024, 2, 29, 10, tzinfo=UTC),
    "day": datetime.date(2024, 2, 29),
    "price": decimal.Decimal("12.50"),
    "tags": {"a": 1},
    "parts": [{"x": 1, "at": datetime.datetime(1999, 1, 1, tzinfo=UTC)}],
    "again": {"x": 2, "at": datetime.datetime(1970, 1, 1, tzinfo=UTC)},
    "number": 2,
    "raw": b"abc",
    "nothing": None,
    "local": datetime.datetime(2024, 1, 1),
    "clock": datetime.time(0, 0, 1),
}


def test_every_avro_type_becomes_a_column_and_nulls_are_kept() -> None:
    empty = {**ROW, "text": None, "day": None, "tags": {}, "parts": [], "again": None, "number": None}
    good, bare = encoded(ALL, ROW, empty)
    parse = AvroParser(ValueSpec("avro", avro=json.dumps(ALL)), retry_s=1)
    found = parse(binaries(good, b"", good + b"x", None, good[:-1], bare, b"\xff" * 40), pa.schema([]), additive=True)
    assert found.good.tolist() == [0, 5]
    assert found.bad == {
        1: Bad("avro.length", "Avro: the value ends before the record does"),
        2: Bad("avro.length", "Avro: 1 bytes follow the record"),
        4: Bad("avro.length", "Avro: the value ends before the record does"),
        6: found.bad[6],
    }
    first, second = found.table.to_pylist()
    del empty["nothing"]
    assert second == {**empty, "tags": [], "clock": 1000}
    assert first == {
        **{k: v for k, v in ROW.items() if k != "nothing"},
        "tags": [("a", 1)],
        "number": 2.0,
        "clock": 1000,
    }
    types = {f.name: f.type for f in found.table.schema}
    assert types["at"] == pa.timestamp("us", "UTC")
    assert types["local"] == pa.timestamp("us")
    assert types["price"] == pa.decimal128(10, 2)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ('"string"', "the schema is not a record"),
        (record(("x", ["string", "long"])), "/x: a union of string and int64 has no column type"),
        (record(("next", ["null", "R"])), "/next: R contains itself"),
        (record(("x", "nonsense")), "the schema is not an Avro schema"),
        (record(), "/: R has no fields"),
        (record(("x", record(("y", "null"), name="I"))), "/x: I has no fields"),
        (record(("x", {"type": "array", "items": "null"})), "/x: array of null has no column type"),
        (record(("x", {"type": "map", "values": ["null"]})), "/x: map of null has no column type"),
    ],
)
def test_schemas_that_cannot_become_columns_are_refused(schema: Any, message: str) -> None:
    with pytest.raises(NoColumnError, match=message):
        written(Registered(schema if isinstance(schema, str) else json.dumps(schema), ()))
    with pytest.raises(SpecError, match=r"spec.value.schema: "):
        AvroParser(ValueSpec("avro", avro=schema if isinstance(schema, str) else json.dumps(schema)), retry_s=1)


def test_each_value_outside_its_column_is_a_dead_letter() -> None:
    schema = record(("at", {"type": "long", "logicalType": "timestamp-millis"}), ("n", "int"))
    plain = record(("at", "long"), ("n", "long"))
    values = encoded(plain, {"at": 1, "n": 1}, {"at": 1 << 62, "n": 1}, {"at": 2, "n": 1 << 40}, {"at": 3, "n": 3})
    found = AvroParser(ValueSpec("avro", avro=json.dumps(schema)), retry_s=1)(
        binaries(*values), pa.schema([]), additive=True
    )
    assert found.good.tolist() == [0, 3]
    assert sorted(found.bad) == [1, 2]
    assert found.table.column("n").to_pylist() == [1, 3]


def test_versions_of_a_registered_schema_are_merged(server: RegistryServer) -> None:
    one = server.add("t", record(("a", "int"), ("b", "string")))
    two = server.add("t", record(("a", "long"), ("c", ["null", "double"])))
    three = server.add("t", record(("a", "string")))
    parse = AvroParser(ValueSpec("avro", registry=server.url), retry_s=1)
    (x,) = encoded(record(("a", "int"), ("b", "string")), {"a": 1, "b": "x"}, number=one)
    (y,) = encoded(record(("a", "long"), ("c", ["null", "double"])), {"a": 1 << 40, "c": 0.5}, number=two)
    (z,) = encoded(record(("a", "string")), {"a": "text"}, number=three)
    whole = record(("a", "long"), ("b", "string"))
    fields = written(Registered(json.dumps(whole), ())).columns
    found = parse(binaries(y, x, None, z, b"\1\0\0\0\1", x[:4], x), fields, additive=True, reserved=RESERVED)
    assert found.table.to_pylist() == [
        {"a": 1 << 40, "b": None, "c": 0.5},
        {"a": 1, "b": "x", "c": None},
        {"a": 1, "b": "x", "c": None},
    ]
    assert found.good.tolist() == [0, 1, 6]
    assert {bad.code for bad in found.bad.values()} == {"avro.schema"}
    assert {place: bad.reason for place, bad in found.bad.items()} == {
        3: "schema 3: the field a is string, its column int64",
        4: "the value does not begin with a schema id",
        5: "the value does not begin with a schema id",
    }
    strict = parse(binaries(y, x), fields, additive=False)
    assert strict.bad[0].reason == "schema 2 has fields that the table lacks: c"
    narrow = parse(binaries(y), pa.schema([("a", pa.int32())]), additive=True)
    assert narrow.bad[0].reason == f"schema 2: the field a is int64, its column int32{KEPT}"
    taken = server.add("t", record(("_offset", "long")))
    assert (
        "has the name of another column"
        in parse(binaries(b"\0" + taken.to_bytes(4) + b"\2"), fields, additive=True, reserved=RESERVED).bad[0].reason
    )


def test_a_wider_schema_widens_the_column_if_the_format_can(server: RegistryServer) -> None:
    wide = record(("a", "long"))
    (value,) = encoded(wide, {"a": 1 << 40}, number=server.add("t", wide))
    fields = pa.schema([("a", pa.int32())])
    assert AvroParser(ValueSpec("avro", registry=server.url), retry_s=1)(binaries(value), fields, additive=True).bad
    parse = AvroParser(ValueSpec("avro", registry=server.url), retry_s=1, promotes=True)
    found = parse(binaries(value), fields, additive=True)
    assert found.table == pa.table({"a": [1 << 40]})
    assert parse(binaries(value), fields, additive=False).bad[0].code == "avro.schema"


def test_writers_schemas_are_resolved_to_the_specs(server: RegistryServer) -> None:
    reader = record(("a", "double"), ("d", "string", "none"), ("more", ["null", "long"], None))
    old, new = record(("a", "int"), ("gone", "string")), record(("a", "float"), ("more", "long"))
    values = encoded(old, {"a": 1, "gone": "x"}, number=server.add("t", old))
    values += encoded(new, {"a": 0.5, "more": 7}, number=server.add("t", new))
    other = record(("b", "int"))
    values += encoded(other, {"b": 1}, number=server.add("t", other))
    parse = AvroParser(ValueSpec("avro", avro=json.dumps(reader), registry=server.url), retry_s=1)
    found = parse(binaries(*values), written(Registered(json.dumps(reader), ())).columns, additive=False)
    assert found.table.to_pylist() == [{"a": 1.0, "d": "none", "more": None}, {"a": 0.5, "d": "none", "more": 7}]
    assert list(found.bad) == [2]


def test_schemas_with_references_are_resolved(server: RegistryServer) -> None:
    inner = {**record(("x", "int"), name="I"), "namespace": "n"}
    server.add("inner", inner)
    middle = record(("i", "n.I"), name="M")
    server.add("middle", middle, references=[{"name": "n.I", "subject": "inner", "version": 1}])
    outer = record(("m", "M"), ("i", "n.I"))
    number = server.add("outer", outer, references=[{"name": "M", "subject": "middle", "version": 1}])
    found = written(Registry(server.url).schema(number))
    assert found.columns.field("m").type == pa.struct([("i", pa.struct([("x", pa.int32())]))])
    asked = len(server.asked)
    Registry(server.url).schema(number)
    assert len(server.asked) == asked  # an answer of the registry is valid for ever


def test_an_unreachable_or_refusing_registry_is_an_error(server: RegistryServer) -> None:
    number = server.add("t", record(("a", "int")))
    with pytest.raises(UnknownSchemaError, match=r"schema 99 of http://.* does not exist"):
        Registry(server.url).schema(99)
    server.away = True
    with pytest.raises(ClientError, match=r"schema registry: schema 1 of http.*: 503 .* \(tried for 0.2 s\)"):
        Registry(server.url, retry_s=0.2).schema(number)
    assert len(server.asked) > 2
    server.away = False
    assert Registry(f"http://127.0.0.1:1, {server.url}", "u:p", retry_s=10).schema(number).references == ()
    server.refuse = True
    with pytest.raises(registry.RefusedError, match=r"schema 2 of .*: 401 Unauthorized"):
        Registry(server.url, retry_s=60).schema(2)


def test_a_proxy_in_front_of_a_registry_makes_no_dead_letters(
    server: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its 404 counted as a schema that does not exist."""
    number = server.add("t", record(("a", "int")))
    monkeypatch.setattr(server, "answer", lambda *_: (404, {"message": "no route"}))
    parse = AvroParser(ValueSpec("avro", registry=server.url), retry_s=0.2)
    (value,) = encoded(record(("a", "int")), {"a": 1}, number=number)
    with pytest.raises(ClientError, match="404 and no registry's answer"):
        parse(binaries(value), pa.schema([]), additive=True)


def test_a_negative_schema_id_is_not_requested(server: RegistryServer) -> None:
    parse = AvroParser(ValueSpec("avro", registry=server.url), retry_s=0.2)
    found = parse(binaries(b"\0\xff\xff\xff\xffx"), pa.schema([]), additive=True)
    assert found.bad[0].code == "avro.schema"
    assert not server.asked


def test_references_in_a_circle_are_an_error_of_the_schema(server: RegistryServer) -> None:
    """A registry that is damaged or hostile may have them; the client asked for them until Python's stack was full."""
    server.add("one", record(("a", "int")), references=[{"name": "x", "subject": "other", "version": 1}])
    number = server.add("other", record(("b", "int")), references=[{"name": "y", "subject": "one", "version": 1}])
    with pytest.raises(UnknownSchemaError, match="refers to itself"):
        Registry(server.url).schema(number)
    assert len(server.asked) < 5


def test_invalid_references_are_an_error_of_the_schema(server: RegistryServer) -> None:
    number = server.add("t", record(("a", "int")), references=[{"name": "x"}])
    with pytest.raises(UnknownSchemaError, match="has invalid references"):
        Registry(server.url).schema(number)


def test_wrong_avro_specifications_are_refused(tmp_path: Any) -> None:
    def parsed(**value: Any) -> table_spec.ValueSpec:
        return table_spec.parse(table_document(value={"format": "avro", **value}), tmp_path).value

    schema = record(("a", "int"))
    (tmp_path / "s.avsc").write_text(json.dumps(schema))
    for given in ({"schema": schema}, {"schema": json.dumps(schema)}, {"schemaFile": "s.avsc"}):
        assert json.loads(parsed(**given).avro) == schema
    found = parsed(registry={"url": "https://a:1,http://b", "user": "u", "password": "p"})
    assert (found.registry, found.registry_auth) == ("https://a:1,http://b", "u:p")
    for wrong, message in (
        ({}, "avro needs a schema, a schemaFile or a registry.url"),
        ({"registry": {"url": "ftp://a"}}, "spec.value.registry.url: 'ftp://a' is not an http or https URL"),
        ({"registry": {"uri": "x"}}, "spec.value.registry.uri: unknown field"),
        ({"schema": "{"}, "spec.value.schema: this is not JSON"),
        ({"schema": schema, "schemaFile": "s.avsc"}, "either schema or schemaFile"),
        ({"schemaFile": "none.avsc"}, "spec.value.schemaFile: .*No such file"),
    ):
        with pytest.raises(SpecError, match=message):
            parsed(**wrong)
