"""The roles and the allowed transitions between them. docs/images/raft-roles.svg is drawn from `TRANSITIONS`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class Role(Enum):
    """The current role of a replica of the metadata log. Values are Kafka's names in the current-state metric."""

    UNATTACHED = "unattached"
    """Knows no leader of its epoch; looks for the leader, and campaigns after a time-out."""
    PROSPECTIVE = "prospective"
    """Asks, without a new epoch, whether it would be elected (pre-vote, KIP-996)."""
    CANDIDATE = "candidate"
    """Has begun an epoch, voted for itself, and requests votes."""
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"
    """Was leader of this epoch and no longer acts as leader."""


class IllegalTransition(AssertionError):  # noqa: N818 - a broken law, not an error to handle
    """The core tried to take a role that must not follow its current role."""


TRANSITIONS: Final[Mapping[Role | None, Mapping[Role, str]]] = {
    None: {
        Role.UNATTACHED: "knows no leader",
        Role.FOLLOWER: "knew the leader",
        Role.CANDIDATE: "had voted for itself",
        Role.RESIGNED: "had led",
    },
    Role.UNATTACHED: {
        Role.UNATTACHED: "newer epoch",
        Role.PROSPECTIVE: "election time-out",
        Role.FOLLOWER: "learns of the leader",
    },
    Role.PROSPECTIVE: {
        Role.CANDIDATE: "a majority would elect it",
        Role.UNATTACHED: "newer epoch, or refused",
        Role.FOLLOWER: "learns of the leader, or refused",
    },
    Role.CANDIDATE: {
        Role.LEADER: "elected",
        Role.PROSPECTIVE: "election time-out",
        Role.UNATTACHED: "newer epoch",
        Role.FOLLOWER: "learns of the leader",
    },
    Role.LEADER: {
        Role.RESIGNED: "stops, must resign, has no contact to a majority, or is no longer a voter",
        Role.UNATTACHED: "newer epoch",
        Role.FOLLOWER: "newer epoch with its leader",
    },
    Role.FOLLOWER: {
        Role.PROSPECTIVE: "fetch time-out",
        Role.UNATTACHED: "newer epoch",
        Role.FOLLOWER: "newer epoch with its leader",
    },
    Role.RESIGNED: {
        Role.UNATTACHED: "newer epoch, by itself after an election time-out",
        Role.FOLLOWER: "newer epoch with its leader",
        Role.PROSPECTIVE: "the only voter, at its start",
    },
}
"""From (None: at start) to, and why. Observers are only UNATTACHED, FOLLOWER, and RESIGNED if they led."""

SAME_EPOCH_ONLY: Final = frozenset(
    {
        (Role.UNATTACHED, Role.PROSPECTIVE),
        (Role.FOLLOWER, Role.PROSPECTIVE),
        (Role.CANDIDATE, Role.PROSPECTIVE),
        (Role.RESIGNED, Role.PROSPECTIVE),
        (Role.CANDIDATE, Role.LEADER),
        (Role.LEADER, Role.RESIGNED),
    }
)
NEW_EPOCH_ONLY: Final = frozenset(
    {
        (Role.PROSPECTIVE, Role.CANDIDATE),
        (Role.LEADER, Role.UNATTACHED),
        (Role.LEADER, Role.FOLLOWER),
        (Role.RESIGNED, Role.UNATTACHED),
        (Role.RESIGNED, Role.FOLLOWER),
    }
)


def check_transition(old: Role | None, new: Role, old_epoch: int, new_epoch: int) -> None:
    """Raise IllegalTransition if the table forbids the transition."""
    what = f"{old.name if old else 'start'} in epoch {old_epoch} to {new.name} in epoch {new_epoch}"
    if new not in TRANSITIONS[old]:
        raise IllegalTransition(f"law: {what} is not a transition")
    if old is None:
        return
    if new_epoch < old_epoch:
        raise IllegalTransition(f"law: epochs never decrease ({what})")
    if (old, new) in SAME_EPOCH_ONLY and new_epoch != old_epoch:
        raise IllegalTransition(f"law: that transition stays in its epoch ({what})")
    if (old, new) in NEW_EPOCH_ONLY and new_epoch == old_epoch:
        raise IllegalTransition(f"law: that transition needs a new epoch ({what})")
