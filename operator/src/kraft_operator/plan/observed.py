"""What is seen, each part with its age. None is unknown; the planner never takes unknown for fine.

An age counts from the moment at which the *source* was right: of metadata read from a broker that is itself 2 s
behind, the age is 2 s more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from kraft_operator.plan.steps import Step

T = TypeVar("T")

CORDONED: Final = "cordoned.log.dirs"
"""Of a broker: the log directories in which it creates no log."""
EMPTYING: Final = "Emptying"
"""The mark of a volume whose log directory takes no new replicas and gives up those that it has."""
EMPTY: Final = "Empty"
"""The mark of a volume that was proven to be empty while its directory took no new replicas."""

THROTTLED: Final = ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas")
"""Of topics: which replicas are throttled while they catch up."""


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """A view and its age."""

    value: T | None = None
    age_ms: int = 0


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod of a node."""

    running: bool
    """Its process runs, or may run: false only where Kubernetes says that no container of it does."""
    ready: bool
    aspects: Mapping[str, str]
    terminating: bool = False
    rack: str = ""
    message: str = ""
    """Why it is not ready, as Kubernetes has it."""
    machine: str = ""
    lost: bool = False
    """Its machine does not answer: whether it runs is unknown."""
    over: bool = False
    """It has ended for good (evicted, its machine shut down): only another pod can take its place."""
    fails: bool = False
    """A container of it cannot start, or ends again and again (`message` says why)."""
    missing: str = ""
    """An object that it refers to and that does not exist: without it the pod's next start fails."""
    restorable: bool = False
    """What is missing can be made again as it was."""
    volumes: frozenset[str] = frozenset()
    """Names of the volumes that it mounts; empty where that is not known."""


@dataclass(frozen=True, slots=True)
class Volume:
    """All volumes of one disk of a node together."""

    formatted_for: str = ""
    """`CLUSTER-ID/NODE-ID` once it has been formatted."""
    size_bytes: Mapping[str, int] = field(default_factory=dict)
    """By the volumes' names: those that there are."""
    unmarked: frozenset[str] = frozenset()
    """Volumes that came later and have not been formatted yet."""
    rack: str = ""
    """Of the machine that it can be used on, where that is known and is one."""
    owned: bool = False
    """It is to go with its node, as far as anybody knows whose pool is gone."""
    replaced: frozenset[str] = frozenset()
    """Names of the replacements of its node that are done."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """`EMPTYING` or `EMPTY` of volumes that the pool has no more, by name, as the operator has marked their claims."""


@dataclass(frozen=True, slots=True)
class Job:
    """A format job: `running`, `done` or `failed`."""

    state: str
    message: str = ""
    volumes: int = 0
    """How many volumes it formats; 0 where nobody says, which is all."""
    aspects: Mapping[str, str] | None = None
    """What it was made with; None where one that failed is made anew by itself."""
    runs: bool = False
    """Whether its container runs, or may."""


@dataclass(frozen=True, slots=True)
class Kube:
    """Objects that belong to the cluster: pods by node id, the rest by node id and disk."""

    pods: Mapping[int, Pod] = field(default_factory=dict)
    volumes: Mapping[tuple[int, int], Volume] = field(default_factory=dict)
    jobs: Mapping[tuple[int, int], Job] = field(default_factory=dict)
    addresses: Mapping[int, str] = field(default_factory=dict)
    """Of brokers outside, by node id; of those whose addresses are all known."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica of the metadata log, as the leader sees it (DescribeQuorum)."""

    lag: int
    behind_ms: int
    """Since it last had all that the leader had."""
    directory: bytes = bytes(16)
    """The id of its metadata directory: dynamic quorums know voters by it."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """The leader's own answer."""

    leader: int
    epoch: int
    voters: Mapping[int, Replica]
    observers: Mapping[int, Replica] = field(default_factory=dict)
    cluster_id: str = ""
    """As the leader tells it; empty where nobody said."""


@dataclass(frozen=True, slots=True)
class Broker:
    """A registration."""

    fenced: bool = False
    rack: str = ""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition's state in the metadata."""

    topic: str
    number: int
    replicas: tuple[int, ...]
    isr: frozenset[int]
    min_isr: int
    moving: bool = False

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.number}"


@dataclass(frozen=True, slots=True)
class Metadata:
    """The cluster's metadata."""

    brokers: Mapping[int, Broker]
    partitions: tuple[Partition, ...] = ()
    dynamic_config: Mapping[str, str] = field(default_factory=dict)
    """The cluster-wide dynamic values."""
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized levels, `metadata.version` and `kraft.version` among them."""
    supported: Mapping[str, int] = field(default_factory=dict)
    """The highest levels that the broker asked supports."""
    throttled: frozenset[str] = frozenset()
    """Topics of which every replica is throttled (`*`), as the operator does it."""
    unseen: str = ""
    """What the broker did not show of the partitions, and why; `partitions` is all there is only if this is empty."""
    cluster_id: str = ""
    """As the broker tells it; empty where nobody said."""


@dataclass(frozen=True, slots=True)
class Directory:
    """A log directory of a broker (DescribeLogDirs)."""

    path: str
    replicas: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Bytes of the logs that are in it, by topic and number."""
    coming: frozenset[tuple[str, int]] = frozenset()
    """Replicas that are being copied into it from another directory of the broker."""
    error: int = 0
    """Kafka's code; what is in the directory is known only if this is 0."""
    usable: int = -1
    """Bytes that are free on its volume; -1 where the broker does not tell."""


@dataclass(frozen=True, slots=True)
class Disks:
    """The log directories of a broker, by the names of their volumes."""

    directories: Mapping[str, Directory]
    cordoned: frozenset[str] = frozenset()
    """Paths of directories in which the broker creates no log. It was asked for these before its directories."""


@dataclass(frozen=True, slots=True)
class Observed:
    """All of it."""

    kube: Seen[Kube]
    quorum: Seen[Quorum] = Seen()
    metadata: Seen[Metadata] = Seen()
    since_write_ms: float = 2**31
    """Since this operator last changed anything. A view that is older does not show what was done."""
    since_pod_change_ms: int = 2**31
    """Since a pod last became ready or went away. A view of quorum or metadata that is older does not show it."""
    disks: Mapping[int, Seen[Disks]] = field(default_factory=dict)
    """By broker: those that were asked and have answered."""
    tried: tuple[Step, ...] = ()
    """Steps of the pass before: one that is planned again was refused, or changes nothing, and holds up nothing."""
