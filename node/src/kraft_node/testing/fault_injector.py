"""The base of the fault injectors for one node and for a cluster: records the faults done, and heals them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.testing.net import DELAY_MAX_MS
from kraft_node.testing.world import BACKGROUND_MS

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster, SimMachine


class FaultInjector:
    """Injects faults into a cluster."""

    def __init__(self, cluster: SimCluster, checker: Checker) -> None:
        self.cluster = cluster
        self.checker = checker
        self.world = cluster.world
        self.done: list[str] = []
        """The names of the faults so far."""

    def heal(self) -> None:
        """Make everything work again, and start machines that are down. Clocks keep drifting."""
        self.world.note("faults", "all faults end")
        self.cluster.network.delay_ms = DELAY_MAX_MS
        self.cluster.network.heal()
        for machine in self.cluster.machines:
            machine.host.background_ms = BACKGROUND_MS
            machine.cancel_death()
            if not machine.running:
                machine.start()

    def _broken(self) -> bool:
        """Whether a law is broken: later events would not be judged."""
        return bool(self.checker.findings)

    def _rest(self, longest_ms: float) -> None:
        self.world.run(self._broken, self.world.rng.random() * longest_ms)

    # -- what needs no choice

    def _break(self, _machine: SimMachine, share: float = 0.5) -> None:
        count = self.cluster.network.break_some(share)
        self.world.note("faults", f"{count} connections broke")
