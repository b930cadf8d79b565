"""The voters, and the durable state of a replica: its epoch and its vote in that epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kraft_protocol.ids import ZERO_UUID, Uuid

NO_NODE = -1
"""In place of a node id: no leader is known, or no vote was cast."""


class ReplicaKey(NamedTuple):
    """A replica: its node id and, if known, its directory id, which distinguishes an emptied disk from the old disk
    (KIP-853).
    """

    id: int
    directory: Uuid = ZERO_UUID
    """ZERO_UUID if unknown: it matches any directory of the node."""

    def matches(self, other: ReplicaKey) -> bool:
        """Whether both may be the same replica: equal ids, and equal directories unless a directory is unknown."""
        unknown = ZERO_UUID in (self.directory, other.directory)
        return self.id == other.id and (unknown or self.directory == other.directory)


class Voter(NamedTuple):
    """A voter and its endpoints: listener name -> (host, port), the controller's default listener first."""

    key: ReplicaKey
    endpoints: Mapping[str, tuple[str, int]] = {}
    kraft_versions: tuple[int, int] = (0, 1)
    """The lowest and highest kraft.version that it supports."""


class VoterSet:
    """An immutable set of voters."""

    __slots__ = ("_by_id",)

    def __init__(self, voters: Iterable[Voter]) -> None:
        self._by_id = {voter.key.id: voter for voter in voters}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._by_id.values())

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._by_id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._by_id == other._by_id

    __hash__ = None  # type: ignore[assignment]

    def get(self, node_id: int) -> Voter | None:
        """The voter with this node id, in whatever directory; None if the node is not a voter."""
        return self._by_id.get(node_id)

    def has(self, key: ReplicaKey) -> bool:
        """Whether exactly this replica (id, and directory if both are known) is a voter."""
        voter = self._by_id.get(key.id)
        return voter is not None and voter.key.matches(key)

    def with_voter(self, voter: Voter) -> VoterSet:
        """A copy with this voter. It replaces a voter with the same id."""
        return VoterSet((self._by_id | {voter.key.id: voter}).values())

    def without(self, node_id: int) -> VoterSet:
        """A copy without the voter of this node id. The set itself does not change."""
        return VoterSet(voter for voter in self if voter.key.id != node_id)

    @property
    def ids(self) -> list[int]:
        """The node ids of the voters, ascending."""
        return sorted(self._by_id)

    @property
    def majority(self) -> int:
        """The number of voters that must agree: more than half of them."""
        return len(self._by_id) // 2 + 1

    def is_only(self, key: ReplicaKey) -> bool:
        """Whether this replica is the only voter, so that it needs no other to win an election."""
        return len(self._by_id) == 1 and self.has(key)


class QuorumState(NamedTuple):
    """The content of the quorum-state file."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: ReplicaKey = ReplicaKey(NO_NODE)

    @property
    def has_voted(self) -> bool:
        """Whether the replica has voted in this epoch, for itself or for another replica."""
        return self.voted.id != NO_NODE
