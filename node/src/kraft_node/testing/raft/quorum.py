"""A simulated quorum and its machines: time, the queue of events, and what the seed has decided.

`simulation` decides and judges the run. `replica` is the process on a machine.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kraft_node.raft import events
from kraft_node.raft.config import RaftConfig
from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.membership.quorum import QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.roles.states import Role
from kraft_node.testing.raft.laws import RaftLaws
from kraft_node.testing.raft.storage import ModelDisk, ModelLog
from kraft_protocol.ids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from kraft_node.raft.node import RaftNode
    from kraft_node.testing.raft.story import Story

Item: TypeAlias = "tuple[int, int, RaftMachine | None, int, Callable[..., None], tuple[Any, ...]]"


class DiskFailed(OSError):  # noqa: N818 - a fact
    """The disk is full, or has failed."""


class PendingRequest:
    """A received request that is not answered yet."""

    __slots__ = ("asker", "life", "number", "request")

    def __init__(self, asker: RaftMachine, number: int, request: Any) -> None:
        self.asker = asker
        self.life = asker.life
        self.number = number
        self.request = request


class RaftMachine(ABC):
    """A machine with its disk and its clock, and the process on it while it runs."""

    def __init__(self, sim: SimulatedQuorum, node_id: int) -> None:
        self.sim = sim
        self.id = node_id
        self.wipes = 0
        self._configured: VoterSet | None = None
        self.directory = Uuid(bytes([node_id, 0]) * 8)
        self.disk = ModelDisk()
        self.heard_ms: dict[int, int] = {}
        """By replica: when it last fetched."""
        self.leading_since_ms = 0
        """Since when the current voters have been expected to follow."""
        self.former: dict[Uuid, ModelLog] = {}
        """The logs of replaced disks."""
        self.node: RaftNode | None = None
        self.life = 0
        self.epoch = 0
        self.high_watermark = -1
        self.said_epoch = 0
        """The highest epoch that any message from here has named since the disk was last wiped."""
        self.is_paused = False
        self.frozen: list[Any] = []
        """Events that wait while the process is paused."""
        self.rate = 1000
        """The clock's rate, in thousandths."""
        self.clock_us = 0
        self.clock_since_us = 0
        self.slow_disk = False
        self.full_disk = False
        self.failing_fsync = False
        self.was_amnesiac = False
        self.state = QuorumState()
        """The state that the core last requested to write."""
        self.busy_until_us = 0
        """Until then a slow disk may be busy."""
        self.in_flight: dict[int, RaftMachine] = {}
        self.tokens: dict[PendingRequest, None] = {}
        self.announced_epoch = -1
        self.voters_moved = False
        """Whether the log may state new voters."""
        self.known_snapshots: set[SnapshotId] = set()
        """Snapshots that the core of this life knows."""
        self.wall_jump_ms = 0
        """How far its calendar has jumped ahead, in milliseconds."""

    @property
    def configured(self) -> VoterSet:
        """The voters in its configuration, in force from its next start on."""
        return self.sim.voters if self._configured is None else self._configured

    @configured.setter
    def configured(self, voters: VoterSet) -> None:
        self._configured = voters

    @property
    def key(self) -> ReplicaKey:
        """The id with the id of the current disk."""
        return ReplicaKey(self.id, self.directory)

    @property
    def voter_key(self) -> ReplicaKey:
        """The key that identifies this replica's votes: at kraft.version 0 the id alone."""
        if self.sim.is_upgradable:
            return self.key if self.node is not None and self.node.voter_sets.kraft_version else ReplicaKey(self.id)
        return self.key if self.sim.is_dynamic else ReplicaKey(self.id)

    @property
    def own(self) -> Voter:
        """Its own id, directory and endpoints."""
        named = self.sim.is_upgradable or self.sim.is_dynamic  # a leader adds no voter that others could not reach
        return Voter(self.key, {"CONTROLLER": ("host", self.id)} if named else {})

    def local_us(self) -> int:
        """The machine's own clock in microseconds: it drifts by `rate` and jumps, but never goes back."""
        return self.clock_us + (self.sim.now_us - self.clock_since_us) * self.rate // 1000

    def set_clock(self, rate: int, jump_us: int = 0) -> None:
        """Change the clock's rate (thousandths) and let it jump ahead; timers that are already set do not move."""
        self.clock_us = self.local_us() + jump_us
        self.clock_since_us = self.sim.now_us
        self.rate = rate

    def wall_ms(self) -> int:
        """The machine's calendar: milliseconds since the simulation's start and its jumps; may be negative."""
        return self.sim.now_us // 1000 + self.wall_jump_ms

    # Life and death.

    @abstractmethod
    def start(self) -> None:
        """Open the disk and start."""

    def start_once(self) -> None:
        """Start unless it runs already."""
        if self.node is None:
            self.start()

    def stop_cleanly(self) -> None:
        """Make the process stop."""
        if self.node is not None and not self.is_paused:
            self.step(events.Shutdown())

    def start_again(self) -> None:
        """Start a new process, for any state of the old process."""
        self.die(loud=True)
        if not self.disk.bad:
            self.start()

    def die(self, *, loud: bool) -> None:
        """End the process. `loud`: its connections close at once."""
        if self.node is None:
            return
        self.node = None
        self.life += 1
        self.is_paused = False
        self.frozen.clear()
        self.sim.network.process_died(self, loud=loud)

    def lose_power(self) -> str:
        """End the process without notice to its peers. Returns in words how many unsynced writes survive."""
        self.die(loud=False)
        return self.disk.lose_power(self.sim.rng)

    def wipe(self) -> None:
        """Replace the disk by an empty one; the id stays."""
        self.die(loud=False)
        self.former[self.directory] = self.disk.durable
        self.disk = ModelDisk()
        self.said_epoch = 0
        self.wipes += 1
        self.directory = Uuid(bytes([self.id, self.wipes % 256]) * 8)

    def has_had(self, directory: Uuid, offset: int, chain: int) -> bool:
        """Whether that log was on disk here, now or before a wipe; in that directory, unless it is unknown."""
        if directory in (ZERO_UUID, self.directory) and self.disk.durable.chain_at(offset) == chain:
            return True
        former = [log for known, log in self.former.items() if directory in (ZERO_UUID, known)]
        return any(log.chain_at(offset) == chain for log in former)

    def last_voters(self) -> VoterSet:
        """The last voters stated in the log on disk, or in its snapshots if the log has no voters."""
        stated = self.disk.log.voter_sets()
        if stated:
            return stated[-1][1]
        snapshots = [kept.voters for kept in self.disk.snapshots if kept.voters is not None]
        return snapshots[-1] if snapshots else self.first_voters

    @property
    def first_voters(self) -> VoterSet:
        """The voters that formatting has written: only first voters of a dynamic quorum have them."""
        voters = self.sim.voters
        return voters if not self.sim.is_dynamic or voters.has(self.key) else VoterSet(())

    @property
    def is_lost(self) -> bool:
        """Whether it has no quorum-state: its disk has rotted, was wiped, or is still new."""
        return self.disk.bad or not self.disk.has_state

    # The process.

    @abstractmethod
    def step(self, event: events.Event) -> None:
        """Process one event completely (contract 1)."""

    @abstractmethod
    def answer(self, token: Any, reply: Any) -> None:
        """Answer a request, after the laws have judged the answer."""

    @abstractmethod
    def is_timer(self, function: Callable[..., None]) -> bool:
        """Whether the event loop runs it as a timer, rather than for a descriptor."""

    def later(self, delay_us: int, function: Callable[..., None], *args: Any) -> None:
        """Schedule a call in this life."""
        self.sim.at(delay_us, self, function, *args)

    def io_us(self) -> int:
        """The random duration of a disk operation in microseconds, up to 2 s on a slow disk."""
        rng = self.sim.rng
        if self.slow_disk:
            time_us = rng.randrange(2_000_000)
            self.busy_until_us = max(self.busy_until_us, self.sim.now_us) + time_us
            return time_us
        return rng.randrange(200, 5_000) if rng.random() < 0.9 else rng.randrange(50_000)

    def check_disk(self) -> None:
        """Raise DiskFailed if the disk is full: the process then ends (contract 10)."""
        if self.full_disk:
            raise DiskFailed("no space left on device")


