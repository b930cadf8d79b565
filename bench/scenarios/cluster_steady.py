"""A warm cluster of three controllers and three brokers: commits of metadata, replicated produce, a new replica."""

from __future__ import annotations

import itertools
import socket
import statistics
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bench.clients import asking, etcd, frames, load
from bench.clients.many import answers_a_second
from bench.runs import steady
from bench.runs.row import Figures, Life, Measured, Row, Scenario, Step
from bench.servers import members
from bench.servers.process import MIB, cpu_s, settle, warm_memory
from kraft_node.cli.client import NodeClient
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.frames import encode_request
from kraft_protocol.wire.messages import CreateTopicsRequest, DeleteTopicsRequest
from tests.compat.members import Members
from tests.compat.targets import Target

CLIENTS = 1000
ERROR_AT = 4 + 4 + 1 + 4 + 1
"""The error code's position in an IncrementalAlterConfigs v1 response, after length, correlation id, tags, throttle
time and number of responses."""
MEASURED_S = 3
"""Seconds per row and round."""
COMMIT = "metadata commit, one client, p50"
COMMITS_OF_MANY = "metadata commits, 1,000 concurrent clients"
PRODUCE = "produce acks=all, replication factor 3, 100 B records"
CAUGHT_UP, CAUGHT_UP_CPU = (
    "a new replica of 1 GiB until it is in sync",
    "a new replica of 1 GiB, CPU of leader and follower per GB",
)


@contextmanager
def cluster(step: Step) -> Iterator[Life]:
    """Metadata commits on every server; replicated data on servers without a variant of metadata."""
    if step.server.kind == "etcd":
        with etcd.started(step.folder) as port:
            yield Life(partial(_commits_of_etcd, step, port), {"together_s": 0})
        return
    with step.server.cluster(step.folder) as made:
        for node in made.nodes.values():
            node.overrides.update({key.replace("_", "."): value for key, value in asking.TRIMMED_OFTEN.items()})
        members.start(made)
        loads: dict[str, Any] = {
            COMMIT: partial(_medians, made),
            COMMITS_OF_MANY: lambda seconds: _commits_of_many(made, step, seconds)[1],
        }
        bulk = _Bulk(made) if step.server.name in REPLICATED else None
        if bulk:
            loads[PRODUCE] = lambda seconds: bulk.send(seconds)["series"]
        yield Life(partial(_round, step, made, bulk), steady.warmed(step, loads))


def _round(step: Step, made: Members, bulk: _Bulk | None) -> Measured:
    seconds = step.size(MEASURED_S, 1)
    steady.again(step, partial(_commits_of_one, made))
    figures: Figures = {COMMIT: statistics.median(_commits_of_one(made, seconds))}
    steady.again(step, partial(_commits_of_many, made, step))
    figures[COMMITS_OF_MANY] = _commits_of_many(made, step, seconds)[0]
    if bulk:
        steady.again(step, bulk.send)
        got = bulk.send(seconds)
        figures[PRODUCE] = got["sent"] / 1e6 / got["seconds"]
        figures |= _caught_up(step, made)
    return Measured(figures)


def _active_port(made: Members) -> int:
    """The port of the active controller."""
    return made.nodes[made.leader()].controller_port


def _commits_of_one(made: Members, seconds: float) -> list[float]:
    """Milliseconds of each commit, one after another."""
    taken: list[float] = []
    with NodeClient("127.0.0.1", _active_port(made)) as client:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begun = time.monotonic()
            answer = client.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, members.config_change("ready", len(taken)))
            taken.append((time.monotonic() - begun) * 1000)
            assert answer.responses[0].error_code == 0, answer
    return taken


def _medians(made: Members, seconds: float) -> list[float]:
    """Median microseconds of each second."""
    return [statistics.median(_commits_of_one(made, 1)) * 1000 for _ in range(int(seconds))]


def _commits_of_many(made: Members, step: Step, seconds: float) -> tuple[float, list[int]]:
    port = _active_port(made)
    connections = [_Changing(port, number) for number in range(step.size(CLIENTS, 50))]
    try:
        return answers_a_second(connections, seconds=seconds)
    finally:
        for connection in connections:
            connection.close()


