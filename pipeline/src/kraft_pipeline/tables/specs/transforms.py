"""Iceberg's partition transforms `bucket` and `truncate`, over whole columns.

Source: iceberg.apache.org/spec, "Partition Transforms" and "Appendix B: 32-bit Hash Requirements".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

BUCKET: Final = "bucket"
TRUNCATE: Final = "truncate"
NUMBERED: Final = re.compile(r"(bucket|truncate)\[(\d+)\]")
"""A transform with its number as Iceberg's metadata has it."""
SIGN: Final = 0x7FFFFFFF


def takes(kind: str, column: pa.DataType) -> bool:
    """Whether a transform (`bucket` or `truncate`) applies to a type."""
    both = (pa.types.is_int32, pa.types.is_int64, pa.types.is_decimal128, pa.types.is_string)
    more = (pa.types.is_binary, pa.types.is_date32, pa.types.is_timestamp) if kind == BUCKET else ()
    return any(is_kind(column) for is_kind in (*both, *more))


def applied(transform: str, column: pa.Array) -> pa.Array | None:
    """The partition values of a column by a numbered transform such as `bucket[16]`; None for another transform."""
    parts = NUMBERED.fullmatch(transform)
    if parts is None:
        return None
    return bucket(column, int(parts[2])) if parts[1] == BUCKET else truncate(column, int(parts[2]))


def bucket(column: pa.Array, count: int) -> pa.Array:
    """The number of each value's bucket, from 0 to `count` - 1; nulls stay nulls."""
    numbers = (hashes(column) & SIGN) % count
    return pa.array(numbers.astype(np.int32), mask=np.asarray(column.is_null()))


def hashes(column: pa.Array) -> NDArray[np.int32]:
    """The 32-bit Murmur3 hash of each value; undefined for nulls."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    if pa.types.is_integer(column.type):
        return _of_longs(column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64))
    import mmh3  # noqa: PLC0415 - a dependency of PyIceberg, which other tables do without

    if pa.types.is_decimal(kind):
        scale = kind.scale
        return _of_each(column, lambda value: mmh3.hash(_smallest(_unscaled(value, scale))), np.int32)
    return _of_each(column.cast(pa.binary()), mmh3.hash, np.int32)


def truncate(column: pa.Array, width: int) -> pa.Array:
    """Numbers rounded down to a multiple of `width` (of their unscaled value), texts cut to `width` characters."""
    kind = column.type
    if pa.types.is_string(kind):
        found: pa.Array = pc.utf8_slice_codeunits(column, 0, width)
        return found
    if pa.types.is_integer(kind):  # wraps below the least number, as in Java
        numbers = column.fill_null(0).to_numpy(zero_copy_only=False)
        return pa.array(numbers - numbers % numbers.dtype.type(width), kind, mask=np.asarray(column.is_null()))

    def cut(value: Decimal) -> Decimal:
        unscaled = _unscaled(value, kind.scale)
        sign, digits, _ = Decimal(unscaled - unscaled % width).as_tuple()
        return Decimal((sign, digits, -kind.scale))

    return pa.array([None if value is None else cut(value) for value in column.to_pylist()], kind)


def _of_longs(values: NDArray[np.int64]) -> NDArray[np.int32]:
    """Murmur3 of the eight bytes of each number, least byte first."""
    words = values.view(np.uint64)
    found = np.zeros(len(values), np.uint32)
    for word in (words, words >> np.uint64(32)):
        part = (word & np.uint64(0xFFFFFFFF)).astype(np.uint32) * np.uint32(0xCC9E2D51)
        found ^= _turned(part, 15) * np.uint32(0x1B873593)
        found = _turned(found, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    found ^= np.uint32(8)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        found = (found ^ (found >> np.uint32(shift))) * np.uint32(factor)
    return (found ^ (found >> np.uint32(16))).view(np.int32)


def _turned(words: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))


def _of_each(column: pa.Array, call: Callable[[Any], int], kind: Any) -> NDArray[np.int32]:
    """The results for each distinct value; 0 for nulls."""
    encoded = column.dictionary_encode()
    results = np.array([0, *(call(value) for value in encoded.dictionary.to_pylist())], kind)
    found: NDArray[np.int32] = results[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False) + 1]
    return found


def _unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    number: int = int("".join(map(str, digits))) * 10 ** (int(exponent) + scale)
    return -number if sign else number


def _smallest(number: int) -> bytes:
    """The shortest two's complement, greatest byte first."""
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, signed=True)
