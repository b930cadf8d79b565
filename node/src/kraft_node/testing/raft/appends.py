"""What a replica of the Raft simulator does to append each kind of batch. The laws judge every append."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kraft_node.raft import ready as do
from kraft_node.raft.membership.quorum import VoterSet
from kraft_node.raft.membership.voter_changes import FACTS
from kraft_node.testing.raft.laws import require
from kraft_node.testing.raft.storage import make_entry
from kraft_protocol.ids import ZERO_UUID

if TYPE_CHECKING:
    from kraft_node.testing.raft.quorum import RaftMachine

LEADER_CHANGE: Final = 0
"""The value of a LeaderChange record; proposals count from 1."""
VERSION_STATED: Final = -1
"""The value of a KRaftVersionRecord."""
VOTERS_STATED: Final = -10
"""The value of a VotersRecord without voters; lower values encode voters."""


def _leader_change(replica: RaftMachine, effect: do.AppendLeaderChange) -> None:
    sim = replica.sim
    assert replica.node is not None
    replica.leading_since_ms = replica.local_us() // 1000
    for key in effect.granting:
        if key.id == replica.id:
            sim.laws.voted(replica, effect.epoch, replica.id)
    sim.laws.elected(replica, effect.epoch, effect.granting, replica.node.voters)
    values = [LEADER_CHANGE] * (1 if effect.stated is None else 1 + FACTS)
    _entry(replica, effect.offset, effect.epoch, values, effect.stated)


def _voters(replica: RaftMachine, effect: do.AppendVoters) -> None:
    replica.leading_since_ms = replica.local_us() // 1000
    replica.sim.note(f"{replica.id} writes the voters {effect.voters.ids} at {effect.offset}")
    require(
        all(voter.key.directory != ZERO_UUID for voter in effect.voters),
        "voters in the log are named with their directories",
        f"{replica.id} at {effect.offset}",
    )
    values = [VOTERS_STATED - len(effect.voters)]
    if effect.kraft_version is not None:
        replica.sim.laws.upgrades += 1
        values.insert(0, VERSION_STATED)
    _entry(replica, effect.offset, effect.epoch, values, effect.voters)


def _entry(replica: RaftMachine, offset: int, epoch: int, values: list[int], voters: VoterSet | None = None) -> None:
    log = replica.disk.log
    require(offset == log.end, "core and disk agree on the log's end", f"{replica.id}: {offset}, {log.end}")
    entry = make_entry(offset, epoch, values, log.last_chain, voters)
    replica.voters_moved |= voters is not None
    replica.disk.append(entry)
    replica.sim.laws.appended(replica, entry)


def _records(replica: RaftMachine, effect: do.Append) -> None:
    require(
        replica.sim.laws.leaders.get(effect.epoch) == replica.id,
        "only the leader of an epoch writes records of it",
        f"{replica.id} in {effect.epoch}",
    )
    _entry(replica, effect.offset, effect.epoch, [int(value) for value in effect.records])


def _fetched(replica: RaftMachine, effect: do.AppendFetched) -> None:
    for entry in effect.records:
        require(entry.base == replica.disk.log.end, "fetched records continue at the log's end", f"{replica.id}")
        replica.disk.append(entry)
        replica.voters_moved |= entry.voters is not None
        replica.sim.laws.appended(replica, entry)


APPEND: Final[dict[type, Callable[[RaftMachine, Any], None]]] = {
    do.AppendLeaderChange: _leader_change,
    do.Append: _records,
    do.AppendVoters: _voters,
    do.AppendFetched: _fetched,
}
