"""Variable-length integers of many records at once: seven bits per byte, low bits first; signed numbers are zig-zag
encoded."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from kraft_pipeline.codec.errors import CorruptBatch

Bytes: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.int64]

MAX_BYTES = 10
"""Maximum bytes of a 64-bit number."""


def read_raw(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The unsigned numbers at the positions `at` (bit patterns of 64 bits) and the positions after them.

    A position past the end reads the last byte. The caller must check that the number is inside its record.
    Most numbers have one or two bytes, which are decoded for all numbers at once. Further bytes are decoded only for
    the numbers that have them.
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
    """The encoded size of each signed number, in bytes."""
    bits = zigzag(values)
    size = np.ones(len(values), np.int64)
    for limit in range(7, 7 * MAX_BYTES, 7):
        longer = bits >> np.uint64(limit) != 0
        if not longer.any():
            break
        size += longer
    return size


def zigzag(values: Ints) -> NDArray[np.uint64]:
    """Zig-zag encode signed numbers: small magnitudes become small unsigned numbers."""
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def write(values: Ints, widths: Ints, out: NDArray[np.uint8]) -> None:
    """Write each signed number into its row of `out`, from the left; `widths` are the results of `sizes`."""
    bits = zigzag(values)
    for place in range(out.shape[1]):
        byte = (bits >> np.uint64(7 * place)).astype(np.uint8)
        out[:, place] = np.where(widths > place + 1, byte | 0x80, byte & 0x7F)
