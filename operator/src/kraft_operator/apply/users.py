"""KRaftUsers of one cluster: read what is declared, carry out a batch, report states.

The reconciler and the supervisor of a local cluster call it after a pass that found brokers. `plan.users` decides,
`apply.user_requests` speaks to the cluster. Passwords come from the keeper right before they are sent.

A claim shrinks and ends only with a proof: all requests for it have answers, or none can take effect any more, and the
broker has applied all metadata (`observe.source`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Protocol

from kraft_operator.api.user import CLUSTER, AclRule, KRaftUserSpec
from kraft_operator.apply.declared import declarations, ready_status
from kraft_operator.apply.user_requests import carry_out, look
from kraft_operator.observe.source import MetadataSource
from kraft_operator.plan.model.record import UserClaim
from kraft_operator.plan.users import (
    ALLOW,
    ANONYMOUS,
    DENY,
    Acl,
    Credential,
    DeclaredUsers,
    DesiredUser,
    Owners,
    UnreadUser,
    UserPlan,
    UsersSeen,
    UserState,
    names_of,
    owners,
    plan_users,
    unseen,
)
from kraft_protocol.client.aio import UnreachableError

MECHANISMS: Final = {"ScramSha512": "SCRAM-SHA-512", "ScramSha256": "SCRAM-SHA-256", "MutualTls": ""}
RESOURCE_TYPES: Final = {"Topic": 2, "Group": 3, "Cluster": 4, "TransactionalId": 5, "DelegationToken": 6, "User": 7}
PATTERNS: Final = {"Literal": 3, "Prefixed": 4}
OPERATIONS: Final = {
    "All": 2,
    "Read": 3,
    "Write": 4,
    "Create": 5,
    "Delete": 6,
    "Alter": 7,
    "Describe": 8,
    "ClusterAction": 9,
    "DescribeConfigs": 10,
    "AlterConfigs": 11,
    "IdempotentWrite": 12,
    "CreateTokens": 13,
    "DescribeTokens": 14,
    "TwoPhaseCommit": 15,
}
SETTLED_S: Final = 120.0
"""Seconds after which a request without an answer takes no effect any more. A broker forwards a request for at most
`request.timeout.ms` (30 s by default), and a controller may process it a while later."""
PERMISSIONS: Final = {"Allow": ALLOW, "Deny": DENY}


def declared(
    resources: Iterable[Mapping[str, Any]],
    cluster: str,
    claims: Iterable[UserClaim] = (),
    internal: Collection[str] = (),
) -> tuple[DeclaredUsers, dict[str, UserState]]:
    """Read the KRaftUsers of a namespace for one cluster. Also returns the states of malformed resources.

    `resources` must be all KRaftUsers of the namespace, because a user of a missing resource is deleted. `internal`
    are the users of the cluster itself.
    """
    claimants = {(claim.resource, claim.uid) for claim in claims}
    found = declarations(resources, KRaftUserSpec, cluster, claimants)
    unread, states = [], {}
    for one, message in found.malformed:
        name = one["metadata"]["name"]
        states[name] = UserState(False, "NotUnderstood", message)
        unread.append(UnreadUser(name, str((one.get("spec") or {}).get("userName") or name)))
    desired_users = tuple(desired_of(one, spec) for one, spec in found.desired)
    names = frozenset({ANONYMOUS, *internal})
    return DeclaredUsers(desired_users, tuple(unread), found.there, names), states


def desired_of(resource: Mapping[str, Any], spec: KRaftUserSpec) -> DesiredUser:
    """What a valid resource wants."""
    metadata, status = resource["metadata"], resource.get("status", {})
    quotas = spec.quotas
    wanted = {
        "producer_byte_rate": quotas.producer_byte_rate,
        "consumer_byte_rate": quotas.consumer_byte_rate,
        "request_percentage": quotas.request_percentage,
        "controller_mutation_rate": quotas.controller_mutation_rate,
    }
    return DesiredUser(
        metadata["name"],
        spec.user_name or metadata["name"],
        MECHANISMS[spec.authentication.type],
        spec.authentication.iterations,
        frozenset(acl for rule in spec.acls for acl in acls_of(rule)),
        {key: float(value) for key, value in wanted.items() if value is not None},
        bool(spec.adopt),
        bool(spec.exclusive),
        metadata.get("uid", ""),
        metadata.get("creationTimestamp", ""),
        status.get("credential", ""),
        bool(spec.controllers),
    )


def acls_of(rule: AclRule) -> Iterable[Acl]:
    """The ACLs of a rule, one for each operation."""
    resource = rule.resource
    for operation in rule.operations:
        yield Acl(
            RESOURCE_TYPES[resource.type],
            resource.name or CLUSTER,
            PATTERNS[resource.pattern],
            rule.host,
            OPERATIONS[operation],
            PERMISSIONS[rule.permission],
        )


class UserKeeper(Protocol):
    """Keeps claims and credentials between passes, and reports states."""

    async def remember(self, claims: Mapping[str, UserClaim]) -> None:
        """Record the claims. Called before anything in the cluster changes."""

    async def credentials(self, desired_users: Collection[DesiredUser]) -> Mapping[str, Credential]:
        """Make missing and due credentials. Returns those in force by the name of the resource."""

    async def passwords(self, resources: Collection[str]) -> Mapping[str, str]:
        """The passwords of these resources."""

    async def report_states(self, states: Mapping[str, UserState]) -> None:
        """Report states by the name of the resource."""

    async def gone(self, claims: Collection[UserClaim]) -> set[str]:
        """Return the users that certainly have no resource. Announces their deletion before it returns."""

    async def ended(self, claims: Collection[UserClaim]) -> None:
        """Remove what the keeper has of users whose claims end. Called before the claims are forgotten."""


@dataclass(slots=True)
class AtRest:
    """The users of a resting cluster, as the last whole pass has left them."""

    declared: DeclaredUsers
    claims: Mapping[str, UserClaim]
    credentials: Mapping[str, Credential]
    states: Mapping[str, UserState]


NOTHING: Final = AtRest(DeclaredUsers(), {}, {}, {})
"""A cluster without users."""


class UserPass(NamedTuple):
    """One observation of the users, and one batch of changes."""

    source: MetadataSource
    keeper: UserKeeper

    async def run(self, declared: DeclaredUsers, claims: Mapping[str, UserClaim]) -> tuple[bool, AtRest | None]:
        """Observe, plan and carry out a batch. Raises UnreachableError.

        Returns whether another pass is due soon, and the users if nothing was to be done.
        """
        broker, seen = await self._look(declared, claims)
        owned = owners(declared, seen, claims)
        credentials = await self.keeper.credentials(owned.by_user.values())
        plan = plan_users(declared, owned, seen, claims, credentials)
        making = [user for user, change in plan.changes.items() if change.makes]
        sent = {user: replace(plan.claims[user], unanswered=_text(datetime.now(UTC))) for user in making}
        if ended := [claim for user, claim in claims.items() if user not in plan.claims]:
            await self.keeper.ended(ended)
        if {**plan.claims, **sent} != claims:
            await self.keeper.remember({**plan.claims, **sent})
        if plan.gone:
            gone = await self.keeper.gone([claims[user] for user in plan.gone])
            plan.gone = {user: change for user, change in plan.gone.items() if user in gone}
        if not plan.count:
            await self.keeper.report_states(plan.states)
            # No watch shows Secrets, so a problem with one must be looked at again.
            rests = plan.claims == claims and not any(one.reason for one in credentials.values())
            if not rests or unseen(plan.claims.values(), seen):
                return plan.claims != claims, None
            return False, AtRest(declared, claims, credentials, plan.states)
        refused = await self._change(broker, plan, owned)
        await self._answered(plan, {user: claim for user, claim in sent.items() if user not in refused})
        await self.keeper.report_states(_changed(plan, owned, credentials, refused))
        return plan.count > len(refused), None

    async def _look(self, declared: DeclaredUsers, claims: Mapping[str, UserClaim]) -> tuple[int, UsersSeen]:
        """Read the users from a broker, again with a proof if anything that a claim names is not seen."""
        names = names_of(declared, claims)
        broker, seen = await self.source.first(lambda address: look(self.source.client, address, names))
        now = datetime.now(UTC)
        settled = frozenset(one.user for one in unseen(claims.values(), seen) if _is_settled(one, now))
        if settled and await self.source.is_complete(broker):
            again = await look(self.source.client, self.source.address(broker), names)
            return broker, replace(again, proven=settled)
        return broker, seen

    async def _change(self, broker: int, plan: UserPlan, owned: Owners) -> Mapping[str, str]:
        setting = {user: owned.by_user[user].resource for user, change in plan.changes.items() if change.upsert}
        passwords = await self.keeper.passwords(setting.values()) if setting else {}
        by_user = {user: passwords[resource] for user, resource in setting.items() if resource in passwords}
        changes = {**plan.gone, **plan.changes}
        return await carry_out(self.source.client, self.source.address(broker), changes, by_user)

    async def _answered(self, plan: UserPlan, answered: Mapping[str, UserClaim]) -> None:
        """Record that these claims have answers. An earlier request of a claim may still lack its answer."""
        now = datetime.now(UTC)
        before = {user: plan.claims[user] for user in answered}
        done = {user: replace(one, unanswered="") if _is_settled(one, now) else one for user, one in before.items()}
        if done:
            plan.claims |= done
            await self.keeper.remember(plan.claims)


def _is_settled(claim: UserClaim, now: datetime) -> bool:
    """Whether no request for a claim can take effect any more."""
    if not claim.unanswered:
        return True
    try:
        return (now - datetime.fromisoformat(claim.unanswered)).total_seconds() > SETTLED_S
    except (ValueError, TypeError):
        return False


def _text(time: datetime) -> str:
    return time.isoformat(timespec="seconds")


def _changed(
    plan: UserPlan, owned: Owners, credentials: Mapping[str, Credential], refused: Mapping[str, str]
) -> dict[str, UserState]:
    """The states after a batch: refusals, and the ids of the passwords that the cluster has now."""
    states = dict(plan.states)
    for user, change in plan.changes.items():
        resource = owned.by_user[user].resource
        if user in refused:
            states[resource] = replace(states[resource], ready=False, reason="Refused", message=refused[user])
        elif change.upsert:
            states[resource] = replace(states[resource], sent=credentials[resource].id)
    return states


async def steady(source: MetadataSource, rest: AtRest) -> bool:
    """Whether the users are certainly still as the last whole pass has left them."""
    if rest is NOTHING:
        return True
    if not source:
        return False
    names = names_of(rest.declared, rest.claims)
    try:
        _, seen = await source.first(lambda address: look(source.client, address, names))
    except UnreachableError:
        return False
    plan = plan_users(rest.declared, owners(rest.declared, seen, rest.claims), seen, rest.claims, rest.credentials)
    steady_claims = plan.claims == rest.claims and not unseen(rest.claims.values(), seen)
    return not plan.count and steady_claims and plan.states == rest.states


def preview(declared: DeclaredUsers, seen: Any, claims: Mapping[str, UserClaim]) -> Sequence[str]:
    """Messages about the changes that a pass would make. Passwords count as unchanged."""
    owned = owners(declared, seen, claims)
    known = {one.resource: Credential(one.sent or "new") for one in owned.by_user.values()}
    return plan_users(declared, owned, seen, claims, known).lines


def condition(state: UserState, resource: Mapping[str, Any], now: str) -> dict[str, Any]:
    """The parts of a resource's status that follow from a state, with the time of its condition's last change."""
    found = ready_status(state.ready, state.reason, state.message, resource, now)
    return found if state.sent is None else {**found, "credential": state.sent}
