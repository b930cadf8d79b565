"""`python -m bench.measurements.disk_pressure [ROW ...]`: nodes with much data on a slow disk.

Rows, each on a fresh node; `--apache` repeats them with Apache Kafka in the same run:

- `cold`        an honest producer alone, then beside a consumer that reads data which is not in the page cache
- `kill`        SIGKILL with many small batches that were not flushed, until the node serves that partition again
- `partitions`  one topic of many partitions: create, memory of an idle one, restart, one record to each
- `retention`   how long retention of many segments takes; an honest producer runs meanwhile

The defaults are small, to check that the rows work. Figures for a page need a quiet machine and the sizes of the issue:
`--gigabytes 20 --partitions 100000 --segments 10000`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.clients import frames
from bench.clients.asking import until_produced
from bench.clients.hostile import honest
from tests.compat.targets import Apache, Ours, Target

SECONDS = 6.0
LEAST = 200
"""The minimum number of acknowledgements for a p99."""
FETCH_BYTES = 1 << 20
LARGE_BATCH = frames.batch(900, 1000)
SMALL_BATCH = frames.batch(1, 180)
SEGMENT_BYTES = 1 << 20
TINY_SEGMENT_BYTES = 20_000
A_REQUEST = 500
"""Partitions per Produce request."""
WAIT_S = 600.0


def fresh(kind: str, folder: Path, **overrides: str) -> Target:
    """A running node in `folder`; `kind` is `kraftcluster` or `apache`, `overrides` are properties."""
    return (Apache if kind == "apache" else Ours)(kind, folder, overrides).start()


def fill(target: Target, topic: str, total: int, batch: bytes) -> None:
    """Produce `total` bytes, with 32 requests under way."""
    until_produced(target, topic, time.monotonic())
    request = frames.produce(topic, 0, batch, acks=1)
    wire = frames.Wire(target.port)
    count = max(1, total // len(batch))
    for done in range(0, count, 32):
        few = min(32, count - done)
        wire._socket.sendall(request * few)
        for _ in range(few):
            (size,) = struct.unpack(">i", wire._read(4))
            error = frames.produce_error(wire._read(size))
            assert error == 0, f"{target.name}: produce was refused with error {error}"
    wire.close()


def forget_pages(folder: Path) -> None:
    """Drop the cached pages of these files."""
    for path in folder.rglob("*.log"):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def p99(waits: list[float]) -> float:
    """The 99th percentile, in the unit of `waits`. Needs at least two values."""
    return statistics.quantiles(waits, n=100)[98]


def beside(target: Target, work: Callable[[], None]) -> tuple[float, float, float]:
    """p99 in ms of the honest producer alone and beside `work`, and the seconds that `work` took."""
    until_produced(target, "honest", time.monotonic())
    alone = honest(target.port, SECONDS)
    begun = time.monotonic()
    worker = multiprocessing.get_context("fork").Process(target=work, daemon=True)  # a thread would slow the producer
    worker.start()
    waits: list[float] = []
    while worker.is_alive() or len(waits) < LEAST:
        waits += honest(target.port, 0.5)
        took = time.monotonic() - begun
    assert worker.exitcode == 0, f"{target.name}: what goes on beside the producer has failed"
    return p99(alone), p99(waits), took


def read_all(target: Target, topic: str) -> None:
    """Fetch a partition from its start to its end."""
    wire, offset = frames.Wire(target.port), 0
    while True:
        request, _ = frames.fetch(topic, 0, offset, FETCH_BYTES, max_wait_ms=1)
        answer = wire.ask(request)
        at = answer.find(topic.encode()) + len(topic) + 4 + 4 + 2
        (high_watermark,) = struct.unpack_from(">q", answer, at)
        at += 8 + 8 + 8
        (aborted,) = struct.unpack_from(">i", answer, at)
        at += 4 + 16 * max(aborted, 0) + 4
        (size,) = struct.unpack_from(">i", answer, at)
        position, end = at + 4, at + 4 + size
        while position + 61 <= end:
            base, length = struct.unpack_from(">qi", answer, position)
            if position + 12 + length > end:
                break  # an incomplete batch: the next fetch has all of it
            (delta,) = struct.unpack_from(">i", answer, position + 23)
            offset, position = base + delta + 1, position + 12 + length
        if offset >= high_watermark:
            wire.close()
            return


def cold(kind: str, folder: Path, options: argparse.Namespace) -> str:
    """The row of a cold read: writes the data, drops it from the page cache, reads it beside the honest producer."""
    target = fresh(kind, folder)
    try:
        fill(target, "cold", int(options.gigabytes * (1 << 30)), LARGE_BATCH)
        forget_pages(target.data)
        alone, both, took = beside(target, lambda: read_all(target, "cold"))
    finally:
        target.kill()
    rate = options.gigabytes * 1024 / took
    return f"p99 alone {alone:.2f} ms, beside a cold fetch {both:.2f} ms, {both / alone:.1f}x; read {rate:.0f} MiB/s"


def kill(kind: str, folder: Path, options: argparse.Namespace) -> str:
    """The row of a recovery: the seconds from the restart until the node takes a record for the partition."""
    target = fresh(kind, folder)
    try:
        fill(target, "small", int(options.gigabytes * (1 << 30)), SMALL_BATCH)
        target.stop(signal.SIGKILL)
        begun = time.monotonic()
        target.launch()
        took = until_produced(target, "small", begun)
    finally:
        target.kill()
    return f"SIGKILL with {options.gigabytes} GiB of small batches: served again after {took:.1f} s"


def resident_kib(target: Target) -> int:
    """The resident memory of the node's process, in KiB (VmRSS)."""
    assert target.process is not None
    text = Path(f"/proc/{target.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS"))


