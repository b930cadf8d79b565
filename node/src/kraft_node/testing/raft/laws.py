"""The laws, checked after every event at a cost that does not grow with the logs. A violation names its law.

All knowledge is global: leaders, votes, committed records. Chain values represent whole logs (`storage`).
"""

from __future__ import annotations

from typing import Protocol

from kraft_node.raft.membership.quorum import ReplicaKey, VoterSet
from kraft_node.testing.raft.storage import EMPTY_CHAIN, ModelDisk, ModelLog, RaftEntry


class LawBroken(AssertionError):  # noqa: N818 - what it is
    """An event that must never happen has happened."""


def require(holds: object, law: str, what: str) -> None:
    """Raise LawBroken unless `holds`."""
    if not holds:
        raise LawBroken(f"law: {law} ({what})")


class QuorumFacts(Protocol):
    """What the laws know of the quorum."""

    is_dynamic: bool

    def has_had(self, key: ReplicaKey, offset: int, chain: int) -> bool:
        """Whether the voter's disk, present or replaced, has the log below `offset` with this chain value."""

    def counts_votes(self, candidate: int, epoch: int) -> bool:
        """Whether votes of the epoch can make, or have made, the replica a leader."""


class JudgedReplica(Protocol):
    """What the laws know of a replica."""

    id: int
    disk: ModelDisk
    epoch: int
    high_watermark: int
    wipes: int
    """How often its disk was replaced."""

    @property
    def sim(self) -> QuorumFacts:
        """Its quorum."""
        ...

    @property
    def voter_key(self) -> ReplicaKey:
        """The key that identifies its votes."""
        ...


