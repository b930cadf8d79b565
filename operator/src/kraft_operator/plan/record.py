"""What is remembered between passes, in an object of its own. All else is observed anew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Node:
    """One node for life: its id is given once."""

    id: int
    pool: str
    controller: bool
    broker: bool
    disk: int = 0
    """Which of its disks is in force: the volumes' names carry it."""
    formatted: bool = False
    leaving: bool = False
    stopped: bool = False
    """For good: its pod is never started again."""
    volumes: tuple[str, ...] = ()
    """Those of its disk that are formatted, by name: one that is gone is lost, another one is new."""
    rack: str = ""
    """Where it ran last, as far as that is known and asked for."""

    @property
    def kind(self) -> str:
        """For messages."""
        return ("voter" if self.controller else "broker") + f" {self.id}"


@dataclass(frozen=True, slots=True)
class Replacement:
    """A replacement that has begun."""

    name: str
    node: int
    by: str
    """`EmptyDisk` or `NewId`."""
    disk: int = 0
    new_id: int | None = None
    done: bool = False
    accept: frozenset[str] = frozenset()
    """Risks that were accepted when it began."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A topic that is deleted with its KRaftTopic. Claims of older operators name no resource."""

    topic: str
    id: str
    resource: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """All of it."""

    cluster_id: str | None = None
    nodes: tuple[Node, ...] = ()
    retired: tuple[int, ...] = ()
    voters: tuple[int, ...] = ()
    """Static quorums: what `controller.quorum.voters` shall be everywhere, one change from what it was. Dynamic ones:
    the voters that the log began with."""
    replacements: tuple[Replacement, ...] = ()
    managed_config: tuple[str, ...] = ()
    dynamic: bool = False
    """The voters are in the log (kraft.version 1), for certain: there is no way back."""
    balanced: tuple[int, ...] = ()
    """Brokers among which replicas have been balanced."""
    balanced_for: str = ""
    """The word of the last request to balance that has been carried out."""
    joining: int | None = None
    """Static quorums: who runs as a voter beside the present ones, and is not counted with until it has everything."""
    topics: tuple[Claim, ...] = ()
    """Topics that go with their resources."""

    def node(self, node_id: int) -> Node | None:
        return next((node for node in self.nodes if node.id == node_id), None)

    def having(self, *nodes: Node) -> Record:
        """With these instead of, or beside, those of the same ids."""
        by_id = {node.id: node for node in self.nodes} | {node.id: node for node in nodes}
        return replace(self, nodes=tuple(by_id[key] for key in sorted(by_id)))

    def without(self, node_id: int) -> Record:
        """A node has left: its id is not given again."""
        return replace(
            self,
            nodes=tuple(node for node in self.nodes if node.id != node_id),
            retired=tuple(sorted({*self.retired, node_id})),
        )

    def voting(self, voters: Iterable[int]) -> Record:
        return replace(self, voters=tuple(sorted(voters)))

    def replacing(self, item: Replacement) -> Record:
        """With this replacement instead of the one of its name."""
        others = tuple(other for other in self.replacements if other.name != item.name)
        return replace(self, replacements=(*others, item))

    def open_replacement(self) -> Replacement | None:
        """The one under way: there is one at a time."""
        return next((item for item in self.replacements if not item.done), None)
