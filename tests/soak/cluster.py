"""Three controllers and three brokers of ours as processes, by `kraftcluster`, which also rolls them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.compat.ports import first_of_a_cluster

ROOT = Path(__file__).parents[2]
NAME = "soak"
CONFIG = {
    "log.retention.check.interval.ms": "30000",
    "log.cleaner.backoff.ms": "5000",
    "group.initial.rebalance.delay.ms": "0",
}
READY_S = 150.0
ROLL_S = 600.0


class Cluster:
    """The nodes and their supervisor, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "kraftcluster.yaml"
        self._data = folder / "data"
        self._port = first_of_a_cluster()
        document: dict[str, Any] = yaml.safe_load((ROOT / "deploy/samples/plaintext.yaml").read_text())
        document["metadata"]["name"] = NAME
        document["spec"]["config"] |= CONFIG
        self._file.write_text(yaml.safe_dump(document))

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers of clients: all brokers."""
        return ",".join(f"localhost:{self._port + 100 * number}" for number in range(3))

    def up(self) -> None:
        """Start the nodes. Raises AssertionError if they are not ready in time."""
        self._run("up", "--file", str(self._file), "--port", str(self._port), "--detach", "--timeout", str(READY_S))

    def roll(self) -> None:
        """Restart all nodes, one after the other. Raises AssertionError if this does not end."""
        self._run("roll", "--timeout", str(ROLL_S))

    def down(self) -> None:
        self._run("down")

    def pids(self) -> dict[int, int]:
        """The process of each node, by node id."""
        resource = json.loads((self._data / NAME / "status.json").read_text())
        return {int(node_id): pid for node_id, pid in resource["local"]["pids"].items()}

    def node_folder(self, node_id: int) -> Path:
        return self._data / NAME / "nodes" / str(node_id)

    def _run(self, *words: str) -> None:
        command = [sys.executable, "-m", "kraft_cli.kraftcluster", words[0], "--data", str(self._data), *words[1:]]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=2 * ROLL_S, cwd=self._file.parent
        )
        assert done.returncode == 0, f"kraftcluster {words[0]}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
