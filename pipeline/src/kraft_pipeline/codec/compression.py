"""The codecs of record batches, by their numbers in a batch's attributes (KIP-110 added zstd).

Snappy arrives as Java's xerial stream (a magic, two versions, then blocks, each after its length) or bare, from some C
clients. LZ4 is written in frames of independent blocks, the only form that Kafka's Java reader supports.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Final, TypeAlias

import cramjam
import lz4.frame

from kraft_pipeline.codec.errors import CorruptBatch, UnsupportedBatch

Buffer: TypeAlias = bytes | bytearray | memoryview

NAMES: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
BATCH_BYTES_MAX: Final = 512 * 1024 * 1024
"""Maximum decompressed bytes of a batch: many times a broker's limit, far less than a decompression bomb."""

_GZIP_WBITS: Final = 31
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_BLOCK_LENGTH: Final = Struct(">i")
_ZSTD_FIRST_GUESS: Final = 64 * 1024


def compress(codec: int, data: Buffer) -> Buffer:
    """Compress `data` at the codec's usual level."""
    if codec == 0:
        return data
    if codec == 1:
        return bytes(cramjam.gzip.compress(data, level=6))
    if codec == 2:
        return _xerial(memoryview(data))
    if codec == 3:
        return bytes(
            lz4.frame.compress(data, block_linked=False, store_size=False, block_size=lz4.frame.BLOCKSIZE_MAX64KB)
        )
    if codec == 4:
        return bytes(cramjam.zstd.compress(data, level=3))
    raise UnsupportedBatch(f"unknown compression codec {codec}")


def decompress(codec: int, data: Buffer, limit: int = BATCH_BYTES_MAX) -> Buffer:
    """Inverse of `compress`. Raises CorruptBatch if `data` is damaged or decompresses to more than `limit` bytes."""
    try:
        if codec == 1:
            return _gunzip(data, limit)
        if codec == 2:
            return _unsnappy(memoryview(data), limit)
        if codec == 3:
            return _unlz4(data, limit)
        if codec == 4:
            return _unzstd(data, limit)
    except (zlib.error, cramjam.DecompressionError, RuntimeError, EOFError) as e:
        raise CorruptBatch(f"compressed data is damaged: {e}") from None
    raise UnsupportedBatch(f"unknown compression codec {codec}")


def _too_long(limit: int) -> CorruptBatch:
    return CorruptBatch(f"a batch decompresses to more than {limit} bytes")


def _gunzip(data: Buffer, limit: int) -> bytes:
    parts: list[bytes] = []
    total = 0
    rest: Buffer = data
    while rest:
        stream = zlib.decompressobj(_GZIP_WBITS)
        part = stream.decompress(rest, limit - total + 1)
        total += len(part)
        if total > limit:
            raise _too_long(limit)
        if not stream.eof:
            raise CorruptBatch("gzip data is cut off")
        parts.append(part)
        rest = stream.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unlz4(data: Buffer, limit: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    part: bytes = stream.decompress(data, max_length=limit + 1)
    if len(part) > limit:
        raise _too_long(limit)
    if not stream.eof:
        raise CorruptBatch("lz4 data is cut off")
    return part


def _unzstd(data: Buffer, limit: int) -> Buffer:
    # Java's streams have no content size, so buffer sizes are tried; a bomb costs at most `limit`.
    room = min(limit, max(_ZSTD_FIRST_GUESS, 8 * len(data)))
    while True:
        out = bytearray(room)
        try:
            length = cramjam.zstd.decompress_into(data, out)
        except cramjam.DecompressionError as e:
            if "write whole buffer" not in str(e):
                raise
            if room >= limit:
                raise _too_long(limit) from None
            room = min(limit, room * 4)
        else:
            return memoryview(out)[:length]


def _raw_unsnappy(data: memoryview, limit: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > limit:
        raise _too_long(limit)
    return bytes(cramjam.snappy.decompress_raw(data))


def _unsnappy(data: memoryview, limit: int) -> bytes:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _raw_unsnappy(data, limit)
    at, end, total = len(_XERIAL_HEADER), len(data), 0
    parts: list[bytes] = []
    while at != end:
        if end - at < _BLOCK_LENGTH.size:
            raise CorruptBatch("snappy block length is cut off")
        (length,) = _BLOCK_LENGTH.unpack_from(data, at)
        at += _BLOCK_LENGTH.size
        if not 0 <= length <= end - at:
            raise CorruptBatch(f"snappy block of {length} bytes, {end - at} are left")
        part = _raw_unsnappy(data[at : at + length], limit - total)
        total += len(part)
        parts.append(part)
        at += length
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _xerial(data: memoryview) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for at in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK_BYTES]))
        out += _BLOCK_LENGTH.pack(len(block))
        out += block
    return bytes(out)
