"""Parses types in Spark's DDL: `decimal(28,10)`, `array<long>`, `struct<a: int>`, `map<string, long>`."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

TYPES: Final = {
    "string": pa.string(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
    "decimal": pa.decimal128(10, 0),
}
NESTED: Final = "decimal(p,s), array<…>, struct<name: type, …>, map<string, …>"
DIGITS_MAX: Final = 38
_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|[<>(),:])")


def type_of(ddl: str) -> pa.DataType:
    """Convert a DDL type to an Arrow type. Raises ValueError with the text in its message."""
    found = _Reader(ddl)
    kind = found.type()
    found.end()
    return kind


class _Reader:
    """A recursive-descent parser of one type."""

    def __init__(self, ddl: str) -> None:
        self._ddl, self._at = ddl, 0

    def type(self) -> pa.DataType:
        name = self._next().lower()
        if name == "decimal" and self._peek() == "(":
            return self._decimal()
        if name == "array":
            self._expect("<")
            inner = self.type()
            self._expect(">")
            return pa.list_(inner)
        if name == "map":
            self._expect("<")
            if not pa.types.is_string(self.type()):
                raise ValueError(f"{self._ddl!r}: keys of a map must be string")
            self._expect(",")
            inner = self.type()
            self._expect(">")
            return pa.map_(pa.string(), inner)
        if name == "struct":
            return self._struct()
        if name not in TYPES:
            raise ValueError(f"{self._ddl!r} is not one of {', '.join(TYPES)}, {NESTED}")
        return TYPES[name]

    def _decimal(self) -> pa.DataType:
        self._expect("(")
        digits, scale = self._number(), 0
        if self._peek() == ",":
            self._expect(",")
            scale = self._number()
        self._expect(")")
        if not 1 <= digits <= DIGITS_MAX or scale > digits:
            raise ValueError(f"{self._ddl!r}: a decimal has 1 to {DIGITS_MAX} digits and a scale of at most these")
        return pa.decimal128(digits, scale)

    def _struct(self) -> pa.DataType:
        self._expect("<")
        fields: list[pa.Field] = []
        while not fields or self._peek() == ",":
            if fields:
                self._expect(",")
            name = self._next()
            if name.startswith("`"):
                name = name[1:-1].replace("``", "`")
            elif not name.isidentifier() and not name.isalnum():
                raise ValueError(f"{self._ddl!r}: expected the name of a field, not {name!r}")
            self._expect(":")
            fields.append(pa.field(name, self.type()))
        self._expect(">")
        return pa.struct(fields)

    def end(self) -> None:
        if self._ddl[self._at :].strip():
            raise ValueError(f"{self._ddl!r}: {self._ddl[self._at :].strip()!r} follows the type")

    def _peek(self) -> str:
        found = _TOKEN.match(self._ddl, self._at)
        return found[1] if found else ""

    def _next(self) -> str:
        found = _TOKEN.match(self._ddl, self._at)
        if found is None:
            raise ValueError(f"{self._ddl!r} ends before the type does; it is not one of {', '.join(TYPES)}, {NESTED}")
        self._at = found.end()
        return found[1]

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            raise ValueError(f"{self._ddl!r}: expected {token!r}, not {found!r}")

    def _number(self) -> int:
        found = self._next()
        if not found.isdecimal():
            raise ValueError(f"{self._ddl!r}: expected a number, not {found!r}")
        return int(found)
