"""Intervals of medians, verdicts and aims."""

from __future__ import annotations

import itertools
import statistics

import pytest

from bench.report.intervals import BETTER, NOISE, UNJUDGED, WORSE, median_interval, ratios, reaches, verdict


def test_the_interval_of_five_values_is_their_range() -> None:
    found = median_interval([3, 1, 2, 5, 4])
    assert (found.median, found.low, found.high, found.count) == (3, 1, 5, 5)
    assert found.coverage == 1 - 2 / 32


def test_more_values_allow_a_narrower_interval_of_the_same_confidence() -> None:
    found = median_interval(range(1, 12))
    assert (found.low, found.high) == (2, 10)
    assert found.coverage >= 0.95
    assert 1 - 2 * sum((1, 11, 55)) / 2**11 < 0.95, "the next narrower interval would not cover enough"


def test_coverage_is_exact_for_every_order_of_sides() -> None:
    """Each value lies below or above the median with equal probability: count the cases that the interval covers."""
    count = 7
    found = median_interval(range(count))
    rank = int(found.low) + 1
    held = sum(rank <= sum(sides) <= count - rank for sides in itertools.product((0, 1), repeat=count))
    assert found.coverage == held / 2**count


def test_an_interval_of_a_single_value_has_no_coverage() -> None:
    assert median_interval([7]).coverage == 0


def test_an_interval_without_values_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        median_interval([])


def test_ratios_use_the_rounds_that_both_servers_have() -> None:
    assert ratios({1: 10, 2: 40, 4: 8}, {1: 10, 2: 20, 3: 5, 4: 0}) == [1, 2]


@pytest.mark.parametrize(
    ("values", "more_is_better", "expected"),
    [
        ([1.1, 1.2, 1.3, 1.4, 1.5], True, BETTER),
        ([1.1, 1.2, 1.3, 1.4, 1.5], False, WORSE),
        ([0.5, 0.6, 0.7, 0.8, 0.9], False, BETTER),
        ([0.5, 0.6, 0.7, 0.8, 0.9], True, WORSE),
        ([0.99, 1.2, 1.3, 1.4, 1.5], True, NOISE),
        ([0.1, 0.1, 0.1, 0.1], False, UNJUDGED),
    ],
)
def test_a_verdict_needs_the_whole_interval_on_one_side(
    values: list[float], more_is_better: bool, expected: str
) -> None:
    assert verdict(median_interval(values), more_is_better=more_is_better) == expected


@pytest.mark.parametrize(
    ("values", "aim", "more_is_better", "expected"),
    [
        ([1.3, 1.4, 1.5, 1.6, 1.7], 1.3, True, "yes"),
        ([1.1, 1.2, 1.5, 1.6, 1.7], 1.3, True, "yes, unsure"),
        ([1.1, 1.2, 1.25, 1.6, 1.7], 1.3, True, "no, unsure"),
        ([0.1, 0.1, 0.1, 0.1, 0.15], 0.15, False, "yes"),
        ([0.2, 0.3, 0.3, 0.3, 0.3], 0.15, False, "no"),
    ],
)
def test_an_aim_is_reached_by_the_median_and_its_interval(
    values: list[float], aim: float, more_is_better: bool, expected: str
) -> None:
    assert reaches(median_interval(values), aim, more_is_better=more_is_better) == expected
    assert statistics.median(values) == median_interval(values).median
