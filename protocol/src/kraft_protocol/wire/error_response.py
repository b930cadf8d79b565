"""Builds an error response to a whole request, in the structure of its response.

If the response has a top-level error code, the error goes there. Otherwise the error goes into every item of the
response that answers an item of the request. The tables below map the request's lists to the response's lists. All
other fields get the values that Kafka sets (getErrorResponse of its requests; tests compare with it).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kraft_protocol.wire.api import API

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kraft_protocol.wire.classes import Message
    from kraft_protocol.wire.schema import Struct

LISTS: dict[str, tuple[str, ...]] = {
    "coordinators": ("coordinator_keys",),
    "entity": ("entity",),
    "entries": ("entries",),
    "filter_results": ("filters",),
    "groups": ("groups", "group_ids"),
    "markers": ("markers",),
    "partition_responses": ("partition_data",),
    "partition_result": ("partitions",),
    "partitions": ("partitions", "partition_indexes"),
    "replica_election_results": ("topic_partitions",),
    "responses": ("topic_data", "topics", "topic_names", "resources"),
    "results": ("topics", "resources", "creations", "groups_names", "users"),
    "results_by_partition": ("partitions",),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "topics": ("topics",),
    "transaction_states": ("transactional_ids",),
}
"""A response's list -> the request's lists with the items that it answers; the first existing and filled list
counts."""

ITEM_NAMES: dict[str, tuple[str, ...]] = {
    "index": ("index", "partition_index", "partition"),
    "name": ("name", "topic"),
    "partition": ("partition", "partition_index"),
    "partition_index": ("partition_index", "partition", "index"),
    "topic": ("topic", "name"),
    "topic_name": ("topic_name", "name"),
    "user": ("user", "name"),
}
"""A field of a response's item -> the fields of the request's item that it repeats. Other fields repeat the same
name."""

SCALAR_NAMES = ("name", "group_id", "key", "transactional_id", "partition_index", "partition_id", "index", "partition")
"""Fields for an item of the request that is a plain name or number; the first that the response's item has is used."""

IDENTITIES = frozenset({"entity"})
"""Lists that identify an item, and are therefore filled in error responses, too."""

UNTOUCHED: dict[str, dict[str, Any]] = {
    "CreateDelegationToken": {
        **dict.fromkeys(("principal_type", "token_requester_principal_type"), "User"),
        **dict.fromkeys(("principal_name", "token_requester_principal_name"), "ANONYMOUS"),
        **dict.fromkeys(("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"), -1),
    },
    "CreateTopics": {"num_partitions": -1, "replication_factor": -1},
    "DeleteRecords": {"low_watermark": -1},
    "DescribeClientQuotas": {"entries": None},
    "Fetch": {"high_watermark": -1, "log_start_offset": -1, "records": b""},
    "FindCoordinator": {"node_id": -1, "port": -1},
    "InitProducerId": {"producer_epoch": -1},
    "ListOffsets": {"timestamp": -1},
    "OffsetFetch": {"committed_offset": -1},
    "OffsetForLeaderEpoch": {"leader_epoch": -1},
    "Produce": {"base_offset": -1},
    "ReadShareGroupStateSummary": {"leader_epoch": 0},
}
"""API -> values of fields that report an outcome, for a request without an outcome. The request's fields of these
names are ignored."""

ITEMS_TOO: dict[str, range] = {
    "AlterPartitionReassignments": range(100),
    "DescribeUserScramCredentials": range(100),
    "ElectLeaders": range(100),
    "Fetch": range(13),
    "ListPartitionReassignments": range(100),
    "Metadata": range(100),
}
"""API -> versions with the error at top level and in the items of the response."""


def _all_topics(request: Any) -> list[Any]:
    return [topic for folder in request.dirs for topic in folder.topics]


def _all_users(request: Any) -> list[Any]:
    by_name = {item.name: item for item in [*request.deletions, *request.upsertions]}
    return list(by_name.values())


def _none(request: Any) -> list[Any]:  # noqa: ARG001  # one of the functions of a table
    return []


GATHERED: dict[str, Callable[[Any], list[Any]]] = {
    "AlterReplicaLogDirs": _all_topics,
    "AlterUserScramCredentials": _all_users,
    "DescribeLogDirs": _none,
}
"""API -> items that the response's list answers, if they are not one list of the request."""


ITEMS_A_STEP = 200
"""Items of a response that one step makes: half a millisecond."""


