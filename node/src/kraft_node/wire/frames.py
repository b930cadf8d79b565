"""Headers and lengths around messages: a frame is a 4-byte length, a header and a body (KIP-482, KIP-511)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from kraft_node.base.env import FileSlice
from kraft_node.wire import codec
from kraft_node.wire.api import (
    API,
    FLEXIBLE_REQUESTS_FROM,
    FLEXIBLE_RESPONSES_FROM,
    request_header_version,
    response_header_version,
)
from kraft_node.wire.errors import DecodeError
from kraft_node.wire.runtime import uvarint

if TYPE_CHECKING:
    from kraft_node.base.env import Buffer
    from kraft_node.wire.classes import Message

LENGTH_SIZE: Final = 4
_FIXED: Final = struct.Struct(">hhih")
_NEVER: Final = 1 << 15
_CORRELATION: Final = struct.Struct(">i")
_PLAIN_HEAD: Final = struct.Struct(">ii")
_FLEXIBLE_HEAD: Final = struct.Struct(">iib")


class RequestHeader:
    """What stands before a request's body; `body_offset` is where that begins in the frame (without its length)."""

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
    """The header of a frame given without its length.

    The tagged fields of header version 2 are skipped. For an API or version that is unknown the header is read as far
    as all versions agree. Raises DecodeError when the frame is too short or the client id is not UTF-8.
    """
    try:
        api_key, api_version, correlation_id, size = _FIXED.unpack_from(frame)
        position = _FIXED.size
        client_id = None
        if size >= 0:
            end = position + size
            if end > len(frame):
                raise DecodeError(f"client id of {size} bytes in a frame of {len(frame)}")
            client_id = str(frame[position:end], "utf-8")
            position = end
        if api_version >= FLEXIBLE_REQUESTS_FROM.get(api_key, _NEVER) and api_version in API[api_key].versions:
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


def _with_length(parts: list[Buffer | FileSlice]) -> list[Buffer | FileSlice]:
    """Write the length into the room that the head has for it."""
    first = parts[0]
    assert isinstance(first, bytearray), "the head makes the first part"
    size = len(first) - LENGTH_SIZE
    if len(parts) > 1:
        size += sum([p.length if isinstance(p, FileSlice) else len(p) for p in parts[1:]])
    _CORRELATION.pack_into(first, 0, size)
    return parts


def encode_response(correlation_id: int, api_key: int, version: int, message: Message) -> list[Buffer | FileSlice]:
    """A whole frame in parts to be sent one after the other. Raises EncodeError."""
    if version >= FLEXIBLE_RESPONSES_FROM[api_key]:
        head = _FLEXIBLE_HEAD.pack(0, correlation_id, 0)
    else:
        head = _PLAIN_HEAD.pack(0, correlation_id)
    parts = codec.encode_parts(message, version, head)
    if len(parts) > 1:
        return _with_length(parts)
    only = parts[0]
    _CORRELATION.pack_into(only, 0, len(only) - LENGTH_SIZE)  # type: ignore[arg-type]  # a bytearray
    return parts


def encode_request(
    correlation_id: int, api_key: int, version: int, client_id: str | None, message: Message
) -> list[Buffer | FileSlice]:
    """A whole frame in parts to be sent one after the other. Raises EncodeError."""
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    head = bytes(LENGTH_SIZE) + _FIXED.pack(api_key, version, correlation_id, size) + name
    if request_header_version(api_key, version) == 2:
        head += b"\x00"
    return _with_length(codec.encode_parts(message, version, head))


def response_correlation_id(frame: Buffer) -> int:
    """The correlation id of a response frame given without its length. Raises DecodeError."""
    if len(frame) < _CORRELATION.size:
        raise DecodeError(f"a response of {len(frame)} bytes has no correlation id")
    found: int = _CORRELATION.unpack_from(frame)[0]
    return found


def decode_response(frame: Buffer, api_key: int, version: int) -> tuple[int, Message]:
    """Correlation id and response of a frame given without its length. Raises DecodeError."""
    correlation_id = response_correlation_id(frame)
    view = memoryview(frame)
    position = _CORRELATION.size
    if response_header_version(api_key, version):
        try:
            position = _skip_tags(view, position)
        except IndexError:
            raise DecodeError("a response header without its tagged fields") from None
    return correlation_id, codec.decode(API[api_key].response, view[position:], version)
