"""Patterns of transactional ids (ListTransactions 2), in RE2's syntax, matched in time linear in the id.

Simple patterns may have any characters: a sequence of characters, `.`, and a backslash before a punctuation mark, each
perhaps followed by `*`, `+` or `?`. All other patterns go to the engine that consumer groups use for topics. It
distinguishes only the characters of ASCII, so such a pattern must consist of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from kraft_node.broker.coordinators.regex.program import Pattern
from kraft_node.broker.coordinators.regex.syntax import PatternError
from kraft_protocol.errors import ErrorCode, KafkaError

LENGTH_MAX: Final = 1_000
"""Characters in a pattern: the time for each character of an id grows with it."""
ANY: Final = None
SPECIAL: Final = frozenset("\\^$|()[]{}*+?")
COUNTS: Final = frozenset("*+?")
OPTIONAL: Final = frozenset("*?")
REPEATED: Final = frozenset("*+")


class _Item(NamedTuple):
    character: str | None
    optional: bool
    repeated: bool


def matcher(text: str | None) -> Callable[[str], bool] | None:
    """Whether a whole id matches the pattern; None without a pattern. Raises INVALID_REGULAR_EXPRESSION."""
    if not text:
        return None
    if len(text) > LENGTH_MAX:
        words = f"the pattern has {len(text)} characters, {LENGTH_MAX} are taken"
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, words)
    items = _items(text)
    if items is not None:
        return _Automaton(items).matches
    if not text.isascii():
        words = f"{text!r} has characters outside of ASCII, which only simple patterns may have"
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, words)
    try:
        return Pattern(text).matches
    except PatternError as error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{text!r}: {error}") from None


def _items(text: str) -> list[_Item] | None:
    """The items of a simple pattern; None for other patterns."""
    items: list[_Item] = []
    at = 0
    while at < len(text):
        character: str | None = text[at]
        if character == "\\" and at + 1 < len(text) and text[at + 1].isascii() and not text[at + 1].isalnum():
            at += 1
            character = text[at]
        elif character in SPECIAL:
            return None
        elif character == ".":
            character = ANY
        at += 1
        count = text[at] if at < len(text) and text[at] in COUNTS else ""
        at += len(count)
        items.append(_Item(character, count in OPTIONAL, count in REPEATED))
    return items


class _Automaton:
    """A bit for each item that may come next; the bit after the last item means a match."""

    def __init__(self, items: list[_Item]) -> None:
        self._end = 1 << len(items)
        self._any = sum(1 << i for i, item in enumerate(items) if item.character is ANY)
        self._repeated = sum(1 << i for i, item in enumerate(items) if item.repeated)
        self._optional = [i for i, item in enumerate(items) if item.optional]
        self._by_character: dict[str, int] = {}
        for i, item in enumerate(items):
            if item.character is not None:
                self._by_character[item.character] = self._by_character.get(item.character, 0) | 1 << i

    def _skipped(self, bits: int) -> int:
        for i in self._optional:
            if bits >> i & 1:
                bits |= 1 << (i + 1)
        return bits

    def matches(self, text: str) -> bool:
        bits = self._skipped(1)
        for character in text:
            dot = 0 if character == "\n" else self._any
            taken = bits & (self._by_character.get(character, 0) | dot)
            bits = self._skipped(taken << 1 | taken & self._repeated)
            if not bits:
                return False
        return bool(bits & self._end)
