"""Where failures end: the node, or a count. One for each node; nothing else may swallow an unexpected exception.

Fatal: what is on disk or in memory is unknown from now on. A write or an fsync failed, a law was broken, a committed
record or a snapshot does not replay, a follower of the metadata stopped half way. The node ends and names why; its
next start reads the disk anew.

Counted: a defect that has changed nothing, such as a plan of the controller that was refused and taken back. It is
logged with its traceback and counted as Kafka's MetadataErrorCount; the node goes on. A broken law (AssertionError) is
never only counted: what it is about is wrong in memory, and a restart builds it anew.

`tests/tidy` holds the list of the other places that may catch every exception.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kraft_node.metadata.partitions import MetadataError

log = logging.getLogger("kraft_node.server.faults")

FROM_OUTSIDE: Final = (OSError, ValueError, MetadataError)
"""What a failing disk or a damaged log raises: the reason says enough. Anything else is a defect of this node, whose
place is worth a traceback."""


class Faults:
    """Tells fatal from counted. `end(reason)` ends the node; it is called once."""

    __slots__ = ("_end", "counted", "reason")

    def __init__(self, end: Callable[[str], None]) -> None:
        self._end = end
        self.reason: str | None = None
        """Why the node ends; None as long as it lives."""
        self.counted = 0
        """Defects that have changed nothing (MetadataErrorCount)."""

    def fatal(self, where: str, error: BaseException) -> None:
        """End the node: its state is unknown."""
        if isinstance(error, FROM_OUTSIDE):
            self.end(f"{where}: {error}")
        else:
            log.critical("a defect ends the node where=%s", where, exc_info=error)
            self.end(f"{where}: {type(error).__name__}: {error}")

    def end(self, reason: str) -> None:
        """End the node for that reason, unless it ends already."""
        if self.reason is None:
            self.reason = reason
            self._end(reason)

    def count(self, where: str, error: BaseException) -> None:
        """Note a defect that has changed nothing, unless it is a broken law."""
        self.counted += 1
        if isinstance(error, AssertionError):
            self.fatal(where, error)
        else:
            log.error("a defect was refused where=%s error=%r", where, error, exc_info=error)


def raising(reason: str) -> None:
    """The end of a node that nobody runs: raise."""
    raise RuntimeError(reason)
