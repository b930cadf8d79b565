"""Damaged values of formats with schemas: each becomes a row or a dead letter, and none causes a defect."""

from __future__ import annotations

import decimal
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kraft_pipeline.codec.decode import TYPES
from kraft_pipeline.tables import values
from kraft_pipeline.tables.formats import registry
from kraft_pipeline.tables.specs.table_spec import TableSpec
from tests.debezium import ROW, event, key
from tests.registry import RegistryServer
from tests.unit.pipeline.tables.test_table_debezium import AVRO, BY_ID, table
from tests.unit.pipeline.tables.test_table_registry import CUSTOMER, MONEY, ORDER, PURCHASE, classes

COUNT = 2_000
PIECES = (b"null", b'""', b"{}", b"[]", b"1e999", b"-", b"9" * 25, b'"\\ud800"', b"NaN", b"\0", b"\xff\xff\xff\xff\x7f")
DESCRIBED = {"id": 1, "name": "x", "price": "MDk=", "day": 19_000, "at": 5, "seen": "2024-01-01T00:00:00Z"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(registry, "_KNOWN", {})
    with RegistryServer().serving() as found:
        yield found


def damaged(value: bytes, random: random.Random) -> bytes:
    found = bytearray(value)
    for _ in range(random.choice([0, 1, 1, 2, 5])):
        at = random.randrange(len(found) + 1)
        what = random.random()
        if what < 0.4 and found:
            found[at % len(found)] = random.randrange(256)
        elif what < 0.6:
            del found[at : at + random.randrange(6)]
        else:
            found[at:at] = random.choice(PIECES) if what < 0.8 else random.randbytes(random.randrange(4))
    return bytes(found)


def decoded(given: TableSpec, some: list[bytes | None], keys: list[bytes]) -> values.Rows:
    """Decode values as a task does. Every record is a row, a dead letter, or a tombstone without effect."""
    count = len(some)
    columns: dict[str, Any] = {
        "key": keys,
        "value": some,
        "topic": ["t"] * count,
        "partition": [0] * count,
        "offset": list(range(count)),
        "timestamp": [0] * count,
        "headers": [None] * count,
    }
    records = pa.RecordBatch.from_pydict(columns, pa.schema([(name, TYPES[name]) for name in values.RAW]))
    parse, nothing = values.parser(given, pa.schema([]), retry_s=1), pa.schema([])
    taken = values.reserved(given, nothing)
    found = values.decode(records, given, nothing, 0, additive=True, taken=taken, parse=parse)
    assert "defect" not in found.dead.column("code").to_pylist()
    seen = [*found.rows.column("_offset").to_pylist(), *found.dead.column("offset").to_pylist()]
    assert len(set(seen)) == len(seen)
    assert {place for place, value in enumerate(some) if value is not None} <= set(seen)
    assert found.rows.num_rows > count // 10
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("more", [{}, BY_ID])
def test_change_events_in_json_are_rows_or_dead_letters(tmp_path: Path, more: dict[str, Any], seed: int) -> None:
    chosen = random.Random(seed)
    events = [
        event("c", None, {"id": 1, "name": "a"}),
        event("d", {"id": 2, "name": "b"}, None),
        event("u", None, DESCRIBED, described=ROW),
        event("r", None, {"id": 3, "name": "c"}, described=ROW[:2]),
    ]
    some = [None if chosen.random() < 0.05 else damaged(chosen.choice(events), chosen) for _ in range(COUNT)]
    keys = [damaged(key(chosen.randrange(9), described=chosen.random() < 0.5), chosen) for _ in some]
    decoded(table(tmp_path, **more), some, keys)


def framed(number: int, value: bytes) -> bytes:
    return b"\0" + number.to_bytes(4) + value


@pytest.mark.parametrize("seed", range(3))
def test_change_events_in_avro_are_rows_or_dead_letters(tmp_path: Path, server: RegistryServer, seed: int) -> None:
    chosen, out = random.Random(seed), io.BytesIO()
    row = {"id": 1, "name": "a", "price": decimal.Decimal("1.5"), "day": 1, "at": 5, "ns": 5}
    row["seen"] = "2024-02-29T10:00:00Z"
    source = {"version": "3", "connector": "postgresql", "ts_ms": 5, "snapshot": "false", "txId": 1, "lsn": 7}
    value = {"before": None, "after": row, "source": source, "op": "c", "ts_ms": 1}
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), value)
    number = server.add("t", AVRO)
    given = table(tmp_path, {"format": "avro", "registry": {"url": server.url}}, **BY_ID)
    decoded(given, [framed(number, damaged(out.getvalue(), chosen)) for _ in range(COUNT)], [b"x"] * COUNT)


def plain(path: Path, kind: str, server: RegistryServer) -> TableSpec:
    return table(path, {"format": kind, "envelope": "none", "registry": {"url": server.url}})


@pytest.mark.parametrize("seed", range(3))
def test_values_of_protobuf_are_rows_or_dead_letters(tmp_path: Path, server: RegistryServer, seed: int) -> None:
    chosen = random.Random(seed)
    server.add("money", MONEY, schemaType="PROTOBUF")
    reference = {"name": "money.proto", "subject": "money", "version": 1}
    number = server.add("t", ORDER, schemaType="PROTOBUF", references=[reference])
    order = classes().message((1,))(
        id=5, note="n", kind=1, lines=[{"sku": "x"}], counts={"b": 2}, raw=b"\xff", left="l"
    )
    order.at.seconds, order.price.units, order.maybe.value = 10, 3, 4
    payload = b"\x02\x02" + order.SerializeToString()
    some = [framed(number, damaged(payload, chosen)) for _ in range(COUNT)]
    decoded(plain(tmp_path, "protobuf", server), some, [b"x"] * COUNT)


@pytest.mark.parametrize("seed", range(3))
def test_json_by_a_schema_is_a_row_or_a_dead_letter(tmp_path: Path, server: RegistryServer, seed: int) -> None:
    chosen = random.Random(seed)
    server.add("customer", CUSTOMER, schemaType="JSON")
    reference = {"name": "customer.json", "subject": "customer", "version": 1}
    number = server.add("t", PURCHASE, schemaType="JSON", references=[reference])
    value = {"id": 1, "price": 0.5, "customer": {"name": "a"}, "tags": ["x"], "counts": {"y": 1}, "size": {"cm": 2}}
    payload = json.dumps(value).encode()
    some = [framed(number, damaged(payload, chosen)) for _ in range(COUNT)]
    decoded(plain(tmp_path, "json", server), some, [b"x"] * COUNT)
