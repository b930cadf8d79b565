"""Voters in the log change one at a time, and nothing relies on a change that is not committed."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from kraft_operator.apply.kafka import carry_out
from kraft_operator.observe.kafka import View
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.observed import Quorum, Replica
from kraft_operator.plan.model.wanted import ReplacementRequest
from kraft_protocol.client.aio import Address, Client, UnreachableError
from kraft_protocol.ids import ZERO_UUID
from kraft_protocol.wire import messages as m
from tests.unit.operator.outcomes import blocked
from tests.unit.operator.world import World, wanted


def _dynamic(**changes: Any) -> World:
    world = World(wanted(static_quorum=False, **changes))
    world.settle()
    world.make_topics()
    world.settle()
    world.done.clear()
    return world


def _passes(world: World, passes: int = 10) -> None:
    for _ in range(passes):
        world.step()


def test_no_live_controller_restarts_while_voters_may_not_be_committed() -> None:
    world = _dynamic()
    world.uncommitted = True
    world.wanted = wanted(static_quorum=False, image="b")
    _passes(world)
    assert not world.actions(do.Restart)
    assert "controller 2 stays up until they are" in blocked(world, passes=0)["VotersChange"]
    world.uncommitted = False
    world.settle()
    assert sorted(i for step in world.actions(do.Restart) for i in step.nodes) == [1, 2, 3, 101, 102, 103]


def test_a_controller_that_is_down_restarts_while_voters_may_not_be_committed() -> None:
    """The commit may wait for this restart."""
    world = _dynamic()
    world.kill(3)
    world.pods.pop(3, None)
    world.uncommitted = True
    world.step()
    assert 3 in world.pods


@pytest.mark.parametrize("after", [1, 5])
def test_the_next_voter_change_waits_for_the_commit_of_the_last(after: int) -> None:
    world = _dynamic()
    world.uncommitted = True
    world.wanted = wanted(static_quorum=False, controllers=after)
    _passes(world, 20)
    assert not world.actions(do.AddVoter)
    assert not world.actions(do.RemoveVoter)
    assert any("may not be committed yet" in text for text in world.last.waits)
    world.uncommitted = False
    world.settle()
    assert world.log_voters == dict.fromkeys(range(1, after + 1), 0)


def test_a_removed_voter_runs_until_its_removal_is_committed() -> None:
    """It was stopped for good, and its volumes deleted, although the former voters could count again."""
    world = _dynamic(controllers=5)
    world.wanted = wanted(static_quorum=False, controllers=3)
    while not world.actions(do.RemoveVoter):
        world.step()
    world.uncommitted = True
    gone = world.actions(do.RemoveVoter)[0].node
    _passes(world)
    node = world.record.node(gone)
    assert node is not None
    assert not node.stopped
    assert gone in world.pods
    world.uncommitted = False
    world.settle()
    assert world.record.node(gone) is None


def test_a_replacement_is_not_done_before_its_voter_is_committed() -> None:
    world = _dynamic()
    world.lose_host(3)
    world.wanted = wanted(static_quorum=False, replacements=(ReplacementRequest("r", 3, "EmptyDisk"),))
    while not world.actions(do.AddVoter):
        world.step()
    world.uncommitted = True
    _passes(world)
    assert not world.record.replacements[0].done
    world.uncommitted = False
    world.settle()
    assert world.record.replacements[0].done


@pytest.mark.parametrize("after", [1, 5])
def test_voters_do_not_change_while_the_log_has_an_old_address(after: int) -> None:
    """Cluster seed 50004: the removal of one voter was not committed, and another one had moved."""
    world = _dynamic()
    world.registered_at = {2: "elsewhere:9090"}
    world.wanted = wanted(static_quorum=False, controllers=after)
    _passes(world, 20)
    assert not world.actions(do.AddVoter)
    if after == 1:  # 3 leaves first, and 2 stays beside it
        assert not world.actions(do.RemoveVoter)
    text = blocked(world, passes=0)["VoterMoved"]
    assert text.startswith("voter 2 listens at 2.svc:9090, and the other voters look for it at elsewhere:9090")
    world.registered_at = {}
    world.settle()
    assert world.log_voters == dict.fromkeys(range(1, after + 1), 0)


def test_a_voter_that_has_moved_can_itself_be_removed() -> None:
    world = _dynamic()
    world.registered_at = {3: "elsewhere:9090"}
    world.lose_host(3)
    world.wanted = wanted(static_quorum=False, replacements=(ReplacementRequest("r", 3, "EmptyDisk"),))
    while not world.actions(do.RemoveVoter):
        world.step()
    assert world.log_voters is not None
    assert 3 not in world.log_voters


def test_the_qualified_name_of_the_same_host_is_not_a_move() -> None:
    """A node registers its fully qualified name."""
    world = _dynamic()
    world.registered_at = {i: f"{i}.svc.cluster.local:9090" for i in (1, 2, 3)}
    world.wanted = wanted(static_quorum=False, controllers=1)
    world.settle()
    assert world.log_voters == {1: 0}


class Leader:
    """A leader that answers DescribeQuorum and DescribeCluster."""

    def __init__(self) -> None:
        self.voters, self.end, self.high_watermark, self.epoch = [1, 2, 3], 10, 10, 1
        self.hosts = {1: "a", 2: "b", 3: "c"}

    def keep(self, _: object) -> None: ...

    async def request(self, _: Address, request: object) -> object:
        if isinstance(request, m.DescribeClusterRequest):
            return m.DescribeClusterResponse(cluster_id="c")
        voters = [m.DescribeQuorumResponse.ReplicaState(i, ZERO_UUID, self.end, 1, 1) for i in self.voters]
        reported = m.DescribeQuorumResponse.PartitionData(0, 0, None, 1, self.epoch, self.high_watermark, voters)
        listener = m.DescribeQuorumResponse.Listener
        nodes = [
            m.DescribeQuorumResponse.Node(i, [listener("CONTROLLER", host, 9090)]) for i, host in self.hosts.items()
        ]
        topic = m.DescribeQuorumResponse.TopicData("__cluster_metadata", [reported])
        return m.DescribeQuorumResponse(topics=[topic], nodes=nodes)


def test_voters_are_committed_after_the_leader_commits_its_epoch() -> None:
    leader = Leader()
    view = View(cast(Client, leader), lambda: 0.0)

    def changing() -> bool:
        asyncio.run(view._look_at_quorum({1: Address("localhost", 9090)}))
        assert view.quorum.value is not None
        return view.quorum.value.changing

    assert not changing()
    leader.voters, leader.end = [1, 3], 11
    assert changing(), "the removal is in the log, and not committed"
    leader.end = 12
    assert changing()
    leader.high_watermark = 11
    assert not changing(), "later records do not matter"
    leader.hosts[3], leader.end = "d", 13
    assert changing(), "an address is a part of the voters"
    leader.high_watermark = 13
    assert not changing()
    leader.epoch, leader.end = 2, 14
    assert changing(), "a new leader commits nothing of before until it commits a record of its own epoch"


def test_the_removal_of_a_voter_is_sent_once() -> None:
    """The local supervisor sent it to one node after the other, until the views had long expired."""
    asked = []

    class Silent:
        async def request(self, address: Address, *_: object, **__: object) -> dict[str, Any]:
            asked.append(address)
            raise UnreachableError("no answer")

    found = Quorum(1, 1, {i: Replica(0, 0) for i in (1, 2, 3)})
    ask = [Address("a", 1), Address("b", 1)]
    with pytest.raises(UnreachableError):
        asyncio.run(carry_out(cast(Client, Silent()), do.RemoveVoter(3, "it leaves"), ask, quorum=found))
    assert asked == ask[:1]
