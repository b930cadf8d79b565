"""Keys and positions found without decoding equal those of decoded records."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kraft_protocol.records import keys
from kraft_protocol.records.batch import (
    NewRecord,
    build_batch,
    check_batch,
    empty_batch,
    iter_records,
    read_header,
    records_section,
    thin_batch,
)
from kraft_protocol.records.errors import CorruptBatch
from kraft_protocol.records.keys import (
    LONG_KEY,
    TOMBSTONE,
    cut,
    cut_and_shift,
    is_tombstone,
    note_few,
    note_keys,
    note_one,
    read_keys,
    short_key,
)
from kraft_protocol.records.runs import run_at
from kraft_protocol.records.varint import read_varint


def random_batch(rng: random.Random) -> bytes:
    records = []
    for _ in range(rng.randint(1, 200)):
        key = None if rng.random() < 0.1 else rng.randbytes(rng.choice((0, 1, 8, LONG_KEY, LONG_KEY + 1, 200)))
        value = None if rng.random() < 0.1 else rng.randbytes(rng.choice((0, 5, 63, 64, 9000)))
        headers = (("h", b"x"),) if rng.random() < 0.2 else ()
        records.append(NewRecord(key, value, 1_700_000_000_000 + rng.randrange(-70_000, 70_000), headers))
    return build_batch(records, base_offset=rng.choice((0, 7, 1 << 40)), compression=rng.choice((0, 1, 3, 4)))


@pytest.mark.parametrize("seed", range(40))
def test_keys_equal_those_found_by_decoding(seed: int) -> None:
    raw = random_batch(random.Random(seed))
    header = read_header(raw)
    data = bytes(records_section(raw, header))
    records = list(iter_records(raw))
    found, starts, has_tombstone = read_keys(data, header.count)
    assert found == [None if record.key is None else short_key(record.key) for record in records]
    assert has_tombstone == any(record.key is not None and record.value is None for record in records)
    ends = [*starts[1:], len(data)]
    alone = [cut(data, [start]) for start in starts]
    assert [one for one, _ in alone] == [data[start:end] for start, end in zip(starts, ends, strict=True)]
    assert [header.base_timestamp + delta for _, delta in alone] == [record.timestamp for record in records]
    is_gone = [record.key is not None and record.value is None for record in records]
    assert [is_tombstone(data, start) for start in starts] == is_gone
    places: dict[bytes, int] = {}
    note_keys(data, header.count, places, 1 << 40)
    wanted = zip(found, starts, is_gone, strict=True)
    assert places == {key: (1 << 40) + start + TOMBSTONE * gone for key, start, gone in wanted if key is not None}


def alike_records(rng: random.Random) -> bytes:
    """The records of a batch, in runs of the same shape."""
    records: list[NewRecord] = []
    while len(records) < 300:
        key_size = rng.choice((None, 0, 3, 13, LONG_KEY, LONG_KEY + 1, 70, 200))
        value_size = rng.choice((None, 0, 1, 40, 100, 9000))
        jitter = rng.choice((1, 1, 100, 20_000))
        headers = (("h", b"x"),) if rng.random() < 0.2 else ()
        for _ in range(rng.choice((1, 5, 9, 30, 100))):
            value = None if value_size is None or rng.random() < 0.02 else rng.randbytes(value_size)
            key = None if key_size is None or rng.random() < 0.02 else rng.randbytes(key_size)
            records.append(NewRecord(key, value, 1_700_000_000_000 + rng.randrange(jitter), headers))
    raw = build_batch(records)
    return bytes(records_section(raw, read_header(raw)))


def found_by(data: bytes, count: int) -> object:
    """All results of the functions on the records."""
    places: dict[bytes, int] = {}
    try:
        note_keys(data, count, places, 1 << 40)
        return places, read_keys(data, count)
    except CorruptBatch as error:
        return str(error)


@pytest.mark.parametrize("seed", range(40))
def test_keys_found_in_runs_equal_those_found_in_a_loop(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    data = alike_records(rng)
    count = data_count(data)
    damaged = bytearray(data)
    for _ in range(3):
        damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    inputs = [(data, count), (data[: rng.randrange(len(data))], count), (data, count + 1), (data, count // 2)]
    inputs += [(bytes(damaged), count), (rng.randbytes(400), 20), (bytes(400), 57), (b"\x01" * 90, 40)]
    inputs += [(bytes([rng.randrange(256)]) * 200, 20) for _ in range(30)]
    by_runs = [found_by(*each) for each in inputs]
    monkeypatch.setattr(keys, "RUN_MIN", 1 << 40)
    assert [found_by(*each) for each in inputs] == by_runs


@pytest.mark.parametrize("seed", range(20))
def test_a_single_record_is_noted_like_many(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        key = None if rng.random() < 0.1 else rng.randbytes(rng.choice((0, 1, 8, LONG_KEY, LONG_KEY + 1, 63, 64, 200)))
        value = None if rng.random() < 0.2 else rng.randbytes(rng.choice((0, 5, 40, 60, 64, 8170, 8192, 40_000)))
        record = NewRecord(key, value, 1_700_000_000_000, (("h", b"x"),) if rng.random() < 0.2 else ())
        raw = build_batch([record], timestamp=1_700_000_000_000 - rng.choice((0, 0, 7, 70_000)))
        body = b"?" * 3 + bytes(records_section(raw, read_header(raw)))
        damaged = bytearray(body)
        damaged[rng.randrange(3, min(20, len(damaged)))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        for data in (body, bytes(damaged), body[: rng.randrange(3, len(body))]):
            assert noted_by(note_one, data) == noted_by(lambda d, p, o, b: note_few(d, p, 1, o, b), data)


def noted_by(note: Callable[[bytes, int, dict[bytes, int], int], int], data: bytes) -> object:
    places: dict[bytes, int] = {}
    try:
        return note(data, 3, places, 1 << 40), places
    except (IndexError, CorruptBatch) as error:
        return type(error)


def data_count(data: bytes) -> int:
    """The number of records that fill `data`."""
    position = count = 0
    while position < len(data):
        size, after = read_varint(data, position)
        position = after + size
        count += 1
    return count


def test_records_of_a_benchmark_make_runs() -> None:
    """Nearly all load has this shape; without runs each record costs an iteration."""
    raw = build_batch([(b"key-%09d" % number, bytes(100)) for number in range(160)], timestamp=1)
    data = bytes(records_section(raw, read_header(raw)))
    first = run_at(data, 0, 160)
    assert first is not None
    assert first.records == 64  # from here on an offset takes two bytes
    second = run_at(data, 64 * first.size, 96)
    assert second is not None
    assert second.records == 96
    assert list(second.keys(data))[-1] == b"key-000000159"


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("horizon", [None, 1_800_000_000_000])
def test_a_filtered_batch_contains_the_kept_records(seed: int, horizon: int | None) -> None:
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


def test_truncated_records_are_refused() -> None:
    raw = build_batch([(b"k", b"v" * 50)] * 3)
    header = read_header(raw)
    data = bytes(records_section(raw, header))
    for cut_at in range(1, len(data)):
        with pytest.raises(CorruptBatch):
            note_keys(data[:cut_at], header.count, {}, 0)
        with pytest.raises(CorruptBatch):
            read_keys(data[:cut_at], header.count)


@pytest.mark.parametrize("damage", [b"\x81\x80\x01", b"\x06\x00\x00\x00\x81\x80\x01", b"\xff" * 30])
def test_impossible_lengths_are_refused(damage: bytes) -> None:
    for count in (1, 2, 2**31 - 1):
        with pytest.raises(CorruptBatch):
            note_keys(damage + bytes(100), count, {}, 0)
        with pytest.raises(CorruptBatch):
            read_keys(damage + bytes(100), count)
