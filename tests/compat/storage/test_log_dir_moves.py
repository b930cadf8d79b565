"""Replicas move between log directories by Kafka's own tool, while producers write and nodes are killed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.compat.members import wait_for
from tests.compat.rough.test_rough_disk import create, read, send
from tests.compat.targets import CLUSTER_ID, Apache, Ours, Target, free_ports
from tests.compat.tools import run_tool
from tests.peer import require_peer

CLIENT = "Moves between log directories"
pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("log-dir-moves")]

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
LONG_S = 60


class TwoDirectories:
    """A node over `folder`/a and `folder`/b: ours first, then the requested server over the same files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = [folder / "a", folder / "b"]
        self.ports = free_ports(2)
        self.node: Target | None = None

    def start(self, kind: type[Target]) -> Target:
        class Kind(kind):  # type: ignore[misc, valid-type]
            def format(self) -> None:
                """Format both directories; `log.dirs` is not a single path."""

        overrides = {"log.dirs": ",".join(map(str, self.paths)), "metadata.log.dir": str(self.paths[0])}
        self.node = Kind(kind.__name__, self.folder / "run", overrides, *self.ports)
        if not self.paths[0].exists():
            format_ = self.node._command("storage", "format", "-t", CLUSTER_ID, "-c", str(self.node.properties()))
            subprocess.run(format_, check=True, capture_output=True)
        return self.node.start()

    def holder(self, topic: str) -> int | None:
        """The name of the directory that holds the log."""
        there = [number for number, path in enumerate(self.paths) if (path / f"{topic}-0").is_dir()]
        return there[0] if len(there) == 1 else None

    def reassign(self, topic: str, number: int, tmp_path: Path, *options: str) -> str:
        move = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [str(self.paths[number])]}
        file = tmp_path / "moves.json"
        file.write_text(json.dumps({"version": 1, "partitions": [move]}))
        assert self.node is not None
        where = ("--bootstrap-server", self.node.bootstrap, "--reassignment-json-file", str(file))
        done = run_tool(REASSIGN, *where, *options)
        assert done.code == 0, done.text
        return done.text

    def futures(self, topic: str) -> list[dict[str, object]]:
        """The future replicas, as kafka-log-dirs prints them."""
        assert self.node is not None
        done = run_tool(LOG_DIRS, "--bootstrap-server", self.node.bootstrap, "--describe", "--topic-list", topic)
        answer = json.loads(next(line for line in done.out.split("\n") if line.startswith("{")))
        (broker,) = answer["brokers"]
        return [row for path in broker["logDirs"] for row in path["partitions"] if row["isFuture"]]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoDirectories]:
    require_peer()
    (tmp_path / "node").mkdir()
    made = TwoDirectories(tmp_path / "node")
    yield made
    if made.node is not None:
        made.node.kill()


def test_replicas_move_by_kafkas_tool_and_back(two: TwoDirectories, tmp_path: Path) -> None:
    node = two.start(Ours)
    create(node, "t", segment_bytes="1048576", file_delete_delay_ms="100")
    values = [bytes([n % 256]) * 20_000 for n in range(200)]
    assert send(node, "t", 0, values) == []
    origin = two.holder("t")
    assert origin is not None
    for target in (1 - origin, origin):
        printed = two.reassign("t", target, tmp_path, "--execute")
        assert f"moving log directory to {two.paths[target]} for replica t-0 with broker 1" in printed
        assert send(node, "t", 0, [b"meanwhile"]) == []
        values.append(b"meanwhile")
        wait_for("the move", lambda number=target: two.holder("t") == number, LONG_S)
        shown = two.reassign("t", target, tmp_path, "--verify")
        assert "replica t-0-1 completed successfully" in shown, shown
        assert read(node, "t", 0, len(values)) == values
        wait_for("the old files to go", lambda: not [name for path in two.paths for name in path.glob("t-0.*")], LONG_S)
    assert two.futures("t") == []
    assert node.stop() == 0
    two.start(Ours)
    assert read(two.node, "t", 0, len(values)) == values  # type: ignore[arg-type]


@pytest.mark.parametrize("finisher", [Ours, Apache])
def test_a_move_interrupted_by_a_kill_is_finished_by_either_server(
    two: TwoDirectories, tmp_path: Path, finisher: Callable[..., Target]
) -> None:
    node = two.start(Ours)
    create(node, "t", segment_bytes="1048576", file_delete_delay_ms="100")
    values = [bytes([n % 256]) * 20_000 for n in range(400)]
    assert send(node, "t", 0, values) == []
    origin = two.holder("t")
    assert origin is not None
    throttle = ("--replica-alter-log-dirs-throttle", "100000")
    two.reassign("t", 1 - origin, tmp_path, "--execute", *throttle)
    (row,) = wait_for("a copy", lambda: two.futures("t"), LONG_S)
    assert isinstance(row["offsetLag"], int)
    assert 0 < row["offsetLag"] < 400
    node.kill()
    assert two.holder("t") == origin
    assert [p.name.endswith("-future") for p in two.paths[1 - origin].glob("t-0.*")] == [True]
    node = two.start(finisher)  # type: ignore[arg-type]
    assert send(node, "t", 0, [b"after"]) == []
    remove_throttle(node)
    wait_for("the move", lambda: two.holder("t") == 1 - origin, LONG_S)
    assert read(node, "t", 0, 401) == [*values, b"after"]


def remove_throttle(node: Target) -> None:
    done = run_tool(
        "kafka.admin.ConfigCommand", "--bootstrap-server", node.bootstrap, "--alter", "--entity-type", "brokers",
        "--entity-name", "1", "--delete-config", "replica.alter.log.dirs.io.max.bytes.per.second",
    )  # fmt: skip
    assert done.code == 0, done.text
