"""`make cluster`: one command starts three controllers and three brokers, brings back what is killed, stops cleanly."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft_node.cli.client import Client
from kraft_node.wire.api import ApiKey
from kraft_node.wire.messages import CreateTopicsRequest, MetadataRequest
from tests.compat.members import wait_for
from tests.compat.targets import free_ports

pytestmark = pytest.mark.xdist_group("quorum")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int, dict[int, int], Path]]:
    """The program, its first port, the process of each node, the data."""
    port = _room()
    command = [sys.executable, "-m", "kraft_node.cli.local_cluster", "--data", str(tmp_path / "data")]
    process = subprocess.Popen(
        [*command, "--first-port", str(port)], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    said = ""
    while "Ctrl-C stops all" not in said:
        line = process.stdout.readline()
        assert line, f"ended with {process.wait()}: {said}"
        said += line
    processes = {int(i): int(pid) for i, pid in re.findall(r"(?:controller|broker) +(\d+) .*process (\d+)", said)}
    try:
        yield process, port, processes, tmp_path / "data"
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def _room() -> int:
    """A first port such that the five others are likely to be free as well."""
    return next(port for port in free_ports(50) if 20_000 < port < 60_000)


def test_one_command_starts_the_cluster_and_brings_back_what_is_killed(
    started: tuple[subprocess.Popen[str], int, dict[int, int], Path],
) -> None:
    process, port, processes, data = started
    assert sorted(processes) == [1, 2, 3, 101, 102, 103]
    os.kill(processes[1], signal.SIGKILL)
    with Client("localhost", port) as client:
        topic = CreateTopicsRequest.CreatableTopic("t", 3, -1)
        answer = client.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([topic], timeout_ms=30_000))
        assert answer.topics[0].error_code == 0
        assert answer.topics[0].replication_factor == 3
        brokers = client.ask(ApiKey.METADATA, MetadataRequest(topics=[])).brokers
        assert sorted(broker.port for broker in brokers) == [port, port + 100, port + 200]
    wait_for("the controller is back", lambda: (data / "1.log").read_text().count("node starts") == 2)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    for node_id in processes:
        assert "stopped code=0" in (data / f"{node_id}.log").read_text()
