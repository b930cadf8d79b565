"""Pauses between attempts."""

from __future__ import annotations

from kraft_protocol.client.backoff import PAUSE_S_MAX, PAUSE_S_MIN, Backoff, Pauses


def test_pauses_double_up_to_the_maximum_and_reset_after_a_success() -> None:
    pauses = Pauses(20, 100)
    assert [pauses.take() for _ in range(5)] == [20, 40, 80, 100, 100]
    pauses.reset()
    assert pauses.take() == 20


def test_a_backoff_ends_at_its_deadline() -> None:
    backoff = Backoff(10, now=100)
    assert backoff.pause(100) == PAUSE_S_MIN
    assert backoff.pause(100) == 2 * PAUSE_S_MIN
    for _ in range(10):
        backoff.pause(100)
    assert backoff.pause(100) == PAUSE_S_MAX
    assert backoff.pause(109.5) == 0.5
    assert backoff.pause(110) is None
