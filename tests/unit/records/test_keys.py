"""Keys and places of records, found without decoding them, are those that decoding finds."""

from __future__ import annotations

import random

import pytest

from kraft_node.records.batch import (
    NewRecord,
    build_batch,
    check_batch,
    empty_batch,
    iter_records,
    read_header,
    records_section,
    thin_batch,
)
from kraft_node.records.errors import CorruptBatch
from kraft_node.records.keys import (
    LONG_KEY,
    TOMBSTONE,
    cut,
    cut_and_shift,
    is_tombstone,
    note_keys,
    read_keys,
    short_key,
)


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
    keys, starts, has_tombstone = read_keys(data, header.count)
    assert keys == [None if record.key is None else short_key(record.key) for record in records]
    assert has_tombstone == any(record.key is not None and record.value is None for record in records)
    ends = [*starts[1:], len(data)]
    alone = [cut(data, [start]) for start in starts]
    assert [one for one, _ in alone] == [data[start:end] for start, end in zip(starts, ends, strict=True)]
    assert [header.base_timestamp + delta for _, delta in alone] == [record.timestamp for record in records]
    is_gone = [record.key is not None and record.value is None for record in records]
    assert [is_tombstone(data, start) for start in starts] == is_gone
    places: dict[bytes, int] = {}
    note_keys(data, header.count, places, 1 << 40)
    wanted = zip(keys, starts, is_gone, strict=True)
    assert places == {key: (1 << 40) + start + TOMBSTONE * gone for key, start, gone in wanted if key is not None}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("horizon", [None, 1_800_000_000_000])
def test_a_thinned_batch_has_the_records_that_were_kept(seed: int, horizon: int | None) -> None:
    rng = random.Random(seed)
    raw = random_batch(rng)
    header = read_header(raw)
    data = bytes(records_section(raw, header))
    records = list(iter_records(raw))
    _, starts, _ = read_keys(data, header.count)
    kept = [number for number in range(header.count) if rng.random() < 0.5] or [0]
    some = [starts[number] for number in kept]
    base = header.base_timestamp if horizon is None else horizon
    section, latest = cut(data, some) if horizon is None else cut_and_shift(data, some, header.base_timestamp - horizon)
    thin = thin_batch(header, section, len(kept), base + latest, delete_horizon_ms=horizon)
    assert list(iter_records(thin)) == [records[number] for number in kept]
    changed = check_batch(thin)
    assert changed.last_offset == header.last_offset
    assert changed.max_timestamp == max(records[number].timestamp for number in kept)
    assert changed.delete_horizon_ms == horizon


def test_an_empty_batch_keeps_offsets_producer_and_sequence() -> None:
    raw = build_batch(
        [(b"k", b"v")] * 3, base_offset=7, producer_id=5, producer_epoch=2, base_sequence=9, compression=1, timestamp=8
    )
    before, after = read_header(raw), check_batch(empty_batch(read_header(raw)))
    assert (after.base_offset, after.last_offset, after.count) == (7, 9, 0)
    assert (after.producer_id, after.producer_epoch, after.last_sequence) == (5, 2, before.last_sequence)
    assert (after.compression, after.base_timestamp, after.max_timestamp) == (0, -1, 8)


def test_records_that_are_cut_off_are_refused() -> None:
    raw = build_batch([(b"k", b"v" * 50)] * 3)
    header = read_header(raw)
    data = bytes(records_section(raw, header))
    for cut_at in range(1, len(data)):
        with pytest.raises(CorruptBatch):
            note_keys(data[:cut_at], header.count, {}, 0)
        with pytest.raises(CorruptBatch):
            read_keys(data[:cut_at], header.count)


@pytest.mark.parametrize("damage", [b"\x81\x80\x01", b"\x06\x00\x00\x00\x81\x80\x01", b"\xff" * 30])
def test_lengths_that_cannot_be_are_refused(damage: bytes) -> None:
    for count in (1, 2, 2**31 - 1):
        with pytest.raises(CorruptBatch):
            note_keys(damage + bytes(100), count, {}, 0)
        with pytest.raises(CorruptBatch):
            read_keys(damage + bytes(100), count)