class Links(Protocol):
    """The network, for processes."""

    def request(self, sender: RaftMachine, number: int, node_id: int, request: Any) -> None:
        """Send the request `number` of the sender's core."""

    def answer(self, sender: RaftMachine, token: PendingRequest, reply: Any) -> None:
        """Send a response to the process that asked."""

    def process_died(self, dead: RaftMachine, *, loud: bool) -> None:
        """`loud`: peers see its connections close; otherwise they notice only by silence."""


class SimulatedQuorum:
    """All machines of one seed."""

    network: Links
    replicas: dict[int, RaftMachine]
    voters: VoterSet
    """The initial voters; in a dynamic quorum, the log states the later voters."""
    is_dynamic: bool
    is_upgradable: bool
    """Whether static voters may become dynamic (kraft.version 0 to 1) at any time."""
    is_driven: bool
    """The processes are real drivers (`driven`), not bare cores."""
    old_peers: set[int]
    """Replicas that know neither pre-votes nor lost disks, like Kafka 3.9 and older."""
    snapshot_every: int
    """The number of records between two snapshots of a replica."""

    def __init__(self, seed: int, story: Story | None) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.story = story
        self.events = 0
        self.digest = 0
        self.now_us = 0
        self.laws = RaftLaws()
        self.config = RaftConfig()
        self.tool_requests = 0
        self.calm = False
        self.heals = 0
        """How often everything healed."""
        self.batches: dict[tuple[int, int], bytes] = {}
        """Batches that drivers have written, by first offset and last chain value."""
        self._queue: list[Item] = []
        self._count = 0

    # The core's environment.

    def randrange(self, stop: int) -> int:
        """A number from 0 to `stop` (excluded) from the seed, for the cores."""
        return int(self.rng.random() * stop)

    def random_bytes(self, count: int) -> bytes:
        """`count` bytes from the seed, for the cores."""
        return self.rng.randbytes(count)

    def has_had(self, key: ReplicaKey, offset: int, chain: int) -> bool:
        """Whether the voter's disk, present or replaced, has the log below `offset` with this chain value."""
        return self.replicas[key.id].has_had(key.directory, offset, chain)

    def counts_votes(self, candidate: int, epoch: int) -> bool:
        """Whether votes of the epoch can make, or have made, the replica a leader."""
        node = self.replicas[candidate].node
        counting = node is not None and node.epoch == epoch and node.role.role is Role.CANDIDATE
        return counting or self.laws.leaders.get(epoch) == candidate

    def note(self, what: str) -> None:
        """Add a line to the story."""
        if self.story is not None:
            self.story.say(self.now_us, what)

    # The queue.

    def at(self, delay_us: int, replica: RaftMachine | None, function: Callable[..., None], *args: Any) -> None:
        """Call a function after a delay, unless the replica's process has ended by then."""
        self._count += 1
        life = 0 if replica is None else replica.life
        heapq.heappush(self._queue, (self.now_us + delay_us, self._count, replica, life, function, args))

    def thaw(self, replica: RaftMachine, life: int) -> None:
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

    @property
    def leaders(self) -> list[RaftMachine]:
        """The replicas that believe to lead."""
        return [r for r in self.replicas.values() if r.node is not None and r.node.role.role is Role.LEADER]
