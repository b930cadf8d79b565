"""Numbers of JSON values arrive as they were written, or their record becomes a dead letter."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kraft_pipeline.tables import values
from kraft_pipeline.tables.formats.jsonvalues import Parsed
from kraft_pipeline.tables.specs import table_spec
from tests.unit.pipeline.tables.test_tables import document, jsons


def parsed(*texts: bytes, known: pa.Schema | None = None, additive: bool = True, **value: Any) -> Parsed:
    """The values as a task parses them for a table with the columns `known`."""
    given = table_spec.parse(document(value={"format": "json", **value}))
    fields = values.first_fields(given) if known is None else known
    return values.parser(given, fields, retry_s=0)(jsons(*texts), fields, additive=additive, reserved=frozenset())


def column(found: Parsed, name: str) -> dict[int, Any]:
    """The column for the number of the value."""
    return dict(zip(found.good.tolist(), found.table.column(name).to_pylist(), strict=True))


def test_beside_fractions_an_inexact_integer_is_a_dead_letter() -> None:
    found = parsed(b'{"n":9007199254740993}', b'{"n":1.5}', b'{"n":9007199254740992}')
    assert column(found, "n") == {1: 1.5, 2: 9007199254740992.0}
    assert list(found.bad) == [0]
    assert "9007199254740993" in found.bad[0].reason
    assert found.bad[0].code == "json.number"


def test_an_integer_above_63_bits_leaves_the_column_integer() -> None:
    texts = [b'{"n":%d}' % n for n in (1, 2**63 - 1, -(2**63), 2**63, 2**64, 9007199254740993)]
    found = parsed(*texts)
    assert found.table.schema.field("n").type == pa.int64()
    assert column(found, "n") == {0: 1, 1: 2**63 - 1, 2: -(2**63), 5: 9007199254740993}
    assert sorted(found.bad) == [3, 4]


@pytest.mark.parametrize(
    "number",
    ["1.2345678901234567890123456789", "0.1234567890123456789", "1e-400", "1e400", "1e-50000", "123456789012345678.5"],
)
@pytest.mark.parametrize("frame", ['{"n":%s}', '{"s":{"n":%s}}', '{"l":[{"n":[0.5,%s]}]}'])
def test_a_fraction_outside_doubles_is_a_dead_letter(number: str, frame: str) -> None:
    exact = ["0.5", "0.30000000000000004", "-1e300", "1e-7", "0.1", "1.7976931348623157e308", "5e-324"]
    found = parsed(*((frame % n).encode() for n in [*exact, number]))
    assert found.good.tolist() == list(range(len(exact)))
    assert list(found.bad) == [len(exact)]


def test_numbers_are_rounded_to_doubles_on_request() -> None:
    texts = [b'{"n":9007199254740993}', b'{"n":1.5}', b'{"n":18446744073709551616}', b'{"n":1e400}']
    found = parsed(*texts, numbers="double")
    assert column(found, "n") == {0: 9007199254740992.0, 1: 1.5, 2: 18446744073709551616.0}
    declared = parsed(*texts, schema={"n": "double"})
    assert column(declared, "n") == column(found, "n")
    assert parsed(texts[2], numbers="double").table.column("n").to_pylist() == [18446744073709551616.0]
    with pytest.raises(table_spec.SpecError, match=r"spec.value.numbers: 'float' is not one of exact, double"):
        parsed(numbers="float")


def test_decimals_structs_and_maps_are_types_of_fields() -> None:
    schema = {
        "money": "decimal(28,10)",
        "address": "struct<City: string, `post code`: decimal(5), seen: array<date>>",
        "counts": "map<string, long>",
        "deep": "map<string,struct<a:array<int>>>",
    }
    texts = [
        b'{"money":123456789012345678.0123456789,"address":{"City":"Bern","post code":3000,"seen":["2024-02-29"]}}',
        b'{"money":"1.50","counts":{"a":1,"b":null,"":3.0},"deep":{"x":{"a":[1,2]},"y":null}}',
        b'{"money":1e3,"address":{"Town":"x"}}',
        b'{"money":0.00000000001}',
        b'{"money":1e18}',
        b'{"counts":{"a":"1"}}',
        b'{"counts":[]}',
        b'{"counts":{},"address":null}',
    ]
    found = parsed(*texts, schema=schema, additive=False)
    assert found.good.tolist() == [0, 1, 7]
    assert column(found, "money") == {0: Decimal("123456789012345678.0123456789"), 1: Decimal("1.50"), 7: None}
    assert column(found, "address")[0] == {
        "City": "Bern",
        "post code": Decimal(3000),
        "seen": [datetime.date(2024, 2, 29)],
    }
    assert column(found, "counts") == {0: None, 1: [("a", 1), ("b", None), ("", 3)], 7: []}
    assert column(found, "deep")[1] == [("x", {"a": [1, 2]}), ("y", None)]
    with_decimals = parsed(b'{"m":1.5}', b'{"m":"2.25"}', b'{"m":1.125}', schema={"m": "decimal(5,2)"})
    assert column(with_decimals, "m") == {0: Decimal("1.50"), 1: Decimal("2.25")}


@pytest.mark.parametrize("text", ["1_0", " 1", "1 ", "٣", "", ".", "1e", "0x1", "NaN"])
def test_a_text_is_a_decimal_only_in_the_form_of_sql(text: str) -> None:
    """Python's underscores, spaces and digits of other scripts were numbers. Spark and Arrow refuse them."""
    found = parsed(json.dumps({"m": text}).encode(), b'{"m":"-1.5e+1"}', b'{"m":".5"}', schema={"m": "decimal(5,2)"})
    assert column(found, "m") == {1: Decimal("-15.00"), 2: Decimal("0.50")}


