"""A record that no table can hold is a dead letter; no record stops a table."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kraft_pipeline.codec import Decoder
from kraft_pipeline.codec.decode import TYPES
from kraft_pipeline.tables import values
from kraft_pipeline.tables.formats import jsonvalues
from kraft_pipeline.tables.specs import partitions
from kraft_protocol.client.errors import ClientError
from kraft_protocol.records.batch import NewRecord, build_batch
from tests.unit.pipeline.tables.test_table_changes import parsed, records
from tests.unit.pipeline.tables.test_tables import jsons


@pytest.mark.parametrize(
    "value",
    [
        b'{"tags":[null,null]}',
        b'{"a":[[null],[null,null]]}',
        b'{"a":[{"b":[null,null]}]}',
        b'{"a":[[],[null]]}',
        b'{"a":{}}',
        b'{"a":[{},{}]}',
        b"{}",
    ],
)
def test_lists_of_nulls_in_a_first_batch_define_no_column(value: bytes) -> None:
    """Arrow's reader makes an array with wrong bounds of it."""
    for others in ([], [b'{"n":1}'], [b'{"tags":["x"]}']):
        found = jsonvalues.parse(jsons(value, *others, value), pa.schema([]), additive=True)
        assert not found.bad
        assert len(found.good) == len(others) + 2
        found.table.validate(full=True)


def at(micros: int | None) -> pa.RecordBatch:
    """A record with a time."""
    one = records((b"a", b"1"))
    place = values.RAW.index("timestamp")
    return one.set_column(place, "timestamp", pa.array([micros], TYPES["timestamp"]))


DAY = 86_400_000_000
YEAR_1 = -719_162 * DAY
YEAR_10000 = 2_932_897 * DAY


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
@pytest.mark.parametrize("by", ["year", "month", "date", "hour"])
@pytest.mark.parametrize(
    ("micros", "filed"),
    [(YEAR_1, True), (YEAR_10000 - 1, True), (YEAR_1 - 1, False), (YEAR_10000, False), (-(2**62), False)],
)
def test_a_time_without_a_partition_name_is_a_dead_letter(kind: str, by: str, micros: int, filed: bool) -> None:
    given = parsed(partitionBy=[by], format=kind)
    found = values.decode(at(micros), given, pa.schema([]), 3, additive=True, parse=jsonvalues.parse)
    assert found.rows.num_rows == filed
    assert [row["code"] for row in found.dead.select(["code"]).to_pylist()] == ([] if filed else ["partition.time"])


def test_days_without_a_partition_name_are_dead_letters() -> None:
    rows = pa.table({"d": pa.array([0, 2_932_897, None, -719_163], pa.int32()).cast(pa.date32())})
    assert sorted(partitions.unfiled(rows, ["d"])) == [1, 3]
    times = pa.table({"t": pa.array([0, YEAR_10000, None, YEAR_1 - 1]).cast(pa.timestamp("us", "UTC"))})
    assert sorted(partitions.unfiled(times, ["t"])) == [1, 3]
    assert sorted(partitions.unfiled(times, ["hour(t)"])) == [1, 3]


@pytest.mark.parametrize("form", ["raw", "json"])
def test_headers_and_times_outside_their_columns_are_dead_letters(form: str) -> None:
    """The decoder gave up the whole batch for the first, and gave the second the year 1816."""
    headers = [("k1", b"v"), ("zz", b"w"), ("k2", None)]
    some = [
        NewRecord(b"a", b"{}", 5),
        NewRecord(b"b", b"{}", 5, headers),
        NewRecord(b"c", b"{}", 2**62),
        NewRecord(b"d", b"{}", -(2**62), headers),
        NewRecord(b"e", b"{}", 5, [("\ufffd", b"")]),
    ]
    data = build_batch(some).replace(b"zz", b"\xff\xfe")
    decoder = Decoder("t", 0, values.RAW)
    (found,) = decoder.decode(data, check_crc=False)
    assert decoder.damaged == {1, 3}
    keys = [[pair["key"] for pair in headers or []] for headers in found.column("headers").to_pylist()]
    assert keys == [[], ["k1", "\ufffd\ufffd", "k2"], [], ["k1", "\ufffd\ufffd", "k2"], ["\ufffd"]]
    rows = values.decode(
        found.select(list(values.RAW)),
        parsed(value={"format": form}),
        pa.schema([]),
        1,
        additive=True,
        parse=jsonvalues.parse,
        damaged=decoder.damaged,
    )
    assert rows.rows.num_rows == 2
    letters = {row["offset"]: row["code"] for row in rows.dead.to_pylist()}
    assert letters == {1: "headers.key", 2: "timestamp", 3: "timestamp"}
    assert rows.dead.schema.equals(values.DEAD_SCHEMA)


def test_a_defect_of_the_parser_costs_one_record(caplog: pytest.LogCaptureFixture) -> None:
    """If a value makes a parser fail, the other records become rows."""

    parser = jsonvalues.JsonParser(settled=pa.schema([]))

    def parse(some: pa.Array, schema: pa.Schema, **options: Any) -> jsonvalues.Parsed:
        if b"evil" in b"".join(some.to_pylist()):
            raise KeyError("what is this?")
        return parser(some, schema, **options)

    some = records(*((b"k", b'{"n":%d}' % n if n != 5 else b"evil") for n in range(9)))
    given = parsed(value={"format": "json"})
    found = values.decode(some, given, pa.schema([]), 1, additive=True, parse=parse)
    assert found.rows.column("n").to_pylist() == [0, 1, 2, 3, 4, 6, 7, 8]
    assert [(row["offset"], row["code"]) for row in found.dead.to_pylist()] == [(5, "defect")]
    assert "offset 5" in caplog.text

    odd = records(*((b"k", value) for value in (b'{"n":9007199254740993}', b"evil", b'{"n":1}', b'{"n":1.5}')))
    wide = values.decode(odd, given, pa.schema([]), 1, additive=True, parse=parse)
    assert wide.rows.column("n").to_pylist() == [1.0, 1.5]
    assert wide.dead.num_rows == 2

    def away(*_: Any, **__: Any) -> Any:
        raise ClientError("schema registry: nobody answers")

    with pytest.raises(ClientError):
        values.decode(some, given, pa.schema([]), 1, additive=True, parse=away)
