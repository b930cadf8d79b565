"""`python -m bench.measurements.pipeline_archive [--partitions N] [--changes N] [--spark]`: archives of large clusters.

Makes a snapshot and a log by an encoder of its own (NumPy, templates of batches), then archives both. Seconds are of
the work without imports, against the aims (snapshot 2 s, 7,000,000 changes 8 s). With `--spark` the log is in
segments, and each segment is a task of Spark. The start of Spark is not counted either.
"""

from __future__ import annotations

import argparse
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from fastcrc.crc32 import iscsi as crc32c

from kraft_pipeline.archive.run import archive
from kraft_pipeline.archive.spec import ArchiveSpec
from kraft_pipeline.tables.engines.engine import SparkEngine

BROKERS, EACH, REPLICAS = 30, 100, 3
EPOCH, NOW = 5, 1_760_000_000_000
Rows = tuple[bytes, list[tuple[int, str]]]
HEADER = struct.Struct(">qiibIhiqqqhii")


def uvarint(number: int) -> bytes:
    """The unsigned varint of a number >= 0: seven bits a byte, the lowest first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def varint(number: int) -> bytes:
    """The zig-zag varint of a 64-bit number, as in records."""
    return uvarint((number << 1) ^ (number >> 63))


def template(values: list[bytes]) -> tuple[bytearray, list[int]]:
    """A batch of these values, and the position of each value in it."""
    records, places = bytearray(), []
    for delta, value in enumerate(values):
        head = b"\0\0" + varint(delta) + varint(-1) + varint(len(value))
        size = varint(len(head) + len(value) + 1)
        places.append(61 + len(records) + len(size) + len(head))
        records += size + head + value + b"\0"
    count = len(values)
    header = HEADER.pack(0, 49 + len(records), EPOCH, 2, 0, 0, count - 1, NOW, NOW, -1, -1, -1, count)
    return bytearray(header + records), places


def stamped(whole: np.ndarray[Any, Any], base: int, count: int) -> bytes:
    """Copies of one template, one per row, with their offsets and CRCs."""
    offsets = base + count * np.arange(len(whole), dtype=np.int64)
    whole[:, :8] = offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
    times = NOW + np.arange(len(whole), dtype=np.int64) + base // 100
    for at in (27, 35):
        whole[:, at : at + 8] = times.astype(">i8").view(np.uint8).reshape(-1, 8)
    for row in whole:
        row[17:21] = np.frombuffer(struct.pack(">I", crc32c(row[21:].tobytes())), np.uint8)
    return whole.tobytes()


def put(whole: np.ndarray[Any, Any], places: list[int], at: int, values: np.ndarray[Any, Any]) -> None:
    """Write big-endian numbers (batches x records [x n]) at the same place of each record."""
    raw = np.ascontiguousarray(values, ">i4").view(np.uint8).reshape(len(whole), len(places), -1)
    for record, place in enumerate(places):
        whole[:, place + at : place + at + raw.shape[2]] = raw[:, record]


def topic_batches(topics: int, base: int) -> bytes:
    """One batch per topic: its record, then its partitions' records."""
    name = b"bench-topic-0000000"
    head = b"\1\2\0" + uvarint(len(name) + 1) + name + bytes(16) + b"\0"
    lists = uvarint(REPLICAS + 1) + bytes(4 * REPLICAS)
    one = b"\1\3\2" + bytes(4 + 16) + lists * 2 + b"\1\1" + bytes(12) + uvarint(REPLICAS + 1) + bytes(48) + b"\0"
    batch, places = template([head, *[one] * EACH])
    whole = np.tile(np.frombuffer(bytes(batch), np.uint8), (topics, 1))
    digits = np.char.zfill(np.arange(topics).astype("S7"), 7).view(np.uint8).reshape(topics, 7)
    whole[:, places[0] + 4 + 12 : places[0] + 4 + 19] = digits
    ids = (np.arange(topics) + 1).astype(">u4").view(np.uint8).reshape(topics, 4)
    whole[:, places[0] + 4 + 19 + 12 : places[0] + 4 + 19 + 16] = ids
    rows = places[1:]
    for place in rows:
        whole[:, place + 7 + 12 : place + 7 + 16] = ids
    number = np.broadcast_to(np.arange(EACH), (topics, EACH))
    start = (np.arange(topics)[:, None] + number) % BROKERS
    replicas = (start[:, :, None] + np.arange(REPLICAS)) % BROKERS
    put(whole, rows, 3, number)
    for at in (24, 37):
        put(whole, rows, at, replicas)
    put(whole, rows, 51, start)
    for replica in range(REPLICAS):
        part = (replicas[:, :, replica] + 1).astype(np.int64)
        put(whole, rows, 64 + 16 * replica, part)
    return stamped(whole, base, EACH + 1)


