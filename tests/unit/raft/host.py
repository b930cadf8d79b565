"""A host for tests of one core: writes succeed at once, and messages wait for the test."""

from __future__ import annotations

from collections import deque
from typing import Any

from kraft_node.raft import events
from kraft_node.raft import messages as m
from kraft_node.raft import ready as do
from kraft_node.raft.membership.quorum import QuorumState
from kraft_node.raft.node import RaftNode


class QuietHost:
    """Set `node`, `tell` events; override what a test checks."""

    node: RaftNode

    def __init__(self) -> None:
        self.now_ms = 0
        self.held: list[do.Message] = []
        self.sent: list[do.Message] = []
        self._waiting: deque[events.Event] = deque()
        self._is_busy = False

    def tell(self, event: events.Event) -> None:
        """Handle an event; events raised during a step follow after it."""
        self._waiting.append(event)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._waiting:
                do.carry_out(self.node.step(self._waiting.popleft(), self.now_ms), self)
        finally:
            self._is_busy = False

    def requests(self, kind: type) -> list[do.Send]:
        """The requests of that kind that were sent since the last call."""
        found = [message for message in self.sent if isinstance(message, do.Send)]
        found = [message for message in found if isinstance(message.request, kind)]
        self.sent = [message for message in self.sent if message not in found]
        return found

    def votes(self) -> list[bool]:
        """Whether each vote request was granted."""
        replies = [message.reply for message in self.sent if isinstance(message, do.Respond)]
        return [reply.granted for reply in replies if isinstance(reply, m.VoteReply)]

    def save_state(self, state: QuorumState) -> None:
        self.tell(events.QuorumStateWritten(state))

    def flush(self, offset: int) -> None:
        self.tell(events.Flushed(offset))

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def append(self, batch: Any) -> None:
        """Discards the records."""

    def _nothing(self, _: Any = None) -> None:
        """Ignores the effect."""

    truncate = write_part = finish_snapshot = remove_snapshots = proposed = committed = became_leader = _nothing
    lost_leadership = leader_changed = set_timer = shut_down = _nothing
