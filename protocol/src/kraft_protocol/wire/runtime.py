"""Helpers of compiled functions for rare cases: long varints, tagged fields, records in parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Any, Final

from kraft_protocol.buffers import Buffer, FileSlice
from kraft_protocol.wire.errors import DecodeError, EncodeError, TooManyItems

MAX_VARINT_BYTES: Final = 5
MAX_STRING_BYTES: Final = 32767
"""The maximum of an int16 length. Kafka applies it in flexible versions, too."""

MAX_ELEMENTS: Final = 1 << 22
"""Maximum elements of one array: four times the million partitions of the largest cluster. Without it, a frame of 100
MiB could request 50 million structs of two bytes each. The objects would need some 100 times its size."""

STEP_ITEMS: Final = 250
"""Items that one step of decoding or encoding handles: half a millisecond."""

COUNTED_ITEMS: Final = 4000
"""Structs that a counted decoder reads before it stops. Messages with few large items stay below it."""

INLINE_RECORDS_BYTES: Final = 4096
"""Records up to this size are copied with the other fields: this is cheaper than one more part to send."""


FEW: Final = 9
"""Arrays of numbers below this length, such as replicas, use a prepared struct."""


@cache
def few_unpackers(code: str) -> tuple[Callable[[Buffer, int], tuple[Any, ...]], ...]:
    """For each count below FEW, the function that unpacks that many numbers of a struct code."""
    return tuple(Struct(f">{count}{code}").unpack_from for count in range(FEW))


@cache
def few_packers(code: str) -> tuple[Callable[..., bytes], ...]:
    """For each count below FEW, the function that packs that many numbers of a struct code."""
    return tuple(Struct(f">{count}{code}").pack for count in range(FEW))


def uvarint_rest(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Finish reading an unsigned varint that begins with the byte `first` (above 127). Returns value and next
    position."""
    value = first & 0x7F
    shift = 7
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= 7 * MAX_VARINT_BYTES:
            raise DecodeError(f"a varint longer than {MAX_VARINT_BYTES} bytes before byte {pos}")
    if value > 0xFFFFFFFF:
        raise DecodeError(f"a varint above 32 bits before byte {pos}")
    return value, pos


def uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """The unsigned varint at `pos`, and the position after it."""
    first = buf[pos]
    return (first, pos + 1) if first < 0x80 else uvarint_rest(buf, pos + 1, first)


def put_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def put_tags(out: bytearray, tags: dict[int, Buffer]) -> None:
    """Append a tagged section: count, then tag, size and bytes, in ascending order."""
    put_uvarint(out, len(tags))
    for tag in sorted(tags):
        put_uvarint(out, tag)
        put_uvarint(out, len(tags[tag]))
        out += tags[tag]


def short(what: str, pos: int, need: int, end: int) -> DecodeError:
    """The error for a length that is negative or exceeds the buffer."""
    return DecodeError(f"{what} at byte {pos} wants {need} bytes or elements, {end - pos} are left")


def above(what: str, pos: int, length: int, most: int) -> DecodeError:
    """The error for a length above the limit of the field."""
    return DecodeError(f"{what} at byte {pos} has {length} bytes or elements, {most} at most")


def many() -> TooManyItems:
    """Raised by a counted decoder: the message must be decoded in steps."""
    return TooManyItems(f"more than {COUNTED_ITEMS} items")


def null(what: str, pos: int) -> DecodeError:
    """The error for a null in a field that is not nullable."""
    return DecodeError(f"{what} before byte {pos} is null, but the field is not nullable")


def lacks(what: str, version: int) -> EncodeError:
    """The error for a value in a field that the version does not have."""
    return EncodeError(f"{what} is set, but version {version} does not have it")


def records_parts(records: Any) -> tuple[int, list[Buffer | FileSlice]]:
    """Length and parts of a records field: a bytes-like object, a file slice, or a list of these."""
    parts = records if isinstance(records, list) else [records]
    length = 0
    for part in parts:
        length += part.length if isinstance(part, FileSlice) else len(part)
    return length, parts


def put_records(out: bytearray, parts: list[Buffer | FileSlice], sent: list[Buffer | FileSlice]) -> bytearray:
    """Append records: small records to `out`, others as separate parts after it. Returns the buffer to continue
    with."""
    for part in parts:
        if not isinstance(part, FileSlice) and len(part) <= INLINE_RECORDS_BYTES:
            out += part
            continue
        if out:
            sent.append(out)
            out = bytearray()
        sent.append(part)
    return out
