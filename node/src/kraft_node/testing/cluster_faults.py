"""The faults of a cluster, and when they are permitted. Permitted faults must lose no record acknowledged with
acks=all.

Permitted at any time on any number of nodes: SIGKILL (the page cache stays), a clean stop, a hanging node, slow
networks, a node cut off from some or all others (in one or both directions), broken connections, clocks up to 20 % fast
or slow, calendars that jump by up to an hour. A power loss on a machine that is only a controller is also permitted,
because metadata is fsynced before it counts.

Permitted on one broker at a time: a power loss, an empty disk. As in Kafka, records are not fsynced before they are
acknowledged, so records that one machine may lose must be on another. The fault therefore waits until every
partition's ISR is complete again, in the current broker epochs; if this takes too long, it becomes a SIGKILL. Until
the cluster has noticed that the broker is gone, no other broker is killed. Reason: a killed broker leaves the ISR when
it returns, because KIP-966 assumes that it lost records. So the broker that really lost records could be the last ISR
member. Not permitted, therefore: a power loss on all members of an ISR before any of them has fsynced. Any power loss
without eligible leader replicas is not permitted either.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Final

from kraft_node.testing.disks.faults import DiskFaults
from kraft_node.testing.machine import CONTROLLER_PORT, MOVED_PORT, SimCluster, SimMachine
from kraft_node.testing.script import Script
from kraft_node.testing.workloads.reassignments import ReassignmentOperator

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraft_node.server.quorum.driver import RaftDriver
    from kraft_node.testing.checker import Checker

EVENTS: Final = 1_000
"""The number of events during which faults begin, usually one to four. Three times as many precede and follow them."""
LEAVES_MAX_MS: Final = 6_000.0
PAIR: Final = 2
STOP_MAX_MS: Final = 330_000.0
"""The upper bound of a clean stop: the broker waits up to 300 s for the controllers' permission, then stops anyway."""
HOUR_MS: Final = 3_600_000
DRIFT: Final = 0.2
SUNDERED_SHARE, FSYNC_SHARE, MOVED_SHARE, ROTTEN_SHARE = 0.2, 0.1, 0.2, 0.1
"""Shares of the seeds in which one fault recurs: the active controller is cut off from the other voters only; fsyncs of
logs fail; a controller of a dynamic quorum moves; a batch rots that is read next."""
OFTEN: Final = 8
RESTORED_SHARE: Final = 0.1
"""Share of the seeds in which a batch rots that is read next, and its file is restored."""
MOVED_TWO_SHARE: Final = 0.4
"""Share of the dynamic quorums in which two of three voters move at a time."""
LATE_MAX_MS: Final = 3_000.0
"""How long a voter misses records before the others move: the quorum goes on without it."""
ELECTED_MAX_MS: Final = 20_000.0
"""After all faults, a quorum that can elect a leader has elected one within this time."""


