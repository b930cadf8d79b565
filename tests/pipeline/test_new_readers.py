"""Tables of change events, Protocol Buffers, JSON Schema and first batches without fields, read by foreign readers.

The readers are Spark with the jars of Delta and Iceberg, deltalake, PyIceberg, pandas and DuckDB.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.formats import registry
from kraft_pipeline.tables.formats.protofiles import Files
from kraft_pipeline.tables.formats.registry import Registered
from kraft_pipeline.tables.specs import table_spec
from kraft_protocol.records.batch import build_batch
from tests.debezium import event, key
from tests.documents import table_document
from tests.feed import Feed
from tests.lake import Lake
from tests.registry import RegistryServer

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("lake"), pytest.mark.timeout(900)]
Rows = list[dict[str, Any]]
BY_ID = {"mode": "upsert", "key": ["id"]}
MESSAGES = """syntax = "proto3";
message Order {
  int64 id = 1;
  optional string name = 2;
  repeated string tags = 3;
  map<string, int32> counts = 4;
  Amount price = 5;
  bytes raw = 6;
  double weight = 7;
}
message Amount { int64 units = 1; string currency = 2; }
"""
PURCHASE = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Purchase",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": ["null", "string"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "price": {"type": "object", "properties": {"units": {"type": "integer"}, "currency": {"type": "string"}}},
        "weight": {"type": "number"},
    },
    "required": ["id"],
}
FULL = {"id": 1, "name": "\u00e4", "tags": ["x", ""], "counts": {"a": 1, "b": -2}, "weight": 0.1}
FULL |= {"price": {"units": 1 << 40, "currency": "EUR"}}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with Lake(tmp_path_factory.mktemp("lake")) as found:
        yield found


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(registry, "_KNOWN", {})
    with RegistryServer().serving() as found:
        yield found


def feed(path: Path, kind: str, value: dict[str, Any], **table: Any) -> tuple[table_spec.TableSpec, Feed]:
    sections = {"value": {"evolve": "additive", **value}, "table": {"path": str(path), "format": kind, **table}}
    given = table_spec.parse(table_document(name="t", engine={"mode": "inline"}, **sections))
    return given, Feed(given)


def without_fields(path: Path, kind: str, _: RegistryServer) -> tuple[table_spec.TableSpec, Rows]:
    """Spark partitions the table by its latest partitioning."""
    given, writer = feed(path, kind, {"format": "json"}, partitionBy=["country"], **BY_ID)
    for values in (
        [b"no json", None],
        [b'{"id":1,"country":"de"}', b'{"id":2,"country":"fr"}'],
        [b'{"id":1,"more":1}'],
    ):
        writer.values(*values)
    return given, [{"id": 1, "country": None, "more": 1}, {"id": 2, "country": "fr", "more": None}]


def change_events(path: Path, kind: str, _: RegistryServer) -> tuple[table_spec.TableSpec, Rows]:
    given, writer = feed(path, kind, {"format": "json", "envelope": "debezium"}, **BY_ID)
    ada, bob, eve = ({"id": n, "name": name} for n, name in ((1, "ada"), (2, "bob"), (3, "eve")))
    first = [(key(row["id"]), event("r", None, row)) for row in (ada, bob, eve)]
    last = [
        (key(1), event("u", ada, {**ada, "name": "Ada"}, lsn=24_100_000)),
        (key(2), event("d", bob, None, lsn=24_100_001)),
        (key(2), None),
    ]
    writer.put(0, 3, build_batch(list(first), base_offset=0))
    writer.put(3, 6, build_batch(list(last), base_offset=3))
    return given, [{"id": 1, "name": "Ada", "_op": "u"}, {"id": 3, "name": "eve", "_op": "r"}]


def messages(path: Path, kind: str, server: RegistryServer) -> tuple[table_spec.TableSpec, Rows]:
    number = server.add("t", MESSAGES, schemaType="PROTOBUF")
    given, writer = feed(path, kind, {"format": "protobuf", "registry": {"url": server.url}})
    order = Files(Registered(MESSAGES, (), ())).message((0,))
    head = b"\0" + number.to_bytes(4) + b"\0"
    writer.values(*(head + value.SerializeToString() for value in (order(**FULL, raw=b"\xff\0"), order(id=2))))
    nothing = {"id": 2, "name": None, "tags": [], "counts": {}, "price": None, "raw": b"", "weight": 0.0}
    return given, [{**FULL, "raw": b"\xff\0"}, nothing]


def objects(path: Path, kind: str, server: RegistryServer) -> tuple[table_spec.TableSpec, Rows]:
    number = server.add("t", PURCHASE, schemaType="JSON")
    given, writer = feed(path, kind, {"format": "json", "registry": {"url": server.url}})
    head = b"\0" + number.to_bytes(4)
    writer.values(*(head + json.dumps(value).encode() for value in (FULL, {"id": 2})))
    return given, [FULL, {**dict.fromkeys(FULL), "id": 2}]


WRITERS: dict[str, Callable[[Path, str, RegistryServer], tuple[table_spec.TableSpec, Rows]]] = {
    "without fields": without_fields,
    "change events": change_events,
    "messages": messages,
    "objects": objects,
}


EVERYDAY = {("without fields", "iceberg"), ("change events", "delta"), ("messages", "delta"), ("objects", "iceberg")}


def others(given: table_spec.TableSpec) -> Iterator[tuple[str, Rows]]:
    """The rows by each reader that runs in this process."""
    if given.format == "delta":
        found = DeltaTable(given.path).to_pyarrow_table()
        yield "deltalake", found.to_pylist()
    else:
        found = StaticTable.from_metadata(given.path).scan().to_arrow()
        yield "PyIceberg", found.to_pylist()
    yield "DuckDB", duckdb.from_arrow(found).to_arrow_table().to_pylist()
    frame = found.to_pandas(integer_object_nulls=True)
    yield "pandas", [{str(name): row[name] for name in row} for row in frame.to_dict("records")]


def plain(value: Any) -> Any:
    """A value in JSON's form: readers differ in how they show bytes, maps, lists and missing values."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, dict):
        return {str(name): plain(inner) for name, inner in value.items()}
    if hasattr(value, "tolist") and not isinstance(value, str):
        return plain(value.tolist())
    if isinstance(value, list) and value and all(isinstance(pair, tuple) for pair in value):
        return {str(name): plain(inner) for name, inner in value}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def same(rows: Rows, expected: Rows, reader: str) -> None:
    """Compare the expected columns. If maps are lists of pairs, an empty map is an empty list."""
    found = [{name: plain(row[name]) or None for name in expected[0]} for row in rows]
    wanted = [{name: plain(value) or None for name, value in row.items()} for row in expected]
    assert sorted(found, key=lambda row: int(row["id"])) == wanted, reader


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        pytest.param(what, kind, marks=() if (what, kind) in EVERYDAY else pytest.mark.slow)
        for what, kind in itertools.product(WRITERS, ["delta", "iceberg"])
    ],
)
def test_other_projects_read_the_same_rows(
    tmp_path: Path, server: RegistryServer, lake: Lake, what: str, kind: str
) -> None:
    given, expected = WRITERS[what](tmp_path / "t", kind, server)
    for reader, rows in others(given):
        same(rows, expected, reader)
    same(lake.read(kind, given.path), expected, "Spark")
    maintenance.compact(given)
    same(lake.read(kind, given.path), expected, "Spark, merged files")
    some = lake.read(kind, given.path, where="id = 1")  # by the written bounds and partitions
    same(some, [row for row in expected if row["id"] == 1], "Spark, one row")
