"""JSON of Kafka Connect's converter: with its schema beside the payload, or without; plain objects or change events.

The scanner of Python's json module finds where each member of a value begins and ends. The row keeps its bytes: without
a schema `jsonvalues` decodes it, with a schema `connecttypes`. A known schema is recognised by its text and not parsed
again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal, DecimalException
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kraft_pipeline.codec.varints import Ints
from kraft_pipeline.tables.errors import Bad, RecordError
from kraft_pipeline.tables.formats import connecttypes, debezium
from kraft_pipeline.tables.formats.byschema import BySchema, OneByOne, Way, joined
from kraft_pipeline.tables.formats.column import Column
from kraft_pipeline.tables.formats.connecttypes import NoConnectError
from kraft_pipeline.tables.formats.jsonvalues import JsonParser, Parsed
from kraft_pipeline.tables.formats.valuespec import ValueSpec

SCHEMAS_MAX: Final = 1000
"""Maximum schemas that a parser caches: each change of a table's columns creates another schema."""
NO_SCHEMA: Final = -1
_SCAN: Final = json.JSONDecoder(strict=False, parse_float=str, parse_int=str).raw_decode
_SPACE: Final = re.compile(r"[ \t\n\r]*")


class Member(NamedTuple):
    """A member of an object: begin and end of its text, and its value; numbers are texts."""

    begin: int
    end: int
    value: Any


Members = dict[str, Member]


class Event(NamedTuple):
    """The parts of a value."""

    schema: str | None
    row: str
    op: str = ""
    source: Any = None


class ConnectJson(BySchema):
    """Parses the values of a table, or their keys. Not thread-safe."""

    def __init__(self, spec: ValueSpec, settled: pa.Schema | None, *, promotes: bool, events: bool) -> None:
        """`settled`: the columns of the table; `events`: whether values are change events of Debezium."""
        super().__init__("connect.schema", promotes=promotes)
        self._plain, self._events = JsonParser(spec, settled), events
        self._schemas: dict[str, int] = {}
        self._texts: list[str] = []

    def __call__(
        self, values: pa.Array, fields: pa.Schema, *, additive: bool, reserved: frozenset[str] = frozenset()
    ) -> Parsed:
        """Parse the non-null values like `jsonvalues.parse`, with the marks of their envelopes."""
        additive = additive or not len(fields)
        rows: list[bytes | None] = [None] * len(values)
        ids: Ints = np.full(len(values), NO_SCHEMA, np.int64)
        events: dict[int, Event] = {}
        bad: dict[int, Bad] = {}
        for place, value in enumerate(values.to_pylist()):
            if value is not None:
                try:
                    event = events[place] = self._event(value)
                    rows[place], ids[place] = event.row.encode(), self._number(event.schema)
                except RecordError as e:
                    bad[place] = e.bad
        plain = [row if number == NO_SCHEMA else None for row, number in zip(rows, ids.tolist(), strict=True)]
        typed = [None if number == NO_SCHEMA else row for row, number in zip(rows, ids.tolist(), strict=True)]
        parts = []
        if any(row is not None for row in typed):
            array = pa.array(typed, pa.binary())
            parts.append(self.parsed(array, ids, 0, fields, additive=additive, reserved=reserved))
            fields = parts[-1].table.schema
        if any(row is not None for row in plain):
            array = pa.array(plain, pa.binary())
            parts.append(self._plain(array, fields, additive=additive, reserved=reserved))
            fields = parts[-1].table.schema
        for part in parts:
            bad |= part.bad
        filled = [part for part in parts if len(part.good)]
        found = joined(fields, [part.table for part in filled], [part.good for part in filled], bad, [])
        if not self._events:
            return found
        kept = [events[place] for place in found.good.tolist()]
        return found._replace(marks=debezium.marks([one.op for one in kept], [one.source for one in kept]))

    def found(self, number: int) -> Way | str:
        """How to read rows of a schema, or why that is impossible."""
        try:
            return ConnectWay(_row_of(json.loads(self._texts[number]), events=self._events))
        except (NoConnectError, ValueError, RecursionError) as e:
            return f"the schema in the value: {e}"

    def what(self, number: int) -> str:
        """Name of the schema in reasons."""
        del number
        return "the schema in the value"

    def _number(self, schema: str | None) -> int:
        if schema is None:
            return NO_SCHEMA
        number = self._schemas.get(schema)
        if number is None:
            if len(self._texts) >= SCHEMAS_MAX:
                raise RecordError("connect.schema", f"more than {SCHEMAS_MAX} schemas are in the values of one task")
            number = self._schemas[schema] = len(self._texts)
            self._texts.append(schema)
        return number

    def _event(self, value: bytes) -> Event:
        try:
            text = value.decode("utf-8-sig")
        except UnicodeDecodeError as e:
            raise RecordError("json.text", f"the value is not UTF-8: byte {e.start}") from None
        try:
            begin = _space(text, 0)
            found, end = _members(text, begin, self._texts)
            if _space(text, end) != len(text):
                raise RecordError("json.syntax", f"text follows the object at character {end}")
            return _change(text, found) if self._events else _object(text, found, begin, end)
        except RecordError:
            raise
        except (ValueError, RecursionError) as e:
            raise RecordError("json.syntax", f"JSON parse error: {e}") from None


