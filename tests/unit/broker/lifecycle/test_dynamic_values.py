"""Broker keys that change at run time reach the coordinators."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.broker.lifecycle.rig import Rig, config


@pytest.mark.parametrize("node_id", ["1", ""])
def test_verification_of_transactions_can_be_turned_off_at_run_time(tmp_path: Path, node_id: str) -> None:
    rig = Rig(tmp_path)
    rig.run_up()
    assert rig.broker.verifier.is_enabled
    rig.commit([config(4, node_id, "transaction.partition.verification.enable", "false")])
    assert not rig.broker.verifier.is_enabled
    rig.commit([config(4, node_id, "transaction.partition.verification.enable", None)])
    assert rig.broker.verifier.is_enabled


@pytest.mark.parametrize("node_id", ["1", ""])
def test_the_assignment_interval_of_consumer_groups_changes_at_run_time(tmp_path: Path, node_id: str) -> None:
    rig = Rig(tmp_path)
    rig.run_up()
    before = rig.broker.group_settings.times("g")
    rig.commit([config(4, node_id, "group.consumer.assignment.interval.ms", "7777")])
    assert rig.broker.group_settings.times("g") == before._replace(assignment_interval_ms=7777)
    rig.commit([config(4, node_id, "group.consumer.assignment.interval.ms", None)])
    assert rig.broker.group_settings.times("g") == before
