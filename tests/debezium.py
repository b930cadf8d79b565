"""Change events as Debezium documents them: envelopes of several connectors, in JSON with and without schema."""

from __future__ import annotations

import json
from typing import Any

POSTGRES: dict[str, Any] = {
    "version": "3.0.0.Final",
    "connector": "postgresql",
    "name": "shop",
    "ts_ms": 1_700_000_000_123,
    "snapshot": "false",
    "db": "shop",
    "sequence": '["24023119","24023128"]',
    "ts_us": 1_700_000_000_123_456,
    "ts_ns": 1_700_000_000_123_456_000,
    "schema": "public",
    "table": "customers",
    "txId": 555,
    "lsn": 24_023_128,
    "xmin": None,
}
MYSQL: dict[str, Any] = {
    "version": "3.0.0.Final",
    "connector": "mysql",
    "name": "shop",
    "ts_ms": 1_700_000_000_000,
    "snapshot": "false",
    "db": "inventory",
    "sequence": None,
    "table": "customers",
    "server_id": 223_344,
    "gtid": None,
    "file": "mysql-bin.000003",
    "pos": 484,
    "row": 0,
    "thread": 7,
    "query": None,
}
SQLSERVER: dict[str, Any] = {
    "version": "3.0.0.Final",
    "connector": "sqlserver",
    "name": "shop",
    "ts_ms": 1_700_000_000_000,
    "snapshot": "false",
    "db": "testDB",
    "sequence": None,
    "schema": "dbo",
    "table": "customers",
    "change_lsn": "00000027:00000758:0003",
    "commit_lsn": "00000027:00000758:0005",
    "event_serial_no": "1",
}
ORACLE: dict[str, Any] = {
    "version": "3.0.0.Final",
    "connector": "oracle",
    "name": "shop",
    "ts_ms": 1_700_000_000_000,
    "snapshot": "false",
    "db": "ORCL",
    "sequence": None,
    "schema": "DEBEZIUM",
    "table": "CUSTOMERS",
    "txId": "6.28.807",
    "scn": "2122185",
    "commit_scn": "2122186",
    "lcr_position": None,
    "rs_id": "001234.00012345.0124",
    "ssn": 1,
    "redo_thread": 1,
}
ROW = [
    {"type": "int32", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "name"},
    {
        "type": "bytes",
        "optional": True,
        "name": "org.apache.kafka.connect.data.Decimal",
        "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "10"},
        "field": "price",
    },
    {"type": "int32", "optional": True, "name": "io.debezium.time.Date", "version": 1, "field": "day"},
    {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp", "version": 1, "field": "at"},
    {"type": "string", "optional": True, "name": "io.debezium.time.ZonedTimestamp", "version": 1, "field": "seen"},
]
"""Columns of a table as the JSON converter describes them."""


def schema(row: list[dict[str, Any]]) -> dict[str, Any]:
    """The schema of an envelope about rows of these fields."""
    sides = [
        {"type": "struct", "fields": row, "optional": True, "name": "shop.public.customers.Value", "field": name}
        for name in ("before", "after")
    ]
    source = {
        "type": "struct",
        "fields": [
            {"type": "string", "optional": False, "field": "version"},
            {"type": "string", "optional": False, "field": "connector"},
            {"type": "int64", "optional": False, "field": "ts_ms"},
            {"type": "int64", "optional": True, "field": "lsn"},
        ],
        "optional": False,
        "name": "io.debezium.connector.postgresql.Source",
        "field": "source",
    }
    rest = [
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    fields = [*sides, source, *rest]
    return {"type": "struct", "fields": fields, "optional": False, "name": "shop.public.customers.Envelope"}


def event(
    op: str,
    before: dict[str, Any] | None,
    after: Any,
    source: dict[str, Any] | None = None,
    described: list[dict[str, Any]] | None = None,
    **changed: Any,
) -> bytes:
    """One event. `described` adds the schema; `changed` replaces fields of its source."""
    payload = {
        "before": before,
        "after": after,
        "source": {**(POSTGRES if source is None else source), **changed},
        "transaction": None,
        "op": op,
        "ts_ms": 1_700_000_000_999,
    }
    found = payload if described is None else {"schema": schema(described), "payload": payload}
    return json.dumps(found).encode()


def key(number: int, *, described: bool = False) -> bytes:
    """A record's key: the primary key of the row."""
    payload = {"id": number}
    if not described:
        return json.dumps(payload).encode()
    fields = [{"type": "int32", "optional": False, "field": "id"}]
    kind = {"type": "struct", "fields": fields, "optional": False, "name": "shop.public.customers.Key"}
    return json.dumps({"schema": kind, "payload": payload}).encode()
