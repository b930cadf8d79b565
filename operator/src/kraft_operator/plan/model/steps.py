"""The steps of a plan. Every step can be repeated: after a crash, the operator plans it again or sees its result."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kraft_operator.plan.model.record import Record


@dataclass(frozen=True, slots=True)
class Remember:
    """Write the record; the steps that rely on it come in a later pass."""

    record: Record
    why: str
    guarded: bool = False
    """The record gives up a disk. Like a disruptive step, it waits for a second look."""


@dataclass(frozen=True, slots=True)
class CreateVolume:
    """Create the claims for all volumes of a node's disk."""

    node: int
    disk: int


@dataclass(frozen=True, slots=True)
class Format:
    """Start the job that formats a disk.

    `joins` is true if the node joins an existing dynamic quorum. `volumes` is the number of the disk's volumes if
    volumes were added to a formatted disk, else 0. The job is made with `aspects`.
    """

    node: int
    disk: int
    joins: bool = False
    volumes: int = 0
    aspects: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DropJob:
    """Delete a format job: to replace an idle job by a corrected one, or because its node has left."""

    node: int
    disk: int


@dataclass(frozen=True, slots=True)
class MarkFormatted:
    """Write on the volumes of a disk which cluster and node they belong to."""

    node: int
    disk: int
    volumes: tuple[str, ...] = ()
    """The volumes that the job has formatted: the pool may have got more since. Empty for all volumes of the disk."""


@dataclass(frozen=True, slots=True)
class MarkReplaced:
    """Write the finished replacements of a node on its volumes, because the record may be lost or restored."""

    node: int
    disk: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GrowVolume:
    """Enlarge the claims of a disk's volumes to these sizes in bytes."""

    node: int
    disk: int
    size_bytes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DeleteVolume:
    """Delete the claims of a disk if the policy is Delete: of a node that has left, or only the emptied `volumes`."""

    node: int
    disk: int
    volumes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MarkVolume:
    """Mark volumes that were removed from their pool (`observed.PROVEN`, `EMPTYING`); an empty `mark` removes it."""

    node: int
    disk: int
    volumes: tuple[str, ...]
    mark: str


@dataclass(frozen=True, slots=True)
class Cordon:
    """Set the log directories in which a broker creates no log (`cordoned.log.dirs`). All others take logs again."""

    node: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MoveLogs:
    """Move replicas between the log directories of a broker (KIP-113): target path by topic and partition number."""

    node: int
    moves: Mapping[tuple[str, int], str]


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Start a node that has no pod, with these aspects."""

    node: int
    aspects: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RewriteAspects:
    """Write aspects of an older operator on a node's pod in the form of this one. They mean the same.

    The older form may depend on more fields, and a change of these would restart the node in vain.
    """

    node: int
    aspects: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RestoreConfig:
    """Create the ConfigMap of a node's pod again, with the content that it had when the pod was made."""

    node: int
    name: str
    aspects: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Recreate:
    """Delete pods that have no running process, so that corrected pods take their place."""

    nodes: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class SetConfig:
    """Set and remove dynamic values of all brokers (the cluster-wide default)."""

    put: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SetFeature:
    """Finalize a feature's level: a higher metadata.version, or kraft.version 1."""

    name: str
    level: int


@dataclass(frozen=True, slots=True)
class Throttle:
    """Throttle out-of-sync replicas of these topics, or stop throttling. The rates are separate dynamic values."""

    topics: tuple[str, ...]
    on: bool


@dataclass(frozen=True, slots=True)
class Reassign:
    """Reassign partitions: new replica lists by topic and partition number."""

    moves: Mapping[tuple[str, int], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Unregister:
    """Unregister a broker that has left."""

    node: int


@dataclass(frozen=True, slots=True)
class AddVoter:
    """Add a voter to a dynamic quorum (KIP-853)."""

    node: int


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    """Remove a voter from a dynamic quorum (KIP-853). Disruptive, because the quorum has fewer voters then."""

    node: int
    why: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Stop nodes cleanly; the next pass starts them with the wanted aspects. A clean stop hands over leadership."""

    nodes: tuple[int, ...]
    why: str
    marks: tuple[MarkVolume, ...] = ()
    """Marks to write before the nodes stop: the emptied volumes that their next pods leave out."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a node cleanly. The record determines whether it may start again."""

    node: int
    why: str


Step: TypeAlias = (
    Remember
    | CreateVolume
    | Format
    | DropJob
    | MarkFormatted
    | MarkReplaced
    | GrowVolume
    | DeleteVolume
    | MarkVolume
    | Cordon
    | MoveLogs
    | CreatePod
    | RestoreConfig
    | RewriteAspects
    | Recreate
    | SetConfig
    | SetFeature
    | Throttle
    | Reassign
    | Unregister
    | AddVoter
    | RemoveVoter
    | Restart
    | Stop
)

DISRUPTIVE = (RemoveVoter, Restart, Stop)


@dataclass(frozen=True, slots=True)
class Blocked:
    """Wanted work that is not done. Programs read `reason`; `message` names the partition, voter or pod."""

    reason: str
    message: str


def _starts(step: Step) -> set[int]:
    """The nodes that start after a step."""
    if isinstance(step, Restart | Recreate):
        return set(step.nodes)
    return {step.node} if isinstance(step, CreatePod) else set()


def _is_guarded(step: Step) -> bool:
    return isinstance(step, DISRUPTIVE) or (isinstance(step, Remember) and step.guarded)


@dataclass(slots=True)
class Plan:
    """The next steps in order, messages about the conditions that the plan waits for, and blocked work that needs
    help."""

    steps: list[Step] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)
    pending: Step | None = None
    """The disruptive step that waits for approval."""
    held: frozenset[str] = frozenset({"controller", "broker"})
    """Roles with pods that others must not evict. All roles while the state is unknown."""
    load: list[str] = field(default_factory=list)
    """Messages about partitions that would move to balance the load."""
    good_ms: float = 0
    """How long the views permit a guarded step, in milliseconds from the observation."""

    @property
    def disruptive(self) -> Step | None:
        """The disruptive step, or None."""
        return next((step for step in self.steps if isinstance(step, DISRUPTIVE)), None)

    @property
    def guarded(self) -> Step | None:
        """The step that disrupts or gives up a disk, or None. It is planned alone and needs a second look."""
        return next((step for step in self.steps if _is_guarded(step)), None)

    def block(self, reason: str, message: str) -> None:
        """Add blocked work to the plan."""
        self.blocked.append(Blocked(reason, message))

    def disrupt_nothing(self) -> None:
        """Remove the step that disrupts or gives up a disk."""
        self.steps = [step for step in self.steps if not _is_guarded(step)]

    def start_none_of(self, nodes: Collection[int]) -> None:
        """Remove steps after which one of these nodes would start."""
        self.steps = [step for step in self.steps if not _starts(step) & set(nodes)]
