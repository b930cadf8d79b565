"""Fetches of very many partitions: session, reading and answer in steps of some hundred partitions.

A request is handled here if it names more than `ROWS` partitions, or if more than `ROWS` may have news. Its steps take
turns with the steps of other requests. Meanwhile appends count for it as for any waiting fetch: a partition is watched
from the moment when it was read. If its client disconnects, or sends a newer request of the same session, the request
and the session end. It is unknown which answers the client has received.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base import rare
from kraft_node.base.long_answers import answer_later
from kraft_node.broker.fetch import reader
from kraft_node.broker.fetch.session import ROWS, FetchSession
from kraft_node.broker.pieces import PARTITIONS, pieces
from kraft_protocol.client.fetch_session import INITIAL_EPOCH, NO_SESSION
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.messages import FetchResponse

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.fetch.session import Judge
    from kraft_node.broker.fetch.waiting import FetchOwner, WaitingFetch

STEP: Final = ROWS // 5
"""Partitions that one step reads: a millisecond or two."""


def is_large(request: Any, session: FetchSession, *, is_judged: bool) -> bool:
    """Whether so many partitions are named, or may have news, that the fetch must run in turns."""
    if rare.takes("request in pieces"):
        return True
    rows = len(session.ready)
    for topic in request.topics:
        rows += len(topic.partitions) + 1
    for topic in request.forgotten_topics_data or ():
        rows += len(topic.partitions) + 1
    return rows > ROWS or (is_judged and len(session.topics) > ROWS)


def slices(items: Iterable[Any], size: int = STEP) -> Iterator[list[Any]]:
    """The items in lists of this size."""
    left = iter(items)
    while part := list(islice(left, size)):
        yield part


class LargeFetch:
    """A request that runs in turns: `inner` answers it, or returns None once it waits."""

    __slots__ = ("_ctx", "_handler", "_inner", "_is_done", "_parts", "_session")

    def __init__(
        self, handler: FetchOwner, ctx: RequestContext, session: FetchSession, inner: Generator[None, None, Any]
    ) -> None:
        self._handler = handler
        self._ctx = ctx
        self._session = session
        self._inner = inner
        self._is_done = False
        self._parts = self._steps()

    def start(self, request: Any) -> None:
        """Start in the next turn; a failure is answered to `request`."""
        self._session.large = self
        answer_later(self._handler.turns, self._ctx, request, self._parts)

    def superseded(self) -> None:
        """Another request of the same session arrived: end without records."""
        if not self._ctx.answered:
            self._ctx.respond(self._handler.superseded_response())
        self._parts.close()
        self._ended()

    def _steps(self) -> Generator[None, None, Any]:
        try:
            response = yield from self._inner
            self._is_done = True
            return response
        finally:
            self._ended()

    def _ended(self) -> None:
        self._session.large = None
        if not self._is_done and self._session.id != NO_SESSION:
            self._handler.sessions.close(self._session.id)


class FirstRead:
    """Applies the request to the session, then reads its partitions for the first time."""

    __slots__ = ("_ctx", "_full", "_handler", "_judge", "_request", "_session")

    def __init__(
        self, handler: FetchOwner, ctx: RequestContext, request: Any, session: FetchSession, judge: Judge | None
    ) -> None:
        self._handler = handler
        self._ctx = ctx
        self._request = request
        self._session = session
        self._full = session.id == NO_SESSION
        self._judge = judge

    def steps(self) -> Generator[None, None, Any]:
        """The response; None if the fetch waits."""
        empty = yield from self._update()
        if empty is not None:
            return empty
        fetch = self._handler.fetch_of(self._ctx, self._request, self._session, all_rows=self._full)
        response = yield from self._read(fetch)
        return response

    def _update(self) -> Generator[None, None, Any]:
        """Apply the request to the session. Returns the response if no partition needs a read."""
        handler, request, session = self._handler, self._request, self._session
        yield from self._add_named()
        if request.forgotten_topics_data and not self._full:
            for piece in pieces(request, ("forgotten_topics_data", "partitions"), PARTITIONS):
                session.forget(piece.forgotten_topics_data)
                yield
        if not session.partitions:
            handler.sessions.close(session.id)
            session = self._session = FetchSession(by_topic_id=session.by_topic_id, replica_id=session.replica_id)
            self._full = True
            yield from self._add_named()
            if not session.partitions:
                return handler.answer_empty(request, session)
        handler.note_reader(self._ctx, request, session)
        if self._judge is not None:
            denied: set[Any] = set()
            for keys in slices(list(session.topics)):
                denied |= self._judge(session, keys)
                yield
            session.denied = frozenset(denied) or None
        if request.session_epoch == INITIAL_EPOCH:
            handler.sessions.keep(session, handler.clock.monotonic_ms())
        elif session.id != NO_SESSION and not handler.sessions.count(session):
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return None

    def _add_named(self) -> Generator[None, None, None]:
        """Add the partitions that the request names to the session, in steps."""
        for piece in pieces(self._request, ("topics", "partitions"), PARTITIONS):
            self._session.update(piece.topics)
            yield

    def _read(self, fetch: WaitingFetch) -> Generator[None, None, Any]:
        handler = self._handler
        if handler.refuses(fetch.session):
            found = reader.Collected()
            for part in slices(list(fetch.session.partitions.values())):
                reader.refuse(part, ErrorCode.NOT_LEADER_OR_FOLLOWER, found)
                yield
            response = yield from answer(fetch, found)
            return response
        max_wait_ms = self._request.max_wait_ms
        if max_wait_ms > 0 and handler.may_wait():
            fetch.begin(max_wait_ms)
        else:
            fetch.is_late = True
        fetch.scheduled = True
        response = yield from rounds(fetch)
        return response


def rounds(fetch: WaitingFetch) -> Generator[None, None, Any]:
    """Read until the answer has enough bytes or the fetch has timed out.

    Returns the response; None if it waits, with all watched.
    """
    try:
        while not fetch.done:
            found = yield from _round(fetch)
            if found is None:
                break
            if found.cold and not fetch.goes_without(found):
                fetch.warm(found)
                break
            if fetch.is_late or fetch.is_enough(found):
                fetch.finish()
                response = yield from answer(fetch, found)
                return response
            if fetch.missing_bytes > 0 and not fetch.has_news:
                fetch.scheduled = False
                break
    except BaseException:  # also if the client has disconnected
        if not fetch.done:
            fetch.abandon()
        raise
    return None


def _round(fetch: WaitingFetch) -> Generator[None, None, reader.Collected | None]:
    """Read all wanted partitions; None if the fetch has ended meanwhile."""
    found = reader.Collected()
    fetch.missing_bytes = fetch.min_bytes
    fetch.has_news = False
    for part in slices(list(fetch.wanted.values())):
        known = len(found.rows)
        fetch.read(part, found)
        if not fetch.is_late:
            reader.watch(fetch.session, found.rows[known:], fetch.handler.replicas, fetch.isolation)
        yield
        if fetch.done:
            return None
    fetch.missing_bytes -= found.size_bytes
    return found


def answer(fetch: WaitingFetch, found: reader.Collected) -> Generator[None, None, Any]:
    """The response with the rows found; the session notes the sent rows."""
    handler, session = fetch.handler, fetch.session
    throttled = handler.throttled(fetch, found)
    if throttled is not None:
        return throttled
    if session.id == NO_SESSION:
        session.close(handler.turns)
    made = reader.Answer(session.id, handler.disk)
    for rows in slices(found.rows):
        sent = rows
        if session.id != NO_SESSION:
            sent = reader.settle(session, rows, handler.replicas, fetch.isolation, all_rows=fetch.all_rows)
        made.add(sent)
        if found.wrong_leader:
            handler.hint(fetch, sent, made.response)
        yield
    return made.response
