"""Values of Kafka's configuration. A node tells one as it has understood it: `compact,delete` of `compact, delete`,
`true` of `True`, `100` of `0100`. Who takes these for different sets them again for ever.
"""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")


def same(told: str | None, wanted: str) -> bool:
    """Whether a node that tells `told` has what is wanted."""
    return told is not None and (told == wanted or _understood(told) == _understood(wanted))


def _understood(value: str) -> list[str | int | float]:
    return [_word(word.strip()) for word in value.split(",")]


def _word(word: str) -> str | int | float:
    number = _NUMBER.fullmatch(word)
    if number is not None:
        return float(word) if number[1] or number[2] else int(word)
    return word.lower() if word.lower() in {"true", "false"} else word
