"""Columns decoded from batches equal the result of reading record by record; damage is a declared error."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from kraft_pipeline.codec import COLUMNS, CodecError, Decoder, starts, varints
from kraft_protocol.records.batch import NewRecord, Record, build_batch
from kraft_protocol.records.errors import BatchError
from tests.batches import iter_all_records
from tests.property.records.strategies import lists_of_records
from tests.tiers import examples

RECORDS = lists_of_records(30)
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def decoded(data: bytes, columns: tuple[str, ...] = COLUMNS, **options: Any) -> list[dict[str, Any]]:
    """The rows of all columns."""
    return [row for part in Decoder("t", 3, columns).decode(data, **options) for row in part.to_pylist()]


def as_rows(records: list[Record]) -> list[dict[str, Any]]:
    return [
        {
            "key": r.key,
            "value": r.value,
            "topic": "t",
            "partition": 3,
            "offset": r.offset,
            "timestamp": EPOCH + dt.timedelta(milliseconds=r.timestamp),
            "timestampType": 0,
            "headers": [{"key": k, "value": v} for k, v in r.headers] or None,
        }
        for r in records
    ]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(RECORDS, st.integers(0, 4)), min_size=1, max_size=4), st.integers(0, 2**40), st.data())
def test_any_range_of_any_batches_is_decoded(batches: list[Any], base: int, draw: st.DataObject) -> None:
    data, at = b"", base
    for records, codec in batches:
        data += build_batch(records, base_offset=at, compression=codec)
        at += len(records)
    start, end = sorted([draw.draw(st.integers(base, at)), draw.draw(st.integers(base, at + 1))])
    columns = tuple(draw.draw(st.sets(st.sampled_from(COLUMNS), min_size=1)))
    expected = [row for row in as_rows(list(iter_all_records(data))) if start <= row["offset"] < end]
    assert decoded(data, columns, start=start, end=end) == [{c: row[c] for c in columns} for row in expected]


@settings(max_examples=examples(20), deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1600, 5000),
    st.sampled_from([1, 8, 90, 400, 20_000]),
    st.sampled_from(["text", "zeros", "noise", "records"]),
)
def test_large_batches_with_any_contents_are_split_correctly(seed: int, count: int, width: int, kind: str) -> None:
    """Values may look like records themselves, which can mislead the split."""
    rng = np.random.default_rng(seed)
    fill = {
        "text": b"some text ",
        "zeros": bytes(10),
        "noise": rng.bytes(width),
        # bytes like the start of records: a length, no attributes, growing deltas
        "records": b"".join(bytes([16, 0, 0, 2 * (i % 60), 1, 6]) + b"abc" for i in range(60)),
    }[kind]
    if width > 400:
        count = 1600
    sizes = rng.integers(0, width, count)
    value = fill * (width // len(fill) + 1)
    records = [NewRecord(b"k" if size % 3 else None, value[:size], 10**12 + i) for i, size in enumerate(sizes)]
    data = build_batch(records, base_offset=7)
    one = next(iter(Decoder("t", 3, ("value", "offset")).decode(data)))
    assert one["value"].to_pylist() == [r.value for r in records]
    assert one["offset"].to_pylist() == list(range(7, 7 + count))


@pytest.mark.parametrize("count", [16_777_217, 2**31 - 1])
def test_more_records_than_bytes_are_an_error(count: int) -> None:
    data = bytearray(build_batch([NewRecord(None, None, 0)]))
    data[57:61] = count.to_bytes(4, "big")
    with pytest.raises(CodecError, match="too short"):
        list(Decoder("t", 3, ("key",)).decode(bytes(data), check_crc=False))


def test_zeros_after_the_last_batch_start_no_record() -> None:
    """The split searches a window of two records of any batch: it may reach beyond a small batch's end."""
    large = [NewRecord(None, b"x" * 3000, 0)] * 200
    small = [NewRecord(None, None, 0)] * 3000
    data = build_batch(large) + build_batch(small, base_offset=200)
    assert sum(part.num_rows for part in Decoder("t", 3, ("value",)).decode(data)) == 3200


@settings(deadline=None)
@given(RECORDS, st.integers(0, 4), st.data())
def test_damage_is_an_error_or_read_like_record_by_record(
    records: list[NewRecord], codec: int, draw: st.DataObject
) -> None:
    data = bytearray(build_batch(records, compression=codec))
    for _ in range(draw.draw(st.integers(1, 4))):
        data[draw.draw(st.integers(43 if codec else 23, len(data) - 1))] = draw.draw(st.integers(0, 255))
    damaged = bytes(data)
    with pytest.raises(CodecError, match="CRC"):
        if damaged == build_batch(records, compression=codec):
            raise CodecError("CRC of nothing changed")
        decoded(damaged)
    decoder = Decoder("t", 3, ("key", "value", "headers"))
    try:
        found = list(decoder.decode(damaged, check_crc=False))
    except CodecError:
        return
    try:
        expected = list(iter_all_records(damaged, limit=1 << 24))
    except BatchError as e:
        if decoder.damaged:  # header keys that are not UTF-8, which are told apart here
            return
        raise AssertionError("the pipeline reads what the node refuses") from e
    rows = [row for part in found for row in part.to_pylist()]
    assert [(r["key"], r["value"]) for r in rows] == [(r.key, r.value) for r in expected]


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.tuples(st.none() | st.binary(max_size=9), st.binary(max_size=200)), min_size=1, max_size=40))
def test_batches_of_kafka_python(records: list[tuple[bytes | None, bytes]]) -> None:
    for codec in (0, 1, 2, 3, 4):
        builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
        for at, (key, value) in enumerate(records):
            builder.append(at, 10**12 + at, key, value, [("h", value[:3])])
        rows = decoded(bytes(builder.build()))
        assert [(r["key"], r["value"]) for r in rows] == records
        assert [r["headers"] for r in rows] == [[{"key": "h", "value": value[:3]}] for _, value in records]


@settings(deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_written_varints_are_read_back(values: list[int]) -> None:
    whole = np.array(values, np.int64)
    out = np.zeros((len(values), varints.MAX_BYTES), np.uint8)
    sizes = varints.sizes(whole)
    varints.write(whole, sizes, out)
    flat = out[np.arange(varints.MAX_BYTES) < sizes[:, None]]
    at = np.cumsum(sizes) - sizes
    again, after = varints.read(flat, at)
    assert again.tolist() == values
    assert (after == at + sizes).all()


def test_large_batches_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without splits the tests above would prove nothing: no walk may be as long as the batch."""
    walks = []
    walk = starts._walk

    def watched(data: Any, at: Any, stop: Any) -> Any:
        walks.append(len(at))
        return walk(data, at, stop)

    monkeypatch.setattr(starts, "_walk", watched)
    data = build_batch([NewRecord(b"key", b"value" * (i % 20), 10**12 + i) for i in range(10_000)])
    list(Decoder("t", 3, ("value",)).decode(data))
    assert len(walks) == 1
    assert walks[0] > 50
