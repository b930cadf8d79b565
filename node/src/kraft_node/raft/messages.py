"""Messages between replicas, without the protocol's wrapping. `error` is one of Kafka's codes, 0 for success."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kraft_node.raft.log_view import EpochEnd, SnapshotId
from kraft_node.raft.membership.quorum import NO_NODE, ReplicaKey, Voter, VoterSet
from kraft_protocol.ids import ZERO_UUID, Uuid

NONE = 0
NOT_LEADER_OR_FOLLOWER = 6
REQUEST_TIMED_OUT = 7
BROKER_NOT_AVAILABLE = 8
UNSUPPORTED_VERSION = 35
INVALID_REQUEST = 42
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
INCONSISTENT_VOTER_SET = 94
SNAPSHOT_NOT_FOUND = 98
POSITION_OUT_OF_RANGE = 99
INCONSISTENT_CLUSTER_ID = 104
INVALID_VOTER_KEY = 125
DUPLICATE_VOTER = 126
VOTER_NOT_FOUND = 127
NO_HIGH_WATERMARK = (1 << 63) - 1
"""In a Fetch: the sender does not wait for a higher high watermark (before version 18)."""


class VoteRequest(NamedTuple):
    """A Vote or pre-vote of a candidate; `last_epoch` and `end_offset` describe the end of its log."""

    epoch: int
    candidate: ReplicaKey
    last_epoch: int
    end_offset: int
    pre_vote: bool = False
    voter: ReplicaKey | None = None
    """The replica that the sender addresses; None in version 0."""
    cluster_id: str | None = None


class VoteReply(NamedTuple):
    """Whether the vote was granted, and the epoch and leader that the voter knows."""

    error: int
    epoch: int
    leader_id: int = NO_NODE
    granted: bool = False


class BeginQuorumEpochRequest(NamedTuple):
    """A new leader announces its epoch to a voter (KIP-595)."""

    epoch: int
    leader_id: int
    voter: ReplicaKey | None = None
    cluster_id: str | None = None


class BeginQuorumEpochReply(NamedTuple):
    """The voter follows the leader of this epoch now, or an error with the newer epoch that it knows."""

    error: int
    epoch: int
    leader_id: int = NO_NODE


class EndQuorumEpochRequest(NamedTuple):
    """A leader's message that it resigns."""

    epoch: int
    leader_id: int
    successors: tuple[ReplicaKey, ...]
    """The preferred candidates: the most caught up voter leads the list."""
    cluster_id: str | None = None


class EndQuorumEpochReply(NamedTuple):
    """The voter has noted that its leader resigned."""

    error: int
    epoch: int
    leader_id: int = NO_NODE


class FetchRequest(NamedTuple):
    """A Fetch of the metadata log; `last_epoch` is the epoch of the record before `offset`."""

    epoch: int
    replica: ReplicaKey
    """Id -1: a plain reader."""
    offset: int
    last_epoch: int
    max_bytes: int
    max_wait_ms: int
    high_watermark: int = NO_HIGH_WATERMARK
    cluster_id: str | None = None


class FetchedBatch(NamedTuple):
    """The facts about a fetched batch that the core needs."""

    base_offset: int
    next_offset: int
    epoch: int
    voters: VoterSet | None = None
    """The voters that a control batch states; None for other batches."""


class FetchReply(NamedTuple):
    """The answer to a Fetch: batches, the point where the logs diverge, or a snapshot to load."""

    error: int
    epoch: int
    leader_id: int = NO_NODE
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: EpochEnd | None = None
    snapshot: SnapshotId | None = None
    batches: tuple[FetchedBatch, ...] = ()
    records: Any = b""
    """The bytes of `batches`. In answers to others the driver reads them (`ReadLog`)."""


class FetchSnapshotRequest(NamedTuple):
    """A request for `max_bytes` of a snapshot, from the byte `position` on."""

    epoch: int
    replica: ReplicaKey
    snapshot: SnapshotId
    position: int
    max_bytes: int
    cluster_id: str | None = None


class FetchSnapshotReply(NamedTuple):
    """A part of a snapshot: `data` from `position` on, of `size` bytes in total."""

    error: int
    epoch: int
    leader_id: int = NO_NODE
    snapshot: SnapshotId | None = None
    size: int = 0
    position: int = 0
    data: Any = b""


class AddVoterRequest(NamedTuple):
    """Make an observer that has caught up a voter (KIP-853)."""

    voter: Voter
    timeout_ms: int
    ack_when_committed: bool = True
    cluster_id: str | None = None


class RemoveVoterRequest(NamedTuple):
    """Make a voter an observer (KIP-853). The key must match in its directory id, too."""

    key: ReplicaKey
    cluster_id: str | None = None


class UpdateVoterRequest(NamedTuple):
    """A voter reports its endpoints and its range of kraft.version to the leader (KIP-853)."""

    epoch: int
    voter: Voter
    cluster_id: str | None = None


class VersionsRequest(NamedTuple):
    """Which kraft.version a future voter supports: an ApiVersions request to its endpoints."""

    endpoints: Mapping[str, tuple[str, int]]


class VersionsReply(NamedTuple):
    """The kraft.versions that a voter supports."""

    error: int
    kraft_versions: tuple[int, int] | None = None
    """The lowest and the highest version; None if it supports none."""
    epoch: int = -1
    """ApiVersions carries no epoch."""
    leader_id: int = NO_NODE


class VoterChangeReply(NamedTuple):
    """The reply to the three requests that change voters."""

    error: int
    epoch: int = -1
    """-1 if the protocol does not carry it."""
    leader_id: int = NO_NODE


Message = (
    VoteRequest
    | VoteReply
    | BeginQuorumEpochRequest
    | BeginQuorumEpochReply
    | EndQuorumEpochRequest
    | EndQuorumEpochReply
    | FetchRequest
    | FetchReply
    | FetchSnapshotRequest
    | FetchSnapshotReply
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | VersionsRequest
    | VersionsReply
    | VoterChangeReply
)
Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | AddVoterRequest
    | RemoveVoterRequest
    | UpdateVoterRequest
    | VersionsRequest
)
Reply = (
    VoteReply
    | BeginQuorumEpochReply
    | EndQuorumEpochReply
    | FetchReply
    | FetchSnapshotReply
    | VersionsReply
    | VoterChangeReply
)

UNKNOWN_DIRECTORY: Uuid = ZERO_UUID
