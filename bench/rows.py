"""The rows of the comparison. Each function measures one server once and returns figures by row name.

A row says which way is better and which ratio ours/Kafka (or which figure of ours) is aimed at; `python -m bench`
runs the rounds.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench import frames
from bench.servers import cpu_s, fresh, rss_mib, spawn, stop, warm_memory
from tests.compat.targets import Target

READY_TIMEOUT_S = 120.0
GIB = 1 << 30
MIB = 1 << 20
BURST = 512 * MIB
"""Bytes of bulk sent at a time (a quarter where batches are small and slow), before each of which memory is warmed:
warmth lasts about a second."""
BURSTS = 3
KILL_RATE = 2000
KILL_AFTER_S = 5.0
"""The steady load of which a server is killed: batches of 10 KB a second, and for how long."""
NOT_YET = (3, 6)
"""Unknown topic, not the leader: what a topic just made may answer for a moment."""
LIBRDKAFKA_BATCH_RECORDS = 10_000
LIBRDKAFKA_BATCH_BYTES = 1_000_000
"""The C client's default batching: batch.num.messages and batch.size, whichever comes first."""


@dataclass(frozen=True)
class Row:
    """A figure to compare: its unit, whether more is better, and the ratio aimed at.

    `absolute`: the aim is a figure of ours, in the row's unit, and no ratio.
    """

    unit: str
    more_is_better: bool
    aim: float
    absolute: bool = False


ROWS = {
    "start: formatted disk to first acknowledged produce": Row("s", False, 0.15),
    "restart with 10,000 partitions": Row("s", False, 0.1),
    "SIGKILL of an idle server to serving again": Row("s", False, 0.1),
    "SIGKILL under load to serving again": Row("s", False, 0.1),
    "memory, idle": Row("MiB", False, 0.12),
    "memory, after load": Row("MiB", False, 0.1),
    "produce 100 B records, default batching": Row("MB/s", True, 1.0),
    "produce 100 B records, CPU per GB": Row("s/GB", False, 1.0),
    "produce 1 KB records, default batching": Row("MB/s", True, 1.3),
    "produce 1 KB records, CPU per GB": Row("s/GB", False, 1.0),
    "produce 1 MB batches": Row("MB/s", True, 1.3),
    "produce 16 KB batches of 100 B records": Row("MB/s", True, 1.0),
    "catch-up fetch": Row("MB/s", True, 1.0),
    "catch-up fetch, CPU per GB": Row("s/GB", False, 1.0),
    "one-record requests, pipelined": Row("/s", True, 2.5),
    "one-record requests, ping-pong": Row("/s", True, 0.8),
    "CreateTopics 1000x10 acknowledged": Row("s", False, 1 / 0.7),
    "CreateTopics 1000x10 until all partitions take a produce": Row("s", False, 0.2),
    "end to end p99, first 60 s": Row("ms", False, 0.5),
    "end to end p99, steady": Row("ms", False, 1.5),
    "memory of an idle connection": Row("KiB", False, 20.0, absolute=True),
}

Figures = dict[str, float]


