"""Planning of KRaftUsers: compares declared and existing credentials, ACLs and quotas, and plans changes. Pure.

A user is a principal `User:NAME`, whether it authenticates by SCRAM or by a certificate.

Ownership:

- A resource owns the SCRAM credentials, ACLs and quotas that it made. `UserClaim` records them before they are made.
- With `adopt`, it also owns declared items that existed before. Without it, a user with credentials of another origin
is refused: their holder would get the declared rights.
- Undeclared ACLs and quotas of another origin stay, unless the resource is `exclusive`.
- If two resources name the same user, the present owner keeps it; else the older resource gets it, else the first by
  name. Users of the cluster itself are refused.

Deletion: the items in a claim are deleted once no resource with its name and uid exists. A malformed resource still
exists, so its claim stays. A view that could not be read is unknown: nothing in it changes, and its claims stay.

A broker may not have applied the newest metadata, and a request without an answer may still take effect. So a view that
lacks an item does not prove that the item does not exist. A claim shrinks and ends only for `UsersSeen.proven`.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from kraft_operator.plan.model.record import UserClaim

BATCH_MAX: Final = 250
"""The most users that one pass creates, changes or deletes."""
CLAIMS_BYTES_MAX: Final = 900_000
"""The size of all claims of a cluster. An object of Kubernetes may have 1 MiB of data."""
CLAIM_BYTES: Final = 270
"""The size of a claim without its ACLs and its names."""
DIGEST_CHARS: Final = 12
ANONYMOUS: Final = "ANONYMOUS"
"""The user of connections without authentication."""
DENY: Final = 2
ALLOW: Final = 3


class Acl(NamedTuple):
    """One ACL of a user. The numbers are those of Kafka's protocol."""

    resource_type: int
    name: str
    pattern: int
    host: str
    operation: int
    permission: int

    @property
    def digest(self) -> str:
        """A short name of the ACL for claims."""
        text = "\0".join(map(str, self)).encode()
        return base64.urlsafe_b64encode(hashlib.sha256(text).digest()).decode()[:DIGEST_CHARS]


@dataclass(frozen=True, slots=True)
class DesiredUser:
    """A valid resource. `sent` comes from its status."""

    resource: str
    user: str
    mechanism: str = ""
    """The SCRAM mechanism; empty for mutual TLS."""
    iterations: int = 4096
    acls: frozenset[Acl] = frozenset()
    quotas: Mapping[str, float] = field(default_factory=dict)
    adopt: bool = False
    """Own declared items that existed before."""
    exclusive: bool = False
    """Delete undeclared ACLs and quotas of the user."""
    uid: str = ""
    created: str = ""
    """`metadata.creationTimestamp` of the resource. These texts sort by time."""
    sent: str = ""
    """The id of the password that the cluster has."""
    controllers: bool = False
    """Whether its credentials open connections to controllers, too."""


@dataclass(frozen=True, slots=True)
class UnreadUser:
    """A malformed resource; `user` is the user that it seems to mean."""

    resource: str
    user: str


@dataclass(frozen=True, slots=True)
class DeclaredUsers:
    """All KRaftUsers of the namespace, as far as they concern one cluster."""

    desired_users: tuple[DesiredUser, ...] = ()
    unread: tuple[UnreadUser, ...] = ()
    there: frozenset[tuple[str, str]] = frozenset()
    """Name and uid of every existing resource, valid or not."""
    internal: frozenset[str] = frozenset({ANONYMOUS})
    """Users of the cluster itself: nodes, operator, super users."""

    @property
    def empty(self) -> bool:
        """Whether no resource concerns the cluster."""
        return not self.desired_users and not self.unread


CREDENTIALS: Final = "credentials"
ACLS: Final = "acls"
QUOTAS: Final = "quotas"


