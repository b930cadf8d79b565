"""Keys that are a single value, such as a text or a number, as records with one field.

Avro writes a record as its fields one after another, so the bytes of a value equal the bytes of the record. In JSON,
braces and the name of the field surround the value.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

FIELD: Final = "key"
"""Name of the only field."""
_HEAD: Final = b'{"%s":' % FIELD.encode()
_TAIL: Final = b"}"


def is_record(avro: str) -> bool:
    """Whether an Avro schema in JSON is a record."""
    found = json.loads(avro)
    return isinstance(found, dict) and found.get("type") == "record"


def as_record(avro: str) -> str:
    """An Avro schema in JSON, as a record with one field unless it is a record itself."""
    if is_record(avro):
        return avro
    return json.dumps({"type": "record", "name": "Single", "fields": [{"name": FIELD, "type": json.loads(avro)}]})


def as_object(value: bytes) -> bytes:
    """A value in JSON, as an object with one field."""
    return _HEAD + value + _TAIL


def as_objects(values: pa.Array) -> pa.Array:
    """As `as_object`, for many values; nulls stay nulls."""
    found: Any = pc.binary_join_element_wise(_HEAD, values, _TAIL, b"")
    return found
