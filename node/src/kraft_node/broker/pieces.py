"""Limits the work of one request on any listener: large requests are split, or refused.

A request of more than `ROWS` rows is split into requests of `Shape.rows` rows. The API's handler, including its
authorization, answers them one after another in turns of the loop. The responses are merged, so the client receives
one. Handlers do not notice the split. The metadata may change between two pieces, as between two requests.

An API is split (`SHAPES`), or its handler works in steps itself (`IN_STEPS`). Requests of any other API are refused if
they have more items than `wire.sizes.LONG`: no honest client sends them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kraft_node.base import rare
from kraft_node.base.long_answers import refuse_later
from kraft_node.base.request import RequestContext
from kraft_node.security.rewriting import changed
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import ZERO_UUID
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.error_response import error_response
from kraft_protocol.wire.sizes import LONG, is_long

if TYPE_CHECKING:
    from kraft_node.base.request import Handler
    from kraft_node.base.turns import Turns

log = logging.getLogger("kraft_node.broker.pieces")

ROWS: Final = 500
"""A request with more rows is split. Up to here, items that are named twice are noticed as in Kafka."""

PARTITIONS: Final = 250
"""Partitions or groups in a piece of a split request: a millisecond of work."""

CHANGES: Final = 50
"""Resources or entries in a piece that the controller changes: each takes it 0.02 to 0.05 ms."""

PLACEMENTS: Final = 20
"""New topics, or partitions with new replicas, in a piece that the controller handles: each takes it 0.1 ms."""

USERS: Final = 25
"""SCRAM entries in a piece: each costs two HMACs, 0.04 ms."""

SETS: Final = 64
"""Parts of the keys of a large request."""

TOPICS: Final = 100
"""Topics or resources in a piece that describes them, with the client's allowed operations on each."""

RESOURCES_MAX: Final = 20_000
"""Resources that one DescribeConfigs may name: the response has about 3 KB for each."""

PARTITIONS_MAX: Final = 10_000
"""Partitions that one CreateTopics may create."""

IDENTITIES: Final = ("name", "topic", "topic_name", "topic_id", "group_id", "id", "producer_id")
"""Fields that identify an item of a response; two neighbours with the same identity at a split are merged."""


class Shape(NamedTuple):
    """Paths of nested lists: `request_path` in the request, `response_path` in the response; `rows` for one turn."""

    request_path: tuple[str, ...]
    response_path: tuple[str, ...]
    rows: int = PARTITIONS


_PARTITIONS: Final = Shape(("topics", "partitions"), ("topics", "partitions"))
_DIRECTORIES: Final = Shape(("directories", "topics", "partitions"), ("directories", "topics", "partitions"))

