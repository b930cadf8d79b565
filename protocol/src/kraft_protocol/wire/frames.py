"""Headers and lengths around messages: a frame is a 4-byte length, a header and a body (KIP-482, KIP-511)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from kraft_protocol.buffers import FileSlice
from kraft_protocol.wire import codec
from kraft_protocol.wire.api import (
    API,
    FLEXIBLE_REQUESTS_FROM,
    FLEXIBLE_RESPONSES_FROM,
    request_header_version,
    response_header_version,
)
from kraft_protocol.wire.errors import DecodeError
from kraft_protocol.wire.runtime import uvarint

if TYPE_CHECKING:
    from collections.abc import Generator

    from kraft_protocol.buffers import Buffer
    from kraft_protocol.wire.classes import Message

LENGTH_SIZE: Final = 4
_FIXED: Final = struct.Struct(">hhih")
_NEVER: Final = 1 << 15
_CORRELATION: Final = struct.Struct(">i")
_PLAIN_HEAD: Final = struct.Struct(">ii")
_FLEXIBLE_HEAD: Final = struct.Struct(">iib")
_PLAIN_ROOM: Final = bytes(_PLAIN_HEAD.size)
_FLEXIBLE_ROOM: Final = bytes(_FLEXIBLE_HEAD.size)


class RequestHeader:
    """The header of a request; `body_offset` is the offset of the body in the frame (without the frame's length)."""

    __slots__ = ("api_key", "api_version", "body_offset", "client_id", "correlation_id")

    def __init__(
        self, api_key: int, api_version: int, correlation_id: int, client_id: str | None, body_offset: int
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body_offset = body_offset


def decode_request_header(frame: memoryview) -> RequestHeader:
    """The header of a frame, given without its length.

    The tagged fields of header version 2 are skipped. For an unknown API or version, only the fields common to all
    versions are read. Raises DecodeError if the frame is too short or the client id is not UTF-8.
    """
    try:
        api_key, api_version, correlation_id, size = _FIXED.unpack_from(frame)
        position = _FIXED.size
        client_id = None
        if size >= 0:
            end = position + size
            if end > len(frame):
                raise DecodeError(f"client id of {size} bytes in a frame of {len(frame)}")
            client_id = frame[position:end].tobytes().decode()
            position = end
        if FLEXIBLE_REQUESTS_FROM.get(api_key, _NEVER) <= api_version <= API[api_key].versions.high:
            position = position + 1 if frame[position] == 0 else _skip_tags(frame, position)
    except (struct.error, IndexError, UnicodeDecodeError) as e:
        raise DecodeError(f"request header: {e}") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def _skip_tags(frame: memoryview, position: int) -> int:
    count = frame[position]
    if count == 0:
        return position + 1
    count, position = uvarint(frame, position)
    for _ in range(count):
        _, position = uvarint(frame, position)
        size, position = uvarint(frame, position)
        position += size
        if position > len(frame):
            raise DecodeError(f"a tagged field of {size} bytes beyond the frame's end")
    return position


def _size(parts: list[Buffer | FileSlice]) -> int:
    return sum([p.length if isinstance(p, FileSlice) else len(p) for p in parts])


def encode_response(correlation_id: int, api_key: int, version: int, message: Message) -> list[Buffer | FileSlice]:
    """A whole frame, in parts that are sent in order. Raises EncodeError."""
    flexible = version >= FLEXIBLE_RESPONSES_FROM[api_key]
    parts = codec.encode_parts(message, version, _FLEXIBLE_ROOM if flexible else _PLAIN_ROOM)
    _put_head(parts, correlation_id, flexible=flexible)
    return parts


def encode_response_in_steps(
    correlation_id: int, api_key: int, version: int, message: Message
) -> Generator[None, None, list[Buffer | FileSlice]]:
    """Like `encode_response`, in steps of about a millisecond (`codec.encode_in_steps`)."""
    flexible = version >= FLEXIBLE_RESPONSES_FROM[api_key]
    parts = yield from codec.encode_in_steps(message, version, _FLEXIBLE_ROOM if flexible else _PLAIN_ROOM)
    _put_head(parts, correlation_id, flexible=flexible)
    return parts


def _put_head(parts: list[Buffer | FileSlice], correlation_id: int, *, flexible: bool) -> None:
    first = parts[0]
    assert isinstance(first, bytearray), "the head makes the first part"
    size = len(first) - LENGTH_SIZE
    if len(parts) > 1:
        size += _size(parts[1:])
    if flexible:
        _FLEXIBLE_HEAD.pack_into(first, 0, size, correlation_id, 0)
    else:
        _PLAIN_HEAD.pack_into(first, 0, size, correlation_id)


def encode_request(
    correlation_id: int, api_key: int, version: int, client_id: str | None, message: Message | codec.EncodedMessage
) -> list[Buffer | FileSlice]:
    """A whole frame, in parts that are sent in order. Raises EncodeError."""
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    head = bytes(LENGTH_SIZE) + _FIXED.pack(api_key, version, correlation_id, size) + name
    if request_header_version(api_key, version) == 2:
        head += b"\x00"
    parts = codec.encode_parts(message, version, head)
    first = parts[0]
    assert isinstance(first, bytearray), "the head makes the first part"
    _CORRELATION.pack_into(first, 0, _size(parts) - LENGTH_SIZE)
    return parts


def response_correlation_id(frame: Buffer) -> int:
    """The correlation id of a response frame, given without its length. Raises DecodeError."""
    if len(frame) < _CORRELATION.size:
        raise DecodeError(f"a response of {len(frame)} bytes has no correlation id")
    found: int = _CORRELATION.unpack_from(frame)[0]
    return found


def decode_response(frame: Buffer, api_key: int, version: int) -> tuple[int, Message]:
    """Correlation id and response of a frame, given without its length. Raises DecodeError."""
    correlation_id = response_correlation_id(frame)
    view = memoryview(frame)
    position = _CORRELATION.size
    if response_header_version(api_key, version):
        try:
            position = _skip_tags(view, position)
        except IndexError:
            raise DecodeError("a response header without its tagged fields") from None
    return correlation_id, codec.decode(API[api_key].response, view[position:], version)
