"""One process of the Raft simulator: the host of a core (`raft.ready.Host`), as `server.quorum.host` is on real files.

Asserts the driver's contract (with the numbers of `raft/__init__.py`) and reports events to `laws`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kraft_node.raft import events
from kraft_node.raft import ready as do
from kraft_node.raft.accumulator import BatchTooLarge
from kraft_node.raft.epochs import FREE_MAX
from kraft_node.raft.log_view import LogView, SnapshotId
from kraft_node.raft.membership.quorum import QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.messages import FetchedBatch, FetchReply
from kraft_node.raft.node import NotLeader, RaftNode
from kraft_node.raft.roles.leader import Leader
from kraft_node.testing.raft import appends, judge
from kraft_node.testing.raft.laws import require
from kraft_node.testing.raft.replica_snapshots import ReplicaSnapshots
from kraft_node.testing.raft.storage import ModelDisk, ModelLog
from kraft_protocol.ids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from kraft_node.testing.raft.simulation import Simulation

BATCHES_A_FETCH: Final = 4


class DiskFailed(OSError):  # noqa: N818 - a fact
    """The disk is full, or has failed."""


class PendingRequest:
    """A received request that is not answered yet."""

    __slots__ = ("asker", "life", "number", "request")

    def __init__(self, asker: Replica, number: int, request: Any) -> None:
        self.asker = asker
        self.life = asker.life
        self.number = number
        self.request = request


class Replica:
    """A machine with its disk, and the process on it while it runs."""

    def __init__(self, sim: Simulation, node_id: int) -> None:
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
        self.state_lane_us = 0
        self.busy_until_us = 0
        """Until then a slow disk may be busy."""
        self.timer = 0
        self.in_flight: dict[int, Replica] = {}
        self.tokens: dict[PendingRequest, None] = {}
        self.snapshots = ReplicaSnapshots(self)
        self.announced_epoch = -1
        self.voters_moved = False
        """Whether the log may state new voters."""
        self.promised: deque[tuple[int, int, tuple[int, ...]]] = deque()
        """Promises to proposers: (first offset, epoch, values), until they are committed or leadership is lost."""
        self._proposing: tuple[int, ...] = ()
        self.held: list[do.Message] = []
        """Messages that wait for the quorum state to be written."""
        self.known_snapshots: set[SnapshotId] = set()
        """Snapshots that the core of this life knows."""

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

    # Life and death.

    def start(self) -> None:
        """Open the disk and start."""
        assert self.node is None
        disk = self.disk
        self.life += 1
        self.high_watermark = -1
        self.state_lane_us = 0
        self.state = disk.state
        self.announced_epoch = -1
        self.in_flight.clear()
        self.tokens.clear()
        self.heard_ms.clear()
        self.promised.clear()
        self.held = []
        self.voters_moved = False
        self.known_snapshots = {kept.id for kept in disk.snapshots}
        disk.open()
        self.sim.laws.log_starts(self, disk.log)
        self.snapshots.opened()
        self.epoch = 0
        self.boot()
        judge.start(self)

    def boot(self) -> None:
        """Start the process on an open disk."""
        disk = self.disk
        log = LogView(disk.log.start, disk.log.end, disk.log.epochs(), [kept.id for kept in disk.snapshots])
        self.node = self.sim.make_node(self, log)
        self.was_amnesiac = self.node.is_amnesiac
        self.step(events.Started())

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

    # Steps.

    def step(self, event: events.Event) -> None:
        """Process one event completely (contract 1)."""
        node = self.node
        if node is None:
            return
        sim = self.sim
        sim.events += 1
        if type(event) is events.Propose:
            self._proposing = tuple(int(value) for values in event.batches for value in values)
        try:
            given = node.step(event, self.local_us() // 1000)
        except (NotLeader, BatchTooLarge):
            return
        if sim.story is not None:
            sim.story.add_step(self, event, given)
        try:
            do.carry_out(given, self)
        except DiskFailed as e:
            # Contract 10: the state of the disk is unknown now.
            sim.note(f"{self.id} stops: {e}")
            self.lose_power()
            return
        self.settle(node, _NUMBER[type(event)], len(given.messages) + len(given.after_state))

    def settle(self, node: RaftNode, kind: int, count: int) -> None:
        """Check the result of a step; `kind` and `count` go into the trace."""
        sim = self.sim
        epoch = node.epoch
        if not self.epoch <= epoch < FREE_MAX:
            require(epoch >= self.epoch, "epochs are monotonic", f"{self.epoch} to {epoch} at {self.id}")
            require(False, "a replica accepts no epoch that leaves no epoch for elections", f"{epoch} at {self.id}")
        self.epoch = epoch
        if kind == TICK and isinstance(node.role, Leader):
            judge.majority(self, node.role)
        if self.voters_moved:
            self.voters_moved = False
            judge.voters(self, node)
        log = self.disk.log
        judge.snapshots(self, node.log)
        if node.log.end_offset != log.end or node.log.start_offset != log.start:
            require(False, "core and disk agree on the log", f"{self.id}: {node.log.end_offset}, {log.end}")
        sim.digest = hash((sim.digest, sim.now_us, self.id, kind, epoch, log.end, count))

    def is_timer(self, function: Callable[..., None]) -> bool:
        """Whether the event loop runs it as a timer, rather than for a descriptor."""
        return function == self._timer_due

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

    # The disk.

    def check_disk(self) -> None:
        """Raise DiskFailed if the disk is full: the process then ends (contract 10)."""
        if self.full_disk:
            raise DiskFailed("no space left on device")

    def save_state(self, state: QuorumState) -> None:
        """Write the quorum state after earlier states, as a single thread does; `QuorumStateWritten` follows."""
        self.check_disk()
        self.state = state
        now = self.sim.now_us
        self.state_lane_us = max(self.state_lane_us, now) + self.io_us()
        self.later(self.state_lane_us - now, self._state_written, state)

    def _state_written(self, state: Any) -> None:
        if self.failing_fsync:
            self.sim.note(f"{self.id} stops: fsync of the quorum-state failed")
            self.lose_power()
            return
        require(state.epoch >= self.disk.state.epoch, "epochs on disk are monotonic", f"{self.id}: {state}")
        self.disk.state = state
        self.disk.has_state = True
        self.step(events.QuorumStateWritten(state))

    def append(self, batch: do.LogAppend) -> None:
        """Append a batch of any kind to the disk, and let the laws judge it."""
        self.check_disk()
        appends.APPEND[type(batch)](self, batch)

    def truncate(self, offset: int) -> None:
        """Truncate the log to `offset`, after the laws have checked that no committed record is lost."""
        self.check_disk()
        self.sim.laws.truncated(self, offset)
        self.voters_moved = self.sim.is_dynamic or self.sim.is_upgradable
        self.disk.truncate(offset)

    def flush(self, offset: int) -> None:
        """Make the entries that are pending now durable after an I/O time, then report `offset` to the core."""
        self.later(self.io_us(), self._flushed, offset, len(self.disk.pending), self.disk)

    def _flushed(self, offset: int, count: int, disk: ModelDisk) -> None:
        if self.failing_fsync:
            self.sim.note(f"{self.id} stops: fsync of the log failed")
            self.lose_power()
            return
        disk.sync(count)
        self.step(events.Flushed(offset))

    # Messages.

    def write_part(self, part: do.SnapshotPart) -> None:
        """Store a part of a fetched snapshot."""
        self.snapshots.write_part(part)

    def finish_snapshot(self, snapshot: SnapshotId) -> None:
        """Complete a fetched snapshot."""
        self.snapshots.finish(snapshot)

    def remove_snapshots(self, snapshots: tuple[SnapshotId, ...]) -> None:
        """Remove snapshots from the disk."""
        self.disk.remove_snapshots(snapshots)

    def send(self, message: do.Message) -> None:
        """Send a request or an answer, or read the log for an answer."""
        _SEND[type(message)](self, message)

    def _ask(self, effect: do.Send) -> None:
        judge.words(self)
        judge.fetch(self, effect.request)
        self.sim.network.request(self, effect.number, effect.node_id, effect.request)

    def _respond(self, effect: do.Respond) -> None:
        self.answer(effect.token, effect.reply)

    def answer(self, token: Any, reply: Any) -> None:
        """Answer a request, after the laws have judged the answer."""
        judge.words(self)
        judge.vote(self, token, reply)
        self.tokens.pop(token, None)
        self.sim.network.answer(self, token, reply)

    def _read_log(self, effect: do.ReadLog) -> None:
        log = self.disk.log
        index = log.index_of(effect.offset)
        entries = log.entries[index : index + self.sim.rng.randint(1, BATCHES_A_FETCH)]
        batches = tuple(FetchedBatch(entry.base, entry.next, entry.epoch, entry.voters) for entry in entries)
        reply = effect.reply
        assert isinstance(reply, FetchReply)
        self.answer(effect.token, reply._replace(batches=batches, records=entries))

    # Notifications from the core.

    def committed(self, offset: int) -> None:
        """Note the new high watermark. Checks promises, and begins a snapshot if the log has grown enough."""
        node = self.node
        assert node is not None
        self.sim.laws.advanced(self, offset, node.voters if self.sim.laws.leaders.get(node.epoch) == self.id else None)
        self.high_watermark = offset
        self.check_promises(offset)
        if offset >= self.snapshots.at + self.sim.snapshot_every:
            self.later(0, self.snapshots.begin, offset)

    def became_leader(self, epoch: int) -> None:
        """Note that the leadership of the epoch is announced."""
        require(self.sim.laws.leaders.get(epoch) == self.id, "one leader per epoch", f"{self.id}")
        self.announced_epoch = epoch

    def check_promises(self, end: int) -> None:
        """Everything below `end` is committed: check the promises to proposers."""
        while self.promised and self.promised[0][0] + len(self.promised[0][2]) <= end:
            self.sim.laws.kept(self, *self.promised.popleft(), end)

    def lost_leadership(self, epoch: int) -> None:
        """Note that the leadership has ended. Its promises no longer bind."""
        require(self.announced_epoch == epoch, "only an announced epoch is revoked", f"{self.id}")
        self.announced_epoch = -1
        self.promised.clear()

    def proposed(self, proposed: do.Proposed) -> None:
        """Note a promise: if the high watermark passes these offsets in this leadership, the records are committed."""
        count = proposed.last_offset - proposed.first_offset + 1
        require(count == len(self._proposing), "each proposed record has an offset", f"{self.id}: {proposed}")
        self.promised.append((proposed.first_offset, self.announced_epoch, self._proposing))

    def leader_changed(self, changed: do.LeaderChanged) -> None:
        """Ignored: the laws do not need it."""

    def set_timer(self, at_ms: int | None) -> None:
        """Replace the timer: a tick follows at `at_ms` of local time, or none if None."""
        self.timer += 1
        if at_ms is not None:
            delay = (at_ms * 1000 - self.local_us()) * 1000 // self.rate + 1
            self.later(max(0, delay), self._timer_due, self.timer)

    def _timer_due(self, number: int) -> None:
        if number == self.timer:
            self.step(events.Tick())

    def shut_down(self) -> None:
        """End the process in a following event, with all writes durable; in calm it starts again at once."""
        self.later(0, self._stopped)

    def _stopped(self) -> None:
        self.disk.sync(len(self.disk.pending))
        self.die(loud=True)
        if self.sim.calm:
            self.start()


_SEND: Final[dict[type, Callable[[Replica, Any], None]]] = {
    do.Send: Replica._ask,
    do.Respond: Replica._respond,
    do.ReadLog: Replica._read_log,
    do.ReadSnapshot: lambda replica, message: replica.snapshots.read(message),
}
_NUMBER: Final = {kind: number for number, kind in enumerate(events.Event.__args__)}
TICK: Final = _NUMBER[events.Tick]
