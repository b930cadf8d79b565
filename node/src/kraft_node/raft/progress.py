"""The progress of each replica as the leader knows it, and the resulting high watermark (KIP-595, 836)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kraft_node.raft.membership.quorum import ReplicaKey, VoterSet

OBSERVER_SESSION_MS: Final = 300_000
"""An observer that has not fetched for this long is forgotten. This is Kafka's value."""

OBSERVERS_MAX: Final = 10_000
"""More than the brokers of the largest cluster. Further observers are answered but not tracked."""


class ReplicaProgress:
    """The progress of one replica. Times are milliseconds of the core's monotonic clock; -1: never."""

    __slots__ = ("caught_up_ms", "end_offset", "has_reported_epoch", "key", "last_fetch_leader_end", "last_fetch_ms")

    def __init__(self, key: ReplicaKey) -> None:
        self.key = key
        self.end_offset = -1
        """The replica has everything below this offset on disk; -1: it has not fetched in this epoch."""
        self.last_fetch_ms = -1
        self.caught_up_ms = -1
        self.last_fetch_leader_end = -1
        self.has_reported_epoch = False
        """The replica has acknowledged the leader of this epoch."""

    def fetched(self, offset: int, leader_end: int, now_ms: int) -> None:
        """Note a fetch from `offset`: the replica has all records before it."""
        if offset >= leader_end:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif 0 < self.last_fetch_leader_end <= offset:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.end_offset = max(self.end_offset, offset) if self.end_offset >= 0 else offset
        self.last_fetch_ms = now_ms
        self.last_fetch_leader_end = leader_end
        self.has_reported_epoch = True


class Progress:
    """The state of all replicas, by the leader of one epoch."""

    __slots__ = ("_any_disk", "_local", "epoch_start_offset", "observers", "voters")

    def __init__(self, voters: VoterSet, local: ReplicaKey, epoch_start_offset: int) -> None:
        self.epoch_start_offset = epoch_start_offset
        """Offset of the leader's own LeaderChange record."""
        self._local = local
        self.voters = {voter.key.id: ReplicaProgress(voter.key) for voter in voters}
        self.observers: dict[ReplicaKey, ReplicaProgress] = {}
        self._any_disk = _named_by_id(voters)
        if local.id in self.voters:
            self.voters[local.id].has_reported_epoch = True
            self.voters[local.id].key = local

    def use(self, voters: VoterSet) -> None:
        """Count these voters from now on; the known state of each replica is kept."""
        known = {entry.key: entry for entry in [*self.observers.values(), *self.voters.values()]}
        before = list(self.voters.values())
        self._any_disk = _named_by_id(voters)
        self.voters = {}
        for voter in voters:
            entry = next((known[key] for key in known if key.matches(voter.key)), None)
            self.voters[voter.key.id] = entry or ReplicaProgress(voter.key)
            if entry is not None:
                self.observers.pop(entry.key, None)
        for entry in before:
            if self.voters.get(entry.key.id) is not entry and entry.key != self._local:
                self.observers[entry.key] = entry

    def flushed(self, offset: int) -> None:
        """The leader's own log is durable below `offset` (contract 4)."""
        own = self.voters.get(self._local.id)
        if own is not None:
            own.end_offset = max(own.end_offset, offset)

    def of(self, key: ReplicaKey) -> ReplicaProgress | None:
        """The replica's entry; an unknown observer gets a new entry. Returns None for plain readers."""
        if key.id < 0:
            return None
        voter = self.voters.get(key.id)
        if voter is not None and voter.key.matches(key):
            if voter.key.directory != key.directory and any(key.directory):
                voter.key = key
            return voter
        if voter is not None and key.id in self._any_disk and key.id != self._local.id:
            # Its disk has been replaced: the old disk's acknowledgements no longer count; records that they committed
            # stay committed. The node fetches as a voter only once that is safe (`amnesia`). Kafka counts it from the
            # next epoch.
            voter = self.voters[key.id] = ReplicaProgress(key)
            return voter
        observer = self.observers.get(key)
        if observer is None and len(self.observers) < OBSERVERS_MAX:
            observer = self.observers[key] = ReplicaProgress(key)
        return observer

    def expire_observers(self, now_ms: int) -> None:
        """Forget observers that have not fetched for `OBSERVER_SESSION_MS`. Voters are never forgotten."""
        gone = [key for key, seen in self.observers.items() if now_ms - seen.last_fetch_ms >= OBSERVER_SESSION_MS]
        for key in gone:
            del self.observers[key]

    def high_watermark(self) -> int:
        """The offset that a majority has, once it is past the epoch's first record (contract 6); -1 before."""
        offset = majority_offset(progress.end_offset for progress in self.voters.values())
        return offset if offset > self.epoch_start_offset else -1

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, the most caught up first."""
        others = [voter for voter in self.voters.values() if voter.key.id != self._local.id]
        others.sort(key=lambda voter: (-voter.end_offset, voter.key.id))
        return tuple(voter.key for voter in others)


def _named_by_id(voters: VoterSet) -> frozenset[int]:
    """The voters that are known by id alone, with any disk: all voters of a static quorum (kraft.version 0)."""
    return frozenset(voter.key.id for voter in voters if not any(voter.key.directory))


def majority_offset(offsets: Iterable[int]) -> int:
    """The highest offset that more than half of the given offsets have reached."""
    ordered = sorted(offsets, reverse=True)
    return ordered[len(ordered) // 2]
