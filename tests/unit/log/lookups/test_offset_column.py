"""Offsets of a topic's partitions as an array of numbers that behaves like a dict."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft_node.log.checkpoints.offsets import CheckpointError, parse_offsets
from kraft_node.log.resting.offset_column import OffsetColumn

NUMBERS = st.one_of(st.integers(0, 12), st.integers(0, 2000), st.integers(-3, 2**40))
OFFSETS = st.integers(0, 2**63 - 1)
STEPS = st.lists(st.tuples(NUMBERS, st.one_of(st.none(), OFFSETS)))


@given(STEPS)
def test_an_offset_column_behaves_like_a_dict(steps: list[tuple[int, int | None]]) -> None:
    column, expected = OffsetColumn(), dict[int, int]()
    for number, offset in steps:
        if offset is None:
            assert column.pop(number, None) == expected.pop(number, None)
        else:
            column[number] = expected[number] = offset
        assert len(column) == len(expected)
        assert (number in column) == (number in expected)
        assert column.get(number) == expected.get(number)
    assert column == expected
    assert column.to_dict() == expected
    assert sorted(column) == sorted(expected)


@given(st.permutations(range(0, 400, 7)))
def test_numbers_far_apart_are_kept_in_any_order(numbers: list[int]) -> None:
    column = OffsetColumn()
    for number in numbers:
        column[number] = number + 1
    assert column.to_dict() == {number: number + 1 for number in numbers}


@pytest.mark.parametrize("line", ["t 0 9223372036854775808", "t 99999999999 9223372036854775808", "t x 1"])
def test_a_checkpoint_with_an_impossible_number_is_damaged(line: str) -> None:
    with pytest.raises(CheckpointError):
        parse_offsets(f"0\n1\n{line}\n".encode())


def test_a_checkpoint_with_a_huge_partition_number_takes_no_memory() -> None:
    assert parse_offsets(b"0\n1\nt 2147483647 5\n")["t"] == {2147483647: 5}
