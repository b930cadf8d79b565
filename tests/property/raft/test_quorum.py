"""Whole quorums of the core under one seed: messages lost and late, disks slow, nodes crashing and coming back.

The fault model: a message is lost, delayed or cut off by a partition; a crash loses every write that was not flushed;
flushes and quorum-state writes take a random time. Laws are checked after every effect.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraft_node.raft import events
from kraft_node.raft import ready as do
from kraft_node.raft.log_view import LogView
from kraft_node.raft.membership.quorum import QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.messages import FetchedBatch
from kraft_node.raft.node import NotLeader, RaftNode
from kraft_protocol.ids import Uuid
from tests.tiers import examples

Entry = tuple[int, str]


class Replica:
    """One process and its disk."""

    def __init__(self, sim: Quorum, node_id: int) -> None:
        self.sim = sim
        self.id = node_id
        self.key = ReplicaKey(node_id, Uuid(bytes([node_id]) * 16))
        self.saved_state = QuorumState()
        self.wanted_state = QuorumState()
        self.saved_log: list[Entry] = []
        self.log: list[Entry] = []
        self.node: RaftNode | None = None
        self.held: list[do.Message] = []
        self.life = 0
        self.lane = 0
        self.timer = 0
        self.high_watermark = 0

    def start(self) -> None:
        self.life += 1
        self.log = list(self.saved_log)
        self.wanted_state = self.saved_state
        self.high_watermark = 0
        epochs: dict[int, int] = {}
        for offset, (epoch, _) in enumerate(self.log):
            epochs.setdefault(epoch, offset)
        self.node = RaftNode(
            local=self.key,
            voters=self.sim.voters,
            log=LogView(0, len(self.log), epochs.items()),
            state=self.saved_state,
            rng=self.sim,
            cluster_id="c",
        )
        self.step(events.Started())

    def crash(self) -> None:
        self.node = None
        self.held = []
        self.life += 1

    def step(self, event: events.Event) -> None:
        if self.node is not None:
            do.carry_out(self.node.step(event, self.sim.now), self)

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """A callback that runs in this life only."""
        life = self.life
        self.sim.at(delay_ms, lambda: action() if self.life == life else None)

    def save_state(self, state: QuorumState) -> None:
        def written() -> None:
            self.saved_state = state
            self.step(events.QuorumStateWritten(state))

        self.wanted_state = state
        # One write after the other, as one thread does.
        self.lane = max(self.lane, self.sim.now) + self.sim.rng.randint(0, 30)
        self.later(self.lane - self.sim.now, written)

    def append(self, batch: do.LogAppend) -> None:
        assert batch.offset == len(self.log)
        if isinstance(batch, do.AppendLeaderChange):
            self.sim.elected(self, batch.epoch)
            self.log.append((batch.epoch, "leader change"))
        elif isinstance(batch, do.Append):
            self.log += [(batch.epoch, record.decode()) for record in batch.records]
        else:
            assert isinstance(batch, do.AppendFetched)
            self.log += batch.records

    def truncate(self, offset: int) -> None:
        assert offset >= self.high_watermark, "nothing committed is truncated"
        del self.log[offset:]

    def flush(self, offset: int) -> None:
        written = list(self.log)

        def flushed() -> None:
            self.saved_log = written
            self.step(events.Flushed(offset))

        self.later(self.sim.rng.randint(0, 40), flushed)

    def send(self, message: do.Message) -> None:
        if isinstance(message, do.Send):
            self.ask(message)
        elif isinstance(message, do.Respond):
            self.respond(message)
        else:
            assert isinstance(message, do.ReadLog)
            self.read_log(message)

    def ask(self, effect: do.Send) -> None:
        assert self.saved_state == self.wanted_state, "vote and epoch are on disk before words leave"
        other = self.sim.replicas[effect.node_id]
        token = (self, self.life, effect.number, effect.request)
        self.sim.carry(self, other, lambda: other.step(events.Requested(token, effect.request)))

    def respond(self, effect: do.Respond) -> None:
        assert self.saved_state == self.wanted_state, "vote and epoch are on disk before words leave"
        asker, life, number, _ = effect.token  # type: ignore[misc]
        answer = events.Answered(number, effect.reply)
        self.sim.carry(self, asker, lambda: asker.step(answer) if asker.life == life else None)

    def read_log(self, effect: do.ReadLog) -> None:
        entries = self.log[effect.offset : effect.offset + self.sim.rng.randint(1, 5)]
        batches = tuple(FetchedBatch(n, n + 1, epoch) for n, (epoch, _) in enumerate(entries, effect.offset))
        reply = effect.reply._replace(batches=batches, records=entries)  # type: ignore[call-arg]
        self.respond(do.Respond(effect.token, reply))

    def set_timer(self, at_ms: int | None) -> None:
        self.timer += 1
        mine = self.timer
        if at_ms is not None:
            delay = max(0, at_ms - self.sim.now)
            self.later(delay, lambda: self.step(events.Tick()) if self.timer == mine else None)

    def committed(self, offset: int) -> None:
        assert offset > self.high_watermark, "the high watermark never goes back"
        self.high_watermark = offset
        self.sim.committed_up_to(self, offset)

    def became_leader(self, epoch: int) -> None:
        assert self.sim.leaders[epoch] == self.id

    def _nothing(self, _: Any = None) -> None:
        """Ignore this effect."""

    lost_leadership = leader_changed = proposed = _nothing
    write_part = finish_snapshot = remove_snapshots = shut_down = _nothing


class Quorum:
    """All replicas, the network and the laws."""

    def __init__(self, seed: int, voters: int, observers: int = 0) -> None:
        self.rng = Random(seed)
        self.now = 0
        self.calm = False
        self.voters = VoterSet(Voter(ReplicaKey(node_id)) for node_id in range(1, voters + 1))
        self.replicas = {node_id: Replica(self, node_id) for node_id in range(1, voters + observers + 1)}
        self.leaders: dict[int, int] = {}
        self.committed: list[Entry] = []
        self.cut: set[frozenset[int]] = set()
        self.proposed = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def randrange(self, stop: int) -> int:
        return self.rng.randrange(stop)

    def random_bytes(self, count: int) -> bytes:
        return self.rng.randbytes(count)

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (self.now + delay_ms, self._count, action))

    def carry(self, sender: Replica, receiver: Replica, deliver: Callable[[], None]) -> None:
        if not self.calm and (self.rng.random() < 0.1 or frozenset({sender.id, receiver.id}) in self.cut):
            return
        self.at(self.rng.randint(1, 10 if self.calm else 200), deliver)

    def elected(self, replica: Replica, epoch: int) -> None:
        assert self.leaders.setdefault(epoch, replica.id) == replica.id, f"one leader per epoch ({epoch})"
        assert replica.log[: len(self.committed)] == self.committed, "a leader has all committed records"

    def committed_up_to(self, replica: Replica, offset: int) -> None:
        ours = replica.log[:offset]
        known = self.committed[:offset]
        assert ours[: len(known)] == known, "what is committed is the same everywhere"
        if offset > len(self.committed):
            having = [r for r in self.replicas.values() if r.id in self.voters and r.saved_log[:offset] == ours]
            assert len(having) >= self.voters.majority, "a majority has on disk what is committed"
            self.committed = ours

    def disturb(self) -> None:
        """Cause a random fault from time to time."""
        if self.calm:
            return
        what = self.rng.random()
        replica = self.rng.choice(list(self.replicas.values()))
        if what < 0.3:
            replica.crash()
        elif what < 0.6:
            if replica.node is None:
                replica.start()
        elif what < 0.75:
            others = self.rng.choice(list(self.replicas))
            self.cut = {frozenset({replica.id, others})} | {
                frozenset({replica.id, r}) for r in self.replicas if what < 0.65
            }
        elif what < 0.9:
            self.cut = set()
        self.at(self.rng.randint(50, 3000), self.disturb)

    def propose(self) -> None:
        for replica in self.replicas.values():
            if replica.node is not None and self.rng.random() < 0.5:
                self.proposed += 1
                try:
                    replica.step(events.Propose(replica.node.epoch, [[f"value {self.proposed}".encode()]]))
                except NotLeader:
                    continue
        self.at(self.rng.randint(5, 300), self.propose)

    def run(self, duration_ms: int) -> None:
        end = self.now + duration_ms
        while self._queue and self._queue[0][0] <= end:
            self.now, _, action = heapq.heappop(self._queue)
            action()
        self.now = end


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(1, 0), (2, 0), (3, 0), (3, 1), (5, 0), (4, 2)]))
def test_laws_hold_under_any_faults_and_calm_brings_progress(seed: int, size: tuple[int, int]) -> None:
    sim = Quorum(seed, *size)
    for replica in sim.replicas.values():
        replica.start()
    sim.disturb()
    sim.propose()
    sim.run(30_000)
    sim.calm = True
    sim.cut = set()
    for replica in sim.replicas.values():
        if replica.node is None:
            replica.start()
    sim.run(10_000)
    before = len(sim.committed)
    sim.run(10_000)
    assert len(sim.committed) > before, "healed, the quorum goes on"
    lag = [len(sim.committed) - replica.high_watermark for replica in sim.replicas.values()]
    assert max(lag) < 200, f"everybody follows ({lag})"


@pytest.mark.parametrize("voters", [1, 3])
def test_a_calm_quorum_keeps_its_leader(voters: int) -> None:
    sim = Quorum(1, voters)
    sim.calm = True
    for replica in sim.replicas.values():
        replica.start()
    sim.propose()
    sim.run(60_000)
    assert len(sim.leaders) == 1
    assert len(sim.committed) > 100


def test_the_laws_notice_a_leader_that_counts_unflushed_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves that a green run means something."""

    def all_is_flushed(self: Any, node: Any) -> None:
        node.log.flushed(node.log.end_offset)
        real(self, node)

    from kraft_node.raft.roles.leader import Leader

    real = Leader.act
    monkeypatch.setattr(Leader, "act", all_is_flushed)
    with pytest.raises(AssertionError, match="majority has on disk"):
        for seed in range(20):
            sim = Quorum(seed, 1)
            sim.replicas[1].start()
            sim.propose()
            sim.run(5_000)
