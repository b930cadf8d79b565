"""The disk of one machine in the Raft simulator: batches, not bytes. The package docstring has the fault model.

Every record has a chain value derived from it and all records before it, so equal chain values mean equal logs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from random import Random
from typing import NamedTuple

from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.membership.quorum import QuorumState, VoterSet

EMPTY_CHAIN = 0
BOOTSTRAP = SnapshotId(0, 0)
"""The snapshot that formatting writes; it is never deleted."""


class RaftEntry(NamedTuple):
    """A batch. `chains` has one value per record."""

    base: int
    next: int
    epoch: int
    values: tuple[int, ...]
    chains: tuple[int, ...]
    voters: VoterSet | None = None
    """The voters that the batch states (KIP-853)."""


def make_entry(base: int, epoch: int, values: Sequence[int], chain: int, voters: VoterSet | None = None) -> RaftEntry:
    """A batch with records that follow the records with the given chain value."""
    chains = []
    for value in values:
        chain = hash((chain, epoch, value))
        chains.append(chain)
    return RaftEntry(base, base + len(values), epoch, tuple(values), tuple(chains), voters)


class ModelLog:
    """Batches from `start` on."""

    __slots__ = ("bases", "entries", "start", "start_chain")

    def __init__(self) -> None:
        self.start = 0
        self.start_chain = EMPTY_CHAIN
        self.entries: list[RaftEntry] = []
        self.bases: list[int] = []

    def copy(self) -> ModelLog:
        """An independent log with the same batches; batches themselves are shared, since they never change."""
        twin = ModelLog()
        twin.start, twin.start_chain = self.start, self.start_chain
        twin.entries, twin.bases = list(self.entries), list(self.bases)
        return twin

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.entries[-1].next if self.entries else self.start

    @property
    def last_chain(self) -> int:
        """The chain value of the whole log, also of the records that were deleted before `start`."""
        return self.entries[-1].chains[-1] if self.entries else self.start_chain

    @property
    def last_epoch(self) -> int:
        """The epoch of the last batch; -1 without a batch, also after a snapshot has replaced the log."""
        return self.entries[-1].epoch if self.entries else -1

    def chain_at(self, offset: int) -> int | None:
        """The chain value of all records below `offset`; None if the log does not cover it."""
        if offset == self.start:
            return self.start_chain
        if not self.start < offset <= self.end:
            return None
        entry = self.entries[bisect_right(self.bases, offset - 1) - 1]
        return entry.chains[offset - 1 - entry.base]

    def index_of(self, offset: int) -> int:
        """The index of the batch that holds `offset`."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def append(self, entry: RaftEntry) -> None:
        """Add a batch that begins at the log's end."""
        assert entry.base == self.end, f"law: the log has no gaps ({entry.base} after {self.end})"
        self.entries.append(entry)
        self.bases.append(entry.base)

    def truncate(self, offset: int) -> None:
        """Remove the batches from `offset` on, which must be the start of a batch; no effect beyond the end."""
        while self.entries and self.entries[-1].next > offset:
            assert self.entries[-1].base >= offset, f"law: batches are truncated whole ({offset})"
            self.entries.pop()
            self.bases.pop()

    def delete_before(self, offset: int) -> None:
        """Raise the start to `offset`; no effect if it is not above the start. A batch around it is kept whole."""
        if offset <= self.start:
            return
        chain = self.chain_at(offset)
        assert chain is not None, f"law: only what exists is deleted (before {offset}, end {self.end})"
        keep = bisect_right(self.bases, offset - 1)
        if keep and self.entries[keep - 1].next > offset:
            keep -= 1
        del self.entries[:keep], self.bases[:keep]
        self.start, self.start_chain = offset, chain

    def reset(self, offset: int, chain: int) -> None:
        """Empty the log; it continues at `offset`, after records with this chain value."""
        self.entries.clear()
        self.bases.clear()
        self.start, self.start_chain = offset, chain

    def voter_sets(self) -> list[tuple[int, VoterSet]]:
        """(offset, voters) of the batches that state voters."""
        return [(entry.next - 1, entry.voters) for entry in self.entries if entry.voters is not None]

    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) pairs, ascending; no offset is below the log's start."""
        found: list[tuple[int, int]] = []
        for entry in self.entries:
            if not found or found[-1][0] != entry.epoch:
                found.append((entry.epoch, max(entry.base, self.start)))
        return found


