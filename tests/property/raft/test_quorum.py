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

from kraft_node.base.ids import Uuid
from kraft_node.raft import effects as do
from kraft_node.raft import events
from kraft_node.raft.log_view import LogView
from kraft_node.raft.messages import Batch
from kraft_node.raft.node import NotLeader, RaftNode
from kraft_node.raft.quorum import QuorumState, ReplicaKey, Voter, VoterSet

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
        self.life += 1

    def step(self, event: events.Event) -> None:
        if self.node is not None:
            for effect in self.node.step(event, self.sim.now):
                getattr(self, "do_" + type(effect).__name__)(effect)

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """In this life only."""
        life = self.life
        self.sim.at(delay_ms, lambda: action() if self.life == life else None)

    def do_WriteQuorumState(self, effect: do.WriteQuorumState) -> None:  # noqa: N802
        def written() -> None:
            self.saved_state = effect.state
            self.step(events.QuorumStateWritten(effect.state))

        self.wanted_state = effect.state
        # One after the other, as one thread writes them.
        self.lane = max(self.lane, self.sim.now) + self.sim.rng.randint(0, 30)
        self.later(self.lane - self.sim.now, written)

    def do_AppendLeaderChange(self, effect: do.AppendLeaderChange) -> None:  # noqa: N802
        self.sim.elected(self, effect.epoch)
        self.log.append((effect.epoch, "leader change"))

    def do_Append(self, effect: do.Append) -> None:  # noqa: N802
        assert effect.offset == len(self.log)
        self.log += [(effect.epoch, record.decode()) for record in effect.records]

    def do_AppendFetched(self, effect: do.AppendFetched) -> None:  # noqa: N802
        assert effect.offset == len(self.log)
        self.log += effect.records

    def do_Truncate(self, effect: do.Truncate) -> None:  # noqa: N802
        assert effect.offset >= self.high_watermark, "nothing committed is truncated"
        del self.log[effect.offset :]

    def do_Flush(self, effect: do.Flush) -> None:  # noqa: N802
        written = list(self.log)

        def flushed() -> None:
            self.saved_log = written
            self.step(events.Flushed(effect.offset))

        self.later(self.sim.rng.randint(0, 40), flushed)

    def do_Send(self, effect: do.Send) -> None:  # noqa: N802
        assert self.saved_state == self.wanted_state, "vote and epoch are on disk before words leave"
        other = self.sim.replicas[effect.node_id]
        token = (self, self.life, effect.number, effect.request)
        self.sim.carry(self, other, lambda: other.step(events.Asked(token, effect.request)))

    def do_Respond(self, effect: do.Respond) -> None:  # noqa: N802
        assert self.saved_state == self.wanted_state, "vote and epoch are on disk before words leave"
        asker, life, number, _ = effect.token  # type: ignore[misc]
        answer = events.Answered(number, effect.reply)
        self.sim.carry(self, asker, lambda: asker.step(answer) if asker.life == life else None)

    def do_ReadLog(self, effect: do.ReadLog) -> None:  # noqa: N802
        entries = self.log[effect.offset : effect.offset + self.sim.rng.randint(1, 5)]
        batches = tuple(Batch(n, n + 1, epoch) for n, (epoch, _) in enumerate(entries, effect.offset))
        reply = effect.reply._replace(batches=batches, records=entries)  # type: ignore[call-arg]
        self.do_Respond(do.Respond(effect.token, reply))

    def do_SetTimer(self, effect: do.SetTimer) -> None:  # noqa: N802
        self.timer += 1
        mine = self.timer
        if effect.at_ms is not None:
            delay = max(0, effect.at_ms - self.sim.now)
            self.later(delay, lambda: self.step(events.Tick()) if self.timer == mine else None)

    def do_Committed(self, effect: do.Committed) -> None:  # noqa: N802
        assert effect.high_watermark > self.high_watermark, "the high watermark never goes back"
        self.high_watermark = effect.high_watermark
        self.sim.committed_up_to(self, effect.high_watermark)

    def do_BecameLeader(self, effect: do.BecameLeader) -> None:  # noqa: N802
        assert self.sim.leaders[effect.epoch] == self.id

    def do_LostLeadership(self, effect: do.LostLeadership) -> None:  # noqa: N802
        pass

    do_LeaderChanged = do_Proposed = do_LostLeadership  # noqa: N815


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
        assert replica.log[: len(self.committed)] == self.committed, "a leader has all that was committed"

    def committed_up_to(self, replica: Replica, offset: int) -> None:
        ours = replica.log[:offset]
        known = self.committed[:offset]
        assert ours[: len(known)] == known, "what is committed is the same everywhere"
        if offset > len(self.committed):
            having = [r for r in self.replicas.values() if r.id in self.voters and r.saved_log[:offset] == ours]
            assert len(having) >= self.voters.majority, "a majority has on disk what is committed"
            self.committed = ours

    def disturb(self) -> None:
        """Now and then something goes wrong."""
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


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([(1, 0), (2, 0), (3, 0), (3, 1), (5, 0), (4, 2)]))
def test_laws_hold_whatever_happens_and_calm_brings_progress(seed: int, size: tuple[int, int]) -> None:
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
    """So that a green run means something."""

    def all_is_flushed(self: Any, node: Any) -> None:
        node.log.flushed(node.log.end_offset)
        real(self, node)

    from kraft_node.raft.leader import Leader

    real = Leader.act
    monkeypatch.setattr(Leader, "act", all_is_flushed)
    with pytest.raises(AssertionError, match="majority has on disk"):
        for seed in range(20):
            sim = Quorum(seed, 1)
            sim.replicas[1].start()
            sim.propose()
            sim.run(5_000)
