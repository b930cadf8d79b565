"""The parts of one run of the whole world, drawn from the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from typing import Final

SHARES: Final = {
    "groups": 0.55, "transactions": 0.55, "secured": 0.35, "statics": 0.35, "directories": 0.6, "growth": 0.5,
    "settings": 0.6, "quotas": 0.35, "access": 0.7, "lossy": 0.4, "retained": 0.5, "aged": 0.5,
    "cooperative": 0.5,
}  # fmt: skip
"""Share of the seeds with each part; of `access`, of the seeds with `secured`: without a login, all clients are one."""


@dataclass(frozen=True)
class Parts:
    """Which clients and operators a run has besides those of every cluster."""

    groups: bool
    """Members of consumer groups of both protocols."""
    transactions: bool
    """Transactional producers, copiers and readers, also of a compacted topic."""
    secured: bool
    """SASL on all listeners, changing passwords, intruders."""
    statics: bool
    """A classic group of static members."""
    directories: bool
    """Two log directories on each broker, and an operator who moves replicas between them."""
    growth: bool
    """An operator who adds partitions to a topic."""
    settings: bool
    """An operator who changes configurations."""
    quotas: bool
    """An operator who changes quotas of clients."""
    access: bool
    """An authorizer, an operator who changes ACLs, and a client that they concern."""
    lossy: bool
    """A topic with unclean elections."""
    retained: bool
    """A topic with a small `retention.bytes` whose records are also deleted."""
    aged: bool
    """A topic with a small `retention.ms`."""
    cooperative: bool
    """A classic group that rebalances cooperatively."""

    def __str__(self) -> str:
        return ", ".join(field.name for field in fields(self) if getattr(self, field.name)) or "nothing more"


def parts_of(seed: int) -> Parts:
    """The parts of a seed, each by a generator of its own: another part changes no seed without it."""
    drawn = {name: random.Random(f"{name} of {seed}").random() < share for name, share in SHARES.items()}
    drawn["access"] = drawn["access"] and drawn["secured"]
    return Parts(**drawn)


__all__ = ["Parts", "parts_of"]