class Load:
    """The C load generator, compiled on first use."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "load"
        source = Path(__file__).parent / "load.c"
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["gcc", "-O2", "-o", str(self.program), str(source)], check=True)

    def run(self, target: Target, requests: list[bytes], count: int, inflight: int, at: int | None = None) -> Figures:
        """Send; see load.c for the figures."""
        command = [str(self.program), "127.0.0.1", str(target.port), str(count), str(inflight)]
        command += [] if at is None else [str(at)]
        done = subprocess.run(command, input=b"".join(requests), capture_output=True, check=False, timeout=300)
        if done.returncode:
            raise AssertionError(f"load: {done.stderr.decode()} {target.tail()}")
        return {k: float(v) for k, v in json.loads(done.stdout).items()}

    def steady(self, target: Target, request: bytes, rate: int) -> subprocess.Popen[bytes]:
        """Send `rate` requests a second until told to stop or the server is gone."""
        command = [str(self.program), "127.0.0.1", str(target.port), str(rate * 3600), "5", "-1", str(rate)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert process.stdin is not None
        process.stdin.write(request)
        process.stdin.close()
        return process


def until_produced(target: Target, topic: str, begun: float, partition: int = 0) -> float:
    """Seconds from `begun` until a produce to the topic (made where missing) is acknowledged."""
    request = frames.produce(topic, partition, frames.batch(1, 100))
    while time.monotonic() - begun < READY_TIMEOUT_S:
        try:
            wire = frames.Wire(target.port, 30)
        except OSError:
            time.sleep(0.002)
            continue
        try:
            while time.monotonic() - begun < READY_TIMEOUT_S:
                wire.ask(frames.metadata([topic], create=True))
                if frames.produce_error(wire.ask(request)) == 0:
                    return time.monotonic() - begun
                time.sleep(0.002)
        except OSError:
            time.sleep(0.002)
        finally:
            wire.close()
    raise AssertionError(f"{target.name}: no produce within {READY_TIMEOUT_S} s\n{target.tail()}")


def ask_once(target: Target, request: bytes) -> bytes:
    wire = frames.Wire(target.port)
    try:
        return wire.ask(request)
    finally:
        wire.close()


def create(target: Target, names: list[str], partitions: int = 1) -> None:
    errors = set(frames.create_errors(ask_once(target, frames.create_topics(names, partitions))))
    assert errors == {0}, errors


def starts(name: str, folder: Path, load: Load) -> Figures:
    """Start, idle memory, SIGKILL."""
    target = fresh(name, folder)
    begun = time.monotonic()
    process = spawn(target)
    first = until_produced(target, "first", begun)
    time.sleep(5)
    idle = rss_mib(process)
    load.run(target, [frames.produce("first", 0, frames.batch(100, 100))], 2000, 5)
    from_idle = _killed(target, process)
    process = target.process  # type: ignore[assignment]
    sender = load.steady(target, frames.produce("first", 0, frames.batch(100, 100)), KILL_RATE)
    time.sleep(KILL_AFTER_S)
    assert sender.poll() is None, f"the load ended early\n{target.tail()}"
    from_load = _killed(target, process)
    sender.kill()
    sender.wait()
    target.kill()
    return {
        "start: formatted disk to first acknowledged produce": first,
        "memory, idle": idle,
        "SIGKILL of an idle server to serving again": from_idle,
        "SIGKILL under load to serving again": from_load,
    }


def _killed(target: Target, process: subprocess.Popen[bytes]) -> float:
    """Seconds from starting it anew after a SIGKILL until a produce is acknowledged."""
    process.send_signal(signal.SIGKILL)
    process.wait()
    begun = time.monotonic()
    spawn(target)
    return until_produced(target, "first", begun)


def topics(name: str, folder: Path, _load: Load) -> Figures:
    """CreateTopics in bulk, then a clean restart with 10,000 partitions."""
    target = fresh(name, folder).start()
    names = [f"t{i}" for i in range(1000)]
    wire = frames.Wire(target.port)
    begun = time.monotonic()
    errors: set[int] = set()
    for half in (names[:500], names[500:]):  # one request may not write more than 10,000 records
        errors |= set(frames.create_errors(wire.ask(frames.create_topics(half, 10))))
    acknowledged = time.monotonic() - begun
    assert errors == {0}, errors
    record = frames.batch(1, 10)
    for topic in names:
        for partition in range(10):
            request = frames.produce(topic, partition, record)
            while frames.produce_error(wire.ask(request)) != 0:
                time.sleep(0.001)
    usable = time.monotonic() - begun
    wire.close()
    stop(target)
    begun = time.monotonic()
    spawn(target)
    restarted = until_produced(target, "t999", begun, 9)
    target.kill()
    return {
        "CreateTopics 1000x10 acknowledged": acknowledged,
        "CreateTopics 1000x10 until all partitions take a produce": usable,
        "restart with 10,000 partitions": restarted,
    }


def bulk(name: str, folder: Path, load: Load) -> Figures:
    """Produce in bulk, catch-up fetch, small requests."""
    target = fresh(name, folder).start()
    process = target.process
    assert process is not None
    create(target, ["b100", "b1k", "b1m", "b16", "one"])
    figures: Figures = {}
    shapes = {
        "produce 100 B records, default batching": (
            "b100",
            frames.batch(min(LIBRDKAFKA_BATCH_RECORDS, LIBRDKAFKA_BATCH_BYTES // 106), 100 - 5),
        ),
        "produce 1 KB records, default batching": ("b1k", frames.batch(LIBRDKAFKA_BATCH_BYTES // 1030, 1024)),
        "produce 1 MB batches": ("b1m", frames.batch(8, 131_000)),
        "produce 16 KB batches of 100 B records": ("b16", frames.batch(150, 100)),
    }
    for row, (topic, batch) in shapes.items():
        request = [frames.produce(topic, 0, batch)]
        _accepted(target, request[0], row)
        load.run(target, request, max(200, 64 * MIB // len(batch)), 5)
        size = BURST if len(batch) > BURST // 1000 else BURST // 4
        got = _bursts(process, partial(load.run, target, request, size // len(batch), 5))
        figures[row] = got["sent"] / 1e6 / got["seconds"]
        cpu_row = row.replace(", default batching", ", CPU per GB")
        if cpu_row != row:
            figures[cpu_row] = got["cpu"] / got["sent"] * 1e9
    fetch, at = frames.fetch("b1k", 0, 0, 8 * MIB)
    load.run(target, [fetch], 64 * MIB, 1, at)
    got = _bursts(process, partial(load.run, target, [fetch], BURSTS * BURST, 1, at), bursts=1)
    figures["catch-up fetch"] = got["received"] / 1e6 / got["seconds"]
    figures["catch-up fetch, CPU per GB"] = got["cpu"] / got["received"] * 1e9
    one = [frames.produce("one", 0, frames.batch(1, 100))]
    load.run(target, one, 20_000, 100)
    figures["one-record requests, pipelined"] = 200_000 / load.run(target, one, 200_000, 100)["seconds"]
    figures["one-record requests, ping-pong"] = 20_000 / load.run(target, one, 20_000, 1)["seconds"]
    figures["memory, after load"] = rss_mib(process)
    target.kill()
    return figures


def _accepted(target: Target, request: bytes, row: str) -> None:
    """Send a request until it is not refused: the load generator counts answers, it does not read them."""
    refused = frames.produce_error(ask_once(target, request))
    while refused in NOT_YET:
        time.sleep(0.05)
        refused = frames.produce_error(ask_once(target, request))
    assert refused == 0, f"{row}: error {refused}"


def _bursts(process: subprocess.Popen[bytes], burst: Callable[[], Figures], bursts: int = BURSTS) -> Figures:
    """The middle one of some bursts by time, each after a pause and with warm memory; `cpu` is the server's."""
    taken = []
    for _ in range(bursts):
        _settle()
        warm_memory(2 * BURST)
        cpu = cpu_s(process)
        got = burst()
        got["cpu"] = cpu_s(process) - cpu
        taken.append(got)
    return sorted(taken, key=lambda figures: figures["seconds"])[len(taken) // 2]


def idle_connections(name: str, folder: Path, _load: Load) -> Figures:
    """Memory that 1,000 connections cost which have each asked once."""
    target = fresh(name, folder).start()
    process = target.process
    assert process is not None
    request = frames.metadata([])
    warm = [frames.Wire(target.port) for _ in range(200)]
    for wire in warm:
        wire.ask(request)
    before = rss_mib(process)
    wires = [frames.Wire(target.port) for _ in range(1000)]
    for wire in wires:
        wire.ask(request)
    time.sleep(2)
    grown = (rss_mib(process) - before) * 1024 / 1000
    for wire in warm + wires:
        wire.close()
    target.kill()
    return {"memory of an idle connection": grown}


def latency(name: str, folder: Path, _load: Load) -> Figures:
    """Produce and fetch of single records, 200 a second, from the first second of the server's life."""
    target = fresh(name, folder).start()
    create(target, ["e2e"])
    first = _end_to_end(target, 0, seconds=60)
    steady = _end_to_end(target, len(first), seconds=10)
    target.kill()
    return {
        "end to end p99, first 60 s": sorted(first)[int(len(first) * 0.99)],
        "end to end p99, steady": sorted(steady)[int(len(steady) * 0.99)],
    }


def _end_to_end(target: Target, offset: int, seconds: float) -> list[float]:
    """Milliseconds from sending a record until a waiting fetch has returned it."""
    producer, consumer = frames.Wire(target.port), frames.Wire(target.port)
    request = frames.produce("e2e", 0, frames.batch(1, 100))
    taken: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.monotonic()
        consumer._socket.sendall(frames.fetch("e2e", 0, offset + len(taken), MIB)[0])
        time.sleep(0.001)  # the fetch waits at the server before the record comes
        sent = time.monotonic()
        assert frames.produce_error(producer.ask(request)) == 0
        (size,) = struct.unpack(">i", consumer._read(4))
        consumer._read(size)
        taken.append((time.monotonic() - sent) * 1000)
        time.sleep(max(0.0, 0.005 - (time.monotonic() - begun)))
    producer.close()
    consumer.close()
    return taken


def _settle() -> None:
    """Let the kernel write back what earlier rounds left, so that a round does not pay for the one before."""
    os.sync()
    time.sleep(1)


SCENARIOS: dict[str, Callable[[str, Path, Load], Figures]] = {
    "starts": starts,
    "topics": topics,
    "bulk": bulk,
    "connections": idle_connections,
    "latency": latency,
}

KEPT = ("topics",)
"""Scenarios whose files stay until the end: ext4 is slow to make files for minutes after many have been removed, which
would fall on whichever server comes next."""
