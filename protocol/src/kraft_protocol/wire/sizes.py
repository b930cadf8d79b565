"""Decides whether a message has so many items that it must be encoded in steps.

The test is compiled from the schema of the message, as in `kraft_node.server.monitoring.error_counts`: one length, or a
sum of lengths, per level. A level is checked only if the levels above it are short, so the check is cheap for every
message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kraft_protocol.wire.classes import Message
    from kraft_protocol.wire.schema import Struct

LONG: Final = 4000
"""Items of one array, or of all arrays of one field, above which a message is long: some milliseconds."""


def is_long(cls: type[Message]) -> Callable[[Any], bool]:
    """Returns a function that decides whether a message of the class `cls` is long."""
    tests = [f"{text} > {LONG}" for _, text in sorted(_sums(cls.SCHEMA.top, "m", "", 0))]
    made: Callable[[Any], bool] = eval(f"lambda m: {' or '.join(tests) or 'False'}")  # noqa: S307  # our own text
    return made


def _sums(struct: Struct, holder: str, loops: str, depth: int) -> list[tuple[int, str]]:
    """Depth and length expression of each array of structs or strings below `holder`."""
    found = []
    for field in struct.fields:
        if not field.array or (field.struct is None and field.type not in {"string", "uuid", "bytes"}):
            continue
        items = f"{holder}.{field.name} or ()"
        found.append((depth, f"sum([len({items}){loops}])" if loops else f"len({items})"))
        if field.struct is not None:
            found += _sums(field.struct, f"i{depth}", f"{loops} for i{depth} in {items}", depth + 1)
    return found
