"""Outlines of records agree with the records themselves, valid and damaged."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kraft_protocol.buffers import Buffer
from kraft_protocol.records.batch import NewRecord, build_batch, iter_records, read_header, records_section
from kraft_protocol.records.errors import CorruptBatch, VarintTooLong
from kraft_protocol.records.shapes import Columns, bounds_hold, check_filled, read_columns, read_shapes

Row = tuple[int, int, int, int]
"""Offset delta, timestamp delta, sizes of key and value."""


def by_tuples(section: Buffer, count: int) -> list[Row]:
    return [shape[1:] for shape in read_shapes(section, count)]


def by_columns(section: Buffer, count: int) -> list[Row]:
    columns = Columns()
    position = read_columns(section, 0, count, columns, is_last=True)
    check_filled(len(section) - position, count, count - len(columns))
    return list(zip(columns.offsets, columns.timestamps, columns.keys, columns.values, strict=True))


Reader = Callable[[Buffer, int], list[Row]]
both = pytest.mark.parametrize("read", [by_tuples, by_columns])


def some_records(rng: random.Random) -> list[NewRecord]:
    def value() -> bytes | None:
        return rng.choice([None, b"", rng.randbytes(rng.choice([1, 63, 64, 200, 9000]))])

    return [
        NewRecord(
            value(),
            value(),
            10**12 + rng.choice([0, 1, 63, 64, 10**6, -5]),
            [("h" * rng.randrange(3), value()) for _ in range(rng.choice([0, 0, 1, 3]))],
        )
        for _ in range(rng.choice([1, 2, 5, 70]))
    ]


@both
@pytest.mark.parametrize("seed", range(20))
def test_outlines_of_good_records(seed: int, read: Reader) -> None:
    data = build_batch(some_records(random.Random(seed)))
    header = read_header(data)
    section = records_section(data, header)
    expected = [
        (
            r.offset,
            r.timestamp - header.base_timestamp,
            -1 if r.key is None else len(r.key),
            -1 if r.value is None else len(r.value),
        )
        for r in iter_records(data)
    ]
    assert read(section, header.count) == expected
    for steps in (1, 8, 1000):
        assert bounds_hold(section, header.count, steps)


@both
def test_damaged_records_are_recognized(read: Reader) -> None:
    rng = random.Random(1)
    damaged = 0
    for _ in range(1500):
        good = build_batch([NewRecord(b"k", b"v" * rng.randrange(70), 1, [("h", b"x")]) for _ in range(3)])
        data = bytearray(good)
        data[rng.randrange(61, len(data))] = rng.randrange(256)
        header = read_header(data)
        section = bytes(records_section(data, header))
        try:
            records = [
                (r.offset, -1 if r.key is None else len(r.key), -1 if r.value is None else len(r.value))
                for r in iter_records(data)
            ]
        except CorruptBatch as e:
            if "UTF-8" in str(e):
                continue
            damaged += 1
            with pytest.raises(CorruptBatch):
                read(section, 3)
        else:
            try:
                rows = read(section, 3)
            except CorruptBatch:
                # Only lengths below -1, which mean null elsewhere.
                assert -1 in {size for record in records for size in record[1:]}
            else:
                assert [(offset, key, value) for offset, _, key, value in rows] == records
    assert damaged > 200


def test_lengths_that_leave_the_batch_are_refused() -> None:
    data = build_batch([NewRecord(b"k", b"v", 1)] * 10)
    section = bytearray(data[61:])
    size = len(section) // 10
    for number in range(10):
        wrong = bytearray(section)
        wrong[number * size] = 0x7E
        assert bounds_hold(wrong, 10, 8) == (number >= 8)
        wrong[number * size] = 1
        assert bounds_hold(wrong, 10, 8) == (number >= 8)
    assert not bounds_hold(section, 11, 8)
    assert not bounds_hold(section, 9, 20)
    assert not bounds_hold(b"", 1, 8)


@both
def test_an_endless_varint_is_refused(read: Reader) -> None:
    with pytest.raises(VarintTooLong):
        read(b"\xff" * 20, 1)
