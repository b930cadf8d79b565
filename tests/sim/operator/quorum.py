"""The controllers of a simulated cluster: real Raft cores on simulated disks and network, one machine for each node id.

This is `kraft_node.testing.raft` without its own story: the operator's world decides which nodes run, with which voters
and on which disk. All laws of the Raft simulator hold after every event.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from kraft_node.raft import events
from kraft_node.raft.membership.quorum import ReplicaKey as Key
from kraft_node.raft.membership.quorum import Voter, VoterSet
from kraft_node.raft.messages import AddVoterRequest, RemoveVoterRequest
from kraft_node.raft.roles.states import Role
from kraft_node.testing.raft.faults import RaftFaults
from kraft_node.testing.raft.quorum import PendingRequest
from kraft_node.testing.raft.replica import Replica
from kraft_node.testing.raft.scenes import _can_upgrade
from kraft_node.testing.raft.simulation import Simulation
from kraft_operator.observe.kafka import Commits
from kraft_operator.plan.model import observed as seen

SECOND_US = 1_000_000
VOTER_TIMEOUT_MS = 2_000
STATIC, DYNAMIC, UPGRADED = "static", "dynamic", "upgraded"
"""Voters in the configuration; in the log from the beginning; in the configuration first, then in the log."""


class Quorum(Simulation):
    """Machines start on request only."""

    def __init__(self, seed: int, kind: str) -> None:
        super().__init__(seed)
        self.rng = Random(seed)
        self.is_dynamic = kind == DYNAMIC
        self.is_upgradable = kind == UPGRADED
        self.old_peers = set()
        self.roll = None
        self.replicas = {}
        self.voters = VoterSet(())
        self.snapshot_every = self.rng.choice((20, 60, 1_000_000))
        self.propose_us = self.rng.choice((200_000, 1_000_000))
        self.faults = RaftFaults(self, self.network)
        self.commits = Commits()
        self.at(self.propose_us, None, self._propose)

    def run_for(self, us: int) -> None:
        """Let time pass."""
        over: list[bool] = []
        self.at(us, None, over.append, True)
        self._run_until(lambda: bool(over))

    def replica(self, node_id: int) -> Replica:
        found = self.replicas.get(node_id)
        if found is None:
            found = self.replicas[node_id] = Replica(self, node_id)
            found.set_clock(self.rng.randint(950, 1050), self.rng.randrange(10**9))
        return found

    def begin_with(self, voters: Iterable[int]) -> None:
        """The first voters of a log, or of a configuration until the log names them."""
        if not len(self.voters):
            self.voters = VoterSet(Voter(self.replica(i).key if self.is_dynamic else Key(i)) for i in voters)

    # What the operator sees and does

    def leading(self) -> Replica | None:
        """The newest of the nodes that believe that they lead."""
        found = [leader for leader in self.leaders if leader.announced_epoch >= 0 and not leader.is_paused]
        return max(found, key=lambda leader: leader.announced_epoch, default=None)

    def described(self) -> seen.Quorum | None:
        """DescribeQuorum, as the leader answers it."""
        leader = self.leading()
        if leader is None or leader.node is None:
            return None
        node, now_ms = leader.node, leader.local_us() // 1000

        def reported(one: object) -> seen.Replica:
            key, caught_up_ms, end = one.key, one.caught_up_ms, one.end_offset  # type: ignore[attr-defined]
            voter = node.voters.get(key.id) if node.leader.progress.voters.get(key.id) is one else None
            directory = bytes((key if voter is None else voter.key).directory)
            if key.id == leader.id:
                return seen.Replica(0, 0, directory)
            behind_ms = now_ms - caught_up_ms if caught_up_ms >= 0 else 2**31
            return seen.Replica(max(0, node.log.end_offset - end), max(0, behind_ms), directory)

        progress = node.leader.progress
        found = seen.Quorum(
            leader.id,
            node.epoch,
            {node_id: reported(one) for node_id, one in progress.voters.items()},
            # As in `observe.kafka`: of a node's two disks, the one that fetches.
            {
                one.key.id: reported(one)
                for one in sorted(progress.observers.values(), key=lambda one: one.last_fetch_ms)
                if one.key.id not in progress.voters or one.last_fetch_ms > progress.voters[one.key.id].last_fetch_ms
            },
        )
        return replace(found, changing=self.commits.changing(found, node.log.end_offset, node.high_watermark))

    def committed(self) -> frozenset[int]:
        """The committed voters in the leader's log; empty without a leader."""
        leader = self.leading()
        if leader is None or leader.node is None:
            return frozenset()
        return frozenset(leader.node.voter_sets.at(leader.node.high_watermark).ids)

    def ask(self, request: AddVoterRequest | RemoveVoterRequest) -> None:
        leader = self.leading()
        if leader is not None:
            self.tool_requests += 1
            leader.step(events.Requested(PendingRequest(leader, -self.tool_requests, request), request))

    def add_voter(self, node_id: int) -> None:
        self.ask(AddVoterRequest(self.replica(node_id).own, VOTER_TIMEOUT_MS, True))

    def remove_voter(self, node_id: int, directory: bytes) -> None:
        leader = self.leading()
        if leader is not None and leader.node is not None:
            for voter in leader.node.voters:
                if voter.key.id == node_id and bytes(voter.key.directory) == directory:
                    self.ask(RemoveVoterRequest(voter.key))

    def raise_version(self) -> None:
        leader = self.leading()
        if leader is not None and leader.node is not None and _can_upgrade(leader):
            leader.step(events.UpgradeVersion(leader.node.epoch, 1))

    @property
    def version(self) -> int:
        """kraft.version in the leader's log."""
        leader = self.leading()
        return 0 if leader is None or leader.node is None else leader.node.voter_sets.kraft_version

    def knows_leader(self, node_id: int) -> bool:
        """The answer to a controller's readiness probe."""
        found = self.replicas.get(node_id)
        if found is None or found.node is None or found.node.is_amnesiac:
            return False
        return found.node.role.role is Role.LEADER or found.node.leader_id >= 0
