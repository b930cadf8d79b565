"""`python -m bench.clients.hostile [INPUT ...]`: waiting times of an honest client beside hostile clients.

Separate processes send each input to a fresh node. An honest client sends a record every 5 ms over its own connection
and notes the time to each acknowledgement. It runs first alone, then beside the input.
"""

from __future__ import annotations

import multiprocessing
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from bench.clients import frames, hostile_messages
from bench.clients.asking import create
from kraft_protocol.records.batch import seal
from kraft_protocol.records.compression import Compression, compress
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.frames import encode_request
from kraft_protocol.wire.messages import ApiVersionsRequest, DescribeConfigsRequest, FetchRequest, MetadataRequest
from tests.compat.targets import Ours, Target

SECONDS = 8.0
INTERVAL_S = 0.005
RECORD = b"\x0c\x00\x00\x00\x01\x00\x00"
"""The smallest record: no key, an empty value."""
TOPIC_RESOURCE = 2
CONTROLLER = "controller-"


def request(key: ApiKey, version: int, message: object) -> bytes:
    """The frame of a request, ready to send. The correlation id is always 1."""
    return b"".join(bytes(part) for part in encode_request(1, key, version, "hostile", message))  # type: ignore[arg-type]


def bomb() -> bytes:
    """A batch of 472 bytes with a header that makes the broker read its 600,000 records."""
    count = 600_000
    fields = (Compression.ZSTD, count - 1, 1000, 999, -1, -1, -1, count)
    return frames.produce("victim", 0, seal(0, -1, fields, compress(Compression.ZSTD, RECORD * count)))


def api_versions() -> bytes:
    """10,000 small requests in a row, each with a larger answer."""
    return request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()) * 10_000


def configs() -> bytes:
    """A request for all configurations of one topic, 20,000 times."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(TOPIC_RESOURCE, "victim", None)
    return request(ApiKey.DESCRIBE_CONFIGS, 1, DescribeConfigsRequest(resources=[resource] * 20_000))


def metadata() -> bytes:
    """A request for 100,000 topics that do not exist. The attack does not read the answers."""
    topics = [MetadataRequest.MetadataRequestTopic(name=f"missing-{i}") for i in range(100_000)]
    return request(ApiKey.METADATA, 4, MetadataRequest(topics=topics, allow_auto_topic_creation=False))


def long_poll() -> bytes:
    """A fetch that waits for the honest producer's partition; with very many connections, each record wakes all of
    them."""
    row = FetchRequest.FetchPartition(0, fetch_offset=0, partition_max_bytes=1)
    topics = [FetchRequest.FetchTopic("honest", partitions=[row])]
    fetch = FetchRequest(max_wait_ms=30_000, min_bytes=1 << 20, max_bytes=1 << 20, topics=topics)
    return request(ApiKey.FETCH, 12, fetch)


def _data(make: Callable[[], hostile_messages.Asked]) -> bytes:
    return make().data


INPUTS: dict[str, tuple[Callable[[], bytes], int, bool]] = {
    "bombs": (bomb, 10, True),
    "api-versions": (api_versions, 50, True),
    "describe-configs": (configs, 10, True),
    "metadata-unread": (metadata, 60, False),
    "long-polls": (long_poll, 1000, True),
    **{name: (partial(_data, make), 4, True) for name, make in hostile_messages.MESSAGES.items()},
}
INPUTS |= {CONTROLLER + name: INPUTS[name] for name in hostile_messages.TO_CONTROLLERS}
"""Name -> the bytes that a connection sends repeatedly, the number of connections, whether they read responses."""


def attack(port: int, name: str) -> None:
    """Send one input over its connections until this process is killed. A closed connection is opened again."""
    make, count, reads = INPUTS[name]
    data = make()
    connections = [_attacker(port) for _ in range(count)]
    sent = [0] * count
    while True:
        for number, connection in enumerate(connections):
            try:
                with suppress(BlockingIOError):
                    sent[number] = (sent[number] + connection.send(memoryview(data)[sent[number] :])) % len(data)
                with suppress(BlockingIOError):
                    if reads and not connection.recv(1 << 20):
                        raise ConnectionResetError  # an end counts as a reset
            except OSError:
                connection.close()
                with suppress(OSError):  # the node may be busy: then in the next round
                    connections[number], sent[number] = _attacker(port), 0
        time.sleep(0.001)


def _attacker(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setblocking(False)
    return connection


def honest(port: int, seconds: float, patience_s: float = 120) -> list[float]:
    """Milliseconds to each record's acknowledgement.

    Raises TimeoutError after `patience_s` without a response, ConnectionError if the node closes the connection.
    """
    record = frames.produce("honest", 0, frames.batch(1, 100), acks=1)
    waits = []
    with socket.create_connection(("127.0.0.1", port), timeout=patience_s) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begun = time.monotonic()
            connection.sendall(record)
            _receive(connection, int.from_bytes(_receive(connection, 4), "big"))
            waits.append((time.monotonic() - begun) * 1000)
            time.sleep(INTERVAL_S)
    return waits


def _receive(connection: socket.socket, size: int) -> bytes:
    found = connection.recv(size, socket.MSG_WAITALL)
    if len(found) < size:
        raise ConnectionError("the node closed an honest connection")
    return found


def attacked_port(target: Target, name: str) -> int:
    """The port for an input: `controller-NAME` goes directly to the controller's listener."""
    return target.controller_port if name.startswith(CONTROLLER) else target.port


def measure(name: str, folder: Path) -> None:
    """Measure one input on a fresh node below `folder`, and print the honest client's waits in milliseconds."""
    target = Ours("kraftcluster", folder / name).start()
    try:
        create(target, ["honest", "victim"])
        alone = honest(target.port, SECONDS)
        attacker = multiprocessing.get_context("spawn").Process(
            target=attack, args=(attacked_port(target, name), name), daemon=True
        )
        attacker.start()
        time.sleep(1.0)
        beside = honest(target.port, SECONDS)
        assert attacker.is_alive(), "the attack has ended by itself"
        attacker.kill()
        attacker.join()
    finally:
        target.kill()
    p99 = [statistics.quantiles(waits, n=100)[98] for waits in (alone, beside)]
    print(
        f"{name}: p99 alone {p99[0]:.2f} ms, beside {p99[1]:.2f} ms, {p99[1] / p99[0]:.1f}x; longest beside "
        f"{max(beside):.1f} ms, {len(beside)} of {len(alone)} acknowledged"
    )


def main() -> None:
    """Measure the inputs that the arguments name, or all."""
    with tempfile.TemporaryDirectory() as folder:
        for name in sys.argv[1:] or INPUTS:
            measure(name, Path(folder))


if __name__ == "__main__":
    main()