SHAPES: Final[Mapping[ApiKey, Shape]] = {
    ApiKey.LIST_OFFSETS: _PARTITIONS,
    ApiKey.DELETE_RECORDS: _PARTITIONS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _PARTITIONS,
    ApiKey.DESCRIBE_PRODUCERS: Shape(("topics", "partition_indexes"), ("topics", "partitions")),
    ApiKey.OFFSET_COMMIT: _PARTITIONS,
    ApiKey.OFFSET_DELETE: _PARTITIONS,
    ApiKey.TXN_OFFSET_COMMIT: _PARTITIONS,
    ApiKey.WRITE_TXN_MARKERS: Shape(("markers", "topics", "partition_indexes"), ("markers", "topics", "partitions")),
    ApiKey.OFFSET_FETCH: Shape(("groups", "topics", "partition_indexes"), ("groups", "topics", "partitions")),
    ApiKey.DESCRIBE_GROUPS: Shape(("groups",), ("groups",)),
    ApiKey.DELETE_GROUPS: Shape(("groups_names",), ("results",)),
    ApiKey.LEAVE_GROUP: Shape(("members",), ("members",)),
    ApiKey.FIND_COORDINATOR: Shape(("coordinator_keys",), ("coordinators",)),
    ApiKey.DESCRIBE_TRANSACTIONS: Shape(("transactional_ids",), ("transaction_states",)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Shape(("dirs", "topics", "partitions"), ("results", "partitions")),
    # Handled by the controller: each piece is a request to it.
    ApiKey.CREATE_TOPICS: Shape(("topics",), ("topics",), PLACEMENTS),
    ApiKey.DELETE_TOPICS: Shape(("topics",), ("responses",), CHANGES),
    ApiKey.CREATE_PARTITIONS: Shape(("topics",), ("results",), CHANGES),
    ApiKey.CREATE_ACLS: Shape(("creations",), ("results",), CHANGES),
    ApiKey.DELETE_ACLS: Shape(("filters",), ("filter_results",), CHANGES),
    ApiKey.ALTER_CONFIGS: Shape(("resources",), ("responses",), CHANGES),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Shape(("resources",), ("responses",), CHANGES),
    ApiKey.ALTER_CLIENT_QUOTAS: Shape(("entries",), ("entries",), CHANGES),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Shape(("topics", "partitions"), ("responses", "partitions"), PLACEMENTS),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Shape(("topics", "partition_indexes"), ("topics", "partitions"), CHANGES),
    ApiKey.ELECT_LEADERS: Shape(
        ("topic_partitions", "partitions"), ("replica_election_results", "partition_result"), CHANGES
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Shape(("deletions",), ("results",), CHANGES),
    ApiKey.METADATA: Shape(("topics",), ("topics",)),
    ApiKey.DESCRIBE_CONFIGS: Shape(("resources",), ("results",)),
    # Sent by brokers.
    ApiKey.ALTER_PARTITION: _PARTITIONS,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _DIRECTORIES,
}
OLDER: Final[Mapping[ApiKey, tuple[int, Shape]]] = {
    ApiKey.OFFSET_FETCH: (8, Shape(("topics", "partition_indexes"), ("topics", "partitions"))),
    ApiKey.DELETE_TOPICS: (6, Shape(("topic_names",), ("responses",), CHANGES)),
}
"""By API: the version that introduced the shape in `SHAPES`, and the shape of earlier versions."""


IN_STEPS: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.SYNC_GROUP,
        ApiKey.LIST_GROUPS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ENVELOPE,
    }
)
"""APIs that limit their own work. SyncGroup carries an assignment per member, which the handler only stores."""


def in_pieces(
    turns: Turns, table: Mapping[ApiKey, Handler], *, but: Collection[ApiKey] = frozenset()
) -> dict[ApiKey, Handler]:
    """The handlers, wrapped to split or refuse large requests. APIs in `but` are refused even if `IN_STEPS` has
    them."""
    bounded: dict[ApiKey, Handler] = {}
    for key, handler in table.items():
        if key in SHAPES:
            bounded[key] = _cutting(turns, key, handler)
        else:
            bounded[key] = handler if key in IN_STEPS and key not in but else _bounding(key, handler)
    return bounded


def _bounding(key: ApiKey, handler: Handler) -> Handler:
    too_long: Callable[[Any], bool] | None = None

    def handle(ctx: RequestContext, request: Any) -> Any:
        nonlocal too_long
        if too_long is None:  # compiled at the first request, like the message classes
            too_long = is_long(type(request))
        if too_long(request):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key.name} with more than {LONG} items is refused.")
        return handler(ctx, request)

    return handle


def _cutting(turns: Turns, key: ApiKey, handler: Handler) -> Handler:
    shape = SHAPES[key]
    since, before = OLDER.get(key, (0, shape))
    cut_otherwise = CUTTERS.get(key)

    def handle(ctx: RequestContext, request: Any) -> Any:
        lists = shape if ctx.api_version >= since else before
        if not _is_large(request, lists.request_path):
            return handler(ctx, request)
        parts = pieces(request, lists.request_path, lists.rows) if cut_otherwise is None else cut_otherwise(request)
        turns.add(_Pieces(turns, handler, ctx, request, parts, lists.response_path).step)
        return None

    return handle


