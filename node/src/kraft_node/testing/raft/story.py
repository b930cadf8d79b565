"""The trace as a story: one line per event, and indented lines for the replica's effects."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kraft_node.raft.membership.quorum import ReplicaKey
from kraft_node.testing.raft.storage import RaftEntry
from kraft_protocol.ids import ZERO_UUID

if TYPE_CHECKING:
    from kraft_node.raft.events import Event
    from kraft_node.raft.node import RaftNode
    from kraft_node.raft.ready import Ready

LINES_MAX: Final = 20_000
"""Enough for some thousand events; of a longer run the end is kept."""

UNSAID: Final = (None, (), b"", -1, False)
QUIET: Final = ("timer_ms", "leader_changed")


class Story:
    """Lines about a simulation."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=LINES_MAX)

    def say(self, now_us: int, what: str) -> None:
        """Add a line on an event that is no step of a core: a fault, a restart, a phase."""
        self.lines.append(f"{now_us / 1e6:9.4f} *** {what}")

    def add_step(
        self, now_us: int, number: int, replica_id: int, node: RaftNode | None, event: Event, ready: Ready
    ) -> None:
        """Add a step of a replica's core: the event `number` of the simulation."""
        role = "" if node is None else f"{node.role.role.value} {node.epoch}"
        token: Any = getattr(event, "token", None)
        asker = f" by {token.asker.id}" if token is not None else ""
        self.lines.append(f"{now_us / 1e6:9.4f} #{number} {replica_id} ({role}): {show(event)}{asker}")
        self.lines += [f"{'':14}{name}: {show(value)}" for name, value in ready.work() if name not in QUIET]


def show(value: Any) -> str:
    """A named tuple without its unset fields."""
    if isinstance(value, ReplicaKey):
        return f"{value.id}" + ("" if value.directory == ZERO_UUID else f"/{value.directory[1]}")
    if isinstance(value, RaftEntry):
        return f"{value.base}-{value.next}:{value.epoch}"
    if hasattr(value, "_fields"):
        shown = [
            f"{name}={show(field)}"
            for name, field in zip(value._fields, value, strict=True)
            if name not in ("token", "cluster_id", "max_bytes", "records") and field not in UNSAID
        ]
        return f"{type(value).__name__}({' '.join(shown)})"
    if isinstance(value, list | tuple):
        return "[" + " ".join(show(part) for part in value) + "]"
    return str(value)
