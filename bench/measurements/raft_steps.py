"""CPU time of a step of the Raft core on a host that does nothing: `python -m bench.measurements.raft_steps`.

Two cases: a leader of three that appends and answers its followers' fetches, and a follower that appends one batch
after another. The best of several rounds counts, since other work on the machine only adds time.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Final, TypeVar

from kraft_node.raft import events
from kraft_node.raft import messages as m
from kraft_node.raft import ready as do
from kraft_node.raft.log_view import LogView
from kraft_node.raft.membership.quorum import QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.node import RaftNode

VOTERS: Final = VoterSet(Voter(ReplicaKey(node_id)) for node_id in (1, 2, 3))
ROUNDS: Final = 7
APPENDS: Final = 3_000
RECORD: Final = b"x" * 100

RequestT = TypeVar("RequestT")


class Host:
    """Writes succeed at once, messages are kept for inspection, all other work is ignored."""

    def __init__(self, node_id: int) -> None:
        self.now_ms = 0
        self.steps = 0
        self.held: list[do.Message] = []
        self.sent: list[do.Message] = []
        self._waiting: deque[events.Event] = deque()
        self._is_busy = False
        self.node = RaftNode(
            local=ReplicaKey(node_id), voters=VOTERS, log=LogView(), state=QuorumState(), rng=self, cluster_id="c"
        )
        self.handle(events.Started())

    def randrange(self, stop: int) -> int:  # noqa: ARG002
        """Always 0, so that election time-outs are the shortest and runs are alike."""
        return 0

    def random_bytes(self, count: int) -> bytes:
        """Always zeros."""
        return bytes(count)

    def handle(self, event: events.Event) -> None:
        """Run a step, and the steps that follow from it."""
        self._waiting.append(event)
        if self._is_busy:
            return
        self._is_busy = True
        while self._waiting:
            self.steps += 1
            do.carry_out(self.node.step(self._waiting.popleft(), self.now_ms), self)
        self._is_busy = False

    def requests(self, kind: type[RequestT]) -> list[tuple[int, RequestT]]:
        """The requests of this kind since the last call, with their numbers."""
        sent, self.sent = self.sent, []
        return [(one.number, one.request) for one in sent if isinstance(one, do.Send) and isinstance(one.request, kind)]

    def save_state(self, state: QuorumState) -> None:
        """Report the state as durable at once."""
        self.handle(events.QuorumStateWritten(state))

    def flush(self, offset: int) -> None:
        """Report the flush as ended at once."""
        self.handle(events.Flushed(offset))

    def send(self, message: Any) -> None:
        """Keep the message for `requests`."""
        self.sent.append(message)

    def _nothing(self, _: Any = None) -> None:
        """Ignored: not part of the measurement."""

    append = truncate = write_part = finish_snapshot = remove_snapshots = proposed = committed = _nothing
    became_leader = lost_leadership = leader_changed = set_timer = shut_down = _nothing


def leader_us() -> float:
    """Microseconds per step of a leader."""
    host = Host(1)
    for _ in range(2):
        for number, vote in host.requests(m.VoteRequest):
            host.handle(events.Answered(number, m.VoteReply(m.NONE, vote.epoch, granted=True)))
    _fetch(host)
    assert host.node.leader.announced
    host.steps = 0
    begun = time.process_time()
    for _ in range(APPENDS):
        host.now_ms += 1
        host.handle(events.Propose(1, [[RECORD]]))
        _fetch(host)
        host.sent.clear()
    return (time.process_time() - begun) / host.steps * 1e6


def _fetch(host: Host) -> None:
    """Let both followers fetch; they have all records, and wait for more."""
    log = host.node.log
    for voter_id in (2, 3):
        request = m.FetchRequest(
            1, ReplicaKey(voter_id), log.end_offset, 1, 1_000, 500, max(0, host.node.high_watermark)
        )
        host.handle(events.Requested((log.end_offset, voter_id), request))


def follower_us() -> float:
    """Microseconds per step of a follower."""
    host = Host(2)
    host.handle(events.Requested("begin", m.BeginQuorumEpochRequest(1, 1)))
    host.steps = 0
    begun = time.process_time()
    for offset in range(APPENDS):
        host.now_ms += 1
        number, _ = host.requests(m.FetchRequest)[-1]
        batches = (m.FetchedBatch(offset, offset + 1, 1),)
        host.handle(events.Answered(number, m.FetchReply(m.NONE, 1, 1, offset, 0, batches=batches, records=RECORD)))
    return (time.process_time() - begun) / host.steps * 1e6


if __name__ == "__main__":
    print(f"leader {min(leader_us() for _ in range(ROUNDS)):.1f} us a step")
    print(f"follower {min(follower_us() for _ in range(ROUNDS)):.1f} us a step")
