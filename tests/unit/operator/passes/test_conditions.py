"""Messages to people name the voter, partition or pod."""

from __future__ import annotations

from kraft_operator.plan.conditions import conditions
from kraft_operator.plan.model.situation import situation
from tests.unit.operator.world import World, made, wanted


def _told(world: World) -> dict[str, tuple[str, str, str]]:
    s = situation(world.record, world.wanted, world.observe())
    return {told.type: (told.status, told.reason, told.message) for told in conditions(s, world.last)}


def test_a_healthy_cluster_is_ready() -> None:
    world = made()
    world.step()
    told = _told(world)
    assert {name: status for name, (status, _, _) in told.items()} == {
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
    told = _told(world)
    assert told["QuorumHealthy"][:2] == ("False", "VotersBehind")
    assert "voter 3" in told["QuorumHealthy"][2]
    assert "voter 3" in told["Ready"][2]
    assert told["Degraded"][1] == "VolumeLost"


def test_waiting_for_approval_is_not_degraded() -> None:
    world = made()
    world.wanted = wanted(image="b", supervised=True, revision="r1")
    world.step()
    told = _told(world)
    assert told["Paused"][1] == "ApprovalNeeded"
    assert told["Degraded"][0] == "False"


def test_an_unknown_cluster_has_unknown_conditions() -> None:
    told = {one.type: one for one in conditions(None, World(wanted()).last)}
    assert told["Ready"].status == "Unknown"
    assert told["QuorumHealthy"].status == "Unknown"
