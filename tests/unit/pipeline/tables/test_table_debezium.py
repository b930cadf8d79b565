"""Change events of Debezium as tables: each operation, each connector's order, JSON and Avro, foreign readers."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from kraft_pipeline.tables.formats import debezium, registry
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.specs.table_spec import SpecError
from kraft_protocol.records.batch import build_batch
from tests.debezium import MYSQL, ORACLE, POSTGRES, ROW, SQLSERVER, event, key
from tests.documents import table_document
from tests.feed import Feed
from tests.registry import RegistryServer

Pair = tuple[bytes | None, bytes | None]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(registry, "_KNOWN", {})
    with RegistryServer().serving() as found:
        yield found


def table(path: Path, value: dict[str, Any] | None = None, **more: Any) -> table_spec.TableSpec:
    value = {"format": "json", "envelope": "debezium", "evolve": "additive", **(value or {})}
    sections = {"engine": {"mode": "inline"}, "value": value, "table": {"path": str(path), **more}}
    return table_spec.parse(table_document(name="customers", **sections))


BY_ID = {"mode": "upsert", "key": ["id"]}


class Topic:
    """A table that is fed with keyed records."""

    def __init__(self, given: table_spec.TableSpec) -> None:
        self._feed, self._end, self._path = Feed(given), 0, given.path

    def put(self, *pairs: Pair) -> None:
        start, self._end = self._end, self._end + len(pairs)
        self._feed.put(start, self._end, build_batch(list(pairs), base_offset=start))

    def put_apart(self, *parts: Sequence[Pair]) -> None:
        """Put several fetches into one batch."""
        start, batches = self._end, b""
        for pairs in parts:
            batches += build_batch(list(pairs), base_offset=self._end)
            self._end += len(pairs)
        self._feed.put(start, self._end, batches)

    def rows(self, *columns: str, order: str = "_offset") -> list[dict[str, Any]]:
        found = duckdb.from_arrow(DeltaTable(self._path).to_pyarrow_table())
        return found.order(order).project(", ".join(columns) or "*").to_arrow_table().to_pylist()

    def dead(self) -> list[tuple[int, str]]:
        path = f"{self._path}_dead_letters"
        if not Path(path).exists():
            return []
        rows = DeltaTable(path).to_pyarrow_table().to_pylist()
        return sorted((row["offset"], row["code"]) for row in rows)


def test_a_change_log_has_a_row_for_each_event(tmp_path: Path) -> None:
    topic = Topic(table(tmp_path / "t"))
    one, two = {"id": 1, "name": "ada"}, {"id": 1, "name": "Ada"}
    topic.put(
        (key(1), event("r", None, one)),
        (key(1), event("u", one, two, lsn=24_023_200)),
        (key(1), event("d", two, None, lsn=24_023_300)),
        (key(1), None),
    )
    assert topic.rows("id", "name", "_op", "_source_position") == [
        {"id": 1, "name": "ada", "_op": "r", "_source_position": None},
        {"id": 1, "name": "Ada", "_op": "u", "_source_position": "00000000000024023200"},
        {"id": 1, "name": "Ada", "_op": "d", "_source_position": "00000000000024023300"},
    ]
    time = datetime.datetime(2023, 11, 14, 22, 13, 20, 123456, datetime.UTC)
    assert {row["_source_time"] for row in topic.rows("_source_time")} == {time}
    assert topic.dead() == []


@pytest.mark.parametrize("described", [None, ROW[:2]])
def test_rows_by_key_follow_the_database(tmp_path: Path, described: Any) -> None:
    topic = Topic(table(tmp_path / "t", **BY_ID))

    def changed(op: str, before: Any, after: Any, lsn: int) -> bytes:
        return event(op, before, after, described=described, lsn=lsn)

    rows = [{"id": number, "name": f"n{number}"} for number in range(4)]
    topic.put(*((key(n, described=bool(described)), changed("r", None, row, 100)) for n, row in enumerate(rows)))
    topic.put(
        (key(0), changed("u", rows[0], {"id": 0, "name": "new"}, 210)),
        (key(1), changed("d", rows[1], None, 220)),
        (key(1), None),
        (key(4), changed("c", None, {"id": 4, "name": "n4"}, 230)),
    )
    wanted = [(0, "new"), (2, "n2"), (3, "n3"), (4, "n4")]
    assert [(row["id"], row["name"]) for row in topic.rows("id", "name", order="id")] == wanted
    # A killed connector repeats the events that it has not recorded as sent: no row goes back.
    topic.put((key(4), changed("c", None, {"id": 4, "name": "n4"}, 230)), (key(0), changed("u", None, rows[0], 150)))
    assert [(row["id"], row["name"]) for row in topic.rows("id", "name", order="id")] == wanted
    # After a compaction of the topic, only the tombstone of a deletion is left.
    topic.put((key(2, described=bool(described)), None))
    assert [row["id"] for row in topic.rows("id", order="id")] == [0, 3, 4]
    assert topic.dead() == []


@pytest.mark.parametrize("split", ["batches", "alone", "fetches"])
def test_a_repeated_tombstone_is_ranked_by_a_deletion_of_an_earlier_batch(tmp_path: Path, split: str) -> None:
    """Before, the tombstone deleted a row that was inserted later, until the connector repeated the insert.

    A connector repeats a deletion and its tombstone, and the batch, the last change or a fetch ends between the two.
    """
    topic = Topic(table(tmp_path / "t", **BY_ID))
    row, later = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}
    deletion = (key(1), event("d", row, None, lsn=200))
    topic.put((key(1), event("c", None, row, lsn=100)))
    changes = [deletion, (key(1), None), (key(1), event("c", None, later, lsn=300))]
    if split == "batches":
        topic.put(*changes)
        topic.put(deletion)
        topic.put((key(1), None))
    elif split == "alone":
        topic.put(*changes, deletion)
        topic.put((key(1), None))
    else:
        topic.put_apart([*changes, deletion], [(key(1), None)])
    assert topic.rows("id", "name") == [{"id": 1, "name": "b"}]
    topic.put((key(1), event("d", later, None, lsn=400)))
    topic.put((key(1), None))
    assert topic.rows("id") == []
    # A tombstone whose deletion was compacted away deletes, as before.
    topic.put((key(1), event("c", None, row, lsn=500)))
    topic.put((key(2), event("c", None, {"id": 2, "name": "c"}, lsn=510)), (key(1), None))
    assert topic.rows("id") == [{"id": 2}]


def test_a_deletion_without_the_row_takes_the_key_of_its_record(tmp_path: Path) -> None:
    """PostgreSQL sends these unless the replica identity is the whole row."""
    topic = Topic(table(tmp_path / "t", **BY_ID))
    topic.put((key(1), event("c", None, {"id": 1, "name": "a"})), (key(2), event("c", None, {"id": 2, "name": "b"})))
    topic.put((key(1), event("d", {"id": None, "name": None}, None, lsn=24_023_999)))
    assert [row["id"] for row in topic.rows("id")] == [2]
    topic.put((b"not json", None), (None, None), (b'{"other": 1}', None), (None, event("d", {"name": "b"}, None)))
    assert topic.dead() == [(3, "key"), (4, "key"), (6, "key")]


def test_a_described_row_has_the_types_of_the_database(tmp_path: Path) -> None:
    topic = Topic(table(tmp_path / "t", **BY_ID))
    row = {
        "id": 1,
        "name": "ü",
        "price": base64.b64encode((-12345).to_bytes(2, signed=True)).decode(),
        "day": 19_782,
        "at": 1_709_200_800_000_001,
        "seen": "2024-02-29T11:00:00.123456789+01:00",
    }
    topic.put((key(1, described=True), event("c", None, row, described=ROW)))
    found = topic.rows("id", "name", "price", "day", '"at"', "seen")[0]
    assert found == {
        "id": 1,
        "name": "ü",
        "price": decimal.Decimal("-123.45"),
        "day": datetime.date(2024, 2, 29),
        "at": datetime.datetime(2024, 2, 29, 10, 0, 0, 1),
        "seen": datetime.datetime(2024, 2, 29, 10, 0, 0, 123456, datetime.UTC),
    }
    # A new column of the database becomes a column of the table.
    more = [*ROW, {"type": "int64", "optional": True, "field": "visits"}]
    topic.put((key(2, described=True), event("c", None, {**row, "id": 2, "visits": 1 << 40}, described=more)))
    assert [row["visits"] for row in topic.rows("visits", order="id")] == [None, 1 << 40]
    # Only a value that does not match its schema becomes a dead letter.
    topic.put(
        (key(3), event("c", None, {**row, "id": 3, "price": "?"}, described=ROW)),
        (key(4), event("c", None, {**row, "id": 4}, described=ROW)),
        (key(5), event("c", None, {**row, "id": "5"}, described=ROW)),
        (key(6), event("c", None, {**row, "id": 6, "more": 1}, described=ROW)),
        (key(7), event("c", None, {**row, "id": 7, "day": 1 << 31}, described=ROW)),
    )
    assert [row["id"] for row in topic.rows("id", order="id")] == [1, 2, 4]
    assert topic.dead() == [(2, "connect.value"), (4, "connect.value"), (5, "connect.value"), (6, "connect.value")]


def test_events_that_are_no_change_of_a_row_are_dead_letters(tmp_path: Path) -> None:
    topic = Topic(table(tmp_path / "t", **BY_ID))
    good = event("c", None, {"id": 1})
    values = {
        "json.syntax": [good[:-1], good + b"x", b"", b'{"op": }', b"{", b'{"op" "c"}', b'{"op":"c",}', b"nonsense"],
        "json.text": [b'{"op": "\xff"}'],
        "json.object": [b"[1]", b"1"],
        "json.twin": [b'{"op": "c", "op": "c"}'],
        "debezium.envelope": [b'{"id": 1}', b"{}", b'{"schema": null, "payload": null}'],
        "debezium.op": [event("t", None, None), event("m", None, None), event("x", None, None)],
        "debezium.row": [event("c", None, None), event("d", None, {"id": 1}), event("c", None, '{"_id": 1}')],
        "json.type": [event("c", None, {"id": "text"})],
        "connect.schema": [json.dumps({"schema": {"type": "int32"}, "payload": json.loads(good)}).encode()],
    }
    topic.put((key(1), good), *((key(1), value) for some in values.values() for value in some))
    expected = [code for code, some in values.items() for _ in some]
    assert [code for _, code in topic.dead()] == expected
    assert [row["id"] for row in topic.rows("id")] == [1]


def test_numbers_of_a_row_are_exact(tmp_path: Path) -> None:
    topic = Topic(table(tmp_path / "t", {"schema": {"price": "decimal(38,10)"}}))
    text = event("c", None, {"id": 1, "price": 0}).replace(b'"price": 0', b'"price": 1234567890123456789012345678.25')
    topic.put((key(1), text), (key(2), event("c", None, {"id": 1 << 63, "price": 1})))
    assert topic.rows("id", "price") == [{"id": 1, "price": decimal.Decimal("1234567890123456789012345678.25")}]
    assert topic.dead() == [(1, "json.number")]


@pytest.mark.parametrize(
    ("source", "steps"),
    [
        (POSTGRES, [{"lsn": 9}, {"lsn": 10}, {"lsn": 1 << 63}]),
        (
            MYSQL,
            [
                {"pos": 99},
                {"pos": 484},
                {"pos": 484, "row": 1},
                {"file": "mysql-bin.000004", "pos": 4},
                {"file": "mysql-bin.1000000", "pos": 4},
            ],
        ),
        (
            SQLSERVER,
            [
                {"change_lsn": "00000027:00000758:0003", "event_serial_no": 1},
                {"change_lsn": "00000027:00000758:0003", "event_serial_no": 2},
                {"change_lsn": "00000027:00000758:0004", "event_serial_no": 1},
                {"commit_lsn": "0000002A:00000001:0001", "change_lsn": "00000027:00000001:0001"},
            ],
        ),
        (ORACLE, [{"scn": "99"}, {"scn": "100"}, {"scn": "100", "ssn": 2}, {"scn": "7", "commit_scn": "2122187"}]),
    ],
)
def test_positions_sort_in_the_order_of_the_databases_log(source: dict[str, Any], steps: list[dict[str, Any]]) -> None:
    found = [debezium.position({**source, **step}) for step in steps]
    assert None not in found
    assert found == sorted(found, key=str)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    "source",
    [
        {**MYSQL, "gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"},
        {**POSTGRES, "lsn": None},
        {**POSTGRES, "lsn": -1},
        {**SQLSERVER, "change_lsn": None},
        {**ORACLE, "commit_scn": None},
        {**MYSQL, "file": "nonsense"},
        {"connector": "vitess", "ts_ms": 1},
        {},
    ],
)
def test_an_event_without_a_position_has_none(source: dict[str, Any]) -> None:
    assert debezium.position(source) is None


def test_a_transaction_unseen_by_the_snapshot_is_newer(tmp_path: Path) -> None:
    """Its log position is before the position of the snapshot that saw the earlier row."""
    topic = Topic(table(tmp_path / "t", **BY_ID))
    topic.put((key(1), event("r", None, {"id": 1, "name": "old"}, lsn=1000)))
    topic.put((key(1), event("u", None, {"id": 1, "name": "new"}, lsn=900)))
    assert topic.rows("name") == [{"name": "new"}]
    # A later snapshot is newer than all events before it.
    topic.put((key(1), event("r", None, {"id": 1, "name": "newest"}, lsn=800)))
    assert topic.rows("name") == [{"name": "newest"}]


AVRO_ROW = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {
            "name": "price",
            "type": [
                "null",
                {
                    "type": "bytes",
                    "scale": 2,
                    "precision": 10,
                    "connect.version": 1,
                    "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
                    "connect.name": "org.apache.kafka.connect.data.Decimal",
                    "logicalType": "decimal",
                },
            ],
            "default": None,
        },
        {"name": "day", "type": {"type": "int", "connect.version": 1, "connect.name": "io.debezium.time.Date"}},
        {
            "name": "at",
            "type": ["null", {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.MicroTimestamp"}],
            "default": None,
        },
        {
            "name": "ns",
            "type": {"type": "long", "connect.version": 1, "connect.name": "io.debezium.time.NanoTimestamp"},
        },
        {
            "name": "seen",
            "type": {"type": "string", "connect.version": 1, "connect.name": "io.debezium.time.ZonedTimestamp"},
        },
    ],
    "connect.name": "shop.public.customers.Value",
}
AVRO = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.customers",
    "fields": [
        {"name": "before", "type": ["null", AVRO_ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "namespace": "io.debezium.connector.postgresql",
                "fields": [
                    {"name": "version", "type": "string"},
                    {"name": "connector", "type": "string"},
                    {"name": "ts_ms", "type": "long"},
                    {"name": "snapshot", "type": [{"type": "string", "connect.default": "false"}, "null"]},
                    {"name": "txId", "type": ["null", "long"], "default": None},
                    {"name": "lsn", "type": ["null", "long"], "default": None},
                ],
            },
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
    "connect.name": "shop.public.customers.Envelope",
}
AVRO_KEY = {"type": "record", "name": "Key", "namespace": "shop", "fields": [{"name": "id", "type": "int"}]}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_avro_of_a_registry_by_confluents_serializer(tmp_path: Path, server: RegistryServer, kind: str) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient({"url": server.url})
    values, keys = AvroSerializer(client, json.dumps(AVRO)), AvroSerializer(client, json.dumps(AVRO_KEY))

    def pair(number: int, op: str, before: Any, after: Any, lsn: int) -> Pair:
        source = {"version": "3", "connector": "postgresql", "ts_ms": 5, "snapshot": "false", "txId": 1, "lsn": lsn}
        value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 6}
        return named(number), values(value, SerializationContext("t", MessageField.VALUE))

    def named(number: int) -> bytes | None:
        return keys({"id": number}, SerializationContext("t", MessageField.KEY))

    row = {
        "id": 1,
        "name": "a",
        "price": decimal.Decimal("-1.50"),
        "day": 19_782,
        "at": 1_709_200_800_000_001,
        "ns": 1_709_200_800_000_001_999,
        "seen": "2024-02-29T10:00:00.1234567Z",
    }
    given = table(tmp_path / "t", {"format": "avro", "registry": {"url": server.url}}, **BY_ID, format=kind)
    topic = Topic(given)
    topic.put(
        pair(1, "r", None, row, 1), pair(2, "c", None, {**row, "id": 2}, 2), pair(3, "c", None, row | {"id": 3}, 3)
    )
    topic.put(pair(1, "u", row, {**row, "name": "b"}, 5), pair(2, "d", {**row, "id": 2}, None, 6), (named(3), None))
    topic.put(pair(1, "u", None, row, 4))  # repeated
    if kind == "delta":
        found = DeltaTable(given.path).to_pyarrow_table()
    else:
        newest = max((tmp_path / "t/metadata").glob("*.metadata.json"), key=lambda path: path.name)
        found = StaticTable.from_metadata(str(newest)).scan().to_arrow()
    local = datetime.datetime(2024, 2, 29, 10, 0, 0, 1)
    assert [{name: one[name] for name in row} for one in found.to_pylist()] == [
        {
            **row,
            "name": "b",
            "day": datetime.date(2024, 2, 29),
            "at": local,
            "ns": local,
            "seen": datetime.datetime(2024, 2, 29, 10, 0, 0, 123456, datetime.UTC),
        }
    ]
    topic.put((named(9), b"\0\0\0\0\7x"), (named(9), pair(1, "c", None, None, 1)[1]), (named(9), named(1)))
    if kind == "delta":
        assert [code for _, code in topic.dead()] == ["avro.schema", "debezium.row", "avro.schema"]


def test_wrong_specifications_of_envelopes_are_refused(tmp_path: Path) -> None:
    assert table(tmp_path, **BY_ID).order_by == "_source_position"
    assert table(tmp_path, **BY_ID, orderBy="_offset").order_by == "_offset"
    assert table(tmp_path).order_by == ""
    with pytest.raises(SpecError, match=r"spec.value.envelope: debezium is an envelope of json or avro values"):
        table(tmp_path, {"format": "raw"})
    with pytest.raises(SpecError, match=r"'debezum' is not one of none, debezium; did you mean debezium\?"):
        table(tmp_path, {"envelope": "debezum"})
    fields = pa.schema([("_op", pa.string())])
    from kraft_pipeline.tables import values

    assert "_op" in values.reserved(table(tmp_path))
    assert values.fields_of(table(tmp_path, {"envelope": "none"}), fields) == fields
