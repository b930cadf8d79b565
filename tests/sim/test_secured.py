"""Clusters with SASL on all listeners under some seeds of faults; `make sim-secured SEEDS=n` runs more."""

from __future__ import annotations

from tests.sim.seeds import checked

KIND = "secured"
SEEDS = 5


def test_unknown_clients_are_refused_and_known_clients_make_progress() -> None:
    acknowledged = read = 0
    for seed in range(SEEDS):
        result = checked(seed, KIND)
        acknowledged += result.acknowledged
        read += result.read
    assert acknowledged > 150, "producers got on"
    assert read > 500, "consumers read"


def test_a_moved_voter_reports_its_address_though_its_sessions_end_early() -> None:
    """Each closed connection made it campaign, and then wait again, so the voters never learned its address."""
    checked(41270, KIND)
