"""Variable-length integers: seven bits per byte, low bits first; signed integers are zig-zag encoded.

Records use signed varints of up to 32 bits for lengths and of up to 64 bits for timestamps and offsets.
"""

from __future__ import annotations

from typing import Final

from kraft_protocol.buffers import Buffer
from kraft_protocol.records.errors import CorruptBatch, VarintTooLong

MAX_BYTES: Final = 5


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The unsigned number at `position`, and the position after it.

    Raises CorruptBatch if it is incomplete or too long.
    """
    value = shift = 0
    try:
        for end in range(position, position + MAX_BYTES):
            byte = buffer[end]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, end + 1
            shift += 7
    except IndexError:
        raise CorruptBatch(f"varint at byte {position} is cut off") from None
    raise CorruptBatch(f"varint at byte {position} has more than {MAX_BYTES} bytes")


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """The signed number at `position` (up to 64 bits, zig-zag encoded), and the position after it.

    Raises IndexError if it is incomplete, VarintTooLong if it has more than ten bytes.
    """
    byte = data[position]
    if byte < 0x80:  # nearly all lengths and deltas
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
        if shift > 63:
            raise VarintTooLong(f"varint ending at byte {position} is too long")


def write_varint(out: bytearray, value: int) -> None:
    """Append the signed `value` (up to 64 bits), zig-zag encoded."""
    number = value << 1 if value >= 0 else ((-value) << 1) - 1
    while number > 0x7F:
        out.append((number & 0x7F) | 0x80)
        number >>= 7
    out.append(number)
