"""Requests that name many partitions, groups, topics or resources: handled some hundred at a time, in turns.

A request of more than `ROWS` rows is cut into requests of that many, which the API's handler, guard included, answers
one after the other. Their answers are put together: whoever asked sees one. Handlers know nothing of it, and the
metadata may change between two pieces, as it may between two requests.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.base.request import RequestContext
from kraft_node.security.rewriting import changed
from kraft_node.wire.api import ApiKey
from kraft_node.wire.error_response import error_response

if TYPE_CHECKING:
    from kraft_node.base.request import Handler
    from kraft_node.base.turns import Turns

log = logging.getLogger("kraft_node.broker.pieces")

ROWS: Final = 500
"""Partitions or groups that are handled in one go: a millisecond or two."""

PARTITIONS_MAX: Final = 10_000
"""That one CreateTopics may make."""

IDENTITIES: Final = ("name", "topic", "topic_id", "group_id")
"""What tells items of an answer apart; those with the same identity at a cut are one."""


class Shape(NamedTuple):
    """Lists of the request, each in the items of the one before, and those of the answer."""

    asked: tuple[str, ...]
    told: tuple[str, ...]


_PARTITIONS: Final = Shape(("topics", "partitions"), ("topics", "partitions"))

SHAPES: Final[Mapping[ApiKey, Shape]] = {
    ApiKey.LIST_OFFSETS: _PARTITIONS,
    ApiKey.DELETE_RECORDS: _PARTITIONS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _PARTITIONS,
    ApiKey.DESCRIBE_PRODUCERS: Shape(("topics", "partition_indexes"), ("topics", "partitions")),
    ApiKey.OFFSET_COMMIT: _PARTITIONS,
    ApiKey.OFFSET_DELETE: _PARTITIONS,
    ApiKey.OFFSET_FETCH: Shape(("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions")),
    ApiKey.DESCRIBE_GROUPS: Shape(("groups",), ("groups",)),
    ApiKey.DELETE_GROUPS: Shape(("groups_names",), ("results",)),
    ApiKey.FIND_COORDINATOR: Shape(("coordinator_keys",), ("coordinators",)),
    # What the controller decides: a piece is a request to it.
    ApiKey.CREATE_TOPICS: Shape(("topics",), ("topics",)),
    ApiKey.DELETE_TOPICS: Shape(("topics",), ("responses",)),
    ApiKey.CREATE_PARTITIONS: Shape(("topics",), ("results",)),
    ApiKey.CREATE_ACLS: Shape(("creations",), ("results",)),
    ApiKey.DELETE_ACLS: Shape(("filters",), ("filter_results",)),
    ApiKey.ALTER_CONFIGS: Shape(("resources",), ("responses",)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Shape(("resources",), ("responses",)),
    ApiKey.ALTER_CLIENT_QUOTAS: Shape(("entries",), ("entries",)),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Shape(("topics", "partitions"), ("responses", "partitions")),
    ApiKey.ELECT_LEADERS: Shape(("topic_partitions", "partitions"), ("replica_election_results", "partition_result")),
}
OLDER: Final[Mapping[ApiKey, tuple[int, Shape]]] = {
    ApiKey.OFFSET_FETCH: (8, Shape(("topics", "partition_indexes"), ("topics", "partitions"))),
    ApiKey.DELETE_TOPICS: (6, Shape(("topic_names",), ("responses",))),
}
"""Of versions before that."""


def in_pieces(turns: Turns, table: Mapping[ApiKey, Handler]) -> dict[ApiKey, Handler]:
    """The handlers, those of `SHAPES` behind what cuts large requests."""
    return {key: _cutting(turns, key, handler) if key in SHAPES else handler for key, handler in table.items()}


def _cutting(turns: Turns, key: ApiKey, handler: Handler) -> Handler:
    shape = SHAPES[key]
    since, before = OLDER.get(key, (0, shape))

    def handle(ctx: RequestContext, request: Any) -> Any:
        cut = shape if ctx.api_version >= since else before
        if not _is_large(request, cut.asked):
            return handler(ctx, request)
        answering = _refuse if key == ApiKey.CREATE_TOPICS and _exceeds(request) else handler
        turns.add(_Pieces(turns, answering, ctx, request, cut).step)
        return None

    return handle


def _exceeds(request: Any) -> bool:
    """Whether all topics together have more partitions than one CreateTopics may make, as in Kafka."""
    return sum(len(topic.assignments) or max(1, topic.num_partitions) for topic in request.topics) > PARTITIONS_MAX


def _refuse(_ctx: RequestContext, _piece: Any) -> Any:
    raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def _is_large(request: Any, path: tuple[str, ...]) -> bool:
    items = getattr(request, path[0]) or ()
    for name in path[1:]:
        if len(items) > ROWS:
            return True
        items = [row for item in items for row in getattr(item, name) or ()]
    return len(items) > ROWS


def _rows(item: Any, path: tuple[str, ...]) -> int:
    """How many rows there are below `item`, and itself."""
    if not path:
        return 1
    items = getattr(item, path[0]) or ()
    return 1 + (len(items) if len(path) == 1 else sum(_rows(each, path[1:]) for each in items))


def pieces(holder: Any, path: tuple[str, ...]) -> Generator[Any, None, None]:
    """Copies of `holder` that have about `ROWS` rows each, which are together those of `holder`, in order."""
    name, deeper = path[0], path[1:]
    items = getattr(holder, name)
    if not deeper:
        for start in range(0, len(items), ROWS):
            yield changed(holder, **{name: items[start : start + ROWS]})
        return
    piece: list[Any] = []
    room = ROWS
    for item in items:
        rows = _rows(item, deeper)
        if rows > room and piece:
            yield changed(holder, **{name: piece})
            piece, room = [], ROWS
        if rows <= ROWS:
            piece.append(item)
            room -= rows
        else:
            for part in pieces(item, deeper):
                yield changed(holder, **{name: [part]})
    if piece:
        yield changed(holder, **{name: piece})


def merge(answer: Any, more: Any, path: tuple[str, ...]) -> None:
    """Put the rows of `more` behind those of `answer`."""
    name, deeper = path[0], path[1:]
    into, new = getattr(answer, name), getattr(more, name)
    if into and new and deeper and _identity(into[-1]) == _identity(new[0]):
        merge(into[-1], new[0], deeper)
        new = new[1:]
    into += new


def _identity(item: Any) -> list[Any]:
    return [getattr(item, name) for name in IDENTITIES if name in item._fields]


class _Pieces:
    """One request under way."""

    __slots__ = ("_ctx", "_handler", "_pieces", "_response", "_shape", "_turns")

    def __init__(self, turns: Turns, handler: Handler, ctx: RequestContext, request: Any, shape: Shape) -> None:
        self._turns = turns
        self._handler = handler
        self._ctx = ctx
        self._shape = shape
        self._pieces = pieces(request, shape.asked)
        self._response: Any = None

    def step(self) -> bool:
        """Have the next piece handled; its answer asks for another turn."""
        ctx = self._ctx
        if ctx.abandoned:
            return False
        piece = next(self._pieces, None)
        if piece is None:
            ctx.respond(self._response)
            return False
        inner = RequestContext(
            ctx.api_key, ctx.api_version, ctx.correlation_id, ctx.client_id, ctx.client_host, ctx.listener,
            ctx.principal, ctx.connection, ctx.received_ms, self._answered,
        )  # fmt: skip
        try:
            response = self._handler(inner, piece)
        except KafkaError as error:
            response = error_response(piece, ctx.api_version, error.code, error.message)
        except Exception:
            log.exception("request failed request=%r", ctx)
            response = error_response(piece, ctx.api_version, ErrorCode.UNKNOWN_SERVER_ERROR, None)
        if response is not None and not inner.answered:
            inner.finish()
            self._answered(inner, response)
        return False

    def _answered(self, _: RequestContext, response: Any) -> None:
        if getattr(response, "error_code", ErrorCode.NONE):
            self._ctx.respond(response)
            return
        if self._response is None:
            self._response = response
        else:
            merge(self._response, response, self._shape.told)
        self._turns.add(self.step)
