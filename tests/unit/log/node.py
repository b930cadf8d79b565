"""A machine with log directories, and the logs that a manager keeps on it."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kraft_node.log.checkpoints import meta_properties
from kraft_node.log.checkpoints.meta_properties import MetaProperties
from kraft_node.log.config import LogConfig
from kraft_node.log.errors import CutLater
from kraft_node.log.log import Log
from kraft_node.log.manager.log_manager import LogManager
from kraft_node.log.manager.timing import Timing
from kraft_node.testing.disk import SimDisk
from kraft_node.testing.world import START_WALL_MS, SimHost, World
from kraft_protocol.ids import Uuid

ID = Uuid(bytes(range(16)))
OTHER_ID = Uuid(bytes(range(1, 17)))
CLUSTER = "abcdefghijklmnopqrstuv"
COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/d1",
}


class Node:
    """A machine with log directories; `start` begins a new process on it."""

    def __init__(self, dirs: Sequence[str] = ("/d1",), seed: int = 1) -> None:
        self.world = World(seed)
        self.disk = SimDisk(random.Random(seed), lambda: START_WALL_MS + int(self.world.now_ms))
        self.dirs = list(dirs)
        for number, path in enumerate(dirs):
            self.disk.mkdir(path)
            self.disk.fsync_dir("/")
            meta_properties.write(
                self.disk, path, MetaProperties(1, CLUSTER, 1, Uuid(bytes(15) + bytes([200 + number])))
            )
        self.host = SimHost(self.world, "n1", self.disk)
        self.failures: list[tuple[str, list[tuple[str, int]], BaseException]] = []

    def start(
        self,
        topic_config: Callable[[str], LogConfig] | None = None,
        timing: Timing | None = None,
        *,
        topics_known: bool = True,
    ) -> LogManager:
        net: Any = None
        self.manager = LogManager(
            self.host.env(net),
            self.dirs,
            node_id=1,
            topic_config=topic_config,
            timing=timing,
            on_failure=lambda *what: self.failures.append(what),
        )
        self.manager.start()
        if topics_known:
            self.manager.topics_known()
        return self.manager

    def stop(self, epoch: int = 5) -> None:
        done: list[int] = []
        self.manager.shutdown(lambda: done.append(1), broker_epoch=epoch)
        self.world.rest(10_000)
        assert done == [1]
        self.manager.release()
        self.host.end_life()

    def cut(self, log: Log, offset: int) -> bool:
        """Truncate a log; repeat until the checkpoints promise less."""
        while True:
            try:
                return log.truncate_to(offset)
            except CutLater:
                self.rest(100)

    def kill(self) -> None:
        self.host.end_life()
        self.disk.kill_process()

    def rest(self, ms: float = 1000) -> None:
        self.world.rest(ms)


def recorded(node: Node, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The changes of the node's disk from now on."""
    seen: list[tuple[str, str]] = []
    about_to = node.disk.about_to

    def record(operation: str, path: str) -> None:
        seen.append((operation, path))
        about_to(operation, path)

    monkeypatch.setattr(node.disk, "about_to", record)
    return seen