def change_batches(topics: int, changes: int, base: int, each: int = 500) -> bytes:
    """Changes of brokers that leave and return: every third record names leader and ISR, the others the ISR only."""
    with_leader = b"\1\5\2" + bytes(20) + b"\2\0\x09\3" + bytes(8) + b"\1\4" + bytes(4)
    shrink = b"\1\5\2" + bytes(20) + b"\1\0\x09\3" + bytes(8)
    expand = b"\1\5\2" + bytes(20) + b"\1\0\x0d\4" + bytes(12)
    kinds = [with_leader, shrink, expand]
    batch, places = template([kinds[i % 3] for i in range(each)])
    count = changes // each
    out = []
    random = np.random.default_rng(1)
    for first in range(0, count, 1000):
        some = min(1000, count - first)
        whole = np.tile(np.frombuffer(bytes(batch), np.uint8), (some, 1))
        topic = random.integers(0, topics, (some, each)) + 1
        put(whole, places, 3, random.integers(0, EACH, (some, each)))
        put(whole, places, 19, topic)
        isr = random.integers(0, BROKERS, (some, each, 3))
        for kind in range(3):
            width = 3 if kind == 2 else 2
            put(whole, places[kind::3], 27, isr[:, kind::3, :width])
        put(whole, places[::3], 37, isr[:, ::3, 0])
        out.append(stamped(whole, base + first * each, each))
    return b"".join(out)


def control(kind: int, value: bytes, base: int) -> bytes:
    """A control batch of one record."""
    key = struct.pack(">hh", 0, kind)
    record = b"\0\0\0" + varint(len(key)) + key + varint(len(value)) + value + b"\0"
    data = varint(len(record)) + record
    header = HEADER.pack(base, 49 + len(data), EPOCH, 2, 0, 0x20, 0, NOW, NOW, -1, -1, -1, 1)
    whole = bytearray(header + data)
    whole[17:21] = struct.pack(">I", crc32c(bytes(whole[21:])))
    return bytes(whole)


def make(folder: Path, partitions: int, changes: int, segments: int = 1) -> tuple[Path, Path]:
    """Write the files: a snapshot of the partitions, and a log of the same with changes on top, in `segments`
    segments."""
    topics = partitions // EACH
    snapshot = folder / f"{10_000_000:020}-{EPOCH:010}.checkpoint"
    body = topic_batches(topics, 1)
    end = 1 + topics * (EACH + 1)
    snapshot.write_bytes(control(3, struct.pack(">hqb", 0, NOW, 0), 0) + body + control(4, b"\0\0\0", end))
    log = folder / "__cluster_metadata-0"
    log.mkdir()
    body, base, each = topic_batches(topics, 0), topics * (EACH + 1), 500
    more = change_batches(topics, changes - partitions, base, each)
    count = (changes - partitions) // each
    size, some = len(more) // count, -(-count // segments)
    (log / f"{0:020}.log").write_bytes(body + more[: some * size])
    for first in range(some, count, some):
        (log / f"{base + first * each:020}.log").write_bytes(more[first * size : (first + some) * size])
    return snapshot, log


class Kept(SparkEngine):
    """An engine that stays open for the next round."""

    def close(self) -> None:
        """Does nothing: the next round uses the engine."""


def engine() -> Kept:
    """Spark on all cores, with its workers started."""
    from kraft_pipeline.scrub.run import session

    found = Kept(session("local[*]", "bench"))
    found.map(abs, range(2 * found.parallelism))
    return found


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.measurements.pipeline_archive", description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=7_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spark", action="store_true", help="read the log's segments in Spark's tasks")
    options = parser.parse_args()
    opened = engine() if options.spark else None
    with tempfile.TemporaryDirectory(prefix="kraft-bench-") as name:
        folder = Path(name)
        for path, what, aim in zip(
            make(folder, options.partitions, options.changes, 1 if opened is None else 2 * opened.parallelism),
            (f"snapshot of {options.partitions:,} partitions", f"{options.changes:,} changes"),
            (2.0, 8.0),
            strict=True,
        ):
            taken = []
            for number in range(options.rounds):
                spec = ArchiveSpec(paths=(str(path),), path=str(folder / f"{path.name}-{number}"))
                wall, cpu = time.monotonic(), time.process_time()
                done = archive(spec, engine=None if opened is None else lambda: opened)
                taken.append((time.monotonic() - wall, time.process_time() - cpu))
                assert done.partitions == options.partitions, done
            best = min(taken)
            print(f"{what}: {best[0]:.2f} s ({best[1]:.2f} s CPU), {best[0] / aim:.2f} of the aim of {aim:g} s")
    if opened is not None:
        SparkEngine.close(opened)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