def to_each(target: Target, topic: str, partitions: int) -> float:
    """Write a record to each partition. Returns the seconds."""
    begun = time.monotonic()
    wire = frames.Wire(target.port, WAIT_S)
    name = struct.pack(">h", len(topic)) + topic.encode()
    for first in range(0, partitions, A_REQUEST):
        indexes = range(first, min(first + A_REQUEST, partitions))
        rows = b"".join(struct.pack(">ii", index, len(SMALL_BATCH)) + SMALL_BATCH for index in indexes)
        body = b"\xff\xff" + struct.pack(">hii", 1, 30_000, 1) + name + struct.pack(">i", len(indexes)) + rows
        while any(frames.produce_errors(wire.ask(frames.frame(frames.PRODUCE, 7, body)))):
            time.sleep(0.05)
    wire.close()
    return time.monotonic() - begun


def partitions(kind: str, folder: Path, options: argparse.Namespace) -> str:
    """The row of many partitions: times in seconds, memory in bytes per partition. Restarts the node in order."""
    target = fresh(kind, folder)
    try:
        until_produced(target, "first", time.monotonic())
        before, begun = resident_kib(target), time.monotonic()
        wire = frames.Wire(target.port, WAIT_S)
        errors = frames.create_errors(wire.ask(frames.create_topics(["many"], options.partitions)))
        assert errors == [0], errors
        until_produced(target, "many", time.monotonic(), options.partitions - 1)
        made, idle = time.monotonic() - begun, resident_kib(target) - before
        first = to_each(target, "many", options.partitions)
        used = resident_kib(target) - before
        target.stop()
        begun = time.monotonic()
        target.launch()
        again = until_produced(target, "many", begun)
        each = to_each(target, "many", options.partitions)
    finally:
        target.kill()
    a_partition = 1024 / options.partitions
    return (
        f"{options.partitions} partitions: created in {made:.1f} s, {idle * a_partition:.0f} bytes each idle and "
        f"{used * a_partition:.0f} used, first records {first:.1f} s, "
        f"restart {again:.1f} s, a record to each {each:.1f} s"
    )


def retention(kind: str, folder: Path, options: argparse.Namespace) -> str:
    """The row of retention. After a restart, old file times and a small limit make nearly all segments expire."""
    limits = {"log.segment.bytes": str(SEGMENT_BYTES), "log.retention.check.interval.ms": "1000"}
    target = fresh(kind, folder, **limits, **{"log.retention.ms": "3600000", "log.initial.task.delay.ms": "1000"})
    old = bytearray(LARGE_BATCH)
    folder_of = target.data / "old-0"

    def gone() -> None:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline and len(list(folder_of.glob("*.log"))) > 2:
            time.sleep(0.2)

    try:
        fill(target, "old", options.segments * SEGMENT_BYTES, bytes(old))
        target.stop()
        for path in folder_of.glob("*"):
            os.utime(path, (0, 0))
        target.overrides["log.retention.bytes"] = str(SEGMENT_BYTES)
        target.launch()
        target.wait_ready()
        alone, both, took = beside(target, gone)
    finally:
        target.kill()
    return (
        f"retention of {options.segments} segments: {took:.1f} s from the first look on; p99 of the producer "
        f"{alone:.2f} ms before, {both:.2f} ms meanwhile"
    )


ROWS = {"cold": cold, "kill": kill, "partitions": partitions, "retention": retention}


def main() -> None:
    """Print the figures of each selected row, for this node and perhaps Apache Kafka."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.measurements.disk_pressure", description="Nodes with much data."
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"rows to measure: {', '.join(ROWS)} (default: all)")
    parser.add_argument(
        "--gigabytes", type=float, default=0.5, help="size of the data to read cold, or to leave unflushed"
    )
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--segments", type=int, default=100)
    parser.add_argument("--apache", action="store_true", help="measure Apache Kafka as well")
    options = parser.parse_args()
    for name in options.rows or ROWS:
        for kind in ("kraftcluster", "apache") if options.apache else ("kraftcluster",):
            with tempfile.TemporaryDirectory() as folder:
                print(f"{name}: {kind}: {ROWS[name](kind, Path(folder) / kind, options)}", flush=True)


if __name__ == "__main__":
    main()
