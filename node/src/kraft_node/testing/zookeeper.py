"""A simulated ZooKeeper: a tree of znodes with versions, transactions and sessions (`migration.zookeeper`).

Faults come from outside: `down` refuses every call, `expire` ends a session with its ephemeral znodes, and `lose_next`
makes the next transactions fail without an answer, half of them after they were carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kraft_node.migration.zookeeper import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    NoAnswerError,
    Operation,
    Refusal,
    SetData,
    TransactionError,
    Znode,
)

NO_SESSION: Final = 0
BYTES_MAX: Final = 1 << 20
"""ZooKeeper refuses a larger request (jute.maxbuffer), and closes its connection."""


@dataclass(frozen=True)
class _Node:
    data: bytes = b""
    version: int = 0
    owner: int = NO_SESSION
    """The session of an ephemeral znode."""
    children_made: int = 0
    """How many children were ever created: the number of the next sequential one."""


@dataclass
class SimZooKeeper:
    """The servers. `session` begins a session."""

    nodes: dict[str, _Node] = field(default_factory=lambda: {"": _Node()})
    down: bool = False
    lose_next: Callable[[], tuple[bool, bool]] = lambda: (False, False)
    """Asked at each transaction: whether its answer is lost, and whether it is carried out all the same."""
    lose_read: Callable[[], bool] = lambda: False
    """Asked at each read: whether its answer, and the session, is lost."""
    on_commit: Callable[[int, Sequence[Operation]], None] = lambda *_: None
    """Called with the session and the operations of each transaction that was carried out."""
    _sessions: set[int] = field(default_factory=set)
    _next_session: int = 1

    def session(self) -> SimSession:
        """Begin a session. Raises NoAnswerError while the servers are `down`."""
        if self.down:
            raise NoAnswerError("no server answers")
        number = self._next_session
        self._next_session += 1
        self._sessions.add(number)
        return SimSession(self, number)

    def expire(self, session: int) -> None:
        """End a session: its ephemeral znodes go."""
        self._sessions.discard(session)
        for path in [path for path, node in self.nodes.items() if node.owner == session]:
            del self.nodes[path]

    def alive(self, session: int) -> bool:
        """Whether the session with this number exists and has not ended."""
        return session in self._sessions

    def put(self, path: str, data: bytes = b"", *, owner: int = NO_SESSION) -> None:
        """Write a znode as another program would, with its parents."""
        parts = path.split("/")[1:]
        for end in range(1, len(parts)):
            self.nodes.setdefault("/" + "/".join(parts[:end]), _Node())
        old, parent_path = self.nodes.get(path), path.rpartition("/")[0]
        if old is None:
            parent = self.nodes[parent_path]
            self.nodes[parent_path] = replace(parent, children_made=parent.children_made + 1)
        self.nodes[path] = _Node(data, 0, owner) if old is None else replace(old, data=data, version=old.version + 1)

    def remove(self, path: str) -> None:
        """Delete a znode as another program would."""
        self.nodes.pop(path, None)

    def data(self) -> dict[str, bytes]:
        """Path -> data of all znodes."""
        return {path: node.data for path, node in sorted(self.nodes.items()) if path}

    def children(self, path: str) -> list[str]:
        """The names of a znode's children, sorted; empty if the znode does not exist."""
        return sorted(self._children(self.nodes, path))

    @staticmethod
    def _children(nodes: dict[str, _Node], path: str) -> Iterator[str]:
        prefix = path.rstrip("/") + "/"
        return (
            one[len(prefix) :]
            for one in nodes
            if one.startswith(prefix) and "/" not in one[len(prefix) :] and one != prefix
        )

    def carry_out(self, operations: Sequence[Operation]) -> None:
        """All or none. Raises TransactionError."""
        size = sum(len(one.path) + len(getattr(one, "data", b"")) for one in operations)
        if size > BYTES_MAX:
            raise NoAnswerError(f"a request of {size} bytes; the connection is closed")
        nodes = dict(self.nodes)
        for one in operations:
            refusal = self._apply(nodes, one)
            if refusal is not None:
                raise TransactionError(one, refusal)
        self.nodes = nodes

    def _apply(self, nodes: dict[str, _Node], one: Operation) -> Refusal | None:
        if isinstance(one, Create):
            return self._create(nodes, one)
        node = nodes.get(one.path)
        if node is None:
            return Refusal.NO_NODE
        if one.version not in {ANY_VERSION, node.version}:
            return Refusal.BAD_VERSION
        if isinstance(one, SetData):
            nodes[one.path] = replace(node, data=one.data, version=node.version + 1)
        elif isinstance(one, Delete):
            if next(self._children(nodes, one.path), None) is not None:
                return Refusal.NOT_EMPTY
            del nodes[one.path]
        else:
            assert isinstance(one, Check), one
        return None

    @staticmethod
    def _create(nodes: dict[str, _Node], one: Create) -> Refusal | None:
        parent_path = one.path.rpartition("/")[0]
        parent = nodes.get(parent_path)
        if parent is None:
            return Refusal.NO_NODE
        path = f"{one.path}{parent.children_made:010}" if one.sequential else one.path
        if path in nodes:
            return Refusal.NODE_EXISTS
        nodes[parent_path] = replace(parent, children_made=parent.children_made + 1)
        nodes[path] = _Node(one.data)
        return None


class SimSession:
    """One session (`migration.zookeeper.ZooKeeper`)."""

    def __init__(self, servers: SimZooKeeper, number: int) -> None:
        self._servers = servers
        self.number = number

    def get(self, paths: Sequence[str]) -> list[Znode | None]:
        """Reads all znodes at one moment. Raises NoAnswerError and ends the session if `lose_read` decides so."""
        self._read()
        found = (self._servers.nodes.get(path) for path in paths)
        return [None if node is None else Znode(node.data, node.version) for node in found]

    def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Reads all znodes at one moment. Raises NoAnswerError and ends the session if `lose_read` decides so."""
        self._read()
        return [self._servers.children(path) if path in self._servers.nodes else None for path in paths]

    def commit(self, operations: Sequence[Operation]) -> None:
        """If `lose_next` loses the answer: carry out or not, end the session, raise NoAnswerError."""
        self._require()
        is_lost, is_done = self._servers.lose_next()
        try:
            if not is_lost or is_done:
                self._servers.carry_out(operations)
                self._servers.on_commit(self.number, operations)
        except TransactionError:
            if not is_lost:
                raise
        if is_lost:
            self._servers.expire(self.number)
            raise NoAnswerError("the connection was lost before the answer")

    def close(self) -> None:
        """End the session; its ephemeral znodes are removed at once. Allowed while the servers are `down`."""
        self._servers.expire(self.number)

    def _read(self) -> None:
        self._require()
        if self._servers.lose_read():
            self._servers.expire(self.number)
            raise NoAnswerError("the connection was lost before the answer")

    def _require(self) -> None:
        if self._servers.down:
            raise NoAnswerError("no server answers")
        if not self._servers.alive(self.number):
            raise NoAnswerError("the session is over")
