"""A replacement runs once under its name, even if the resource that requested it is deleted or restored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.record import Record
from kraft_operator.plan.model.wanted import ReplacementRequest
from kraft_operator.plan.planner import plan
from tests.unit.operator.world import CLUSTER, World, made, wanted

ASKED = (
    ReplacementRequest("disk", 2, "EmptyDisk"),
    ReplacementRequest("broker", 102, "EmptyDisk", frozenset({"DataLoss"})),
)


def _replaced() -> World:
    world = made()
    world.wanted = wanted(replacements=ASKED)
    world.settle()
    assert {item.name for item in world.record.replacements if item.done} == {"disk", "broker"}
    world.done.clear()
    return world


def _assert_nothing_happened(world: World) -> None:
    world.settle()
    disks = {node.id: node.disk for node in world.record.nodes}
    assert (disks[2], disks[102], max(disks.values())) == (1, 1, 1)
    assert not world.actions(do.Stop)
    assert not world.actions(do.Format)


def test_reapplying_the_resource_does_not_repeat_replacements() -> None:
    """The record is lost with the status; the volumes were kept."""
    world = _replaced()
    world.record = Record()
    for node_id in list(world.pods):
        world.kill(node_id)
    _assert_nothing_happened(world)
    assert {item.name for item in world.record.replacements if item.done} == {"disk", "broker"}


def test_an_older_record_does_not_repeat_a_replacement() -> None:
    """The record comes from an older backup: the claims show that the replacement was carried out."""
    world = _replaced()
    world.record = replace(world.record, replacements=())
    _assert_nothing_happened(world)


def test_replacements_in_the_first_specification_count_as_done() -> None:
    world = World(wanted(replacements=ASKED))
    world.settle()
    assert {node.disk for node in world.record.nodes} == {0}
    assert {item.name for item in world.record.replacements if item.done} == {"disk", "broker"}


def test_after_reapplying_a_new_name_is_a_new_request() -> None:
    world = _replaced()
    world.record = Record()
    for node_id in list(world.pods):
        world.kill(node_id)
    world.settle()
    world.wanted = wanted(replacements=(*ASKED, ReplacementRequest("again", 2, "EmptyDisk")))
    world.settle()
    assert {node.id: node.disk for node in world.record.nodes}[2] == 2


def test_a_replacement_by_another_id_is_not_repeated_with_an_older_record() -> None:
    world = made()
    world.wanted = wanted(replacements=(ReplacementRequest("host", 3, "NewId"),))
    world.settle()
    ids = [node.id for node in world.record.nodes]
    assert 3 not in ids
    world.record = replace(world.record, replacements=())
    world.wanted = wanted(replacements=(ReplacementRequest("host", 4, "NewId"),))
    world.settle()
    assert [node.id for node in world.record.nodes] == ids


@pytest.mark.parametrize(
    ("request_", "remembered"),
    [
        (ReplacementRequest("disk", 3, "EmptyDisk"), True),
        (ReplacementRequest("disk", 2, "NewId"), True),
        (ReplacementRequest("disk", 3, "EmptyDisk"), False),
    ],
    ids=["other node", "other way", "other node than the claims tell"],
)
def test_a_finished_name_cannot_be_used_for_another_replacement(request_: ReplacementRequest, remembered: bool) -> None:
    world = _replaced()
    if not remembered:
        world.record = replace(world.record, replacements=())
    world.wanted = wanted(replacements=(request_, ReplacementRequest("next", 102, "EmptyDisk")))
    while not world.actions(do.Stop):
        world.step()
        if world.last.blocked:
            break
    (blocked,) = world.last.blocked
    assert blocked.reason == "ReplacementRefused"
    assert f"replacement disk of node {request_.node}: " in blocked.message
    assert "node 2" in blocked.message and "another name" in blocked.message
    for _ in range(60):
        world.step()
    assert {node.id: node.disk for node in world.record.nodes} == {1: 0, 2: 1, 3: 0, 101: 0, 102: 2, 103: 0}


def test_risks_accepted_for_another_node_do_not_count() -> None:
    world = made()
    world.wanted = wanted(replacements=(ReplacementRequest("disk", 102, "EmptyDisk"),))
    while not world.record.replacements:
        world.step()
    world.partitions["t", 0].isr = {102}
    for node_id, stops in ((103, False), (102, True)):
        asked = ReplacementRequest("disk", node_id, "EmptyDisk", frozenset({"DataLoss"}))
        found = plan(world.record, wanted(replacements=(asked,)), world.observe(), CLUSTER)
        assert any(isinstance(step, do.Stop) for step in found.steps) is stops


@pytest.mark.parametrize("accepted", [frozenset(), frozenset({"DataLoss"})])
def test_a_replacement_continues_after_its_request_is_withdrawn(accepted: frozenset[str]) -> None:
    """An accepted replacement is remembered from its start; a request that comes back later changes nothing."""
    world = made()
    world.wanted = wanted(replacements=(ReplacementRequest("disk", 102, "EmptyDisk", accepted),))
    while not world.record.replacements:
        world.step()
    world.wanted = wanted()
    world.settle()
    (item,) = world.record.replacements
    assert item.done
    assert item.accept == accepted


def test_a_cluster_that_lost_all_volumes_is_not_recreated() -> None:
    world = made()
    for node_id in list(world.pods):
        world.lose_host(node_id)
    world.step()
    (blocked,) = world.last.blocked
    assert blocked.reason == "VolumesGone"
    assert not world.last.steps