class RaftLaws:
    """The history of one simulated quorum."""

    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, ReplicaKey], tuple[int, int]] = {}
        """By epoch and voter: the candidate, and how many disks the voter had had before."""
        self._given: dict[int, set[tuple[int, int]]] = {}
        """By epoch: (voter, candidate), including votes lost with a disk."""
        self.committed: list[int] = [EMPTY_CHAIN]
        """By offset: the chain value of all records below it."""
        self.written: dict[tuple[int, int], int] = {}
        self.elections = 0
        self.upgrades = 0
        self.voter_statements: set[tuple[int, int]] = set()
        """(offset, epoch) of the batches that state voters."""
        self.committed_epoch = 0
        """The epoch of the last committed record."""

    @property
    def end(self) -> int:
        """The end of the committed log, as far as any replica knows."""
        return len(self.committed) - 1

    def appended(self, replica: JudgedReplica, entry: RaftEntry) -> None:
        """Check log matching for a batch that a replica has just written."""
        if entry.voters is not None:
            self.voter_statements.add((entry.base, entry.epoch))
        written = self.written
        for offset, chain in enumerate(entry.chains, entry.base):
            known = written.setdefault((offset, entry.epoch), chain)
            if known != chain:
                require(
                    False,
                    "log matching: the same offset and epoch is the same log up to there",
                    f"offset {offset} of epoch {entry.epoch} at {replica.id}",
                )

    def voted(self, replica: JudgedReplica, epoch: int, candidate: int) -> None:
        """Check a vote when the voter promises it: one candidate per epoch, and already on disk."""
        known, wipes = self.votes.setdefault((epoch, replica.voter_key), (candidate, replica.wipes))
        if known != candidate and wipes != replica.wipes and not replica.sim.counts_votes(known, epoch):
            # A vote lost with its disk can no longer be counted.
            self.votes[epoch, replica.voter_key] = known, wipes = candidate, replica.wipes
        require(
            known == candidate,
            "votes are never forgotten",
            f"{replica.id} voted for {known} in epoch {epoch}, now for {candidate}",
        )
        self._given.setdefault(epoch, set()).add((replica.id, candidate))
        durable = replica.disk.state
        require(
            durable.epoch > epoch or (durable.epoch == epoch and durable.voted.id == candidate),
            "a vote is on disk before any node learns of it (contract 2 and 3)",
            f"{replica.id} in epoch {epoch}: {durable}",
        )

    def counted(self, epoch: int, voter_id: int, candidate: int) -> bool:
        """Whether that vote was given."""
        return (voter_id, candidate) in self._given.get(epoch, ())

    def elected(self, replica: JudgedReplica, epoch: int, granting: tuple[ReplicaKey, ...], voters: VoterSet) -> None:
        """Check a leader at the moment in which it opens its epoch."""
        self.elections += 1
        require(
            self.leaders.setdefault(epoch, replica.id) == replica.id,
            "one leader per epoch",
            f"{self.leaders[epoch]} and {replica.id} in epoch {epoch}",
        )
        require(
            len({key.id for key in granting}) >= voters.majority,
            "a leader was elected by a majority",
            f"{replica.id} by {[key.id for key in granting]} in epoch {epoch}",
        )
        given = {voter_id for voter_id, candidate in self._given.get(epoch, ()) if candidate == replica.id}
        require(
            all(key.id in given for key in granting),
            "a leader counts the votes that it was given",
            f"{replica.id} counts {[key.id for key in granting]}, was given {sorted(given)} in epoch {epoch}",
        )
        if epoch < self.committed_epoch:
            return  # elected late by old votes: it may lack what newer leaders have committed, and commits nothing
        chain = replica.disk.log.chain_at(self.end)
        known = chain if self.end >= replica.disk.log.start else self.committed[-1]
        require(
            replica.disk.log.end >= self.end and known == self.committed[-1],
            "leader completeness: a leader has all committed records",
            f"{replica.id} in epoch {epoch} ends at {replica.disk.log.end}, committed {self.end}",
        )

    def advanced(self, replica: JudgedReplica, offset: int, voters: VoterSet | None) -> None:
        """Check a replica's new high watermark; `voters` is given if it leads."""
        require(
            offset > replica.high_watermark,
            "the high watermark is monotonic",
            f"{replica.high_watermark} to {offset} at {replica.id}",
        )
        log = replica.disk.log
        chain = log.chain_at(offset)
        if offset <= self.end:
            require(
                chain == self.committed[offset] or offset < log.start,
                "committed records are equal on all nodes, and never lost",
                f"{replica.id} at {offset}, others have committed {self.end}",
            )
            return
        require(voters is not None, "only a leader commits", f"{replica.id} at {offset}, committed {self.end}")
        assert voters is not None
        require(chain is not None, "only what exists is committed", f"{replica.id} at {offset}, end {log.end}")
        assert chain is not None
        at_end = log.chain_at(self.end)
        require(
            at_end == self.committed[-1] or self.end < log.start,
            "committed records are equal on all nodes, and never lost",
            f"{replica.id} commits {offset} without the {self.end} before",
        )
        having = [voter.key.id for voter in voters if replica.sim.has_had(voter.key, offset, chain)]
        require(
            len(having) >= voters.majority,
            "the high watermark was reached by a majority, on disk",
            f"{replica.id} at {offset} in epoch {replica.epoch}: only {having} of {voters.ids}",
        )
        last = log.entries[log.index_of(offset - 1)]
        require(
            last.epoch == replica.epoch,
            "a leader commits records of older epochs only with one of its own",
            f"{replica.id} at {offset}, of epoch {last.epoch}, in {replica.epoch}",
        )
        self.committed_epoch = last.epoch
        require(
            self.end > 0 or not replica.sim.is_dynamic or any(at < offset for at, _ in log.voter_sets()),
            "committed records name the voters",
            f"{replica.id} at {offset} in epoch {replica.epoch}",
        )
        index = log.index_of(self.end)
        for entry in log.entries[index:]:
            for at, value in enumerate(entry.chains, entry.base + 1):
                if self.end < at <= offset:
                    self.committed.append(value)
        require(self.end == offset, "only what exists is committed", f"{replica.id} at {offset}")

    def kept(self, replica: JudgedReplica, first: int, epoch: int, values: tuple[int, ...], end: int) -> None:
        """Check that proposed offsets hold the proposer's records: the high watermark passed them, and it still
        leads."""
        log = replica.disk.log
        for offset, value in enumerate(values, first):
            entry = log.entries[log.index_of(offset)] if log.start <= offset < end else None
            require(
                entry is not None and entry.epoch == epoch and entry.values[offset - entry.base] == value,
                "committed records equal those promised to a proposer",
                f"{replica.id} at {offset} in epoch {epoch}, committed {end}: {entry}",
            )

    def truncated(self, replica: JudgedReplica, offset: int) -> None:
        """Check a truncation before it happens: `offset` becomes the end of the log."""
        require(
            offset >= replica.high_watermark,
            "nothing below the high watermark is truncated",
            f"{replica.id} to {offset}, high watermark {replica.high_watermark}",
        )
        log = replica.disk.log
        if offset < self.end and offset < log.end:
            require(
                log.chain_at(offset + 1) != self.committed[offset + 1],
                "committed records are never lost",
                f"{replica.id} truncates to {offset}, committed {self.end}",
            )

    def snapshot_taken(self, replica: JudgedReplica, offset: int, chain: int) -> None:
        """Check that a snapshot of all records below `offset` holds exactly the committed records."""
        require(
            offset <= self.end and chain == self.committed[offset],
            "snapshots hold committed records only",
            f"{replica.id} at {offset}, committed {self.end}",
        )

    def log_starts(self, replica: JudgedReplica, log: ModelLog) -> None:
        """Check that a snapshot on the replica's disk covers all records below the log's start."""
        require(
            log.start == 0 or any(kept.id.end_offset >= log.start for kept in replica.disk.snapshots),
            "a snapshot covers the records before the log's start",
            f"{replica.id} starts at {log.start}, has {[kept.id for kept in replica.disk.snapshots]}",
        )
