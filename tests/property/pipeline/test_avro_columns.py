"""Avro read column by column against fastavro, record by record: the same rows and the same failures."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft_pipeline.tables.formats import avrovalues
from kraft_pipeline.tables.specs.table_spec import ValueSpec
from tests.tiers import examples

KINDS: list[tuple[Any, Any]] = [
    ("long", st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-200, 200)),
    ("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    ("string", st.text(max_size=200)),
    ("bytes", st.binary(max_size=200)),
    ("double", st.floats(allow_nan=False)),
    ("float", st.floats(allow_nan=False, width=32)),
    ("boolean", st.booleans()),
    ("null", st.none()),
    ({"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")),
    ({"type": "fixed", "name": "F", "size": 5}, st.binary(min_size=5, max_size=5)),
    ({"type": "long", "logicalType": "timestamp-millis"}, st.integers(0, 1 << 40)),
    ({"type": "int", "logicalType": "date"}, st.integers(-10_000, 10_000)),
]


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]], int]:
    chosen = draw(st.lists(st.sampled_from(range(len(KINDS))), min_size=1, max_size=6, unique=True))
    fields, values = [{"name": "first", "type": "long"}], {"first": KINDS[0][1]}
    for number in chosen:
        kind, strategy = KINDS[number]
        union = kind != "null" and draw(st.sampled_from([None, 0, 1]))
        fields.append({"name": f"f{number}", "type": kind})
        if isinstance(union, int) and union is not False:
            fields[-1]["type"] = ["null", kind] if union == 0 else [kind, "null"]
            strategy = st.none() | strategy
        values[f"f{number}"] = strategy
    rows = draw(st.lists(st.fixed_dictionaries(values), min_size=1, max_size=8))
    return {"type": "record", "name": "R", "fields": fields}, rows, draw(st.integers(0, 1 << 16))


def stripped(schema: Any) -> Any:
    return json.loads(json.dumps(schema), object_hook=lambda d: {k: v for k, v in d.items() if k != "logicalType"})


@given(cases())
@settings(max_examples=examples(150), deadline=None)
def test_columns_equal_those_of_fastavro(case: tuple[dict[str, Any], list[dict[str, Any]], int]) -> None:
    schema, rows, seed = case
    plain, chance = fastavro.parse_schema(stripped(schema)), random.Random(seed)
    values: list[bytes | None] = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, plain, row)
        whole = bytearray(out.getvalue())
        spoilt = chance.randrange(5)
        if spoilt == 0:
            whole[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        elif spoilt == 1:
            del whole[chance.randrange(len(whole)) :]
        elif spoilt == 2:
            whole += b"\x01"
        values.append(bytes(whole))
        if chance.randrange(4) == 0:
            values.append(None)
    array = pa.array(values, pa.binary()).slice(chance.randrange(2))
    spec = ValueSpec("avro", avro=json.dumps(schema))
    fast = avrovalues.AvroParser(spec, retry_s=1)
    assert fast._given is not None
    assert fast._given.flat is not None
    slow = avrovalues.AvroParser(spec, retry_s=1)
    slow._given = fast._given._replace(flat=None)
    one, other = (parse(array, pa.schema([]), additive=True) for parse in (fast, slow))
    assert one.bad == other.bad
    assert one.good.tolist() == other.good.tolist()
    if len(other.good):
        assert one.table.schema == other.table.schema
        assert repr(one.table.to_pylist()) == repr(other.table.to_pylist())  # NaN does not equal itself


@pytest.mark.parametrize("kind", [{"type": "array", "items": "int"}, ["int", "long"], {"type": "map", "values": "int"}])
def test_a_nested_schema_has_no_flat_reader(kind: Any) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    found = avrovalues.given(ValueSpec("avro", avro=json.dumps(schema)))
    assert found is not None
    assert found.flat is None
