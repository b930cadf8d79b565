"""ZooKeeper as the migration needs it: reads of many znodes at once, and transactions that check versions.

`runtime.zookeeper` implements it with kazoo, `testing.zookeeper` in memory under a seed. Every call waits for its
answer, so calls belong in a lane of `Env.background`, never on the loop. A session is one object; a new session needs a
new object (`Connect`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeAlias

ANY_VERSION: Final = -1
"""In an operation: whatever the version of the znode is."""
NO_ZNODE: Final = -2
"""The version of a znode that does not exist."""


class Znode(NamedTuple):
    """The data of a znode, and how often its data has changed since it was created."""

    data: bytes
    version: int


class Create(NamedTuple):
    """Create a persistent znode; it must not exist, and its parent must. `sequential` appends a number to its name."""

    path: str
    data: bytes = b""
    sequential: bool = False


class SetData(NamedTuple):
    """Replace the data of a znode of this version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Delete a znode of this version, which must not have children."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """The znode must have this version."""

    path: str
    version: int


Operation: TypeAlias = Create | SetData | Delete | Check


class Refusal(Enum):
    """Why ZooKeeper refused an operation."""

    NO_NODE = "the znode or its parent does not exist"
    NODE_EXISTS = "the znode exists"
    BAD_VERSION = "the znode has another version"
    NOT_EMPTY = "the znode has children"


class ZooKeeperError(Exception):
    """A call failed; the message says why."""


class NoAnswerError(ZooKeeperError):
    """No answer, or the session is over. Whether a transaction was carried out is unknown."""


class TransactionError(ZooKeeperError):
    """Nothing of the transaction was carried out, because of `operation`."""

    def __init__(self, operation: Operation, refusal: Refusal) -> None:
        super().__init__(f"{type(operation).__name__} {operation.path}: {refusal.value}")
        self.operation = operation
        self.refusal = refusal


class ZooKeeper(Protocol):
    """One session. Every method raises NoAnswerError without an answer."""

    def get(self, paths: Sequence[str]) -> list[Znode | None]:
        """The znodes in this order; None if a znode does not exist. They are not read at the same moment."""

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """The names of the children, sorted; None if the znode does not exist."""

    def commit(self, operations: Sequence[Operation]) -> None:
        """Carry out all operations or none. Raises TransactionError."""

    def close(self) -> None:
        """End the session."""


def names_below(zookeeper: ZooKeeper, folder: str) -> list[str]:
    """The paths of all znodes below a folder, relative to it: a name that contains `/` lies several levels deep.

    Raises NoAnswerError.
    """
    found: list[str] = []
    level = [""]
    while level:
        below = zookeeper.children([folder + path for path in level])
        level = [f"{path}/{name}" for path, names in zip(level, below, strict=True) for name in names or ()]
        found += level
    return [path[1:] for path in found]


Connect: TypeAlias = Callable[[], ZooKeeper]
"""Begins a session. Raises NoAnswerError."""
