"""Faults of several steps at the right moments, which independent random faults would hardly ever produce.

While a scene runs, no other fault happens. It ends by itself, or after `PATIENCE_US`; broken parts stay broken until
the chaos or the calm heals them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraft_node.raft import events
from kraft_node.raft.membership.voter_changes import why_not_upgrade
from kraft_node.raft.messages import RemoveVoterRequest
from kraft_node.raft.roles.states import Role
from kraft_node.testing.raft.quorum import PendingRequest

if TYPE_CHECKING:
    from kraft_node.raft.membership.quorum import ReplicaKey
    from kraft_node.raft.node import RaftNode
    from kraft_node.testing.raft.network import Network
    from kraft_node.testing.raft.quorum import RaftMachine, SimulatedQuorum

LOOK_US: Final = 20_000
"""Interval between checks whether the moment has come."""

QUICK_LOOK_US: Final = 500
"""The interval for moments that last only milliseconds."""

UPGRADES_ALONE: Final = 0.3
"""The share of upgrades that no other replica learns of."""

PATIENCE_US: Final = 6_000_000
"""Longer than an isolated leader takes to resign."""


class Scenes:
    """Runs one scene at a time."""

    def __init__(
        self,
        sim: SimulatedQuorum,
        network: Network,
        may_lose_disk: Callable[[RaftMachine], bool],
        dead_voters: Callable[[RaftNode], list[ReplicaKey]],
    ) -> None:
        """The functions of `RaftFaults`."""
        self._sim = sim
        self._network = network
        self._may_lose_disk = may_lose_disk
        self._dead_voters = dead_voters
        self._number = 0
        self._until_us = 0

    @property
    def is_playing(self) -> bool:
        """Whether a scene runs; no other fault happens meanwhile."""
        return self._sim.now_us < self._until_us

    def stop(self) -> None:
        """End the scene: its next steps are dropped, and what it has broken stays broken."""
        self._number += 1
        self._until_us = 0

    def _begin(self) -> None:
        self._number += 1
        self._until_us = self._sim.now_us + PATIENCE_US

    def _when(self, moment: Callable[[], bool], what: Callable[[], None], every_us: int = LOOK_US) -> None:
        """Call `what` once the moment has come, unless the scene is over before."""
        self._sim.at(every_us, None, self._look, self._number, moment, what, every_us)

    def _look(self, number: int, moment: Callable[[], bool], what: Callable[[], None], every_us: int) -> None:
        if number == self._number and self.is_playing:
            if moment():
                what()
            else:
                self._when(moment, what, every_us)

    def _a_leader(self) -> RaftMachine | None:
        leaders = [leader for leader in self._sim.leaders if leader.announced_epoch >= 0 and not leader.is_paused]
        return self._sim.rng.choice(leaders) if leaders else None

    # The scenes.

    def leave_behind(self) -> None:
        """Cut a leader off with a minority of the voters. Once the others have committed more under another leader, one
        of their voters loses its disk and can reach only replicas that lack those records. The slowest clocks and the
        fastest network use up the time that the leader takes to resign."""
        sim = self._sim
        old = self._a_leader()
        if old is None or old.node is None:
            return
        voters = [voter_id for voter_id in old.node.voters.ids if voter_id != old.id and voter_id in sim.replicas]
        sim.rng.shuffle(voters)
        majority = old.node.voters.majority
        count = majority - 2
        if count < 0 or len(voters) - count < majority:
            return
        with_it = {old.id, *voters[:count]}
        others = [sim.replicas[voter_id] for voter_id in voters[count:]]
        sim.note(f"{old.id}, a leader, is cut off with {sorted(with_it)}")
        self._begin()
        self._network.heal()
        self._network.split(with_it)
        for replica in sim.replicas.values():
            replica.set_clock(800 if replica.id in with_it else 1200)
        epoch, end = old.node.epoch, sim.laws.end

        def is_past() -> bool:
            return sim.laws.end > end and any(leader.epoch > epoch for leader in sim.leaders)

        def forget() -> None:
            able = [one for one in others if one.node is not None and one.node.high_watermark <= one.disk.durable.end]
            able = [one for one in able if self._may_lose_disk(one)]
            if able:
                replica = sim.rng.choice(able)
                sim.note(f"{replica.id} loses its disk, and reaches only {sorted(with_it)}")
                replica.wipe()
                replica.start()
                self._network.split({*with_it, replica.id})

        self._when(is_past, forget)

    def vote_twice(self) -> None:
        """Cut off a candidate that has one other voter's vote, among five or more. That voter loses its disk and
        catches up with the leader of the previous epoch, which the others still follow. It then gets a second request
        for its vote in the candidate's epoch, while the candidate still counts the first vote."""
        sim = self._sim
        old = self._a_leader()
        if old is None or old.node is None or len(old.node.voters) < 5:
            return
        members = [sim.replicas[voter_id] for voter_id in old.node.voters.ids if voter_id in sim.replicas]
        if any(r.node is None or r.is_paused or r.is_lost for r in members):
            return
        sim.note(f"{old.id}, a leader, resigns; its successor shall lose the election")
        self._begin()
        self._network.heal()
        for replica in members:
            replica.slow_disk = False
        epoch = old.node.epoch
        old.step(events.Resign(epoch))
        self._when(
            lambda: any(leader.epoch > epoch for leader in sim.leaders),
            lambda: self._overtake(max(sim.leaders, key=lambda leader: leader.epoch), members),
            QUICK_LOOK_US,
        )

    def _overtake(self, leader: RaftMachine, members: list[RaftMachine]) -> None:
        """Elect a leader that stays unknown to all voters until another voter has become a candidate."""
        sim = self._sim
        sim.note(f"no node receives messages of {leader.id}, the new leader")
        self._network.split({leader.id})

        def candidates() -> list[RaftMachine]:
            found = [r for r in members if r.node is not None and r.node.role.role is Role.CANDIDATE]
            return [r for r in found if r.epoch > leader.epoch]

        def cut_off() -> None:
            candidate = candidates()[0]
            voter = sim.rng.choice([r for r in members if r not in (leader, candidate)])
            sim.note(f"{candidate.id} campaigns, and only {voter.id} receives its requests")
            self._network.split({candidate.id, voter.id})
            for other in members:
                if other is not leader:
                    self._network.close(leader, other)
            self._when(
                lambda: sim.laws.counted(candidate.epoch, voter.id, candidate.id),
                lambda: self._forget_vote(leader, candidate, voter),
                QUICK_LOOK_US,
            )

        self._when(lambda: bool(candidates()), cut_off, QUICK_LOOK_US)

    def _forget_vote(self, leader: RaftMachine, candidate: RaftMachine, voter: RaftMachine) -> None:
        sim = self._sim
        if not self._may_lose_disk(voter):
            return
        sim.note(f"{voter.id} has voted for {candidate.id}, loses its disk, and reaches all but {candidate.id}")
        voter.wipe()
        voter.start()
        self._network.split({candidate.id})

        def hand_over() -> None:
            sim.note(f"{leader.id}, still the leader of the previous epoch, resigns")
            if leader.node is not None and leader.node.is_leader:
                leader.step(events.Resign(leader.node.epoch))

        self._when(lambda: voter.node is not None and not voter.node.is_amnesiac, hand_over, QUICK_LOOK_US)

    def remove_itself(self) -> None:
        """Request from a leader to remove itself from the voters. Either it is cut off before, and dies before any
        replica learns of it. Or its disk is slow, so that it loses leadership before its log is on disk."""
        sim = self._sim
        leader = self._a_leader()
        if leader is None or leader.node is None or len(leader.node.voters) < 2:
            return
        if self._dead_voters(leader.node):
            return
        alone = sim.rng.random() < 0.5
        self._begin()
        request = RemoveVoterRequest(leader.key)
        if alone:
            sim.note(f"{leader.id}, a leader, is cut off")
            self._network.split({leader.id})
        else:
            sim.note(f"the disk of {leader.id} is slow")
            leader.slow_disk = True
        sim.note(f"a tool asks {leader.id}: {request}")
        sim.tool_requests += 1
        node = leader.node
        leader.step(events.Requested(PendingRequest(leader, -sim.tool_requests, request), request))

        def is_stated() -> bool:
            return leader.node is not node or leader.disk.durable.end == leader.disk.log.end

        if alone:
            self._when(is_stated, lambda: self._kill_alone(leader))

    def _kill_alone(self, leader: RaftMachine) -> None:
        """Kill an isolated leader, and end the scene."""
        self._sim.note(f"{leader.id} is killed")
        leader.die(loud=False)
        self._network.cut.clear()
        self._until_us = 0

    def upgrade(self) -> None:
        """Let a tool raise kraft.version as soon as a leader knows enough of the voters; then any fault may follow. Or
        cut the leader off before, and kill it once its disk holds records that no other replica will ever read."""
        sim = self._sim
        if any(r.node is not None and r.node.voter_sets.kraft_version for r in sim.replicas.values()):
            return
        self._begin()
        self._network.heal()
        for replica in sim.replicas.values():
            if replica.node is None and not replica.disk.bad:
                replica.start()

        def upgrade() -> None:
            leader = next(filter(_can_upgrade, sim.leaders))
            node = leader.node
            assert node is not None
            alone = len(node.voters) > 1 and sim.rng.random() < UPGRADES_ALONE
            if alone:
                sim.note(f"{leader.id}, a leader, is cut off")
                self._network.split({leader.id})
            sim.note(f"a tool asks {leader.id} to raise kraft.version")
            leader.step(events.UpgradeVersion(node.epoch, 1))
            if not alone:
                self._until_us = 0
                return
            self._when(
                lambda: leader.node is not node or leader.disk.durable.end == leader.disk.log.end,
                lambda: self._kill_alone(leader),
            )

        self._when(lambda: any(map(_can_upgrade, sim.leaders)), upgrade)


def _can_upgrade(leader: RaftMachine) -> bool:
    """Whether a leader would accept the upgrade, and no disk is being replaced."""
    node, sim = leader.node, leader.sim
    if node is None or leader.is_paused or leader.announced_epoch < 0 or node.voter_sets.kraft_version:
        return False
    if why_not_upgrade(node, 1) is not None:
        return False
    voters = [sim.replicas[voter_id] for voter_id in node.voters.ids]
    reported = node.leader.reported
    return all(reported[voter.id].key == voter.key and not voter.is_lost for voter in voters)
