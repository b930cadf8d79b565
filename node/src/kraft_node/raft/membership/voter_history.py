"""kraft.version and the voters that the log and its snapshots state (KIP-853).

At kraft.version 0 the configuration names the voters and the log does not. At 1 the log states them: the latest
VotersRecord counts, committed or not. Formatting writes both into the bootstrap snapshot (0, 0). The first leader
writes them into the log after its LeaderChange, and every snapshot repeats them in its first batch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kraft_node.raft.membership.quorum import ReplicaKey, Voter, VoterSet
from kraft_protocol.buffers import Buffer
from kraft_protocol.records.control import ControlType
from kraft_protocol.wire import codec, stored

CONTROL_MESSAGE_VERSION: Final = 0
NOT_IN_LOG: Final = -1


class _Fact(NamedTuple):
    offset: int
    value: bytes


class VoterHistory:
    """Everything stated so far, with offsets, so that a truncation can undo it."""

    __slots__ = ("_versions", "_voters")

    def __init__(self) -> None:
        self._versions: list[_Fact] = []
        self._voters: list[_Fact] = []

    def take(self, offset: int, kind: ControlType, value: Buffer) -> None:
        """Note a control record; other kinds are ignored. `offset` -1: from the bootstrap snapshot."""
        if kind is ControlType.KRAFT_VERSION:
            self._versions.append(_Fact(offset, bytes(value)))
        elif kind is ControlType.KRAFT_VOTERS:
            self._voters.append(_Fact(offset, bytes(value)))

    def truncated(self, offset: int) -> None:
        """Note that the records at `offset` and above are gone."""
        self._versions = [fact for fact in self._versions if fact.offset < offset]
        self._voters = [fact for fact in self._voters if fact.offset < offset]

    @property
    def kraft_version(self) -> int:
        """The latest version that the log states; 0 if it states none."""
        if not self._versions:
            return 0
        record = codec.decode(stored.KRaftVersionRecord, self._versions[-1].value, CONTROL_MESSAGE_VERSION)
        return record.k_raft_version

    @property
    def voters(self) -> VoterSet | None:
        """The voters that the log states; None at kraft.version 0."""
        if self.kraft_version < 1 or not self._voters:
            return None
        return decode_voters(self._voters[-1].value)

    @property
    def voter_sets(self) -> list[tuple[int, VoterSet]]:
        """All stated voter sets, by offset. The core returns to an earlier set if the log is truncated."""
        if self.kraft_version < 1:
            return []
        return [(fact.offset, decode_voters(fact.value)) for fact in self._voters]

    def records(self, end_offset: int | None = None) -> list[tuple[int, bytes]]:
        """(control type, value) pairs that restate version and voters of a log that ends at `end_offset`.

        A snapshot must not state voters beyond its end. Empty at kraft.version 0.
        """
        if self.kraft_version < 1:
            return []
        versions = [fact for fact in self._versions if end_offset is None or fact.offset < end_offset]
        voters = [fact for fact in self._voters if end_offset is None or fact.offset < end_offset]
        if not versions or not voters:
            return []
        return [
            (ControlType.KRAFT_VERSION, versions[-1].value),
            (ControlType.KRAFT_VOTERS, voters[-1].value),
        ]


def decode_voters(value: Buffer) -> VoterSet:
    """The voters in a VotersRecord. Raises DecodeError."""
    record = codec.decode(stored.VotersRecord, bytes(value), CONTROL_MESSAGE_VERSION)
    return VoterSet(
        Voter(
            ReplicaKey(voter.voter_id, voter.voter_directory_id),
            {endpoint.name: (endpoint.host, endpoint.port) for endpoint in voter.endpoints},
            (voter.k_raft_version_feature.min_supported_version, voter.k_raft_version_feature.max_supported_version),
        )
        for voter in record.voters
    )


def encode_kraft_version(level: int) -> bytes:
    """The KRaftVersionRecord that states this level."""
    record = stored.KRaftVersionRecord(version=CONTROL_MESSAGE_VERSION, k_raft_version=level)
    return codec.encode(record, CONTROL_MESSAGE_VERSION)


def encode_voters(voters: VoterSet) -> bytes:
    """The VotersRecord that states these voters."""
    record = stored.VotersRecord
    return codec.encode(
        record(
            version=CONTROL_MESSAGE_VERSION,
            voters=[
                record.Voter(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory,
                    endpoints=[record.Endpoint(name, *where) for name, where in voter.endpoints.items()],
                    k_raft_version_feature=record.KRaftVersionFeature(*voter.kraft_versions),
                )
                for voter in voters
            ],
        ),
        CONTROL_MESSAGE_VERSION,
    )
