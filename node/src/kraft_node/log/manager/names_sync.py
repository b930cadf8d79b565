"""Fsyncs of a log directory that make new and renamed partition directories durable, a few for many changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.base.env import Timer

if TYPE_CHECKING:
    from kraft_node.log.log_dir import LogDir

NAMES_SYNC_MS: Final = 50
"""How long a renamed directory waits for others to share an fsync: many deletions need a few fsyncs, not one each."""
NEW_NAMES_SYNC_MS: Final = 1000
"""The same for new directories, which hold no durable data yet. Each fsync blocks creating files for milliseconds;
Kafka makes no fsync before a log's first flush."""


class NamesSync:
    """The next fsync of one log directory.

    A flush of a log does not wait for it: it makes the names that it needs durable itself.
    """

    __slots__ = ("_directory", "_due_ms", "_timer")

    def __init__(self, directory: LogDir) -> None:
        self._directory = directory
        self._timer: Timer | None = None
        self._due_ms = 0

    def begin(self, delay_ms: int) -> None:
        """Make the current names durable after `delay_ms` or earlier."""
        env = self._directory.env
        due_ms = env.clock.monotonic_ms() + delay_ms
        if self._timer is not None:
            if self._due_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer = env.scheduler.call_later(delay_ms, self._sync)
        self._due_ms = due_ms

    def _sync(self) -> None:
        self._timer = None
        directory = self._directory
        if directory.failed is None:
            directory.run(lambda: directory.env.disk.fsync_dir(directory.path), lambda: None)
