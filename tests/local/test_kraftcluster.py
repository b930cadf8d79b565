"""`kraftcluster` on real processes with real clients: a roll, a killed supervisor, replacements.

One producer (idempotent, acks=all) and one consumer run from the first topic to the last step. Every acknowledged
record has to arrive, once and in order.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.ports import first_of_a_cluster

pytestmark = [pytest.mark.xdist_group("kraftcluster"), pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
TOPIC = "t"
PARTITIONS = 3
PATIENCE_S = 180.0
PAUSE_S = 0.05
"""Between two records: each costs requests to three brokers and answers from them, on both sides, for minutes."""
COMMAND_S = 600.0
"""A replacement by another id restarts seven nodes."""


class Cluster:
    """The program, with its own folder and file."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "kraftcluster.yaml"
        self.data = folder / "data"
        self.document: dict[str, Any] = yaml.safe_load((ROOT / "deploy/samples/plaintext.yaml").read_text())
        self.document["metadata"]["name"] = "sample"
        self.write()
        self.port = first_of_a_cluster()

    def write(self) -> None:
        """Write the file atomically, because it may be read at any time."""
        beside = self.file.with_suffix(".new")
        beside.write_text(yaml.safe_dump(self.document))
        beside.replace(self.file)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kraft_cli.kraftcluster", words[0], "--data", str(self.data)]
        return subprocess.run(
            [*command, *words[1:]],
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_S,
            cwd=self.file.parent,
        )

    def must(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.printed()}"
        return done.stdout

    def up(self) -> str:
        return self.must("up", "--file", str(self.file), "--port", str(self.port), "--detach", "--timeout", "150")

    def printed(self) -> str:
        log = self.data / "sample" / "supervisor.log"
        return log.read_text() if log.exists() else ""

    def resource(self) -> dict[str, Any]:
        """The resource as the supervisor last reported it: equals `status -o json`, without a process for each look."""
        found: dict[str, Any] = json.loads((self.data / "sample" / "status.json").read_text())
        return found

    def pids(self) -> dict[str, int]:
        found: dict[str, int] = self.resource()["local"]["pids"]
        return found

    def bootstrap(self) -> str:
        return ",".join(f"localhost:{self.port + 100 * number}" for number in range(3))

    def driver(self) -> int:
        found: int = json.loads((self.data / "sample" / "lock").read_text())["pid"]
        return found


class Traffic:
    """A producer and a consumer."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[tuple[int, int]] = []
        self.failed: list[str] = []
        self.seen: list[tuple[int, int]] = []
        self._over = threading.Event()
        self._produced = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "message.timeout.ms": int(PATIENCE_S * 1000),
            }
        )
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._consume)]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        number = 0
        while not self._over.is_set():
            partition, value = number % PARTITIONS, number // PARTITIONS

            def delivered(error: KafkaError | None, _: object, p: int = partition, v: int = value) -> None:
                if error is None:
                    self.acknowledged.append((p, v))
                else:
                    self.failed.append(str(error))

            self._producer.produce(TOPIC, str(value), partition=partition, on_delivery=delivered)
            number += 1
            self._producer.poll(0)
            time.sleep(PAUSE_S)
        self._producer.flush(PATIENCE_S)
        self._produced.set()

    def _consume(self) -> None:
        until = float("inf")
        while time.monotonic() < until and not (self._produced.is_set() and len(self.seen) >= len(self.acknowledged)):
            if self._produced.is_set() and until == float("inf"):
                until = time.monotonic() + PATIENCE_S
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.seen.append((message.partition(), int(message.value() or b"")))
        self._consumer.close()

    def goes_on(self) -> None:
        """Check that records are acknowledged and read at present."""
        acknowledged, seen = len(self.acknowledged), len(self.seen)
        _wait("records are acknowledged", lambda: len(self.acknowledged) > acknowledged + 10)
        _wait("records are read", lambda: len(self.seen) > seen + 10)

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE_S)
            assert not thread.is_alive()


def _wait(what: str, done: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < until, what
        time.sleep(0.1)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    try:
        yield made
    finally:
        made.run("down")


def _settled(cluster: Cluster) -> bool:
    resource = cluster.resource()
    nodes = resource["status"]["nodes"]
    ready = {one["type"]: one["status"] for one in resource["status"]["conditions"]}["Ready"]
    return ready == "True" and not any(node.get("needsRestart") for node in nodes)


@pytest.mark.parametrize("new_id", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["same ids", "a new id"])
def test_no_record_is_lost_in_rolls_replacements_scaling_and_a_killed_supervisor(
    cluster: Cluster, new_id: bool
) -> None:
    """`new_id`: a controller also gets another id, for which all nodes restart."""
    assert cluster.bootstrap() in cluster.up()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(PATIENCE_S)
    traffic = Traffic(cluster.bootstrap())
    try:
        traffic.goes_on()
        before = cluster.pids()

        # A roll in which the supervisor is killed; the next supervisor continues it.
        cluster.must("roll", "1", "101", "--no-wait")
        _wait("the roll has begun", lambda: cluster.pids() != before)
        os.kill(cluster.driver(), signal.SIGKILL)
        traffic.goes_on()
        cluster.up()
        _wait("the roll is done", lambda: _settled(cluster))
        after = cluster.pids()
        assert {node_id for node_id in before if before[node_id] != after[node_id]} == {"1", "101"}

        # A broker and a controller get empty disks; another controller's id is retired.
        cluster.must("replace", "102")
        cluster.must("replace", "3")
        if new_id:
            cluster.must("replace", "2", "--new-id")
        second = 4 if new_id else 2
        status = json.loads(cluster.must("status", "-o", "json"))["status"]
        assert sorted(status["voters"]) == sorted([1, 3, second])
        disks = {1: 0, 3: 1, second: 0, 101: 0, 102: 1, 103: 0}
        assert {node["id"]: node["disk"] for node in status["nodes"]} == disks
        assert status.get("retiredIds", []) == ([2] if new_id else [])
        traffic.goes_on()

        # A changed file: one more broker, and a value that needs no restart.
        before = cluster.pids()
        cluster.document["spec"]["replicas"] = 4
        cluster.document["spec"]["config"] |= {"log.retention.ms": "3600000"}
        cluster.write()
        _wait("the file is followed", lambda: "104" in cluster.pids() and _settled(cluster))
        assert before.items() <= cluster.pids().items(), "a node was restarted for nothing"
        traffic.goes_on()
    finally:
        traffic.stop()
    assert traffic.failed == []
    for partition in range(PARTITIONS):
        values = [value for number, value in traffic.seen if number == partition]
        assert values == list(range(len(values))), "a record is missing, twice there, or out of order"
    assert len(traffic.seen) == len(traffic.acknowledged)

    assert "stopped" in cluster.must("down")
    for node_id in (1, 3, second, 101, 102, 103, 104):
        log = (cluster.data / "sample" / "nodes" / str(node_id) / "node.log").read_text()
        assert log.rstrip().splitlines()[-1].endswith("stopped code=0"), node_id
    assert cluster.run("status").returncode == 1
    cluster.must("down", "--wipe")
    assert not (cluster.data / "sample").exists()
