"""The requests and responses of all APIs, one class each, made on first use: `messages.ProduceRequest`, …

The types for mypy are in `messages.pyi`, which `tools/import_schemas.py` writes.
"""

from __future__ import annotations

from typing import Any

from kraft_protocol.wire.classes import make_class


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        made = make_class("messages", name, __name__)
    except KeyError:
        raise AttributeError(f"no message {name!r}") from None
    globals()[name] = made
    return made
