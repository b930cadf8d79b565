"""Faults of the whole world that the other scenarios of clusters do not have, and when they are permitted.

- A process dies inside an event, at one of its next disk operations: by a SIGKILL, or by a loss of power. Permitted as
  the same death between two events.
- The power of a broker is lost although ISRs have shrunk. Permitted if each partition with this broker in its ISR has
  another member there that runs in the broker epoch in which it joined: this member has all acknowledged records, and
  keeps them. Until the cluster has noticed the loss, no other broker is killed, as after any loss of power.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.metadata.features import ELR_VERSION
from kraft_node.testing.cluster_faults import ClusterFaults
from kraft_node.testing.disks.faults import is_registered

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraft_node.testing.machine import SimMachine

INSIDE_OPERATIONS: Final = 60
"""A process dies after fewer disk operations than this."""
INSIDE_MAX_MS: Final = 3_000.0
SHRUNK_MAX_MS: Final = 4_000.0
"""How long a loss of power waits for a broker that may lose its records although an ISR has shrunk."""


class WholeFaults(ClusterFaults):
    """Injects the faults of clusters and these."""

    def faults(self, several: bool) -> tuple[Callable[[SimMachine], None], ...]:
        """The faults of clusters, and the faults that only this world has."""
        own = (self._kill_inside, self._kill_inside, self._power_inside, self._power_shrunk, self._power_shrunk)
        return (*super().faults(several), *own)

    def ends(self) -> tuple[Callable[[SimMachine], None], ...]:
        """As in clusters; all faults of this world are among them."""
        return (*super().ends(), self._kill_inside, self._power_inside, self._power_shrunk)

    def _kill_inside(self, machine: SimMachine) -> None:
        """Kill a process inside an event; if it is down, kill it while it starts."""
        self._die_inside(machine, machine.kill)

    def _power_inside(self, machine: SimMachine) -> None:
        """Cut the power inside an event, or kill the process if the broker may not lose records at that moment."""

        def end() -> None:
            if machine not in self.cluster.brokers or self._may_lose_now(machine):
                machine.lose_power()
            else:
                machine.kill()

        self._die_inside(machine, end)

    def _die_inside(self, machine: SimMachine, end: Callable[[], object]) -> None:
        starts = machine.starts
        machine.die_within(self.world.rng.randrange(INSIDE_OPERATIONS), end)
        if not machine.running:
            machine.start()
        self.world.run(lambda: (not machine.running and machine.starts >= starts) or self._broken(), INSIDE_MAX_MS)
        machine.disk.on_death = None
        if machine.running:
            end()
        self._again(machine)

    def _power_shrunk(self, machine: SimMachine) -> None:
        """Cut the power of a broker while an ISR lacks another broker."""
        brokers = self.cluster.brokers
        if machine not in brokers:
            machine.lose_power()
            self._again(machine)
            return
        away = self.world.rng.choice([other for other in brokers if other is not machine])
        away.kill()
        self.world.run(lambda: self._is_shrunk(machine, away) or self._broken(), SHRUNK_MAX_MS)
        if self._broken():
            return
        if self._is_shrunk(machine, away) and self._may_lose_now(machine):
            self.world.note("faults", f"{machine.name} loses power while {away.name} is out of sync")
            machine.lose_power()
        self._rest(self.world.rng.choice((10.0, 500.0, 3000.0)))
        for each in (away, machine):
            if not each.running and not self._broken():
                self._again(each)

    def _is_shrunk(self, machine: SimMachine, away: SimMachine) -> bool:
        """Whether a partition has this broker in its ISR, and has lost the other."""
        image, own, other = self._newest_image(), machine.config.node_id, away.config.node_id
        return image is not None and any(
            own in state.isr and other in state.replicas and other not in state.isr
            for topic in image.topics
            for _, state in topic.partitions()
        )

    def _may_lose_now(self, machine: SimMachine) -> bool:
        """Whether other brokers keep all acknowledged records of this broker; if so, note it as the frail one."""
        image = self._newest_image()
        if image is None or self.rotten is not None or not image.feature_level(ELR_VERSION) or machine.node is None:
            return False
        if self._frail is not None and self._frail[0] is not machine and not self._out_of_isrs():
            return False
        if not is_registered(machine, image):
            return False
        own = machine.config.node_id
        safe = {
            other.config.node_id
            for other in self.cluster.brokers
            if other is not machine and other.node is not None and is_registered(other, image)
        }
        for topic in image.topics:
            for _, state in topic.partitions():
                needed = own in state.isr or own in state.elr or own in state.last_known_elr
                if needed and not safe.intersection(state.isr):
                    return False
        registered = image.brokers.get(own)
        assert registered is not None
        self._frail = machine, registered.epoch
        return True


__all__ = ["WholeFaults"]
