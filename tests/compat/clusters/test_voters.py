"""Voters that join and leave a running quorum (KIP-853), by Apache Kafka's tool and by themselves."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.compat.members import MakeMembers, Members, directory_id, wait_for
from tests.compat.tools import run_tool

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("mixed")]

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
OURS, APACHE = "kraftcluster", "apache"


def _dynamic(make: MakeMembers, controllers: tuple[str, ...], **settings: Any) -> Members:
    return make(controllers, (OURS,), dynamic=True, **settings)


def _voters(members: Members) -> list[int]:
    return sorted(voter.replica_id for voter in wait_for("a leader", members.quorum).current_voters)


def _observes(members: Members, node_id: int) -> bool:
    quorum = wait_for("a leader", members.quorum)
    return any(
        observer.replica_id == node_id and observer.log_end_offset >= quorum.high_watermark
        for observer in quorum.observers
    )


@pytest.mark.parametrize(
    "kinds",
    [(OURS, OURS, OURS), (OURS, APACHE, OURS), pytest.param((APACHE, OURS, OURS), marks=pytest.mark.slow)],
)
def test_a_controller_joins_and_another_leaves(make: MakeMembers, kinds: tuple[str, ...]) -> None:
    """Two voters, and a third that joins; then the leader is removed."""
    members = _dynamic(make, kinds, joining=1).start()
    members.create("two-voters")
    assert _voters(members) == [1, 2]
    wait_for("the third one has caught up", lambda: _observes(members, 3))
    where = ("--bootstrap-controller", members.bootstrap_controllers)
    config = str(members.nodes[3].folder / "server.properties")
    added = run_tool(QUORUM, "--command-config", config, *where, "add-controller").text
    assert "Added controller 3" in added
    wait_for("three voters", lambda: _voters(members) == [1, 2, 3])
    members.create("three-voters")

    first = members.leader()
    shown = re.search(
        rf'"id": {first}, "directoryId": "([^"]+)"', run_tool(QUORUM, *where, "describe", "--status").text
    )
    assert shown is not None
    assert first == 3 or shown[1] == directory_id(first)
    removed = run_tool(
        QUORUM, *where, "remove-controller", "--controller-id", str(first), "--controller-directory-id", shown[1]
    ).text
    assert f"KRaft controller {first} with directory id {shown[1]}" in removed
    wait_for("two voters", lambda: _voters(members) == sorted({1, 2, 3} - {first}))
    members.nodes[first].kill()
    members.create("two-voters-again")
    assert members.leader() != first


def test_controllers_join_automatically_even_after_losing_a_disk(make: MakeMembers) -> None:
    members = _dynamic(make, (OURS, OURS, OURS), joining=2)
    for node_id in members.controller_ids:
        members.nodes[node_id].overrides["controller.quorum.auto.join.enable"] = "true"
    members.start()
    wait_for("all have joined", lambda: _voters(members) == [1, 2, 3])
    members.create("three-voters")
    lost = next(i for i in (2, 3) if i != members.leader())
    members.nodes[lost].kill()
    members.nodes[lost].wipe()
    members.start(lost)
    members.create("with-a-new-disk")

    def is_back() -> bool:
        voters = {v.replica_id: v.log_end_offset for v in members.quorum().current_voters}
        return sorted(voters) == [1, 2, 3] and voters[lost] >= members.quorum().high_watermark - 1

    wait_for("the one with a new disk votes again", is_back)
    other = ({1, 2, 3} - {lost, members.leader()}).pop()
    members.nodes[other].kill()
    members.create("by-the-two-others")


def _status(where: tuple[str, ...]) -> str:
    """The quorum's status by Apache's tool; empty while the tool is refused."""
    done = run_tool(QUORUM, *where, "describe", "--status", check=False)
    return done.text if done.code == 0 else ""


def _have_lead(members: Members, wanted: set[int]) -> None:
    """Make a node of `wanted` the leader: restart other leaders until it leads."""
    for _ in range(20):
        leader = members.leader()
        if leader in wanted:
            return
        wait_for("all are caught up", lambda: members.all_have(wait_for("a leader", members.quorum).high_watermark))
        members.nodes[leader].kill()
        members.leader()
        members.nodes[leader].launch()
    raise AssertionError(f"none of {wanted} leads")


@pytest.mark.parametrize(
    ("kinds", "leaders"),
    [
        ((OURS, OURS, OURS), {1, 2, 3}),
        pytest.param((OURS, APACHE, OURS), {1, 3}, marks=pytest.mark.slow),
        pytest.param((OURS, APACHE, OURS), {2}, marks=pytest.mark.slow),
    ],
)
def test_a_static_quorum_becomes_dynamic(make: MakeMembers, kinds: tuple[str, ...], leaders: set[int]) -> None:
    """Apache's tool raises kraft.version from 0 to 1 in a running quorum; then restarts, and a voter is removed."""
    members = make(kinds, (OURS,)).start()
    members.create("static")
    _have_lead(members, leaders)
    where = ("--bootstrap-controller", members.bootstrap_controllers)
    refused = run_tool(FEATURES, *where, "upgrade", "--feature", "kraft.version=2", check=False)
    assert refused.code != 0
    assert "kraft.version" in refused.text

    def upgraded() -> bool:
        """Upgrade; voters report themselves to the leader seconds after its election; until then it refuses."""
        answer = run_tool(FEATURES, *where, "upgrade", "--feature", "kraft.version=1", check=False).text
        return "was upgraded to 1" in answer

    wait_for("kraft.version 1", upgraded, 120)
    described = run_tool(FEATURES, *where, "describe").text
    assert re.search(r"kraft.version.*FinalizedVersionLevel: 1", described), described
    members.create("dynamic")
    assert _voters(members) == [1, 2, 3]

    first = members.leader()
    members.nodes[first].kill()
    members.create("without-its-first-leader")
    members.nodes[first].launch()
    wait_for("it is back", lambda: members.all_have(wait_for("a leader", members.quorum).high_watermark), 120)
    for node_id in members.controller_ids:
        members.nodes[node_id].kill()
    for node_id in members.controller_ids:
        members.nodes[node_id].launch()
    wait_for("all controllers anew", lambda: members.quorum() and _voters(members) == [1, 2, 3], 120)
    members.create("after-all-were-stopped")

    gone = next(n for n in members.controller_ids if n != members.leader())
    # A controller of Apache's that has just started refuses the tool until it has loaded the metadata.
    text = wait_for("the quorum's status", lambda: _status(where), 120)
    shown = re.search(rf'"id": {gone}, "directoryId": "([^"]+)"', text)
    assert shown is not None, f"the voters' directories are stated: {text}"
    remove = ("remove-controller", "--controller-id", str(gone), "--controller-directory-id", shown[1])

    def removed() -> bool:
        """Remove a voter. Voters change one at a time, and a controller's report of new endpoints is a change."""
        run_tool(QUORUM, *where, *remove, check=False)
        return _voters(members) == sorted({1, 2, 3} - {gone})

    wait_for("two voters", removed, 120)
