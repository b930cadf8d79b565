"""One quorum under one seed: the event queue, chaos, then calm, in which the quorum must make progress again."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from kraft_node.raft import events
from kraft_node.raft.config import RaftConfig
from kraft_node.raft.log_view import LogView
from kraft_node.raft.membership.quorum import ReplicaKey, Voter, VoterSet
from kraft_node.raft.node import RaftNode
from kraft_node.raft.roles.states import Role
from kraft_node.testing.raft.driven import DrivenReplica
from kraft_node.testing.raft.driven_voters import format_disk
from kraft_node.testing.raft.faults import RaftFaults
from kraft_node.testing.raft.laws import RaftLaws, require
from kraft_node.testing.raft.network import Network
from kraft_node.testing.raft.replica import Replica
from kraft_node.testing.raft.roll import Roll
from kraft_node.testing.raft.storage import BOOTSTRAP, EMPTY_CHAIN, Snapshot
from kraft_node.testing.raft.story import Story, show

CLUSTER: Final = "simulated"
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

Item = tuple[int, int, Replica | None, int, Callable[..., None], tuple[Any, ...]]


class Simulation:
    """Construct it and call `run(events)`; raises AssertionError naming the broken law."""

    def __init__(self, seed: int, story: Story | None = None) -> None:
        self.seed = seed
        self.rng = rng = Random(seed)
        self.story = story
        self.events = 0
        self.digest = 0
        self.now_us = 0
        self.laws = RaftLaws()
        self.network = Network(self)
        self.config = RaftConfig()
        self.tool_requests = 0
        self.calm = False
        self.proposals = 0
        voters, observers = rng.choice(VOTERS), rng.choice(OBSERVERS)
        self.is_dynamic = rng.random() < 0.4
        if self.is_dynamic:
            self.config = RaftConfig(auto_join=rng.random() < 0.5)
        self.snapshot_every = rng.choice((8, 20, 60, 1_000_000))
        self.propose_us = rng.choice((5_000, 50_000, 300_000))
        self.is_driven = rng.random() < DRIVEN_SHARE
        """The processes are real drivers (`driven`), not bare cores."""
        self.batches: dict[tuple[int, int], bytes] = {}
        """Batches that drivers have written, by first offset and last chain value."""
        if self.is_driven:
            self.config = replace(self.config, fetch_snapshot_max_bytes=rng.choice((100, 1_000)))
        process = DrivenReplica if self.is_driven else Replica
        self.replicas: dict[int, Replica] = {
            node_id: process(self, node_id) for node_id in range(1, voters + observers + 1)
        }
        self.old_peers = {node_id for node_id in self.replicas if seed % 10 == 3 and node_id % 2}
        """Replicas that know neither pre-votes nor lost disks, like Kafka 3.9 and older."""
        self.is_upgradable = not (self.is_dynamic or self.old_peers) and rng.random() < 0.4
        """Whether static voters may become dynamic (kraft.version 0 to 1) at any time."""
        first = [self.replicas[node_id] for node_id in range(1, voters + 1)]
        # A driver finds dynamic voters only by their endpoints.
        named = self.is_driven and (self.is_dynamic or self.is_upgradable)
        self.voters = VoterSet(Voter(r.voter_key, r.own.endpoints if named else {}) for r in first)
        """The initial voters; in a dynamic quorum, the log states the later voters."""
        is_static = not self.is_dynamic and not self.is_upgradable and not self.old_peers
        self.roll = Roll(self) if is_static and voters > 1 and rng.random() < ROLLED_SHARE else None
        """Changes static voters by restarting one replica after another."""
        self._queue: list[Item] = []
        self._count = 0
        self.faults = RaftFaults(self)
        self._target = self._target_epoch = -1
        """In calm: the offset that all replicas must reach, and the epoch of the leader that set it."""
        self._deadline_us = 0
        self._is_joining = False
        """In calm: all replicas follow, but not all have become voters yet."""
        self.heals = self.mixed_heals = 0
        """How often everything healed, and how often while replicas differed in their voters."""

    # The core's environment.

    def randrange(self, stop: int) -> int:
        """A number from 0 to `stop` (excluded) from the seed, for the cores."""
        return int(self.rng.random() * stop)

    def random_bytes(self, count: int) -> bytes:
        """`count` bytes from the seed, for the cores."""
        return self.rng.randbytes(count)

    def make_node(self, replica: Replica, log: LogView) -> RaftNode:
        """The core of a starting process, made from the disk as the driver makes it."""
        if self.is_dynamic or self.is_upgradable:
            return self._make_dynamic(replica, log)
        return RaftNode(
            local=replica.key,
            voters=replica.configured,
            log=log,
            state=replica.disk.state,
            rng=self,
            cluster_id=CLUSTER,
            config=self.config,
            is_amnesiac=self.is_amnesiac(replica),
        )

    def _make_dynamic(self, replica: Replica, log: LogView) -> RaftNode:
        disk = replica.disk
        first = replica.first_voters
        newest = disk.snapshots[-1] if disk.snapshots else None
        stated = disk.log.voter_sets()
        if newest is not None and newest.voters is not None:
            at = newest.id.end_offset - 1
            stated = [(at, newest.voters), *[known for known in stated if known[0] > at]]
        return RaftNode(
            local=replica.key,
            voters=first,
            voter_sets=stated,
            kraft_version=1 if stated or (self.is_dynamic and len(first)) else 0,
            own=replica.own,
            log=log,
            state=disk.state,
            rng=self,
            cluster_id=CLUSTER,
            config=self.config,
            bootstrap_ids=self.voters.ids,
            is_amnesiac=self.is_upgradable and not stated and self.is_amnesiac(replica),
        )

    def is_amnesiac(self, replica: Replica) -> bool:
        """As in the driver: a voter of several without a quorum-state."""
        voters = replica.configured
        is_guarded = len(voters) > 1 and replica.id in voters and replica.id not in self.old_peers
        return is_guarded and not replica.disk.has_state

    def has_had(self, key: ReplicaKey, offset: int, chain: int) -> bool:
        """Whether the voter's disk, present or replaced, has the log below `offset` with this chain value."""
        return self.replicas[key.id].has_had(key.directory, offset, chain)

    def counts_votes(self, candidate: int, epoch: int) -> bool:
        """Whether votes of the epoch can make, or have made, the replica a leader."""
        node = self.replicas[candidate].node
        counting = node is not None and node.epoch == epoch and node.role.role is Role.CANDIDATE
        return counting or self.laws.leaders.get(epoch) == candidate

    def wall_ms(self, replica: Replica) -> int:
        """The machine's calendar: milliseconds since the simulation's start and its jumps; may be negative."""
        return self.now_us // 1000 + self.faults.wall_jumps_ms.get(replica.id, 0)

    def note(self, what: str) -> None:
        """Add a line to the story."""
        if self.story is not None:
            self.story.say(self, what)

    # The queue.

    def at(self, delay_us: int, replica: Replica | None, function: Callable[..., None], *args: Any) -> None:
        """Call a function after a delay, unless the replica's process has ended by then."""
        self._count += 1
        life = 0 if replica is None else replica.life
        heapq.heappush(self._queue, (self.now_us + delay_us, self._count, replica, life, function, args))

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

    def thaw(self, replica: Replica, life: int) -> None:
        """End a process's pause: run the events that have accumulated. An event loop that wakes late handles
        descriptors first or timers first; within each kind the order is kept."""
        if replica.life == life and replica.is_paused:
            replica.is_paused = False
            timers_rank = self.rng.choice((None, 0, 2))
            if timers_rank is not None:
                replica.frozen.sort(key=lambda item: timers_rank if replica.is_timer(item[4]) else 1)
            for _, _, *what in replica.frozen:
                self._count += 1
                heapq.heappush(self._queue, (self.now_us, self._count, *what))
            replica.frozen.clear()

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

    def _has_followed(self, replica: Replica) -> bool:
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

    @property
    def leaders(self) -> list[Replica]:
        """The replicas that believe to lead."""
        return [r for r in self.replicas.values() if r.node is not None and r.node.role.role is Role.LEADER]

    def summary(self) -> str:
        """The trace hash and the seed's properties, on one line."""
        voters = len(self.voters)
        return (
            f"{self.digest & 0xFFFFFFFFFFFFFFFF:016x} {voters} voters, {len(self.replicas) - voters} observers, "
            f"{self.events} events, {self.laws.elections} elections, {self.laws.end} committed, {self.heals} heals"
        )
