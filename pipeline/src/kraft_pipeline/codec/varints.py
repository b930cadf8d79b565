"""Variable-length integers of many records at once: seven bits a byte, low bits first, signed ones zig-zag encoded."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kraft_pipeline.codec.errors import CorruptBatch

Bytes: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.int64]

MAX_BYTES = 10
"""Of a 64-bit number."""


def read_raw(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The unsigned numbers at the positions `at` (bit patterns of 64 bits) and the positions after them.

    A position past the end reads the last byte: whoever uses what comes back must check that it lies in its record.
    Most numbers have one or two bytes: those are decoded for all at once, longer ones one by one byte for fewer and
    fewer.
    """
    first = data.take(at, mode="clip")
    value = first.astype(np.int64)
    after = at + 1
    more = first > 0x7F
    if not more.any():
        return value, after
    second = data.take(after, mode="clip")
    value &= 0x7F
    value += ((second & 0x7F).astype(np.int64) << 7) * more
    after += more
    more &= second > 0x7F
    left = np.flatnonzero(more)
    for shift in range(14, 7 * MAX_BYTES, 7):
        if not left.size:
            return value, after
        byte = data.take(after[left], mode="clip")
        value[left] |= (byte & 0x7F).astype(np.int64) << shift
        after[left] += 1
        left = left[byte > 0x7F]
    if left.size:
        raise CorruptBatch(f"varint at byte {int(at[left[0]])} has more than {MAX_BYTES} bytes")
    return value, after


def read(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The signed numbers at the positions `at` and the positions after them; see `read_raw`."""
    raw, after = read_raw(data, at)
    bits = raw.view(np.uint64)
    return ((bits >> np.uint64(1)) ^ (np.uint64(0) - (bits & np.uint64(1)))).view(np.int64), after


def sizes(values: Ints) -> Ints:
    """How many bytes each of the signed numbers takes."""
    bits = zigzag(values)
    size = np.ones(len(values), np.int64)
    for limit in range(7, 7 * MAX_BYTES, 7):
        longer = bits >> np.uint64(limit) != 0
        if not longer.any():
            break
        size += longer
    return size


def zigzag(values: Ints) -> NDArray[np.uint64]:
    """The unsigned numbers that stand for signed ones: small for small magnitudes."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def write(values: Ints, widths: Ints, out: NDArray[np.uint8]) -> None:
    """Put each signed number into its row of `out`, from the left; `widths` are what `sizes` told of them."""
    bits = zigzag(values)
    for place in range(out.shape[1]):
        byte = (bits >> np.uint64(7 * place)).astype(np.uint8)
        out[:, place] = np.where(widths > place + 1, byte | 0x80, byte & 0x7F)
