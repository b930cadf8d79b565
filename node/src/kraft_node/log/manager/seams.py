"""What the parts of `LogManager` need of it: the logs of a broker, by topic and partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from kraft_node.base.env import Env
    from kraft_node.log.config import LogConfig
    from kraft_node.log.log import Log
    from kraft_node.log.manager.directory import Directory

Entry: TypeAlias = "Log | Directory"
"""An open log, or the directory of a log that is not open."""


class LogTable(Protocol):
    """The logs of a broker. `log_manager.LogManager` implements it, and what each part needs beyond it."""

    env: Env
    directories: list[Directory]

    @property
    def topic_config(self) -> Callable[[str], LogConfig]:
        """Returns a topic's configuration."""
        ...

    def entry(self, topic: str, partition: int) -> Entry | None:
        """The open log, or the directory of a log that is not open; None without a log."""
        ...

    def directory_of(self, topic: str, partition: int) -> Directory | None:
        """The directory of the log."""
        ...

    def path(self, directory: Directory, topic: str, partition: int) -> str:
        """The path of a log's files."""
        ...

    def partitions(self) -> Iterator[tuple[str, int]]:
        """All logs in online directories, open or not."""
        ...

    def open_logs(self) -> Iterator[Log]:
        """The open logs."""
        ...

    def open(self, directory: Directory, topic: str, partition: int) -> Log:
        """Open a log on the loop, with recovery if necessary. Raises KafkaError KAFKA_STORAGE_ERROR."""
        ...

    def forget_open(self, log: Log) -> None:
        """Replace an open log, which is closed and durable, by its directory."""