@pytest.mark.parametrize(
    "ddl", ["decimal(39,1)", "decimal(5,6)", "struct<>", "struct<a>", "map<int,long>", "map<string>", "array<long", ""]
)
def test_an_unknown_type_is_refused(ddl: str) -> None:
    with pytest.raises(table_spec.SpecError, match=r"spec\.value\.schema"):
        parsed(schema={"f": ddl})


def test_convertible_values_are_rows() -> None:
    schema = {"n": "long", "t": "timestamp", "s": "short"}
    texts = [
        b'{"n":1.0,"s":2e0}',
        b'{"t":"2024-02-29T10:00:00.123456789Z"}',
        b'{"t":"2024-02-29T12:00:00.5+02:00"}',
        b'\xef\xbb\xbf{"n":3}',
        b'{"n":1.5}',
        b'{"s":32768}',
        b'{"t":"yesterday"}',
    ]
    found = parsed(*texts, schema=schema, additive=False)
    assert column(found, "n") == {0: 1, 1: None, 2: None, 3: 3}
    assert column(found, "s")[0] == 2
    at = datetime.datetime(2024, 2, 29, 10, 0, 0, tzinfo=datetime.UTC)
    assert column(found, "t")[1] == at.replace(microsecond=123456)
    assert column(found, "t")[2] == at.replace(microsecond=500000)
    assert sorted(found.bad) == [4, 5, 6]


def test_a_byte_order_mark_is_skipped_beside_values_that_are_shorter() -> None:
    """Arrow's own slice of bytes miscounted, and the batch was read half by half."""
    mark = b"\xef\xbb\xbf"
    found = parsed(b"", b"{}", mark + b'{"n":1}', mark, *[b"1"] * 50, mark + b'{"n":2}')
    assert found.good.tolist() == [1, 2, 54]
    assert found.table.column("n").to_pylist() == [None, 1, 2]


def test_fields_of_a_first_batch_widen_in_any_order() -> None:
    """A field that only an earlier part of the batch has taught widens still; a column of the table does not."""
    given = table_spec.parse(document(value={"format": "json"}))
    parse = values.parser(given, pa.schema([]), retry_s=0)
    first = parse(jsons(b'{"n":1}'), pa.schema([]), additive=True)
    second = parse(jsons(b'{"n":1.5}', b'{"n":2}', b'{"n":9007199254740993}'), first.table.schema, additive=True)
    assert column(second, "n") == {0: 1.5, 1: 2.0}
    table = parsed(b'{"n":1.5}', b'{"n":2}', known=pa.schema([("n", pa.int64())]))
    assert column(table, "n") == {1: 2}
