"""Handles failures: they end the node or are counted.

There is one per node; no other place may hide unexpected exceptions.

Fatal: the state on disk or in memory is unknown. A write or an fsync failed, or a law was broken. A committed record
or a snapshot cannot be replayed. A follower of the metadata stopped half-way. The node exits and names the reason; its
next start reads the disk again.

Counted: a defect that has changed nothing, such as a plan of the controller that was refused and undone. It is logged
with its traceback and counted as Kafka's MetadataErrorCount; the node continues. A broken law (AssertionError) is
always fatal: the state in memory is wrong, and a restart rebuilds it.

`tests/tidy` lists the other places that may catch every exception.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kraft_node.metadata.partitions import MetadataError

log = logging.getLogger("kraft_node.server.faults")

FROM_OUTSIDE: Final = (OSError, ValueError, MetadataError)
"""Errors of a failing disk or a damaged log: their text is sufficient. All others are defects of this node and are
logged with a traceback."""


class FaultHandler:
    """Separates fatal from counted failures. `end(reason)` ends the node; it is called once."""

    __slots__ = ("_end", "counted", "reason")

    def __init__(self, end: Callable[[str], None]) -> None:
        self._end = end
        self.reason: str | None = None
        """The reason why the node ends; None while it runs."""
        self.counted = 0
        """Number of defects that have changed nothing (MetadataErrorCount)."""

    def fatal(self, where: str, error: BaseException) -> None:
        """End the node: its state is unknown."""
        if isinstance(error, FROM_OUTSIDE):
            self.end(f"{where}: {error}")
        else:
            log.critical("the node ends because of a defect where=%s", where, exc_info=error)
            self.end(f"{where}: {type(error).__name__}: {error}")

    def end(self, reason: str) -> None:
        """End the node for that reason, unless it is already ending."""
        if self.reason is None:
            self.reason = reason
            self._end(reason)

    def count(self, where: str, error: BaseException) -> None:
        """Count a defect that has changed nothing, unless it is a broken law."""
        self.counted += 1
        if isinstance(error, AssertionError):
            self.fatal(where, error)
        else:
            log.error("an operation was refused because of a defect where=%s error=%r", where, error, exc_info=error)


def raising(reason: str) -> None:
    """The end of a node without a process: raise."""
    raise RuntimeError(reason)
