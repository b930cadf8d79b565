"""What can happen to a `RaftNode`: the inputs of `step`."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.messages import Reply, Request
from kraft_node.raft.quorum import QuorumState, VoterSet


class Started(NamedTuple):
    """The first event, once."""


class Tick(NamedTuple):
    """The time asked for by `SetTimer` has come; harmless earlier."""


class QuorumStateWritten(NamedTuple):
    """`WriteQuorumState` of that state is on stable storage."""

    state: QuorumState


class Flushed(NamedTuple):
    """Everything of the log below `offset` is on stable storage."""

    offset: int


class Asked(NamedTuple):
    """Another node's request; answered by one `Respond` with the same token, perhaps much later."""

    token: Hashable
    request: Request


class Cancelled(NamedTuple):
    """The connection of a request is gone: no answer is needed any more."""

    token: Hashable


class Answered(NamedTuple):
    """The reply to the `Send` of that number; None: refused, timed out, or the connection broke."""

    number: int
    reply: Reply | None


class Unsupported(NamedTuple):
    """The node asked by the `Send` of that number does not know that version of the request."""

    number: int


class Disconnected(NamedTuple):
    """The connection to a node was closed by it, with no word about when it is back."""

    node_id: int


class Learned(NamedTuple):
    """A controller exists under that id: ask it, too, when looking for the leader."""

    node_id: int


class Propose(NamedTuple):
    """The leader of `epoch` wants these batches of record values appended; `RaftNode.prepare` has said where.

    Each batch is committed or lost together.
    """

    epoch: int
    batches: Sequence[Sequence[bytes]]


class UpgradeVersion(NamedTuple):
    """The leader of `epoch` is to raise kraft.version; `voter_changes.why_not_upgrade` has nothing against it."""

    epoch: int
    kraft_version: int


class SnapshotStored(NamedTuple):
    """A snapshot, taken here or fetched from the leader, is complete and durable."""

    snapshot: SnapshotId
    voters: VoterSet | None = None
    """Those that a fetched one states."""


class SnapshotsDropped(NamedTuple):
    """The driver has removed the snapshots before `first_kept` and the log below its end."""

    first_kept: SnapshotId
    log_start_offset: int


class Resign(NamedTuple):
    """The leader's own state machine wants another leader, in that epoch."""

    epoch: int


class Shutdown(NamedTuple):
    """Hand over what is led, then stop: answered by `ShutdownComplete`."""


Event = (
    Started
    | Tick
    | QuorumStateWritten
    | Flushed
    | Asked
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
