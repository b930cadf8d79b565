"""Batches made of columns contain the rows, as read by the node, kafka-python and the pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from kraft_pipeline.codec import Decoder, scan
from kraft_pipeline.codec.decode import HEADER_TYPE
from kraft_pipeline.codec.encode import encode
from kraft_protocol.client.idempotence import SEQUENCES, ProducerSequence
from kraft_protocol.records.batch import check_batch, iter_records
from tests.tiers import examples

HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=200)), max_size=3)
ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=300), st.integers(-1, 2**41), HEADERS
    ),
    min_size=1,
    max_size=60,
)


def batches(rows: list[Any], **options: Any) -> list[Any]:
    headers = [None if h is None else [{"key": k, "value": v} for k, v in h] for *_, h in rows]
    return list(
        encode(
            pa.array([row[0] for row in rows], pa.binary()),
            pa.array([row[1] for row in rows], pa.binary()),
            np.array([row[2] for row in rows], np.int64),
            pa.array(headers, HEADER_TYPE),
            **options,
        )
    )


@settings(max_examples=examples(60), deadline=None)
@given(ROWS, st.integers(0, 4), st.sampled_from([1, 300, 5000, 1 << 18]), st.integers(0, 2**31 - 1))
def test_any_rows_are_encoded_readably(rows: list[Any], codec: int, batch_bytes: int, sequence: int) -> None:
    found = []
    at = 0
    for batch in batches(rows, codec=codec, batch_bytes=batch_bytes, identity=ProducerSequence(9, 3, sequence)):
        data = batch.data
        header = check_batch(data)
        assert (header.producer_id, header.producer_epoch) == (9, 3)
        assert header.base_sequence == (sequence + at) % SEQUENCES
        assert (header.count, header.compression, batch.first) == (batch.records, codec, at)
        mine = rows[at : at + batch.records]
        assert header.max_timestamp == max(row[2] for row in mine)
        at += batch.records
        records = list(iter_records(data, header))
        assert [r.offset for r in records] == list(range(batch.records))
        found += [(r.key, r.value, r.timestamp, list(r.headers)) for r in records]
        theirs = list(DefaultRecordBatch(data))
        assert [(r.key, r.value, r.timestamp) for r in theirs] == [row[:3] for row in mine]
        assert DefaultRecordBatch(data).validate_crc()
    assert found == [(*row[:3], row[3] or []) for row in rows]


@settings(max_examples=examples(30), deadline=None)
@given(ROWS)
def test_rows_survive_a_round_trip(rows: list[Any]) -> None:
    data = b"".join(batch.data for batch in batches(rows))
    (part,) = Decoder("t", 0, ("key", "value", "headers")).decode(data)
    again = [(row["key"], row["value"], row["headers"]) for row in part.to_pylist()]
    assert again == [(k, v, [{"key": a, "value": b} for a, b in h or []] or None) for k, v, _, h in rows]


def test_batches_are_full_but_not_larger() -> None:
    rows = [(b"k" * 10, b"v" * (i % 90), 10**12 + i, None) for i in range(5000)]
    found = batches(rows, batch_bytes=16_384)
    sizes = [len(batch.data) for batch in found]
    assert max(sizes) <= 16_384
    assert sum(sizes) / len(sizes) > 8_000
    assert sum(batch.records for batch in found) == 5000


def test_sliced_columns_are_encoded_by_their_offsets() -> None:
    """As tasks get them: their offsets do not begin at 0."""
    keys = pa.array([b"a", None, b"ccc", b"d"], pa.binary()).slice(1, 2)
    values = pa.array([b"v" * i for i in range(4)], pa.binary()).slice(1, 2)
    headers = pa.array([None, [{"key": "h", "value": b"1"}], None, None], HEADER_TYPE).slice(1, 2)
    (batch,) = encode(keys, values, np.array([5, 6]), headers)
    records = list(iter_records(batch.data))
    assert [(r.key, r.value, list(r.headers)) for r in records] == [(None, b"v", [("h", b"1")]), (b"ccc", b"vv", [])]


def test_empty_rows_make_no_batch_and_null_header_keys_are_refused() -> None:
    assert batches([]) == []
    with pytest.raises(ValueError, match="a header without a key"):
        batches([(None, b"", 0, [(None, b"")])])


def test_sequences_wrap_after_the_last() -> None:
    identity = ProducerSequence(7, 2, SEQUENCES - 2)
    assert identity.after(1).sequence == SEQUENCES - 1
    assert identity.after(3).sequence == 1
    assert ProducerSequence().after(5) == ProducerSequence(-1, -1, -1)
    (header,) = scan(batches([(None, b"v", 0, None)], identity=identity)[0].data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, SEQUENCES - 2)
