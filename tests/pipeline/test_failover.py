"""A sink writes and a KafkaTable reads while brokers stop or hang: every record arrives, once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraft_pipeline.sinks.options import parse_sink
from kraft_pipeline.sinks.rows import RowWriter
from kraft_pipeline.tables import runner
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.specs import table_spec
from kraft_protocol.client.cluster import Cluster, Settings
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import MetadataRequest
from tests.compat.members import Members, wait_for
from tests.compat.pipeline.test_pipeline_table import document, rows

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("replication"), pytest.mark.timeout(1800)]

PARTITIONS = 3
REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2"}
RETRY_S = 300.0


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    made = Members(tmp_path, ("kraftcluster",), ("kraftcluster",) * 3, overrides=REPLICATED)
    yield made
    made.stop()


class Background(threading.Thread):
    """Runs a function in a thread; `result` raises its exception."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._work, self._error = work, None
        self.start()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as e:
            self._error = e

    def result(self, timeout_s: float = 600) -> None:
        self.join(timeout_s)
        assert not self.is_alive(), "it hangs"
        if self._error is not None:
            raise self._error


class Sink:
    """The data source's sink: batches of a hundred rows until `stop`; each is acknowledged before the next."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._stopping = threading.Event()
        self.written = 0
        self.thread = Background(self._write)

    def _write(self) -> None:
        options = parse_sink({"kafka.bootstrap.servers": self._bootstrap, "topic": self._topic}, ["value"])
        with Cluster(Settings(self._bootstrap, retry_s=RETRY_S)) as cluster:
            writer = RowWriter(cluster, options)
            while not self._stopping.is_set():
                values = [b'{"n": %d}' % n for n in range(self.written, self.written + 100)]
                writer.write(pa.record_batch({"value": pa.array(values, pa.binary())}))
                writer.close()
                self.written += 100

    def stop(self) -> None:
        self._stopping.set()
        self.thread.result()


def leader(members: Members, topic: str, asked: int | None = None) -> int:
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    (found,) = members.ask(asked or members.broker_ids[0], ApiKey.METADATA, request).topics
    lead = {row.partition_index: row.leader_id for row in found.partitions}
    return int(lead[0]) if len(lead) == PARTITIONS and min(lead.values()) > 0 else 0


def through(members: Members, folder: Path, trouble: Callable[[int], None]) -> None:
    """Write and read while `trouble` hits the leader of partition 0; then judge the table."""
    members.start()
    members.create("t", PARTITIONS, 3)
    given = document(members.nodes[101], "t", folder / "table", "parquet", value={"format": "json"})
    given["spec"] |= {"bootstrapServers": members.bootstrap, "commit": {"maxDelay": "200ms"}}
    parsed = table_spec.parse(given)
    wait_for("leaders", lambda: leader(members, "t"), RETRY_S)
    sink, committed = Sink(members.bootstrap, "t"), list[int]()
    table = runner.Runner(parsed, InlineEngine(), report=lambda done: committed.append(done.rows))
    reader = Background(table.run)
    both = (sink.thread, reader)
    wait_for("rows", lambda: sum(committed) or not all(one.is_alive() for one in both), RETRY_S)
    trouble(leader(members, "t"))
    written, seen = sink.written, sum(committed)
    wait_for("the sink goes on", lambda: sink.written > written + 200 or not sink.thread.is_alive(), RETRY_S)
    wait_for("the table goes on", lambda: sum(committed) > seen or not reader.is_alive(), RETRY_S)
    sink.stop()
    table.stop()
    reader.result()
    runner.Runner(parsed, InlineEngine()).run(once=True)
    assert Counter(row["n"] for row in rows(parsed.path, "parquet")) == Counter(range(sink.written))


def test_a_leader_is_killed(members: Members, tmp_path: Path) -> None:
    def killed(node_id: int) -> None:
        members.nodes[node_id].kill()
        others = [n for n in members.broker_ids if n != node_id]
        wait_for("another leader", lambda: leader(members, "t", others[0]) in others, RETRY_S)

    through(members, tmp_path, killed)


@pytest.mark.parametrize("away_s", [5.0, 60.0])
def test_a_leader_is_away(members: Members, tmp_path: Path, away_s: float) -> None:
    def away(node_id: int) -> None:
        process = members.nodes[node_id].process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(away_s)
        os.kill(process.pid, signal.SIGCONT)

    through(members, tmp_path, away)


def test_all_brokers_are_away_for_a_minute(members: Members, tmp_path: Path) -> None:
    def gone(_: int) -> None:
        for node_id in members.broker_ids:
            members.nodes[node_id].kill()
        time.sleep(60)
        members.start(*members.broker_ids)

    through(members, tmp_path, gone)
