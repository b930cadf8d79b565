"""The types of configuration values and their text forms, as in org.apache.kafka.common.config.ConfigDef.

A value is text in a file or a request. Its parsed form is bool, int, float, str, list[str], `Password` or None. Numbers
follow Java's parsers, not Python's `int` and `float`: no underscores, and the ranges of the Java types.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from kraft_node.base.config.errors import invalid


class Password:
    """A secret. It prints as `[hidden]`; `value` is the text."""

    __slots__ = ("value",)

    HIDDEN: Final = "[hidden]"

    def __init__(self, value: str) -> None:
        self.value = value

    def __repr__(self) -> str:
        return self.HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other.value == self.value

    def __hash__(self) -> int:
        return hash(self.value)


ConfigValue: TypeAlias = bool | int | float | str | list[str] | Password | None

_TRIM: Final = "".join(map(chr, range(0x21)))
"""The characters that Java's String.trim removes."""

_INTEGER: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_HEXADECIMAL: Final = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_COMMA: Final = re.compile(r"[ \t\n\v\f\r]*,[ \t\n\v\f\r]*")

_BITS: Final = {"int": 31, "short": 15, "long": 63}


def trim(text: str) -> str:
    """Remove blanks and control characters from both ends, like Java's String.trim."""
    return text.strip(_TRIM)


def java_split(text: str, separator: str) -> list[str]:
    """Split like Java's String.split: without the empty parts at the end. May return no part at all."""
    parts = text.split(separator)
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts if parts[0] or len(parts) > 1 or text == "" else []


def _boolean(name: str, text: str) -> bool:
    lower = trim(text).lower()
    if lower == "true":
        return True
    if lower == "false":
        return False
    raise invalid(name, text, "Expected value to be either true or false")


def java_int(text: str, kind: str = "int") -> int | None:
    """Parse like Java's Integer.parseInt (or Short, Long by `kind`). Returns None if `text` is not in the range."""
    if _INTEGER.fullmatch(text) and len(text) < 400:  # no range needs more digits; int() of millions of digits is slow
        number, limit = int(text), 1 << _BITS[kind]
        if -limit <= number < limit:
            return number
    return None


def _integer(kind: str) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        number = java_int(trim(text), kind)
        if number is None:
            raise invalid(name, text, f"Not a number of type {kind.upper()}")
        return number

    return parse


def _double(name: str, text: str) -> float:
    number = trim(text)
    if _DECIMAL.fullmatch(number):
        return float(number.rstrip("fFdD") if number[-1] in "fFdD" else number)
    if match := _HEXADECIMAL.fullmatch(number):
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return float("-inf" if match[1].startswith("-") else "inf")
    raise invalid(name, text, "Not a number of type DOUBLE")


def split_list(text: str) -> list[str]:
    """Split a comma-separated list. Returns an empty list for blank text."""
    trimmed = trim(text)
    return _COMMA.split(trimmed) if trimmed else []


_PARSERS: Final[dict[str, Callable[[str, str], ConfigValue]]] = {
    "boolean": _boolean,
    "int": _integer("int"),
    "short": _integer("short"),
    "long": _integer("long"),
    "double": _double,
    "string": lambda _, text: trim(text),
    "class": lambda _, text: trim(text),
    "list": lambda _, text: split_list(text),
    "password": lambda _, text: Password(trim(text)),
}


def parse_type(name: str, text: str, kind: str) -> ConfigValue:
    """Parse `text` as `kind` (the name of a type in lower case).

    Raises ConfigError, which names key and value, if the text does not fit the type. A class name is kept as text.
    """
    return _PARSERS[kind](name, text)


def value_text(value: ConfigValue) -> str | None:
    """Return the text that Kafka shows for a parsed value; None for null."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, list):
        return ",".join(value)
    return str(value)


def double_text(value: float) -> str:
    """Format a double like Java: `0.5`, `1.0E10`, `Infinity`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    size = abs(value)
    if size == 0 or 1e-3 <= size < 1e7:
        return repr(value)
    sign = "-" if value < 0 else ""
    text = repr(size)
    two_digits = f"{size:.1e}"  # Java prints at least two digits, and the closest of several possible texts
    digits, _, exponent = (two_digits if float(two_digits) == size else text).partition("e")
    whole, _, fraction = digits.partition(".")
    power = int(exponent or 0)
    if len(whole) > 1:  # 12345678.9 -> 1.23456789 * 10^7
        power += len(whole) - 1
        whole, fraction = whole[0], whole[1:] + fraction
    elif whole == "0":  # 0.000123 -> 1.23 * 10^-4
        kept = fraction.lstrip("0")
        power -= len(fraction) - len(kept) + 1
        whole, fraction = kept[0], kept[1:]
    return f"{sign}{whole}.{fraction.rstrip('0') or '0'}E{power}"
