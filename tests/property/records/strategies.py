"""Random records for Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from kraft_protocol.records.batch import NewRecord

HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=10)), max_size=3)


def lists_of_records(most: int) -> st.SearchStrategy[list[NewRecord]]:
    """One to `most` records without offsets of their own."""
    key, value = st.none() | st.binary(max_size=50), st.none() | st.binary(max_size=300)
    one = st.builds(NewRecord, key, value, st.integers(0, 2**41), HEADERS, st.none())
    return st.lists(one, min_size=1, max_size=most)
