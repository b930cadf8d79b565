"""Messages to people name the voter, partition or pod."""

from __future__ import annotations

from kraft_operator.plan.conditions import conditions
from kraft_operator.plan.model.situation import situation
from tests.unit.operator.world import World, made, wanted


def _reported(world: World) -> dict[str, tuple[str, str, str]]:
    s = situation(world.record, world.wanted, world.observe())
    return {
        reported.type: (reported.status, reported.reason, reported.message) for reported in conditions(s, world.last)
    }


def test_a_healthy_cluster_is_ready() -> None:
    world = made()
    world.step()
    reported = _reported(world)
    assert {name: status for name, (status, _, _) in reported.items()} == {
        "Ready": "True",
        "QuorumHealthy": "True",
        "Progressing": "False",
        "Degraded": "False",
        "Paused": "False",
    }


def test_a_voter_that_is_down_is_named() -> None:
    world = made()
    world.lose_host(3)
    world.step()
    reported = _reported(world)
    assert reported["QuorumHealthy"][:2] == ("False", "VotersBehind")
    assert "voter 3" in reported["QuorumHealthy"][2]
    assert "voter 3" in reported["Ready"][2]
    assert reported["Degraded"][1] == "VolumeLost"


def test_waiting_for_approval_is_not_degraded() -> None:
    world = made()
    world.wanted = wanted(image="b", supervised=True, revision="r1")
    world.step()
    reported = _reported(world)
    assert reported["Paused"][1] == "ApprovalNeeded"
    assert reported["Degraded"][0] == "False"


def test_an_unknown_cluster_has_unknown_conditions() -> None:
    reported = {one.type: one for one in conditions(None, World(wanted()).last)}
    assert reported["Ready"].status == "Unknown"
    assert reported["QuorumHealthy"].status == "Unknown"


def test_a_cluster_that_hibernates_names_the_nodes_that_still_run() -> None:
    world = made()
    world.settle()
    world.wanted = wanted(hibernated=True)
    messages = {}
    for _ in range(40):
        messages[_reported(world)["Ready"][2]] = None
        world.step()
    assert list(messages) == [
        *(f"{pods} nodes still have a pod; their volumes stay" for pods in (6, 5, 4, 3, 2, 1)),
        "all nodes are stopped; their volumes stay",
    ]
