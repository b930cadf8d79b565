"""The protocol's primitive types in flexible versions (KIP-482): compact lengths are one more than the length."""

from __future__ import annotations

from struct import Struct
from typing import Final

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")


class Writer:
    """Puts one value after another into `out`."""

    __slots__ = ("out",)

    def __init__(self) -> None:
        self.out = bytearray()

    def i8(self, value: int) -> Writer:
        self.out.append(value & 0xFF)
        return self

    def i16(self, value: int) -> Writer:
        self.out += _I16.pack(value)
        return self

    def i32(self, value: int) -> Writer:
        self.out += _I32.pack(value)
        return self

    def i64(self, value: int) -> Writer:
        self.out += _I64.pack(value)
        return self

    def uuid(self, value: bytes) -> Writer:
        self.out += value
        return self

    def uvarint(self, value: int) -> Writer:
        while value > 0x7F:
            self.out.append((value & 0x7F) | 0x80)
            value >>= 7
        self.out.append(value)
        return self

    def length(self, value: int) -> Writer:
        """Of an array, a string or bytes; -1 for null."""
        return self.uvarint(value + 1)

    def string(self, value: str | None) -> Writer:
        if value is None:
            return self.length(-1)
        raw = value.encode()
        self.length(len(raw)).out.extend(raw)
        return self

    def no_tags(self) -> Writer:
        """The end of a struct."""
        return self.i8(0)


class Reader:
    """Takes one value after another from `data`. IndexError or struct.error where it ends too early."""

    __slots__ = ("at", "data")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.at = 0

    def i8(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def i16(self) -> int:
        (value,) = _I16.unpack_from(self.data, self.at)
        self.at += 2
        return int(value)

    def i32(self) -> int:
        (value,) = _I32.unpack_from(self.data, self.at)
        self.at += 4
        return int(value)

    def i64(self) -> int:
        (value,) = _I64.unpack_from(self.data, self.at)
        self.at += 8
        return int(value)

    def uuid(self) -> bytes:
        self.at += 16
        return bytes(self.data[self.at - 16 : self.at])

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.i8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def length(self) -> int:
        """Of an array, a string or bytes; null counts as empty."""
        return max(self.uvarint() - 1, 0)

    def string(self) -> str:
        return bytes(self.view(self.length())).decode()

    def view(self, length: int) -> memoryview:
        """That many bytes, uncopied."""
        self.at += length
        if self.at > len(self.data):
            raise IndexError(f"{length} bytes at {self.at - length} of {len(self.data)}")
        return self.data[self.at - length : self.at]

    def tags(self) -> None:
        """Pass over the tagged fields at the end of a struct."""
        for _ in range(self.uvarint()):
            self.uvarint()
            self.view(self.uvarint())
