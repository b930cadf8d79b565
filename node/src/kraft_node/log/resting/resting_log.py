"""The parts of a log that exist even at rest: its place, its name, and its producers if it has any.

A broker may hold 100,000 logs, most of them idle. So paths and names are computed, and objects that an idle log does
not need are made on first use.
"""

from __future__ import annotations

from kraft_node.log import names
from kraft_node.log.log_dir import LogDir
from kraft_node.log.producers.producer_state import Producers
from kraft_protocol.ids import Uuid


class RestingLog:
    """The base of `Log`."""

    __slots__ = ("_elsewhere", "_producers", "dir", "partition", "topic", "topic_id")

    def __init__(self, log_dir: LogDir, path: str, topic: str, partition: int) -> None:
        self.dir = log_dir
        self.topic = topic
        self.partition = partition
        self.path = path
        self.topic_id: Uuid | None = None
        self._producers: Producers | None = None

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.topic}-{self.partition}"

    @property
    def path(self) -> str:
        """The directory with the log's files."""
        elsewhere = self._elsewhere
        return names.partition_path(self.dir.path, self.topic, self.partition) if elsewhere is None else elsewhere

    @path.setter
    def path(self, path: str) -> None:
        is_usual = path == names.partition_path(self.dir.path, self.topic, self.partition)
        self._elsewhere = None if is_usual else path  # a copy, or a deleted log

    @property
    def producers(self) -> Producers:
        """The state of the producers; made on first use, because most logs need no state."""
        producers = self._producers
        if producers is None:
            producers = self._producers = Producers(self.name, self.dir.env.clock.monotonic_ms())
        return producers

    @property
    def known_producers(self) -> Producers | None:
        """The state of the producers; None until it is first used."""
        return self._producers

    @property
    def producer_snapshots(self) -> tuple[int, ...]:
        """Offsets of the producers' snapshot files, ascending."""
        return () if self._producers is None else self._producers.snapshots