class ConnectWay(OneByOne):
    """Reads rows of a schema."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        super().__init__(pa.schema([pa.field(name, one.kind) for name, one in columns.items()]), "connect.value")
        self._columns = columns

    def row(self, payload: bytes) -> dict[str, Any]:
        """Convert a row to a value that Arrow accepts. Raises ValueError."""
        return connecttypes.row(_loaded(payload), self._columns)


def _row_of(schema: Any, *, events: bool) -> dict[str, Column]:
    """The columns of a row: the columns of the struct, or of the envelope's `after`."""
    if not events:
        return connecttypes.fields(schema)
    parts = schema.get("fields") if isinstance(schema, Mapping) else None
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, Mapping) and part.get("field") == "after":
            return connecttypes.fields(part)
    raise NoConnectError("it has no field after, as Debezium's envelopes have")


def _loaded(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text, strict=False, parse_float=Decimal)
    except DecimalException:
        raise ValueError("a number is beyond every type") from None
    if not isinstance(found, dict):
        raise ValueError("the row is not an object")
    return found


def _change(text: str, found: Members) -> Event:
    """Parse a change event. Raises RecordError."""
    schema = None
    if "payload" in found and "op" not in found:
        schema = _schema(text, found)
        inner = found["payload"].value
        if not isinstance(inner, dict):
            raise RecordError(
                "debezium.envelope", "the value is not a Debezium change event: its payload is not an object"
            )
        found = inner
    op = debezium.operation(_value(found, "op"))
    row = found.get(debezium.OPERATIONS[op])
    if row is None or not isinstance(row.value, dict):
        raise debezium.without_row(op, None if row is None else row.value)
    return Event(schema, text[row.begin : row.end], op, _value(found, "source"))


def _object(text: str, found: Members, begin: int, end: int) -> Event:
    """Parse a key: the object itself, or the payload beside its schema."""
    if found.keys() != {"schema", "payload"} or not isinstance(found["payload"].value, dict):
        return Event(None, text[begin:end])
    payload = found["payload"]
    return Event(_schema(text, found), text[payload.begin : payload.end])


def _value(found: Members, name: str) -> Any:
    member = found.get(name)
    return None if member is None else member.value


def _schema(text: str, found: Members) -> str | None:
    member = found.get("schema")
    return None if member is None or member.value is None else text[member.begin : member.end]


def _members(text: str, at: int, schemas: list[str]) -> tuple[Members, int]:
    """The members of the object that begins there, and its end. Raises RecordError and ValueError.

    For `payload`, the value has the members of the object `payload`.
    """
    if text[at : at + 1] != "{":
        _SCAN(text, at)  # raises an error if it is not JSON
        raise RecordError("json.object", "the value is not an object")
    found: Members = {}
    at = _space(text, at + 1)
    if text[at : at + 1] == "}":
        return found, at + 1
    while True:
        _after(text, at, '"')
        name, at = _SCAN(text, at)
        at = _space(text, _after(text, _space(text, at), ":"))
        begin = at
        if name in found:
            raise RecordError("json.twin", f"the field {name[:60]!r} occurs twice")
        if name == "payload" and text[at : at + 1] == "{":
            value, at = _members(text, at, schemas)
        else:
            value, at = (_known(text, at, schemas) if name == "schema" else None) or _SCAN(text, at)
        found[name] = Member(begin, at, value)
        at = _space(text, at)
        if text[at : at + 1] != ",":
            return found, _after(text, at, "}")
        at = _space(text, at + 1)


def _known(text: str, at: int, schemas: list[str]) -> tuple[Any, int] | None:
    """The known schema with a text that begins there. Texts are whole objects, so no text is a prefix of another."""
    for known in reversed(schemas[-4:]):
        if text.startswith(known, at):
            return known, at + len(known)
    return None


def _after(text: str, at: int, sign: str) -> int:
    if text[at : at + 1] != sign:
        raise RecordError("json.syntax", f"JSON parse error: expected {sign} at character {at}")
    return at + 1


def _space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None, "it also matches nothing"
    return found.end()
