"""Much data in small pieces: recovery of 5 GiB of small batches, 10,000 segments that expire, a cold fetch."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bench.clients import asking, frames, hostile, load
from bench.runs.row import Life, Measured, Row, Scenario, Step
from bench.servers.process import MIB, settle, warm_memory
from kraft_node.cli.client import NodeClient
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import IncrementalAlterConfigsRequest
from tests.compat.targets import Target

SMALL_PARTITIONS = 32
SMALL_BATCH = 900
"""Bytes of a batch's only value: the batch then has one KiB."""
WATCHED_S = 10
FILL_DEPTH = 50
"""Requests in flight while a log is filled; filling is not measured."""
COLD_GIB, PARTS = 20, 5
"""Size of the cold log in GiB, and the number of rounds that read it."""
SEGMENT = MIB
"""The smallest segment that both servers allow."""
HONEST_S = 5
"""Seconds per round of the honest producer alone."""
HONEST_PART_S = 0.5
"""Seconds between two looks whether the disturbance has ended."""

KILLED = "SIGKILL with 5 GiB of small batches not flushed, until every partition takes a produce"
REFUSED = "produce requests refused in the 10 s after that"
EXPIRED = "retention of 10,000 segments, until their files are gone"
BESIDE_EXPIRY = "honest producer's p99 beside retention of 10,000 segments, against alone"
COLD = "cold fetch of 20 GiB"
BESIDE_COLD = "honest producer's p99 beside a cold fetch of 20 GiB, against alone"


