"""Partitions of keys, like Java's producer: murmur2 modulo the number of partitions, for all keys at once."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kraft_pipeline.codec.varints import Ints

_SEED: Final = 0x9747B28C
_M: Final = np.uint32(0x5BD1E995)


def murmur2(keys: pa.Array) -> NDArray[np.uint32]:
    """The murmur2 hash of each byte string; undefined for null."""
    bounds = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    raw = keys.buffers()[2]
    data = np.frombuffer(raw, np.uint8) if raw is not None and raw.size else np.zeros(1, np.uint8)
    starts, lengths = bounds[:-1], np.diff(bounds)
    found = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    left = np.flatnonzero(lengths >= 4)
    for word in range(int(lengths.max(initial=0)) // 4):
        left = left[lengths[left] >= 4 * word + 4]
        at = starts[left] + 4 * word
        k = sum((data[at + byte].astype(np.uint32) << np.uint32(8 * byte) for byte in range(4)), np.uint32(0))
        k *= _M
        k ^= k >> np.uint32(24)
        k *= _M
        found[left] = (found[left] * _M) ^ k
    rest = lengths % 4
    tails = starts + lengths - rest
    for byte in (2, 1, 0):
        with_byte = np.flatnonzero(rest > byte)
        found[with_byte] ^= data[tails[with_byte] + byte].astype(np.uint32) << np.uint32(8 * byte)
    with_byte = np.flatnonzero(rest)
    found[with_byte] *= _M
    found ^= found >> np.uint32(13)
    found *= _M
    found ^= found >> np.uint32(15)
    return found


def of_keys(keys: pa.Array, partitions: int, otherwise: int) -> Ints:
    """The partition of each key; `otherwise` for null."""
    if keys.null_count == len(keys):
        return np.full(len(keys), otherwise, np.int64)
    hashed = (murmur2(keys) & np.uint32(0x7FFFFFFF)).astype(np.int64) % partitions
    if keys.null_count:
        hashed[keys.is_null().to_numpy(zero_copy_only=False)] = otherwise
    return hashed
