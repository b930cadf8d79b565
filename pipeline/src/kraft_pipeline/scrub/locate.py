"""Finds the wrong bits of a damaged batch."""

from __future__ import annotations

from typing import Final

import numpy as np

from kraft_pipeline.codec.batches import CHECKED_FROM

BITS_MAX: Final = 32
"""If more bits differ, bytes were overwritten rather than bits flipped."""
SEARCH_BYTES_MAX: Final = 4 * 1024 * 1024
"""Maximum bytes of a batch for a search of a single flipped bit by the CRC. The search takes 0.1 µs per bit."""
_POLYNOMIAL: Final = 0x82F63B78
_CRC_POSITION: Final = 17


def differing_bits(damaged: bytes, healthy: bytes, position: int) -> list[tuple[int, int]] | None:
    """(byte in the file, bit) of all differing bits; None for too many bits, or if the lengths differ."""
    if len(damaged) != len(healthy):
        return None
    both = np.frombuffer(damaged, np.uint8) ^ np.frombuffer(healthy, np.uint8)
    places = np.flatnonzero(both)
    if int(np.unpackbits(both[places]).sum()) > BITS_MAX:
        return None
    return [(position + int(at), bit) for at in places for bit in range(8) if both[at] >> bit & 1]


def flipped_bit(position: int, length: int, stored: int, computed: int) -> list[tuple[int, int]]:
    """The single bit that makes a batch's CRC `computed` instead of `stored` if it is flipped; None if no single bit
    does.

    CRCs are linear: the effect of a flipped bit depends only on the number of bits after it. The search follows this
    effect from the last bit to the first.
    """
    trace = stored ^ computed
    body = length - CHECKED_FROM
    if body > SEARCH_BYTES_MAX:
        return []
    if trace & (trace - 1) == 0:  # a bit of the CRC itself
        bit = trace.bit_length() - 1
        return [(position + _CRC_POSITION + 3 - bit // 8, bit % 8)]
    change = _POLYNOMIAL
    for after in range(8 * body):
        if change == trace:
            return [(position + length - 1 - after // 8, 7 - after % 8)]
        change = change >> 1 ^ (_POLYNOMIAL if change & 1 else 0)
    return []
