"""The wanted state by the specification, in the form that the planner needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

STARTS_WITH: Final = "dynamic"
"""The aspect of values that a running node takes over without a restart: `KEY=DIGEST`, separated by commas. A running
node needs a restart only if a key is no longer wanted, because its file still has a value for it."""

MIGRATE: Final = "Migrate"
"""The wanted phase of a migration from ZooKeeper until its end is requested."""


def keys_of(starts_with: str) -> frozenset[str]:
    """The keys in a value of the aspect `STARTS_WITH`."""
    return frozenset(word.partition("=")[0] for word in starts_with.split(",") if "=" in word)


@dataclass(frozen=True, slots=True)
class ControllerAspects:
    """As in `Pool`, for nodes that are controllers only."""

    aspects: Mapping[str, str]
    before: Mapping[str, Collection[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool: nodes with the same roles and settings."""

    name: str
    controller: bool
    broker: bool
    replicas: int
    first_id: int
    aspects: Mapping[str, str]
    """Digests that its pods must have: `config`, `image`, `resources`, `template`. A difference needs a restart."""
    size_bytes: Mapping[str, int] = field(default_factory=dict)
    """Size of each volume in bytes, by name."""
    delete_volumes: bool = False
    before: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Equivalent aspect values that older operators wrote on pods. Empty text: the older pod lacks the aspect."""
    of_controllers: ControllerAspects | None = None
    """For nodes that are no brokers. None if these have the same aspects. A node may have a role that its pool lost."""

    def aspects_of(self, *, broker: bool) -> Mapping[str, str]:
        """The aspects of this pool's nodes with or without the role of a broker."""
        return self.aspects if broker or self.of_controllers is None else self.of_controllers.aspects

    def before_of(self, *, broker: bool) -> Mapping[str, Collection[str]]:
        """The older values of `aspects_of`."""
        return self.before if broker or self.of_controllers is None else self.of_controllers.before


@dataclass(frozen=True, slots=True)
class ReplacementRequest:
    """A request to replace a node: an annotation, or an entry of `spec.replacements`."""

    name: str
    node: int
    by: str
    accept: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Wanted:
    """The whole wanted state, by the specification and the annotations of a cluster."""

    pools: tuple[Pool, ...]
    cluster_id: str | None = None
    static_quorum: bool = True
    first_voters: frozenset[int] = frozenset()
    """How many controllers a new cluster may have; any number if empty."""
    dynamic_config: Mapping[str, str] = field(default_factory=dict)
    """Configuration values that brokers take over without a restart, by key."""
    replacements: tuple[ReplacementRequest, ...] = ()
    malformed: tuple[str, ...] = ()
    """One message for each malformed request."""
    parallel_by_rack: bool = False
    parallel_racks: int = 1
    """How many racks may have brokers down at the same time, if the ISRs allow it."""
    rolls_paused: bool = False
    window_closed: str = ""
    """Why restarts for changes wait while no maintenance window is open; else empty."""
    paused: bool = False
    hibernated: bool = False
    supervised: bool = False
    approved: str = ""
    """The approved revision."""
    revision: str = ""
    skip: frozenset[int] = frozenset()
    """Nodes that the operator leaves alone."""
    rolls: Mapping[int, str] = field(default_factory=dict)
    """Manual restarts: a token by node id. A new token requests a new restart."""
    given_up: frozenset[int] = frozenset()
    """Leaving voters that may be removed from the quorum while they are down."""
    unavailable_topics: frozenset[str] = frozenset()
    topic_replicas: Mapping[str, int] = field(default_factory=dict)
    """Replicas of each partition, by topic."""
    drain_at_once: int = 50
    drain_bytes: int = 0
    """Throttle in bytes per second and broker; 0 for no throttle."""
    metadata_version: int | None = None
    """The level to finalize; 0 if the name is not known."""
    metadata_latest: bool = False
    """Without a level: finalize the latest level that the image supports."""
    racks: bool = False
    """Brokers have the rack of their machine."""
    balance_new: bool = False
    """Move replicas to new brokers."""
    load: str = ""
    """Balance by load: `Preview` reports the moves, `Move` carries them out, empty does neither."""
    load_percent: int = 20
    """How many percent above the mean a broker may be."""
    load_bytes: int = 0
    """The number of bytes above the mean that a broker may always have, with any percentage."""
    migration: str = ""
    """The wanted phase of the migration from ZooKeeper, `Migrate` or `Finalized`; empty without a migration."""
    zookeeper: str = ""
    """A digest of how controllers reach ZooKeeper."""
    outside: frozenset[int] = frozenset()
    """Brokers of the migration that the operator does not manage."""
    outside_leave: bool = False
    """Move all replicas from brokers outside to the brokers of pools."""
    balance: str = ""
    """A request to balance; a new word is a new request."""

    def pool(self, name: str) -> Pool | None:
        """Return the pool of this name, or None if it does not exist."""
        return next((pool for pool in self.pools if pool.name == name), None)
