"""A rate against a simple one, and the throttle time that it requires."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kraft_node.base.rates import THROTTLE_MS_MAX, Rate
from tests.peer import run_java

ORACLE = Path(__file__).parents[2] / "java" / "RateOracle.java"


def test_missing_windows_count_as_idle() -> None:
    """11 windows of a second: current use is spread over ten seconds, as in Kafka's Rate."""
    rate = Rate(11, 1000)
    rate.record(10_000, 5)
    assert rate.throttle_ms(1000, 5) == 0
    rate.record(1, 5)
    assert rate.throttle_ms(1000, 5) == 1
    rate.record(4_999, 5)
    assert rate.throttle_ms(1000, 5) == 5_000


@pytest.mark.parametrize("limit", [0.0, 5e-324, 1e-300])
def test_the_pause_for_any_small_limit_fits_an_answer(limit: float) -> None:
    """The quotient of the smallest limits is infinite: each Produce and Fetch of the client failed."""
    rate = Rate(11, 1000)
    rate.record(10_000, 5)
    assert rate.throttle_ms(limit, 5) == THROTTLE_MS_MAX


@pytest.mark.peer
def test_rates_equal_those_of_kafkas_classes() -> None:
    rng = random.Random(3)
    windows, window_ms, limit = 11, 1000, 700
    rate, now_ms = Rate(windows, window_ms), 1_000_000
    asked, ours = [], []
    for _ in range(3_000):
        now_ms += rng.choice([0, 1, 30, 200, 900, 1_500, 20_000] if rng.random() < 0.1 else [0, 1, 50, 150])
        value = rng.choice([1, 20, 50, 500, -20])
        rate.record(value, now_ms)
        asked.append(f"{value} {now_ms}")
        ours.append(str(rate.throttle_ms(limit, now_ms)))
    text = "\n".join([f"{windows} {window_ms} {limit}", *asked, ""])
    found = run_java(str(ORACLE), stdin=text.encode()).stdout.decode().split()
    assert sum(one != "0" for one in ours) > 500
    assert ours == found


def test_samples_older_than_all_windows_expire() -> None:
    rate = Rate(3, 1000)
    rate.record(9_000, 0)
    assert rate.throttle_ms(1, 2_999) > 0
    assert rate.throttle_ms(1, 3_000) == 0


def test_a_limit_of_zero_throttles_for_the_longest_time() -> None:
    rate = Rate(11, 1000)
    rate.record(1, 0)
    assert rate.throttle_ms(0, 0) == THROTTLE_MS_MAX
