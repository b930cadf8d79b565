"""The observations of a pass, each with its age. None means unknown; the planner never treats unknown as healthy.

An age counts from the moment at which the *source* was correct. If metadata comes from a broker that is 2 s behind, its
age is 2 s higher.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from kraft_operator.plan.model.steps import Step

T = TypeVar("T")

CORDONED: Final = "cordoned.log.dirs"
"""The dynamic configuration of a broker that lists the log directories in which it creates no log."""
EMPTYING: Final = "Emptying"
"""The mark of a volume that is being emptied: its log directory takes no new replicas, and its replicas move to other
volumes."""
EMPTY: Final = "Empty"
"""The mark of a volume that was proven to be empty while its directory took no new replicas. The proof ends with the
process that gave it. While the broker is down, it is unknown what it wrote before, after an administrator's change."""
LEFT_OUT: Final = "LeftOut"
"""The mark of a volume that the node's next pod leaves out. The restart writes it, on a proof from right before."""
PROVEN: Final = frozenset({EMPTY, LEFT_OUT})
"""The marks of volumes that were proven to be empty."""

THROTTLED: Final = ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas")
"""Configurations of a topic that name the replicas to throttle while they catch up."""


@dataclass(frozen=True, slots=True)
class Aged(Generic[T]):
    """A view and its age in milliseconds. A value of None is unknown."""

    value: T | None = None
    age_ms: int = 0


@dataclass(frozen=True, slots=True)
class Pod:
    """The pod of a node."""

    running: bool
    """Its process runs or may run. False only if Kubernetes reports that no container of the pod runs."""
    ready: bool
    aspects: Mapping[str, str]
    terminating: bool = False
    rack: str = ""
    message: str = ""
    """Why it is not ready, as Kubernetes reports it."""
    machine: str = ""
    lost: bool = False
    """Its machine does not answer, so it is unknown whether the pod runs."""
    unplaced: bool = False
    """Kubernetes finds no machine for it; `message` has the reason."""
    over: bool = False
    """It has ended for good (evicted, or its machine was shut down). Only a new pod can take its place."""
    fails: bool = False
    """One of its containers cannot start, or ends again and again; `message` has the reason."""
    missing: str = ""
    """A missing object that the pod refers to. Without it, the pod's next start fails."""
    restorable: bool = False
    """The missing object can be created again with its former content."""
    volumes: frozenset[str] = frozenset()
    """Names of the volumes that it mounts; empty if unknown."""
    addresses: frozenset[str] = frozenset()
    """`HOST:PORT` by which it is reached as a controller; empty if unknown."""

    def mounts(self, volume: str) -> bool:
        """Whether it mounts a volume, or may."""
        return volume in self.volumes or not self.volumes


@dataclass(frozen=True, slots=True)
class Volume:
    """All volumes of one disk of a node together."""

    formatted_for: str = ""
    """`CLUSTER-ID/NODE-ID` once it has been formatted."""
    size_bytes: Mapping[str, int] = field(default_factory=dict)
    """Sizes of the existing volumes in bytes, by name."""
    unmarked: frozenset[str] = frozenset()
    """Volumes that were added later and are not formatted yet."""
    rack: str = ""
    """The rack of the machine that it is bound to; empty if unknown or not a single rack."""
    owned: bool = False
    """It is deleted with its node. Counts if the node's pool no longer exists."""
    replaced: frozenset[str] = frozenset()
    """Names of the replacements of its node that are done."""
    marks: Mapping[str, str] = field(default_factory=dict)
    """Marks by the names of volumes that were removed from the pool; read from their claims."""
    machine: str = ""
    """The machine that its claims were made for; empty if unknown. Volumes of some classes can follow their pod."""


@dataclass(frozen=True, slots=True)
class Job:
    """A format job: `running`, `done` or `failed`."""

    state: str
    message: str = ""
    volumes: int = 0
    """How many volumes it formats; 0 means all."""
    aspects: Mapping[str, str] | None = None
    """The aspects that it was made with. None if a failed job is repeated without a correction."""
    runs: bool = False
    """Whether its container runs or may run."""
    mounts: frozenset[str] = frozenset()
    """The volumes that it formats; empty if it formats all."""
    former: bool = False
    """A volume that it formats was deleted since. A new volume of the same name is not formatted by it."""


@dataclass(frozen=True, slots=True)
class ListenerSeen:
    """The addresses of a listener, as `HOST:PORT`; empty if not known."""

    name: str
    type: str
    bootstrap: str = ""
    brokers: Mapping[int, str] = field(default_factory=dict)
    """By node id, for listeners outside of Kubernetes. Brokers without an address are missing."""


