"""quorum-state: the election state of a voter, one JSON line, replaced atomically (KIP-595, KIP-853).

Version 0 is written while kraft.version is 0, and names the voters, which older releases check. Version 1 adds the
directory of the candidate that got the vote. Both are read.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from kraft_node.base.env import Disk, read_file
from kraft_node.raft.epochs import EPOCH_MAX, EpochsExhausted
from kraft_node.raft.membership.quorum import NO_NODE, QuorumState, ReplicaKey
from kraft_protocol.ids import ZERO_UUID, parse_uuid, uuid_text

FILE: Final = "quorum-state"


class QuorumStateError(ValueError):
    """The file does not hold a quorum state."""


def render(state: QuorumState, *, version: int = 0, voter_ids: Sequence[int] = ()) -> bytes:
    """The file's bytes."""
    fields: dict[str, Any]
    if version == 0:
        fields = {
            "clusterId": "",
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted.id,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": voter_id} for voter_id in voter_ids],
            "data_version": 0,
        }
    else:
        fields = {
            "leaderId": state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted.id,
            "votedDirectoryId": uuid_text(state.voted.directory),
            "data_version": 1,
        }
    return json.dumps(fields, separators=(",", ":")).encode()


def parse(data: bytes) -> QuorumState:
    """The state in the file's bytes. Raises QuorumStateError."""
    try:
        fields = json.loads(data)
        version = int(fields["data_version"])
        if version not in (0, 1):
            raise QuorumStateError(f"unknown data_version {version}")
        directory = parse_uuid(fields["votedDirectoryId"]) if version == 1 else ZERO_UUID
        voted = ReplicaKey(int(fields.get("votedId", NO_NODE)), directory)
        return QuorumState(int(fields["leaderEpoch"]), int(fields["leaderId"]), voted)
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise QuorumStateError(f"not a valid quorum-state: {e!r}") from None


def read(disk: Disk, path: str) -> QuorumState:
    """The state in the file at `path`; the initial state if it is missing.

    Raises OSError; QuorumStateError, also for an epoch that no election can follow.
    """
    try:
        data = read_file(disk, path)
    except FileNotFoundError:
        return QuorumState()
    try:
        state = parse(data)
    except QuorumStateError as e:
        raise QuorumStateError(f"{path}: {e}") from None
    if not 0 <= state.epoch < EPOCH_MAX:
        raise QuorumStateError(f"{path}: leaderEpoch {state.epoch}: {EpochsExhausted(state.epoch)}")
    return state
