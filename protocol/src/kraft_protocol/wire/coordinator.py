"""Keys and values of the coordinators' internal topics: two bytes, then the message.

In a key, the two bytes are the number of its record type (the key's own version is always 0). In a value, they are the
version of the value. `__consumer_offsets`, `__transaction_state` and `__share_group_state` number their types
independently, so a key can only be read with its family. Users: the coordinators, and tools that print their logs.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from kraft_protocol.wire import codec, stored
from kraft_protocol.wire.errors import DecodeError
from kraft_protocol.wire.schema import index

if TYPE_CHECKING:
    from kraft_protocol.buffers import Buffer
    from kraft_protocol.wire.classes import Message

GROUP: Final = "group"
"""The records of `__consumer_offsets`."""
TRANSACTION: Final = "transaction"
"""The records of `__transaction_state`."""
SHARE: Final = "share"
"""The records of `__share_group_state`."""

KEY_VERSION: Final = 0
_INT16: Final = struct.Struct(">h")


class UnknownRecordTypeError(DecodeError):
    """A key with a record type that the release lacks, perhaps from a newer release; `number` is the type."""

    def __init__(self, family: str, number: int) -> None:
        super().__init__(f"a key of the {family} coordinator with the unknown record type {number}")
        self.number = number


@cache
def key_names(family: str) -> dict[int, str]:
    """Record type -> name of the key's message, for one family."""
    file = f"{family}_coordinator_records"
    return {e.number: name for name, e in index().items() if e.file == file and e.kind == "coordinator-key"}


def encode_key(key: Message) -> bytes:
    """The bytes of a key, its record type in front. Raises EncodeError."""
    return _INT16.pack(key.SCHEMA.api_key) + codec.encode(key, KEY_VERSION)


def _split(data: Buffer, what: str) -> tuple[int, Buffer]:
    if len(data) < _INT16.size:
        raise DecodeError(f"{what} of {len(data)} bytes, which is too short for its first two")
    number: int = _INT16.unpack_from(data)[0]
    return number, data[_INT16.size :]


def decode_key(family: str, data: Buffer) -> Message:
    """Decode a key. Raises UnknownRecordTypeError, and DecodeError for all other errors."""
    number, body = _split(data, f"a key of the {family} coordinator")
    name = key_names(family).get(number)
    if name is None:
        raise UnknownRecordTypeError(family, number)
    cls: type[Message] = getattr(stored, name)
    return codec.decode(cls, body, KEY_VERSION)


def decode_value(key: Message, data: Buffer) -> Message:
    """The value that belongs to `key`; see `decode_value_versioned`."""
    return decode_value_versioned(key, data)[0]


def decode_value_versioned(key: Message, data: Buffer) -> tuple[Message, int]:
    """The value that belongs to `key`, and its version. Raises DecodeError, also for an unknown version."""
    cls: Any = getattr(stored, key.SCHEMA.name.removesuffix("Key") + "Value")
    version, body = _split(data, f"a {cls.__name__}")
    return codec.decode(cls, body, version), version
