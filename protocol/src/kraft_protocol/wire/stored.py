"""Messages that are stored, not sent: metadata records, coordinators' keys and values, control records, quorum state.

A class each, made on first use: `stored.TopicRecord`, … The types that mypy sees are in `stored.pyi`, written by
`tools/import_schemas.py`.
"""

from __future__ import annotations

from typing import Any

from kraft_protocol.wire.classes import make_class


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        made = make_class("stored", name, __name__)
    except KeyError:
        raise AttributeError(f"no stored message {name!r}") from None
    globals()[name] = made
    return made
