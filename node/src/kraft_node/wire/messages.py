"""Requests and responses of all APIs, a class each, made on first use: `messages.ProduceRequest`, …

The types that mypy sees are in `messages.pyi`, written by `tools/import_schemas.py`.
"""

from __future__ import annotations

from typing import Any

from kraft_node.wire.classes import make_class


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        made = make_class("messages", name, __name__)
    except KeyError:
        raise AttributeError(f"no message {name!r}") from None
    globals()[name] = made
    return made
