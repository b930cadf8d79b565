"""The network of the Raft simulator: lost, late, duplicate and reordered messages, cut links, closed connections."""

from __future__ import annotations

from typing import Any

from kraft_node.raft import events
from kraft_node.raft.messages import FetchRequest, FetchSnapshotRequest, VoteRequest
from kraft_node.testing.raft.garbling import garble
from kraft_node.testing.raft.quorum import PendingRequest, RaftMachine, SimulatedQuorum


class Network:
    """Links between all replicas. `cut` holds the directed pairs that are cut."""

    def __init__(self, sim: SimulatedQuorum) -> None:
        self._sim = sim
        self.cut: set[tuple[int, int]] = set()
        self.loss = 0.0
        self.doubling = 0.0
        self.garbling = 0.0
        """The share of responses that name an absurd epoch."""
        self.delay_us = 2_000
        self.tail_us = 0

    def split(self, side: set[int]) -> None:
        """Cut all links between `side` and the other replicas; all other links work."""
        everybody = self._sim.replicas
        self.cut = {(one, other) for one in everybody for other in everybody if (one in side) != (other in side)}

    def heal(self) -> None:
        """Restore all links: short delays, and no message is lost, doubled or damaged."""
        self.cut.clear()
        self.loss = self.doubling = self.garbling = 0.0
        self.delay_us = 2_000
        self.tail_us = 0

    def _delay_us(self) -> int:
        rng = self._sim.rng
        delay = 100 + int(rng.random() * self.delay_us)
        if self.tail_us and rng.random() < 0.1:
            delay += int(rng.random() * self.tail_us)
        return delay

    def _passes(self, sender: RaftMachine, receiver: RaftMachine) -> bool:
        if (sender.id, receiver.id) in self.cut:
            return False
        return not (self.loss and self._sim.rng.random() < self.loss)

    def request(self, sender: RaftMachine, number: int, node_id: int, request: Any) -> None:
        """Send the request `number` of the sender's core. A lost request gets no event: the core times out."""
        sim = self._sim
        receiver = sim.replicas.get(node_id)
        if receiver is None or (receiver.node is None and sim.rng.random() < 0.5):
            # No process listens: the connection is refused.
            sim.at(self._delay_us(), sender, sender.step, events.Answered(number, None))
            return
        sender.in_flight[number] = receiver
        if not self._passes(sender, receiver):
            return
        if receiver.id in sim.old_peers and type(request) is VoteRequest and request.pre_vote:
            sim.at(self._delay_us(), sender, sender.step, events.Unsupported(number))
            return
        sim.at(self._delay_us(), receiver, self._arrive, receiver, PendingRequest(sender, number, request))
        if self.doubling and sim.rng.random() < self.doubling:
            sim.at(self._delay_us() * 3, receiver, self._arrive, receiver, PendingRequest(sender, number, request))

    def _arrive(self, receiver: RaftMachine, token: PendingRequest) -> None:
        receiver.tokens[token] = None
        if type(token.request) in (FetchRequest, FetchSnapshotRequest):
            receiver.heard_ms[token.request.replica.id] = receiver.local_us() // 1000
        receiver.step(events.Requested(token, token.request))

    def answer(self, sender: RaftMachine, token: PendingRequest, reply: Any) -> None:
        """Send a response to the process that asked; dropped if that process has ended, or for a tool's request."""
        asker = token.asker
        if token.number < 0:
            return
        if self.garbling and self._sim.rng.random() < self.garbling:
            reply = garble(reply, self._sim.rng)
        if token.life == asker.life and self._passes(sender, asker):
            self._sim.at(self._delay_us(), asker, self._arrive_answer, asker, token.number, reply)

    def _arrive_answer(self, asker: RaftMachine, number: int, reply: Any) -> None:
        asker.in_flight.pop(number, None)
        asker.step(events.Answered(number, reply))

    def process_died(self, dead: RaftMachine, *, loud: bool) -> None:
        """`loud`: peers see its connections close; otherwise they notice only by silence."""
        if not loud:
            return
        for other in self._sim.replicas.values():
            if other is not dead and other.node is not None and (dead.id, other.id) not in self.cut:
                self.close(other, dead)

    def close(self, end: RaftMachine, other: RaftMachine) -> None:
        """Close the connections between the two, as `end` sees it."""
        sim = self._sim
        for number in [number for number, asked in end.in_flight.items() if asked is other]:
            del end.in_flight[number]
            sim.at(self._delay_us(), end, end.step, events.Answered(number, None))
        for token in [token for token in end.tokens if token.asker is other]:
            del end.tokens[token]
            sim.at(self._delay_us(), end, end.step, events.Cancelled(token))
        sim.at(self._delay_us(), end, end.step, events.Disconnected(other.id))