def users(request: Any) -> Generator[Any, None, None]:
    """Split an AlterUserScramCredentials request into copies of about `USERS` entries, each user within one copy.

    A user that is named twice must be refused, so all entries of a user stay together.
    """
    requested: dict[str, tuple[list[Any], list[Any]]] = {}
    for at, entries in enumerate((request.deletions, request.upsertions)):
        for number, entry in enumerate(entries, 1):
            requested.setdefault(entry.name, ([], []))[at].append(entry)
            if number % ROWS == 0:
                yield None
    deletions: list[Any] = []
    upsertions: list[Any] = []
    for removed, put in requested.values():
        if len(deletions) + len(upsertions) >= USERS:
            yield changed(request, deletions=deletions, upsertions=upsertions)
            deletions, upsertions = [], []
        # A user that is named more than once is refused; three entries are enough to detect this.
        deletions += removed[:3]
        upsertions += put[:3]
    yield changed(request, deletions=deletions, upsertions=upsertions)


class _Distinct:
    """Items with different keys, in their order, in pieces of `TOPICS`.

    Their keys are in many sets: a set is copied when it grows, and one set of 100,000 keys would take milliseconds.
    """

    __slots__ = ("_seen", "count", "pieces")

    def __init__(self) -> None:
        self._seen: list[set[Any]] = [set() for _ in range(SETS)]
        self.count = 0
        self.pieces: deque[list[Any]] = deque()

    def add(self, key: Any, item: Any) -> None:
        """Keep `item` if it is the first with this key."""
        seen = self._seen[hash(key) % SETS]
        if key in seen:
            return
        seen.add(key)
        if self.count % TOPICS == 0:
            self.pieces.append([])
        self.pieces[-1].append(item)
        self.count += 1

    def take(self) -> Iterator[list[Any]]:
        """The pieces. What is no longer needed is freed after each of them."""
        while self.pieces:
            yield self.pieces.popleft()
            if self._seen:
                self._seen.pop()


def names(request: Any) -> Generator[Any, None, None]:
    """Split a Metadata request into copies of at most `TOPICS` topics; each topic is named once."""
    by_id, by_name = _Distinct(), _Distinct()
    for number, topic in enumerate(request.topics, 1):
        if topic.topic_id != ZERO_UUID:
            by_id.add(topic.topic_id, topic)
        else:
            by_name.add(topic.name, topic)
        if number % ROWS == 0:
            yield None
    for topics in (by_id if by_id.count else by_name).take():  # names are ignored beside ids
        yield changed(request, topics=topics)


def resources(request: Any) -> Generator[Any, None, None]:
    """Split a DescribeConfigs request into copies of at most `TOPICS` resources; each resource is named once.

    Raises KafkaError INVALID_REQUEST for more than `RESOURCES_MAX` resources.
    """
    distinct = _Distinct()
    for number, resource in enumerate(request.resources, 1):
        keys = resource.configuration_keys
        named = (resource.resource_type, resource.resource_name, None if keys is None else tuple(keys))
        distinct.add(named, resource)
        if distinct.count > RESOURCES_MAX:
            text = f"more than {RESOURCES_MAX} resources in one request"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if number % ROWS == 0:
            yield None
    for some in distinct.take():
        yield changed(request, resources=some)


def new_topics(request: Any) -> Generator[Any, None, None]:
    """Split a CreateTopics request into copies of `PLACEMENTS` topics.

    Raises KafkaError POLICY_VIOLATION if they have more than `PARTITIONS_MAX` partitions.
    """
    partitions = 0
    for number, topic in enumerate(request.topics, 1):
        partitions += len(topic.assignments) or max(1, topic.num_partitions)
        if number % ROWS == 0:
            yield None
    if partitions > PARTITIONS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    yield from pieces(request, ("topics",), PLACEMENTS)


