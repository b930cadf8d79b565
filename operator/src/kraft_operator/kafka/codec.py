"""Codecs of messages, compiled from a text with the message's fields. Flexible versions only (KIP-482).

The text has `name:type` pairs, separated by blanks. Types are `i8 i16 i32 i64 u16 bool str uuid`, and `[type]` and
`[name:type …]` for arrays. A type with `?` may be null. `#2name:type` is a tagged field with tag 2. Messages are
dictionaries.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

MESSAGE_BYTES_MAX: Final = 256 * 1024 * 1024
"""The largest accepted response. Metadata of a million partitions is far smaller, so more is not Kafka's protocol."""

_FIXED: Final = {
    name: struct.Struct(">" + code)
    for name, code in {"i8": "b", "i16": "h", "i32": "i", "i64": "q", "u16": "H", "bool": "?"}.items()
}
_WORDS: Final = re.compile(r"\[|\]\??|[#\w.]+:|\w+\??")

Message = dict[str, Any]
Write = Callable[[bytearray, Any], None]
Read = Callable[["Reader"], Any]


class ProtocolError(ValueError):
    """The received data violates the protocol. The connection cannot be used any more."""


class Reader:
    """A cursor in a response. All methods raise ProtocolError if the data ends early."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def fixed(self, kind: struct.Struct) -> Any:
        """Read one value of a fixed size."""
        try:
            (value,) = kind.unpack_from(self._data, self._at)
        except struct.error as error:
            raise ProtocolError(f"a response ends at byte {len(self._data)}, inside a value") from error
        self._at += kind.size
        return value

    def varint(self) -> int:
        """Read an unsigned varint of at most 5 bytes."""
        value = shift = 0
        while shift < 35:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ProtocolError(f"no length at byte {self._at}")

    def take(self, count: int) -> bytes:
        """Read `count` bytes."""
        end = self._at + count
        if end > len(self._data):
            raise ProtocolError(f"a response of {len(self._data)} bytes ends before {end}")
        part = self._data[self._at : end]
        self._at = end
        return part

    def count(self) -> int:
        """Read the length of an array; -1 for null. Raises ProtocolError if the rest of the data is too short."""
        count = self.varint() - 1
        if count > len(self._data) - self._at:
            raise ProtocolError(f"an array of {count} in a response of {len(self._data)} bytes")
        return count

    def tags(self, known: Mapping[int, tuple[str, Read]], into: Message) -> None:
        """Read the tagged fields `known` into a message, and skip unknown ones (KIP-482)."""
        for _ in range(self.varint()):
            number, size = self.varint(), self.varint()
            body = self.take(size)
            if number in known:
                name, read = known[number]
                into[name] = read(Reader(body))


def put_varint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


class Codec(NamedTuple):
    """The functions that write and read one type of message."""

    write: Write
    read: Read

    def encode(self, message: Message) -> bytes:
        """Encode a message. Raises KeyError if a field is missing, because fields have no defaults."""
        out = bytearray()
        self.write(out, message)
        return bytes(out)

    def decode(self, data: bytes) -> Message:
        """Decode a message. Raises ProtocolError."""
        return dict(self.read(Reader(data)))


def codec(text: str) -> Codec:
    """Compile the codec of a message from its text; see the module for the format."""
    return _struct(deque(_WORDS.findall(text)))


def _struct(words: deque[str]) -> Codec:
    """Compile fields up to the closing bracket, and consume it."""
    fields: list[tuple[str, Write, Read]] = []
    tagged: dict[int, tuple[str, Read]] = {}
    while words and not (word := words.popleft()).startswith("]"):
        name = word.removesuffix(":")
        one = _type(words)
        if name.startswith("#"):
            tagged[int(name[1])] = (name[2:], one.read)
        else:
            fields.append((name, one.write, one.read))

    def write(out: bytearray, value: Any) -> None:
        for name, put, _ in fields:
            put(out, value[name])
        out.append(0)

    def read(reader: Reader) -> Message:
        found = {name: get(reader) for name, _, get in fields}
        reader.tags(tagged, found)
        return found

    return Codec(write, read)


def _type(words: deque[str]) -> Codec:
    word = words.popleft()
    if word != "[":
        return _scalar(word)
    if words[0].endswith(":"):
        return _array(_struct(words))
    item = _scalar(words.popleft())
    words.popleft()
    return _array(item)


def _array(item: Codec) -> Codec:
    def write(out: bytearray, value: Any) -> None:
        put_varint(out, 0 if value is None else len(value) + 1)
        for one in value or ():
            item.write(out, one)

    def read(reader: Reader) -> list[Any] | None:
        count = reader.count()
        return None if count < 0 else [item.read(reader) for _ in range(count)]

    return Codec(write, read)


def _scalar(word: str) -> Codec:
    kind = word.removesuffix("?")
    if kind == "str":
        return Codec(_write_str, _read_str)
    if kind == "uuid":
        return Codec(lambda out, value: out.extend(value), lambda reader: reader.take(16))
    fixed = _FIXED[kind]
    return Codec(lambda out, value: out.extend(fixed.pack(value)), lambda reader: reader.fixed(fixed))


def _write_str(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
        return
    data = value.encode()
    put_varint(out, len(data) + 1)
    out.extend(data)


def _read_str(reader: Reader) -> str | None:
    size = reader.varint() - 1
    return None if size < 0 else reader.take(size).decode("utf-8", "replace")
