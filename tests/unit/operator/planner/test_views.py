"""Law 2: a view that is unknown, too old, or older than the last step permits nothing disruptive."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.observed import Aged, Observed
from kraft_operator.plan.model.situation import AGE_MAX_MS, fresh
from kraft_operator.plan.planner import plan
from tests.unit.operator.world import CLUSTER, made, wanted


def _plan(view: Observed) -> do.Plan:
    return plan(_WORLD.record, wanted(image="b"), view, CLUSTER)


_WORLD = made()
_VIEW = _WORLD.observe()


def test_with_all_views_the_roll_starts() -> None:
    assert isinstance(_plan(_VIEW).disruptive, do.Restart)


@pytest.mark.parametrize("part", ["kube", "quorum", "metadata"])
def test_an_old_view_permits_no_restart(part: str) -> None:
    old = replace(_VIEW, **{part: replace(getattr(_VIEW, part), age_ms=AGE_MAX_MS + 1)})
    made_of = _plan(old)
    if part == "metadata":  # partitions are asked from brokers, not from a controller
        made_of = plan(_WORLD.record, wanted(rolls={101: "now"}), old, CLUSTER)
    assert made_of.disruptive is None
    assert any("unknown" in blocked.message or "not known" in blocked.message for blocked in made_of.blocked)


@pytest.mark.parametrize("part", ["kube", "quorum", "metadata"])
def test_a_missing_view_permits_no_restart_that_needs_it(part: str) -> None:
    made_of = plan(_WORLD.record, wanted(rolls={2: "now", 101: "now"}), replace(_VIEW, **{part: Aged()}), CLUSTER)
    if part == "metadata":
        assert made_of.disruptive == do.Restart((2,), "roll")
    else:
        assert made_of.disruptive is None


def test_a_view_from_before_the_last_write_permits_no_step() -> None:
    written = replace(_VIEW, kube=replace(_VIEW.kube, age_ms=500), since_write_ms=400)
    assert _plan(written).steps == []


def test_a_view_from_before_a_pod_returned_permits_no_restart() -> None:
    back = replace(
        _VIEW,
        quorum=replace(_VIEW.quorum, age_ms=500),
        metadata=replace(_VIEW.metadata, age_ms=500),
        since_pod_change_ms=400,
    )
    made_of = _plan(back)
    assert made_of.disruptive is None
    assert made_of.blocked[0].reason == "QuorumUnknown"


def test_a_view_as_old_as_allowed_counts() -> None:
    assert fresh(Aged(7, AGE_MAX_MS), newer_than_ms=AGE_MAX_MS + 1) == 7
    assert fresh(Aged(7, AGE_MAX_MS), newer_than_ms=AGE_MAX_MS) is None
