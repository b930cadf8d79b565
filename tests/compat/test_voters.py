"""Voters that come and go while the quorum runs (KIP-853), by Apache Kafka's tool, and by themselves."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.members import Members, directory_id, wait_for
from tests.compat.tools import run_tool

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("mixed")]

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
OURS, APACHE = "kraftcluster", "apache"
MakeMembers = Callable[..., Members]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeMembers]:
    made: list[Members] = []

    def build(controllers: tuple[str, ...], brokers: tuple[str, ...] = (OURS,), **settings: Any) -> Members:
        made.append(Members(tmp_path, controllers, brokers, dynamic=True, **settings))
        return made[-1]

    yield build
    for members in made:
        members.stop()


def _voters(members: Members) -> list[int]:
    return sorted(voter.replica_id for voter in wait_for("a leader", members.quorum).current_voters)


def _observes(members: Members, node_id: int) -> bool:
    quorum = wait_for("a leader", members.quorum)
    return any(
        observer.replica_id == node_id and observer.log_end_offset >= quorum.high_watermark
        for observer in quorum.observers
    )


@pytest.mark.parametrize("kinds", [(OURS, OURS, OURS), (OURS, APACHE, OURS), (APACHE, OURS, OURS)])
def test_a_controller_joins_and_another_one_leaves(make: MakeMembers, kinds: tuple[str, ...]) -> None:
    """Two voters, and a third that joins; then the one that leads is taken out."""
    members = make(kinds, joining=1).start()
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


def test_controllers_join_by_themselves_and_after_the_loss_of_a_disk(make: MakeMembers) -> None:
    members = make((OURS, OURS, OURS), joining=2)
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
