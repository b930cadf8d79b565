"""The faults of the Raft simulator, and how many are permitted at a time. The package docstring has the fault model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.raft import events
from kraft_node.raft.epochs import EPOCH_MAX, FREE_MAX, LEAP_MAX
from kraft_node.raft.membership.quorum import ReplicaKey, VoterSet
from kraft_node.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    RemoveVoterRequest,
    VoteRequest,
)
from kraft_node.raft.node import NotLeader
from kraft_node.testing.raft.quorum import PendingRequest
from kraft_node.testing.raft.scenes import Scenes

if TYPE_CHECKING:
    from kraft_node.raft.node import RaftNode
    from kraft_node.testing.raft.network import Network
    from kraft_node.testing.raft.quorum import RaftMachine, SimulatedQuorum
    from kraft_node.testing.raft.roll import Roll

HOUR_US: Final = 3_600_000_000


class RaftFaults:
    """The faults of one simulation."""

    def __init__(self, sim: SimulatedQuorum, network: Network, roll: Roll | None = None) -> None:
        """`roll`: the operator that changes static voters, if any."""
        self._sim = sim
        self._network = network
        self._roll = roll
        self.scenes = Scenes(sim, network, self.may_lose_disk, self.dead_voters)
        self._phase = 0
        self._every_us = 1_000_000
        rng = sim.rng
        kinds = [
            (RaftFaults.kill, 3.0),
            (RaftFaults.kill_silently, 2.0),
            (RaftFaults.lose_power, 3.0),
            (RaftFaults.kill_leader, 2.0),
            (RaftFaults.restart, 9.0),
            (RaftFaults.isolate, 2.0),
            (RaftFaults.cut_one_way, 3.0),
            (RaftFaults.split, 3.0),
            (RaftFaults.reconnect, 5.0),
            (RaftFaults.close_connection, 4.0),
            (RaftFaults.pause, 3.0),
            (RaftFaults.bad_network, 2.0),
            (RaftFaults.jump, 1.0),
            (RaftFaults.jump_wall, 1.0),
            (RaftFaults.drift, 1.0),
            (RaftFaults.stall_disk, 2.0),
            (RaftFaults.fill_disk, 0.7),
            (RaftFaults.fail_fsync, 0.7),
            (RaftFaults.rot, 0.7),
            (RaftFaults.wipe, 1.5),
            (RaftFaults.leave_behind, 5.0),
            (RaftFaults.remove_itself, 4.0 if sim.is_dynamic else 1.0 if sim.is_upgradable else 0.0),
            (RaftFaults.resign, 1.5),
            (RaftFaults.shut_down, 1.0),
            (RaftFaults.change_voters, 6.0 if sim.is_dynamic else 2.0 if sim.is_upgradable else 0.0),
            (RaftFaults.vote_twice, 4.0 if len(sim.voters) >= 5 and not sim.is_dynamic else 0.0),
            (RaftFaults.upgrade, 8.0 if sim.is_upgradable else 0.0),
            (RaftFaults.name_last_epoch, 1.0),
        ]
        # Every seed favours some faults.
        self._kinds = [kind for kind, _ in kinds]
        self._weights = [weight * rng.choice((0.2, 1.0, 3.0)) for _, weight in kinds]

    def begin(self) -> None:
        """Start the chaos."""
        rng = self._sim.rng
        self._phase += 1
        self._every_us = rng.choice((100_000, 400_000, 1_500_000))
        self.bad_network()
        self._sim.at(rng.randrange(self._every_us), None, self._strike, self._phase)

    def heal(self) -> None:
        """End the chaos: heal everything that can be healed."""
        sim = self._sim
        self._phase += 1
        self.scenes.stop()
        self._network.heal()
        for replica in sim.replicas.values():
            replica.slow_disk = replica.full_disk = replica.failing_fsync = False
            sim.thaw(replica, replica.life)
            if replica.disk.bad:
                replica.wipe()
            if replica.node is None:
                replica.start()

    def _strike(self, phase: int) -> None:
        if phase != self._phase:
            return
        sim = self._sim
        if not self.scenes.is_playing:
            fault = sim.rng.choices(self._kinds, self._weights)[0]
            fault(self)
        sim.at(1 + sim.rng.randrange(2 * self._every_us), None, self._strike, phase)

    # Victims.

    def _anyone(self) -> RaftMachine:
        return self._sim.rng.choice(list(self._sim.replicas.values()))

    def _up(self) -> RaftMachine | None:
        up = [replica for replica in self._sim.replicas.values() if replica.node is not None]
        return self._sim.rng.choice(up) if up else None

    def may_lose_disk(self, replica: RaftMachine) -> bool:
        """Whether the quorum survives the loss of the disk, given earlier losses."""
        sim = self._sim
        if sim.is_dynamic:
            return self._may_lose_directory(replica, [sim.voters])
        if sim.is_upgradable and not self._may_lose_directory(replica, []):
            return False
        in_force = [other.configured for other in sim.replicas.values()]
        if self._roll is not None and self._roll.wanted is not None:
            in_force.append(self._roll.wanted)
        return all(self._may_lose_voter(replica, voters) for voters in in_force)

    def _may_lose_voter(self, replica: RaftMachine, voters: VoterSet) -> bool:
        """`may_lose_disk` for one set of static voters."""
        sim = self._sim
        if replica.id not in voters:
            return True
        if replica.id in sim.old_peers:
            return False
        lost = sum(1 for other in sim.replicas.values() if other.id in voters and other.is_lost)
        return not replica.is_lost and lost + 1 <= len(voters) - voters.majority

    def _may_lose_directory(self, replica: RaftMachine, first: list[VoterSet]) -> bool:
        """Whether a majority stays in every voter set that a log states or that a leader is about to state."""
        sim = self._sim
        dead = {other.key for other in sim.replicas.values() if other.disk.bad} | {replica.key}
        alive = {other.key for other in sim.replicas.values()} - dead
        stated = (other.last_voters() for other in sim.replicas.values())
        for voters in [*first, *self._coming(), *(voters for voters in stated if voters is not sim.voters)]:
            if len(voters) and sum(voter.key in alive for voter in voters) < voters.majority:
                return False
        return True

    def _coming(self) -> list[VoterSet]:
        """Voter sets that leaders are about to create by adding a voter; a set of two may lose no disk from then on."""
        changes = [(leader.node, leader.node.leader.pending_change) for leader in self._sim.leaders if leader.node]
        return [node.voters.with_voter(one.adding.voter) for node, one in changes if one is not None and one.adding]

    def dead_voters(self, node: RaftNode) -> list[ReplicaKey]:
        """The voters, in this node's view, that have lost their disk."""
        alive = [other.key for other in self._sim.replicas.values() if not other.disk.bad]
        return [voter.key for voter in node.voters if not any(voter.key.matches(key) for key in alive)]

    # Effects.

    def kill(self) -> None:
        """Kill a running process; its peers see the connections close."""
        replica = self._up()
        if replica is not None:
            self._sim.note(f"{replica.id} is killed")
            replica.die(loud=True)

    def kill_silently(self) -> None:
        """Kill a running process; its peers notice only by their time-outs."""
        replica = self._up()
        if replica is not None:
            self._sim.note(f"{replica.id} is killed, and its connections hang")
            replica.die(loud=False)

    def kill_leader(self) -> None:
        """Kill each replica that believes that it leads."""
        for replica in self._sim.leaders:
            self._sim.note(f"{replica.id}, a leader, is killed")
            replica.die(loud=self._sim.rng.random() < 0.5)

    def lose_power(self) -> None:
        """Cut the power of a running machine, or of all machines in a fifth of the cases."""
        rng = self._sim.rng
        victims = [self._up()] if rng.random() < 0.8 else list(self._sim.replicas.values())
        for replica in victims:
            if replica is not None and replica.node is not None:
                kept = replica.lose_power()
                self._sim.note(f"{replica.id} loses power: {kept}")

    def restart(self) -> None:
        """Start most stopped processes whose disks are readable; a full or failing disk is repaired first."""
        sim = self._sim
        for replica in sim.replicas.values():
            if replica.node is None and not replica.disk.bad and sim.rng.random() < 0.7:
                replica.full_disk = replica.failing_fsync = False
                sim.note(f"{replica.id} starts")
                replica.start()

    def isolate(self) -> None:
        """Cut all links of a replica in both directions, or in one direction."""
        sim = self._sim
        replica = self._anyone()
        cut = self._network.cut
        inward, outward = sim.rng.choice(((True, True), (True, False), (False, True)))
        sim.note(f"{replica.id} is isolated{'' if inward and outward else ' in one direction'}")
        for other in sim.replicas:
            if other != replica.id:
                if inward:
                    cut.add((other, replica.id))
                if outward:
                    cut.add((replica.id, other))

    def cut_one_way(self) -> None:
        """Cut the link from a replica to another; the way back stays."""
        one, other = self._anyone(), self._anyone()
        if one is not other:
            self._sim.note(f"no message passes from {one.id} to {other.id}")
            self._network.cut.add((one.id, other.id))

    def split(self) -> None:
        """Divide the replicas into two random sides; an empty side is possible. Replaces all earlier cuts."""
        sim = self._sim
        side = {node_id for node_id in sim.replicas if sim.rng.random() < 0.5}
        sim.note(f"the network splits: {sorted(side)} and the others")
        self._network.split(side)

    def reconnect(self) -> None:
        """Restore all cut links; loss, delays and duplication stay."""
        self._sim.note("all links work again")
        self._network.cut.clear()

    def close_connection(self) -> None:
        """Break the connections of two running replicas in both directions; their requests under way end."""
        one, other = self._anyone(), self._anyone()
        if one is not other and one.node is not None and other.node is not None:
            self._sim.note(f"the connections between {one.id} and {other.id} break")
            self._network.close(one, other)
            self._network.close(other, one)

    def pause(self) -> None:
        """Pause a running process for up to 8 s; its events wait until `Simulation.thaw`."""
        replica = self._up()
        if replica is not None and not replica.is_paused:
            time_us = self._sim.rng.choice((300_000, 1_500_000, 8_000_000))
            self._sim.note(f"{replica.id} is paused for {time_us // 1000} ms")
            replica.is_paused = True
            self._sim.at(self._sim.rng.randrange(time_us), None, self._sim.thaw, replica, replica.life)

    def bad_network(self) -> None:
        """Draw the loss, duplication, damage and delays of the whole network anew."""
        rng, network = self._sim.rng, self._network
        network.loss = rng.choice((0.0, 0.0, 0.02, 0.1, 0.3))
        network.doubling = rng.choice((0.0, 0.05, 0.2))
        network.garbling = rng.choice((0.0, 0.0, 0.1 if self._sim.is_driven else 0.01))
        network.delay_us = rng.choice((1_000, 5_000, 50_000))
        network.tail_us = rng.choice((0, 100_000, 3_000_000))
        self._sim.note(f"the network loses {network.loss:.0%}, doubles {network.doubling:.0%}")

    def jump(self) -> None:
        """Let the monotonic clock of a process jump an hour ahead, and wake its core unless it is paused."""
        replica = self._up()
        if replica is not None:
            self._sim.note(f"the clock of {replica.id} jumps an hour ahead")
            replica.set_clock(replica.rate, HOUR_US)
            if not replica.is_paused:
                replica.step(events.Tick())

    def jump_wall(self) -> None:
        """Move the calendar of a machine by an hour, forward or back."""
        replica = self._anyone()
        hour_ms = HOUR_US // 1000 * self._sim.rng.choice((-1, 1))
        replica.wall_jump_ms += hour_ms

    def drift(self) -> None:
        """Change the rate of a machine's clock to 0.8 to 1.2 of real time."""
        self._anyone().set_clock(self._sim.rng.randint(800, 1200))

    def stall_disk(self) -> None:
        """Make a disk slow, up to 2 s an operation, or fast again."""
        replica = self._anyone()
        replica.slow_disk = not replica.slow_disk
        self._sim.note(f"the disk of {replica.id} is {'slow' if replica.slow_disk else 'fast again'}")

    def fill_disk(self) -> None:
        """Fill a disk until `restart` or `heal`: the next write ends the process."""
        replica = self._anyone()
        self._sim.note(f"the disk of {replica.id} is full")
        replica.full_disk = True

    def fail_fsync(self) -> None:
        """Let all fsyncs of a machine fail until `restart` or `heal`: the next fsync ends the process."""
        replica = self._anyone()
        self._sim.note(f"fsyncs of {replica.id} fail from now on")
        replica.failing_fsync = True

    def rot(self) -> None:
        """Let the disk of a stopped replica rot if the quorum survives the loss: it never opens again."""
        replica = self._anyone()
        if replica.node is None and replica.disk.durable.entries and self.may_lose_disk(replica):
            self._sim.note(f"bits rot on the disk of {replica.id}: it no longer opens")
            replica.disk.bad = True

    def wipe(self) -> None:
        """Replace a disk by an empty disk, if the quorum survives the loss or the disk has rotted.

        If a voter that has never taken part exists, the replica then reaches only that voter.
        """
        replica = self._anyone()
        if self.may_lose_disk(replica) or replica.disk.bad:
            self._sim.note(f"the disk of {replica.id} is replaced by an empty one")
            replica.wipe()
            others = [r for r in self._sim.replicas.values() if r is not replica and r.disk.has_state]
            new = [r for r in others if not r.disk.state.epoch and r.id in replica.configured]
            if new:
                # The only replica that it can reach has never taken part.
                self._sim.note(f"{replica.id} reaches only {new[0].id}, which starts for the first time")
                self._network.split({replica.id, new[0].id})
                new[0].start_once()
            if new or self._sim.rng.random() < 0.7:
                replica.start()

    def leave_behind(self) -> None:
        """Play `Scenes.leave_behind`."""
        self.scenes.leave_behind()

    def vote_twice(self) -> None:
        """Play `Scenes.vote_twice`."""
        self.scenes.vote_twice()

    def remove_itself(self) -> None:
        """Play `Scenes.remove_itself`."""
        self.scenes.remove_itself()

    def resign(self) -> None:
        """Let each leader resign that is not paused."""
        for replica in self._sim.leaders:
            if replica.node is not None and not replica.is_paused:
                self._sim.note(f"{replica.id} is asked to resign")
                try:
                    replica.step(events.Resign(replica.node.epoch))
                except NotLeader:
                    continue

    def change_voters(self) -> None:
        """Let a tool request from a leader to add or remove a voter; enough live voters must stay."""
        sim = self._sim
        leaders = [leader for leader in sim.leaders if not leader.is_paused]
        if not leaders:
            return
        leader = sim.rng.choice(leaders)
        node = leader.node
        assert node is not None
        dead = self.dead_voters(node)
        others = [replica for replica in sim.replicas.values() if replica.id not in node.voters]
        request: AddVoterRequest | RemoveVoterRequest
        if dead:
            request = RemoveVoterRequest(dead[0])
        elif others and (sim.rng.random() < 0.5 or len(node.voters) == 1):
            request = AddVoterRequest(sim.rng.choice(others).own, 2_000, sim.rng.random() < 0.5)
        else:
            request = RemoveVoterRequest(sim.rng.choice(list(node.voters)).key)
        sim.note(f"a tool asks {leader.id}: {request}")
        sim.tool_requests += 1
        leader.step(events.Requested(PendingRequest(leader, -sim.tool_requests, request), request))

    def upgrade(self) -> None:
        """Play `Scenes.upgrade`."""
        self.scenes.upgrade()

    def name_last_epoch(self) -> None:
        """Send a damaged or hostile message with an epoch so high that no epochs would be left for elections."""
        sim = self._sim
        replica, other = self._up(), self._anyone()
        if replica is None or replica.is_paused:
            return
        epoch = sim.rng.choice((2**31 - 1, EPOCH_MAX, EPOCH_MAX - 1, FREE_MAX + 2 * LEAP_MAX))
        requests = (
            VoteRequest(epoch, other.key, 0, 0, pre_vote=sim.rng.random() < 0.5),
            BeginQuorumEpochRequest(epoch, other.id),
            EndQuorumEpochRequest(epoch, other.id, (replica.key,)),
        )
        request = sim.rng.choice(requests)
        sim.note(f"{replica.id} receives {request}")
        sim.tool_requests += 1
        replica.step(events.Requested(PendingRequest(replica, -sim.tool_requests, request), request))

    def shut_down(self) -> None:
        """Let a running process stop cleanly, unless it is paused."""
        replica = self._up()
        if replica is not None and not replica.is_paused:
            self._sim.note(f"{replica.id} shuts down")
            replica.step(events.Shutdown())
