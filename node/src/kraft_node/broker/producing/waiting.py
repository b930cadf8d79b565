"""Produce requests that are appended and wait for replication, or for a flush."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.base import rare
from kraft_node.partition.acknowledged import Appended, when_acknowledged
from kraft_node.partition.acks import ACKS_ALL
from kraft_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kraft_node.base.env import Scheduler, Timer
    from kraft_node.base.request import RequestContext
    from kraft_node.partition.partition import Partition

WAITING_MAX: Final = 20_000
"""Produce requests that may wait for replication; further requests get a retriable error."""


class WaitingProduce:
    """A request that is appended but must not be answered yet.

    With acks=all, an in-sync replica lacks records (Kafka's DelayedProduce). With acks=1, a flush for `flush.messages`
    is under way; it has no time limit, because Kafka's append would block until it ends.
    """

    __slots__ = ("ctx", "pending", "response", "timer", "waiting")

    def __init__(
        self,
        waiting: set[WaitingProduce],
        scheduler: Scheduler,
        ctx: RequestContext,
        request: Any,
        response: Any,
        unreplicated: list[tuple[Appended, Any]],
    ) -> None:
        """`waiting`: the requests of the broker that wait. This one joins them unless they are too many."""
        self.waiting = waiting
        self.ctx = ctx
        self.response = response
        self.pending: set[_PendingAck] = set()
        self.timer: Timer | None = None
        if len(waiting) >= WAITING_MAX or rare.takes("produce cannot wait"):
            for _, row in unreplicated:
                _fail(row, ErrorCode.REQUEST_TIMED_OUT)
            ctx.respond(response)
            return
        waiting.add(self)
        acks = [(_PendingAck(self, each.partition, row), each) for each, row in unreplicated]
        self.pending.update(ack for ack, _ in acks)
        if request.acks == ACKS_ALL:
            self.timer = scheduler.call_later(request.timeout_ms, self._expired)
        for ack, each in acks:
            when_acknowledged(each, request.acks, ack)

    def settled(self, ack: _PendingAck) -> None:
        """Note that a partition is replicated or has failed. The last partition sends the answer."""
        if ack not in self.pending:
            return  # too late: already answered
        self.pending.discard(ack)
        if not self.pending:
            self._finish()

    def _expired(self) -> None:
        for ack in self.pending:
            ack.partition.forget_ack(ack)
            _fail(ack.row, ErrorCode.REQUEST_TIMED_OUT)
        self.pending.clear()
        self._finish()

    def _finish(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.waiting.discard(self)
        self.ctx.respond(self.response)


class _PendingAck:
    """One partition of a waiting request; called when it is decided."""

    __slots__ = ("owner", "partition", "row")

    def __init__(self, owner: WaitingProduce, partition: Partition, row: Any) -> None:
        self.owner = owner
        self.partition = partition
        self.row = row

    def __call__(self, code: ErrorCode) -> None:
        if code:
            _fail(self.row, code)
        self.owner.settled(self)


def _fail(row: Any, code: ErrorCode) -> None:
    """Fail a row; as in Kafka, it keeps the offsets of the append even if replication failed."""
    row.error_code = code
