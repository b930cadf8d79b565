"""The mode of a cluster: TLS for a new one without `spec.security`, and never another one for a cluster that exists."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.plan.model.record import PLAINTEXT, TLS, Node, Record
from kraft_operator.specs.mode import ModeProblem, in_force, mode_problems, present, secured, settled
from kraft_operator.specs.remembered import record_of, remembered
from tests.unit.operator.fake_kubernetes import FakeApi, Watching
from tests.unit.operator.reconciling import KEY, SIX, condition, new_api, new_operator, pods_of, settle
from tests.unit.operator.sample import sample

RECORD = ("ConfigMap", "demo", "sample-record")
CLUSTER = ("KRaftCluster", *KEY)
BEGUN = Record(cluster_id="x" * 22, nodes=(Node(1, "controllers", True, False),))
KNOWN = (("clients", "b"), ("cluster", "a"))
ENABLED: dict[str, Any] = {"tls": "Enabled"}
DISABLED = {"tls": "Disabled", "openListeners": ["external"]}


def api_with(security: dict[str, Any] | None) -> FakeApi:
    api = new_api()
    set_security(api, security)
    return api


def set_security(api: FakeApi, security: dict[str, Any] | None) -> None:
    spec = api.objects[CLUSTER]["spec"]
    spec.pop("security", None)
    if security is not None:
        spec["security"] = security
    api.objects[CLUSTER]["metadata"]["generation"] += 1


def run(api: FakeApi, then: Callable[[FakeApi, Watching], Awaitable[None]], *, settles: bool = True) -> None:
    async def main() -> None:
        operator = new_operator(api)
        try:
            if settles:
                await settle(api, operator)
            await then(api, operator)
        finally:
            operator.close()

    asyncio.run(main())


async def again(api: FakeApi, operator: Watching, passes: int = 3) -> None:
    for _ in range(passes):
        operator.touched(KEY)
        await operator.reconcile(KEY)
        api.work()


async def nothing(_api: FakeApi, _operator: Watching) -> None:
    """The cluster has settled, and no more is needed."""


def stored(api: FakeApi) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(api.objects[RECORD]["data"]["record"])
    return found


def has_tls(api: FakeApi) -> bool:
    """Whether every running node has TLS; fails if they differ."""
    pods = [api.objects["Pod", "demo", name] for name in pods_of(api)]
    found = {"tls" in {volume["name"] for volume in pod["spec"]["volumes"]} for pod in pods}
    assert len(found) == 1
    return found.pop()


def as_before_the_upgrade(api: FakeApi) -> None:
    """What an operator left that recorded no mode."""
    record = stored(api)
    record.pop("security", None)
    api.objects[RECORD]["data"]["record"] = json.dumps(record)
    api.objects[CLUSTER]["status"].pop("security", None)


def applied_anew(api: FakeApi) -> None:
    """Delete the resource and what is deleted with it, and apply it again: volumes, records, authorities stay."""
    resource = api.objects[CLUSTER]
    for key in [key for key, one in api.objects.items() if _owned(one) or key[0] == "Pod"]:
        del api.objects[key]
    resource.pop("status", None)
    resource["metadata"]["uid"] = "another"


def _owned(one: dict[str, Any]) -> bool:
    return bool(one["metadata"].get("ownerReferences"))


def reason(api: FakeApi) -> str:
    found = condition(api, "Degraded")
    return found["reason"] if found["status"] == "True" else ""


def test_a_new_cluster_without_the_field_has_tls_and_authentication() -> None:
    async def then(api: FakeApi, _: Watching) -> None:
        assert has_tls(api)
        assert stored(api)["security"] == "Tls"
        assert api.objects[CLUSTER]["status"]["security"] == "Tls"
        assert condition(api, "Secured")["status"] == "True"

    run(api_with(None), then)


def test_the_mode_is_recorded_before_anything_else_is_written() -> None:
    api = api_with(None)

    async def then(api: FakeApi, operator: Watching) -> None:
        await operator.reconcile(KEY)
        writes = [one for one in api.writes if one[1] != "Event"]
        assert writes[0] == ("create", "ConfigMap", "sample-record")
        assert stored(api)["security"] == "Tls"

    run(api, then, settles=False)


def test_a_cluster_that_began_without_the_field_stays_without_tls_after_the_upgrade() -> None:
    api = api_with(DISABLED)
    run(api, nothing)
    before = {name: api.objects["Pod", "demo", name]["metadata"]["uid"] for name in SIX}
    as_before_the_upgrade(api)
    set_security(api, None)

    async def then(api: FakeApi, operator: Watching) -> None:
        await again(api, operator, 6)
        assert not has_tls(api)
        assert {name: api.objects["Pod", "demo", name]["metadata"]["uid"] for name in SIX} == before
        assert reason(api) == ""
        assert api.objects[CLUSTER]["status"]["security"] == "Plaintext"
        found = condition(api, "Secured")
        assert (found["status"], found["reason"]) == ("False", "OpenListener")
        assert "external" in found["message"]
        assert "security" not in stored(api), "an operator that is rolled back reads the record"

    run(api, then)


def test_a_cluster_with_tls_of_before_the_upgrade_keeps_it() -> None:
    api = api_with(ENABLED)
    run(api, nothing)
    as_before_the_upgrade(api)

    async def then(api: FakeApi, operator: Watching) -> None:
        await again(api, operator)
        assert has_tls(api)
        assert stored(api)["security"] == "Tls"
        set_security(api, None)
        await again(api, operator)
        assert has_tls(api)
        assert reason(api) == ""

    run(api, then)


@pytest.mark.parametrize("mode", [TLS, PLAINTEXT])
def test_a_resource_applied_again_over_retained_volumes_keeps_its_former_mode(mode: str) -> None:
    api = api_with(None if mode == TLS else DISABLED)
    run(api, nothing)
    if mode == PLAINTEXT:
        as_before_the_upgrade(api)
        set_security(api, None)
    applied_anew(api)

    async def then(api: FakeApi, _: Watching) -> None:
        assert has_tls(api) == (mode == TLS)
        assert api.objects[CLUSTER]["status"]["security"] == mode

    run(api, then)


def test_a_lost_record_over_retained_volumes_blocks_instead_of_guessing() -> None:
    api = api_with(None)
    run(api, nothing)
    applied_anew(api)
    kept = api.objects.pop(RECORD)

    async def then(api: FakeApi, operator: Watching) -> None:
        api.writes.clear()
        await again(api, operator)
        assert reason(api) == "SecurityUnknown"
        assert "spec.security.tls" in condition(api, "Degraded")["message"]
        assert {kind for _, kind, _ in api.writes} == {"Event", "KRaftCluster"}
        assert pods_of(api) == []
        api.objects[RECORD] = kept
        await settle(api, operator)
        assert has_tls(api)

    run(api, then, settles=False)


def test_a_record_with_a_damaged_mode_blocks() -> None:
    api = api_with(None)

    async def then(api: FakeApi, operator: Watching) -> None:
        api.objects[RECORD]["data"]["record"] = json.dumps({**stored(api), "security": "Perhaps"})
        await again(api, operator)
        assert reason(api) == "RecordNotUnderstood"
        assert "security" in condition(api, "Degraded")["message"]

    run(api, then)


def test_authorities_without_a_mode_block_unless_the_field_says_it() -> None:
    record = Record(cluster_id="x" * 22, authorities=KNOWN)

    found = settled(record, sample().spec, remains=False, stopped=False)
    assert isinstance(found, ModeProblem)
    assert found.reason == "SecurityUnknown"
    for security, mode in ((ENABLED, TLS), (DISABLED, PLAINTEXT)):
        known = settled(record, sample(security=security).spec, remains=False, stopped=False)
        assert isinstance(known, Record)
        assert present(known) == mode


def test_an_operator_of_before_refuses_the_record_of_a_cluster_with_tls_by_default() -> None:
    """It would run the cluster in plaintext. An unknown field in the record stops it (`RecordNotUnderstood`)."""
    new = settled(Record(), sample().spec, remains=False, stopped=False)
    assert isinstance(new, Record)

    assert "security" in remembered(new)
    plain = settled(Record(), sample(security=DISABLED).spec, remains=False, stopped=False)
    assert plain == Record()


@pytest.mark.parametrize(
    "record", [BEGUN, Record(security=TLS, authorities=KNOWN), Record(security=PLAINTEXT, authorities=KNOWN)]
)
def test_the_stored_mode_is_read_back(record: Record) -> None:
    from kraft_operator.api.status import KRaftClusterStatus

    assert record_of(KRaftClusterStatus.model_validate(remembered(record))) == record


def test_the_mode_changes_only_when_a_hibernated_cluster_has_no_pods() -> None:
    record = Record(cluster_id="x" * 22, security=TLS, authorities=KNOWN)
    off, sleeps = sample(security=DISABLED), sample(security=DISABLED, hibernated=True)

    refused = settled(record, off.spec, remains=True, stopped=True)
    assert isinstance(refused, ModeProblem)
    assert refused.reason == "SecurityModeChanged"
    assert settled(record, sleeps.spec, remains=True, stopped=False) == record
    assert in_force(sleeps.spec, record).security.tls == "Enabled"  # type: ignore[union-attr]
    changed = settled(record, sleeps.spec, remains=True, stopped=True)
    assert isinstance(changed, Record)
    assert changed.security == PLAINTEXT
    without = sample(hibernated=True).spec
    assert settled(changed, without, remains=True, stopped=True) == changed, "no field, no change"


def test_a_running_cluster_that_is_asked_for_another_mode_is_not_touched() -> None:
    api = api_with(None)

    async def then(api: FakeApi, operator: Watching) -> None:
        set_security(api, DISABLED)
        api.writes.clear()
        await again(api, operator)
        assert reason(api) == "SecurityModeChanged"
        assert {kind for _, kind, _ in api.writes} == {"Event", "KRaftCluster"}
        assert has_tls(api)

    run(api, then)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"listeners": [{"name": "plain", "port": 9091}]}, "9091"),
        ({"listeners": [{"name": "replication", "port": 9092}]}, "replication"),
        ({"config": {"super.users": "User:x"}}, "super.users"),
        (
            {"listeners": [{"name": "p", "port": 9092}, {"name": "w", "port": 9094, "type": "NodePort", "tls": False}]},
            "open to everybody",
        ),
    ],
)
def test_a_new_cluster_without_the_field_is_refused_what_one_with_it_is(changes: dict[str, Any], word: str) -> None:
    given = sample(**changes)
    api = api_with(None)
    api.objects[CLUSTER]["spec"] = given.spec.model_dump(by_alias=True, exclude_none=True)

    async def then(api: FakeApi, operator: Watching) -> None:
        await operator.reconcile(KEY)
        assert reason(api) == "SecurityNotValid"
        assert word in condition(api, "Degraded")["message"]
        assert RECORD not in api.objects

    run(api, then, settles=False)


def test_a_listener_that_a_plaintext_cluster_cannot_serve_is_named() -> None:
    given = sample(listeners=[{"name": "p", "port": 9092, "authentication": "ScramSha512"}])

    (problem,) = mode_problems(given, given.spec)
    assert "spec.listeners[p]" in problem
    assert "began without TLS" in problem


@pytest.mark.parametrize(
    ("security", "listener", "found"),
    [
        ({}, {}, "TlsAndAuthentication"),
        ({}, {"tls": False}, "ListenerWithoutTls"),
        ({}, {"authentication": "Anonymous"}, "AnonymousClients"),
        ({"tls": "Disabled"}, {}, "Plaintext"),
        ({}, {"type": "NodePort", "tls": False}, "OpenListener"),
        ({"openListeners": ["more"]}, {"type": "NodePort", "authentication": "Anonymous"}, "AnonymousClients"),
    ],
)
def test_the_condition_secured_names_what_is_open(security: Any, listener: dict[str, Any], found: str) -> None:
    listeners = [{"name": "plain", "port": 9092}, {"name": "more", "port": 9094, **listener}]

    assert secured(sample(security=security, listeners=listeners)).reason == found


def test_the_default_is_the_same_as_an_empty_field() -> None:
    spec = sample().spec
    record = settled(Record(), spec, remains=False, stopped=False)

    assert isinstance(record, Record)
    assert in_force(spec, record) == KRaftClusterSpec.model_validate({**spec.model_dump(), "security": {}})