def error_response(request: Message, version: int, code: int, message: str | None = None) -> Message:
    """The response to `request` in `version` with error `code` (and `message`, if the response has a field for it)."""
    steps = error_response_in_steps(request, version, code, message)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def error_response_in_steps(
    request: Message, version: int, code: int, message: str | None = None
) -> Generator[None, None, Message]:
    """Like `error_response`, in steps of at most a millisecond. `request` must not change until the end."""
    api = API[request.SCHEMA.api_key]
    response: Any = api.response()
    answer = _Answer(int(code), message, GATHERED.get(api.name))
    yield from answer.fill(response, _plan_of(request.SCHEMA.api_key, version), request)
    if api.name == "Fetch":
        response.session_id = request.session_id  # type: ignore[attr-defined]
    elif api.name == "Metadata":
        for topic in response.topics:
            topic.name = topic.name or ""
    elif api.name == "JoinGroup" and version >= 7:
        response.protocol_name = None
    return response  # type: ignore[no-any-return]


class _List(NamedTuple):
    """A list of the response whose items answer items of the request."""

    name: str
    make: type
    plan: _Plan


@dataclass
class _Plan:
    """How to fill the response, or one of its items, in one version."""

    codes: list[str]
    messages: list[str]
    values: list[tuple[str, Any]]
    lists: list[_List]
    repeated: list[str]
    """Fields that repeat a field of the request's item."""
    scalar: str | None
    """The field for an item of the request that is a plain name or number."""
    pairs: dict[type, list[tuple[str, str]]]
    """By class of the request's item: a field, and the field that it repeats."""

    def repeat(self, item: Any, part: Any) -> None:
        """Name in `item` what `part` of the request names."""
        if not hasattr(part, "unknown_tags"):
            if self.scalar is not None:
                setattr(item, self.scalar, part)
            return
        pairs = self.pairs.get(type(part))
        if pairs is None:
            found = [
                (name, [one for one in ITEM_NAMES.get(name, (name,)) if hasattr(part, one)]) for name in self.repeated
            ]
            pairs = self.pairs[type(part)] = [(name, sources[0]) for name, sources in found if sources]
        for name, source in pairs:
            setattr(item, name, getattr(part, source))


@cache
def _plan_of(api_key: int, version: int) -> _Plan:
    api = API[api_key]
    return _plan(api.name, version, api.response, None)


def _plan(api: str, version: int, root: type[Message], struct: Struct | None) -> _Plan:
    """The plan for the response class `root` (without `struct`), or for the items of one of its structs."""
    fields = (root.SCHEMA.top if struct is None else struct).fields
    untouched = UNTOUCHED.get(api, {})
    plan = _Plan([], [], [], [], [], None, {})
    present = [field for field in fields if version in field.versions]
    for field in present:
        if field.name in {"error_code", "partition_error_code"}:
            plan.codes.append(field.name)
        elif field.name in {"error_message", "error_string"} and not field.array:
            plan.messages.append(field.name)
        elif field.name in untouched:
            plan.values.append((field.name, untouched[field.name]))
    silent = bool(plan.codes) and not (struct is None and version in ITEMS_TOO.get(api, ()))
    for field in present:
        inner = field.struct
        if field.array and inner is not None and field.name in LISTS and (not silent or field.name in IDENTITIES):
            plan.lists.append(_List(field.name, getattr(root, inner.name), _plan(api, version, root, inner)))
    if struct is not None:
        names = [field.name for field in fields]
        plan.repeated += [
            field.name for field in fields if field.struct is None and not field.name.startswith("error_")
        ]
        plan.scalar = next((name for name in SCALAR_NAMES if name in names), None)
    return plan


class _Answer:
    """The common values of all parts of one response."""

    __slots__ = ("code", "gather", "made", "message")

    def __init__(self, code: int, message: str | None, gather: Callable[[Any], list[Any]] | None) -> None:
        self.code = code
        self.message = message
        self.gather = gather
        self.made = 0

    def fill(self, item: Any, plan: _Plan, source: Any) -> Generator[None, None, None]:
        """Set the error in `item`, or in the items of its lists, which answer the items of `source`."""
        for name in plan.codes:
            setattr(item, name, self.code)
        for name in plan.messages:
            setattr(item, name, self.message)
        for name, value in plan.values:
            setattr(item, name, value)
        for name, make, inner in plan.lists:
            items: list[Any] = []
            setattr(item, name, items)
            for part in self._answered(source, name):
                answer = make()
                inner.repeat(answer, part)
                yield from self.fill(answer, inner, part)
                items.append(answer)
                self.made += 1
                if self.made % ITEMS_A_STEP == 0:
                    yield

    def _answered(self, source: Any, name: str) -> list[Any]:
        """The items of the request that the list `name` answers."""
        gather, self.gather = self.gather, None  # only the top level's list
        if gather is not None:
            return gather(source)
        for candidate in LISTS[name]:
            found = getattr(source, candidate, None)
            if isinstance(found, list) and found:
                return found
        return []
