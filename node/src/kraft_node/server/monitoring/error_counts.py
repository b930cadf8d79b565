"""The error codes in a response: Kafka's `ErrorsPerSec`, with NONE for successes.

The positions of codes are compiled from the response's schema when its API first answers. The result is a list
comprehension, which costs some tenths of a microsecond per request. `server.monitoring.metrics` uses it; the rules are
the same as in Kafka's response classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from kraft_protocol.wire.classes import Message
    from kraft_protocol.wire.schema import Struct

Codes: TypeAlias = Callable[[Any], list[int]]

FIELDS: Final = frozenset({"error_code", "partition_error_code"})
UNCOUNTED: Final = {
    "AssignReplicasToDirsResponse": ("directories",),
    "DeleteAclsResponse": ("matching_acls",),
    "DescribeUserScramCredentialsResponse": ("error_code",),
    "MetadataResponse": ("error_code",),
}
"""Top-level fields, or lists, with codes that Kafka does not count."""
ONLY_WITHOUT: Final = {
    "AddPartitionsToTxnResponse": "results_by_topic_v3_and_below",
    "FindCoordinatorResponse": "coordinators",
    "OffsetFetchResponse": "groups",
}
"""The top-level code counts unless this list has items."""
ONLY_FAILURES: Final = frozenset(
    {"AddRaftVoterResponse", "FetchSnapshotResponse", "RemoveRaftVoterResponse", "UpdateRaftVoterResponse"}
)
"""The top-level code counts unless it is NONE."""


def codes_of(response: type[Message]) -> Codes:
    """The function that lists the codes of responses of the class, 0 for each success."""
    found = _sources(response)
    text = found[0] if len(found) == 1 and found[0][0] == "[" else f"[{', '.join('*' + place for place in found)}]"
    made: Codes = eval(f"lambda m: {text}")  # noqa: S307  # our own text, from our own schemas
    return made


def iterate_codes_of(response: type[Message]) -> Callable[[Any], Iterator[int]]:
    """Like `codes_of`; the codes of large responses are found one by one."""
    found = [f"({text[1:-1]})" if text[0] == "[" and " for " in text else text for text in _sources(response)]
    text = f"lambda m: chain({', '.join(found)})"
    made: Callable[[Any], Iterator[int]] = eval(text, {"chain": chain})  # noqa: S307  # as above
    return made


def _sources(response: type[Message]) -> list[str]:
    """Expressions for the codes in the response `m`."""
    name = response.SCHEMA.name
    uncounted = UNCOUNTED.get(name, ())
    found = [text for path, text in _places(response.SCHEMA.top, "m", 0) if not set(path).intersection(uncounted)]
    if name in ONLY_WITHOUT:
        found[0] = f"(() if m.{ONLY_WITHOUT[name]} else {found[0]})"
    elif name in ONLY_FAILURES:
        found[0] = f"filter(None, {found[0]})"
    return found


def _places(struct: Struct, holder: str, depth: int) -> list[tuple[tuple[str, ...], str]]:
    """The codes in the struct that the variable `holder` has: the field at the top or the lists to it, expression."""
    own = [field.name for field in struct.fields if field.name in FIELDS]
    found: list[tuple[tuple[str, ...], str]] = [((name,) if not depth else (), f"[{holder}.{name}]") for name in own]
    for field in struct.fields:
        if field.struct is not None and field.array:
            loop = f" for i{depth} in {holder}.{field.name} or ()"
            for path, text in _places(field.struct, f"i{depth}", depth + 1):
                code, gap, inner = text[1:-1].partition(" for ")
                found.append(((field.name, *path), f"[{code}{loop}{gap}{inner}]"))
    return found
