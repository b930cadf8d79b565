"""The record: the state that is kept between passes, in an object of its own. All else is observed again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

TLS: Final = "Tls"
PLAINTEXT: Final = "Plaintext"
"""Security modes: whether the nodes connect to each other with TLS."""

PREPARING: Final = "Preparing"
MIGRATED: Final = "Migrated"
FINALIZING: Final = "Finalizing"
FINALIZED: Final = "Finalized"
"""Phases of a migration from ZooKeeper, as in `status.migration`."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the cluster. Its id is assigned once and never reused."""

    id: int
    pool: str
    controller: bool
    broker: bool
    disk: int = 0
    """The number of its disk in force; the names of its volumes contain it."""
    formatted: bool = False
    leaving: bool = False
    stopped: bool = False
    """Stopped for good: its pod is never started again."""
    volumes: tuple[str, ...] = ()
    """Names of the formatted volumes of its disk. If one is missing, it is lost; a volume not named here is new."""
    rack: str = ""
    """The rack where it ran last; empty if unknown or not wanted."""

    @property
    def kind(self) -> str:
        """`voter ID` or `broker ID`, for messages."""
        return ("voter" if self.controller else "broker") + f" {self.id}"


@dataclass(frozen=True, slots=True)
class ReplacementRecord:
    """A replacement that has begun. Requests are `wanted.ReplacementRequest`."""

    name: str
    node: int
    by: str
    """`EmptyDisk` or `NewId`."""
    disk: int = 0
    new_id: int | None = None
    done: bool = False
    accept: frozenset[str] = frozenset()
    """Risks that the request accepted when the replacement began."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A topic that is deleted with its KRaftTopic. In claims of older operators, `resource` is empty."""

    topic: str
    id: str
    resource: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True)
class UserClaim:
    """What a KRaftUser has made in the cluster. It is deleted with the resource."""

    user: str
    resource: str = ""
    uid: str = ""
    mechanisms: frozenset[str] = frozenset()
    """SCRAM mechanisms of its credentials."""
    acls: frozenset[str] = frozenset()
    """Digests of its ACLs (`plan.users.Acl.digest`)."""
    quotas: frozenset[str] = frozenset()
    unanswered: str = ""
    """When the last request was sent that makes something and has no answer. Empty: all have answers. ISO 8601."""

    @property
    def names_anything(self) -> bool:
        """Whether the cluster may have something of the user."""
        return bool(self.mechanisms or self.acls or self.quotas)


@dataclass(frozen=True, slots=True)
class Record:
    """Everything that is kept between passes."""

    cluster_id: str | None = None
    nodes: tuple[Node, ...] = ()
    retired: tuple[int, ...] = ()
    voters: tuple[int, ...] = ()
    """Static quorums: the target `controller.quorum.voters` of all nodes, one change from the previous value. Dynamic
    quorums: the voters that the log began with."""
    replacements: tuple[ReplacementRecord, ...] = ()
    managed_config: tuple[str, ...] = ()
    dynamic: bool = False
    """The voters are in the log (kraft.version 1). This cannot be undone."""
    balanced: tuple[int, ...] = ()
    """Brokers among which replicas have been balanced."""
    balanced_for: str = ""
    """The word of the last completed request to balance."""
    joining: int | None = None
    """Static quorums: the controller that runs as a voter but is not yet in `voters`, until it has caught up."""
    topics: tuple[Claim, ...] = ()
    """Topics that are deleted with their resources."""
    authorities: tuple[tuple[str, str], ...] = ()
    """Each certificate authority that nodes trust, by name, with the fingerprint of its key."""
    security: str = ""
    """`TLS`, or `PLAINTEXT` after TLS. Empty: the cluster began in plaintext, or has not begun (`specs.mode`)."""
    migration: str = ""
    """The phase of the migration from ZooKeeper; empty if the cluster never had ZooKeeper."""

    @property
    def migrates(self) -> bool:
        """Whether controllers run with the keys of the migration."""
        return self.migration in {PREPARING, MIGRATED}

    @property
    def unfinished_migration(self) -> bool:
        """Whether a migration from ZooKeeper is under way."""
        return self.migrates or self.migration == FINALIZING

    def node(self, node_id: int) -> Node | None:
        """Return the node of this id, or None if it does not exist."""
        return next((node for node in self.nodes if node.id == node_id), None)

    def having(self, *nodes: Node) -> Record:
        """Return the record with these nodes added; they replace nodes of the same ids."""
        by_id = {node.id: node for node in self.nodes} | {node.id: node for node in nodes}
        return replace(self, nodes=tuple(by_id[key] for key in sorted(by_id)))

    def without(self, node_id: int) -> Record:
        """Return the record without a node that has left. Its id is retired."""
        return replace(
            self,
            nodes=tuple(node for node in self.nodes if node.id != node_id),
            retired=tuple(sorted({*self.retired, node_id})),
        )

    def voting(self, voters: Iterable[int]) -> Record:
        """Return the record with these voters."""
        return replace(self, voters=tuple(sorted(voters)))

    def replacing(self, item: ReplacementRecord) -> Record:
        """Return the record with this replacement; it takes the place of the replacement of the same name."""
        others = tuple(other for other in self.replacements if other.name != item.name)
        return replace(self, replacements=(*others, item))

    def open_replacement(self) -> ReplacementRecord | None:
        """The replacement under way, or None. At most one replacement is under way."""
        return next((item for item in self.replacements if not item.done), None)
