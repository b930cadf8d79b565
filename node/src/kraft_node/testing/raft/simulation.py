"""One quorum under one seed: the event queue, chaos, then calm, in which the quorum must make progress again."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from kraft_node.raft import events
from kraft_node.raft.config import RaftConfig
from kraft_node.raft.membership.quorum import Voter, VoterSet
from kraft_node.testing.raft.driven import DrivenReplica
from kraft_node.testing.raft.driven_voters import format_disk
from kraft_node.testing.raft.faults import RaftFaults
from kraft_node.testing.raft.laws import require
from kraft_node.testing.raft.network import Network
from kraft_node.testing.raft.quorum import RaftMachine, SimulatedQuorum
from kraft_node.testing.raft.replica import Replica
from kraft_node.testing.raft.roll import Roll
from kraft_node.testing.raft.storage import BOOTSTRAP, EMPTY_CHAIN, Snapshot
from kraft_node.testing.raft.story import Story, show

LIVENESS_ELECTION_TIMEOUTS: Final = 10
"""The bound for progress after everything has healed. Kafka promises no limit; this is our own requirement."""
JOIN_US: Final = 6_000_000
"""The time for one replica to join: three fetch time-outs, because a replica with a new disk sends two requests."""
CALM_PROPOSE_US: Final = 150_000
"""The interval of proposals in calm: events are better spent on chaos."""
VOTERS: Final = (3, 3, 3, 5, 5, 4, 2, 1, 6, 7)
OBSERVERS: Final = (0, 0, 1, 1, 2, 3, 5)
DRIVEN_SHARE: Final = 0.15
"""The share of driven quorums, with static or dynamic voters."""
ROLLED_SHARE: Final = 0.6
"""The share of static quorums with voters that are changed one by one, by decision 4."""


class Simulation(SimulatedQuorum):
    """Construct it and call `run(events)`; raises AssertionError naming the broken law."""

    def __init__(self, seed: int, story: Story | None = None) -> None:
        super().__init__(seed, story)
        rng = self.rng
        self.network: Network = Network(self)
        self.proposals = 0
        voters, observers = rng.choice(VOTERS), rng.choice(OBSERVERS)
        self.is_dynamic = rng.random() < 0.4
        if self.is_dynamic:
            self.config = RaftConfig(auto_join=rng.random() < 0.5)
        self.snapshot_every = rng.choice((8, 20, 60, 1_000_000))
        self.propose_us = rng.choice((5_000, 50_000, 300_000))
        self.is_driven = rng.random() < DRIVEN_SHARE
        if self.is_driven:
            self.config = replace(self.config, fetch_snapshot_max_bytes=rng.choice((100, 1_000)))
        process = DrivenReplica if self.is_driven else Replica
        self.replicas = {node_id: process(self, node_id) for node_id in range(1, voters + observers + 1)}
        self.old_peers = {node_id for node_id in self.replicas if seed % 10 == 3 and node_id % 2}
        self.is_upgradable = not (self.is_dynamic or self.old_peers) and rng.random() < 0.4
        first = [self.replicas[node_id] for node_id in range(1, voters + 1)]
        # A driver finds dynamic voters only by their endpoints.
        named = self.is_driven and (self.is_dynamic or self.is_upgradable)
        self.voters = VoterSet(Voter(r.voter_key, r.own.endpoints if named else {}) for r in first)
        is_static = not self.is_dynamic and not self.is_upgradable and not self.old_peers
        self.roll = (
            Roll(self, lambda: self.faults.scenes.is_playing)
            if is_static and voters > 1 and rng.random() < ROLLED_SHARE
            else None
        )
        """Changes static voters by restarting one replica after another."""
        self.faults = RaftFaults(self, self.network, self.roll)
        self._target = self._target_epoch = -1
        """In calm: the offset that all replicas must reach, and the epoch of the leader that set it."""
        self._deadline_us = 0
        self._is_joining = False
        """In calm: all replicas follow, but not all have become voters yet."""
        self.mixed_heals = 0
        """How often everything healed while replicas differed in their voters."""

    def run(self, events_wanted: int) -> None:
        """Alternate chaos and calm until the core has processed this many events; end in calm."""
        # An existing quorum, or a new one that its voters must first recognise as new.
        known = self.rng.random() < 0.7
        for replica in self.replicas.values():
            replica.disk.has_state = known or replica.id in self.old_peers
            if self.is_driven and self.is_dynamic:
                if replica.id in self.voters:
                    format_disk(replica.disk, self.voters)
            elif self.rng.random() < 0.5:
                replica.disk.add_snapshot(Snapshot(BOOTSTRAP, EMPTY_CHAIN, 1, 0))
            replica.set_clock(self.rng.randint(800, 1200), self.rng.randrange(10**9))
            late = replica.id == 1 and self.rng.random() < 0.3
            self.at(self.rng.randrange(20_000_000 if late else 200_000), replica, replica.start_once)
        self.at(self.propose_us, None, self._propose)
        if self.roll is not None:
            self.roll.begin()
        while True:
            stop = self.events + self.rng.randint(150, 700)
            self.calm = False
            self.faults.begin()
            self._run_until(partial(self._has_reached, stop))
            self._calm()
            if self.events >= events_wanted:
                return

    def _has_reached(self, events_wanted: int) -> bool:
        return self.events >= events_wanted and not self.faults.scenes.is_playing

    def _run_until(self, done: Callable[[], bool]) -> None:
        queue = self._queue
        pop = heapq.heappop
        while not done():
            item = pop(queue)
            at_us, _, replica, life, function, args = item
            if replica is not None:
                if replica.life != life:
                    continue
                if replica.is_paused:
                    replica.frozen.append(item)
                    continue
            self.now_us = at_us
            function(*args)

    def _propose(self) -> None:
        """Clients: every replica that believes that it leads gets records."""
        rng = self.rng
        mean_us = max(self.propose_us, CALM_PROPOSE_US) if self.calm else self.propose_us
        self.at(1_000 + int(rng.random() * mean_us * 2), None, self._propose)
        for replica in self.replicas.values():
            if replica.announced_epoch >= 0 and replica.node is not None:
                count = 1 if rng.random() < 0.7 else rng.randint(2, 5)
                values = []
                for _ in range(count):
                    self.proposals += 1
                    values.append(str(self.proposals).encode())
                # While the process is paused, the request waits in a buffer; it is read afterwards.
                batches = [values[:1], values[1:]] if count > 1 and rng.random() < 0.5 else [values]
                self.at(0, replica, replica.step, events.Propose(replica.announced_epoch, batches))

    # Calm.

    def _calm(self) -> None:
        """Heal everything: within ten election time-outs, all replicas must have a record proposed after that."""
        self.calm = True
        self.heals += 1
        if self.roll is not None:
            self.mixed_heals += len({tuple(replica.configured.ids) for replica in self.replicas.values()}) > 1
        self.faults.heal()
        timeout_us = self.config.election_timeout_ms * LIVENESS_ELECTION_TIMEOUTS * 1000
        self._target = self._target_epoch = -1
        self._is_joining = False
        busy_us = max(replica.busy_until_us for replica in self.replicas.values())
        self._deadline_us = max(self.now_us, busy_us) + timeout_us
        self._run_until(self._is_live)
        self.note("calm: every node has the records proposed after the faults")

    def _is_live(self) -> bool:
        for replica in self.replicas.values():
            # Only from the newest leader: an older leader that does not know of it keeps proposing, and its records are
            # lost.
            if replica.announced_epoch > self._target_epoch and replica.node is not None:
                self._target_epoch = replica.announced_epoch
                self._target = replica.node.next_offset + 1
        wanted = self._target
        if wanted >= 0 and self.laws.end >= wanted and all(map(self._has_followed, self.replicas.values())):
            if not self.config.auto_join or self._have_all_joined():
                return True
            if not self._is_joining:
                self._is_joining = True
                self._deadline_us += len(self.replicas) * JOIN_US
        if self.now_us >= self._deadline_us:
            what = "every replica follows a leader" if not self._is_joining else "and some seconds all have joined"
            require(False, f"liveness: ten election time-outs after healing {what}", self._describe_nodes())
        return False

    def _have_all_joined(self) -> bool:
        """Whether all replicas, which join by themselves in turn, are voters with their current disks."""
        wanted = {replica.key for replica in self.replicas.values()}
        return wanted == {voter.key for leader in self.leaders if leader.node for voter in leader.node.voters}

    def _has_followed(self, replica: RaftMachine) -> bool:
        node = replica.node
        return node is not None and replica.high_watermark >= self._target and not node.is_amnesiac

    def _describe_nodes(self) -> str:
        stand = []
        for replica in self.replicas.values():
            node = replica.node
            if node is None:
                stand.append(f"{replica.id} down")
            else:
                role = node.role.role.name
                lost = " amnesiac" if node.is_amnesiac else ""
                voters = (
                    f" of {show(tuple(voter.key for voter in node.voters))}"
                    if self.is_dynamic or self.is_upgradable or self.roll is not None
                    else ""
                )
                stand.append(f"{replica.id} {role}{lost} in {node.epoch} at {replica.high_watermark}{voters}")
        return f"committed {self.laws.end}, wanted {self._target}: " + ", ".join(stand)

    def summary(self) -> str:
        """The trace hash and the seed's properties, on one line."""
        voters = len(self.voters)
        return (
            f"{self.digest & 0xFFFFFFFFFFFFFFFF:016x} {voters} voters, {len(self.replicas) - voters} observers, "
            f"{self.events} events, {self.laws.elections} elections, {self.laws.end} committed, {self.heals} heals"
        )
