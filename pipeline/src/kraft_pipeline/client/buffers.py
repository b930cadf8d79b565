"""The protocol's primitive types in flexible versions (KIP-482). A compact length is stored as the length plus one."""

from __future__ import annotations

from struct import Struct
from typing import Final

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")


class Writer:
    """Appends values to `out`. Methods return the writer, so calls can be chained."""

    __slots__ = ("out",)

    def __init__(self) -> None:
        self.out = bytearray()

    def i8(self, value: int) -> Writer:
        """Append an INT8 or a boolean; only the low 8 bits of `value` count."""
        self.out.append(value & 0xFF)
        return self

    def i16(self, value: int) -> Writer:
        """Append a big-endian INT16. Raises struct.error if `value` does not fit."""
        self.out += _I16.pack(value)
        return self

    def i32(self, value: int) -> Writer:
        """Append a big-endian INT32. Raises struct.error if `value` does not fit."""
        self.out += _I32.pack(value)
        return self

    def i64(self, value: int) -> Writer:
        """Append a big-endian INT64. Raises struct.error if `value` does not fit."""
        self.out += _I64.pack(value)
        return self

    def uuid(self, value: bytes) -> Writer:
        """Append a UUID of 16 bytes; the length is not checked."""
        self.out += value
        return self

    def uvarint(self, value: int) -> Writer:
        """Append an UNSIGNED_VARINT, 7 bits per byte, low bits first; `value` must not be negative."""
        while value > 0x7F:
            self.out.append((value & 0x7F) | 0x80)
            value >>= 7
        self.out.append(value)
        return self

    def length(self, value: int) -> Writer:
        """Append the compact length of an array, a string or bytes; -1 for null."""
        return self.uvarint(value + 1)

    def string(self, value: str | None) -> Writer:
        """Append a COMPACT_NULLABLE_STRING in UTF-8; None is null."""
        if value is None:
            return self.length(-1)
        raw = value.encode()
        self.length(len(raw)).out.extend(raw)
        return self

    def no_tags(self) -> Writer:
        """Append an empty section of tagged fields, which ends a struct."""
        return self.i8(0)


class Reader:
    """Reads values from `data` in order. Raises IndexError or struct.error if the data ends early."""

    __slots__ = ("at", "data")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def i8(self) -> int:
        """Read an INT8 as a number from 0 to 255. Raises IndexError."""
        self.at += 1
        return self.data[self.at - 1]

    def i16(self) -> int:
        """Read a big-endian INT16. Raises struct.error."""
        (value,) = _I16.unpack_from(self.data, self.at)
        self.at += 2
        return int(value)

    def i32(self) -> int:
        """Read a big-endian INT32. Raises struct.error."""
        (value,) = _I32.unpack_from(self.data, self.at)
        self.at += 4
        return int(value)

    def i64(self) -> int:
        """Read a big-endian INT64. Raises struct.error."""
        (value,) = _I64.unpack_from(self.data, self.at)
        self.at += 8
        return int(value)

    def uuid(self) -> bytes:
        """Read a UUID as 16 bytes, fewer if the data ends early."""
        self.at += 16
        return bytes(self.data[self.at - 16 : self.at])

    def uvarint(self) -> int:
        """Read an UNSIGNED_VARINT. Raises IndexError."""
        value = shift = 0
        while True:
            byte = self.i8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def length(self) -> int:
        """Read the compact length of an array, a string or bytes; null reads as 0."""
        return max(self.uvarint() - 1, 0)

    def string(self) -> str:
        """Read a COMPACT_NULLABLE_STRING; null reads as "". Raises IndexError, and UnicodeDecodeError if not UTF-8."""
        return bytes(self.view(self.length())).decode()

    def view(self, length: int) -> memoryview:
        """Read `length` bytes as a view, without a copy. Raises IndexError."""
        self.at += length
        if self.at > len(self.data):
            raise IndexError(f"{length} bytes at {self.at - length} of {len(self.data)}")
        return self.data[self.at - length : self.at]

    def tags(self) -> None:
        """Skip the tagged fields at the end of a struct."""
        for _ in range(self.uvarint()):
            self.uvarint()
            self.view(self.uvarint())
