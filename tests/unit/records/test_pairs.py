"""Batches of keys and values: the same bytes and records as of the general functions, whatever the form."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_protocol.records.batch import HEADER_SIZE, NewRecord, build_batch, iter_headers, iter_records
from kraft_protocol.records.errors import BatchError
from kraft_protocol.records.pairs import pair_batch, pairs_in

SIZES = st.sampled_from([0, 1, 31, 63, 64, 127, 128, 8_190, 8_192, 20_000]) | st.integers(0, 200)
RECORDS = st.builds(
    NewRecord,
    key=st.none() | SIZES.map(lambda size: b"k" * size),
    value=st.none() | SIZES.map(lambda size: b"v" * size),
    timestamp=st.integers(1_000, 20_000),
    headers=st.just(()) | st.just((("h", b"x"),)),
    offset=st.none(),
)


def generally(data: bytes) -> list[object]:
    return [
        (record.offset, record.key, record.value)
        for header in iter_headers(data)
        for record in iter_records(data, header)
    ]


def directly(data: bytes) -> list[object]:
    return [pair for header in iter_headers(data) for pair in pairs_in(data, header)]


@pytest.mark.parametrize("count", [1, 2, 70])
def test_a_batch_of_pairs_equals_the_general_batch(count: int) -> None:
    pairs = [(b"k" * (number * 7), None if number % 3 == 2 else b"v" * (number * 11)) for number in range(count)]
    data = pair_batch(pairs, 1_700_000_000_000)
    assert data == build_batch(pairs, timestamp=1_700_000_000_000)
    assert directly(data + data) == generally(data + data)


@given(st.lists(RECORDS, min_size=1, max_size=5), st.sampled_from([0, 1]), st.integers(0, 2**40))
def test_all_records_are_read_as_by_the_general_reader(records: list[NewRecord], codec: int, base: int) -> None:
    data = build_batch(records, compression=codec, base_offset=base)
    assert directly(data + data) == generally(data + data)


@pytest.mark.parametrize("count", [1, 3])
def test_damage_is_found_as_by_the_general_reader(count: int) -> None:
    """Any byte of the records may be wrong, and the last bytes may be those of the next batch."""
    good = pair_batch([(b"key", b"value" * 20), (b"other", None), (b"k", b"")][:count], 5)
    rng = random.Random(1)
    different = 0
    for place in range(HEADER_SIZE, len(good)):
        for _ in range(20):
            data = bytearray(good * 2)
            data[place] = rng.randrange(256)
            outcomes = []
            for read in (generally, directly):
                try:
                    outcomes.append(read(bytes(data)))
                except BatchError as error:
                    outcomes.append([type(error), str(error)])
            assert outcomes[0] == outcomes[1], place
            different += outcomes[0] != generally(good * 2)
    assert different > 100
