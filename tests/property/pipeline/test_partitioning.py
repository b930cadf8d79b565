"""Keys go to the partitions that Java's and librdkafka's compatible partitioners choose."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as theirs

from kraft_pipeline.codec.partitioning import murmur2, of_keys


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1), st.integers(0, 3))
def test_murmur2_equals_kafkas(keys: list[bytes], skipped: int) -> None:
    found = murmur2(pa.array(keys, pa.binary()).slice(skipped))
    assert [int(h) for h in found] == [theirs(key) & 0xFFFFFFFF for key in keys[skipped:]]


def test_rows_without_a_key_go_to_the_given_partition() -> None:
    keys = pa.array([b"a", None, b"", b"a longer key"], pa.binary())
    expected = [(theirs(key) & 0x7FFFFFFF) % 7 for key in (b"a", b"", b"a longer key")]
    assert of_keys(keys, 7, 5).tolist() == [expected[0], 5, *expected[1:]]
    assert of_keys(pa.nulls(3, pa.binary()), 7, 2).tolist() == [2, 2, 2]
