"""Notes the offsets of all open logs for the checkpoints of their directories, and has these written."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Final, Protocol

from kraft_node.base.turns import Turns
from kraft_node.log.manager.directory import directory_of
from kraft_node.log.manager.seams import LogTable

if TYPE_CHECKING:
    from kraft_node.log.manager.futures import Futures

NOTE_STEP: Final = 512
"""Open logs with offsets that are noted at once: about a millisecond."""


class NotedLogs(LogTable, Protocol):
    """The logs of a broker, with its copies."""

    futures: Futures


class Noting:
    """The walk over the open logs of one `LogManager`."""

    def __init__(self, manager: NotedLogs) -> None:
        self._manager = manager
        self._turns = Turns(manager.env)
        self._is_under_way = False

    def begin(self) -> None:
        """Note the first open logs at once and the others in turns of the loop, then write the changes.

        Does nothing while a walk is running: its write follows.
        """
        if self._is_under_way:
            return
        manager = self._manager
        todo = chain(manager.open_logs(), manager.futures.logs())

        def step() -> bool:
            self._is_under_way = False  # also if this raises
            some = list(islice(todo, NOTE_STEP))
            for log in some:
                if not log.closed:
                    directory_of(log).note(log)
            if len(some) == NOTE_STEP:
                self._is_under_way = True
                return True
            for directory in manager.directories:
                if directory.online and directory.offsets_dirty:
                    directory.write_in_background()
            return False

        if step():
            self._turns.add(step)
