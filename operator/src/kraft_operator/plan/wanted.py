"""What the specification asks for, as the planner needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

STARTS_WITH: Final = "dynamic"
"""The aspect of values that a node takes over as it runs, `KEY=DIGEST` by commas. One that runs lacks it only where a
key is wanted no more: its file has a value for it."""


def keys_of(starts_with: str) -> frozenset[str]:
    """The keys of that aspect."""
    return frozenset(word.partition("=")[0] for word in starts_with.split(",") if "=" in word)


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one kind."""

    name: str
    controller: bool
    broker: bool
    replicas: int
    first_id: int
    aspects: Mapping[str, str]
    """What a pod of it must have, by digest: `config`, `image`, `resources`, `template`. A difference is a restart."""
    size_bytes: Mapping[str, int] = field(default_factory=dict)
    """Of each volume, by name."""
    delete_volumes: bool = False
    before: Mapping[str, str] = field(default_factory=dict)
    """Values of aspects that say the same, and that an operator before this one wrote on pods; empty for no aspect."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A request: an annotation, or an entry of `spec.replacements`."""

    name: str
    node: int
    by: str
    accept: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Wanted:
    """All of it, annotations included."""

    pools: tuple[Pool, ...]
    cluster_id: str | None = None
    static_quorum: bool = True
    first_voters: frozenset[int] = frozenset()
    """How many controllers a new cluster may have; any number if empty."""
    dynamic_config: Mapping[str, str] = field(default_factory=dict)
    """Keys that brokers take over without a restart."""
    replacements: tuple[Replacement, ...] = ()
    malformed: tuple[str, ...] = ()
    """What is wrong with requests that cannot be read."""
    parallel_by_rack: bool = False
    parallel_racks: int = 1
    """Racks of which brokers go down together, where ISRs allow it."""
    rolls_paused: bool = False
    window_closed: str = ""
    """Why restarts for changes wait: no maintenance window is open."""
    paused: bool = False
    hibernated: bool = False
    supervised: bool = False
    approved: str = ""
    """The revision that somebody has approved."""
    revision: str = ""
    skip: frozenset[int] = frozenset()
    """Nodes that the operator leaves alone."""
    rolls: Mapping[int, str] = field(default_factory=dict)
    """Restarts asked for by hand: a new token is a new restart."""
    given_up: frozenset[int] = frozenset()
    """Voters that leave and are taken out of the quorum while they are down."""
    unavailable_topics: frozenset[str] = frozenset()
    topic_replicas: Mapping[str, int] = field(default_factory=dict)
    """How many replicas each partition of these topics shall have."""
    drain_at_once: int = 50
    drain_bytes: int = 0
    """A second and broker; 0 for no throttle."""
    metadata_version: int | None = None
    """The level to finalize; 0 where the name is not known."""
    metadata_latest: bool = False
    """Without a level: the latest that all nodes support."""
    racks: bool = False
    """Brokers have the rack of their machine."""
    balance_new: bool = False
    """Replicas move to brokers that have come."""
    load: str = ""
    """Balance by load: `Preview` tells what would move, `Move` moves it; neither if empty."""
    load_percent: int = 20
    """How far above the mean a broker may be."""
    load_bytes: int = 0
    """Bytes above the mean that are left alone, whatever they are in percent."""
    balance: str = ""
    """A request to balance; a new word is a new request."""

    def pool(self, name: str) -> Pool | None:
        return next((pool for pool in self.pools if pool.name == name), None)
