"""Disruption budgets let a drain continue once ISRs and quorum have recovered; lost machines are named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft_operator.observe.objects import pod
from kraft_operator.plan.conditions import conditions
from kraft_operator.plan.model import observed as seen
from kraft_operator.plan.model.situation import situation
from kraft_operator.plan.model.steps import Plan
from kraft_operator.plan.model.wanted import ReplacementRequest
from kraft_operator.plan.planner import plan
from kraft_operator.specs.network import disruption_budgets
from tests.unit.operator.sample import sample
from tests.unit.operator.world import World, made, wanted


def _planned(world: World, observed: seen.Observed | None = None) -> Plan:
    return plan(world.record, world.wanted, observed or world.observe(), "x")


def test_a_settled_cluster_holds_no_role() -> None:
    assert _planned(made()).held == frozenset()


def test_evictions_of_brokers_wait_until_isrs_have_recovered() -> None:
    """The evicted broker is ready again long before its replicas are in sync."""
    world = made()
    world.kill(102)
    held = []
    while not held or "broker" in held[-1]:
        world.step()
        held.append(world.last.held)
        if "broker" not in world.last.held:
            assert all(len(partition.isr) == 3 for partition in world.partitions.values())
    assert world.pods[102].ready


def test_evictions_of_controllers_wait_while_a_voter_lags() -> None:
    world = made()
    world.kill(2)
    world.step()
    world.step()
    assert "controller" in world.last.held


def test_topics_with_one_replica_block_no_eviction() -> None:
    world = made()
    world.make_topics(rf=1, count=3)
    assert _planned(world).held == frozenset()


def test_an_unknown_view_blocks_evictions() -> None:
    world = made()
    observed = world.observe()
    assert _planned(world, replace(observed, metadata=seen.Aged())).held == {"broker"}
    assert _planned(world, replace(observed, quorum=seen.Aged())).held == {"controller"}
    assert Plan().held == {"controller", "broker"}


@pytest.mark.parametrize(("held", "stay"), [(set(), (2, 2)), ({"broker"}, (2, 3)), ({"controller", "broker"}, (3, 3))])
def test_a_budget_permits_no_eviction_of_a_held_role(held: set[str], stay: tuple[int, int]) -> None:
    budgets = {
        one["metadata"]["name"]: one["spec"]["minAvailable"]
        for one in disruption_budgets(sample(), made().record.nodes, frozenset(held))
    }
    assert (budgets["sample-controllers"], budgets["sample-brokers"]) == stay


# Machines


def _lost(world: World, *nodes: int, terminating: bool = False) -> seen.Observed:
    observed = world.observe()
    kube = observed.kube.value
    assert kube is not None
    pods = {
        i: replace(one, ready=False, lost=True, machine="lab2", terminating=terminating) if i in nodes else one
        for i, one in kube.pods.items()
    }
    return replace(observed, kube=replace(observed.kube, value=replace(kube, pods=pods)))


def test_a_lost_machine_is_named_with_its_nodes_and_the_remedy() -> None:
    world = made()
    observed = _lost(world, 3, 102)
    found = _planned(world, observed)
    reported = {one.type: one for one in conditions(situation(world.record, world.wanted, observed), found)}
    assert (reported["Degraded"].status, reported["Degraded"].reason) == ("True", "MachineLost")
    for word in ("lab2", "voter 3, broker 102", "out-of-service", "--force"):
        assert word in reported["Degraded"].message
    assert "nothing is left" not in reported["Progressing"].message


def test_a_replacement_that_waits_for_a_lost_machine_names_it() -> None:
    world = made()
    world.wanted = wanted(replacements=(ReplacementRequest("disk", 3, "EmptyDisk"),))
    while not world.record.replacements:
        world.step()
    found = _planned(world, _lost(world, 3, terminating=True))
    assert any("voter 3 stops on machine lab2, which does not answer" in text for text in found.waits)
    assert any(one.reason == "MachineLost" for one in found.blocked)


def test_a_waiting_cluster_is_progressing() -> None:
    world = made()
    world.pods[103].broken = True
    observed = world.observe()
    s = situation(world.record, world.wanted, observed)
    reported = {one.type: one for one in conditions(s, Plan())}
    assert reported["Progressing"].status == "True"
    assert "broker 103" in reported["Progressing"].message


@pytest.mark.parametrize(("containers", "lost"), [("True", True), ("False", False), (None, False)])
def test_a_pod_is_lost_if_only_kubernetes_calls_it_unready(containers: str | None, lost: bool) -> None:
    reported = [{"type": "Ready", "status": "False"}]
    reported += [{"type": "ContainersReady", "status": containers}] if containers else []
    found = pod({"metadata": {}, "spec": {"nodeName": "lab2"}, "status": {"conditions": reported}})
    assert (found.lost, found.machine) == (lost, "lab2")
    assert ("lab2" in found.message) == lost
