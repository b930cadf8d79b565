"""Computes the single record that takes a partition from its state to a wanted state.

Every change of a partition goes through here: fencing, unfencing, ISR changes, elections and reassignments. So leader,
ISR, eligible leader replicas (KIP-966), recovery state and epochs always change together. A pure function.

The leader is the first of these that exists:

1. the current leader, if it may still lead;
2. the first acceptable replica, in order of preference, of the wanted ISR (of the ELR if the ISR is empty);
3. with ELR, the last known leader;
4. if the election may be unclean, the first acceptable replica. It becomes the whole ISR and must recover (KIP-704).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

from kraft_node.metadata.features import DIRECTORY_ASSIGNMENT_SUPPORTED, NO_LEADER_EPOCH_BUMP_ON_ISR_SHRINK
from kraft_node.metadata.partitions import NO_LEADER, NO_LEADER_CHANGE, RECOVERY_UNCHANGED, PartitionState
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.stored import PartitionChangeRecord

RECOVERED: Final = 0
RECOVERING: Final = 1


class Election(Enum):
    """The kind of election."""

    ONLINE = "online"
    PREFERRED = "preferred"
    UNCLEAN = "unclean"


class PartitionChange:
    """One planned change: set the wanted values, then call `record()`."""

    __slots__ = (
        "acceptable",
        "adding",
        "bumps_on_shrink",
        "directories",
        "directory_for",
        "election",
        "elr",
        "elr_enabled",
        "isr",
        "last_known_elr",
        "level",
        "min_isr",
        "number",
        "recovery",
        "removing",
        "replicas",
        "state",
        "topic_id",
        "unclean_shutdown",
    )

    def __init__(
        self,
        topic_id: Uuid,
        number: int,
        state: PartitionState,
        *,
        acceptable: Callable[[int], bool],
        level: int,
        migrates: bool = False,
        elr_enabled: bool,
        min_isr: int,
        directory_for: Callable[[int], Uuid],
    ) -> None:
        self.topic_id = topic_id
        self.number = number
        self.state = state
        self.acceptable = acceptable
        self.level = level
        self.bumps_on_shrink = migrates or level < NO_LEADER_EPOCH_BUMP_ON_ISR_SHRINK
        self.elr_enabled = elr_enabled
        self.min_isr = min_isr
        self.directory_for = directory_for
        self.isr: list[int] = list(state.isr)
        self.replicas: list[int] = list(state.replicas)
        self.removing: list[int] = list(state.removing)
        self.adding: list[int] = list(state.adding)
        self.elr: list[int] = list(state.elr)
        self.last_known_elr: list[int] = list(state.last_known_elr)
        """The last leader first, then replicas that could have led and may have more records than the others."""
        self.directories: dict[int, Uuid] = {}
        """Directories of replicas that differ from the state."""
        self.recovery = state.leader_recovering
        self.election = Election.ONLINE
        self.unclean_shutdown: frozenset[int] = frozenset()
        """Replicas that returned without a clean shutdown, or whose log begins anew: what they had before does not
        make them eligible to lead."""

    def record(self) -> PartitionChangeRecord | None:
        """The record; None if nothing changes."""
        record = PartitionChangeRecord(partition_id=self.number, topic_id=self.topic_id)
        self._complete_reassignment()
        self._find_elr()
        self._elect(record)
        state = self.state
        if record.leader == NO_LEADER_CHANGE and not set(state.replicas) <= set(self.replicas):
            record.leader = state.leader  # a replica is removed: a new leader epoch makes the leader notice
        self._note_elr(record)
        if record.isr is None and (self.isr or self.elr_enabled) and tuple(self.isr) != state.isr:
            record.isr = self.isr
        if self.bumps_on_shrink:
            self._bump_on_shrink(record)
        self._note_last_leader(record)
        self._note_assignment(record)
        if self.recovery != state.leader_recovering:
            record.leader_recovery_state = self.recovery
        return None if _is_empty(record) else record

    def _complete_reassignment(self) -> None:
        """If the wanted ISR holds all replicas being added, drop the replicas being removed."""
        done = completed_reassignment(self.replicas, self.isr, self.adding, self.removing)
        if done is not None:
            self.replicas, self.isr = done
            self.adding = []
            self.removing = []

    def _find_elr(self) -> None:
        """Find the replicas below the minimum that left the ISR and still have every acknowledged record."""
        if not self.elr_enabled:
            return
        if len(self.isr) >= self.min_isr:
            self.elr = []
            return
        candidates = {*self.elr, *self.state.isr}
        # A removed replica may return with an empty log; unlike Kafka, we remove it from the ELR.
        eligible = candidates.intersection(self.replicas).difference(self.unclean_shutdown)
        self.elr = sorted(b for b in eligible if b not in self.isr)

    def _elect(self, record: PartitionChangeRecord) -> None:
        leader, unclean = self._preferred() if self.election is Election.PREFERRED else self._any()
        if leader == self.state.leader:
            return
        if leader in self.elr:
            self.isr = [leader]
            self.elr = [b for b in self.elr if b != leader]
        record.leader = leader
        if unclean:
            record.isr = [leader]
            if self.state.leader_recovering != RECOVERING:
                record.leader_recovery_state = RECOVERING

    def _valid(self, broker: int) -> bool:
        return (broker in self.isr or (not self.isr and broker in self.elr)) and self.acceptable(broker)

    def _first(self, candidates: Iterable[int], suits: Callable[[int], bool]) -> int:
        return next((b for b in candidates if suits(b)), NO_LEADER)

    def _preferred(self) -> tuple[int, bool]:
        if self._valid(self.replicas[0]):
            return self.replicas[0], False
        if self._valid(self.state.leader):
            return self.state.leader, False
        leader = self._first(self.replicas[1:], self._valid)
        if leader == NO_LEADER and self._last_leader_may():
            return self.last_known_elr[0], True
        return leader, False

    def _any(self) -> tuple[int, bool]:
        if self._valid(self.state.leader):
            return self.state.leader, False
        leader = self._first(self.replicas, self._valid)
        if leader != NO_LEADER:
            return leader, False
        if self._last_leader_may():
            return self.last_known_elr[0], True
        if self.election is Election.UNCLEAN:
            leader = self._first(self.replicas, self.acceptable)
        return leader, leader != NO_LEADER

    def _last_leader_may(self) -> bool:
        """Balanced recovery (KIP-966): if ISR and ELR are empty, the last known leader is the best candidate.

        Only the first may lead. Those behind it wait until it is known to have lost its log.
        """
        last = self.last_known_elr
        return self.elr_enabled and not self.elr and not self.isr and bool(last) and self.acceptable(last[0])

    def _note_elr(self, record: PartitionChangeRecord) -> None:
        if record.isr is not None or not self.elr_enabled:
            self.elr = []
        if tuple(self.elr) != self.state.elr:
            record.eligible_leader_replicas = self.elr

    def _bump_on_shrink(self, record: PartitionChangeRecord) -> None:
        isr = record.isr
        if isr is not None and record.leader == NO_LEADER_CHANGE and not set(self.state.isr) <= set(isr):
            record.leader = self.state.leader

    def _note_last_leader(self, record: PartitionChangeRecord) -> None:
        """When the partition loses its leader, note it for balanced recovery; with a new leader, forget it."""
        if not self.elr_enabled:
            return
        last = self.last_known_elr
        if record.leader >= 0:
            last = []
        elif record.leader == NO_LEADER and not last:
            last = [self.state.leader]
        if tuple(last) != self.state.last_known_elr:
            record.last_known_elr = last

    def _note_assignment(self, record: PartitionChangeRecord) -> None:
        state = self.state
        if tuple(self.replicas) != state.replicas or self.directories:
            if self.level >= DIRECTORY_ASSIGNMENT_SUPPORTED:
                known = dict(zip(state.replicas, state.directories, strict=True))
                known.update(self.directories)
                directories = [known[b] if b in known else self.directory_for(b) for b in self.replicas]
                if tuple(directories) != state.directories:
                    record.directories = directories
            if tuple(self.replicas) != state.replicas:
                record.replicas = self.replicas
        if tuple(self.removing) != state.removing:
            record.removing_replicas = self.removing
        if tuple(self.adding) != state.adding:
            record.adding_replicas = self.adding


def completed_reassignment(
    replicas: list[int], isr: list[int], adding: list[int], removing: list[int]
) -> tuple[list[int], list[int]] | None:
    """Replicas and ISR after the reassignment; None if the ISR cannot complete it.

    All added replicas must be in sync and at least one replica must stay. If more replicas are removed than added, all
    staying replicas must be in sync.
    """
    if not adding and not removing:
        return None
    staying = [b for b in replicas if b not in removing]
    in_sync = [b for b in isr if b not in removing]
    if removing and not (staying and in_sync):
        return None
    if not set(adding) <= set(in_sync):
        return None
    if len(adding) < len(removing) and not set(staying) <= set(in_sync):
        return None
    return staying, in_sync


def _is_empty(record: PartitionChangeRecord) -> bool:
    return (
        record.isr is None
        and record.leader == NO_LEADER_CHANGE
        and record.replicas is None
        and record.removing_replicas is None
        and record.adding_replicas is None
        and record.leader_recovery_state == RECOVERY_UNCHANGED
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
        and record.directories is None
    )
