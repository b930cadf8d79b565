"""An operator that changes static voters by decision 4: one voter at a time, one restart after another.

A voter that joins is started first, with the new voters and an empty disk; then the others are restarted, the leader
last. A voter that leaves is never the leader. It is restarted when no replica counts it as a voter, and then observes.
Brokers (here: replicas that never vote) are restarted at the end, or a change later. Each step waits until all other
old and new voters run and have caught up. The next change also waits until all voters have on disk all records that
were committed before the last restart. A majority of the voters before this change may not overlap with the voters
after the next change.

The roll pauses during calm. All replicas must then find a leader and follow it, at any stage of the roll, because an
operator may stop at any moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.raft import events
from kraft_node.raft.membership.quorum import ReplicaKey, Voter, VoterSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraft_node.testing.raft.quorum import RaftMachine, SimulatedQuorum

LOOK_US: Final = 100_000
REST_US: Final = 1_000_000
"""The maximum pause between two changes."""
BEHIND_MAX: Final = 50
"""Records that a voter may lack and still count as caught up, within a change."""
CLEAN_SHARE: Final = 0.7
"""The share of clean restarts; the others are kills."""


class Roll:
    """Changes the voters of one simulated quorum repeatedly."""

    def __init__(self, sim: SimulatedQuorum, is_scene: Callable[[], bool]) -> None:
        """`is_scene`: whether a scene of faults runs; no voter changes meanwhile."""
        self._sim = sim
        self._is_scene = is_scene
        self.wanted: VoterSet | None = None
        """The voters of the current change; None between two changes."""
        self._joins = self._leaves = -1
        self._restarts = 0
        """Restarts under way: until they end, a process may use the old voters."""
        self._rests_until_us = 0
        self._handed_over = 0
        """The last calm in which a leader has resigned."""
        self._mark = 0
        """The committed end when the last change was over."""
        self.changes = 0

    def begin(self) -> None:
        """Start."""
        for replica in self._sim.replicas.values():
            replica.configured = self._sim.voters
        self._sim.at(self._sim.rng.randrange(REST_US), None, self._look)

    def _look(self) -> None:
        sim = self._sim
        sim.at(1 + sim.rng.randrange(2 * LOOK_US), None, self._look)
        if sim.calm:
            self._hand_over()
            return
        if self._is_scene() or self._restarts or sim.now_us < self._rests_until_us:
            return
        if self.wanted is None:
            self._plan()
        else:
            self._go_on(self.wanted)

    def _hand_over(self) -> None:
        """Once per calm, let a leader resign with a successor that may not be in every replica's voter set."""
        sim = self._sim
        strange = [r for r in sim.replicas.values() if any(r.id not in o.configured for o in sim.replicas.values())]
        leaders = [leader for leader in sim.leaders if leader.announced_epoch >= 0]
        if self.wanted is None or not strange or not leaders or self._handed_over == sim.heals:
            return
        self._handed_over = sim.heals
        for leader in leaders:
            sim.note(f"{leader.id} is asked to resign, while nodes have different voters")
            assert leader.node is not None
            leader.step(events.Resign(leader.node.epoch))

    # The wanted voters.

    def _plan(self) -> None:
        sim = self._sim
        if not self._is_well(sim.voters, None):
            return
        if any(sim.replicas[voter_id].disk.durable.end < self._mark for voter_id in sim.voters.ids):
            return
        others = [node_id for node_id in sim.replicas if node_id not in sim.voters]
        leavers = [voter_id for voter_id in sim.voters.ids if len(sim.voters) > 2 and not self._leads(voter_id)]
        joins = bool(others) and (not leavers or sim.rng.random() < 0.5)
        if joins:
            self._joins = sim.rng.choice(others)
            self.wanted = sim.voters.with_voter(Voter(ReplicaKey(self._joins)))
        elif leavers:
            self._leaves = sim.rng.choice(leavers)
            self.wanted = sim.voters.without(self._leaves)
        if self.wanted is not None:
            sim.note(f"the voters shall become {self.wanted.ids}")

    def _leads(self, voter_id: int) -> bool:
        return any(leader.id == voter_id for leader in self._sim.leaders)

    # Step by step.

    def _go_on(self, wanted: VoterSet) -> None:
        sim = self._sim
        behind = [sim.replicas[i] for i in wanted.ids if sim.replicas[i].configured != wanted]
        if not behind:
            self._end(wanted)
            return
        newcomer = [replica for replica in behind if replica.id == self._joins]
        chosen = newcomer or sorted(behind, key=lambda replica: (self._leads(replica.id), replica.id))
        if self._is_well(sim.voters, chosen[0]) and self._is_well(wanted, chosen[0]):
            self._restart(chosen[0], wanted, wipe=bool(newcomer))

    def _is_well(self, voters: VoterSet, without: RaftMachine | None) -> bool:
        """Whether all voters except that one follow a leader, or lead."""
        sim = self._sim
        for voter_id in voters.ids:
            replica = sim.replicas[voter_id]
            if replica is without or (voter_id == self._joins and replica.configured != self.wanted):
                continue
            node = replica.node
            if node is None or replica.is_paused or node.is_amnesiac or replica.is_lost:
                return False
            if replica.high_watermark < sim.laws.end - BEHIND_MAX:
                return False
        return True

    def _restart(self, replica: RaftMachine, voters: VoterSet, *, wipe: bool) -> None:
        sim = self._sim
        sim.note(f"{replica.id} is restarted with the voters {voters.ids}{', and an empty disk' if wipe else ''}")
        if wipe:
            replica.wipe()
            replica.configured = voters
        elif sim.rng.random() < CLEAN_SHARE:
            replica.stop_cleanly()
        else:
            replica.die(loud=True)
        self._restarts += 1
        sim.at(1 + sim.rng.randrange(500_000), None, self._start, replica, voters)

    def _start(self, replica: RaftMachine, voters: VoterSet) -> None:
        self._restarts -= 1
        replica.configured = voters
        replica.start_again()

    def _end(self, wanted: VoterSet) -> None:
        """End a change: all voters use the new set. A removed voter observes; brokers are restarted now or later."""
        sim = self._sim
        sim.note(f"the voters are {wanted.ids}")
        for replica in sim.replicas.values():
            shared = {*replica.configured.ids} & {*wanted.ids}
            if replica.configured != wanted and (
                replica.id == self._leaves or len(shared) < 2 or sim.rng.random() < 0.5
            ):
                self._restart(replica, wanted, wipe=False)
        sim.voters = wanted
        self.changes += 1
        self._mark = sim.laws.end
        self.wanted = None
        self._joins = self._leaves = -1
        self._rests_until_us = sim.now_us + sim.rng.randrange(REST_US)


__all__ = ["Roll"]
