"""Keys and places of records, found without decoding them, are those that decoding finds."""

from __future__ import annotations

import random

import pytest

from kraft_node.records.batch import NewRecord, build_batch, iter_records, read_header, records_section, thin_batch
from kraft_node.records.errors import CorruptBatch
from kraft_node.records.keys import LONG_KEY, note_keys, places


def random_batch(rng: random.Random) -> bytes:
    records = []
    for _ in range(rng.randint(1, 200)):
        key = None if rng.random() < 0.1 else rng.randbytes(rng.choice((0, 1, 8, LONG_KEY, LONG_KEY + 1, 200)))
        value = None if rng.random() < 0.1 else rng.randbytes(rng.choice((0, 5, 63, 64, 9000)))
        headers = (("h", b"x"),) if rng.random() < 0.2 else ()
        records.append(NewRecord(key, value, 1_700_000_000_000 + rng.randrange(-70_000, 70_000), headers))
    return build_batch(records, base_offset=rng.choice((0, 7, 1 << 40)), compression=rng.choice((0, 1, 3, 4)))


@pytest.mark.parametrize("seed", range(40))
def test_they_are_what_decoding_finds(seed: int) -> None:
    raw = random_batch(random.Random(seed))
    header = read_header(raw)
    data = bytes(records_section(raw, header))
    records = list(iter_records(raw))
    offsets: dict[bytes, int] = {}
    has_tombstone, long_keys = note_keys(data, header, offsets)
    keyed = [record for record in records if record.key is not None]
    assert offsets == {record.key: record.offset for record in keyed}
    assert has_tombstone == any(record.value is None for record in keyed)
    assert long_keys == [record.key for record in keyed if record.key is not None and len(record.key) > LONG_KEY]
    found = places(data, header)
    assert [place.key for place in found] == [record.key for record in records]
    assert [header.base_offset + place.offset_delta for place in found] == [record.offset for record in records]
    assert [header.base_timestamp + place.timestamp_delta for place in found] == [r.timestamp for r in records]
    assert [place.is_tombstone for place in found if place.key is not None] == [r.value is None for r in keyed]


@pytest.mark.parametrize("seed", range(10))
def test_a_thinned_batch_has_the_records_that_were_kept(seed: int) -> None:
    rng = random.Random(seed)
    raw = random_batch(rng)
    header = read_header(raw)
    data = bytes(records_section(raw, header))
    kept = [place for place in places(data, header) if rng.random() < 0.5] or places(data, header)[:1]
    latest = header.base_timestamp + max(place.timestamp_delta for place in kept)
    thin = thin_batch(header, b"".join(data[place.start : place.end] for place in kept), len(kept), latest)
    wanted = {header.base_offset + place.offset_delta for place in kept}
    assert list(iter_records(thin)) == [record for record in iter_records(raw) if record.offset in wanted]
    assert read_header(thin).last_offset == header.last_offset


def test_records_that_are_cut_off_are_refused() -> None:
    raw = build_batch([(b"k", b"v" * 50)] * 3)
    header = read_header(raw)
    data = bytes(records_section(raw, header))
    for cut in range(1, len(data)):
        with pytest.raises(CorruptBatch):
            note_keys(data[:cut], header, {})
        with pytest.raises(CorruptBatch):
            places(data[:cut], header)