class ClusterFaults(DiskFaults):
    """Injects the faults."""

    def __init__(self, cluster: SimCluster, checker: Checker) -> None:
        super().__init__(cluster, checker)
        for machine in cluster.machines:
            machine.host.rate = self.world.rng.choice((1.0, 1 - DRIFT, 1 + DRIFT, 1.0))
        # A generator of its own keeps the other seeds' runs unchanged.
        share = random.Random(f"sundered {self.world.seed}").random()
        self.events = EVENTS
        self.least = 0
        """How many faults there are at least."""
        self._often: list[Callable[[SimMachine], None]] = []
        self._moves = 0
        """How often a controller was moved."""
        if share < SUNDERED_SHARE:
            self._often = [self._sunder] * OFTEN
        elif share < SUNDERED_SHARE + FSYNC_SHARE:
            self._often = [self._fail_log_fsync] * OFTEN
        elif share < SUNDERED_SHARE + FSYNC_SHARE + MOVED_SHARE and cluster.dynamic:
            self._often = [self._move_controller] * OFTEN
        elif 0 <= share - (SUNDERED_SHARE + FSYNC_SHARE + MOVED_SHARE) < ROTTEN_SHARE:
            self._often = [self._rot_under_reader] * OFTEN
        if cluster.brokers[0].cut_step is not None:
            self._often += [self._isolate_leader] * OFTEN
        if random.Random(f"restored {self.world.seed}").random() < RESTORED_SHARE:
            self._often += [self._restore_rotten] * (3 * OFTEN)
        if cluster.dynamic and random.Random(f"two {self.world.seed}").random() < MOVED_TWO_SHARE:
            self._often += [self._move_two] * (OFTEN // 2)

    def play(self) -> None:
        """Inject one fault after another."""
        rng, world = self.world.rng, self.world
        several = len(self.cluster.brokers[0].config.log_dirs) > 1
        until = world.events + self.events
        while world.events < until or len(self.done) < self.least:
            world.run(self._broken, rng.random() * 600)
            if self._broken():
                return
            machine = rng.choice(self.cluster.machines)
            fault = rng.choice(self.faults(several))
            if fault in self.ends() and not self._wait_until_noticed():
                continue
            self.done.append(fault.__name__.strip("_"))
            world.note("faults", f"{self.done[-1].replace('_', ' ')} {machine.name}")
            fault(machine)

    def faults(self, several: bool) -> tuple[Callable[[SimMachine], None], ...]:
        """The faults to draw from, as often as they are to happen; `several`: brokers have several log directories."""
        return (
            self._kill, self._kill, self._kill, self._kill_several, self._kill_several, self._power, self._power,
            self._wipe, self._stop, self._hang, self._hang, self._isolate, self._isolate, self._cut_pair,
            self._deafen, self._slow_disk, self._slow_network, self._break, self._jump, self._fill_disk,
            self._fail_fsync, self._stall_disk, self._leave, self._leave, self._rot, self._rot,
            *[self._lose_directory] * (2 * several),
            *[self._move_controller] * self.cluster.dynamic, *self._often
        )  # fmt: skip

    def ends(self) -> tuple[Callable[[SimMachine], None], ...]:
        """The faults that end a process whose records another broker may have lost: they wait until it is noticed."""
        return (self._kill, self._kill_several, self._leave, self._stop, self._fill_disk, self._restore_rotten)

    def heal(self) -> None:
        """Heal as for one node; a rotten disk is also replaced."""
        self.over = True
        super().heal()
        self._move_back()
        self._replace_rotten()

    def _move_back(self) -> None:
        """If no leader can be elected because a voter has moved, start it again at its old address, like an operator.

        Example: a leader stopped with an uncommitted record that removes the second of three voters, and the third
        voter has moved since. The former leader needs the third voter's vote, which it requests at the old address. The
        third voter lacks that record, so it is not elected, and the second lacks it too. Kafka's quorum has no leader
        either.
        """
        if not self._moves or self.world.run(self._broken_or_led, ELECTED_MAX_MS):
            return
        sets = {machine: raft.node.voters for machine, raft in self._quorum()}
        for machine in sets:
            known = [voters.get(machine.config.node_id) for other, voters in sets.items() if other is not machine]
            ports = {port for voter in known if voter is not None for _, port in voter.endpoints.values()}
            if ports and machine.controller_port not in ports:
                self.world.note("faults", f"move controller {machine.name} back")
                machine.kill()
                machine.move(min(ports))
                machine.start()

    def _replace_rotten(self) -> None:
        """If all other controllers have moved, move one back first: an empty disk knows the first addresses only."""
        machine = self.rotten
        others = [other for other in self.cluster.controllers if other is not machine]
        none_stayed = all(other.controller_port != CONTROLLER_PORT for other in others)
        if machine in self.cluster.controllers and others and none_stayed and not self._broken():
            self.world.note("faults", f"move controller {others[-1].name} back")
            others[-1].kill()
            others[-1].move(CONTROLLER_PORT)
            others[-1].start()
        super()._replace_rotten()

    def _broken_or_led(self) -> bool:
        return self._broken() or any(raft.node.is_leader for _, raft in self._quorum())

    def _quorum(self) -> list[tuple[SimMachine, RaftDriver]]:
        """The controllers with a started part of the quorum."""
        running = [(machine, machine.node.raft) for machine in self.cluster.controllers if machine.node is not None]
        return [(machine, raft) for machine, raft in running if raft is not None and raft.started]

    # -- faults that any machine may have at any time

    def _kill(self, machine: SimMachine) -> None:
        machine.kill()
        self._again(machine)

    def _kill_several(self, _machine: SimMachine) -> None:
        """Kill several machines at once; machines that are only controllers may lose power instead. They return one by
        one."""
        rng = self.world.rng
        victims = rng.sample(self.cluster.machines, rng.randint(2, len(self.cluster.machines)))
        power = rng.random() < 0.5
        for victim in victims:
            if power and victim not in self.cluster.brokers:
                victim.lose_power()
            else:
                victim.kill()
        for victim in rng.sample(victims, len(victims)):
            self._rest(rng.choice((10.0, 300.0, 2000.0)))
            if not victim.running and not self._broken():
                victim.start()

    def _leave(self, machine: SimMachine) -> None:
        """While a broker is down, the other broker of a partition hands it to a third: no member of its ISR stays."""
        image, own = self._newest_image(), machine.config.node_id
        pairs = [
            (topic, number, state.replicas)
            for topic in (image.topics if image is not None else ())
            for number, state in topic.partitions()
            if own in state.replicas and len(state.replicas) == PAIR
        ]
        machine.kill()
        others = [other.config.node_id for other in self.cluster.brokers]
        if pairs:
            topic, number, pair = self.world.rng.choice(pairs)
            third = self.world.rng.choice([other for other in others if other not in pair])
            mover = ReassignmentOperator(self.cluster, "mover", ())
            script = Script(self.world, "mover", mover.reassign(topic.name, number, [own, third]), mover.session.host)
            self._rest(LEAVES_MAX_MS)
            script.stop()
        self._again(machine)

    def _stop(self, machine: SimMachine) -> None:
        """Stop cleanly; the broker first waits until other brokers lead all its partitions."""
        machine.stop()
        self.world.run(lambda: not machine.running or self._broken(), 6000)
        if machine.running and self.world.rng.random() < 0.5:
            machine.kill()
        if not machine.running:
            self._again(machine)

    def _move_controller(self, _machine: SimMachine) -> None:
        """Stop a controller and start it at an unused port: the voters' endpoints must follow.

        A follower that votes is moved, if it exists: a new leader states its own endpoint, and an observer has no
        endpoint.
        """
        machine = self._movable()
        machine.stop()
        self.world.run(lambda: not machine.running or self._broken(), 6000)
        machine.kill()
        self._moves += 1
        machine.move(MOVED_PORT + self._moves)
        self._again(machine)

    def _move_two(self, machine: SimMachine) -> None:
        """Move two of three voters while the third is down and misses records.

        Only a voter that has moved can be elected then. So the third voter must follow the leader to an address that
        is not in its log.
        """
        rng = self.world.rng
        voters = [each for each, raft in self._quorum() if raft.node.is_voter]
        if len(voters) != PAIR + 1:
            self._move_controller(machine)
            return
        late = self._movable()
        late.kill()
        self._rest(LATE_MAX_MS)
        for moved in voters:
            if moved is not late:
                moved.kill()
                self._moves += 1
                moved.move(MOVED_PORT + self._moves)
        for each in rng.sample(voters, len(voters)):
            self._rest(rng.choice((10.0, 300.0)))
            if not each.running and not self._broken():
                each.start()

    def _movable(self) -> SimMachine:
        """The last controller that votes and does not lead, as far as it knows; otherwise the last controller."""
        for machine in reversed(self.cluster.controllers):
            raft = None if machine.node is None else machine.node.raft
            if raft is not None and raft.started and raft.node.is_voter and not raft.node.is_leader:
                return machine
        return self.cluster.controllers[-1]

    def _hang(self, machine: SimMachine) -> None:
        machine.blocked(self.world.rng.choice((300.0, 1500.0, 5000.0)))

    def _slow_disk(self, machine: SimMachine) -> None:
        machine.host.background_ms = self.world.rng.choice((300.0, 1500.0))

    def _slow_network(self, _machine: SimMachine) -> None:
        self.cluster.network.delay_ms = self.world.rng.choice((50.0, 300.0))

    def _isolate(self, machine: SimMachine) -> None:
        """Cut a node off from all other nodes, but not from clients."""
        for other in self.cluster.machines:
            if other is not machine:
                self.cluster.network.cut(machine.name, other.name)
        self._heal_later()

    def _isolate_leader(self, machine: SimMachine) -> None:
        """Isolate the leader of most partitions: its appends meanwhile are truncated later."""
        image = self._newest_image()
        led = Counter(state.leader for topic in (image.topics if image else ()) for _, state in topic.partitions())
        self._isolate(max(self.cluster.brokers, key=lambda each: led[each.config.node_id], default=machine))

    def _sunder(self, machine: SimMachine) -> None:
        """Cut the active controller off from the other controllers: it appends records that no other controller has."""
        leading = [one for one in self.cluster.controllers if _leads(one)]
        active = leading[-1] if leading else machine
        for other in self.cluster.controllers:
            if other is not active:
                self.cluster.network.cut(active.name, other.name)
        self._heal_later()

    def _cut_pair(self, machine: SimMachine) -> None:
        other = self.world.rng.choice([other for other in self.cluster.machines if other is not machine])
        self.cluster.network.cut(machine.name, other.name)
        self._heal_later()

    def _deafen(self, machine: SimMachine) -> None:
        """Cut one direction: the node receives nothing, or nothing it sends arrives."""
        hears = self.world.rng.random() < 0.5
        for other in self.cluster.machines:
            if other is not machine:
                pair = (machine.name, other.name) if hears else (other.name, machine.name)
                self.cluster.network.cut_one_way(*pair)
        self._heal_later()

    def _heal_later(self) -> None:
        self._rest(self.world.rng.choice((300.0, 1500.0, 5000.0)))
        if self.world.rng.random() < 0.8:
            self.cluster.network.heal()

    def _jump(self, machine: SimMachine) -> None:
        machine.host.wall_shift_ms = self.world.rng.randint(-HOUR_MS, HOUR_MS)


def _leads(machine: SimMachine) -> bool:
    """Whether the machine leads the quorum, as far as it knows."""
    node = machine.node
    return node is not None and node.raft is not None and node.raft.started and node.raft.node.is_leader
