"""Positions of a batch's records are read piece by piece, equal those from decoding, and are always bounded."""

from __future__ import annotations

import tracemalloc
from itertools import islice

import pytest

from kraft_protocol.records import places as module
from kraft_protocol.records.batch import build_batch, iter_records, seal
from kraft_protocol.records.compression import Compression, compress
from kraft_protocol.records.errors import CorruptBatch
from kraft_protocol.records.places import Place, places

RECORD = b"\x0c\x00\x00\x00\x01\x00\x00"
"""The smallest record: no key, an empty value, offset delta 0."""


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("size", [0, 10, 20_000])
def test_places_match_the_decoded_records(codec: Compression, size: int) -> None:
    batch = build_batch([(b"k", b"v" * size)] * 50, timestamp=1000, base_offset=7, compression=codec)
    expected = [Place(record.timestamp, record.offset) for record in iter_records(batch)]
    assert list(places(batch)) == expected


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP, Compression.ZSTD])
@pytest.mark.parametrize("section", [RECORD * 3 + b"\x00", RECORD * 2, RECORD * 2 + b"\x0c"])
def test_damaged_batches_are_refused(codec: Compression, section: bytes) -> None:
    fields = (codec, 2, 1000, 1000, -1, -1, -1, 3)
    with pytest.raises(CorruptBatch):
        list(places(seal(0, -1, fields, compress(codec, section))))


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.LZ4, Compression.ZSTD])
def test_a_bomb_is_not_read_whole(codec: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECORDS_MAX", 10_000)
    monkeypatch.setattr(module, "PLAIN_MAX", 1 << 20)
    count = 3_000_000
    batch = seal(50, -1, (codec, count - 1, 1000, 2000, -1, -1, -1, count), compress(codec, RECORD * count))
    tracemalloc.start()
    found = list(places(batch))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) <= 20_000
    assert found[-1] == Place(2000, 51), "the rest counts as one record, where it begins"
    assert peak < 8 << 20


def test_reading_stops_with_the_caller() -> None:
    batch = build_batch([(None, b"v" * 1000)] * 500, timestamp=1, compression=Compression.GZIP)
    assert [place.offset for place in islice(places(batch), 3)] == [0, 1, 2]
