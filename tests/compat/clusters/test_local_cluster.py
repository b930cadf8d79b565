"""`make run`: one command starts three controllers and three brokers, restarts killed nodes and stops cleanly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kraft_node.cli.client import NodeClient
from kraft_node.cli.common import ToolError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import CreateTopicsRequest, DescribeQuorumRequest, MetadataRequest
from tests.compat.members import wait_for
from tests.compat.ports import first_of_a_cluster
from tests.peer import require_program

pytestmark = pytest.mark.xdist_group("quorum")

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "deploy" / "samples" / "plaintext.yaml"
CONTROLLERS, BROKERS = (1, 2, 3), (101, 102, 103)
PATIENCE_S = 90.0
NEARLY = 20
"""Records that a voter may lack and be called caught up: some are always on their way."""


class Started:
    """The program, its output, and the process of each node."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.port = first_of_a_cluster()
        command = [sys.executable, "-m", "kraft_cli.kraftcluster", "up", "--file", str(SAMPLE)]
        self.process = subprocess.Popen(
            [*command, "--data", str(data), "--port", str(self.port)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line)

    @property
    def processes(self) -> dict[int, int]:
        """The running processes by node."""
        reported = json.loads((self.data / "plaintext" / "status.json").read_text())
        return {int(node_id): pid for node_id, pid in reported["local"]["pids"].items()}

    @property
    def printed(self) -> str:
        return "".join(self._lines)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"localhost:{self.port + 100 * n}" for n in range(3))

    def all_serve(self) -> bool:
        """Whether every node was ready at the last look. A node that is stopped during its start reports nothing."""
        reported = json.loads((self.data / "plaintext" / "status.json").read_text())
        ready = next(one for one in reported["status"]["conditions"] if one["type"] == "Ready")
        return bool(ready["status"] == "True" and len(reported["local"]["pids"]) == len((*CONTROLLERS, *BROKERS)))

    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.printed
        return "Ctrl-C stops all" in self.printed

    def stop(self) -> int:
        """Send Ctrl-C, and a second time if the program does not end."""
        for _ in range(2):
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(PATIENCE_S)
                break
            except subprocess.TimeoutExpired:
                continue
        self._reader.join(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.returncode

    def ask(self, key: ApiKey, request: Any) -> Any:
        """The first answer of any broker; None if no broker answers."""
        for number in range(3):
            try:
                with NodeClient("localhost", self.port + 100 * number, 10) as client:
                    return client.request(key, request)
            except ToolError:
                continue
        return None

    def create(self, topic: str, partitions: int) -> None:
        wanted = CreateTopicsRequest.CreatableTopic(topic, partitions, -1)
        answer = self.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([wanted], timeout_ms=30_000))
        assert answer.topics[0].error_code == 0, answer
        assert answer.topics[0].replication_factor == 3

    def has_all_connections(self, pid: int) -> bool:
        """Whether a process has a connection to each broker."""
        sockets = set()
        for handle in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed meanwhile
                sockets.add(os.readlink(f"/proc/{pid}/fd/{handle}").removeprefix("socket:[").removesuffix("]"))
        rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()]
        there = {int(row[2].rpartition(":")[2], 16) for row in rows if row[3] == "01" and row[9] in sockets}
        return there >= {self.port + 100 * number for number in range(3)}

    def is_whole(self, topic: str) -> bool:
        """Whether every broker is in sync and every voter has caught up."""
        named = [MetadataRequest.MetadataRequestTopic(name=topic)]
        metadata = self.ask(ApiKey.METADATA, MetadataRequest(topics=named))
        asked = DescribeQuorumRequest.TopicData("__cluster_metadata", [DescribeQuorumRequest.PartitionData(0)])
        quorum = self.ask(ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest([asked]))
        if metadata is None or quorum is None or quorum.error_code or quorum.topics[0].partitions[0].error_code:
            return False
        (partition,) = quorum.topics[0].partitions
        behind = partition.high_watermark - NEARLY
        voters = {voter.replica_id for voter in partition.current_voters if voter.log_end_offset >= behind}
        partitions = metadata.topics[0].partitions
        return voters == set(CONTROLLERS) and all(sorted(row.isr_nodes) == list(BROKERS) for row in partitions)


