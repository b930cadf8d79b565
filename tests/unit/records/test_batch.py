"""Batches judged by kafka-python: it reads ours, we read its batches; damage is reported by kind."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_protocol.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER_SIZE,
    NewRecord,
    build_batch,
    check_batch,
    iter_headers,
    iter_records,
    read_header,
)
from kraft_protocol.records.errors import CorruptBatch, InvalidBatch, TruncatedBatch, UnsupportedMagic
from tests.batches import iter_all_records

kafka_records = pytest.importorskip("kafka.record.default_records")

RECORDS = [
    NewRecord(b"k1", b"v1" * 500, 1_700_000_000_000, [("h", b"x"), ("null", None)]),
    NewRecord(None, b"v2", 1_700_000_000_007),
    NewRecord(b"k3", None, 1_699_999_999_990),
]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_kafka_python_reads_our_batches(codec: int) -> None:
    data = build_batch(
        RECORDS, base_offset=42, compression=codec, producer_id=7, producer_epoch=1, base_sequence=5, leader_epoch=3
    )
    batch = kafka_records.DefaultRecordBatch(data)
    assert batch.validate_crc()
    if codec not in (2, 4):  # kafka-python needs further packages for snappy and zstd; Java's reader judges those
        got = list(batch)
        assert [(r.offset, r.timestamp, r.key, r.value) for r in got] == [
            (42 + i, r.timestamp, r.key, r.value) for i, r in enumerate(RECORDS)
        ]
        assert got[0].headers == [("h", b"x"), ("null", None)]
    assert (batch.base_offset, batch.last_offset_delta, batch.max_timestamp) == (42, 2, 1_700_000_000_007)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 1, 5)
    assert batch.leader_epoch == 3


@pytest.mark.parametrize("codec", [0, 1, 3])
def test_we_read_batches_of_kafka_python(codec: int) -> None:
    builder: Any = kafka_records.DefaultRecordBatchBuilder(2, codec, True, 9, 2, 100, 1 << 20)
    for i, r in enumerate(RECORDS):
        builder.append(i, r.timestamp, r.key, r.value, list(r.headers))
    data = bytes(builder.build())
    header = check_batch(data)
    assert header.length == len(data)
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.count) == (9, 2, 100, 3)
    assert [(r.timestamp, r.key, r.value, list(r.headers)) for r in iter_records(data)] == [
        (r.timestamp, r.key, r.value, list(r.headers)) for r in RECORDS
    ]


def test_uncompressed_bytes_equal_kafka_pythons() -> None:
    builder: Any = kafka_records.DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    for i, r in enumerate(RECORDS):
        builder.append(i, r.timestamp, r.key, r.value, list(r.headers))
    theirs = bytes(builder.build())
    assert build_batch(RECORDS, leader_epoch=read_header(theirs).partition_leader_epoch) == theirs


def test_every_bit_flip_under_the_crc_is_noticed() -> None:
    data = bytearray(build_batch(RECORDS[1:], base_offset=1))
    for bit in range(ATTRIBUTES_POSITION * 8, len(data) * 8):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptBatch):
            check_batch(data)
        data[bit // 8] ^= 1 << bit % 8
    check_batch(data)


def test_every_prefix_is_reported_as_truncated() -> None:
    data = build_batch(RECORDS)
    for length in range(1, len(data)):
        with pytest.raises(TruncatedBatch):
            check_batch(data[:length])


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_other_formats_are_refused_by_name(magic: int) -> None:
    data = bytearray(build_batch(RECORDS))
    data[16] = magic
    with pytest.raises(UnsupportedMagic, match=f"format {magic}"):
        check_batch(data)


def test_a_count_that_does_not_fit_the_offsets_is_refused() -> None:
    good = build_batch(RECORDS)
    header = read_header(good)
    from kraft_protocol.records.batch import seal

    fields = (0, 1, header.base_timestamp, header.max_timestamp, -1, -1, -1, 3)
    with pytest.raises(InvalidBatch, match="3 records cannot span 2"):
        check_batch(seal(0, -1, fields, good[HEADER_SIZE:]))


def test_records_must_fill_the_batch() -> None:
    good = build_batch(RECORDS)
    header = read_header(good)
    from kraft_protocol.records.batch import seal

    fields = (0, 2, header.base_timestamp, header.max_timestamp, -1, -1, -1, 3)
    for payload in (good[HEADER_SIZE:] + b"\0", good[HEADER_SIZE:-1], b"", b"\xff" * 20):
        with pytest.raises(CorruptBatch):
            list(iter_records(seal(0, -1, fields, payload)))


def test_several_batches_and_append_time() -> None:
    data = build_batch([(b"a", b"1")], base_offset=0) + build_batch([(b"b", b"2")], base_offset=1, append_time=99)
    assert [h.base_offset for h in iter_headers(data)] == [0, 1]
    assert [(r.offset, r.timestamp) for r in iter_all_records(data)] == [(0, -1), (1, 99)]


def test_sequences_wrap_after_the_largest_int() -> None:
    header = read_header(build_batch([(None, b"x")] * 3, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 0
