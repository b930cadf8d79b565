"""Java reads the batches that we build, with every codec, and we read Java's."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraft_protocol.records.batch import NewRecord, build_batch, check_batch, iter_headers, iter_records
from tests.peer import run_java

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
NOW = 1_700_000_000_000
LONG = bytes(range(256)) * 1000


def java_hash(data: bytes) -> int:
    """java.util.Arrays.hashCode of bytes."""
    result = 1
    for byte in data:
        result = (31 * result + (byte - 256 if byte > 127 else byte)) & 0xFFFFFFFF
    return result - (1 << 32) if result >> 31 else result


@pytest.mark.peer
def test_java_and_ours_read_batches_of_each_other(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    records = [NewRecord(b"k", LONG, NOW, [("h", b"xy"), ("n", None)]), NewRecord(None, b"v", NOW - 5), NewRecord(b"t")]
    ours.write_bytes(
        b"".join(
            build_batch(
                records,
                base_offset=codec * 3,
                compression=codec,
                timestamp=NOW + 9,
                producer_id=8,
                producer_epoch=2,
                base_sequence=100,
                transactional=codec % 2 == 1,
                leader_epoch=4,
            )
            for codec in range(5)
        )
    )
    source = Path(__file__).parents[2] / "java" / "RecordBatches.java"
    lines = run_java(str(source), str(ours), str(theirs)).stdout.decode().splitlines()
    expected = []
    for codec, name in enumerate(CODECS):
        head = f"{name} 8 {'true' if codec % 2 else 'false'} 4"
        at = codec * 3
        expected += [
            f"{head} {at} {NOW} 100 k #{java_hash(LONG)} h=2 n=null",
            f"{head} {at + 1} {NOW - 5} 101 null v",
            f"{head} {at + 2} {NOW + 9} 102 t null",
        ]
    assert lines == expected

    data = theirs.read_bytes()
    headers = list(iter_headers(data))
    assert [header.compression for header in headers] == [0, 1, 2, 3, 4]
    for header, name in zip(headers, CODECS, strict=True):
        check_batch(data, header.position)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 3)
        assert header.is_transactional
        assert header.partition_leader_epoch == 9
        value = f"value-{name}-".encode()
        assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in iter_records(data, header)] == [
            (header.base_offset, NOW, b"key-0", value, [("h", b"\1\2\0")]),
            (header.base_offset + 1, NOW + 1, b"key-1", value * 4001, [("h", b"\1\2\1")]),
            (header.base_offset + 2, NOW + 2, b"key-2", None, [("h", b"\1\2\2")]),
        ]
        uncompressed = build_batch(
            list(iter_records(data, header)),
            base_offset=header.base_offset,
            producer_id=5,
            producer_epoch=1,
            base_sequence=3,
            transactional=True,
            leader_epoch=9,
        )
        if header.compression == 0:
            assert uncompressed == data[header.position : header.position + header.length]
