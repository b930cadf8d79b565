"""The printable characters of ASCII as bits, and sets of characters as numbers.

Names of topics have 65 of these characters. Transactional ids may have any: characters that are not in the alphabet
share the bit `OTHER`, which `.` and negated classes contain, and no other class.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Final

CHARACTERS: Final = "".join(map(chr, range(0x20, 0x7F)))
BITS: Final = {character: 1 << i for i, character in enumerate(CHARACTERS)}
OTHER: Final = 1 << len(CHARACTERS)
ASCII: Final = OTHER - 1
ALL: Final = ASCII | OTHER
NOTHING: Final = 0

_FOLDED_ELSEWHERE: Final = {0x17F: "sS", 0x212A: "kK"}
"""Characters outside whose case-folded form is a letter of the alphabet: the long s and the sign of Kelvin."""


def where(holds: Callable[[str], bool]) -> int:
    """The set of the characters for which `holds`."""
    return sum(bit for character, bit in BITS.items() if holds(character))


DIGITS: Final = where(str.isdigit)
WORD: Final = where(lambda c: c.isalnum() or c == "_")
LETTERS: Final = where(str.isalpha)
SPACE: Final = where(str.isspace)

_POSIX: Final[dict[str, int]] = {
    "alnum": where(str.isalnum),
    "alpha": LETTERS,
    "ascii": ASCII,
    "blank": SPACE,
    "cntrl": NOTHING,
    "digit": DIGITS,
    "graph": ASCII & ~SPACE,
    "lower": where(str.islower),
    "print": ASCII,
    "punct": where(lambda c: not c.isalnum() and not c.isspace()),
    "space": SPACE,
    "upper": where(str.isupper),
    "word": WORD,
    "xdigit": where(lambda c: c in "0123456789abcdefABCDEF"),
}
_KINDS: Final = {"C": "cfos", "L": "lmotu", "M": "cen", "N": "dlo", "P": "cdefios", "S": "ckmo", "Z": "lps"}
"""The general categories: the first letter, and the second letters."""
_CATEGORIES: Final = frozenset(first + second for first, seconds in _KINDS.items() for second in ("", *seconds))
_OTHER_SCRIPTS: Final = frozenset((
    "Arabic", "Armenian", "Bengali", "Cherokee", "Cyrillic", "Devanagari", "Ethiopic", "Georgian", "Greek", "Gujarati",
    "Han", "Hangul", "Hebrew", "Hiragana", "Inherited", "Kannada", "Katakana", "Khmer", "Lao", "Malayalam", "Mongolian",
    "Myanmar", "Tamil", "Telugu", "Thai", "Tibetan",
))  # fmt: skip


def posix(name: str) -> int | None:
    """The set of `[:name:]`; None for an unknown name."""
    return _POSIX.get(name)


def unicode_class(name: str) -> int | None:
    """The set of a general category or a script; None for an unknown name."""
    if name == "Any":
        return ALL
    if name in _CATEGORIES:
        return where(lambda c: unicodedata.category(c).startswith(name))
    if name == "Latin":
        return LETTERS
    if name == "Common":
        return ALL & ~LETTERS
    return NOTHING if name in _OTHER_SCRIPTS else None


def between(low: int, high: int, *, fold: bool) -> int:
    """The characters from one code point to another; `fold`: in either case."""
    found = where(lambda c: low <= ord(c) <= high)
    if fold:
        for code, letters in _FOLDED_ELSEWHERE.items():
            if low <= code <= high:
                found |= BITS[letters[0]] | BITS[letters[1]]
        found = folded(found)
    return found


def folded(characters: int) -> int:
    """The set with both cases of each letter."""
    return where(lambda c: bool(characters & (BITS[c] | BITS[c.swapcase()])))
