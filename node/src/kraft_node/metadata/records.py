"""The framing of metadata records: frame version 1, type, version, body (KIP-631, MetadataRecordSerde).

The keys of these records are null. The value is an unsigned varint 1 (0 in the KIP's draft), the record's type and
version as unsigned varints, and the body in the flexible encoding.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from kraft_protocol.wire import codec, stored
from kraft_protocol.wire.errors import DecodeError
from kraft_protocol.wire.runtime import put_uvarint, uvarint
from kraft_protocol.wire.schema import index

if TYPE_CHECKING:
    from kraft_protocol.buffers import Buffer
    from kraft_protocol.wire.classes import Message

FRAME_VERSION: Final = 1
MAX_RECORD_VERSION: Final = 32767


RECORD_TYPES: Final[dict[int, str]] = {
    # Tiered storage also numbers the records of its own topic from 0; they are never in the metadata log.
    entry.number: name
    for name, entry in index().items()
    if entry.kind == "metadata" and entry.file == "metadata_records"
}
"""Record type -> message name, for all metadata records of the release."""


@cache
def _class_of(record_type: int) -> type[Message]:
    made: type[Message] = getattr(stored, RECORD_TYPES[record_type])
    return made


def encode_record(record: Message, version: int) -> bytes:
    """The value of a metadata record. Raises EncodeError if the record does not fit the version."""
    return b"".join(codec.encode_parts(record, version, _head(record.SCHEMA.api_key, version)))  # type: ignore[arg-type]


@cache
def _head(record_type: int, version: int) -> bytes:
    out = bytearray()
    for number in (FRAME_VERSION, record_type, version):
        put_uvarint(out, number)
    return bytes(out)


def decode_record(value: Buffer) -> Message:
    """The record in a value, without its version; see `decode_record_versioned`."""
    return decode_record_versioned(value)[0]


def decode_record_versioned(value: Buffer) -> tuple[Message, int]:
    """The record in a value, and its version.

    Raises DecodeError for an unknown frame version, type or version, and for trailing bytes.
    """
    view = memoryview(value)
    try:
        frame, position = uvarint(view, 0)
        if frame != FRAME_VERSION:
            raise DecodeError(f"a metadata record of frame version {frame}, not {FRAME_VERSION}")
        record_type, position = uvarint(view, position)
        version, position = uvarint(view, position)
    except IndexError:
        raise DecodeError(f"a metadata record of {len(view)} bytes ends in its head") from None
    if record_type not in RECORD_TYPES:
        raise DecodeError(f"a metadata record of unknown type {record_type}")
    if version > MAX_RECORD_VERSION:
        raise DecodeError(f"a metadata record of version {version}")
    record, position = codec.decode_from(_class_of(record_type), view, position, version)
    if position != len(view):
        raise DecodeError(f"{len(view) - position} bytes follow the metadata record {RECORD_TYPES[record_type]}")
    return record, version
