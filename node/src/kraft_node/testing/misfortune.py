"""What the faults of one node and those of a cluster have in common: the record of what was done, and the end of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.testing.net import DELAY_MAX_MS
from kraft_node.testing.world import BACKGROUND_MS

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster, SimMachine


class Misfortune:
    """Does things to a cluster."""

    def __init__(self, cluster: SimCluster, checker: Checker) -> None:
        self.cluster = cluster
        self.checker = checker
        self.world = cluster.world
        self.done: list[str] = []
        """The names of the faults so far."""

    def heal(self) -> None:
        """Everything works again; what is down is started. Clocks go on drifting."""
        self.world.note("faults", "all is well again")
        self.cluster.network.delay_ms = DELAY_MAX_MS
        self.cluster.network.heal()
        for machine in self.cluster.machines:
            machine.host.background_ms = BACKGROUND_MS
            machine.never_mind()
            if not machine.running:
                machine.start()

    def _broken(self) -> bool:
        """Whether a law is: nothing that follows would be judged."""
        return bool(self.checker.findings)

    def _rest(self, longest_ms: float) -> None:
        self.world.run(self._broken, self.world.rng.random() * longest_ms)

    # -- what needs no choice

    def _break(self, _machine: SimMachine, share: float = 0.5) -> None:
        count = self.cluster.network.break_some(share)
        self.world.note("faults", f"{count} connections broke")
