"""Encoding and decoding of messages, at once or in steps."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from kraft_protocol.buffers import Buffer, FileSlice
from kraft_protocol.wire.classes import Message, counted_decoder, step_decoder, step_encoder
from kraft_protocol.wire.errors import DecodeError, EncodeError, TooManyItems
from kraft_protocol.wire.runtime import STEP_ITEMS

M = TypeVar("M", bound=Message)


def decode(cls: type[M], buffer: Buffer, version: int) -> M:
    """Decode the message that fills `buffer` completely. Raises DecodeError for other bytes.

    Records fields are views of `buffer`: they are valid as long as it is, and change with it.
    """
    if cls._from_bytes:
        buffer = bytes(buffer)
    try:
        message, position = (cls._decoders.get(version) or cls.decoder(version))(buffer, 0, len(buffer))
    except _MALFORMED as e:
        raise _decode_error(cls, buffer, version, e) from None
    if position != len(buffer):
        raise DecodeError(f"{len(buffer) - position} bytes follow {cls.__name__} version {version}")
    return message  # type: ignore[no-any-return]


def decode_from(cls: type[M], buffer: Buffer, position: int, version: int) -> tuple[M, int]:
    """Decode the message at `position`. Returns it with the position after it. Raises DecodeError."""
    if cls._from_bytes:
        buffer = bytes(buffer)
    try:
        return (cls._decoders.get(version) or cls.decoder(version))(buffer, position, len(buffer))
    except _MALFORMED as e:
        raise _decode_error(cls, buffer, version, e) from None


def decode_few(cls: type[M], buffer: Buffer, position: int, version: int) -> tuple[M, int]:
    """Like `decode_from`, but raises TooManyItems for a message that must be decoded in steps."""
    try:
        return (cls._counted_decoders.get(version) or counted_decoder(cls, version))(buffer, position, len(buffer))
    except TooManyItems:
        raise
    except _MALFORMED as e:
        raise _decode_error(cls, buffer, version, e) from None


def decode_in_steps(
    cls: type[M], buffer: Buffer, position: int, version: int, items_max: int
) -> Generator[None, None, tuple[M, int]]:
    """Like `decode_from`, in steps of about a millisecond. `buffer` must not change until the end.

    Raises TooManyItems for a message of more than `items_max` items (elements of arrays, tagged fields).
    """
    try:
        steps = step_decoder(cls, version)(buffer, position, len(buffer))
        for _ in range(items_max // STEP_ITEMS + 1):
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            yield
    except _MALFORMED as e:
        raise _decode_error(cls, buffer, version, e) from None
    raise TooManyItems(f"{cls.__name__} version {version}: more than {items_max} items")


_MALFORMED = (DecodeError, KeyError, IndexError, struct.error, UnicodeDecodeError)


def _decode_error(cls: type[Message], buffer: Buffer, version: int, error: Exception) -> DecodeError:
    if isinstance(error, KeyError):
        return DecodeError(f"{cls.__name__} has no version {version}")
    if isinstance(error, IndexError | struct.error):
        return DecodeError(f"{cls.__name__} version {version}: {len(buffer)} bytes are too few")
    return DecodeError(f"{cls.__name__} version {version}: {error}")


def encode(message: Message | EncodedMessage, version: int) -> bytes:
    """The message's bytes. File slices in it are read. Raises EncodeError."""
    parts = encode_parts(message, version)
    if len(parts) == 1 and not isinstance(parts[0], FileSlice):
        return bytes(parts[0])
    return b"".join(p.read() if isinstance(p, FileSlice) else p for p in parts)


def encode_parts(message: Message | EncodedMessage, version: int, head: Buffer = b"") -> list[Buffer | FileSlice]:
    """`head` and the message's bytes, in parts that are sent in order, so that records are not copied.

    Raises EncodeError.
    """
    try:
        encoder = message._encoders.get(version) or message.encoder(version)
    except KeyError:
        raise EncodeError(f"{type(message).__name__} has no version {version}") from None
    sent: list[Buffer | FileSlice] = []
    try:
        rest = encoder(message, bytearray(head), sent)
    except _UNFIT as e:
        raise _encode_error(message, version, e) from e
    if rest or not sent:
        sent.append(rest)
    return sent


def encode_in_steps(
    message: Message, version: int, head: Buffer = b""
) -> Generator[None, None, list[Buffer | FileSlice]]:
    """Like `encode_parts`, in steps of about a millisecond. The message must not change until the end."""
    sent: list[Buffer | FileSlice] = []
    try:
        rest = yield from step_encoder(type(message), version)(message, bytearray(head), sent)
    except KeyError:
        raise EncodeError(f"{type(message).__name__} has no version {version}") from None
    except _UNFIT as e:
        raise _encode_error(message, version, e) from e
    if rest or not sent:
        sent.append(rest)
    return sent


class EncodedMessage:
    """A message that was encoded in one version, in place of the message in `encode_parts`."""

    __slots__ = ("SCHEMA", "_body", "_encoders")

    def __init__(self, message: Message, version: int, body: bytes | bytearray) -> None:
        self.SCHEMA = message.SCHEMA
        self._body = body
        self._encoders = {version: self._put}

    def encoder(self, version: int) -> Callable[[Any, bytearray, list[Any]], bytearray]:
        """Raises KeyError: there are no other versions."""
        raise KeyError(version)

    def _put(self, _: Any, head: bytearray, sent: list[Any]) -> bytearray:
        del sent
        head += self._body
        return head


_UNFIT = (EncodeError, struct.error, AttributeError, TypeError, ValueError, OverflowError, AssertionError)


def _encode_error(message: Message | EncodedMessage, version: int, error: Exception) -> EncodeError:
    if isinstance(error, EncodeError):
        return EncodeError(f"{type(message).__name__} version {version}: {error}")
    return EncodeError(f"{type(message).__name__} version {version}: {error}: {message!r:.500}")
