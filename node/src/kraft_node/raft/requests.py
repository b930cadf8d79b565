"""Requests to other nodes: at most one of a kind in flight to each node, with back-off and time-outs."""

from __future__ import annotations

from typing import Final

from kraft_node.raft.config import RaftConfig
from kraft_node.raft.messages import Request

SILENT_MS: Final = 250
"""A node that does not lead answers at once. A node that takes longer may hang, so another node gets the request as
well."""


class _Line:
    __slots__ = ("blocked_until_ms", "number", "request", "sent_ms")

    def __init__(self) -> None:
        self.number = 0
        """The number of the request in flight; 0 without a request."""
        self.request: Request | None = None
        self.sent_ms = 0
        self.blocked_until_ms = 0


class Requests:
    """The state of requests to all nodes. A quorum has few nodes, so entries are never removed one by one."""

    __slots__ = ("_config", "_lines", "_next")

    def __init__(self, config: RaftConfig) -> None:
        self._config = config
        self._lines: dict[tuple[int, type], _Line] = {}
        self._next = 1

    def is_ready(self, node_id: int, kind: type, now_ms: int) -> bool:
        """Whether a request of this kind may be sent to the node now."""
        line = self._lines.get((node_id, kind))
        return line is None or (not line.number and now_ms >= line.blocked_until_ms)

    def may_answer(self, node_id: int, kind: type, now_ms: int) -> bool:
        """Whether a request of this kind is in flight to the node, and was sent less than `SILENT_MS` ago."""
        line = self._lines.get((node_id, kind))
        return line is not None and bool(line.number) and now_ms < line.sent_ms + SILENT_MS

    def sent(self, node_id: int, request: Request, now_ms: int) -> int:
        """Note a sent request. Returns its number."""
        line = self._lines.setdefault((node_id, type(request)), _Line())
        assert not line.number, f"law: one request of a kind in flight to a node ({node_id} has one)"
        line.number = self._next
        line.request = request
        line.sent_ms = now_ms
        self._next += 1
        return line.number

    def answered(self, number: int, now_ms: int, *, failed: bool) -> tuple[int, Request] | None:
        """The node and the request that were answered. Returns None if the number is no longer in flight."""
        for (node_id, _), line in self._lines.items():
            if line.number == number and line.request is not None:
                request = line.request
                line.number = 0
                line.request = None
                line.blocked_until_ms = now_ms + self._config.retry_backoff_ms if failed else 0
                return node_id, request
        return None

    def back_off(self, node_id: int, kind: type, now_ms: int) -> None:
        """Send no request of this kind to the node for a moment."""
        self._lines.setdefault((node_id, kind), _Line()).blocked_until_ms = now_ms + self._config.retry_backoff_ms

    def forget(self) -> None:
        """A new epoch has begun: drop the state of all requests of the old epoch."""
        self._lines.clear()

    def expire(self, now_ms: int) -> None:
        """Give up on requests without an answer within the time-out."""
        for line in self._lines.values():
            if line.number and now_ms >= line.sent_ms + self._config.request_timeout_ms:
                line.number = 0
                line.request = None
                line.blocked_until_ms = now_ms + self._config.retry_backoff_ms

    def deadlines_ms(self, now_ms: int) -> list[int]:
        """When a node may get the next request, or begins to count as silent."""
        timeout = self._config.request_timeout_ms
        times = []
        for line in self._lines.values():
            if not line.number:
                if line.blocked_until_ms > now_ms:
                    times.append(line.blocked_until_ms)
                continue
            times.append(line.sent_ms + timeout)
            if line.sent_ms + SILENT_MS > now_ms:
                times.append(line.sent_ms + SILENT_MS)
        return times
