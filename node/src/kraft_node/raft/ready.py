"""`Ready`: all work of one step of the core, as one value; `carry_out` does it in the safe order.

A host (driver, simulators, tests) implements `Host` and calls `carry_out(node.step(event, now_ms), host)`. The order,
and why it is safe:

1. `truncate`, then `appends`: afterwards the log in memory and page cache matches the core's view.
2. `part`, `whole`, `stale`: the snapshots.
3. If `releases`, the messages that waited for the quorum state; then `messages`. They may read appended records. They
   are sent before the flush begins, so followers write at the same time as this node.
4. `state`, then `after_state`: those messages wait in `host.held` until a later step `releases` them (contract 2).
5. `flush`: everything that it covers has been appended.
6. Reports of the core: proposed, committed, leadership. Then the timer, and the end.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import pairwise
from traceback import walk_tb
from typing import Any, Final, NamedTuple, Protocol

from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.membership.quorum import QuorumState, ReplicaKey, VoterSet
from kraft_node.raft.messages import Reply, Request

# Batches to append.


class AppendLeaderChange(NamedTuple):
    """Write the batch that opens an epoch: LeaderChange first."""

    offset: int
    epoch: int
    voters: tuple[ReplicaKey, ...]
    granting: tuple[ReplicaKey, ...]
    stated: VoterSet | None = None
    """If set: state kraft.version 1 and these voters in the same batch, because the log does not state them yet
    (KIP-853).
    """


class Append(NamedTuple):
    """Write these record values in one batch of `epoch` at `offset`."""

    offset: int
    epoch: int
    records: list[bytes]


class AppendVoters(NamedTuple):
    """Write a control batch of `epoch` that states the voters (KIP-853), at `offset`."""

    offset: int
    epoch: int
    voters: VoterSet
    kraft_version: int | None = None
    """State this version, too, in front of the voters: the voters were static before."""


class AppendFetched(NamedTuple):
    """Write the leader's batches unchanged."""

    offset: int
    next_offset: int
    records: Any


LogAppend = AppendLeaderChange | Append | AppendVoters | AppendFetched

# Messages.


class Send(NamedTuple):
    """Send a request to a node. `Answered(number, …)` always follows."""

    number: int
    node_id: int
    request: Request


class Respond(NamedTuple):
    """Answer a request of another node."""

    token: Hashable
    reply: Reply


class ReadLog(NamedTuple):
    """Answer a Fetch: fill in `reply.records` with batches from `offset`, at least one, about `max_bytes`."""

    token: Hashable
    reply: Reply
    offset: int
    max_bytes: int


class ReadSnapshot(NamedTuple):
    """Answer a FetchSnapshot: fill in size and data from `position`."""

    token: Hashable
    reply: Reply
    snapshot: SnapshotId
    position: int
    max_bytes: int


Message = Send | Respond | ReadLog | ReadSnapshot

# Other work.


class SnapshotPart(NamedTuple):
    """Bytes of a snapshot that is being fetched. At position 0 begin a new `.part` file."""

    snapshot: SnapshotId
    position: int
    data: Any


class Proposed(NamedTuple):
    """The answer to `Propose`: the offsets of the records of all its batches."""

    first_offset: int
    last_offset: int


class LeaderChanged(NamedTuple):
    """The leader of the epoch as far as this node knows; -1: unknown."""

    leader_id: int
    epoch: int


AS_BEFORE: Final = -1
"""The timer is unchanged."""


class Ready:
    """The work of one step. Fields that are not set need no work."""

    __slots__ = (
        "after_state",
        "appends",
        "became_leader",
        "committed",
        "flush",
        "is_shut_down",
        "leader_changed",
        "lost_leadership",
        "messages",
        "part",
        "proposed",
        "releases",
        "stale",
        "state",
        "timer_ms",
        "truncate",
        "whole",
    )

    def __init__(self) -> None:
        self.truncate: int | None = None
        """Remove everything from this offset on."""
        self.appends: list[LogAppend] = []
        """Batches to write at the end of the log, in order."""
        self.part: SnapshotPart | None = None
        """A part of the snapshot that is being fetched."""
        self.whole: SnapshotId | None = None
        """The fetched snapshot is complete: make it durable, put it in place, empty the log, then give
        `SnapshotStored`.
        """
        self.stale: tuple[SnapshotId, ...] = ()
        """Delete these snapshots: they end before the log starts and never count. A crash may bring them back."""
        self.releases = False
        """The last requested quorum state is durable: send the messages that wait for it."""
        self.messages: list[Message] = []
        """Messages that may leave now."""
        self.state: QuorumState | None = None
        """Make this quorum state durable, then give `QuorumStateWritten`. A later state replaces an unfinished
        state."""
        self.after_state: list[Message] = []
        """Messages that must wait in `Host.held` until the last quorum state is durable."""
        self.flush: int | None = None
        """Make everything below this offset durable, then give `Flushed`. Only one flush runs at a time."""
        self.proposed: Proposed | None = None
        self.committed: int | None = None
        """Everything below this offset is committed: the new high watermark."""
        self.became_leader: int | None = None
        """This node leads that epoch, and `committed` has covered everything that was committed before."""
        self.lost_leadership: int | None = None
        """This node no longer leads that epoch: uncommitted records may never be committed."""
        self.leader_changed: LeaderChanged | None = None
        self.timer_ms: int | None = AS_BEFORE
        """Give `Tick` at this time, instead of the earlier timer; None: no timer."""
        self.is_shut_down = False
        """The shutdown is complete: nothing is left to hand over."""

    def work(self) -> Iterator[tuple[str, Any]]:
        """The fields that are set, by name, in the order of `carry_out`. For traces and tests."""
        for name in _ORDER:
            value = getattr(self, name)
            if name == "timer_ms":
                if value != AS_BEFORE:
                    yield name, value
            elif isinstance(value, list):
                yield from ((name, one) for one in value)
            elif value is not None and value is not False and value != ():
                yield name, value


