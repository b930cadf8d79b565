"""The codecs of record batches, by their numbers in the attributes (KIP-110 added zstd).

Compressed data comes from the network, so every decompression limits its output.

Snappy data has the framing of Java's xerial stream (magic, two versions, then length-prefixed raw blocks). Bare snappy,
which some C clients send, is read, too. LZ4 is the standard frame format with independent blocks: Kafka's Java reader
refuses linked blocks.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from enum import IntEnum
from functools import cache
from struct import Struct
from typing import Any, Final

from kraft_protocol.buffers import Buffer
from kraft_protocol.records.errors import CorruptBatch, DecompressionLimit


class Compression(IntEnum):
    """Codec numbers, the low three bits of a batch's attributes; names as in `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODEC_NAMES: Final = {"none": 0, "uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
DEFAULT_LIMIT: Final = 512 * 1024 * 1024
"""Default limit of a batch's decompressed size, in bytes: five times the largest sensible request."""

GZIP_LEVEL_DEFAULT: Final = 6
LZ4_LEVEL_DEFAULT: Final = 9
ZSTD_LEVEL_DEFAULT: Final = 3
_LZ4_FAST: Final = 0
_GZIP_WBITS: Final = 31
_CHUNK: Final = 64 * 1024
"""Compressed bytes per call of zlib and zstd: they copy their unused input each time they stop."""
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_LENGTH: Final = Struct(">i")


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` with `codec`; `level` as in the topic configuration, None for Kafka's default."""
    if codec == Compression.NONE:
        return bytes(data)
    if codec == Compression.GZIP:
        gzip_level = GZIP_LEVEL_DEFAULT if level is None or level < 0 else level
        return bytes(_cramjam().gzip.compress(data, level=gzip_level))
    if codec == Compression.SNAPPY:
        return _compress_xerial(data)
    if codec == Compression.LZ4:
        frames = _lz4_frames()
        return bytes(
            frames.compress(
                data,
                block_linked=False,
                store_size=False,
                block_size=frames.BLOCKSIZE_MAX64KB,
                # As Kafka's clients and brokers do, which take the fast compressor for their default level.
                compression_level=_LZ4_FAST if level is None or level == LZ4_LEVEL_DEFAULT else level,
            )
        )
    if codec == Compression.ZSTD:
        return bytes(_zstd().compress(data, ZSTD_LEVEL_DEFAULT if level is None else level))
    raise CorruptBatch(f"unknown compression codec {codec}")


def decompress(codec: int, data: Buffer, limit: int = DEFAULT_LIMIT) -> bytes:
    """Inverse of `compress`.

    Raises CorruptBatch if the data is damaged, DecompressionLimit if the result exceeds `limit` bytes.
    """
    try:
        if codec == Compression.NONE:
            return bytes(data)
        if codec == Compression.GZIP:
            return _decompress_gzip(data, limit)
        if codec == Compression.SNAPPY:
            return _decompress_snappy(data, limit)
        if codec == Compression.LZ4:
            return _decompress_lz4(data, limit)
        if codec == Compression.ZSTD:
            return _joined(_zstd_pieces(data, limit, limit + 1))
    except _faults(codec) as e:
        raise CorruptBatch(f"{Compression(codec).name.lower()} data is damaged: {e}") from None
    raise CorruptBatch(f"unknown compression codec {codec}")


def decompress_pieces(codec: int, data: Buffer, limit: int, piece: int) -> Iterator[Buffer]:
    """The result of `decompress`, in pieces of at most `piece` bytes; a block of snappy may be longer.

    Raises like `decompress`, after the data before the fault was yielded.
    """
    try:
        if codec == Compression.GZIP:
            yield from _gzip_pieces(data, limit, piece)
        elif codec == Compression.LZ4:
            yield from _lz4_pieces(data, limit, piece)
        elif codec == Compression.SNAPPY:
            yield from _snappy_blocks(data, limit)
        elif codec == Compression.ZSTD:
            yield from _zstd_pieces(data, limit, piece)
        else:
            yield decompress(codec, data, limit)
    except _faults(codec) as e:
        raise CorruptBatch(f"{Compression(codec).name.lower()} data is damaged: {e}") from None


def _too_long(codec: Compression, limit: int) -> DecompressionLimit:
    return DecompressionLimit(f"{codec.name.lower()} data decompresses to more than {limit} bytes")


def _decompress_gzip(data: Buffer, limit: int) -> bytes:
    return _joined(_gzip_pieces(data, limit, limit + 1))


def _gzip_pieces(data: Buffer, limit: int, piece: int) -> Iterator[bytes]:
    view = memoryview(data)
    position = total = 0
    while position < len(view):
        stream = zlib.decompressobj(_GZIP_WBITS)
        while not stream.eof:
            chunk: Buffer = stream.unconsumed_tail
            if not chunk:
                chunk = view[position : position + _CHUNK]
                position += len(chunk)
            part = stream.decompress(chunk, piece)
            if not part and not chunk and not stream.eof:
                raise CorruptBatch("gzip data is cut off")
            total += len(part)
            if total > limit:
                raise _too_long(Compression.GZIP, limit)
            yield part
        position -= len(stream.unused_data)


def _decompress_lz4(data: Buffer, limit: int) -> bytes:
    return _joined(_lz4_pieces(data, limit, limit + 1))


def _lz4_pieces(data: Buffer, limit: int, piece: int) -> Iterator[bytes]:
    stream = _lz4_frames().LZ4FrameDecompressor()
    total = 0
    rest: Buffer = data
    while not stream.eof:
        part: bytes = stream.decompress(rest, max_length=piece)
        rest = b""  # the decompressor keeps unused input
        if not part and not stream.eof:
            raise CorruptBatch("lz4 data is cut off")
        total += len(part)
        if total > limit:
            raise _too_long(Compression.LZ4, limit)
        yield part


def _joined(pieces: Iterator[bytes]) -> bytes:
    parts = list(pieces)
    return parts[0] if len(parts) == 1 else b"".join(parts)


# Libraries are loaded with the first batch that needs them: each takes a megabyte of an idle node.


@cache
def _cramjam() -> Any:
    """The library that compresses gzip, and does all of snappy."""
    import cramjam  # noqa: PLC0415

    return cramjam


@cache
def _lz4_frames() -> Any:
    """The library for lz4."""
    import lz4.frame  # noqa: PLC0415

    return lz4.frame


@cache
def _zstd() -> Any:
    """The library for zstd (PEP 784)."""
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415
    else:
        from backports import zstd  # noqa: PLC0415
    return zstd


def _faults(codec: int) -> tuple[type[Exception], ...]:
    """What the codec's library raises for damaged data."""
    if codec == Compression.ZSTD:
        return (_zstd().ZstdError,)
    if codec == Compression.SNAPPY:
        return (_cramjam().DecompressionError,)
    return (zlib.error, RuntimeError, EOFError)


def _zstd_pieces(data: Buffer, limit: int, piece: int) -> Iterator[bytes]:
    """The decompressed pieces of one frame or several."""
    view = memoryview(data)
    position = total = 0
    while True:
        stream = _zstd().ZstdDecompressor()
        while not stream.eof:
            chunk: Buffer = b""  # it keeps the input that it has not used
            if stream.needs_input:
                chunk = view[position : position + _CHUNK]
                position += len(chunk)
                if not chunk:
                    raise CorruptBatch("zstd data is cut off")
            part: bytes = stream.decompress(chunk, piece)
            total += len(part)
            if total > limit:
                raise _too_long(Compression.ZSTD, limit)
            yield part
        position -= len(stream.unused_data)
        if position == len(view):
            return


def _raw_snappy(data: Buffer, limit: int) -> bytes:
    if _cramjam().snappy.decompress_raw_len(data) > limit:
        raise _too_long(Compression.SNAPPY, limit)
    return bytes(_cramjam().snappy.decompress_raw(data))


def _decompress_snappy(data: Buffer, limit: int) -> bytes:
    return _joined(_snappy_blocks(data, limit))


def _snappy_blocks(data: Buffer, limit: int) -> Iterator[bytes]:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield _raw_snappy(view, limit)
        return
    position, end, total = len(_XERIAL_HEADER), len(view), 0
    if end < position:
        raise CorruptBatch("snappy header is cut off")
    while position < end:
        if end - position < _LENGTH.size:
            raise CorruptBatch("snappy block length is cut off")
        (length,) = _LENGTH.unpack_from(view, position)
        position += _LENGTH.size
        if not 0 <= length <= end - position:
            raise CorruptBatch(f"snappy block of {length} bytes, {end - position} are left")
        part = _raw_snappy(view[position : position + length], limit - total)
        total += len(part)
        yield part
        position += length


def _compress_xerial(data: Buffer) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    view = memoryview(data)
    for position in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(_cramjam().snappy.compress_raw(view[position : position + _XERIAL_BLOCK_BYTES]))
        out += _LENGTH.pack(len(block))
        out += block
    return bytes(out)
