"""The same work over TLS: produce and fetch by librdkafka, and an honest client beside a flood of half handshakes.

Both servers have the same certificate (ECDSA P-256) and their own defaults, so TLS 1.3 with AES-256-GCM is agreed.
"""

from __future__ import annotations

import multiprocessing
import socket
import ssl
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from bench.clients import asking, frames, hostile, load
from bench.runs import steady
from bench.runs.row import Life, Measured, Row, Scenario, Step
from bench.scenarios.librdkafka import KEPT_GIB, MEASURED_S, _counted, _series
from bench.scenarios.produce import VALIDATED
from bench.scenarios.storage import p99, spread
from bench.servers.process import MIB, cpu_s, settle, warm_memory
from tests.certificates import Authority
from tests.compat.targets import Target, free_ports

SIZE = 1024
PRODUCE, PRODUCE_CPU = (
    "produce over TLS, every record read",
    "produce over TLS, every record read, CPU of the server per GB",
)
FETCH, FETCH_CPU = "catch-up fetch over TLS", "catch-up fetch over TLS, CPU of the server per GB"
BESIDE = "honest producer's p99 beside 200 half handshakes at a time, against alone"
HALF = 200
"""Connections that send a ClientHello and no more; each is replaced as soon as the server has answered."""
ALONE_S, BESIDE_S, BEGIN_S = 4.0, 4.0, 1.0


@contextmanager
def _secured(step: Step) -> Iterator[tuple[Target, Target, tuple[str, ...]]]:
    """A node, the same node at its TLS listener, and the client's settings."""
    authority = Authority(step.folder / "certificates")
    with step.node(**asking.TRIMMED_OFTEN, **authority.issue("CN=node,O=Example").stores()) as target:
        (port,) = free_ports(1)
        plain = f"PLAINTEXT://127.0.0.1:{target.port}"
        target.overrides |= {
            "listeners": f"{plain},SECURE://127.0.0.1:{port},CONTROLLER://127.0.0.1:{target.controller_port}",
            "advertised.listeners": f"{plain},SECURE://127.0.0.1:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL,CONTROLLER:PLAINTEXT",
        }
        target.properties()
        target.start()
        secure = type(target)(target.name, target.folder, dict(target.overrides), port, target.controller_port)
        secure.process = target.process
        yield target, secure, ("security.protocol=ssl", f"ssl.ca.location={authority.path}")


@contextmanager
def transfer(step: Step) -> Iterator[Life]:
    """MB of values per second and processor seconds of the server per GB, to and from one partition."""
    with _secured(step) as (target, secure, settings):
        asking.create(target, ["bulk"], configs={**asking.BOUNDED, **VALIDATED})
        asking.create(target, ["read"])
        batch = frames.batch(900, SIZE)
        asking.until_accepted(target, frames.produce("bulk", 0, batch), "bulk")
        request = frames.produce("read", 0, batch)
        asking.until_accepted(target, request, "read")
        size = int(step.size(KEPT_GIB * 1024, 32) * MIB)
        warm_memory(size)
        load.send(target, [request], count=size // len(batch))
        end = str(asking.end_offset(target, "read"))

        def produce(seconds: str) -> dict[str, Any]:
            return load.rdkafka(secure, "produce", "bulk", str(SIZE), seconds, *settings)

        def fetch(seconds: str) -> dict[str, Any]:
            return load.rdkafka(secure, "fetch", "read", end, seconds, *settings)

        def taken() -> Measured:
            figures, detail = {}, {}
            for rate, cpu, run in ((PRODUCE, PRODUCE_CPU, produce), (FETCH, FETCH_CPU, fetch)):
                settle()
                spent = cpu_s(target)
                got = run(_counted(step, MEASURED_S))
                spent = cpu_s(target) - spent
                got.pop("series")
                figures[rate] = got["bytes"] / 1e6 / got["seconds"]
                figures[cpu] = spent / got["bytes_all"] * 1e9
                detail[rate] = got
            return Measured(figures, detail)

        loads = {PRODUCE: partial(_series, produce), FETCH: partial(_series, fetch)}
        yield Life(taken, steady.warmed(step, loads))


def half_handshakes(port: int) -> None:
    """Begin handshakes and never end them, until this process is killed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def hello() -> bytes:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        with suppress(ssl.SSLWantReadError):
            context.wrap_bio(incoming, outgoing).do_handshake()
        return outgoing.read()

    opened: list[socket.socket] = []
    while True:
        while len(opened) < HALF:
            connection = socket.create_connection(("127.0.0.1", port))
            connection.sendall(hello())
            connection.setblocking(False)
            opened.append(connection)
        for connection in opened.copy():
            with suppress(BlockingIOError):
                with suppress(ConnectionError):
                    connection.recv(1 << 16)
                # The server has signed, which costs it most, or has closed: begin again.
                connection.close()
                opened.remove(connection)


@contextmanager
def flooded(step: Step) -> Iterator[Life]:
    """p99 of a record every 5 ms, alone and beside the flood."""
    with _secured(step) as (target, secure, _):
        asking.create(target, ["honest"])
        time.sleep(1)

        def medians(seconds: float) -> list[float]:
            return [statistics.median(hostile.honest(target.port, 1)) * 1000 for _ in range(int(seconds))]

        def taken() -> Measured:
            alone = hostile.honest(target.port, step.size(ALONE_S, 1))
            attacker = multiprocessing.get_context("spawn").Process(
                target=half_handshakes, args=(secure.port,), daemon=True
            )
            attacker.start()
            try:
                time.sleep(BEGIN_S)
                beside = hostile.honest(target.port, step.size(BESIDE_S, 1))
            finally:
                attacker.kill()
                attacker.join()
            return Measured({BESIDE: p99(beside) / p99(alone)}, {"alone": spread(alone), "beside": spread(beside)})

        yield Life(taken, steady.warmed(step, {"alone": medians}))


SCENARIOS = [
    Scenario(
        "tls",
        "One node, by librdkafka",
        (
            Row(PRODUCE, "MB/s", True, 1.0),
            Row(PRODUCE_CPU, "s/GB", False, 1.0),
            Row(FETCH, "MB/s", True, 1.0),
            Row(FETCH_CPU, "s/GB", False, 1.0),
        ),
        None,
        5.0,
        live=transfer,
    ),
    Scenario(
        "half-handshakes",
        "Hostile input",
        (Row(BESIDE, "x", False, 3.0, True, "the attacker runs on the same two cores as the server"),),
        None,
        2.5,
        live=flooded,
    ),
]
