"""What can be done. A step can be done again: whoever crashed after it will plan it again or see that it was done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kraft_operator.plan.record import Record


@dataclass(frozen=True, slots=True)
class Remember:
    """Write the record; the steps that rely on it come in a later pass."""

    record: Record
    why: str
    guarded: bool = False
    """It gives up a disk, and waits for a second look like what disrupts."""


@dataclass(frozen=True, slots=True)
class CreateVolume:
    """Claims for all volumes of a node's disk."""

    node: int
    disk: int


@dataclass(frozen=True, slots=True)
class Format:
    """Start the job that formats a disk. `joins`: of a dynamic quorum that is there already.

    `volumes` is how many the disk has by now, where some were added to a formatted one; else 0. `aspects` are what the
    job is made with.
    """

    node: int
    disk: int
    joins: bool = False
    volumes: int = 0
    aspects: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DropJob:
    """Delete a format job: one in which nothing runs, so that a corrected one takes its place, or of who has left."""

    node: int
    disk: int


@dataclass(frozen=True, slots=True)
class MarkFormatted:
    """Write on the volumes whose they are now."""

    node: int
    disk: int


@dataclass(frozen=True, slots=True)
class MarkReplaced:
    """Write on the volumes of a disk which replacements of its node are done: the record may be lost or restored."""

    node: int
    disk: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GrowVolume:
    """Ask for larger volumes."""

    node: int
    disk: int
    size_bytes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DeleteVolume:
    """Of a node that has left, where the policy says so; or only `volumes` of it, which have been emptied."""

    node: int
    disk: int
    volumes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MarkVolume:
    """Write on volumes that their pool has no more whether they are being emptied, or are empty; or remove the mark."""

    node: int
    disk: int
    volumes: tuple[str, ...]
    mark: str


@dataclass(frozen=True, slots=True)
class Cordon:
    """Set in which log directories a broker creates no log (`cordoned.log.dirs`); all others take logs again."""

    node: int
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MoveLogs:
    """Move replicas between the log directories of a broker: paths by topic and number (KIP-113)."""

    node: int
    moves: Mapping[tuple[str, int], str]


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Start a node that has no pod, with these aspects."""

    node: int
    aspects: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RestoreConfig:
    """Make the ConfigMap of a node's pod again, as it was when the pod was made."""

    node: int
    name: str
    aspects: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Recreate:
    """Delete pods in which nothing runs, so that corrected ones take their place."""

    nodes: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class SetConfig:
    """Dynamic values of all brokers."""

    put: Mapping[str, str] = field(default_factory=dict)
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SetFeature:
    """Finalize a feature's level: metadata.version upwards, kraft.version 1."""

    name: str
    level: int


@dataclass(frozen=True, slots=True)
class Throttle:
    """Replicas of these topics that are not in sync are throttled, or no longer; the rates are dynamic values."""

    topics: tuple[str, ...]
    on: bool


@dataclass(frozen=True, slots=True)
class Reassign:
    """Move replicas: new replica lists by partition."""

    moves: Mapping[tuple[str, int], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Unregister:
    """Forget a broker that has left."""

    node: int


@dataclass(frozen=True, slots=True)
class AddVoter:
    """KIP-853."""

    node: int


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    """KIP-853; disrupts, as a voter less is a voter less."""

    node: int
    why: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Stop nodes cleanly; the next pass starts them as they shall be. Leadership is handed over by the clean stop."""

    nodes: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop a node cleanly. The record says when it may start again, if ever."""

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
    """Something that is wanted and not done. `reason` for programs, `message` names the partition, voter or pod."""

    reason: str
    message: str


def _is_guarded(step: Step) -> bool:
    return isinstance(step, DISRUPTIVE) or (isinstance(step, Remember) and step.guarded)


@dataclass(slots=True)
class Plan:
    """The next steps, in their order; what is waited for, and what cannot be done until somebody does something."""

    steps: list[Step] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    blocked: list[Blocked] = field(default_factory=list)
    pending: Step | None = None
    """The disruptive step that waits for approval."""
    held: frozenset[str] = frozenset({"controller", "broker"})
    """Roles of which nobody may be evicted by others; all of them while nothing is known."""
    load: list[str] = field(default_factory=list)
    """Partitions that would move to balance the load, in words."""
    good_ms: float = 0
    """How long the views that it was made of are good for what is guarded, counted from the moment of the look."""

    @property
    def disruptive(self) -> Step | None:
        """The one that disrupts, if there is one."""
        return next((step for step in self.steps if isinstance(step, DISRUPTIVE)), None)

    @property
    def guarded(self) -> Step | None:
        """The one that disrupts or gives up a disk: it is planned alone, and needs a second look."""
        return next((step for step in self.steps if _is_guarded(step)), None)

    def block(self, reason: str, message: str) -> None:
        self.blocked.append(Blocked(reason, message))