@contextmanager
def recovery(step: Step) -> Iterator[Life]:
    """Batches of one KiB, 32 partitions per request, no full segment: the server has flushed nothing in any round."""
    partitions = step.size(SMALL_PARTITIONS, 4)
    batch = frames.batch(1, SMALL_BATCH)
    request = frames.produce_all(["small"], partitions, batch)
    total = step.size(5 * 1024, 8) * MIB
    with step.started() as target:
        asking.create(target, ["small"], partitions)
        _until_all_accept(target, request, time.monotonic())
        warm_memory(total)
        _fill(target, request, total // (len(batch) * partitions))

        def taken() -> Measured:
            assert target.process is not None
            target.process.send_signal(signal.SIGKILL)
            target.process.wait()
            begun = time.monotonic()
            asking.spawn(target)
            seconds = _until_all_accept(target, request, begun)
            return Measured({KILLED: seconds, REFUSED: _refused(target, request, step.size(WATCHED_S, 1))})

        yield Life(taken)


def _fill(target: Target, request: bytes, count: int) -> None:
    """Send `count` requests over two connections."""
    with ThreadPoolExecutor(2) as pool:
        halves = (count // 2, count - count // 2)
        for sending in [pool.submit(load.send, target, [request], count=half, inflight=FILL_DEPTH) for half in halves]:
            sending.result()


def _until_all_accept(target: Target, request: bytes, begun: float) -> float:
    """Seconds from `begun` until no partition refuses a record."""

    def accepted() -> bool:
        return set(frames.produce_errors(asking.ask_once(target, request))) == {0}

    asking.until("a produce to all partitions", accepted, limit_s=1800)
    return time.monotonic() - begun


def _refused(target: Target, request: bytes, seconds: float) -> float:
    """How many requests, sent ten per second for `seconds`, at least one partition refuses."""
    count = 0
    end = time.monotonic() + seconds
    wire = frames.Wire(target.port)
    while time.monotonic() < end:
        count += set(frames.produce_errors(wire.ask(request))) != {0}
        time.sleep(0.1)
    wire.close()
    return count


def retention(step: Step) -> Measured:
    """Limit the bytes of a partition with many segments while an honest producer works."""
    segments = step.size(10_000, 20)
    with step.started(**asking.TRIMMED_OFTEN) as target:
        configs = {"segment.bytes": str(SEGMENT), "file.delete.delay.ms": "1000"}
        asking.create(target, ["full"], configs=configs)
        asking.create(target, ["honest"])
        batch = frames.batch(1, SEGMENT * 3 // 5)  # a segment holds one batch
        request = frames.produce("full", 0, batch)
        asking.until_accepted(target, request, "segments")
        load.send(target, [request], count=segments)
        folder = target.data / "full-0"
        newest = folder / sorted(name for name in os.listdir(folder) if name.endswith(".log"))[-3]
        settle()
        alone = hostile.honest(target.port, step.size(HONEST_S, 2))

        def expire() -> None:
            altered(target, "full", {"retention.bytes": str(SEGMENT)})
            # A list of 40,000 names, twenty times a second, would let the server's renames wait.
            asking.until("the newest file is gone", lambda: not _is_there(newest), 0.05, 1800)
            asking.until("the files are gone", lambda: _segments(folder) <= 3, 0.05, 1800)

        seconds, beside = honest_during(target, expire)
    figures = {EXPIRED: seconds, BESIDE_EXPIRY: p99(beside) / p99(alone)}
    return Measured(figures, {"alone": spread(alone), "beside": spread(beside), "segments": segments})


def _is_there(file: Path) -> bool:
    """Whether a log file exists, also one awaiting deletion."""
    return file.exists() or file.with_name(f"{file.name}.deleted").exists()


def _segments(folder: Path) -> int:
    """The partition's log files, including those awaiting deletion."""
    return sum(".log" in name for name in os.listdir(folder))


def altered(target: Target, topic: str, configs: dict[str, str]) -> None:
    """Set configurations of the topic."""
    kind = IncrementalAlterConfigsRequest
    changes = [kind.AlterableConfig(name, 0, value) for name, value in configs.items()]
    resource = kind.AlterConfigsResource(2, topic, changes)
    with NodeClient("127.0.0.1", target.port) as client:
        answer = client.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, kind(resources=[resource]))
    assert answer.responses[0].error_code == 0, answer


def honest_during(target: Target, work: Callable[[], object]) -> tuple[float, list[float]]:
    """Seconds of `work`, and milliseconds of an honest producer's records during it.

    The producer is a process of its own: `work` may hold this interpreter, for example while it lists a large folder.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    producer = context.Process(target=_honest_until_told, args=(target.port, there), daemon=True)
    producer.start()
    try:
        there.close()
        here.recv()  # it is connected
        begun = time.monotonic()
        work()
        seconds = time.monotonic() - begun
        here.send(None)
        return seconds, here.recv()
    finally:
        producer.kill()
        producer.join()


def _honest_until_told(port: int, parent: Connection) -> None:
    hostile.honest(port, HONEST_PART_S)
    waits: list[float] = []
    parent.send(None)
    while not parent.poll():
        waits += hostile.honest(port, HONEST_PART_S)
    parent.send(waits)


@contextmanager
def cold_fetch(step: Step) -> Iterator[Life]:
    """Read a log outside the page cache, one part per round, while an honest producer works."""
    part = step.size(COLD_GIB * 1024, 64) * MIB // PARTS
    with step.started() as target:
        asking.create(target, ["cold", "honest"])
        batch = frames.batch(8, 131_000)
        request = frames.produce("cold", 0, batch)
        asking.until_accepted(target, request, "cold fetch")
        load.send(target, [request], count=PARTS * part // len(batch))
        settle()
        parts = iter(range(PARTS))
        yield Life(lambda: _cold_part(step, target, next(parts) * (part // len(batch)) * 8, part))


def _cold_part(step: Step, target: Target, offset: int, size: int) -> Measured:
    """Read `size` bytes from `offset` on."""
    alone = hostile.honest(target.port, step.size(HONEST_S, 1))
    _evict(target.data / "cold-0")
    ask, at = frames.fetch("cold", 0, offset, 8 * MIB)
    got: dict[str, Any] = {}
    _, beside = honest_during(target, lambda: got.update(load.send(target, [ask], count=size, fetch_at=at)))
    figures = {COLD: got["received"] / 1e6 / got["seconds"], BESIDE_COLD: p99(beside) / p99(alone)}
    return Measured(figures, {"alone": spread(alone), "beside": spread(beside), "bytes": got["received"]})


def _evict(folder: Path) -> None:
    """Drop the clean pages of a folder's files from the page cache."""
    for file in folder.glob("*.log"):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def p99(waits: list[float]) -> float:
    """The 99th percentile; with few values, the maximum."""
    return sorted(waits)[min(len(waits) - 1, int(len(waits) * 0.99))]


def spread(waits: list[float]) -> dict[str, float]:
    """The summary of many waits that the samples keep."""
    return {"count": len(waits), "p99_ms": round(p99(waits), 3), "max_ms": round(max(waits), 3)}


SECTION = "One node"

SCENARIOS = [
    Scenario(
        "recovery",
        SECTION,
        (
            Row(
                *(KILLED, "s", False, 0.3),
                differs="after the kill of a process ours checks the tail of each log, since the page cache outlives "
                "the process; Kafka reads every log from its recovery point on",
            ),
            Row(REFUSED, "requests", False, 0.0, absolute=True),
        ),
        None,
        6,
        live=recovery,
    ),
    Scenario(
        "retention",
        SECTION,
        (Row(EXPIRED, "s", False), Row(BESIDE_EXPIRY, "x", False, 3.0, absolute=True)),
        retention,
        5,
    ),
    Scenario(
        "cold-fetch",
        SECTION,
        (Row(COLD, "MB/s", True), Row(BESIDE_COLD, "x", False, 3.0, absolute=True)),
        None,
        4.5,
        live=cold_fetch,
        apart=True,
    ),
]
