"""One node as a process: it starts, is observed, stops, restarts, refuses bad starts, and survives hostile clients."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.targets import Ours, Target, free_ports

CLIENT = "The process, and strange clients"
pytestmark = pytest.mark.xdist_group("node-basic")

MakeNode = Callable[..., Ours]


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[MakeNode]:
    """Makes nodes; nodes that still run at the end are stopped."""
    made: list[Ours] = []

    def make(folder: str = "node", **overrides: str) -> Ours:
        node = Ours(folder, tmp_path / folder, {k.replace("_", "."): v for k, v in overrides.items()})
        made.append(node)
        return node

    yield make
    for node in made:
        node.kill()


def produce(node: Target, topic: str, values: list[str], **settings: object) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap, "message.timeout.ms": 20_000, "acks": "all", **settings})
    failed: list[object] = []
    for value in values:
        producer.produce(topic, value, callback=lambda error, _: failed.append(error) if error else None)
        producer.poll(0)
    assert producer.flush(20) == 0
    assert failed == []


def consume(node: Target, topic: str, count: int, group: str = "g", timeout_s: float = 20) -> list[str]:
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[str] = []
    deadline = time.monotonic() + timeout_s
    try:
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None
                found.append(message.value().decode())
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        with closing(e):
            return e.code, e.read().decode()


def refusal(node: Ours, *arguments: str) -> str:
    """The output of a node that refuses to start."""
    done = subprocess.run(
        node._command("server", str(node.properties()), *arguments),
        capture_output=True,
        timeout=30,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_stopped_node_keeps_everything(make_node: MakeNode) -> None:
    node = make_node().start()
    produce(node, "kept", [f"a{i}" for i in range(500)])
    assert consume(node, "kept", 200, "readers")[:200] == [f"a{i}" for i in range(200)]
    assert node.stop() == 0
    assert (node.data / ".kafka_cleanshutdown").exists()
    node.start()
    produce(node, "kept", [f"b{i}" for i in range(500)])
    expected = [f"a{i}" for i in range(500)] + [f"b{i}" for i in range(500)]
    assert consume(node, "kept", 1000, "others") == expected
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # a node started under nohup inherits this
        assert node.stop(signal.SIGHUP) == 0
        assert (node.data / ".kafka_cleanshutdown").exists()


def test_a_killed_node_keeps_acknowledged_records(make_node: MakeNode) -> None:
    node = make_node().start()
    for round_number in range(4):
        produce(node, "kept", [f"{round_number}-{i}" for i in range(300)])
        node.kill()
        node.start()
    values = consume(node, "kept", 1200)
    assert values == [f"{r}-{i}" for r in range(4) for i in range(300)]


def test_committed_offsets_survive_a_kill(make_node: MakeNode) -> None:
    node = make_node().start()
    produce(node, "t", [str(i) for i in range(100)])
    assert len(consume(node, "t", 100, "readers")) == 100
    node.kill()
    node.start()
    produce(node, "t", ["new"])
    assert consume(node, "t", 1, "readers") == ["new"]


def test_probes_and_metrics(make_node: MakeNode) -> None:
    (port,) = free_ports(1)
    node = make_node(http_listener=f"127.0.0.1:{port}").start()
    produce(node, "measured", ["x" * 100] * 50)
    assert get(port, "/livez") == (200, "ok\n")
    assert get(port, "/readyz") == (200, "ok\n")
    status, text = get(port, "/metrics")
    assert status == 200
    lines = dict(line.rsplit(" ", 1) for line in text.split("\n") if line and not line.startswith("#"))
    assert int(lines['kafka_log_log_logendoffset{topic="measured",partition="0"}']) == 50
    assert int(lines['kafka_log_log_size{topic="measured",partition="0"}']) > 5000
    assert any(k.startswith('kafka_network_requestmetrics_requests_total{request="Produce"') for k in lines)
    assert lines["kafka_controller_kafkacontroller_activecontrollercount"] == "1"
    assert lines["kafka_controller_kafkacontroller_globaltopiccount"] == "1"
    assert lines["kafka_server_kafkaserver_brokerstate"] == "3"


def test_a_stopping_node_is_not_ready(make_node: MakeNode) -> None:
    (port,) = free_ports(1)
    node = make_node(http_listener=f"127.0.0.1:{port}").start()
    assert get(port, "/readyz") == (200, "ok\n")
    assert node.process is not None
    node.process.send_signal(signal.SIGTERM)
    seen = set()
    while node.process.poll() is None:
        with suppress(OSError):
            seen.add(get(port, "/readyz"))
    assert node.process.returncode == 0
    assert seen <= {(200, "ok\n"), (503, "stopping\n")}


def test_every_log_line_is_an_object_on_request(make_node: MakeNode) -> None:
    node = make_node()
    node.format()
    command = [*node._command("server", str(node.properties())), "--json", "--override", "unknown.key=1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    node.process = process  # type: ignore[assignment]
    node.wait_ready()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    lines = [json.loads(line) for line in out.splitlines()]
    assert process.returncode == 0
    assert all({"time", "level", "logger", "message"} <= set(line) for line in lines)
    assert any("unknown.key" in line["message"] and line["level"] == "WARNING" for line in lines)


def test_the_start_is_refused_with_the_reason(make_node: MakeNode, tmp_path: Path) -> None:
    node = make_node()
    printed = refusal(node)
    assert str(node.data) in printed
    assert "format" in printed

    node.format()
    meta = node.data / "meta.properties"
    text = meta.read_text()
    meta.write_text(text.replace("node.id=1", "node.id=7"))
    printed = refusal(node)
    assert "7" in printed
    assert str(node.data) in printed
    meta.write_text(text)

    other = make_node("other")
    other.overrides["log.dirs"] = str(node.data)
    node.start()
    assert str(node.data) in refusal(other)  # locked
    node.stop()

    second = tmp_path / "second"
    second.mkdir()
    (second / "meta.properties").write_text(text.replace("cluster.id=k", "cluster.id=K"))
    node.overrides["log.dirs"] = f"{node.folder / 'data'},{second}"
    printed = refusal(node)
    assert "cluster" in printed.lower()


def test_a_port_that_is_taken_refuses_the_start(make_node: MakeNode) -> None:
    node = make_node()
    node.format()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", node.port))
        taken.listen()
        assert str(node.port) in refusal(node)


def test_wrong_values_stop_the_start_naming_key_and_value(make_node: MakeNode) -> None:
    node = make_node()
    node.format()
    printed = refusal(node, "--override", "num.partitions=many")
    assert "num.partitions" in printed
    assert "many" in printed


def _descriptors(wanted: int) -> int:
    """Allow this process to open `wanted` connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = wanted + 1000
    if soft < enough:
        soft = enough if hard == resource.RLIM_INFINITY else min(hard, enough)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return min(wanted, soft - 500)


