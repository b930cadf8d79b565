"""One process of the Raft simulator: the host of a core (`raft.ready.Host`), as `server.quorum.host` is on real files.

Asserts the driver's contract (with the numbers of `raft/__init__.py`) and reports events to `laws`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kraft_node.raft import events
from kraft_node.raft import ready as do
from kraft_node.raft.accumulator import BatchTooLarge
from kraft_node.raft.epochs import FREE_MAX
from kraft_node.raft.log_view import LogView, SnapshotId
from kraft_node.raft.membership.quorum import QuorumState
from kraft_node.raft.messages import FetchedBatch, FetchReply
from kraft_node.raft.node import NotLeader, RaftNode
from kraft_node.raft.roles.leader import Leader
from kraft_node.testing.raft import appends, judge
from kraft_node.testing.raft.laws import require
from kraft_node.testing.raft.quorum import DiskFailed, RaftMachine, SimulatedQuorum
from kraft_node.testing.raft.replica_snapshots import ReplicaSnapshots
from kraft_node.testing.raft.storage import ModelDisk

BATCHES_A_FETCH: Final = 4
CLUSTER: Final = "simulated"


class Replica(RaftMachine):
    """A machine whose process is a bare core."""

    def __init__(self, sim: SimulatedQuorum, node_id: int) -> None:
        super().__init__(sim, node_id)
        self.state_lane_us = 0
        self.timer = 0
        self.snapshots = ReplicaSnapshots(self)
        self.promised: deque[tuple[int, int, tuple[int, ...]]] = deque()
        """Promises to proposers: (first offset, epoch, values), until they are committed or leadership is lost."""
        self._proposing: tuple[int, ...] = ()
        self.held: list[do.Message] = []
        """Messages that wait for the quorum state to be written."""

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
        self.node = self._make_core(log)
        self.was_amnesiac = self.node.is_amnesiac
        self.step(events.Started())

    def _make_core(self, log: LogView) -> RaftNode:
        """The core of a starting process, made from the disk as the driver makes it."""
        if self.sim.is_dynamic or self.sim.is_upgradable:
            return self._make_dynamic(log)
        return RaftNode(
            local=self.key,
            voters=self.configured,
            log=log,
            state=self.disk.state,
            rng=self.sim,
            cluster_id=CLUSTER,
            config=self.sim.config,
            is_amnesiac=self._is_amnesiac(),
        )

    def _make_dynamic(self, log: LogView) -> RaftNode:
        disk = self.disk
        first = self.first_voters
        newest = disk.snapshots[-1] if disk.snapshots else None
        stated = disk.log.voter_sets()
        if newest is not None and newest.voters is not None:
            at = newest.id.end_offset - 1
            stated = [(at, newest.voters), *[known for known in stated if known[0] > at]]
        return RaftNode(
            local=self.key,
            voters=first,
            voter_sets=stated,
            kraft_version=1 if stated or (self.sim.is_dynamic and len(first)) else 0,
            own=self.own,
            log=log,
            state=disk.state,
            rng=self.sim,
            cluster_id=CLUSTER,
            config=self.sim.config,
            bootstrap_ids=self.sim.voters.ids,
            is_amnesiac=self.sim.is_upgradable and not stated and self._is_amnesiac(),
        )

    def _is_amnesiac(self) -> bool:
        """As in the driver: a voter of several without a quorum-state."""
        voters = self.configured
        is_guarded = len(voters) > 1 and self.id in voters and self.id not in self.sim.old_peers
        return is_guarded and not self.disk.has_state

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
            sim.story.add_step(sim.now_us, sim.events, self.id, node, event, given)
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

    # The disk.

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