_ORDER: Final = (
    "truncate",
    "appends",
    "part",
    "whole",
    "stale",
    "releases",
    "messages",
    "state",
    "after_state",
    "flush",
    "proposed",
    "committed",
    "became_leader",
    "lost_leadership",
    "leader_changed",
    "timer_ms",
    "is_shut_down",
)


class Host(Protocol):
    """Carries out the work of one core. An exception from any method ends the process (contract 10)."""

    held: list[Message]
    """Messages that wait for the quorum state. They are lost if the process ends."""

    def truncate(self, offset: int) -> None:
        """Remove everything from `offset` on from the log."""
        ...

    def append(self, batch: Any) -> None:
        """Write a batch (`LogAppend`) at the log's end. It need not be durable yet."""
        ...

    def write_part(self, part: SnapshotPart) -> None:
        """Append a part to the snapshot that is being fetched. Position 0 begins a new `.part` file."""
        ...

    def finish_snapshot(self, snapshot: SnapshotId) -> None:
        """Make the fetched snapshot durable and replace the log by it; then give `SnapshotStored`."""
        ...

    def remove_snapshots(self, snapshots: tuple[SnapshotId, ...]) -> None:
        """Delete snapshots that end before the log starts."""
        ...

    def flush(self, offset: int) -> None:
        """Make everything below `offset` durable; then give `Flushed`."""
        ...

    def send(self, message: Any) -> None:
        """Send a `Message`: a request to another node, or the answer to a node's request."""
        ...

    def save_state(self, state: QuorumState) -> None:
        """Make the quorum state durable; then give `QuorumStateWritten`."""
        ...

    def proposed(self, proposed: Proposed) -> None:
        """The proposed records have these offsets. They may still wait to be written."""
        ...

    def committed(self, high_watermark: int) -> None:
        """Everything below `high_watermark` is committed. It never decreases."""
        ...

    def became_leader(self, epoch: int) -> None:
        """This node leads `epoch`, and everything committed before it is known."""
        ...

    def lost_leadership(self, epoch: int) -> None:
        """This node no longer leads `epoch`: its uncommitted records may never be committed."""
        ...

    def leader_changed(self, changed: LeaderChanged) -> None:
        """Leader or epoch has changed. The leader is -1 if it is unknown."""
        ...

    def set_timer(self, at_ms: int | None) -> None:
        """Give `Tick` at this monotonic time instead of the earlier timer; None: no timer."""
        ...

    def shut_down(self) -> None:
        """The core gives no more work: close."""
        ...


def carry_out(ready: Ready, host: Host) -> None:
    """Do all work of a step, before the next step (contract 1)."""
    if ready.truncate is not None:
        host.truncate(ready.truncate)
    for batch in ready.appends:
        host.append(batch)
    if ready.part is not None:
        host.write_part(ready.part)
    if ready.whole is not None:
        host.finish_snapshot(ready.whole)
    if ready.stale:
        host.remove_snapshots(ready.stale)
    if ready.releases:
        held, host.held = host.held, []
        for message in held:
            host.send(message)
    for message in ready.messages:
        host.send(message)
    if ready.state is not None:
        host.save_state(ready.state)
    if ready.after_state:
        host.held += ready.after_state
    if ready.flush is not None:
        host.flush(ready.flush)
    _call_hooks(ready, host)


def _call_hooks(ready: Ready, host: Host) -> None:
    if ready.proposed is not None:
        host.proposed(ready.proposed)
    if ready.committed is not None:
        host.committed(ready.committed)
    if ready.became_leader is not None:
        host.became_leader(ready.became_leader)
    if ready.lost_leadership is not None:
        host.lost_leadership(ready.lost_leadership)
    if ready.leader_changed is not None:
        host.leader_changed(ready.leader_changed)
    if ready.timer_ms != AS_BEFORE:
        host.set_timer(ready.timer_ms)
    if ready.is_shut_down:
        host.shut_down()


def failed_work(error: BaseException) -> str | None:
    """The name of the host's method that raised the error; None if the error came from elsewhere."""
    names = [frame.f_code.co_name for frame, _ in walk_tb(error.__traceback__)]
    return next((name for by, name in pairwise(names) if by in (carry_out.__name__, _call_hooks.__name__)), None)
