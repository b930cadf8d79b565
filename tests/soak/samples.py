"""What each node takes, and how long clients wait, every few seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.soak.cluster import Cluster
from tests.soak.reading import Latencies

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class NodeSample:
    """One look at the process of a node."""

    at_s: float
    node_id: int
    pid: int
    anonymous_bytes: int
    """RssAnon: memory that is not the file of a program or a log."""
    descriptors: int
    cpu_s: float
    """Since the process began."""
    disk_bytes: int


@dataclass(frozen=True)
class LatencySample:
    """A window of a latency: milliseconds."""

    at_s: float
    kind: str
    count: int
    median_ms: float
    p99_ms: float
    max_ms: float


class Sampler:
    """Takes samples of a cluster and of latencies by name; seconds count from its making."""

    def __init__(self, cluster: Cluster, latencies: dict[str, Latencies], every_s: float) -> None:
        self.nodes: list[NodeSample] = []
        self.latencies: list[LatencySample] = []
        self.rolls: list[tuple[float, float]] = []
        """Begin and end of each."""
        self.failure: Exception | None = None
        """Why the sampling ended early."""
        self._cluster, self._kinds, self._every_s = cluster, latencies, every_s
        self._begun = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self._begun

    def sample_until(self, over: Callable[[], bool]) -> None:
        """Take samples until `over()`, or until one fails."""
        try:
            while not over():
                self.take()
                time.sleep(self._every_s)
        except Exception as error:  # the judgement reports it
            self.failure = error

    def take(self) -> None:
        at = self.now()
        for node_id, pid in self._cluster.pids().items():
            sample = _node_sample(at, node_id, pid, self._cluster.node_folder(node_id))
            if sample is not None:
                self.nodes.append(sample)
        for kind, values in self._kinds.items():
            self.latencies.append(LatencySample(at, kind, *values.taken()))

    def document(self) -> dict[str, Any]:
        """Everything, for machines."""
        return {
            "nodes": [asdict(sample) for sample in self.nodes],
            "latencies": [asdict(sample) for sample in self.latencies],
            "rolls": self.rolls,
        }


def _node_sample(at: float, node_id: int, pid: int, folder: Path) -> NodeSample | None:
    """None if the process ends at this moment: a roll has stopped it."""
    process = Path(f"/proc/{pid}")
    try:
        status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines() if ":" in line)
        anonymous = int(status["RssAnon"].split()[0]) * 1024
        descriptors = len(os.listdir(process / "fd"))
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError, KeyError):
        return None
    cpu = (int(fields[11]) + int(fields[12])) / TICKS
    return NodeSample(at, node_id, pid, anonymous, descriptors, cpu, _disk_bytes(folder))


def _disk_bytes(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_blocks * 512
            except FileNotFoundError:
                continue  # deleted by retention meanwhile
    return total
