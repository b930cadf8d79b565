"""Kafka Connect's exactly-once source on a cluster, while its worker and the brokers are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.compat.members import Members, wait_for
from tests.compat.targets import free_ports
from tests.peer import QUICK_JVM, missing, require_peer
from tools import peers

CLIENT = "Kafka Connect"
pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("connect")]

LINES, FEWER = 4_000, 1_200
OURS = ("kraftcluster",) * 3
AT_ONCE = 10
"""Lines that are written to the file together. The source polls it all the time; each poll is a transaction."""
WORKER_S = 240.0
"""How long a worker, which joins a group and creates topics as it starts, may take on a busy machine."""
REPLICATED = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
LOGGING = """
<Configuration>
  <Appenders><Console name="out"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console></Appenders>
  <Loggers><Root level="info"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""


class Worker:
    """A distributed worker with its REST listener; every start is a new process."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        if not peers.connect_installed():
            missing("Kafka Connect", "run `python tools/peers.py connect` (needs Java and Maven)")
        self.url = f"http://127.0.0.1:{free_ports(1)[0]}"
        self.log = folder / "connect.log"
        self.config = folder / "connect.properties"
        converter = "org.apache.kafka.connect.storage.StringConverter"
        values = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "exactly.once.source.support": "enabled",
            "listeners": self.url,
            "key.converter": converter,
            "value.converter": converter,
            "offset.flush.interval.ms": "500",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
        }
        for topic in ("offset", "config", "status"):
            values |= {f"{topic}.storage.topic": f"connect-{topic}", f"{topic}.storage.replication.factor": "3"}
        values |= {"offset.storage.partitions": "3", "status.storage.partitions": "3"}
        self.config.with_name("log4j2.xml").write_text(LOGGING)
        self.config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))

    @contextmanager
    def running(self) -> Iterator[None]:
        """A process from now on; killed at the end."""
        logging = f"-Dlog4j2.configurationFile={self.config.with_name('log4j2.xml')}"
        command = ["java", *QUICK_JVM, "-Xmx512m", logging, "-cp", f"{peers.connect()}/*:{require_peer()}/*"]
        with self.log.open("ab") as out:
            process = subprocess.Popen(
                [*command, "org.apache.kafka.connect.cli.ConnectDistributed", str(self.config)], stdout=out, stderr=out
            )
        try:
            wait_for(
                "the worker answers",
                lambda: self.ask("/connectors") is not None or process.poll() is not None,
                WORKER_S,
            )
            assert process.poll() is None, self.log.read_text()[-4000:]
            yield
        finally:
            process.kill()
            process.wait()

    def ask(self, path: str, body: Any = None) -> Any:
        """The JSON of a response; None while the worker does not answer. `body`: with PUT."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}, method="PUT" if data else "GET"
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.loads(response.read())
        except (urllib.error.URLError, OSError):
            return None

    def task_runs(self) -> bool:
        status = self.ask("/connectors/lines/status") or {}
        assert [t for t in status.get("tasks", ()) if t["state"] == "FAILED"] == [], status
        return [task["state"] for task in status.get("tasks", ())] == ["RUNNING"]


class Feeder(threading.Thread):
    """Appends lines to a file, slowly enough for many transactions."""

    def __init__(self, path: Path, lines: int) -> None:
        super().__init__(daemon=True)
        self._path = path
        self._lines = lines

    def run(self) -> None:
        for first in range(0, self._lines, AT_ONCE):
            with self._path.open("a") as file:
                file.write("".join(f"line {number}\n" for number in range(first, first + AT_ONCE)))
            time.sleep(0.1)


class Reader:
    """Counts the records of the topic, with or without those of aborted transactions."""

    def __init__(self, bootstrap: str, isolation: str) -> None:
        self.found: Counter[str] = Counter()
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": isolation})
        self._consumer.assign([TopicPartition("lines", 0, 0)])

    def has(self, lines: int) -> bool:
        """Read what is there; whether there are so many different lines."""
        for message in self._consumer.consume(500, 0.2):
            assert message.error() is None, message.error()
            self.found[(message.value() or b"").decode()] += 1
        return len(self.found) >= lines

    def wait_for_lines(self, lines: int) -> None:
        wait_for(f"{lines} lines arrived", lambda: self.has(lines), WORKER_S)

    def read_to_the_end(self) -> None:
        end = self._consumer.get_watermark_offsets(TopicPartition("lines", 0), 10)[1]
        wait_for("the reader is at the end", lambda: self.has(0) is True and self._position() >= end)

    def _position(self) -> int:
        return int(self._consumer.position([TopicPartition("lines", 0)])[0].offset)

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.timeout(1800)  # two minutes on an idle machine
@pytest.mark.parametrize(
    ("brokers", "lines", "killed"),
    [
        pytest.param(OURS, FEWER, 1, id="kraftcluster"),
        pytest.param(OURS, LINES, 3, id="kraftcluster-longer", marks=pytest.mark.slow),
        pytest.param(("apache", *OURS[1:]), LINES, 3, id="beside-apache", marks=pytest.mark.slow),
    ],
)
def test_each_line_of_a_file_arrives_once_while_worker_and_brokers_are_killed(
    tmp_path: Path, brokers: tuple[str, ...], lines: int, killed: int
) -> None:
    """`killed`: how many brokers are killed, one after the other."""
    require_peer()
    members = Members(tmp_path, controllers=("kraftcluster",), brokers=brokers, overrides=REPLICATED)
    worker = Worker(members.bootstrap, tmp_path)
    source = tmp_path / "lines.txt"
    connector = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(source),
        "topic": "lines",
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
    }
    try:
        members.start()
        members.create("lines", 1, 3)
        feeder = Feeder(source, lines)
        feeder.start()
        reader = Reader(members.bootstrap, "read_committed")
        with worker.running():
            wait_for("the connector exists", lambda: worker.ask("/connectors/lines/config", connector), WORKER_S)
            reader.wait_for_lines(lines // 10)
        with worker.running():
            reader.wait_for_lines(3 * lines // 10)
            for broker in members.broker_ids[:killed]:
                before = len(reader.found)
                members.nodes[broker].stop(signal.SIGKILL)
                members.start(broker)
                reader.wait_for_lines(min(before + lines // 10, lines))
        with worker.running():
            reader.wait_for_lines(lines)
            reader.read_to_the_end()
            assert worker.task_runs()
        assert reader.found == Counter({f"line {number}": 1 for number in range(lines)})
        reader.close()
    except AssertionError as error:
        raise AssertionError(f"{error}\n{worker.log.read_text()[-6000:]}") from error
    finally:
        members.stop()