def test_strange_clients_do_not_disturb_honest_ones(make_node: MakeNode) -> None:
    node = make_node(socket_request_max_bytes=str(10 << 20)).start()
    address = ("127.0.0.1", node.port)
    idle = []
    try:
        for number in range(_descriptors(10_000)):
            s = socket.socket()
            s.connect(address)
            idle.append(s)
            if number % 3 == 1:
                s.sendall(struct.pack(">ihhi", 1000, 0, 9, 1))  # half a request, never completed
            elif number % 3 == 2:
                s.sendall(struct.pack(">i", 9 << 20))  # announces a large request
        garbage = [
            struct.pack(">i", 2**31 - 1) + b"x" * 1000,
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01" + os.urandom(500),
            os.urandom(100_000),
            b"\x00" * 10_000,
        ]
        for number in range(100):
            with socket.create_connection(address) as s:
                s.settimeout(5)
                try:
                    s.sendall(garbage[number % len(garbage)])
                    while s.recv(65536):
                        pass
                except ConnectionError:
                    pass
        produce(node, "honest", [str(i) for i in range(2000)])
        assert consume(node, "honest", 2000) == [str(i) for i in range(2000)]
        rss = Path(f"/proc/{node.process.pid}/status").read_text()  # type: ignore[union-attr]
        assert int(rss.split("VmRSS:")[1].split()[0]) < 100 * 1024
    finally:
        for s in idle:
            s.close()
    assert node.stop() == 0
    assert "Traceback" not in node.log.read_text()


