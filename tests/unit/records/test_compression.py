"""Codecs: round trips, damage, bombs, and the framings that Java needs."""

from __future__ import annotations

import contextlib
import gzip
from types import SimpleNamespace
from typing import Any

import cramjam
import pytest

from kraft_protocol.records import compression
from kraft_protocol.records.compression import Compression, compress, decompress, decompress_pieces
from kraft_protocol.records.errors import CorruptBatch, DecompressionLimit

SAMPLES = [b"", b"x", b"abc" * 100_000, bytes(range(256)) * 300]
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("data", SAMPLES)
def test_data_survives_a_round_trip_in_every_codec(codec: Compression, data: bytes) -> None:
    assert decompress(codec, memoryview(compress(codec, data))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_stops_at_the_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(10_000_000))
    with pytest.raises(DecompressionLimit):
        decompress(codec, bomb, 1_000_000)
    assert len(decompress(codec, bomb, 10_000_000)) == 10_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_truncated_and_damaged_data_raise_the_same_error(codec: Compression) -> None:
    data = compress(codec, b"hello, world " * 1000)
    for cut in range(1, len(data)):
        with pytest.raises(CorruptBatch):
            # Xerial blocks may end early; only the reader of the records notices.
            if len(decompress(codec, data[:cut])) != 13_000:
                raise CorruptBatch("short")
    for i in range(len(data)):
        damaged = bytearray(data)
        damaged[i] ^= 0x55
        with contextlib.suppress(CorruptBatch):
            decompress(codec, damaged, 1_000_000)


def test_bare_snappy_and_many_gzip_members_are_read() -> None:
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(b"abc" * 50))) == b"abc" * 50
    assert decompress(Compression.GZIP, gzip.compress(b"a") + gzip.compress(b"b")) == b"ab"


def test_many_frames_of_zstd_are_read() -> None:
    frames = [compress(Compression.ZSTD, data) for data in (b"a", b"", b"b" * 100_000)]
    assert decompress(Compression.ZSTD, b"".join(frames)) == b"a" + b"b" * 100_000
    with pytest.raises(CorruptBatch):
        decompress(Compression.ZSTD, frames[0] + b"no frame")


def test_many_frames_of_zstd_are_not_copied_for_each_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each frame, zstd copies the input that follows: a megabyte of empty frames would cost gigabytes."""
    library, given = compression._zstd(), []

    class Counted:
        def __init__(self) -> None:
            self._real = library.ZstdDecompressor()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def decompress(self, data: Any, most: int) -> bytes:
            given.append(len(data))
            return bytes(self._real.decompress(data, most))

    monkeypatch.setattr(compression, "_zstd", lambda: SimpleNamespace(ZstdDecompressor=Counted))
    empty = library.compress(b"")
    assert decompress(Compression.ZSTD, empty * 20_000) == b""
    assert max(given) <= 65536


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_a_bomb_is_decompressed_in_pieces(codec: Compression) -> None:
    """A frame of zstd was decompressed as a whole, twice: 32 MiB took some 20 ms on the loop."""
    found = [len(piece) for piece in decompress_pieces(codec, compress(codec, bytes(10_000_000)), 1 << 25, 65536)]
    assert max(found) <= 65536
    assert sum(found) == 10_000_000


def test_lz4_blocks_are_independent() -> None:
    # Bit 5 of the frame's FLG byte; Kafka's reader throws if it is 0.
    assert compress(Compression.LZ4, b"a" * 200_000)[4] & 0x20


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="codec 5"):
        decompress(5, b"")
    with pytest.raises(CorruptBatch, match="codec 7"):
        compress(7, b"")


def test_lz4s_default_level_is_fast_as_in_kafka() -> None:
    """Kafka's block stream takes the fast compressor for its default level 9, and the thorough one for all others."""
    data = b"".join(b"%d, " % (number * 7919 % 1000) for number in range(3000))
    fast = compress(Compression.LZ4, data)
    assert compress(Compression.LZ4, data, 9) == fast
    assert len(compress(Compression.LZ4, data, 10)) < len(fast)
    assert len(compress(Compression.LZ4, data, 8)) < len(fast)
