"""Seeds of the model of a log that moves (`test_manager_model`) that once found something."""

from __future__ import annotations

import pytest

from tests.property.log.test_manager_model import run


@pytest.mark.parametrize("seed", [1164, 1488, 2091])
def test_records_of_aborted_transactions_do_not_count_as_latest(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model counted them as the latest records of their keys."""
    run(seed, monkeypatch)


@pytest.mark.parametrize("seed", [1025, 1056])
def test_the_model_waits_for_a_log_in_recovery(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run(seed, monkeypatch)


@pytest.mark.parametrize("seed", [2374, 2402, 2485, 2492, 2540])
def test_compaction_keeps_latest_records_of_the_first_batch(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run(seed, monkeypatch)


@pytest.mark.parametrize("seed", [2282, 2391, 2979, 3625])
def test_a_copy_continues_from_a_gap_and_may_lack_records(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run(seed, monkeypatch)


@pytest.mark.parametrize("seed", [2677])
def test_a_time_index_shortened_by_a_power_loss_is_rebuilt(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run(seed, monkeypatch)


@pytest.mark.parametrize("seed", [1225])
def test_a_flush_of_a_copy_does_not_hide_lost_records(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of a compacted log came back with a hole, and a clean stop flushed it before the move went on."""
    run(seed, monkeypatch)
