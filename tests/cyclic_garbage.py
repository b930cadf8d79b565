"""Finds objects of the product that only the garbage collector can free.

Such objects stay, with all that they refer to, until the collector runs. A collection stops the node for milliseconds.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, FunctionType, MethodType

PRODUCT = "kraft_"


@contextmanager
def found_garbage() -> Iterator[list[str]]:
    """Yields a list that gets, at the end of the block, a line for each object of the product in a cycle."""
    found: list[str] = []
    enabled, flags = gc.isenabled(), gc.get_debug()
    gc.collect()
    gc.disable()
    before = len(gc.garbage)
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += sorted({name for one in gc.garbage[before:] if PRODUCT in (name := _name(one))})
    finally:
        gc.set_debug(flags)
        del gc.garbage[before:]
        if enabled:
            gc.enable()


def _name(one: object) -> str:
    if isinstance(one, FrameType):
        return f"frame of {one.f_globals.get('__name__')}.{one.f_code.co_name}"
    if isinstance(one, FunctionType | MethodType):
        return f"{one.__module__}.{one.__qualname__}"
    return f"{type(one).__module__}.{type(one).__qualname__}"
