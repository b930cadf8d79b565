"""Builds an error response to a whole request, in the structure of its response.

If the response has a top-level error code, the error goes there. Otherwise the error goes into every item of the
response that answers an item of the request. The tables below map the request's lists to the response's lists. All
other fields get the values that Kafka sets (getErrorResponse of its requests; tests compare with it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_protocol.wire.api import API

if TYPE_CHECKING:
    from collections.abc import Callable

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


def error_response(request: Message, version: int, code: int, message: str | None = None) -> Message:
    """The response to `request` in `version` with error `code` (and `message`, if the response has a field for it)."""
    api = API[request.SCHEMA.api_key]
    response: Any = api.response()
    _Answer(api.name, version, int(code), message, response).fill(response, response.SCHEMA.top, request)
    if api.name == "Fetch":
        response.session_id = request.session_id  # type: ignore[attr-defined]
    elif api.name == "Metadata":
        for topic in response.topics:
            topic.name = topic.name or ""
    elif api.name == "JoinGroup" and version >= 7:
        response.protocol_name = None
    return response  # type: ignore[no-any-return]


class _Answer:
    """The common values of all parts of one response."""

    __slots__ = ("api", "code", "message", "root", "version")

    def __init__(self, api: str, version: int, code: int, message: str | None, root: Any) -> None:
        self.api = api
        self.version = version
        self.code = code
        self.message = message
        self.root = root

    def fill(self, item: Any, struct: Struct, source: Any) -> None:
        """Set the error in `item`, or in the items of its lists, which answer the items of `source`."""
        untouched = UNTOUCHED.get(self.api, {})
        fields = [f for f in struct.fields if self.version in f.versions]
        said = False
        for field in fields:
            if field.name in {"error_code", "partition_error_code"}:
                setattr(item, field.name, self.code)
                said = True
            elif field.name in {"error_message", "error_string"} and not field.array:
                setattr(item, field.name, self.message)
            elif field.name in untouched:
                setattr(item, field.name, untouched[field.name])
        silent = said and not (item is self.root and self.version in ITEMS_TOO.get(self.api, ()))
        for field in fields:
            if silent and field.name not in IDENTITIES:
                continue
            if field.array and field.struct is not None and field.name in LISTS:
                parts = self.answered(item, source, field.name)
                setattr(item, field.name, [self.item(field.struct, part) for part in parts])

    def answered(self, item: Any, source: Any, name: str) -> list[Any]:
        """The items of the request that the list `name` answers."""
        gather = GATHERED.get(self.api)
        if gather is not None and item is self.root:
            return gather(source)
        for candidate in LISTS[name]:
            found = getattr(source, candidate, None)
            if isinstance(found, list) and found:
                return found
        return []

    def item(self, struct: Struct, part: Any) -> Any:
        """The answer to one item of the request, a struct or a plain name or number."""
        made = getattr(self.root, struct.name)()
        if not hasattr(part, "unknown_tags"):
            for name in SCALAR_NAMES:
                if hasattr(made, name):
                    setattr(made, name, part)
                    break
        else:
            for field in struct.fields:
                if field.struct is None and not field.name.startswith("error_"):
                    _repeat(made, field.name, part)
        self.fill(made, struct, part)
        return made


def _repeat(item: Any, name: str, part: Any) -> None:
    for candidate in ITEM_NAMES.get(name, (name,)):
        if hasattr(part, candidate):
            setattr(item, name, getattr(part, candidate))
            return