@dataclass(frozen=True, slots=True)
class UsersSeen:
    """The observed users. A user that is missing in a view has nothing there, as far as the broker knows."""

    credentials: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Iterations by user and mechanism."""
    acls: Mapping[str, frozenset[Acl]] = field(default_factory=dict)
    quotas: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    hidden: Mapping[str, str] = field(default_factory=dict)
    """Views that could not be read (`CREDENTIALS`, `ACLS`, `QUOTAS`), with the reason."""
    hidden_users: Mapping[str, str] = field(default_factory=dict)
    """Users with unknown credentials, with the reason."""
    proven: frozenset[str] = frozenset()
    """Users that certainly have nothing but what is seen."""

    def why_hidden(self, view: str, user: str) -> str:
        """The reason why a view of a user is unknown; empty if it is known."""
        return self.hidden.get(view, "") or (self.hidden_users.get(user, "") if view == CREDENTIALS else "")


def unseen(claims: Iterable[UserClaim], seen: UsersSeen) -> list[UserClaim]:
    """Claims that name something which is not seen. They need a proof, to shrink or to end."""
    return [one for one in claims if _seen_of(one, seen) != one]


def _seen_of(claim: UserClaim, seen: UsersSeen) -> UserClaim:
    """The claim, without what is not seen."""
    acls = {acl.digest for acl in seen.acls.get(claim.user, ())}
    return replace(
        claim,
        mechanisms=claim.mechanisms & seen.credentials.get(claim.user, {}).keys(),
        acls=claim.acls & acls,
        quotas=claim.quotas & seen.quotas.get(claim.user, {}).keys(),
    )


class Credential(NamedTuple):
    """What a resource authenticates with, as its Secret holds it."""

    id: str = ""
    """The id of the password in force; empty without a usable password."""
    reason: str = ""
    message: str = ""
    """The problem, if any."""


@dataclass(frozen=True, slots=True)
class UserState:
    """The state of a resource, for its status."""

    ready: bool
    reason: str
    message: str = ""
    sent: str | None = None
    """The id of the password that the cluster has by now; None if that has not changed."""


@dataclass(frozen=True, slots=True)
class UserChange:
    """The changes of one user."""

    upsert: tuple[str, int] | None = None
    """Mechanism and iterations of the password to set."""
    drop: tuple[str, ...] = ()
    """Mechanisms whose credentials are deleted."""
    create: frozenset[Acl] = frozenset()
    delete: frozenset[Acl] = frozenset()
    put: Mapping[str, float] = field(default_factory=dict)
    remove: tuple[str, ...] = ()
    """Quotas to remove."""

    @property
    def makes(self) -> bool:
        """Whether anything is made that must be deleted with the resource."""
        return bool(self.upsert or self.create or self.put)

    @property
    def due(self) -> bool:
        """Whether anything changes."""
        return any((self.upsert, self.drop, self.create, self.delete, self.put, self.remove))


@dataclass(slots=True)
class Owners:
    """The owner of each user, and the states of refused resources."""

    by_user: dict[str, DesiredUser] = field(default_factory=dict)
    states: dict[str, UserState] = field(default_factory=dict)


@dataclass(slots=True)
class UserPlan:
    """The next batch of changes. `claims` are recorded before any change is made."""

    claims: dict[str, UserClaim] = field(default_factory=dict)
    changes: dict[str, UserChange] = field(default_factory=dict)
    """Changes of users with a resource, by user."""
    gone: dict[str, UserChange] = field(default_factory=dict)
    """Deletions for claims without a resource, by user."""
    states: dict[str, UserState] = field(default_factory=dict)
    """States by the name of the resource."""

    @property
    def count(self) -> int:
        """The number of users that change."""
        return len(self.changes) + len(self.gone)

    @property
    def lines(self) -> list[str]:
        """One message for each user that changes."""
        found = []
        for user, change in self.changes.items():
            words = [f"set the password ({change.upsert[0]})"] if change.upsert else []
            words += [f"delete its {mechanism} credential" for mechanism in change.drop]
            words += [
                f"{len(acls)} ACL(s) {verb}"
                for acls, verb in ((change.create, "more"), (change.delete, "less"))
                if acls
            ]
            words += [f"{key}={value:g}" for key, value in change.put.items()]
            words += [f"no {key}" for key in change.remove]
            found.append(f"user {user}: {', '.join(words)}")
        return [*found, *(f"delete user {user}" for user in self.gone)]


def owners(declared: DeclaredUsers, seen: UsersSeen, claims: Mapping[str, UserClaim]) -> Owners:
    """Find the owner of each user. `seen` must cover all declared and claimed users."""
    found = Owners()
    unread = {one.user: one.resource for one in declared.unread}
    unread = {user: name for user, name in unread.items() if user in claims and claims[user].resource == name}
    for desired in sorted(declared.desired_users, key=lambda one: _order(one, claims)):
        user, claim = desired.user, claims.get(desired.user)
        owner = found.by_user.get(user)
        first = owner.resource if owner is not None else unread.get(user, desired.resource)
        if user in declared.internal:
            text = f"{user} is a super user or a user of the cluster itself: choose another spec.userName"
            found.states[desired.resource] = UserState(False, "InternalUser", text)
        elif first != desired.resource:
            text = f"the user {user} is the KRaftUser {first}'s: delete one of the two resources"
            found.states[desired.resource] = UserState(False, "UserTaken", text)
        elif claim is not None and claim.resource != desired.resource:
            text = f"the user {user} belongs to the former KRaftUser {claim.resource}, which is being deleted"
            found.states[desired.resource] = UserState(False, "UserLeaves", text)
        elif why := seen.why_hidden(CREDENTIALS, user):
            found.states[desired.resource] = UserState(False, "NotVisible", why)
        elif not desired.adopt and (foreign := seen.credentials.get(user, {}).keys() - _mechanisms(claim)):
            text = f"the user {user} has a {' and a '.join(sorted(foreign))} password of another origin: set spec.adopt"
            text += " to true to take it over and set a new password, or choose another spec.userName"
            found.states[desired.resource] = UserState(False, "UserExists", text)
        else:
            found.by_user[user] = desired
    return found


def plan_users(
    declared: DeclaredUsers,
    owned: Owners,
    seen: UsersSeen,
    claims: Mapping[str, UserClaim],
    credentials: Mapping[str, Credential],
) -> UserPlan:
    """Plan the next batch. `credentials` are those of the owners, by the name of the resource."""
    plan = UserPlan(states=dict(owned.states))
    size = sum(map(_size, claims.values()))
    for user, claim in claims.items():
        if user not in owned.by_user:
            _ends(plan, declared, claim, seen)
    for user, desired in owned.by_user.items():
        old = claims.get(user)
        claim, change, state = _follow(desired, seen, old, credentials.get(desired.resource, Credential()))
        size += _size(claim) - (_size(old) if old is not None else 0)
        if size > CLAIMS_BYTES_MAX and (old is None or _size(claim) > _size(old)):
            size -= _size(claim) - (_size(old) if old is not None else 0)
            text = "the cluster has more users and ACLs than its record can hold: declare fewer, or use patterns of"
            state = UserState(False, "TooManyOwned", f"{text} ACLs (Prefixed)")
            plan.states[desired.resource] = state
            if old is not None:
                plan.claims[user] = old
            continue
        plan.states[desired.resource] = state
        if not change.due:
            plan.claims[user] = claim
        elif plan.count < BATCH_MAX:
            plan.claims[user], plan.changes[user] = claim, change
        elif old is not None:
            plan.claims[user] = old
    return plan


def _order(desired: DesiredUser, claims: Mapping[str, UserClaim]) -> tuple[bool, str, str]:
    return not _claimed(desired, claims.get(desired.user)), desired.created, desired.resource


def _claimed(desired: DesiredUser, claim: UserClaim | None) -> bool:
    return claim is not None and (claim.resource, claim.uid) == (desired.resource, desired.uid)


def _mechanisms(claim: UserClaim | None) -> frozenset[str]:
    return frozenset() if claim is None else claim.mechanisms


def _size(claim: UserClaim) -> int:
    return CLAIM_BYTES + 2 * len(claim.user) + len(claim.acls) * (DIGEST_CHARS + 3)


def _ends(plan: UserPlan, declared: DeclaredUsers, claim: UserClaim, seen: UsersSeen) -> None:
    """Plan for a claim without an owner: delete its items, once the claiming resource certainly no longer exists."""
    meant = any(claim.user in {one.user, one.resource} or claim.resource == one.resource for one in declared.unread)
    has_successor = any((one.resource, one.user) == (claim.resource, claim.user) for one in declared.desired_users)
    if meant or has_successor or (claim.resource, claim.uid) in declared.there:
        plan.claims[claim.user] = claim
        return
    user = claim.user
    acls = frozenset(acl for acl in seen.acls.get(user, ()) if acl.digest in claim.acls)
    change = UserChange(
        drop=tuple(sorted(claim.mechanisms & seen.credentials.get(user, {}).keys())),
        delete=acls,
        remove=tuple(sorted(claim.quotas & seen.quotas.get(user, {}).keys())),
    )
    unknown = (
        (claim.mechanisms and seen.why_hidden(CREDENTIALS, user))
        or (claim.acls and seen.why_hidden(ACLS, user))
        or (claim.quotas and seen.why_hidden(QUOTAS, user))
    )
    if change.due or unknown or (claim.names_anything and user not in seen.proven):
        plan.claims[user] = claim
    if change.due and plan.count < BATCH_MAX:
        plan.gone[user] = change


def _follow(
    desired: DesiredUser, seen: UsersSeen, claim: UserClaim | None, credential: Credential
) -> tuple[UserClaim, UserChange, UserState]:
    """The claim, the changes and the state of a resource that owns its user."""
    old = claim or UserClaim(desired.user, desired.resource, desired.uid)
    new = replace(old, resource=desired.resource, uid=desired.uid)
    change = UserChange()
    problems = [(credential.reason, credential.message)] if credential.reason else []
    new, change = _follow_credentials(desired, seen, old, new, change, credential)
    for view, wanted, step in (
        (ACLS, desired.acls or old.acls or desired.exclusive, _follow_acls),
        (QUOTAS, desired.quotas or old.quotas or desired.exclusive, _follow_quotas),
    ):
        if (why := seen.why_hidden(view, desired.user)) and wanted:
            problems.append(("NotVisible", why))
        elif wanted:
            new, change = step(desired, seen, old, new, change)
    if desired.user not in seen.proven:
        new = _joined(old, new)
    sent = credential.id if desired.mechanism and credential.id and not change.upsert else None
    if problems:
        return new, change, UserState(False, problems[0][0], "; ".join(text for _, text in problems), sent)
    if change.due or not credential.id:
        return new, change, UserState(False, "Changing", "", sent)
    return new, change, UserState(True, "InForce", "", sent)


def _joined(old: UserClaim, new: UserClaim) -> UserClaim:
    """The new claim, with all that the old one names."""
    mechanisms, acls, quotas = old.mechanisms | new.mechanisms, old.acls | new.acls, old.quotas | new.quotas
    return replace(new, mechanisms=mechanisms, acls=acls, quotas=quotas)


def _follow_credentials(
    desired: DesiredUser, seen: UsersSeen, old: UserClaim, new: UserClaim, change: UserChange, credential: Credential
) -> tuple[UserClaim, UserChange]:
    there = seen.credentials.get(desired.user, {})
    mine = there.keys() if desired.adopt else old.mechanisms & there.keys()
    wanted = {desired.mechanism} if desired.mechanism else set[str]()
    stale = credential.id != desired.sent or there.get(desired.mechanism) != desired.iterations
    if wanted and credential.id and stale:
        change = replace(change, upsert=(desired.mechanism, desired.iterations))
    # Without a new password or certificate, an application would lose its only credential.
    drop = mine - wanted if credential.id else set[str]()
    made = wanted if credential.id else wanted & old.mechanisms
    return replace(new, mechanisms=frozenset(mine | made)), replace(change, drop=tuple(sorted(drop)))


def _follow_acls(
    desired: DesiredUser, seen: UsersSeen, old: UserClaim, new: UserClaim, change: UserChange
) -> tuple[UserClaim, UserChange]:
    there = seen.acls.get(desired.user, frozenset())
    mine = {acl for acl in there if acl.digest in old.acls}
    create = desired.acls - there
    delete = (there if desired.exclusive else mine) - desired.acls
    kept = mine | create | (desired.acls if desired.adopt else frozenset())
    claimed = replace(new, acls=frozenset(acl.digest for acl in kept))
    return claimed, replace(change, create=create, delete=frozenset(delete))


def _follow_quotas(
    desired: DesiredUser, seen: UsersSeen, old: UserClaim, new: UserClaim, change: UserChange
) -> tuple[UserClaim, UserChange]:
    there = seen.quotas.get(desired.user, {})
    mine = old.quotas & there.keys()
    put = {key: value for key, value in desired.quotas.items() if there.get(key) != value}
    remove = (there.keys() if desired.exclusive else mine) - desired.quotas.keys()
    kept = mine | put.keys() | (desired.quotas.keys() if desired.adopt else frozenset())
    return replace(new, quotas=frozenset(kept)), replace(change, put=put, remove=tuple(sorted(remove)))


def names_of(declared: DeclaredUsers, claims: Iterable[str]) -> list[str]:
    """All users that a look must cover."""
    return sorted({*claims, *(one.user for one in declared.desired_users)})
