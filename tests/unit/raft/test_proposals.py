"""Proposals of a leader while a flush runs: they share the next write."""

from __future__ import annotations

from typing import Any

from kraft_node.raft import events
from kraft_node.raft import ready as do
from kraft_node.raft.config import RaftConfig
from kraft_node.raft.log_view import LogView
from kraft_node.raft.membership.quorum import QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.node import RaftNode
from tests.unit.raft.host import QuietHost


class FixedRng:
    """Always the shortest time-outs."""

    def randrange(self, stop: int) -> int:
        return 0

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)


class OneVoter(QuietHost):
    """A leader alone. `is_busy`: its flushes end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_busy = False
        self.written: list[list[bytes]] = []
        self.flushing: int | None = None
        local = ReplicaKey(1)
        self.node = RaftNode(
            local=local,
            voters=VoterSet([Voter(local)]),
            log=LogView(),
            state=QuorumState(),
            rng=FixedRng(),
            cluster_id="c",
        )
        self.tell(events.Started())
        while not self.node.is_leader or not self.node.leader.announced:
            self.now_ms += 10
            self.tell(events.Tick())

    def flush(self, offset: int) -> None:
        if self.is_busy:
            self.flushing = offset
        else:
            super().flush(offset)

    def append(self, batch: Any) -> None:
        if isinstance(batch, do.Append):
            self.written.append(batch.records)

    def proposed_work(self, record: bytes) -> list[str]:
        """What the leader has to do at once for this proposal."""
        ready = self.node.step(events.Propose(self.node.epoch, [[record]]), self.now_ms)
        names = [name for name, _ in ready.work()]
        do.carry_out(ready, self)
        return names

    def end_flush(self) -> None:
        offset, self.flushing = self.flushing, None
        assert offset is not None
        self.tell(events.Flushed(offset))


def test_proposals_during_a_flush_are_one_batch_after_it() -> None:
    leader = OneVoter()
    leader.is_busy = True
    assert leader.proposed_work(b"lone") == ["appends", "flush", "proposed"]
    assert "timer_ms" in leader.proposed_work(b"first")
    assert leader.proposed_work(b"second") == ["proposed"]
    assert leader.proposed_work(b"third") == ["proposed"]
    leader.end_flush()
    assert leader.written == [[b"lone"], [b"first", b"second", b"third"]]


def test_proposals_are_written_during_a_long_flush_once_they_have_lingered() -> None:
    leader = OneVoter()
    leader.is_busy = True
    leader.proposed_work(b"lone")
    leader.proposed_work(b"first")
    leader.proposed_work(b"second")
    leader.now_ms += RaftConfig().append_linger_ms
    assert leader.proposed_work(b"third")[0] == "appends"
    assert leader.written == [[b"lone"], [b"first", b"second", b"third"]]
