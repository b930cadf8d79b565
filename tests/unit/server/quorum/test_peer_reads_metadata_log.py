"""Apache Kafka's tools read the metadata log, quorum-state and snapshots that a lone voter leaves on a real disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft_node.log.metadata_log import MetadataLog
from kraft_node.raft.membership.quorum import ReplicaKey, Voter, VoterSet
from kraft_node.runtime.env import RealEnv
from kraft_node.server.quorum.driver import RaftDriver
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import stored
from tests.peer import run_java, run_metadata_shell
from tests.unit.server.quorum.raft_world import append


def run_until(real: RealEnv, condition: Callable[[], bool]) -> None:
    """Turn the loop until the condition is true, 20 s at most."""

    def look() -> None:
        if condition():
            real.loop.stop()
        else:
            real.env.scheduler.call_later(5, look)

    overdue = real.env.scheduler.call_later(20_000, real.loop.stop)
    look()
    real.loop.run()
    overdue.cancel()
    assert condition()


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A directory in which a voter led, appended, took a snapshot and stopped."""
    real = RealEnv()
    try:
        driver = RaftDriver(
            real.env,
            MetadataLog(real.env, str(tmp_path)),
            local=ReplicaKey(1, Uuid(b"D" * 16)),
            voters=VoterSet([Voter(ReplicaKey(1))]),
            cluster_id="c",
        )
        driver.metadata_level = lambda: 30
        led: list[int] = []
        driver.on_leader.append(led.append)
        driver.start()
        run_until(real, lambda: bool(led))
        append(driver, [stored.FeatureLevelRecord(name="metadata.version", feature_level=30)])
        for number in range(3):
            last = append(driver, [stored.TopicRecord(name=f"t{number}", topic_id=Uuid(bytes([number + 5]) * 16))])
        run_until(real, lambda: driver.image.offset == last)
        driver.snapshots.take()
        run_until(real, lambda: bool(driver.node.log.snapshots))
        stopped: list[bool] = []
        driver.shutdown(lambda: stopped.append(True))
        run_until(real, lambda: bool(stopped))
    finally:
        real.close()
    return tmp_path / "__cluster_metadata-0"


def test_quorum_state_names_the_leader(written: Path) -> None:
    state = json.loads((written / "quorum-state").read_text())
    assert (state["leaderId"], state["leaderEpoch"], state["data_version"]) == (1, 1, 0)


@pytest.mark.peer
def test_dump_log_reads_the_log(written: Path) -> None:
    path = written / "00000000000000000000.log"
    output = run_java(
        "org.apache.kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--deep-iteration", "--files", str(path)
    ).stdout.decode()
    assert "LeaderChange" in output
    assert '"leaderId":1' in output
    payloads = [json.loads(line.partition("payload: ")[2]) for line in output.splitlines() if "payload: " in line]
    assert [payload["type"] for payload in payloads] == ["FEATURE_LEVEL_RECORD"] + ["TOPIC_RECORD"] * 3
    assert "isvalid: true" in output
    assert "isvalid: false" not in output


@pytest.mark.peer
def test_the_metadata_shell_reads_the_snapshot(written: Path) -> None:
    (snapshot,) = written.glob("*.checkpoint")
    assert snapshot.name == "00000000000000000005-0000000001.checkpoint"
    expected = {"t0", "t1", "t2"}
    command = ("--snapshot", str(snapshot), "ls", "/image/topics/byName")
    output = run_metadata_shell(*command, is_whole=lambda text: expected <= set(text.split()))
    assert expected <= set(output.split())
    assert "shell fault" not in output
