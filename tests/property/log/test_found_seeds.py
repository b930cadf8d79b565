"""Seeds of the model of a log that moves (`test_manager_model`) that once found something."""

from __future__ import annotations

import pytest

from tests.property.log.test_manager_model import run


@pytest.mark.parametrize("seed", [1164, 1488, 2091])
def test_records_of_aborted_transactions_count_for_no_key(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model counted them as the latest records of their keys."""
    run(seed, monkeypatch)


@pytest.mark.parametrize("seed", [1025, 1056])
def test_a_log_in_its_recovery_lane_is_waited_for(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run(seed, monkeypatch)


@pytest.mark.parametrize("seed", [2374, 2402, 2485, 2492, 2540])
def test_compaction_keeps_the_records_of_a_batch_in_which_the_log_starts(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(seed, monkeypatch)


@pytest.mark.parametrize("seed", [2282, 2391, 2979, 3625])
def test_a_copy_goes_on_from_a_gap_and_may_lack_what_its_log_knows(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run(seed, monkeypatch)


@pytest.mark.parametrize("seed", [2677])
def test_a_time_index_that_a_loss_of_power_has_shortened_is_made_anew(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(seed, monkeypatch)


@pytest.mark.parametrize("seed", [1225])
def test_a_flush_does_not_hide_what_a_copy_may_have_lost(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of a compacted log came back with a hole, and a clean stop flushed it before the move went on."""
    run(seed, monkeypatch)
