"""Answers a whole request with one error, in the shape that its response has.

A response with an error code at its top carries it there. Where the version has none, the error stands in every item
that answers an item of the request: the response's lists are filled from the request's by the names below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_node.wire.api import API

if TYPE_CHECKING:
    from kraft_node.wire.classes import Message
    from kraft_node.wire.schema import Struct

LISTS: dict[str, tuple[str, ...]] = {
    "coordinators": ("coordinator_keys",),
    "entries": ("entries",),
    "filter_results": ("filters",),
    "groups": ("groups", "group_ids"),
    "markers": ("markers",),
    "partition_responses": ("partition_data",),
    "partitions": ("partitions", "partition_indexes"),
    "responses": ("topic_data", "topics", "topic_names", "resources"),
    "results": ("topics", "resources", "creations", "groups_names", "dirs"),
    "topics": ("topics",),
    "transaction_states": ("transactional_ids",),
}
"""A response's list -> the request's lists whose items it answers, the first that is there and filled."""

ITEM_NAMES: dict[str, tuple[str, ...]] = {
    "index": ("index", "partition_index", "partition"),
    "name": ("name", "topic"),
    "partition": ("partition", "partition_index"),
    "partition_index": ("partition_index", "partition", "index"),
    "topic": ("topic", "name"),
    "topic_name": ("topic_name", "name"),
}
"""A field of a response's item -> the fields of the request's item that it repeats; others repeat their own name."""

OUTCOMES = frozenset({"num_partitions", "replication_factor"})
"""Fields that the request has too, but which in a response tell what has become of it: with an error, nothing."""

SCALAR_NAMES = ("name", "group_id", "key", "transactional_id", "partition_index", "index", "partition")
"""Where an item of the request that is a bare name or number goes, the first that the response's item has."""


def error_response(request: Message, version: int, code: int, message: str | None = None) -> Message:
    """The response to `request` in `version` that says `code` (and `message` where the response has room for words)."""
    response = API[request.SCHEMA.api_key].response()
    _fill(response, response.SCHEMA.top, type(response), request, version, code, message)
    return response


def _fill(item: Any, struct: Struct, root: Any, source: Any, version: int, code: int, message: str | None) -> None:
    said = False
    for field in struct.fields:
        if version not in field.versions:
            continue
        if field.name == "error_code":
            item.error_code = int(code)
            said = True
        elif field.name in {"error_message", "error_string"} and not field.array:
            item.__setattr__(field.name, message)
    if said and item.__class__ is root:
        return
    for field in struct.fields:
        if field.array and field.struct is not None and version in field.versions and field.name in LISTS:
            made = [
                _answer(field.struct, root, part, version, code, message) for part in _source_list(source, field.name)
            ]
            setattr(item, field.name, made)


def _source_list(source: Any, name: str) -> list[Any]:
    for candidate in LISTS[name]:
        found = getattr(source, candidate, None)
        if isinstance(found, list) and found:
            return found
    return []


def _answer(struct: Struct, root: Any, part: Any, version: int, code: int, message: str | None) -> Any:
    item = getattr(root, struct.name)()
    if not hasattr(part, "unknown_tags"):
        for name in SCALAR_NAMES:
            if hasattr(item, name):
                setattr(item, name, part)
                break
    else:
        for field in struct.fields:
            if field.struct is None and not field.name.startswith("error_") and field.name not in OUTCOMES:
                _repeat(item, field.name, part)
    _fill(item, struct, root, part, version, code, message)
    return item


def _repeat(item: Any, name: str, part: Any) -> None:
    for candidate in ITEM_NAMES.get(name, (name,)):
        if hasattr(part, candidate):
            setattr(item, name, getattr(part, candidate))
            return
