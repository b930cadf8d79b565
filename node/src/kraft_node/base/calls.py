"""Makes all calls of a list, even if some of them raise: a waiter that is never called would wait forever."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def call_each(waiting: Iterable[Callable[..., Any]], *args: Any) -> None:
    """Call each of `waiting` with `args`; then raise the first exception that a call raised."""
    first: Exception | None = None
    for function in waiting:
        try:
            function(*args)
        except Exception as error:  # raised below, once all have been called
            first = first or error
    if first is not None:
        raise first