class _Changing:
    """A connection that repeatedly changes a topic's configuration."""

    def __init__(self, port: int, number: int) -> None:
        change = members.config_change("ready", number)
        self._request = b"".join(
            encode_request(1, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, "bench", change)  # type: ignore[arg-type]
        )
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self) -> None:
        self._socket.sendall(self._request)

    def receive(self) -> bool:
        answer = self._socket.recv(65536)
        assert len(answer) == 4 + struct.unpack_from(">i", answer)[0], "an answer in pieces, or none"
        error = struct.unpack_from(">h", answer, ERROR_AT)[0]
        assert error == 0, f"IncrementalAlterConfigs: error {error}"
        return True

    def close(self) -> None:
        self._socket.close()


def _commits_of_etcd(step: Step, port: int) -> Measured:
    """Puts at the leader; the first part of each series is a warm-up."""
    waited = steady.AGAIN_S + step.size(MEASURED_S, 1)
    taken, rate = etcd.commits(port, waited, step.size(CLIENTS, 50))
    return Measured({COMMIT: statistics.median(taken), COMMITS_OF_MANY: rate})


class _Bulk:
    """Replicated produce over one connection, five requests in flight."""

    def __init__(self, made: Members) -> None:
        topic = members.assigned("bulk", made.broker_ids, 1)
        topic.configs = [
            CreateTopicsRequest.CreatableTopicConfig(name, value) for name, value in asking.BOUNDED.items()
        ]
        with NodeClient("127.0.0.1", made.nodes[made.broker_ids[0]].port, 120) as client:
            members.create(client, [topic])
        port = asking.until("a leader", lambda: members.leader_port(made, "bulk", create=False))
        self._leader: Target = next(node for node in made.nodes.values() if node.port == port)
        self._request = [frames.produce("bulk", 0, frames.batch(1_000_000 // 106, 95))]

    def send(self, seconds: float) -> dict[str, Any]:
        return load.send(self._leader, self._request, seconds=seconds)


_numbers = itertools.count()


def _caught_up(step: Step, made: Members) -> Figures:
    """Give a partition of 1 GiB a second replica, which fetches all of it."""
    topic = f"big{next(_numbers)}"
    first, second = (made.nodes[broker_id] for broker_id in made.broker_ids[:2])
    batch = frames.batch(8, 131_000)
    bytes_each = step.size(1024, 32) * MIB
    with NodeClient("127.0.0.1", first.port, 120) as client:
        members.create(client, [members.assigned(topic, [made.broker_ids[0]], 1)])
        request = frames.produce(topic, 0, batch)
        asking.until("a produce", partial(members.accepted, first.port, request), 0.05)
        warm_memory(2 * bytes_each)
        load.send(first, [request], count=bytes_each // len(batch))
        settle()
        warm_memory(2 * bytes_each)
        spent = cpu_s(first, second)
        seconds = members.reassigned(client, topic, made.broker_ids[:2], 1)
        cpu = cpu_s(first, second) - spent
        client.request(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topic_names=[topic], timeout_ms=60_000))
    size = bytes_each // len(batch) * len(batch)
    return {CAUGHT_UP: size / 1e6 / seconds, CAUGHT_UP_CPU: cpu / size * 1e9}


LINGERS = (
    "ours writes a lone append at once; Kafka waits `controller.quorum.append.linger.ms` (25 ms) for others. The line "
    "below has Kafka without that wait"
)
REPLICATED = ("ours", "kafka")

SCENARIOS = [
    Scenario(
        "cluster-steady",
        "A cluster",
        (
            Row(COMMIT, "ms", False, 1.0, differs=LINGERS),
            Row(COMMITS_OF_MANY, "/s", True, 1.0, differs=LINGERS),
            Row(
                *(PRODUCE, "MB/s", True, 0.8),
                differs="followers of both check batches and do not read records; the leader of ours reads fewer "
                "records (docs/differences.md, log.validate)",
            ),
            Row(CAUGHT_UP, "MB/s", True, 1.0),
            Row(CAUGHT_UP_CPU, "s/GB", False, 1.0),
        ),
        None,
        8.5,
        (("ours", "kafka"), ("ours", "kafka-linger0"), ("ours", "etcd")),
        live=cluster,
        apart=True,
    ),
]