class Snapshot(NamedTuple):
    """A complete snapshot, with the chain value of everything below its end."""

    id: SnapshotId
    chain: int
    size: int
    wall_ms: int
    voters: VoterSet | None = None
    """The voters at its end (KIP-853)."""


Op = RaftEntry | Snapshot | int
"""A write since the last fsync: a batch, a snapshot that replaced the log, or the offset that it was truncated to."""


class ModelDisk:
    """A machine's disk: `log` is the process's view, `durable` the minimum that survives a power loss."""

    __slots__ = ("bad", "durable", "files", "has_state", "log", "pending", "removed", "snapshots", "state")

    def __init__(self) -> None:
        self.log = ModelLog()
        self.durable = ModelLog()
        self.pending: list[Op] = []
        self.state = QuorumState()
        self.has_state = False
        self.snapshots: list[Snapshot] = []
        self.removed: list[Snapshot] = []
        """Snapshots removed but not durably: they may return after a power loss."""
        self.files: dict[SnapshotId, bytes] = {}
        """The bytes of snapshots that the real driver has written."""
        self.bad = False
        """Rot below the fsynced end: the disk never opens again."""

    def append(self, entry: RaftEntry) -> None:
        """Write a batch in the process's view; durable after a `sync` that covers it."""
        self.log.append(entry)
        self.pending.append(entry)

    def truncate(self, offset: int) -> None:
        """Truncate in the process's view; durable after a `sync` that covers it."""
        self.log.truncate(offset)
        self.pending.append(offset)

    def sync(self, count: int) -> None:
        """An fsync that began with `count` pending writes has ended."""
        for op in self.pending[:count]:
            _apply(self.durable, op)
        del self.pending[:count]

    def reset(self, snapshot: Snapshot) -> None:
        """Replace the log by a fetched snapshot."""
        self.log.reset(snapshot.id.end_offset, snapshot.chain)
        self.pending.append(snapshot)

    def delete_before(self, offset: int) -> None:
        """Delete in both views at once, unless the durable log does not hold the same records below `offset`."""
        self.log.delete_before(offset)
        if self.durable.chain_at(offset) == self.log.start_chain:
            self.durable.delete_before(offset)

    def lose_power(self, rng: Random) -> str:
        """Decide which unsynced writes survive. Returns their number in words."""
        total = len(self.pending)
        kept = rng.choice((0, total, rng.randint(0, total)))
        self.sync(kept)
        self.pending.clear()
        self.log = self.durable.copy()
        for snapshot in self.removed:
            if rng.random() < 0.5:
                self.add_snapshot(snapshot)
        self.removed.clear()
        return f"{kept} of {total} unsynced writes survive"

    def open(self) -> None:
        """Open: reconcile the snapshots with the log, then flush everything found."""
        found = [kept for kept in self.snapshots if not kept.id.is_bootstrap]
        if found and (found[-1].id.epoch, found[-1].id.end_offset) > (self.log.last_epoch, self.log.end):
            self.reset(found[-1])
        else:
            starts = [kept.id.end_offset for kept in found if kept.id.end_offset >= self.log.start]
            self.log.delete_before(min(starts, default=0))
        self.sync(len(self.pending))
        self.durable = self.log.copy()

    def snapshot(self, identity: SnapshotId) -> Snapshot | None:
        """The snapshot with this id; None if it does not exist, also if it may return after a power loss."""
        return next((kept for kept in self.snapshots if kept.id == identity), None)

    def remove_snapshots(self, doomed: Collection[SnapshotId]) -> None:
        """Remove these snapshots, not durably; after a power loss each may return."""
        self.removed += [kept for kept in self.snapshots if kept.id in doomed]
        self.snapshots = [kept for kept in self.snapshots if kept.id not in doomed]

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Add a durable snapshot, in the order of ids; no effect if its id exists."""
        if self.snapshot(snapshot.id) is None:
            self.snapshots.append(snapshot)
            self.snapshots.sort(key=lambda kept: kept.id)


def _apply(log: ModelLog, op: Op) -> None:
    if isinstance(op, RaftEntry):
        log.append(op)
    elif isinstance(op, Snapshot):
        log.reset(op.id.end_offset, op.chain)
    else:
        log.truncate(op)