CUTTERS: Final[Mapping[ApiKey, Callable[[Any], Iterator[Any]]]] = {
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: users,
    ApiKey.CREATE_TOPICS: new_topics,
    ApiKey.METADATA: names,
    ApiKey.DESCRIBE_CONFIGS: resources,
}
"""APIs whose requests are looked through as a whole first. The generators yield None while no piece is ready."""


def _is_large(request: Any, path: tuple[str, ...]) -> bool:
    limit = 1 if rare.takes("request in pieces") else ROWS
    if path[0] == "deletions":
        return len(request.deletions) + len(request.upsertions) > limit
    items = getattr(request, path[0]) or ()
    for name in path[1:]:
        if len(items) > limit:
            return True
        items = [row for item in items for row in getattr(item, name) or ()]
    return len(items) > limit


def _rows(item: Any, path: tuple[str, ...]) -> int:
    """The number of rows below `item`, plus one for itself."""
    if not path:
        return 1
    items = getattr(item, path[0]) or ()
    return 1 + (len(items) if len(path) == 1 else sum(_rows(each, path[1:]) for each in items))


def pieces(holder: Any, path: tuple[str, ...], most: int) -> Generator[Any, None, None]:
    """Split `holder` into copies of about `most` rows each, in order."""
    name, deeper = path[0], path[1:]
    items = getattr(holder, name)
    if not deeper:
        for start in range(0, len(items), most):
            yield changed(holder, **{name: items[start : start + most]})
        return
    piece: list[Any] = []
    room = most
    for item in items:
        rows = _rows(item, deeper)
        if rows > room and piece:
            yield changed(holder, **{name: piece})
            piece, room = [], most
        if rows <= most:
            piece.append(item)
            room -= rows
        else:
            for part in pieces(item, deeper, most):
                yield changed(holder, **{name: [part]})
    if piece:
        yield changed(holder, **{name: piece})


def merge(answer: Any, more: Any, path: tuple[str, ...]) -> None:
    """Append the rows of `more` to the rows of `answer`. The longer throttle time counts.

    An item that was split fails as a whole if a part of it fails: clients take a missing row for "nothing there".
    """
    if getattr(more, "throttle_time_ms", 0):
        answer.throttle_time_ms = max(answer.throttle_time_ms, more.throttle_time_ms)
    name, deeper = path[0], path[1:]
    into, new = getattr(answer, name), getattr(more, name)
    if into and new and deeper and _identity(into[-1]) == _identity(new[0]):
        if getattr(new[0], "error_code", ErrorCode.NONE):
            into[-1] = new[0]
        elif not getattr(into[-1], "error_code", ErrorCode.NONE):
            merge(into[-1], new[0], deeper)
        new = new[1:]
    into += new


def _identity(item: Any) -> list[Any]:
    return [getattr(item, name) for name in IDENTITIES if name in item._fields]


class _Pieces:
    """A split request that is being handled."""

    __slots__ = ("_ctx", "_handler", "_pieces", "_request", "_response", "_response_path", "_turns")

    def __init__(
        self,
        turns: Turns,
        handler: Handler,
        ctx: RequestContext,
        request: Any,
        parts: Iterator[Any],
        response_path: tuple[str, ...],
    ) -> None:
        self._turns = turns
        self._handler = handler
        self._ctx = ctx
        self._request = request
        self._pieces = parts
        self._response_path = response_path
        self._response: Any = None

    def step(self) -> bool:
        """Handle the next piece; its response schedules the next step."""
        ctx = self._ctx
        if ctx.abandoned:
            return False
        try:
            piece = next(self._pieces, self._request)
        except KafkaError as error:
            refuse_later(self._turns, ctx, self._request, error.code, error.message)
            return False
        if piece is None:
            return True
        if piece is self._request:
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
            merge(self._response, response, self._response_path)
        self._turns.add(self.step)