class Shared:
    """A cluster for all tests of this file. If a test stopped it, a new cluster replaces it."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._cluster: Started | None = None

    def running(self) -> Started:
        if self._cluster is None or self._cluster.process.poll() is not None:
            self._cluster = Started(self._factory.mktemp("local") / "data")
            wait_for("the cluster is ready", self._cluster.is_ready, PATIENCE_S)
        return self._cluster

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    made = Shared(tmp_path_factory)
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def started(shared: Shared) -> Started:
    """A cluster with all nodes running."""
    cluster = shared.running()
    wait_for("all serve", cluster.all_serve, PATIENCE_S)
    return cluster


def test_one_command_starts_three_controllers_and_three_brokers(started: Started) -> None:
    assert sorted(started.processes) == [*CONTROLLERS, *BROKERS]

    def ports() -> list[int]:
        """The ports of the brokers that are not fenced: one killed before may still be fenced for a moment."""
        answer = started.ask(ApiKey.METADATA, MetadataRequest(topics=[]))
        return [] if answer is None else sorted(broker.port for broker in answer.brokers)

    wait_for("all brokers are alive", lambda: len(ports()) == len(BROKERS), PATIENCE_S)
    assert ports() == [started.port, started.port + 100, started.port + 200]


@pytest.mark.kcat
def test_kcat_does_not_notice_the_kill_of_any_single_process(started: Started, tmp_path: Path) -> None:
    started.create("t", 1)
    kcat = [require_program("kcat"), "-b", started.bootstrap, "-t", "t"]
    # kcat ends by itself if it has no connection to any broker. It does not restore idle connections (sparse
    # connections).
    kcat += ["-X", "enable.sparse.connections=false", "-X", "reconnect.backoff.max.ms=500"]
    safe = ["-X", "acks=all", "-X", "enable.idempotence=true", "-X", "message.timeout.ms=0"]
    with (tmp_path / "printed").open("wb") as printed, (tmp_path / "seen").open("wb") as seen:
        producer = subprocess.Popen([*kcat, "-P", *safe], stdin=subprocess.PIPE, stdout=printed, stderr=printed)
        consumer = subprocess.Popen([*kcat, "-C", "-u", "-o", "beginning"], stdout=seen, stderr=printed)
    over = threading.Event()
    lines: list[bytes] = []

    def type_lines() -> None:
        assert producer.stdin is not None
        with suppress(BrokenPipeError):
            while not over.is_set():
                lines.append(b"line %d" % len(lines))
                producer.stdin.write(lines[-1] + b"\n")
                producer.stdin.flush()
                time.sleep(0.01)
        with suppress(BrokenPipeError):
            producer.stdin.close()

    typing = threading.Thread(target=type_lines)
    typing.start()
    try:
        for node_id in (*CONTROLLERS, *BROKERS):
            wait_for("everybody is well", lambda: started.is_whole("t"), PATIENCE_S)
            for client in (producer, consumer):
                assert client.poll() is None, (tmp_path / "printed").read_text()
                wait_for("it is connected to all", lambda c=client: started.has_all_connections(c.pid), PATIENCE_S)
            before, count = started.processes[node_id], len(lines)
            os.kill(before, signal.SIGKILL)
            wait_for(f"{node_id} is back", lambda n=node_id, p=before: started.processes.get(n, p) != p, PATIENCE_S)
            wait_for("lines go on", lambda c=count: (tmp_path / "seen").read_bytes().count(b"\n") > c, PATIENCE_S)
        over.set()
        typing.join(PATIENCE_S)
        assert producer.wait(PATIENCE_S) == 0, (tmp_path / "printed").read_text()
        wait_for(
            "all lines are consumed", lambda: (tmp_path / "seen").read_bytes().count(b"\n") >= len(lines), PATIENCE_S
        )
        assert consumer.poll() is None, (tmp_path / "printed").read_text()
    finally:
        over.set()
        for process in (producer, consumer):
            process.kill()
            process.wait()
        typing.join()
    assert (tmp_path / "seen").read_bytes().splitlines() == lines
    assert "elivery failed" not in (tmp_path / "printed").read_text()


def test_ctrl_c_stops_all_nodes_cleanly(started: Started) -> None:
    assert started.stop() == 0
    for node_id in (*CONTROLLERS, *BROKERS):
        assert "stopped code=0" in (started.data / "plaintext" / "nodes" / str(node_id) / "node.log").read_text()
