"""Decoding of a partition's batches, and reports of damaged ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.codec import CorruptBatch, Decoder, UnsupportedBatch, decode, scan
from kraft_protocol.records.batch import AbortedTransaction, NewRecord, build_batch, seal
from kraft_protocol.records.control import build_marker
from tests.peer import run_java


def rows(data: bytes, *columns: str, **options: Any) -> list[tuple[Any, ...]]:
    parts = Decoder("t", 0, columns).decode(data, **options)
    return [tuple(row.values()) for part in parts for row in part.to_pylist()]


def transactional(base: int, producer: int, *values: bytes) -> bytes:
    records = [NewRecord(None, value, 5) for value in values]
    return build_batch(
        records, base_offset=base, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
    )


def marker(base: int, producer: int, *, commit: bool) -> bytes:
    return build_marker(
        commit=commit, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=5, base_offset=base
    )


def test_control_batches_and_aborted_transactions_are_left_out() -> None:
    data = (
        transactional(0, 7, b"a0", b"a1")
        + transactional(2, 8, b"b0")
        + build_batch([(None, b"plain")], base_offset=3)
        + marker(4, 7, commit=False)
        + marker(5, 8, commit=True)
        + transactional(6, 7, b"a2")
        + marker(7, 7, commit=True)
    )
    everything = [(b"a0", 0), (b"a1", 1), (b"b0", 2), (b"plain", 3), (b"a2", 6)]
    assert rows(data, "offset", "value") == everything
    committed = rows(data, "offset", "value", aborted=[AbortedTransaction(7, 0)])
    assert committed == [(b"b0", 2), (b"plain", 3), (b"a2", 6)]


def test_append_time_is_the_time_of_every_record() -> None:
    data = build_batch([NewRecord(None, b"a", 5), NewRecord(None, b"b", 9)], append_time=1234)
    found = rows(data, "timestamp", "timestampType")
    assert [(int(when.timestamp() * 1000), kind) for when, kind in found] == [(1234, 1), (1234, 1)]


def test_a_partial_batch_is_left_for_the_next_fetch() -> None:
    whole = build_batch([(None, b"a")])
    cut = build_batch([(None, b"b")], base_offset=1)
    for length in (0, 1, 16, 40, len(cut) - 1):
        assert rows(whole + cut[:length], "value") == [(b"a",)]


def test_compacted_batches_keep_their_offsets() -> None:
    """Offsets with gaps, a batch without some of its records, and an empty batch."""
    gaps = build_batch([NewRecord(b"k", b"v", 1, (), 3), NewRecord(b"l", b"w", 1, (), 9)], last_offset=11)
    empty = build_batch([], base_offset=12, last_offset=20)
    data = gaps + empty + build_batch([(b"m", b"x")], base_offset=21)
    assert rows(data, "key", "offset") == [(b"k", 3), (b"l", 9), (b"m", 21)]
    assert rows(data, "key", "offset", start=4, end=21) == [(b"l", 9)]
    assert rows(empty, "key") == []
    for codec in range(5):  # no bytes are not compressed data, whatever the attributes say
        header = bytearray(empty)
        header[22] = codec
        assert rows(bytes(header), "key", check_crc=False) == []


def test_an_error_names_partition_and_offset() -> None:
    good = build_batch([(None, b"a")], base_offset=41)
    bad = bytearray(build_batch([(None, b"b")], base_offset=42))
    bad[-1] ^= 1
    with pytest.raises(CorruptBatch, match=r"t-0: CRC is wrong \(batch at offset 42\)"):
        rows(good + bytes(bad), "value")
    old = bytearray(good)
    old[16] = 1
    with pytest.raises(UnsupportedBatch, match=r"t-0: message format 1, only 2 is known \(batch at offset 41\)"):
        rows(bytes(old), "value")


def test_compressed_data_may_not_grow_without_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "DEFAULT_LIMIT", 1 << 16)
    for codec in (1, 2, 3, 4):
        bomb = build_batch([(None, bytes(1 << 20))], compression=codec, base_offset=41)
        with pytest.raises(CorruptBatch, match=r"decompresses to more than \d+ bytes \(batch at offset 41\)"):
            rows(bomb, "value")


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_damaged_compressed_data_names_its_batch(codec: int) -> None:
    good = build_batch([(None, b"value")], base_offset=41)
    fields = (codec, 0, 0, 0, -1, -1, -1, 1)
    with pytest.raises(CorruptBatch, match=r"t-0: .*\(batch at offset 42\)"):
        rows(good + seal(42, 0, fields, b"no compressed data"), "value")


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_named_with_its_batch(codec: int) -> None:
    fields = (codec, 0, 0, 0, -1, -1, -1, 1)
    with pytest.raises(UnsupportedBatch, match=rf"t-0: unknown compression codec {codec} \(batch at offset 42\)"):
        rows(seal(42, 0, fields, b"\0"), "value")


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(ValueError, match="no column 'vale': there are key, value"):
        Decoder("t", 0, ["vale"])


def test_unwanted_columns_are_not_copied() -> None:
    """The columns are copies, so the response can be freed; without key and value no byte of them is kept."""
    data = bytearray(build_batch([(b"k", b"v" * 1000)]))
    (part,) = Decoder("t", 0, ["offset", "value"]).decode(memoryview(data))
    (lean,) = Decoder("t", 0, ["offset"]).decode(memoryview(data))
    data[:] = bytes(len(data))
    assert part["value"].to_pylist() == [b"v" * 1000]
    assert lean.nbytes == 8


def test_scan_returns_batch_headers() -> None:
    data = transactional(10, 7, b"a", b"b")
    (batch,) = scan(data)
    assert (batch.base_offset, batch.last_offset, batch.records) == (10, 11, 2)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 0, 0)


@pytest.mark.peer
def test_batches_of_java_are_decoded(tmp_path: Path) -> None:
    nothing, theirs = tmp_path / "nothing", tmp_path / "theirs"
    nothing.write_bytes(b"")
    run_java(str(Path(__file__).parents[3] / "java" / "RecordBatches.java"), str(nothing), str(theirs))
    found = rows(theirs.read_bytes(), "key", "value", "offset", "timestamp", "headers")
    assert len(found) == 15
    for codec, name in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        for i, value in enumerate([f"value-{name}-".encode(), f"value-{name}-".encode() * 4001, None]):
            key, got, offset, timestamp, headers = found[3 * codec + i]
            assert (key, got, offset) == (f"key-{i}".encode(), value, 3 * codec + i)
            assert round(timestamp.timestamp() * 1000) == 1_700_000_000_000 + i
            assert headers == [{"key": "h", "value": bytes([1, 2, i])}]


def test_a_million_headers_are_refused_cheaply() -> None:
    data = bytearray(build_batch([NewRecord(None, b"", 0, [("k", b"")])]))
    at = len(data) - 4
    assert data[at - 1 : at + 1] == b"\x00\x02", "value of no bytes, one header"
    data[at] = 0x7E
    with pytest.raises(CorruptBatch, match="more headers than their record has room for"):
        list(Decoder("t", 0, ["headers"]).decode(bytes(data), check_crc=False))


def test_a_worker_does_not_wait_for_pandas() -> None:
    """Its import takes a third of a second in each of Spark's workers, and the codec does not need it."""
    data = build_batch([NewRecord(b"k", b"v", 1, [("h", b"x")])])
    program = (
        "import sys; from kraft_pipeline.codec import COLUMNS, Decoder\n"
        f"rows = list(Decoder('t', 0, COLUMNS).decode({data!r}))\n"
        "assert rows[0].num_rows == 1; assert 'pandas' not in sys.modules, 'pandas was imported'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
