"""Requests with very many items: decoded in turns of the loop, one per listener at a time.

Their objects need many times their size in bytes, so items are counted until the requests are answered.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.turns import OneByOne
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.codec import decode_in_steps
from kraft_protocol.wire.errors import TooManyItems
from kraft_protocol.wire.frames import decode_request_header
from kraft_protocol.wire.runtime import STEP_ITEMS

if TYPE_CHECKING:
    from kraft_node.base.turns import Turns
    from kraft_protocol.wire.classes import Message

ITEMS_MAX: Final = 1 << 20
"""Maximum of items of one request: the maximum number of partitions of a cluster. They use about 250 MB."""

PRODUCE_ITEMS_MAX: Final = 20_000
"""Maximum of items of one Produce, which is handled at once: batches for more partitions exceed the `max.request.size`
of clients."""

HELD_MAX: Final = 4 * ITEMS_MAX
"""Maximum of items of all unanswered large requests of a listener. Above it, a request with more than `FEW_ITEMS` is
refused.
"""

FEW_ITEMS: Final = 64 * STEP_ITEMS

FREED_A_STEP: Final = 500
"""Items that are freed in one step: a tenth of a millisecond."""

COPIES_A_STEP: Final = 20
"""Parts of arrays that are copied in one step."""

FEW_IN_ITEM: Final = 16
"""Items of an array within an item that are freed with it."""


class LargeRequests:
    """The large requests of one listener."""

    __slots__ = ("_freeing", "_line", "held")

    def __init__(self, turns: Turns) -> None:
        self._line = OneByOne(turns)
        # Apart from the line: a request that is answered must not stay in memory until others are decoded.
        self._freeing = OneByOne(turns)
        self.held = 0
        """Items of unanswered large requests; the connection that got them subtracts them."""

    def decode(
        self,
        request: type[Message],
        frame: memoryview,
        version: int,
        is_wanted: Callable[[], bool],
        done: Callable[[Any], None],
    ) -> None:
        """Decode `frame`, then call `done` with (request, items held), or with the exception.

        `frame` must not change until then, or until `is_wanted` returns False.
        """
        self._line.add(self._steps(request, frame, version, is_wanted), done)

    def release(self, message: Message) -> None:
        """Free a large message in steps, after all others have dropped it: at once, its objects take 50 ms."""
        self._freeing.add(_free([message]), _nothing)

    def _steps(
        self, request: type[Message], frame: memoryview, version: int, is_wanted: Callable[[], bool]
    ) -> Generator[None, None, tuple[Message, int] | None]:
        items = 0
        if not is_wanted():
            return None
        header = decode_request_header(frame)
        items_max = ITEMS_MAX if header.api_key != ApiKey.PRODUCE else PRODUCE_ITEMS_MAX
        steps = decode_in_steps(request, frame, header.body_offset, version, items_max)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                self.held += items
                return end.value[0], items
            items += STEP_ITEMS
            if items > FEW_ITEMS and self.held + items > HELD_MAX:
                raise TooManyItems(f"unanswered requests hold {self.held} items, and this request {items} or more")
            yield
            if not is_wanted():
                return None


def _free(held: list[Any]) -> Generator[None, None, None]:
    """Drop the only message in `held`, then its items, some in each step.

    Others may still use the message, so it stays as it is: copies of its arrays keep the items.
    """
    yield
    kept: list[list[Any]] = []
    yield from _copy(held[0], 0, kept)
    held.clear()
    while kept:
        left = FREED_A_STEP
        while kept and left > 0:
            some = kept.pop()
            left -= len(some)
            for item in some:
                if hasattr(item, "_fields"):
                    yield from _copy(item, FEW_IN_ITEM, kept)
            item = None
            some.clear()
        yield


def _copy(holder: Message, few: int, into: list[list[Any]]) -> Generator[None, None, None]:
    """Copy the arrays in a message or item that have more than `few` items, in parts."""
    for name in holder._fields:
        array = getattr(holder, name)
        if isinstance(array, list) and len(array) > few:
            for start in range(0, len(array), FREED_A_STEP):
                into.append(array[start : start + FREED_A_STEP])
                if len(into) % COPIES_A_STEP == 0:
                    yield


def _nothing(_outcome: object) -> None:
    """A message was freed."""
