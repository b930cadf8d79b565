"""Faults drawn from the seed, one after another, some of them overlapping.

The faults: a SIGKILL or a power loss between two events or inside an event (at a disk operation), a clean stop, an
interrupted clean stop, a hanging machine. Also a slow disk, a slow network, a client that is cut off, broken
connections. A process that has ended is restarted after a while, and may end again during its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kraft_node.testing.fault_injector import FaultInjector
from kraft_node.testing.machine import SimCluster, SimMachine

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.script import Script

FAULTS_MIN, FAULTS_MAX = 2, 6
STOP_MAX_MS: Final = 120_000.0
"""The upper bound of a clean stop on the slowest disk."""


SLOW_FLUSH_MS: Final = 200.0
FLUSHED_MAX_MS: Final = 4_000.0
"""A producer has written to a topic with flushes by count after this long, or does not come to it."""


class WorldFaults(FaultInjector):
    """Injects faults into a cluster."""

    def __init__(self, cluster: SimCluster, checker: Checker) -> None:
        super().__init__(cluster, checker)
        self._clients: list[str] = []

    def script(self, clients: Sequence[Script]) -> None:
        """Inject one fault after another, with pauses between them."""
        rng, world = self.world.rng, self.world
        self._clients = [client.name for client in clients]
        for _ in range(rng.randint(FAULTS_MIN, FAULTS_MAX)):
            world.run(self._broken, rng.random() * 1500)
            if self.checker.findings:
                return
            machine = rng.choice(self.cluster.machines)
            fault = rng.choice(
                (self._kill, self._kill, self._kill_inside, self._kill_inside, self._power, self._power,
                 self._power_inside, self._power_inside, self._stop, self._stop_cut_short, self._stop_cut_short,
                 self._stop_cut_short, self._hang, self._slow_disk, self._slow_network, self._cut, self._break,
                 self._break)
            )  # fmt: skip
            self.done.append(fault.__name__.strip("_"))
            world.note("faults", self.done[-1].replace("_", " "))
            fault(machine)

    def restart(self, machine: SimMachine) -> None:
        """End and restart a machine once more."""
        self.world.rng.choice((self._kill, self._stop))(machine)

    def end(self, machine: SimMachine, how: str) -> None:
        """End a machine again, by "kill" or "stop", and restart it."""
        {"kill": self._kill, "stop": self._stop}[how](machine)

    def stop_during_flush(self, machine: SimMachine) -> None:
        """Stop cleanly while acks=all waits for a flush: the partitions lose their leader before the flush ends."""
        self.done.append("stop_during_flush")
        self.world.note("faults", "stop during flush")
        machine.host.background_ms = SLOW_FLUSH_MS
        self.world.run(lambda: _awaits_flush(machine) or self._broken(), FLUSHED_MAX_MS)
        if not self._broken() and machine.running:
            self._stop(machine)

    # -- the faults

    def _kill(self, machine: SimMachine) -> None:
        machine.kill()
        self._again(machine)

    def _power(self, machine: SimMachine) -> None:
        self.checker.power_lost(machine.lose_power())
        self._again(machine)

    def _kill_inside(self, machine: SimMachine) -> None:
        self._die_inside(machine, power=False)

    def _power_inside(self, machine: SimMachine) -> None:
        self._die_inside(machine, power=True)

    def _die_inside(self, machine: SimMachine, *, power: bool) -> None:
        rng = self.world.rng

        def end() -> None:
            if power:
                self.checker.power_lost(machine.lose_power())
            else:
                machine.kill()

        machine.die_within(rng.randrange(40), end)
        if not machine.running:
            machine.start()
        self.world.run(lambda: (not machine.running and machine.starts > 0) or self._broken(), 3000)
        if machine.running:
            end()
        self._again(machine)

    def _stop(self, machine: SimMachine) -> None:
        machine.stop()
        stopped = self.world.run(lambda: not machine.running, STOP_MAX_MS)
        if not stopped:
            self.checker.broken("alive", machine.name, f"a clean stop has not ended after {STOP_MAX_MS:.0f} ms")
        self._again(machine)

    def _stop_cut_short(self, machine: SimMachine) -> None:
        rng, world = self.world.rng, self.world
        machine.stop()
        if rng.random() < 0.5:
            world.run(lambda: not machine.running, rng.random() * 60)
            rng.choice((self._kill, self._power))(machine)
        else:
            # Closing the logs takes many disk operations: interrupt it in the middle.
            world.run(lambda: not machine.running, rng.random() * 40)
            self._die_inside(machine, power=rng.random() < 0.7)

    def _again(self, machine: SimMachine) -> None:
        """Start the machine after a while; sometimes it ends again during the start."""
        rng, world = self.world.rng, self.world
        if self.checker.findings:
            return
        world.rest(rng.choice((0.0, 50.0, 1000.0)) * rng.random())
        machine.start()
        if rng.random() < 0.25:
            world.rest(rng.random() * 80)
            machine.kill()
            world.rest(rng.random() * 20)
            machine.start()
        if rng.random() < 0.7:
            world.run(lambda: machine.serving or self._broken(), 5000)

    def _hang(self, machine: SimMachine) -> None:
        machine.blocked(self.world.rng.choice((200.0, 2000.0, 12_000.0)))

    def _slow_disk(self, machine: SimMachine) -> None:
        machine.host.background_ms = self.world.rng.choice((300.0, 2000.0))

    def _slow_network(self, _machine: SimMachine) -> None:
        self.cluster.network.delay_ms = self.world.rng.choice((50.0, 500.0))

    def _cut(self, machine: SimMachine) -> None:
        rng = self.world.rng
        self.cluster.network.cut(rng.choice(self._clients), machine.name)
        self.world.rest(rng.choice((50.0, 1000.0, 5000.0)))
        if rng.random() < 0.7:
            self.cluster.network.heal()

    def _break(self, machine: SimMachine, share: float = 0.7) -> None:
        super()._break(machine, share)


def _awaits_flush(machine: SimMachine) -> bool:
    """Whether a flush is under way for a partition that the machine leads."""
    broker = None if machine.node is None else machine.node.broker
    return broker is not None and any(each.is_leader and each.log.unsettled for each in broker.replicas.opened())
