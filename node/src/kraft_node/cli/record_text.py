"""Stored messages as JSON, in the form of Kafka's own tools (the generated JsonConverters).

Field names are in lower camel case, UUIDs and bytes in base64. Tagged fields with default values are left out.
"""

from __future__ import annotations

import base64
import struct
from functools import cache
from typing import Any

from kraft_protocol.ids import Uuid, uuid_text
from kraft_protocol.wire import stored
from kraft_protocol.wire.classes import Message
from kraft_protocol.wire.codec import decode
from kraft_protocol.wire.errors import DecodeError
from kraft_protocol.wire.schema import Field, MessageSchema, Struct, blocks, snake_case


def to_json(message: Message, version: int) -> dict[str, Any]:
    """The message at `version`, as input for `json.dumps`."""
    schema = type(message).SCHEMA
    return _struct(message, schema.top, schema, version)


@cache
def _camel_names(message: str) -> dict[str, str]:
    """Attribute -> JSON name, for all fields of a stored message."""
    names: dict[str, str] = {}
    for line in blocks("stored")[message].split("\n")[1:]:
        word = line.strip().split(" ", 1)[0]
        names[snake_case(word)] = word[0].lower() + word[1:]
    return names


def _struct(value: Any, layout: Struct, schema: MessageSchema, version: int) -> dict[str, Any]:
    names = _camel_names(schema.name)
    out: dict[str, Any] = {}
    for field in layout.fields:
        if version not in field.versions:
            continue
        content = getattr(value, field.name)
        if field.tag >= 0 and version in field.tagged and content == _defaults(schema.name, layout.name)[field.name]:
            continue
        out[names[field.name]] = _value(content, field, schema, version)
    return out


@cache
def _defaults(message: str, struct_name: str) -> dict[str, Any]:
    """The defaults of the fields of a struct in a stored message, or of the message itself."""
    made = getattr(stored, message)
    fresh = made() if struct_name == message else getattr(made, struct_name)()
    layout = made.SCHEMA.top if struct_name == message else made.SCHEMA.structs[struct_name]
    return {field.name: getattr(fresh, field.name) for field in layout.fields}


def _value(content: Any, field: Field, schema: MessageSchema, version: int) -> Any:
    if content is None:
        return None
    if field.array:
        return [_scalar(entry, field, schema, version) for entry in content]
    return _scalar(content, field, schema, version)


def _scalar(content: Any, field: Field, schema: MessageSchema, version: int) -> Any:
    if field.struct is not None:
        return _struct(content, field.struct, schema, version)
    if field.type == "uuid":
        return uuid_text(Uuid(bytes(content)))
    if isinstance(content, bytes | bytearray | memoryview):
        return base64.b64encode(content).decode("ascii")
    return content


class UnknownTypeError(ValueError):
    """A coordinator key with a type that this release does not have."""

    def __init__(self, number: int) -> None:
        super().__init__(f"unknown record type {number}")
        self.number = number


@cache
def coordinator_keys(log: str) -> dict[int, str]:
    """Key type -> name without `Key`, in the `offsets`, `transactions` or `shares` log."""
    found: dict[int, str] = {}
    for name, block in blocks("stored").items():
        kind, key, *_ = block.split(" ", 3)
        if kind == "coordinator-key" and _log_of(name) == log:
            found[int(key)] = name.removesuffix("Key")
    return found


def _log_of(name: str) -> str:
    """The kind of log that has records with this key."""
    if name.startswith("TransactionLog"):
        return "transactions"
    if name in ("ShareSnapshotKey", "ShareUpdateKey"):
        return "shares"
    return "offsets"


def coordinator_key(log: str, data: bytes) -> tuple[str, int, Message]:
    """Name, type and content of a coordinator record's key. Raises UnknownTypeError, DecodeError."""
    if len(data) < 2:
        raise DecodeError(f"a key of {len(data)} bytes")
    number: int = struct.unpack_from(">h", data)[0]
    name = coordinator_keys(log).get(number)
    if name is None and log == "offsets" and number == 0:
        name = "LegacyOffsetCommit"
    if name is None:
        raise UnknownTypeError(number)
    return name, number, decode(getattr(stored, f"{name}Key"), data[2:], 0)


def coordinator_value(name: str, data: bytes) -> tuple[int, Message]:
    """Version and content of the value of a key called `name`. Raises DecodeError."""
    if len(data) < 2:
        raise DecodeError(f"a value of {len(data)} bytes")
    version: int = struct.unpack_from(">h", data)[0]
    return version, decode(getattr(stored, f"{name}Value"), data[2:], version)


def group_metadata_json(value: Message, version: int) -> dict[str, Any]:
    """GroupMetadataValue with the members' subscriptions and assignments decoded, for groups of consumers."""
    out = to_json(value, version)
    if out.get("protocolType") != "consumer":
        return out
    for member, shown in zip(value.members, out["members"], strict=True):  # type: ignore[attr-defined]
        for field, message in (
            ("subscription", stored.ConsumerProtocolSubscription),
            ("assignment", stored.ConsumerProtocolAssignment),
        ):
            data = getattr(member, field)
            if data is None or len(data) < 2:
                shown[field] = None
                continue
            client_version = min(struct.unpack_from(">h", data)[0], message.SCHEMA.valid.high)
            shown[field] = to_json(decode(message, bytes(data)[2:], client_version), client_version)
    return out