def test_idle_connections_are_closed(make_node: MakeNode) -> None:
    node = make_node(connections_max_idle_ms="1000").start()
    with socket.create_connection(("127.0.0.1", node.port)) as s:
        s.settimeout(10)
        assert s.recv(1) == b""


def _is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.05)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_connections_of_one_address_are_bounded(make_node: MakeNode) -> None:
    node = make_node(max_connections_per_ip="5").start()
    opened = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(8)]
    closed: set[socket.socket] = set()
    deadline = time.monotonic() + 60
    while len(closed) < 3 and time.monotonic() < deadline:
        closed |= {s for s in set(opened) - closed if _is_closed(s)}
    time.sleep(0.3)  # and no more than these connections
    closed |= {s for s in set(opened) - closed if _is_closed(s)}
    for s in opened:
        s.close()
    assert len(closed) == 3


def test_a_clean_stop_does_not_wait_for_long_polls(make_node: MakeNode) -> None:
    node = make_node().start()
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in admin.create_topics([NewTopic("quiet", 3, 1)]).values():
        future.result(10)
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g", "fetch.wait.max.ms": 60_000,
                         "socket.timeout.ms": 70_000})  # fmt: skip
    consumer.subscribe(["quiet"])
    consumer.poll(3)
    begun = time.monotonic()
    assert node.stop() == 0
    assert time.monotonic() - begun < 45  # the fetch would otherwise wait for the rest of its 60 s
    consumer.close()


def test_a_second_signal_stops_at_once_and_keeps_acknowledged_records(make_node: MakeNode) -> None:
    node = make_node().start()
    produce(node, "kept", ["a", "b"])
    process = node.process
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)  # so that both signals are pending before the node handles the first
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(10) == 130
    node.process = None
    node.start()
    assert consume(node, "kept", 2) == ["a", "b"]


def test_a_node_with_a_failed_disk_ends_with_the_reason(make_node: MakeNode) -> None:
    node = make_node()
    node.format()
    limit = (1 << 20, 1 << 20)  # bytes a file: beyond it writes fail as on a full disk
    process = subprocess.Popen(
        node._command("server", str(node.properties())),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),  # noqa: PLW1509
    )
    node.process = process  # type: ignore[assignment]
    node.wait_ready()
    producer = Producer(
        {"bootstrap.servers": node.bootstrap, "message.timeout.ms": 3_000, "logger": logging.getLogger()}
    )
    for _ in range(300):
        producer.produce("big", bytes(20_000))
        producer.poll(0)
    producer.flush(10)
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 1
    assert str(node.data) in out.splitlines()[-1]
    assert "File too large" in out.splitlines()[-1]


BREAKS_A_LAW = """
import sys
from kraft_node.cli import server_start
from kraft_node.metadata.loader import MetadataLoader
apply = MetadataLoader.apply
def breaks(self, records, epoch, timestamp_ms):
    apply(self, records, epoch, timestamp_ms)
    assert self.image.topics.by_name("last") is None, "law: planted"
MetadataLoader.apply = breaks
sys.exit(server_start.main(sys.argv[1:]))
"""


def test_a_node_that_breaks_a_law_ends_with_the_reason(make_node: MakeNode) -> None:
    node = make_node()
    node.format()
    command = [sys.executable, "-c", BREAKS_A_LAW, str(node.properties())]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    node.process = process  # type: ignore[assignment]
    node.wait_ready()
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    (created,) = admin.create_topics([NewTopic("last", 1, 1)], request_timeout=3).values()
    with pytest.raises(KafkaException):
        created.result()
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 1
    last = out.splitlines()[-1]
    assert f"__cluster_metadata-0 in {node.data}" in last
    assert last.endswith("delivering commits: AssertionError: law: planted")
    node.process = None


def test_the_version_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kraft_node.cli.server_start", "--version"], capture_output=True, text=True, check=True
    )
    assert "4.3.1" in done.stdout
