"""The events of a `RaftNode`: the inputs of `step`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.membership.quorum import QuorumState, VoterSet
from kraft_node.raft.messages import Reply, Request


class Started(NamedTuple):
    """The first event, once."""


class Tick(NamedTuple):
    """The time that `Ready.timer_ms` named has come. Earlier ticks are harmless."""


class QuorumStateWritten(NamedTuple):
    """That quorum state is on stable storage."""

    state: QuorumState


class Flushed(NamedTuple):
    """Everything of the log below `offset` is on stable storage."""

    offset: int


class Requested(NamedTuple):
    """A request of another node. The core answers with one `Respond` with the same token, perhaps much later."""

    token: Hashable
    request: Request


class Cancelled(NamedTuple):
    """The connection of a request is closed: the request needs no answer."""

    token: Hashable


class Answered(NamedTuple):
    """The reply to the `Send` with that number. None: the request failed, timed out, or the connection broke."""

    number: int
    reply: Reply | None


class Unsupported(NamedTuple):
    """The node that received the `Send` with that number does not know that version of the request."""

    number: int


class Disconnected(NamedTuple):
    """A node closed its connection to this node and has not announced when it returns."""

    node_id: int


class Learned(NamedTuple):
    """A controller with that id exists: send requests for the leader to it, too."""

    node_id: int


class Propose(NamedTuple):
    """Append these batches of record values; this node must lead `epoch`. `RaftNode.prepare` returns their first
    offset.

    Each batch is committed or lost as a whole.
    """

    epoch: int
    batches: Sequence[Sequence[bytes]]


class UpgradeVersion(NamedTuple):
    """Raise kraft.version; this node must lead `epoch`, and `voter_changes.why_not_upgrade` must have returned None."""

    epoch: int
    kraft_version: int


class SnapshotStored(NamedTuple):
    """A snapshot, taken here or fetched from the leader, is complete and durable."""

    snapshot: SnapshotId
    voters: VoterSet | None = None
    """The voters that a fetched snapshot states."""


class SnapshotsDropped(NamedTuple):
    """The driver has deleted the snapshots before `first_kept` and the log below its end."""

    first_kept: SnapshotId
    log_start_offset: int


class Resign(NamedTuple):
    """The state machine of the leader of that epoch makes it resign."""

    epoch: int


class Shutdown(NamedTuple):
    """Hand over the leadership, then stop. `Ready.is_shut_down` answers it."""


Event = (
    Started
    | Tick
    | QuorumStateWritten
    | Flushed
    | Requested
    | Cancelled
    | Answered
    | Unsupported
    | Disconnected
    | Learned
    | Propose
    | UpgradeVersion
    | SnapshotStored
    | SnapshotsDropped
    | Resign
    | Shutdown
)
