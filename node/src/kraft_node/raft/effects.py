"""What a `RaftNode` wants done: the outputs of `step`, to be carried out in order."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.messages import Reply, Request
from kraft_node.raft.quorum import QuorumState, ReplicaKey, VoterSet


class WriteQuorumState(NamedTuple):
    """Make it durable, then `QuorumStateWritten`. A later one replaces an unfinished one."""

    state: QuorumState


class AppendLeaderChange(NamedTuple):
    """Write the batch that opens an epoch: LeaderChange first."""

    offset: int
    epoch: int
    voters: tuple[ReplicaKey, ...]
    granting: tuple[ReplicaKey, ...]
    stated: VoterSet | None = None
    """State kraft.version 1 and these voters behind it, in the same batch: the log does not yet (KIP-853)."""


class Append(NamedTuple):
    """Write these record values, in one batch of `epoch`, beginning at `offset`."""

    offset: int
    epoch: int
    records: list[bytes]


class AppendVoters(NamedTuple):
    """Write a control batch of `epoch` that states the voters (KIP-853), at `offset`."""

    offset: int
    epoch: int
    voters: VoterSet
    kraft_version: int | None = None
    """State this version as well, in front of the voters: they were static before."""


class AppendFetched(NamedTuple):
    """Write the leader's batches as they are."""

    offset: int
    next_offset: int
    records: Any


class Truncate(NamedTuple):
    """Remove everything from `offset` on."""

    offset: int


class Flush(NamedTuple):
    """Make everything below `offset` durable, then `Flushed(offset)`; one at a time."""

    offset: int


class Send(NamedTuple):
    """Ask a node; `Answered(number, …)` in any case."""

    number: int
    node_id: int
    request: Request


class Respond(NamedTuple):
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


class WriteSnapshotPart(NamedTuple):
    """Bytes of a snapshot being fetched; at position 0 begin a new `.part` file."""

    snapshot: SnapshotId
    position: int
    data: Any


class FinishSnapshot(NamedTuple):
    """The fetched snapshot is whole: make it durable, put it in place, empty the log, then `SnapshotStored`."""

    snapshot: SnapshotId


class RemoveSnapshots(NamedTuple):
    """Delete these snapshots: they end before the log starts, and count no more. They may come back after a crash."""

    snapshots: tuple[SnapshotId, ...]


class Proposed(NamedTuple):
    """The answer to `Propose`: the offsets given to the records of all its batches."""

    first_offset: int
    last_offset: int


class Committed(NamedTuple):
    """Everything below `high_watermark` is committed."""

    high_watermark: int


class BecameLeader(NamedTuple):
    """This node leads `epoch`, and everything committed before has been told by `Committed`."""

    epoch: int


class LostLeadership(NamedTuple):
    """This node no longer leads `epoch`: what was not committed may never be."""

    epoch: int


class LeaderChanged(NamedTuple):
    """The leader of the epoch as far as this node knows; -1: nobody."""

    leader_id: int
    epoch: int


class SetTimer(NamedTuple):
    """`Tick` at that time; replaces the earlier timer. None: no need."""

    at_ms: int | None


class ShutdownComplete(NamedTuple):
    """Nothing more to hand over."""


Effect = (
    WriteQuorumState
    | AppendLeaderChange
    | Append
    | AppendVoters
    | AppendFetched
    | Truncate
    | Flush
    | Send
    | Respond
    | ReadLog
    | ReadSnapshot
    | WriteSnapshotPart
    | FinishSnapshot
    | RemoveSnapshots
    | Proposed
    | Committed
    | BecameLeader
    | LostLeadership
    | LeaderChanged
    | SetTimer
    | ShutdownComplete
)
