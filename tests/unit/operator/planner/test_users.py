"""KRaftUsers: the plan, and the requests that carry it out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from kraft_operator.api.user import OPERATIONS as BY_TYPE
from kraft_operator.api.user import KRaftUserSpec
from kraft_operator.apply import users
from kraft_operator.apply.user_requests import carry_out
from kraft_operator.plan.model.record import UserClaim
from kraft_operator.plan.users import (
    ACLS,
    ALLOW,
    BATCH_MAX,
    CREDENTIALS,
    QUOTAS,
    Acl,
    Credential,
    DeclaredUsers,
    DesiredUser,
    UnreadUser,
    UserChange,
    UserPlan,
    UsersSeen,
    _size,
    owners,
    plan_users,
    unseen,
)
from kraft_operator.specs.remembered import remembered_users, user_claims_of
from kraft_protocol.client.aio import Address
from kraft_protocol.sasl.scram import NUMBERS
from kraft_protocol.wire import messages as m

SCRAM = "SCRAM-SHA-512"
OTHER = "SCRAM-SHA-256"
READ = Acl(2, "t", 3, "*", 3, ALLOW)
WRITE = Acl(2, "t", 3, "*", 4, ALLOW)
USER = DesiredUser("u", "u", SCRAM, 4096, frozenset({READ}), {"producer_byte_rate": 5.0}, uid="uid", sent="id")
CLAIM = UserClaim("u", "u", "uid", frozenset({SCRAM}), frozenset({READ.digest}), frozenset({"producer_byte_rate"}))
SEEN = UsersSeen({"u": {SCRAM: 4096}}, {"u": frozenset({READ})}, {"u": {"producer_byte_rate": 5.0}})
HAS = Credential("id")
DEFAULTS: dict[str, Any] = {"authentication": {}, "acls": [], "quotas": {}}
"""As the API server fills them in."""


def _plan(
    *desired: DesiredUser,
    seen: UsersSeen = SEEN,
    claims: Mapping[str, UserClaim] | None = None,
    credential: Credential = HAS,
    **declared: Any,
) -> UserPlan:
    there = frozenset((one.resource, one.uid) for one in desired) | declared.pop("there", frozenset())
    found, claims = DeclaredUsers(desired, there=there, **declared), {"u": CLAIM} if claims is None else claims
    owned = owners(found, seen, claims)
    return plan_users(found, owned, seen, claims, {one.resource: credential for one in owned.by_user.values()})


def test_a_user_that_matches_is_left_alone() -> None:
    plan = _plan(USER)
    assert plan.count == 0
    assert plan.states["u"].ready
    assert plan.claims == {"u": CLAIM}


def test_a_new_user_is_claimed_before_it_is_made() -> None:
    plan = _plan(replace(USER, sent=""), seen=UsersSeen(), claims={})
    change = plan.changes["u"]
    assert change == UserChange((SCRAM, 4096), create=frozenset({READ}), put={"producer_byte_rate": 5.0})
    assert plan.claims == {"u": CLAIM}
    assert (plan.states["u"].ready, plan.states["u"].reason, plan.states["u"].sent) == (False, "Changing", None)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"iterations": 8192}, {"upsert": (SCRAM, 8192)}),
        ({"sent": "former"}, {"upsert": (SCRAM, 4096)}),
        ({"acls": frozenset({READ, WRITE})}, {"create": {WRITE}}),
        ({"acls": frozenset()}, {"delete": {READ}}),
        ({"quotas": {}}, {"remove": ("producer_byte_rate",)}),
        ({"quotas": {"producer_byte_rate": 6.0}}, {"put": {"producer_byte_rate": 6.0}}),
        ({"mechanism": ""}, {"drop": (SCRAM,)}),
        ({"mechanism": "SCRAM-SHA-256"}, {"upsert": ("SCRAM-SHA-256", 4096), "drop": (SCRAM,)}),
    ],
)
def test_a_user_that_differs_is_changed(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    change = _plan(replace(USER, **changes)).changes["u"]
    empty: dict[str, Any] = dict.fromkeys(("create", "delete"), frozenset()) | {"upsert": None, "drop": ()}
    found = {key: getattr(change, key) for key in (*empty, "put", "remove")}
    assert found == {**empty, "put": {}, "remove": (), **expected}


def test_a_credential_that_somebody_deleted_is_set_again() -> None:
    plan = _plan(USER, seen=replace(SEEN, credentials={}))
    assert plan.changes["u"].upsert == (SCRAM, 4096)


def test_acls_and_quotas_of_another_origin_stay_unless_the_resource_is_exclusive() -> None:
    foreign = replace(SEEN, acls={"u": frozenset({READ, WRITE})}, quotas={"u": {"producer_byte_rate": 5.0, "x": 1.0}})
    plan = _plan(USER, seen=foreign)
    assert plan.count == 0
    assert plan.claims == {"u": CLAIM}
    change = _plan(replace(USER, exclusive=True), seen=foreign).changes["u"]
    assert change == UserChange(delete=frozenset({WRITE}), remove=("x",))


def test_a_declared_acl_that_was_there_before_belongs_to_the_resource_only_with_adopt() -> None:
    foreign = replace(SEEN, acls={"u": frozenset({READ, WRITE})})
    wanted = replace(USER, acls=frozenset({READ, WRITE}))
    assert WRITE.digest not in _plan(wanted, seen=foreign).claims["u"].acls
    assert WRITE.digest in _plan(replace(wanted, adopt=True), seen=foreign).claims["u"].acls


def test_a_user_with_a_password_of_another_origin_is_refused_without_adopt() -> None:
    plan = _plan(USER, claims={})
    assert (plan.count, plan.claims) == (0, {})
    assert plan.states["u"].reason == "UserExists"
    other = _plan(USER, claims={"u": replace(CLAIM, mechanisms=frozenset())})
    assert other.states["u"].reason == "UserExists"
    taken = _plan(replace(USER, adopt=True, sent=""), claims={})
    assert taken.changes["u"].upsert == (SCRAM, 4096), "its former password is replaced"
    certificate = _plan(replace(USER, mechanism=""), claims={})
    assert certificate.states["u"].reason == "UserExists", "it would share its rights with a password"


@pytest.mark.parametrize("internal", ["ANONYMOUS", "admin"])
def test_users_of_the_cluster_itself_are_refused(internal: str) -> None:
    names = frozenset({"ANONYMOUS", "admin"})
    plan = _plan(replace(USER, user=internal), seen=UsersSeen(), claims={}, internal=names)
    assert (plan.count, plan.claims) == (0, {})
    assert plan.states["u"].reason == "InternalUser"


def test_of_two_resources_for_one_user_the_owner_keeps_it_else_the_older_gets_it() -> None:
    first, second = replace(USER, created="1"), replace(USER, resource="v", uid="v", created="2")
    new = _plan(second, first, claims={}, seen=UsersSeen())
    assert (new.states["v"].reason, new.claims["u"].resource) == ("UserTaken", "u")
    later = _plan(replace(first, created="3"), second)
    assert (later.states["v"].reason, later.claims["u"].resource) == ("UserTaken", "u")


def test_a_user_of_a_malformed_resource_is_not_taken_over() -> None:
    second = replace(USER, resource="v", uid="v")
    plan = _plan(second, unread=(UnreadUser("u", "u"),), there=frozenset({("u", "uid")}))
    assert (plan.states["v"].reason, plan.count) == ("UserTaken", 0)
    assert plan.claims == {"u": CLAIM}


# Deletion


def test_what_the_claim_names_is_deleted_once_the_resource_is_gone() -> None:
    seen = replace(
        SEEN,
        credentials={"u": {SCRAM: 4096, "SCRAM-SHA-256": 4096}},
        acls={"u": frozenset({READ, WRITE})},
        quotas={"u": {"producer_byte_rate": 5.0, "x": 1.0}},
    )
    plan = _plan(seen=seen)
    change = plan.gone["u"]
    assert change == UserChange(drop=(SCRAM,), delete=frozenset({READ}), remove=("producer_byte_rate",))
    assert plan.claims == {"u": CLAIM}, "until that is seen"


def test_a_view_without_a_proof_ends_no_claim() -> None:
    """A broker that lags did not show a user, its claim ended, and its password and ACLs stayed for ever."""
    assert _plan(seen=UsersSeen()).claims == {"u": CLAIM}
    assert _plan(seen=UsersSeen(proven=frozenset({"v"}))).claims == {"u": CLAIM}
    assert _plan(seen=UsersSeen(proven=frozenset({"u"}))).claims == {}
    assert _plan(claims={"u": UserClaim("u", "u", "uid")}, seen=UsersSeen()).claims == {}, "it names nothing"


def test_a_view_without_a_proof_shrinks_no_claim() -> None:
    bare = replace(USER, acls=frozenset(), quotas={}, mechanism="")
    assert _plan(bare, seen=UsersSeen()).claims == {"u": CLAIM}
    proven = UsersSeen(proven=frozenset({"u"}))
    assert _plan(bare, seen=proven).claims == {"u": UserClaim("u", "u", "uid")}


def test_a_claim_that_names_more_than_is_seen_needs_a_proof() -> None:
    assert unseen([CLAIM], SEEN) == []
    for view in ("credentials", "acls", "quotas"):
        assert unseen([CLAIM], replace(SEEN, **{view: {}})) == [CLAIM]


@pytest.mark.parametrize(
    "declared",
    [
        {"there": frozenset({("u", "uid")})},
        {"unread": (UnreadUser("u", "elsewhere"),)},
        {"unread": (UnreadUser("other", "u"),)},
    ],
    ids=["exists", "malformed", "may mean it"],
)
def test_a_claim_stays_while_its_resource_may_exist(declared: dict[str, Any]) -> None:
    plan = _plan(**declared)
    assert (plan.count, plan.claims) == (0, {"u": CLAIM})


@pytest.mark.parametrize("view", [CREDENTIALS, ACLS, QUOTAS])
def test_an_unknown_view_is_not_an_empty_one(view: str) -> None:
    """Nothing in the view changes, and claims on it stay."""
    empty = {CREDENTIALS: "credentials", ACLS: "acls", QUOTAS: "quotas"}[view]
    hidden = replace(SEEN, **{empty: {}}, hidden={view: "why"})
    for plan in (_plan(seen=hidden), _plan(USER, seen=hidden)):
        assert plan.claims == {"u": CLAIM}
    assert not _plan(USER, seen=hidden).count
    assert (_plan(USER, seen=hidden).states["u"].reason, _plan(USER, seen=hidden).states["u"].message) == (
        "NotVisible",
        "why",
    )
    gone = _plan(seen=replace(hidden, credentials={}, acls={}, quotas={}))
    assert gone.claims == {"u": CLAIM}, "the claim outlives what is unknown"
    unneeded = replace(USER, acls=frozenset(), quotas={})
    bare = replace(CLAIM, acls=frozenset(), quotas=frozenset())
    if view != CREDENTIALS:
        assert _plan(unneeded, seen=replace(hidden, acls={}, quotas={}), claims={"u": bare}).states["u"].ready


def test_one_user_with_unknown_credentials_waits_alone() -> None:
    seen = replace(SEEN, credentials={}, hidden_users={"u": "why"})
    plan = _plan(USER, replace(USER, resource="v", user="v", sent=""), seen=seen)
    assert plan.states["u"].reason == "NotVisible"
    assert set(plan.changes) == {"v"}


def test_a_recreated_resource_takes_over_the_claim_of_its_name() -> None:
    plan = _plan(replace(USER, uid="new"))
    assert plan.claims["u"] == replace(CLAIM, uid="new")
    assert not plan.gone


def test_another_resource_waits_until_the_former_user_is_deleted() -> None:
    plan = _plan(replace(USER, resource="v", uid="v"))
    assert plan.states["v"].reason == "UserLeaves"
    assert set(plan.gone) == {"u"}


@pytest.mark.parametrize("mechanism", [OTHER, ""], ids=["password", "certificate"])
def test_without_new_credentials_the_former_password_stays(mechanism: str) -> None:
    missing = Credential("", "SecretMissing", "the Secret is missing")
    plan = _plan(replace(USER, mechanism=mechanism), credential=missing)
    assert plan.count == 0
    assert plan.claims["u"].mechanisms == {SCRAM}
    assert plan.states["u"].reason == "SecretMissing"


def test_a_pass_changes_a_bounded_number_of_users() -> None:
    many = [replace(USER, resource=str(i), user=str(i), uid=str(i), sent="") for i in range(BATCH_MAX + 5)]
    plan = _plan(*many, seen=UsersSeen(), claims={})
    assert (plan.count, len(plan.claims)) == (BATCH_MAX, BATCH_MAX)


def test_claims_stay_below_the_size_of_their_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft_operator.plan.users.CLAIMS_BYTES_MAX", 700)
    many = [replace(USER, resource=str(i), user=str(i), uid=str(i), sent="") for i in range(5)]
    plan = _plan(*many, seen=UsersSeen(), claims={})
    assert [plan.states[str(i)].reason for i in range(5)] == ["Changing"] * 2 + ["TooManyOwned"] * 3
    assert set(plan.claims) == {"0", "1"}


def test_a_stored_claim_is_not_larger_than_the_plan_assumes() -> None:
    """All claims are in one object of Kubernetes, which may have 1 MiB."""
    quotas = frozenset({"producer_byte_rate", "consumer_byte_rate"})
    uid, mechanisms = "0" * 36, frozenset({SCRAM})
    claim = replace(CLAIM, uid=uid, mechanisms=mechanisms, quotas=quotas, unanswered="2026-01-01T00:00:00+00:00")
    text = json.dumps(remembered_users({"u": claim}), separators=(",", ":"))
    assert len(text) - 2 <= _size(claim)


def test_claims_outlive_their_stored_form() -> None:
    for claim in (CLAIM, replace(CLAIM, unanswered="2026-01-01T00:00:00+00:00")):
        assert user_claims_of(remembered_users({"u": claim})) == {"u": claim}


# What is declared


def _resource(name: str = "u", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": "uid", "generation": 1, "creationTimestamp": "1"}
    return {"metadata": metadata, "spec": {"cluster": "c", **DEFAULTS, **spec}, "status": {"credential": "id"}}


def test_a_resource_becomes_acls_and_quotas() -> None:
    rule = {
        "resource": {"type": "Group", "name": "g", "pattern": "Prefixed"},
        "operations": ["Read", "Describe"],
        "permission": "Deny",
        "host": "10.0.0.1",
    }
    cluster = {"resource": {"type": "Cluster"}, "operations": ["IdempotentWrite"]}
    found, states = users.declared(
        [_resource(acls=[rule, cluster], quotas={"requestPercentage": 50}, authentication={"type": "MutualTls"})], "c"
    )
    (desired,) = found.desired_users
    assert not states
    assert desired.acls == {
        Acl(3, "g", 4, "10.0.0.1", 3, 2),
        Acl(3, "g", 4, "10.0.0.1", 8, 2),
        Acl(4, "kafka-cluster", 3, "*", 12, 3),
    }
    assert (desired.quotas, desired.mechanism, desired.sent) == ({"request_percentage": 50.0}, "", "id")


def test_every_operation_of_every_type_has_its_number() -> None:
    for kind, operations in BY_TYPE.items():
        assert users.RESOURCE_TYPES[kind]
        assert {users.OPERATIONS[one] for one in operations} >= {users.OPERATIONS[operations[0]]}


@pytest.mark.parametrize(
    "change", [{"acls": None}, {"authentication": {"type": "Kerberos"}}, {"quotas": {"producerByteRate": 0}}]
)
def test_a_malformed_resource_keeps_its_user(change: dict[str, Any]) -> None:
    resource = _resource()
    resource["spec"] = {key: value for key, value in {**resource["spec"], **change}.items() if value is not None}
    found, states = users.declared([resource], "c", [CLAIM])
    assert states["u"].reason == "NotUnderstood"
    assert f"spec.{next(iter(change))}" in states["u"].message
    assert found.unread == (UnreadUser("u", "u"),)
    assert plan_users(found, owners(found, SEEN, {"u": CLAIM}), SEEN, {"u": CLAIM}, {}).claims == {"u": CLAIM}


def test_defaults_of_the_definition_are_those_of_the_test() -> None:
    spec = KRaftUserSpec.model_validate({"cluster": "c"}).model_dump(by_alias=True, exclude_none=True)
    assert set(spec) == {"cluster", *DEFAULTS}


# Requests


class Credentials:
    """A cluster with credentials. As in Apache Kafka, a request that names a user twice changes nothing of it."""

    def __init__(self, *there: tuple[str, str], refuses_passwords: bool = False) -> None:
        self.there = {(user, NUMBERS[mechanism]) for user, mechanism in there}
        self.refuses_passwords = refuses_passwords

    async def request(self, _broker: Address, request: Any) -> m.AlterUserScramCredentialsResponse:
        assert isinstance(request, m.AlterUserScramCredentialsRequest)
        names = [one.name for one in (*request.deletions, *request.upsertions)]
        errors = {name: 92 * (names.count(name) > 1) for name in names}
        for one in request.upsertions:
            errors[one.name] = errors[one.name] or 93 * self.refuses_passwords
        self.there -= {(one.name, one.mechanism) for one in request.deletions if not errors[one.name]}
        self.there |= {(one.name, one.mechanism) for one in request.upsertions if not errors[one.name]}
        result = m.AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
        return m.AlterUserScramCredentialsResponse(results=[result(user=one, error_code=errors[one]) for one in errors])


def _carried_out(cluster: Credentials, changes: dict[str, UserChange]) -> dict[str, str]:
    client: Any = cluster
    return asyncio.run(carry_out(client, Address("b", 1), changes, dict.fromkeys(changes, "word")))


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (UserChange((OTHER, 4096), drop=(SCRAM,)), {("u", NUMBERS[OTHER]), ("v", NUMBERS[SCRAM])}),
        (UserChange(drop=(OTHER, SCRAM)), {("v", NUMBERS[SCRAM])}),
    ],
    ids=["another mechanism", "both deleted"],
)
def test_two_changes_of_one_users_credentials_are_not_in_one_request(
    change: UserChange, left: set[tuple[str, int]]
) -> None:
    cluster = Credentials(("u", SCRAM), ("u", OTHER))
    assert _carried_out(cluster, {"u": change, "v": UserChange((SCRAM, 4096))}) == {}
    assert cluster.there == left


def test_a_refused_password_deletes_no_former_password() -> None:
    cluster = Credentials(("u", SCRAM), refuses_passwords=True)
    assert "u" in _carried_out(cluster, {"u": UserChange((OTHER, 4096), drop=(SCRAM,))})
    assert cluster.there == {("u", NUMBERS[SCRAM])}
