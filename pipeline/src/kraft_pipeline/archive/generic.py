"""Decodes any record to a mapping, as kafka-dump-log prints it, and reports where its fields are.

This decoder is slow, and the reference: `changes` uses it once for each shape of partition records, and for all other
records. UUIDs are 22 characters of base64, bytes are base64. Tagged fields with their default are omitted. Records of
an unknown type or version are kept as bytes, so that an archive loses nothing.
"""

from __future__ import annotations

import base64
import struct
from typing import Any, Final, NamedTuple

from kraft_pipeline.archive.schema import Field, RecordType, controls, fields_at, records, structs
from kraft_pipeline.codec.errors import CodecError

FRAME_VERSION: Final = 1
UNKNOWN: Final = "UNKNOWN"
"""Prefix of the names of unknown types; the type's number follows."""
BYTES: Final = "bytes"
"""The only field of an unknown record: its whole value in base64."""

NUMBERS: Final = {"bool": ">?", "i8": ">b", "i16": ">h", "u16": ">H", "i32": ">i", "i64": ">q", "f64": ">d"}
_STRUCT: Final = {name: struct.Struct(code) for name, code in NUMBERS.items()}
UUID_BYTES: Final = 16
_CONTROL_KEY: Final = struct.Struct(">hh")


class DecodeError(CodecError):
    """The value is not a record; the message names the byte."""


class Decoded(NamedTuple):
    """A record: its type, and its fields by name."""

    number: int
    version: int
    name: str
    fields: dict[str, Any]

    @property
    def is_known(self) -> bool:
        """Whether this release knows the type and the version."""
        return self.fields.keys() != {BYTES}


class FieldSpan(NamedTuple):
    """Where a field of fixed-size values lies in a record's value."""

    name: str
    type: str
    at: int
    size: int
    """Number of values; -1 for a single value that is not an array."""


class _Walk:
    """Reads values in sequence; `spans` records where the record's own fields are."""

    __slots__ = ("at", "data", "spans")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at
        self.spans: list[FieldSpan] = []

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            if self.at >= len(self.data) or shift > 28:
                raise DecodeError(f"varint at byte {self.at} is cut off or too long")
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def take(self, length: int) -> bytes:
        self.at += length
        if self.at > len(self.data):
            raise DecodeError(f"{length} bytes at byte {self.at - length} of {len(self.data)}")
        return self.data[self.at - length : self.at]

    def body(self, fields: tuple[Field, ...], version: int, *, is_top: bool) -> dict[str, Any]:
        """The fields of a struct, then its tags."""
        placed, tagged = fields_at(fields, version)
        found = {field.name: self.value(field, version, is_top=is_top) for field in placed}
        last = -1
        for _ in range(self.uvarint()):
            tag, size = self.uvarint(), self.uvarint()
            end = self.at + size
            if tag <= last or end > len(self.data):
                raise DecodeError(f"tag {tag} of {size} bytes at byte {self.at}")
            last = tag
            if tag in tagged:
                value = self.value(tagged[tag], version, is_top=is_top)
                if value != tagged[tag].default:
                    found[tagged[tag].name] = value
                if self.at != end:
                    raise DecodeError(f"tag {tag} ends at byte {self.at}, not {end}")
            else:
                self.at = end
        return found

    def value(self, field: Field, version: int, *, is_top: bool) -> Any:
        """Read a field, which may be an array."""
        if not field.is_array:
            return self.one(field, version, field if is_top else None)
        count = self.uvarint() - 1
        if count < 0:
            if not field.nullable:
                raise DecodeError(f"{field.name} is null at byte {self.at}")
            return None
        if count > len(self.data):
            raise DecodeError(f"{field.name} has {count} entries at byte {self.at}")
        if is_top and (field.type in NUMBERS or field.type == "uuid"):
            self.spans.append(FieldSpan(field.name, field.type, self.at, count))
        return [self.one(field, version, None) for _ in range(count)]

    def one(self, field: Field, version: int, noted: Field | None) -> Any:
        """Read a value; `noted` records its place."""
        kind = field.type
        if kind in NUMBERS or kind == "uuid":
            if noted is not None:
                self.spans.append(FieldSpan(noted.name, kind, self.at, -1))
            if kind == "uuid":
                return uuid_text(self.take(UUID_BYTES))
            return _STRUCT[kind].unpack(self.take(_STRUCT[kind].size))[0]
        if kind in {"string", "bytes"}:
            length = self.uvarint() - 1
            if length < 0:
                if not field.nullable:
                    raise DecodeError(f"{field.name} is null at byte {self.at}")
                return None
            raw = self.take(length)
            if kind == "bytes":
                return base64.b64encode(raw).decode()
            try:
                return raw.decode()
            except UnicodeDecodeError as e:
                raise DecodeError(f"{field.name} is not UTF-8: {e}") from None
        return self.body(structs()[kind], version, is_top=False)


def decode(value: bytes) -> Decoded:
    """Decode a metadata record. Raises DecodeError."""
    return _decoded(value, None)


def decode_spans(value: bytes) -> tuple[Decoded, list[FieldSpan]]:
    """Decode a metadata record, with the places of its own fields of fixed size. Raises DecodeError."""
    spans: list[FieldSpan] = []
    return _decoded(value, spans), spans


def decode_control(key: bytes, value: bytes) -> Decoded:
    """Decode a control record. Raises DecodeError."""
    if len(key) < _CONTROL_KEY.size:
        raise DecodeError(f"a control record's key of {len(key)} bytes")
    number = _CONTROL_KEY.unpack_from(key)[1]
    kind = controls().get(number)
    version = int.from_bytes(value[:2], "big")
    return _record(_Walk(value), kind, number, version)


def _decoded(value: bytes, spans: list[FieldSpan] | None) -> Decoded:
    walk = _Walk(value)
    frame, number, version = walk.uvarint(), walk.uvarint(), walk.uvarint()
    if frame != FRAME_VERSION:
        raise DecodeError(f"frame version {frame}, only {FRAME_VERSION} is known")
    found = _record(walk, records().get(number), number, version)
    if spans is not None:
        spans += walk.spans
    return found


def _record(walk: _Walk, kind: RecordType | None, number: int, version: int) -> Decoded:
    if kind is None or version > kind.newest:
        name = f"{UNKNOWN}_{number}" if kind is None else kind.name
        return Decoded(number, version, name, {BYTES: base64.b64encode(walk.data).decode()})
    fields = walk.body(kind.fields, version, is_top=True)
    if walk.at != len(walk.data):
        raise DecodeError(f"{len(walk.data) - walk.at} bytes follow a {kind.name}")
    return Decoded(number, version, kind.name, fields)


def uuid_text(raw: bytes) -> str:
    """Format a UUID like Kafka."""
    return base64.urlsafe_b64encode(raw)[:22].decode()