@dataclass(frozen=True, slots=True)
class Kube:
    """Objects that belong to the cluster: pods by node id, the rest by node id and disk."""

    pods: Mapping[int, Pod] = field(default_factory=dict)
    volumes: Mapping[tuple[int, int], Volume] = field(default_factory=dict)
    jobs: Mapping[tuple[int, int], Job] = field(default_factory=dict)
    addresses: Mapping[int, str] = field(default_factory=dict)
    """External addresses of brokers, by node id. Brokers without complete addresses are missing."""
    listeners: tuple[ListenerSeen, ...] = ()


@dataclass(frozen=True, slots=True)
class Replica:
    """The leader's view of a replica of the metadata log (DescribeQuorum)."""

    lag: int
    behind_ms: int
    """Milliseconds since it last had the leader's whole log."""
    directory: bytes = bytes(16)
    """The id of its metadata directory, which identifies voters of dynamic quorums."""
    address: str = ""
    """`HOST:PORT` the address of this voter in the log, which the others use; empty if unknown."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """The quorum as its leader describes it."""

    leader: int
    epoch: int
    voters: Mapping[int, Replica]
    observers: Mapping[int, Replica] = field(default_factory=dict)
    cluster_id: str = ""
    """The cluster id that the leader returns; empty if unknown."""
    changing: bool = False
    """The log may lose these voters again. The operator has not seen the leader commit the records that the log held
    when the voters were first seen."""


@dataclass(frozen=True, slots=True)
class Broker:
    """The registration of a broker."""

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
        """`TOPIC-NUMBER`."""
        return f"{self.topic}-{self.number}"


@dataclass(frozen=True, slots=True)
class Metadata:
    """The cluster's metadata, as one broker returns it."""

    brokers: Mapping[int, Broker]
    partitions: tuple[Partition, ...] = ()
    dynamic_config: Mapping[str, str] = field(default_factory=dict)
    """The cluster-wide dynamic values."""
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized levels, `metadata.version` and `kraft.version` among them."""
    supported: Mapping[str, int] = field(default_factory=dict)
    """The highest levels that this broker supports."""
    throttled: frozenset[str] = frozenset()
    """Topics with throttling of all replicas (`*`), which the operator sets."""
    unseen: str = ""
    """Which partitions the broker did not show, and why. `partitions` is complete only if this is empty."""
    cluster_id: str = ""
    """The cluster id that the broker returns; empty if unknown."""


@dataclass(frozen=True, slots=True)
class Directory:
    """A log directory of a broker (DescribeLogDirs)."""

    path: str
    replicas: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Size of each replica's log in bytes, by topic and partition number."""
    coming: frozenset[tuple[str, int]] = frozenset()
    """Replicas that are being copied into it from another directory of the broker."""
    error: int = 0
    """Kafka's error code. The content of the directory is known only if this is 0."""
    usable: int = -1
    """Free bytes on its volume; -1 if the broker does not report it."""


@dataclass(frozen=True, slots=True)
class Disks:
    """The log directories of a broker, by the names of their volumes."""

    directories: Mapping[str, Directory]
    cordoned: frozenset[str] = frozenset()
    """Paths of directories in which the broker creates no log. They were read before the directories."""


@dataclass(frozen=True, slots=True)
class ActiveMigration:
    """What the active controller reports of the migration from ZooKeeper."""

    state: str
    driver: str
    blockers: tuple[str, ...]
    lag: int
    """Metadata records that ZooKeeper lacks."""
    on_zookeeper: tuple[int, ...]
    """Registered brokers that use ZooKeeper."""
    waiting: tuple[int, ...] = ()
    """Brokers that have not received the metadata yet."""
    missing: tuple[int, ...] = ()
    """Brokers that have replicas, but are not registered."""
    ignored: tuple[str, ...] = ()
    """Brokers that run with ZooKeeper, but take no part in the migration, with reasons."""


@dataclass(frozen=True, slots=True)
class ControllerMigration:
    """What a controller reports of the migration from ZooKeeper."""

    recorded: int
    """The state in the metadata log: 0 none, 1 migrated, 2 not migrated yet, 3 finished."""
    enabled: bool
    """It runs with the keys of the migration."""
    active: ActiveMigration | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """All observations of a pass."""

    kube: Aged[Kube]
    quorum: Aged[Quorum] = Aged()
    metadata: Aged[Metadata] = Aged()
    since_write_ms: float = 2**31
    """Milliseconds since this operator last changed anything. Older views do not show the change."""
    since_pod_change_ms: int = 2**31
    """Milliseconds since a pod last became ready or disappeared. Older views of quorum or metadata do not show it."""
    disks: Mapping[int, Aged[Disks]] = field(default_factory=dict)
    """Log directories by broker, for brokers that have answered the request."""
    migration: Aged[Mapping[int, ControllerMigration]] = Aged()
    """Reports of the controllers that answer, by node id; only while a migration is not finalized."""
    tried: tuple[Step, ...] = ()
    """Steps of the previous pass. If the same step is planned again, it was refused or has no effect; it delays no
    other step."""
