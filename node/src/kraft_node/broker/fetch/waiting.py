"""A fetch that waits for `min_bytes` or for its time-out (Kafka's DelayedFetch), one object per request.

Appends only count bytes and schedule the fetch for the loop's next turn. So one larger response answers many appends
of one turn. If the count is sufficient, the partitions are read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from kraft_node.base.long_answers import answer_with
from kraft_node.broker.fetch import reader
from kraft_node.broker.fetch.cold import bring_in
from kraft_node.broker.fetch.session import ROWS, FetchPartition, FetchSession, SessionCache
from kraft_node.partition.isolation import READ_COMMITTED, READ_UNCOMMITTED
from kraft_protocol.client.fetch_session import NO_SESSION
from kraft_protocol.wire.messages import FetchRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kraft_node.base.env import Background, Clock, Disk, Scheduler, Timer
    from kraft_node.base.request import RequestContext
    from kraft_node.base.turns import Turns
    from kraft_node.broker.replication.throttle import ReplicationQuota
    from kraft_node.partition.followers import FollowerClock
    from kraft_node.partition.manager import ReplicaManager
    from kraft_node.partition.partition import Partition

WAITING_MAX: Final = 20_000
"""Maximum of waiting fetches: twice the number of idle consumers for which a node is sized. Above it, a fetch is
answered at once with the available data; for the client this is a short wait."""


COLD_WAIT_MS: Final = 500
"""After this time a late fetch is answered without the data that lanes still read."""
COLD_ROUNDS_MAX: Final = 32
"""After so many rounds a fetch waits for the disk: memory is so short that the kernel evicts the data that lanes have
read. A look-up in the largest index needs about ten."""

NOTHING: Final = FetchRequest(topics=[])
"""The request for the answer of a fetch that fails while it waits: a top-level error."""

SHORT_WAIT_MS: Final = 10
"""How long a follower's fetch waits while the follower is about to fetch more partitions. Metadata reaches it some
milliseconds sooner or later than this broker."""


class FetchOwner(Protocol):
    """What a fetch needs of the handler that owns the sessions and the waiting fetches."""

    replicas: ReplicaManager
    clock: Clock
    disk: Disk
    background: Background
    scheduler: Scheduler
    turns: Turns
    sessions: SessionCache
    waiting: set[WaitingFetch]
    prefer: reader.Prefer | None
    quota: ReplicationQuota | None

    def answer_empty(self, request: Any, session: FetchSession) -> Any:
        """The response to a request of no partitions."""

    def note_reader(self, ctx: RequestContext, request: Any, session: FetchSession) -> None:
        """Note in the session the broker or the rack of its reader."""

    def fetch_of(self, ctx: RequestContext, request: Any, session: FetchSession, *, all_rows: bool) -> WaitingFetch:
        """The request with its session, and the limits of broker and quota."""

    def refuses(self, session: FetchSession) -> bool:
        """Whether consumers must not be served: another broker may lead by now."""

    def may_wait(self) -> bool:
        """Whether another fetch may wait."""

    def answer(self, fetch: WaitingFetch, found: reader.Collected) -> Any:
        """The response with the rows found; the session notes the sent rows."""

    def throttled(self, fetch: WaitingFetch, found: reader.Collected) -> Any:
        """The response for a consumer above its quota; None for all others."""

    def hint(self, fetch: WaitingFetch, rows: list[reader.Row], response: Any) -> None:
        """Name the leaders to readers of the wrong broker, if their version supports it."""

    def superseded_response(self) -> Any:
        """The response to a fetch that a newer request of its session has replaced."""

    def go_on_in_turns(self, fetch: WaitingFetch) -> None:
        """Read very many partitions again, in turns of the loop."""


class WaitingFetch:
    """One request and the session (or the partitions of a request without a session) that it reads."""

    __slots__ = (
        "all_rows",
        "clock",
        "cold_rounds",
        "cold_since_ms",
        "ctx",
        "done",
        "handler",
        "has_news",
        "held_back",
        "is_late",
        "isolation",
        "max_bytes",
        "min_bytes",
        "missing_bytes",
        "scheduled",
        "session",
        "timer",
        "warming",
    )

    def __init__(
        self,
        handler: FetchOwner,
        ctx: RequestContext,
        session: FetchSession,
        max_bytes: int,
        min_bytes: int,
        isolation: int,
        *,
        all_rows: bool,
    ) -> None:
        self.handler = handler
        self.ctx = ctx
        self.session = session
        self.max_bytes = max_bytes
        self.min_bytes = min_bytes
        self.isolation = isolation
        self.all_rows = all_rows
        self.missing_bytes = min_bytes
        self.timer: Timer | None = None
        self.clock: FollowerClock | None = None
        self.scheduled = False
        """Whether a read is scheduled or runs in turns; until its end, arrivals are only counted."""
        self.has_news = False
        """Whether anything except appends has changed since the partitions were last read."""
        self.held_back = False
        """Whether an open transaction hid records of a partition at the last look: its end shows many bytes at once."""
        self.is_late = False
        self.cold_rounds = 0
        """How often lanes have read data for it that was not in memory."""
        self.cold_since_ms = 0
        """When they began."""
        self.warming = False
        """Whether they are reading."""
        self.done = False

    @property
    def wanted(self) -> dict[Any, FetchPartition]:
        """The partitions to read: all, or the partitions of the session that may have news."""
        return self.session.partitions if self.all_rows else self.session.ready

    def collect(self) -> reader.Collected:
        """Read the available data."""
        wanted = self.wanted
        return self.read(list(wanted.values()) if len(wanted) > 1 else wanted.values())

    def read(self, partitions: Iterable[FetchPartition], before: reader.Collected | None = None) -> reader.Collected:
        """Read these partitions, after the rows in `before`."""
        session, handler = self.session, self.handler
        return reader.collect(
            handler.replicas,
            session,
            partitions,
            self.max_bytes,
            self.isolation,
            all_rows=self.all_rows,
            prefer=handler.prefer if session.rack else None,
            quota=handler.quota if session.replica_id >= 0 else None,
            before=before,
            waits=self.cold_rounds >= COLD_ROUNDS_MAX,
        )

    def is_enough(self, found: reader.Collected) -> bool:
        """Whether to answer with `found` instead of waiting."""
        if found.size_bytes >= self.min_bytes or found.immediate:
            return True
        return found.unanswerable == len(self.session.partitions)

    def wait(self, found: reader.Collected, max_wait_ms: int) -> None:
        """Start waiting, because too little was found."""
        self.begin(max_wait_ms)
        self._watch(found)

    def warm(self, found: reader.Collected, max_wait_ms: int = 0) -> None:
        """Let lanes read the cold data, then read again. Rows may be stale by then, so all of them are read again.

        `max_wait_ms` counts if it does not wait yet.
        """
        handler = self.handler
        reader.take_back(self.session, found, handler.replicas, handler.quota)
        self.scheduled = True
        if self.warming:
            return
        self.warming = True
        if not self.cold_rounds:
            self.cold_since_ms = handler.clock.monotonic_ms()
            handler.scheduler.call_later(COLD_WAIT_MS, self._look_without)
        self.cold_rounds += 1
        if self.timer is None:
            self.begin(max(max_wait_ms, 0))
        bring_in(handler.disk, handler.background, found.cold, self._warmed)

    def goes_without(self, found: reader.Collected) -> bool:
        """Whether to answer without the data that lanes still read: the fetch is late, and others have records.

        Otherwise one partition on a slow disk would hold up all that are in memory.
        """
        if not found.size_bytes or not self._may_go_without():
            return False
        if self.all_rows:
            reader.add_put_off(found, self.handler.replicas, self.isolation)
        return True

    def _may_go_without(self) -> bool:
        waited_ms = self.handler.clock.monotonic_ms() - self.cold_since_ms
        return self.is_late and self.cold_rounds > 0 and waited_ms >= COLD_WAIT_MS

    def _look_without(self) -> None:
        """Lanes take long: see what can be read without them."""
        if self.warming and not self.done and len(self.wanted) <= ROWS and self._may_go_without():
            self.handler.turns.add(self._turn)

    def _warmed(self) -> None:
        self.warming = self.scheduled = False
        if not self.done:
            self._wake()

    def begin(self, max_wait_ms: int) -> None:
        """Count arrivals from now on, for at most this time."""
        self.handler.waiting.add(self)
        handler = self.handler
        if self.session.replica_id >= 0:
            self.clock = handler.replicas.surroundings.clock_of(self.session.replica_id)
            self.clock.waiting.append(self)
            if self.clock.is_expected(handler.clock.monotonic_ms()):
                max_wait_ms = min(max_wait_ms, SHORT_WAIT_MS)
        self.timer = handler.scheduler.call_later(max_wait_ms, self._expired)
        self.session.arrived = self._arrived

    def _watch(self, found: reader.Collected) -> None:
        self.missing_bytes = self.min_bytes - found.size_bytes
        self.held_back = False
        if self.isolation == READ_COMMITTED:
            for wanted, _ in found.rows:
                self._note_held_back(self.handler.replicas.peek(wanted.key))
        reader.watch(self.session, found.rows, self.handler.replicas, self.isolation, self._patience())

    def _note_held_back(self, partition: Partition | None) -> None:
        if partition is not None and partition.readable_end(READ_COMMITTED) < partition.readable_end(READ_UNCOMMITTED):
            self.held_back = True

    def _patience(self) -> int:
        """The bytes below which a partition need not report appends: several partitions may have enough together, and
        a small marker ends a transaction."""
        return 1 if self.isolation == READ_COMMITTED or len(self.session.partitions) > 1 else self.missing_bytes

    def _end_patience(self) -> None:
        """The only partition may have appends that it has not reported."""
        if self.min_bytes > 1 and len(self.session.partitions) == 1:
            for wanted in self.session.partitions.values():
                wanted.look_again()

    def _arrived(self, wanted: FetchPartition, appended_bytes: int) -> None:
        self.missing_bytes -= appended_bytes
        partition = self.handler.replicas.peek(wanted.key)
        shows = self.held_back and partition is not None and partition.readable_end(self.isolation) > wanted.offset
        if self.missing_bytes <= 0 or appended_bytes == 0 or shows:
            self.has_news |= appended_bytes == 0
            self._wake()
            return
        if partition is not None:
            if self.isolation == READ_COMMITTED:
                self._note_held_back(partition)
            wanted.watch(partition, self.isolation, self._patience())

    def _wake(self) -> None:
        """Read again in a turn, unless lanes are reading: thousands of fetches may wait for one partition."""
        if not self.scheduled:
            self.scheduled = True
            self.handler.turns.add(self._turn)

    def _turn(self) -> bool:
        self.scheduled = False
        if not self.done:
            if len(self.wanted) > ROWS:
                self.scheduled = True
                self.handler.go_on_in_turns(self)
            else:
                answer_with(self.ctx, NOTHING, self._read_again)
        return False

    def _read_again(self) -> Any:
        try:
            found = self.collect()
        except BaseException:
            self.abandon()
            raise
        if found.cold and not self.goes_without(found):
            self.warm(found)
            return None
        if self.is_late or self.is_enough(found):
            self.finish()
            return self.handler.answer(self, found)
        self._watch(found)
        return None

    def _expired(self) -> None:
        if not self.done:
            self.is_late = True
            self._end_patience()
            self._look_without()
            self._wake()

    def shorten_wait(self) -> None:
        """The follower is about to fetch more partitions."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.handler.scheduler.call_later(SHORT_WAIT_MS, self._expired)

    def superseded(self) -> None:
        """Another request of the same session arrived: end without records."""
        self.finish()
        self.ctx.respond(self.handler.superseded_response())

    def abandon(self) -> None:
        """No client still waits for the answer."""
        self.finish()
        if self.session.id == NO_SESSION:
            self.session.close(self.handler.turns)

    def finish(self) -> None:
        """Stop waiting."""
        self.done = True
        if self.timer is not None:
            self.timer.cancel()
        if self.clock is not None:
            self.clock.waiting.remove(self)
            self.clock = None
        self.session.arrived = None
        self._end_patience()
        self.handler.waiting.discard(self)


def make_room(waiting: set[WaitingFetch]) -> bool:
    """Drop fetches of clients that have disconnected. Returns whether another fetch may wait now."""
    for fetch in [fetch for fetch in waiting if fetch.ctx.abandoned]:
        fetch.abandon()
    return len(waiting) < WAITING_MAX


def waits(session: FetchSession) -> WaitingFetch | None:
    """The fetch that waits on a session already."""
    arrived: Any = session.arrived
    return None if arrived is None else arrived.__self__
