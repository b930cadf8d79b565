"""Comparison of Kafka's configuration values.

A node returns a value in its normal form: `compact,delete` for `compact, delete`, `true` for `True`, `100` for `0100`.
If these counted as different, the operator would set them again in every pass.
"""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?")


def same(reported: str | None, wanted: str) -> bool:
    """Whether the value `reported`, as a node returns it, means `wanted`. False if the node has no value."""
    return reported is not None and (reported == wanted or _understood(reported) == _understood(wanted))


def _understood(value: str) -> list[str | int | float]:
    return [_word(word.strip()) for word in value.split(",")]


def _word(word: str) -> str | int | float:
    number = _NUMBER.fullmatch(word)
    if number is not None:
        return float(word) if number[1] or number[2] else int(word)
    return word.lower() if word.lower() in {"true", "false"} else word
